"""Typed readers of Vela's output, checked against each other: database, file, streams, report."""

from __future__ import annotations

from pathlib import Path

import pytest

from npusched.cost.types import Traversal
from npusched.errors import ModelError, VelaError
from npusched.graph.types import KernelKind, Layout
from npusched.hardware import load_target
from npusched.hardware.target import Block, Family, Target
from npusched.ir import DataType, Model
from npusched.tflite import load_model
from npusched.vela.cache import VelaCache
from npusched.vela.compiled import (
    VelaPlacement,
    read_compiled_model,
    read_placement,
    read_streams,
    source_placement,
)
from npusched.vela.encoded import encoded_weights, stream_kernels
from npusched.vela.options import Optimise, OutputFormat, StreamFormat, VelaOptions
from npusched.vela.reader import (
    read_ops,
    read_optimised,
    read_queue,
    read_sources,
    read_tensors,
)
from npusched.vela.records import VelaTraffic
from npusched.vela.result import VelaResult
from npusched.vela.runner import compile_model
from npusched.vela.stream import StreamOpKind, decode_stream

TARGETS = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-256")

SAMPLE = (
    "models/mlpt_vww",
    "models/mlpt_resnet8",
    "models/tflm_keyword_scrambled_8bit",
    "models/coral_movenet_lightning",
    "models/mww_okay_nabu_v2",
    "models/tflm_person_detect_vela",
    "models/mlzoo_rnnoise_int8",
    "cases/float_io_int8",
    "cases/attn_197x64",
    "cases/fc_640_128",
    "cases/grouped_conv",
)
"""Plain networks, unnamed tensors, one tensor written by two NPU ops, several subgraphs, an
already compiled file, CPU ops in between, transposes and matrix products, split weights."""


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> VelaCache:
    return VelaCache(tmp_path_factory.mktemp("vela"))


def compiled(
    corpus: Path, name: str, target: Target, cache: VelaCache, options: VelaOptions | None = None
) -> tuple[VelaResult, Model]:
    model = load_model(corpus / f"{name}.tflite")
    return compile_model(model.content, target, options, cache=cache), model


def test_report_and_first_op_of_vww(corpus_dir: Path, shared_cache: VelaCache) -> None:
    """VELA_SPEC's worked op 0: 15395 cycles, + 464 of weight DMA = 15859, SRAM 20974; totals
    205022 NPU, 111699 SRAM, 78976 flash, 220870 in all."""
    result, _ = compiled(corpus_dir, "models/mlpt_vww", load_target(TARGETS[0]), shared_cache)
    report = result.report
    assert (result.core, result.vela_version.startswith("5.")) == ("regor", True)
    assert (report.npu_cycles, report.total_cycles, report.npu_ops) == (205022, 220870, 57)
    assert (report.mac_count, report.cpu_ops, report.cascades) == (7491972, 0, 0)
    sram, flash = report.memories["Sram"], report.memories["OffChipFlash"]
    assert (sram.access_cycles, sram.peak_bytes) == (111699, 74480)
    assert (flash.access_cycles, report.read_only_peak_bytes) == (78976, flash.peak_bytes)
    assert flash.accesses["Scales"].access_cycles == 58272
    op = read_ops(result.database)[0]
    assert (op.kind, op.source_ref, op.source_operator) == (KernelKind.CONV2D, (0, 0), "Conv2D")
    assert (op.npu_cycles, op.op_cycles) == (15859, 20974)
    assert dict(op.memory_cycles) == {"Sram": 20974, "shram": 0, "OffChipFlash": 1760}
    assert op.ifm is not None
    assert op.ofm is not None
    assert (op.ifm.region, op.ifm.layout, op.ifm.dtype) == (
        (1, 96, 96, 3),
        Layout.NHWC,
        DataType.INT8,
    )
    assert (op.ofm.region, op.ofm.layout, op.ofm.memory) == (
        (1, 48, 48, 8),
        Layout.NHCWB16,
        "Sram",
    )
    assert op.ifm2 is None
    kernel = op.kernel
    assert (kernel.h, kernel.w, kernel.stride_h, kernel.stride_w) == (3, 3, 2, 2)
    assert (kernel.pad_top, kernel.pad_left, kernel.pad_bottom, kernel.pad_right) == (0, 0, 1, 1)
    assert op.block is not None
    assert (op.block.ofm_block, op.block.ifm_block) == (Block(8, 16, 8), Block(17, 34, 8))
    assert (op.block.traversal, op.block.ofm_ublock) == (Traversal.PART_KERNEL, None)
    assert op.weights is not None
    assert (op.weights.total_bytes, op.weights.max_range_bytes) == (320, 400)
    assert (op.weights.depth_slices, op.weights.buffering) == ((0, 8), "Single")
    assert op.weights.transfer_cycles == 464
    assert op.estimates.op_without_buffering_cycles == 15395
    assert op.traffic_of("Sram", "FeatureMap") == VelaTraffic(
        "Sram", "FeatureMap", 20214, 124848, 36864
    )
    assert op.traffic_of("Dram", "FeatureMap").read_bytes == 0
    assert [follower.kind for follower in op.followers] == [KernelKind.RELU]
    assert op.inputs == ((-1, 0),)


