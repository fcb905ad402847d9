"""Exact sizes of encoded weights, read from the command streams of a compiled file.

The streams say how many bytes of weights and scales each kernel reads per core (VELA_SPEC §6,
registers WEIGHT_LENGTH, SCALE_LENGTH and their siblings); the database's ``queue`` says which op
each kernel belongs to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise, zip_longest

import msgspec

from npusched.cost.types import Traversal
from npusched.errors import VelaError
from npusched.graph.types import SourceRef
from npusched.ir import Model
from npusched.vela.compiled import read_compiled_model, read_streams
from npusched.vela.reader import read_optimised, read_queue, read_sources
from npusched.vela.result import VelaResult
from npusched.vela.stream import Stream, StreamOp, StreamOpKind


class EncodedPart(msgspec.Struct, frozen=True):
    """Bytes that one core reads for one depth slice.

    ``weights_bytes`` is a multiple of 16; ``scales_bytes`` includes the padding to 16 (all scales
    of a U85 are on core 0). ``channels`` is the depth of the slice, all cores together.
    """

    slice: int
    core: int
    channels: int
    weights_bytes: int
    scales_bytes: int


class EncodedOp(msgspec.Struct, frozen=True, kw_only=True):
    """Encoded weights of one scheduled op.

    ``source_ref`` is the TFLite op (None if Vela made it up), ``order`` counts the scheduled ops
    with weights of that source op from 0, in schedule order. ``scheduled_id`` is the database's.
    """

    source_ref: SourceRef | None
    order: int
    scheduled_id: int
    ofm_block_depth: int
    traversal: Traversal
    parts: tuple[EncodedPart, ...]

    @property
    def slices(self) -> int:
        """Number of depth slices."""
        return max(part.slice for part in self.parts) + 1

    @property
    def weights_bytes(self) -> int:
        """Weights of all slices and cores."""
        return sum(part.weights_bytes for part in self.parts)

    @property
    def scales_bytes(self) -> int:
        """Scales of all slices and cores."""
        return sum(part.scales_bytes for part in self.parts)


def stream_kernels(result: VelaResult) -> dict[int, tuple[StreamOp, ...]]:
    """Return the kernel starts of each scheduled op (by database id), in issue order.

    Chained ops of a U85 start kernels of their own, under their own ids.

    Empty if no op is on the NPU. Needs the debug database. Raises VelaError if database and
    streams do not fit together.
    """
    if not result.report.npu_ops:
        return {}
    return _kernels_of(result, read_streams(read_compiled_model(result)))


def encoded_weights(result: VelaResult, model: Model) -> tuple[EncodedOp, ...]:
    """Return the encoded sizes of every scheduled op that has constant weights.

    ``model`` is the file that was compiled. All its subgraphs are covered. Raises VelaError as
    ``stream_kernels``.
    """
    kernels = stream_kernels(result)
    sources = {
        source.id: source.ref
        for source in read_sources(result.database, [len(g.ops) for g in model.subgraphs])
    }
    origin = {op.id: sources.get(op.source_id) for op in read_optimised(result.database)}
    optimised = {row.scheduled_id: row.optimised_id for row in read_queue(result.database)}
    perf = result.database.table("perf_debug")
    borders = dict(zip(perf.ints("id"), perf.texts("ofm_depth_slices"), strict=True))
    seen: Counter[SourceRef | None] = Counter()
    result_ops = []
    for id_, ops in kernels.items():
        if not ops[0].weights:
            continue
        ref = origin.get(optimised[id_])
        depths = _depths(borders[id_]) if id_ in borders else [op.ofm_depth for op in ops]
        if id_ not in borders and _is_striped(ops):
            depths = depths[:1]
        result_ops.append(
            EncodedOp(
                source_ref=ref,
                order=seen[ref],
                scheduled_id=id_,
                ofm_block_depth=ops[0].ofm_block_depth,
                traversal=_traversal(ops[0]),
                parts=tuple(
                    part
                    for index, depth in enumerate(depths)
                    for part in _parts(index, depth, ops[index])
                ),
            )
        )
        seen[ref] += 1
    return tuple(result_ops)


def _kernels_of(result: VelaResult, streams: tuple[Stream, ...]) -> dict[int, tuple[StreamOp, ...]]:
    queue = read_queue(result.database)
    ids = sorted(result.database.table("cmdstream").ints("id"))
    if len(ids) != len(streams):
        raise _mismatch(f"{len(streams)} command streams in the file, {len(ids)} in the database")
    places = {
        stream_id: {op.offset_bytes: op for op in stream.kernels}
        for stream_id, stream in zip(ids, streams, strict=True)
    }
    kernels: dict[int, list[StreamOp]] = defaultdict(list)
    for row in queue:
        op = places[row.stream_id].get(row.offset_bytes)
        if op is None:
            raise _mismatch(f"no kernel starts at byte {row.offset_bytes} of a stream")
        kernels[row.scheduled_id].append(op)
    return {id_: tuple(ops) for id_, ops in kernels.items()}


def _mismatch(why: str) -> VelaError:
    return VelaError(
        "Vela's debug database does not fit the file it wrote",
        why,
        "clear the cache (npusched cache clear) and run again",
    )


def _traversal(op: StreamOp) -> Traversal:
    if op.kind is StreamOpKind.DEPTHWISE:
        return Traversal.DEPTHWISE
    return Traversal.PART_KERNEL if op.is_part_kernel else Traversal.DEPTH_FIRST


def _depths(borders: str) -> list[int]:
    """Turn slice borders ("0|16|40") into depths (16, 24)."""
    numbers = [int(border) for border in borders.split("|") if border]
    return [end - start for start, end in pairwise(numbers)]


def _is_striped(ops: tuple[StreamOp, ...]) -> bool:
    """Tell stripes from slices where the database has no row: stripes re-read the same weights."""
    return all(op.weights == ops[0].weights for op in ops)


def _parts(index: int, depth: int, op: StreamOp) -> list[EncodedPart]:
    return [
        EncodedPart(
            slice=index,
            core=core,
            channels=depth,
            weights_bytes=weights.length_bytes if weights else 0,
            scales_bytes=scales.length_bytes if scales else 0,
        )
        for core, (weights, scales) in enumerate(zip_longest(op.weights, op.scales))
    ]
