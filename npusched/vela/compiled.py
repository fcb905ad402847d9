"""The file that Vela wrote: which ops stayed on the CPU, and what the NPU ops stream.

``source_placement`` is the referee for NPU/CPU placement: it looks at the compiled file, not at
the database, whose rows can be missing (VELA_SPEC_2 §1).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum

import msgspec

from npusched.errors import VelaError
from npusched.graph.types import SourceRef
from npusched.ir import Model, Op, OpKind, Subgraph
from npusched.tflite.reader import read_compiled
from npusched.vela.reader import read_placed
from npusched.vela.result import VelaResult
from npusched.vela.stream import Stream, decode_stream

NPU_OP = "ethos-u"
"""Custom code of the ops that hold a command stream."""

MOVERS = frozenset(
    {
        OpKind.RESHAPE,
        OpKind.SQUEEZE,
        OpKind.EXPAND_DIMS,
        OpKind.TRANSPOSE,
        OpKind.CONCATENATION,
        OpKind.PACK,
        OpKind.UNPACK,
        OpKind.SPLIT,
        OpKind.SPLIT_V,
        OpKind.SLICE,
        OpKind.STRIDED_SLICE,
        OpKind.PAD,
        OpKind.PADV2,
        OpKind.QUANTIZE,
        OpKind.REVERSE_V2,
        OpKind.SPACE_TO_BATCH_ND,
        OpKind.BATCH_TO_SPACE_ND,
        OpKind.VAR_HANDLE,
        OpKind.CAST,
    }
)
"""Ops that Vela can take away: views, copies done by their neighbours, pads, requantisation."""


class VelaPlacement(StrEnum):
    """What became of a source op: NPU work of its own, CPU, absorbed by neighbours, or dropped.

    ``ABSORBED`` ops are views or copies that left no op behind; ``DROPPED`` ones reach no output.
    """

    NPU = "npu"
    CPU = "cpu"
    ABSORBED = "absorbed"
    DROPPED = "dropped"


class PlacementReading(msgspec.Struct, frozen=True):
    """Placement per source op, and the CPU ops of the compiled file that match no source op."""

    ops: dict[SourceRef, VelaPlacement]
    unmatched: tuple[SourceRef, ...]


def read_compiled_model(result: VelaResult) -> Model:
    """Decode the compiled file. Raises VelaError for raw output, ModelError if it is damaged."""
    if not result.compiled:
        raise VelaError(
            "this Vela result holds no .tflite file",
            f"its output format is {result.options.output_format}",
            "compile with the TFLite output format",
        )
    return read_compiled(result.compiled, "vela")


def read_streams(model: Model) -> tuple[Stream, ...]:
    """Decode the command streams of a compiled file's ethos-u ops, in file order.

    Raises ModelError for a malformed one.
    """
    streams = []
    for graph in model.subgraphs:
        for op in graph.ops:
            if op.custom_code == NPU_OP and op.inputs:
                data = graph.tensors[op.inputs[0]].data
                streams.append(decode_stream(b"" if data is None else data.tobytes()))
    return tuple(streams)


def source_placement(result: VelaResult, model: Model) -> dict[SourceRef, VelaPlacement]:
    """Return where Vela put each op of ``model``, the file it compiled."""
    return read_placement(result, model).ops


def read_placement(result: VelaResult, model: Model) -> PlacementReading:
    """Match the CPU ops of the compiled file with the source ops; the others are on the NPU.

    An op matches by subgraph, kind and names of its results; among equals, the one that shares
    most operands (names, shapes, constants), then the first. Raises like ``read_compiled_model``.
    """
    compiled = read_compiled_model(result)
    cpu: set[SourceRef] = set()
    unmatched: list[SourceRef] = []
    for graph, written in zip(model.subgraphs, compiled.subgraphs, strict=False):
        found, rest = _match_cpu_ops(graph, written)
        cpu |= found
        unmatched += rest
    counts = [len(graph.ops) for graph in model.subgraphs]
    scheduled = read_placed(result.database, counts)
    placements: dict[SourceRef, VelaPlacement] = {}
    for graph in model.subgraphs:
        useful = _useful_ops(graph)
        for op in graph.ops:
            ref = (graph.index, op.index)
            if ref in cpu:
                placements[ref] = VelaPlacement.CPU
            elif ref in scheduled:
                placements[ref] = VelaPlacement.NPU
            elif op.index not in useful:
                placements[ref] = VelaPlacement.DROPPED
            elif op.kind in MOVERS or _all_constant(graph, op):
                placements[ref] = VelaPlacement.ABSORBED
            else:
                placements[ref] = VelaPlacement.NPU
    return PlacementReading(placements, tuple(unmatched))


def _name(graph: Subgraph, index: int) -> str:
    """Name of a tensor as Vela writes it."""
    return graph.tensors[index].name or "<unnamed>"


def _key(graph: Subgraph, op: Op) -> tuple[str, ...]:
    return (op.kind, op.custom_code, *(_name(graph, index) for index in op.outputs if index >= 0))


def _operands(graph: Subgraph, op: Op) -> Counter[tuple[object, ...]]:
    """Describe all operands, constants by value, to tell ops apart that have equal names."""
    described: list[tuple[object, ...]] = []
    for position, index in enumerate((*op.inputs, *op.outputs)):
        if index >= 0:
            tensor = graph.tensors[index]
            value = None if tensor.data is None else hash(tensor.data.tobytes())
            described += [(position, _name(graph, index)), (position, tensor.shape, value)]
    return Counter(described)


def _match_cpu_ops(graph: Subgraph, written: Subgraph) -> tuple[set[SourceRef], list[SourceRef]]:
    """Return (source ops found on the CPU, compiled CPU ops without a source op)."""
    candidates: dict[tuple[str, ...], list[Op]] = defaultdict(list)
    for op in graph.ops:
        candidates[_key(graph, op)].append(op)
    found: set[SourceRef] = set()
    unmatched = []
    for op in written.ops:
        if op.custom_code == NPU_OP and not _is_source_npu_op(graph):
            continue
        equals = candidates.get(_key(written, op), [])
        if not equals:
            unmatched.append((written.index, op.index))
            continue
        best = equals[0]
        if len(equals) > 1:
            operands = _operands(written, op)
            best = max(equals, key=lambda each: (_operands(graph, each) & operands).total())
        equals.remove(best)
        found.add((graph.index, best.index))
    return found, unmatched


def _is_source_npu_op(graph: Subgraph) -> bool:
    """True if the source file itself was already compiled: its ethos-u ops are CPU ops to Vela."""
    return any(op.custom_code == NPU_OP for op in graph.ops)


def _all_constant(graph: Subgraph, op: Op) -> bool:
    """True if the op only reads constants, so that its result may have been computed."""
    return bool(op.inputs) and all(
        index < 0 or graph.tensors[index].is_constant for index in op.inputs
    )


def _useful_ops(graph: Subgraph) -> set[int]:
    """Return the ops that lead to a graph output, or have no result (they act by side effect)."""
    writers = {index: op for op in graph.ops for index in op.outputs}
    pending = [writers[index] for index in graph.outputs if index in writers]
    pending += [op for op in graph.ops if not op.outputs]
    useful: set[int] = set()
    while pending:
        op = pending.pop()
        if op.index not in useful:
            useful.add(op.index)
            pending += [writers[index] for index in op.inputs if index in writers]
    return useful