def test_u85_rows_have_micro_blocks_and_chains(corpus_dir: Path, shared_cache: VelaCache) -> None:
    result, _ = compiled(corpus_dir, "models/mlpt_resnet8", load_target(TARGETS[2]), shared_cache)
    ops = read_ops(result.database)
    blocks = [op.block for op in ops if op.block is not None]
    assert blocks
    assert all(block.ofm_ublock is not None for block in blocks)
    kinds = {follower.kind for op in ops for follower in op.followers}
    assert KernelKind.ADD in kinds


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAMPLE)
def test_outputs_agree(corpus_dir: Path, shared_cache: VelaCache, name: str, target: str) -> None:
    """Rows sum up to the report; every queue row is a kernel start of a stream; encoded sizes
    from the streams are those of the database; CPU ops of the file are those of the database."""
    result, model = compiled(corpus_dir, name, load_target(target), shared_cache)
    counts = [len(graph.ops) for graph in model.subgraphs]
    ops = read_ops(result.database, counts)
    several = len(model.subgraphs) > 1
    placement = read_placement(result, model)
    cpu = {ref for ref, where in placement.ops.items() if where is VelaPlacement.CPU}
    assert placement.unmatched == ()
    assert len(cpu) == result.report.cpu_ops
    assert set(placement.ops) == {(g.index, op.index) for g in model.subgraphs for op in g.ops}
    if not several:
        assert sum(op.op_cycles for op in ops) == result.report.total_cycles
        assert sum(op.mac_count for op in ops) == result.report.mac_count
        assert {op.source_ref for op in ops if op.is_cpu} == cpu
        assert sum(not op.is_cpu for op in ops) == result.report.npu_ops

    kernels = stream_kernels(result)  # raises unless each queue row is a kernel start
    assert sum(map(len, kernels.values())) == len(read_queue(result.database))
    if not several:
        chained = {follower.id for op in ops for follower in op.followers}
        assert {op.id for op in ops if not op.is_cpu} | chained >= set(kernels)

    by_id = {op.id: op for op in ops}
    weighted = encoded_weights(result, model)
    if not several:
        assert {e.scheduled_id for e in weighted} == {op.id for op in ops if op.weights}
    for encoded in weighted:
        assert encoded.source_ref is not None
        row = by_id.get(encoded.scheduled_id)
        if row is None:
            assert several
            continue
        assert row.weights is not None
        assert row.block is not None
        assert encoded.source_ref == row.source_ref
        assert encoded.weights_bytes == row.weights.total_bytes
        assert encoded.slices == len(row.weights.depth_slices) - 1
        assert encoded.ofm_block_depth == row.block.ofm_block.c
        assert encoded.traversal is row.block.traversal
        largest = max(
            sum(p.weights_bytes + p.scales_bytes for p in encoded.parts if p.slice == index)
            for index in range(encoded.slices)
        )
        assert largest == row.weights.max_range_bytes


