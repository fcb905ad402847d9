"""Costs of corpus models against every row of Vela's debug database (VELA_SPEC_2 §0).

Vela runs isolated, with its results cached in the test session's folder. Each row's NPU cycles,
access cycles of each memory, MACs, block and total must be equal; a row with several depth slices
takes the first slice's size from the command stream, that of all in one slice from our encoder.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.crosscheck import slices_of
from npusched.cost.adapt import cost_op
from npusched.cost.blocks import find_block
from npusched.cost.stripe import striped_nominal
from npusched.cost.types import CostFm, OpCost
from npusched.cost.weights import weight_bytes, weight_format
from npusched.graph.build import build_graph
from npusched.graph.types import KernelKind
from npusched.hardware import load_target
from npusched.hardware.target import Target
from npusched.tflite import read_model
from npusched.vela.encoded import encoded_weights
from npusched.vela.options import Feature, VelaOptions
from npusched.vela.recost import compatible_costs
from npusched.vela.rows import VelaRow, read_rows
from npusched.vela.runner import compile_model

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

SETUPS = [
    ("ethos-u55-32", "Ethos_U55_Deep_Embedded", "Shared_Sram", None),
    ("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram", 32 << 10),
    ("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Sram_Only", None),
    ("ethos-u65-256", "Ethos_U65_Mid_End", "Dedicated_Sram", 16 << 10),
    ("ethos-u65-512", "Ethos_U65_High_End", "Dedicated_Sram", 384 << 10),
    ("ethos-u85-256", "Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram", 64 << 10),
    ("ethos-u85-1024", "Ethos_U85_SYS_DRAM_High", "Dedicated_Sram", 384 << 10),
    ("ethos-u85-2048", "Ethos_U85_SYS_Flash_High", "Shared_Sram", None),
]
"""(target, system config, memory mode, arena limit in bytes)."""

MODELS = [
    "models/mlpt_vww.tflite",
    "models/mlpt_kws.tflite",
    "models/mlpt_resnet8.tflite",
    "models/seeed_fomo_mnv2.tflite",
    "models/seanet_conv9_int16.tflite",
    "models/litert_matmul_quant_int16.tflite",
    "models/mltk_fingerprint.tflite",
    "models/emza_ssd_slim_120x160.tflite",
    "cases/attn_197x64.tflite",
    "cases/back2back_acts.tflite",
    "cases/tconv_stride3.tflite",
    "cases/batch2_mean.tflite",
    "cases/chan17.tflite",
]
"""Convolutions, transposes, MatMul, Softmax, resizes, 16-bit ops, sparse weights, batches."""


def target_of(setup: tuple[str, str, str, int | None]) -> Target:
    name, system, mode, _ = setup
    return load_target(name, system_config=system, memory_mode=mode)


def rows_and_costs(
    target: Target, content: bytes, limit: int | None
) -> tuple[tuple[VelaRow, ...], dict[int, OpCost]]:
    """Rows of one compilation, and our vela-compatible cost of each."""
    result = compile_model(content, target, VelaOptions(arena_cache_size_bytes=limit), cache=None)
    rows = read_rows(result.database, target)
    slices = slices_of(target, result, read_model(content, "model"), rows)
    return rows, compatible_costs(target, rows, slices)


@pytest.mark.parametrize("setup", SETUPS, ids=lambda s: f"{s[0]}-{s[2]}-{s[3]}")
def test_every_row_is_exact(setup: tuple[str, str, str, int | None], corpus_dir: Path) -> None:
    """100 % of rows: blocks, MACs, NPU cycles with DMA, access cycles, totals, estimates."""
    target = target_of(setup)
    assert target.accelerator is not None
    compared = multi = 0
    for model in MODELS:
        rows, costs = rows_and_costs(target, (corpus_dir / model).read_bytes(), setup[3])
        for row in rows:
            if row.op.kind is not KernelKind.CPU:
                where = f"{model} row {row.id} {row.op.kind}"
                if row.block is not None:
                    assert find_block(target.accelerator, row.stripe_op) == row.block, where
                cost = costs[row.id]
                assert cost.npu_cycles == row.npu_cycles, where
                assert cost.macs == row.macs, where
                busy = dict(cost.memory_cycles)
                assert {k: busy.get(k, 0) for k, _ in row.access_cycles} == dict(
                    row.access_cycles
                ), where
                assert cost.cycles == row.op_cycles, where
                compared += 1
                multi += row.slices > 1
    assert compared > 250, "the corpus models give hundreds of rows"
    if setup[2] != "Sram_Only":
        assert multi > 0, "some weights are staged in slices"


@pytest.mark.parametrize("setup", SETUPS[1::2], ids=lambda s: s[0])
def test_nominal_stripes_are_the_schedulers_estimate(
    setup: tuple[str, str, str, int | None], corpus_dir: Path
) -> None:
    """Vela's own estimate over all stripes, of rows whose weights are not staged.

    Its scheduler assumes all feature maps but constants in the arena (VELA_SPEC_2 §5, §6).
    """
    target = target_of(setup)
    compared = striped = 0
    for model in MODELS[:6]:
        rows, _ = rows_and_costs(target, (corpus_dir / model).read_bytes(), setup[3])
        for row in rows:
            staged_copy = row.ifm_staged or row.name.startswith("input_buffer_")
            if row.block is None or row.staged or staged_copy:
                continue
            op = replace(row.op, ifm=in_arena(target, row.op.ifm), ofm=in_arena(target, row.op.ofm))
            if op.ifm2 is not None:
                op = replace(op, ifm2=in_arena(target, op.ifm2))
            op = replace(op, subs=tuple(replace(s, ofm=in_arena(target, s.ofm)) for s in op.subs))
            rows_per_stripe = row.stripe_op.written.shape[1]
            assert striped_nominal(target, op, rows_per_stripe) == row.est_cycles, row.name
            compared += 1
            striped += rows_per_stripe < row.op.written.shape[1]
    assert compared > 50
    assert striped > 0 or setup not in (SETUPS[1], SETUPS[3]), "small arenas force stripes"


def in_arena(target: Target, fm: CostFm) -> CostFm:
    return fm if fm.memory == target.roles.const else replace(fm, memory=target.roles.arena)


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_encoded_sizes_are_computed_exactly(name: str, corpus_dir: Path) -> None:
    """Streams computed from the weights' values have the length and format that Vela wrote."""
    target = load_target(name)
    accelerator = target.accelerator
    assert accelerator is not None
    options = VelaOptions(
        disable=(Feature.CASCADING, Feature.FM_STAGING), arena_cache_size_bytes=1 << 32
    )
    compared = 0
    forms: set[str] = set()
    for file in ("mlpt_vww", "mlpt_resnet8", "mltk_fingerprint", "tflm_keyword_scrambled_8bit"):
        content = (corpus_dir / "models" / f"{file}.tflite").read_bytes()
        model = read_model(content, file)
        result = compile_model(content, target, options, cache=None)
        rows = result.database.table("perf_debug").rows()
        named = {int(row["id"]): row["weight_format"] for row in rows}
        known = {op.source_ref: op for op in encoded_weights(result, model)}
        graph = build_graph(model, accelerator.family)
        for op in graph.ops:
            encoded = known.get(op.source_ops[0]) if op.weights is not None else None
            if encoded is None or encoded.slices > 1:
                continue
            form = weight_format(target, op, graph.feature_maps)
            described = cost_op(op, graph.feature_maps, {}, sparse=form.sparse)
            computed = weight_bytes(target, op, find_block(accelerator, described), form=form)
            assert computed.weights == encoded.weights_bytes, op.name
            assert computed.scales == encoded.scales_bytes, op.name
            row_form = named[encoded.scheduled_id]
            assert form.sparse == ("Sparse" in row_form), op.name
            assert form.fast == ("Fast" in row_form), op.name
            forms.add(row_form)
            compared += 1
    assert compared > 40
    assert len(forms) == (3 if "u85" in name else 1)
