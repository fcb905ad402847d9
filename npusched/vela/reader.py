"""Read the debug database into typed rows: columns in, frozen values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from npusched.cost.types import Traversal
from npusched.graph.types import Kernel, Layout, Reverse, Shape4, SourceRef
from npusched.hardware.target import Block
from npusched.ir import DataType
from npusched.vela.records import (
    VelaBlock,
    VelaEstimates,
    VelaFm,
    VelaOp,
    VelaOptimised,
    VelaQueued,
    VelaSource,
    VelaTensor,
    VelaTraffic,
    VelaWeights,
)
from npusched.vela.tables import DebugDatabase, DebugTable, broken

PURPOSES = ("Lut", "FeatureMap", "Weights", "Scales")

_NO_SHAPE = (0, 0, 0, 0)
_DTYPES = {dtype.label: dtype for dtype in DataType} | {"bool8": DataType.BOOL}
_LAYOUTS = {"NHCWB16": Layout.NHCWB16}
_REVERSES = {"H": Reverse.H, "W": Reverse.W, "C": Reverse.C}
_TRAVERSALS = {str(traversal): traversal for traversal in Traversal}


def read_ops(database: DebugDatabase, op_counts: Sequence[int] = ()) -> tuple[VelaOp, ...]:
    """Return the primary ops in row order, each with its followers.

    ``op_counts`` are the numbers of operators of the file's subgraphs, needed only where a
    subgraph before others is empty. If the file has several subgraphs, Vela 5.2 keeps the rows of
    only one of them (VELA_SPEC_2 §1).
    """
    rows = _read_rows(database, op_counts)
    followers: dict[int, list[VelaOp]] = defaultdict(list)
    for row in rows:
        if not row.is_primary:
            followers[row.group_id].append(row)
    return tuple(
        _with_followers(row, tuple(followers.get(row.id, ()))) for row in rows if row.is_primary
    )


def read_sources(database: DebugDatabase, op_counts: Sequence[int] = ()) -> tuple[VelaSource, ...]:
    """Return the operators of the file as Vela numbered them.

    ``ext_key`` counts operators within a subgraph; it starts at 0 in each, which tells the
    subgraphs apart (Vela 5.2.0, tflite_reader.cpp reads all subgraphs in file order).
    """
    table = database.table("source")
    filled = [index for index, count in enumerate(op_counts) if count]
    refs: list[SourceRef | None] = []
    seen = -1
    for key in table.ints("ext_key"):
        seen += key == 0
        subgraph = filled[seen] if 0 <= seen < len(filled) else max(seen, 0)
        refs.append((subgraph, key) if key >= 0 else None)
    return tuple(
        VelaSource(
            id=id_, ref=ref, operator=operator, kernel_h=kh, kernel_w=kw, ofm_h=h, ofm_w=w, ofm_c=c
        )
        for ref, operator, id_, kh, kw, h, w, c in zip(
            refs, table.texts("operator"), table.ints("id"), *_small_shape(table), strict=True
        )
    )


def read_placed(database: DebugDatabase, op_counts: Sequence[int] = ()) -> frozenset[SourceRef]:
    """Return the source ops that have a scheduled op (fused and CPU ones included)."""
    used = set(database.table("perf").ints("source_id"))
    return frozenset(
        source.ref
        for source in read_sources(database, op_counts)
        if source.id in used and source.ref is not None
    )


def read_optimised(database: DebugDatabase) -> tuple[VelaOptimised, ...]:
    """Return the operators after rewriting."""
    table = database.table("optimised")
    return tuple(
        VelaOptimised(
            id=id_,
            source_id=source,
            operator=operator,
            kernel_h=kh,
            kernel_w=kw,
            ofm_h=h,
            ofm_w=w,
            ofm_c=c,
        )
        for operator, id_, source, kh, kw, h, w, c in zip(
            table.texts("operator"),
            table.ints("id"),
            table.ints("source_id"),
            *_small_shape(table),
            strict=True,
        )
    )


def read_tensors(database: DebugDatabase) -> tuple[VelaTensor, ...]:
    """Return the allocated tensors, in row order."""
    table = database.table("tensors")
    return tuple(
        VelaTensor(
            id=id_,
            name=name,
            dtype=dtype,
            memory=memory,
            usage=usage,
            format=layout,
            start_time=start,
            end_time=end,
            start_address=first,
            end_address=last,
            size_bytes=size,
        )
        for name, dtype, memory, usage, layout, id_, start, end, first, last, size in zip(
            *(table.texts(c) for c in ("name", "data_type", "memory", "usage", "format")),
            *(table.ints(c) for c in ("id", "start_time", "end_time")),
            *(table.ints(c) for c in ("start_address", "end_address", "size")),
            strict=True,
        )
    )


def read_queue(database: DebugDatabase) -> tuple[VelaQueued, ...]:
    """Return the kernel starts of all command streams, in row order."""
    table = database.table("queue")
    columns = ("offset", "cmdstream_id", "optimised_id", "scheduled_id")
    return tuple(VelaQueued(*row) for row in zip(*map(table.ints, columns), strict=True))


def _small_shape(table: DebugTable) -> tuple[tuple[int, ...], ...]:
    return tuple(map(table.ints, ("kernel_h", "kernel_w", "ofm_h", "ofm_w", "ofm_d")))


def _with_followers(row: VelaOp, followers: tuple[VelaOp, ...]) -> VelaOp:
    if not followers:
        return row
    from msgspec.structs import replace

    return replace(row, followers=followers)


def _read_rows(database: DebugDatabase, op_counts: Sequence[int]) -> list[VelaOp]:
    """Join the tables on the op id; one value per row of ``perf``."""
    perf, debug = database.table("perf"), database.table("perf_debug")
    memories = [name.removesuffix("_ac") for name in perf.header if name.endswith("_ac")]
    sources = {source.id: source for source in read_sources(database, op_counts)}
    place = {id_: position for position, id_ in enumerate(debug.ints("id"))}
    groups = dict(zip(*map(database.table("group").ints, ("id", "group_id")), strict=True))
    blocks, inputs = _blocks(database), _inputs(database)
    ifms, ifm2s, ofms = _fms(debug, "ifm"), _fms(debug, "ifm2"), _fms(debug, "ofm")
    kernels, weights, traffic = _kernels(debug), _weights(debug), _traffic(debug, memories)
    estimates = _estimates(debug)
    multipliers = debug.ints("kernel_depth_multiplier")
    transposes, reverses = debug.texts("transpose_type"), debug.texts("reverse_type")
    times, cascades = debug.ints("time_index"), debug.ints("cascade")
    cycles = list(zip(*(perf.ints(f"{memory}_ac") for memory in memories), strict=True))
    columns = ("id", "source_id", "optimised_id", "staging_usage")
    costs = ("op_cycles", "npu_cycles", "mac_count")
    rows = []
    for index, (operator, name, id_, source_id, optimised_id, staging, op, npu, macs) in enumerate(
        zip(
            perf.texts("operator"),
            perf.texts("name"),
            *map(perf.ints, columns + costs),
            strict=True,
        )
    ):
        at = place.get(id_, -1)
        if at < 0:
            raise broken(f"op {id_} of table perf is not in perf_debug")
        source = sources.get(source_id)
        rows.append(
            VelaOp(
                id=id_,
                index=index,
                operator=operator,
                name=name,
                source_id=source_id,
                optimised_id=optimised_id,
                source_ref=source.ref if source else None,
                source_operator=source.operator if source else "",
                group_id=groups.get(id_, id_),
                staging_usage_bytes=staging,
                op_cycles=op,
                npu_cycles=npu,
                mac_count=macs,
                memory_cycles=tuple(zip(memories, cycles[index], strict=True)),
                ifm=ifms[at],
                ifm2=ifm2s[at],
                ofm=ofms[at],
                kernel=kernels[at],
                depth_multiplier=multipliers[at],
                transpose=transposes[at],
                reverse=_REVERSES.get(reverses[at], Reverse.NONE),
                time_index=times[at],
                cascade=cascades[at],
                weights=weights[at],
                estimates=estimates[at],
                traffic=traffic[at],
                block=blocks.get(id_),
                inputs=tuple(inputs.get(id_, ())),
            )
        )
    return rows


def _shapes(table: DebugTable, name: str) -> list[Shape4]:
    return list(zip(*(table.ints(f"{name}_{axis}") for axis in "nhwc"), strict=True))


def _fms(table: DebugTable, name: str) -> list[VelaFm | None]:
    """Read one operand's columns; None in rows that have no such operand."""
    result: list[VelaFm | None] = []
    pre = table.texts(f"{name}_pre_buffering")
    buffering = table.texts(f"{name}_buffering")
    for at, (shape, region, offset, steps, stripe, memory, layout, dtype) in enumerate(
        zip(
            *(_shapes(table, f"{name}_{p}") for p in ("shape", "slice", "offset", "strides")),
            _shapes(table, f"{name}_stripe"),
            *(table.texts(f"{name}_{p}") for p in ("memory", "format", "dtype")),
            strict=True,
        )
    ):
        if not dtype:
            result.append(None)
            continue
        result.append(
            VelaFm(
                shape=shape,
                region=shape if region == _NO_SHAPE else region,
                offset=offset,
                steps=steps,
                stripe=stripe,
                memory=memory,
                layout=_LAYOUTS.get(layout, Layout.NHWC),
                dtype=_DTYPES.get(dtype.lower(), DataType.UNKNOWN),
                pre_buffering=pre[at] == "1",
                buffering=buffering[at] or "None",
            )
        )
    return result