def test_slices_and_cores_have_their_own_sizes(corpus_dir: Path, shared_cache: VelaCache) -> None:
    """fc_640_128 on two cores: cores share the channels of each slice, 10 bytes of scale each,
    padded to 16 per core: rup(10 * channels / 2, 16)."""
    result, model = compiled(corpus_dir, "cases/fc_640_128", load_target(TARGETS[1]), shared_cache)
    (encoded,) = encoded_weights(result, model)
    assert {part.core for part in encoded.parts} == {0, 1}
    assert sum(part.channels for part in encoded.parts if part.core == 0) == 128
    for part in encoded.parts:
        assert part.scales_bytes == -(-10 * part.channels // 2 // 16) * 16


def test_order_counts_ops_of_one_source_op(corpus_dir: Path, shared_cache: VelaCache) -> None:
    result, model = compiled(
        corpus_dir, "cases/grouped_conv", load_target(TARGETS[0]), shared_cache
    )
    orders: dict[object, list[int]] = {}
    for encoded in encoded_weights(result, model):
        orders.setdefault(encoded.source_ref, []).append(encoded.order)
    assert max(map(len, orders.values())) > 1
    assert all(order == list(range(len(order))) for order in orders.values())


def test_several_subgraphs_keep_their_op_numbers(corpus_dir: Path, shared_cache: VelaCache) -> None:
    result, model = compiled(
        corpus_dir, "models/mww_okay_nabu_v2", load_target(TARGETS[0]), shared_cache
    )
    counts = [len(graph.ops) for graph in model.subgraphs]
    refs = [s.ref for s in read_sources(result.database, counts) if s.ref is not None]
    assert refs == [(g.index, op.index) for g in model.subgraphs for op in g.ops]
    used = {e.source_ref for e in encoded_weights(result, model)}
    assert any(ref is not None and ref[0] == 0 for ref in used)


def test_empty_subgraph_is_skipped_in_numbering(corpus_dir: Path, shared_cache: VelaCache) -> None:
    """If the file had an empty subgraph first, the ops found belong to the second."""
    result, model = compiled(corpus_dir, "models/mlpt_kws", load_target(TARGETS[0]), shared_cache)
    count = len(model.subgraphs[0].ops)
    assert {s.ref for s in read_sources(result.database, [0, count])} == {
        (1, index) for index in range(count)
    }


def test_optimised_ops_lead_to_source_ops(corpus_dir: Path, shared_cache: VelaCache) -> None:
    result, _ = compiled(corpus_dir, "models/mlpt_kws", load_target(TARGETS[0]), shared_cache)
    sources = {source.id for source in read_sources(result.database)}
    optimised = {op.id: op for op in read_optimised(result.database)}
    for op in read_ops(result.database):
        assert optimised[op.optimised_id].source_id == op.source_id
        assert op.source_id in sources


def test_tensors_have_places(corpus_dir: Path, shared_cache: VelaCache) -> None:
    result, _ = compiled(corpus_dir, "models/mlpt_vww", load_target(TARGETS[0]), shared_cache)
    tensors = [t for t in read_tensors(result.database) if t.memory == "Sram"]
    assert tensors
    assert all(t.end_address - t.start_address == t.size_bytes for t in tensors)
    peak = max(t.end_address for t in tensors)
    assert peak == result.report.memories["Sram"].peak_bytes


def test_placement_kinds(corpus_dir: Path, shared_cache: VelaCache) -> None:
    """float_io_int8: QUANTIZE and DEQUANTIZE of floats stay on the CPU, the rest is NPU."""
    result, model = compiled(
        corpus_dir, "cases/float_io_int8", load_target(TARGETS[0]), shared_cache
    )
    kinds = {
        model.subgraphs[ref[0]].ops[ref[1]].kind.value
        for ref, where in source_placement(result, model).items()
        if where is VelaPlacement.CPU
    }
    assert kinds == {"QUANTIZE", "DEQUANTIZE"}


def test_already_compiled_file_stays_as_it_is(corpus_dir: Path, shared_cache: VelaCache) -> None:
    result, model = compiled(
        corpus_dir, "models/tflm_person_detect_vela", load_target(TARGETS[0]), shared_cache
    )
    assert result.report.npu_ops == 0
    assert set(source_placement(result, model).values()) == {VelaPlacement.CPU}
    assert encoded_weights(result, model) == ()
    (stream,) = read_streams(read_compiled_model(result))
    assert stream.kernels


def test_cop2_and_raw_hold_the_same_stream(corpus_dir: Path, shared_cache: VelaCache) -> None:
    target = load_target(TARGETS[1])
    result, _ = compiled(corpus_dir, "models/mlpt_kws", target, shared_cache)
    (stream,) = read_streams(read_compiled_model(result))
    assert stream.family is Family.U65
    newer, _ = compiled(
        corpus_dir,
        "models/mlpt_kws",
        target,
        shared_cache,
        VelaOptions(stream_format=StreamFormat.COP2),
    )
    (second,) = read_streams(read_compiled_model(newer))
    assert second.payload_format == "COP2"
    assert second.ops == stream.ops
    raw, model = compiled(
        corpus_dir,
        "models/mlpt_kws",
        target,
        shared_cache,
        VelaOptions(output_format=OutputFormat.RAW),
    )
    assert raw.raw is not None
    assert decode_stream(raw.raw.command_stream).ops == stream.ops
    assert len(raw.raw.read_only) == raw.report.read_only_peak_bytes
    with pytest.raises(VelaError):
        source_placement(raw, model)


def test_stripes_of_a_cascade_are_several_kernels(
    corpus_dir: Path, shared_cache: VelaCache
) -> None:
    """With Size on vww some ops run in stripes: several kernels per row, equal weights."""
    result, model = compiled(
        corpus_dir,
        "models/mlpt_vww",
        load_target(TARGETS[0]),
        shared_cache,
        VelaOptions(optimise=Optimise.SIZE),
    )
    ops = {op.id: op for op in read_ops(result.database)}
    kernels = stream_kernels(result)
    cascaded = [op for op in ops.values() if op.cascade]
    assert len(cascaded) == result.report.cascaded_ops
    for op in cascaded:
        assert op.ofm is not None
        stripes = -(-op.ofm.region[1] // op.ofm.stripe[1])
        assert len(kernels[op.id]) >= stripes
    striped = {op.id for op in cascaded if len(kernels[op.id]) > 1}
    assert striped
    sizes = {e.scheduled_id: e for e in encoded_weights(result, model)}
    for id_ in striped & set(sizes):
        assert sizes[id_].slices == 1


def test_dma_bytes_of_vww(corpus_dir: Path, shared_cache: VelaCache) -> None:
    """VELA_SPEC §6: 17 convolutions, 13 depthwise, 3 pools, 26 elementwise; 26 DMAs of 49392
    bytes, of which 1024 are look-up tables."""
    result, _ = compiled(corpus_dir, "models/mlpt_vww", load_target(TARGETS[0]), shared_cache)
    (stream,) = read_streams(read_compiled_model(result))
    kinds = [op.kind for op in stream.kernels]
    counted = [
        kinds.count(kind)
        for kind in (
            StreamOpKind.CONV,
            StreamOpKind.DEPTHWISE,
            StreamOpKind.POOL,
            StreamOpKind.ELEMENTWISE,
        )
    ]
    assert counted == [17, 13, 3, 26]
    assert (len(stream.dmas), stream.dma_bytes) == (26, 49392)
    tables = [op for op in stream.dmas if op.destination and op.destination.internal]
    assert sum(op.source.length_bytes for op in tables if op.source) == 1024


def test_damaged_compiled_file_is_a_model_error(corpus_dir: Path, shared_cache: VelaCache) -> None:
    import msgspec

    result, _ = compiled(corpus_dir, "models/mlpt_kws", load_target(TARGETS[0]), shared_cache)
    cut = msgspec.structs.replace(result, compiled=result.compiled[:1000])
    with pytest.raises(ModelError):
        read_compiled_model(cut)
