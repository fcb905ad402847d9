"""Chains: runs of ops that may execute stripe by stripe, with the results in between in SRAM.

An op can be striped along the height if regor's cascade builder would take it, and two
consecutive ops can be linked if the tensor between them may live in a rolling buffer. What stops
an op or a link is named. Sources: VELA_SPEC §4; Vela 5.2.0, ``compiler/cascade_builder.cpp``
(IsCascadable, BuildCascades), ``compiler/scheduler.cpp`` (requireFullTensor).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from npusched.graph.kinds import CONVOLUTIONS, POOLS, is_binary, is_elementwise
from npusched.graph.types import KernelKind, Layout, Placement, ScheduledOp, Upscale
from npusched.ir import OpKind

if TYPE_CHECKING:
    from npusched.graph.opgraph import OpGraph


class StopKind(StrEnum):
    """Why an op cannot be striped, or cannot be linked to the op before it."""

    FIRST_OP = "first_op"
    CPU_OP = "cpu_op"
    CUSTOM_OP = "custom_op"
    FULLY_CONNECTED = "fully_connected"
    TRANSPOSE = "transpose"
    REQUANTISATION = "requantisation"
    ACTIVATION = "activation"
    COPY = "copy"
    REDUCTION = "reduction"
    MATRIX_PRODUCT = "matrix_product"
    RESAMPLING = "resampling"
    UNSUPPORTED_KERNEL = "unsupported_kernel"
    CONSTANT_INPUT = "constant_input"
    HEIGHT_1 = "height_1"
    CHAINED_OPS = "chained_ops"
    POOL_PADDING = "pool_padding"
    SPLIT_OP = "split_op"
    OTHER_INPUT = "other_input"
    SECOND_CONSUMER = "second_consumer"
    SEVERAL_WRITERS = "several_writers"
    GRAPH_OUTPUT = "graph_output"
    RESHAPE = "reshape"
    SLICE = "slice"
    LINEAR_LAYOUT = "linear_layout"


_TEXTS: dict[StopKind, str] = {
    StopKind.FIRST_OP: "nothing runs before it",
    StopKind.CPU_OP: "an op on the CPU is in between",
    StopKind.CUSTOM_OP: "a custom op is in between",
    StopKind.FULLY_CONNECTED: "a fully connected op needs its whole input",
    StopKind.TRANSPOSE: "a transpose needs its whole input",
    StopKind.REQUANTISATION: "a requantisation of its own is not striped",
    StopKind.ACTIVATION: "an activation of its own is not striped",
    StopKind.COPY: "a copy is not striped",
    StopKind.REDUCTION: "a reduction needs its whole input",
    StopKind.MATRIX_PRODUCT: "a matrix product needs its whole inputs",
    StopKind.RESAMPLING: "an upscaled input is not striped",
    StopKind.UNSUPPORTED_KERNEL: "this kernel is not striped",
    StopKind.CONSTANT_INPUT: "its input is constant",
    StopKind.HEIGHT_1: "its result has one row",
    StopKind.POOL_PADDING: "an average pool that is padded above or below only would divide "
    "differently in its middle stripes",
    StopKind.CHAINED_OPS: "ops chained into the kernel are not striped",
    StopKind.SPLIT_OP: "it runs in several pieces",
    StopKind.OTHER_INPUT: "it does not read the result of the op before it",
    StopKind.SECOND_CONSUMER: "the tensor in between has a second consumer",
    StopKind.SEVERAL_WRITERS: "the tensor in between has several writers",
    StopKind.GRAPH_OUTPUT: "the tensor in between is a graph output",
    StopKind.RESHAPE: "the tensor in between is reshaped",
    StopKind.SLICE: "only a slice of the tensor in between is used",
    StopKind.LINEAR_LAYOUT: "the tensor in between is stored row by row",
}


class Stop(msgspec.Struct, frozen=True):
    """A reason, the op that it concerns and, for links, the tensor in between (else -1)."""

    kind: StopKind
    op: int
    tensor: int = -1

    @property
    def text(self) -> str:
        """The reason as a clause."""
        return _TEXTS[self.kind]


class Chain(msgspec.Struct, frozen=True):
    """Ops [first, end) that may run stripe by stripe together; one op alone is a chain, too."""

    first: int
    end: int

    @property
    def ops(self) -> range:
        """Ids of the ops."""
        return range(self.first, self.end)


def primary_ifm(op: ScheduledOp) -> int:
    """Return which input an op is striped along.

    The second of a binary op if the first is broadcast and the second is not, else the first.
    """
    if not is_binary(op.kind) or len(op.ifms) < 2:
        return 0
    first, second = op.ifms[0], op.ifms[1]
    return int(first.shape != op.ofm.shape and second.shape == op.ofm.shape)


def stripe_stop(graph: OpGraph, op: ScheduledOp) -> StopKind | None:
    """Return why ``op`` cannot run in stripes along its height, None if it can."""
    if op.placement is Placement.CPU:
        kinds = {graph.sources[index].kind for _, index in op.source_ops}
        return StopKind.CUSTOM_OP if OpKind.CUSTOM in kinds else StopKind.CPU_OP
    kind = _kernel_stop(op)
    if kind is not None:
        return kind
    if op.transpose is not None or any(sub.transpose is not None for sub in op.sub_ops):
        return StopKind.TRANSPOSE
    if any(sub.chained for sub in op.sub_ops):
        return StopKind.CHAINED_OPS
    if op.count > 1:
        return StopKind.SPLIT_OP
    if op.upscale is not Upscale.NONE:
        return StopKind.RESAMPLING
    if graph.feature_maps[op.ifms[primary_ifm(op)].tensor].is_constant:
        return StopKind.CONSTANT_INPUT
    return StopKind.HEIGHT_1 if op.ofm.shape[1] <= 1 else None


def _kernel_stop(op: ScheduledOp) -> StopKind | None:
    kind = op.kind
    if kind in CONVOLUTIONS or is_elementwise(kind):
        return None
    if kind in POOLS:
        return StopKind.REDUCTION if kind is KernelKind.REDUCE_SUM else None
    return {
        KernelKind.FULLY_CONNECTED: StopKind.FULLY_CONNECTED,
        KernelKind.MATMUL: StopKind.MATRIX_PRODUCT,
        KernelKind.TRANSPOSE: StopKind.TRANSPOSE,
        KernelKind.REVERSE: StopKind.TRANSPOSE,
        KernelKind.QUANTIZE: StopKind.REQUANTISATION,
        KernelKind.RESCALE: StopKind.REQUANTISATION,
        KernelKind.MEMORY_COPY: StopKind.COPY,
        KernelKind.RESIZE: StopKind.RESAMPLING,
    }.get(kind, StopKind.ACTIVATION if kind in _STANDALONE else StopKind.UNSUPPORTED_KERNEL)


_STANDALONE = frozenset(
    {
        KernelKind.RELU,
        KernelKind.RELU0_TO_1,
        KernelKind.RELU6,
        KernelKind.RELU_N1_TO_1,
        KernelKind.CLAMP,
        KernelKind.SIGMOID,
        KernelKind.TANH,
        KernelKind.LUT,
    }
)


def link_stop(graph: OpGraph, before: ScheduledOp, op: ScheduledOp) -> StopKind | None:
    """Return why the tensor between two NPU ops cannot live in a rolling buffer."""
    written, read = before.final_ofm, op.ifms[primary_ifm(op)]
    if written.tensor != read.tensor:
        return StopKind.OTHER_INPUT
    tensor = graph.feature_maps[written.tensor]
    if tensor.is_graph_output or tensor.is_graph_input:
        return StopKind.GRAPH_OUTPUT
    if len(graph.writers[tensor.id]) > 1:
        return StopKind.SEVERAL_WRITERS
    uses = sum(access.tensor == tensor.id for access in op.reads)
    if uses > 1 or len(graph.readers[tensor.id]) > 1:
        return StopKind.SECOND_CONSUMER
    if written.is_slice or read.is_slice:
        return StopKind.SLICE
    if written.view != read.view:
        return StopKind.RESHAPE
    return StopKind.LINEAR_LAYOUT if tensor.layout is Layout.NHWC else None


def chains_of(graph: OpGraph) -> tuple[tuple[Stop | None, ...], tuple[Chain, ...]]:
    """Return (per op the stop between it and the op before it, the maximal chains in order)."""
    own = [stripe_stop(graph, op) for op in graph.ops]
    stops: list[Stop | None] = []
    starts: list[int] = []
    for op in graph.ops:
        stop = _stop_before(graph, op, own)
        stops.append(stop)
        if stop is not None:
            starts.append(op.id)
    ends = [*starts[1:], len(graph.ops)]
    return tuple(stops), tuple(Chain(a, b) for a, b in zip(starts, ends, strict=False))


def _stop_before(graph: OpGraph, op: ScheduledOp, own: list[StopKind | None]) -> Stop | None:
    if op.id == 0:
        return Stop(StopKind.FIRST_OP, op.id)
    for number in (op.id - 1, op.id):
        kind = own[number]
        if kind is not None:
            return Stop(kind, number)
    before = graph.ops[op.id - 1]
    kind = link_stop(graph, before, op)
    return None if kind is None else Stop(kind, op.id, before.final_ofm.tensor)