def _kernels(table: DebugTable) -> list[Kernel]:
    """Read window columns. Vela's x is our w, its y our h."""
    columns = [f"kernel_{part}_{axis}" for part in ("size", "stride", "dilation") for axis in "yx"]
    columns += [f"kernel_padding_{side}" for side in "TLBR"]
    known: dict[tuple[int, ...], Kernel] = {}
    result = []
    for row in zip(*map(table.ints, columns), strict=True):
        if row not in known:
            known[row] = Kernel(
                h=row[0],
                w=row[1],
                stride_h=row[2],
                stride_w=row[3],
                dilation_h=row[4],
                dilation_w=row[5],
                pad_top=row[6],
                pad_left=row[7],
                pad_bottom=row[8],
                pad_right=row[9],
            )
        result.append(known[row])
    return result


def _weights(table: DebugTable) -> list[VelaWeights | None]:
    numbers = zip(
        *(
            table.ints(f"weight_{part}")
            for part in (
                "total_bytes",
                "max_range_bytes",
                "sub_streams",
                "distinct",
                "zero",
                "pre_buffer",
                "transfer_cycles",
            )
        ),
        strict=True,
    )
    result: list[VelaWeights | None] = []
    for (
        total,
        largest,
        streams,
        distinct,
        zeros,
        pre,
        transfer,
    ), layout, dtype, slices, buf in zip(
        numbers,
        table.texts("weight_format"),
        table.texts("weight_dtype"),
        table.texts("ofm_depth_slices"),
        table.texts("weight_buffering"),
        strict=True,
    ):
        if not layout:
            result.append(None)
            continue
        result.append(
            VelaWeights(
                format=layout,
                dtype=_DTYPES.get(dtype.lower(), DataType.UNKNOWN),
                total_bytes=total,
                max_range_bytes=largest,
                sub_streams=streams,
                distinct=distinct,
                zeros=zeros,
                depth_slices=tuple(int(border) for border in slices.split("|") if border.isdigit()),
                pre_buffer=bool(pre),
                buffering=buf or "None",
                transfer_cycles=transfer,
            )
        )
    return result


def _estimates(table: DebugTable) -> list[VelaEstimates]:
    parts = ("op_cycles_without_buffering", "op_cycles_with_buffering")
    reads = ("ifm_read_cycles", "weight_read_cycles")
    return [
        VelaEstimates(
            op_without_buffering_cycles=without,
            op_with_buffering_cycles=with_,
            ifm_read_cycles=ifm,
            weight_read_cycles=weight,
        )
        for without, with_, ifm, weight in zip(
            *(table.ints(f"est_{part}") for part in parts + reads), strict=True
        )
    ]


def _traffic(table: DebugTable, memories: Sequence[str]) -> list[tuple[VelaTraffic, ...]]:
    """Read the memory x purpose columns; entries that are all 0 are left out."""
    result: list[list[VelaTraffic]] = [[] for _ in range(len(table))]
    for memory in memories:
        for purpose in PURPOSES:
            numbers = (table.ints(f"{memory}{purpose}_{part}") for part in ("ac", "read", "write"))
            for at, cells in enumerate(zip(*numbers, strict=True)):
                if any(cells):
                    result[at].append(VelaTraffic(memory, purpose, *cells))
    return [tuple(entries) for entries in result]


def _blocks(database: DebugDatabase) -> dict[int, VelaBlock]:
    """Read perf_debug_main and perf_debug_wd by op id; rows without a block are left out."""
    table, decode = database.table("perf_debug_main"), database.table("perf_debug_wd")
    decode_cycles = dict(zip(*map(decode.ints, ("id", "wd_cycles")), strict=True))
    has_ublock = "ofm_ublock_h" in table.header
    result = {}
    for id_, traversal, mac, ao, cmd, ifm, ofm, ublock in zip(
        table.ints("id"),
        table.texts("traversal"),
        *map(table.ints, ("mac_cycles", "ao_cycles", "cmd_cycles")),
        *(_shapes(table, name) for name in ("ifm_block", "ofm_block", "ofm_ublock")),
        strict=True,
    ):
        result[id_] = VelaBlock(
            ifm_block=Block(*ifm[1:]),
            ofm_block=Block(*ofm[1:]),
            ofm_ublock=Block(*ublock[1:]) if has_ublock else None,
            traversal=_TRAVERSALS.get(traversal, Traversal.DEPTH_FIRST),
            mac_cycles=mac,
            ao_cycles=ao,
            cmd_cycles=cmd,
            wd_cycles=decode_cycles.get(id_, 0),
        )
    return result


def _inputs(database: DebugDatabase) -> dict[int, list[tuple[int, int]]]:
    """Read perf_debug_conn: op id -> (producer id, input index). Row id -2 = graph outputs."""
    table = database.table("perf_debug_conn")
    result: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for id_, producer, position in zip(
        *map(table.ints, ("id", "input_op_id", "input_index")), strict=True
    ):
        result[id_].append((producer, position))
    return result
