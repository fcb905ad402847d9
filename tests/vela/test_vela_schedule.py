"""Vela's schedule as a plan over our ops: matched, placed, checked, and costed on one basis."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace as replace_dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from npusched.graph.build import build_graph
from npusched.hardware import load_target
from npusched.hardware.target import Target
from npusched.schedule import BufferKind, Plan, check_plan
from npusched.tflite import Builder, read_model
from npusched.vela.match import match_ops
from npusched.vela.options import VelaOptions
from npusched.vela.reader import read_queue
from npusched.vela.recost import compatible_costs, recost_rows
from npusched.vela.result import VelaResult
from npusched.vela.runner import compile_model
from npusched.vela.schedule import Unmatched, VelaSchedule, from_vela, read_schedule

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

SETUPS = [
    ("ethos-u55-128", "Shared_Sram", 24 << 10),
    ("ethos-u55-256", "Sram_Only", None),
    ("ethos-u65-512", "Dedicated_Sram", 48 << 10),
    ("ethos-u65-256", "Dedicated_Sram", 384 << 10),
    ("ethos-u85-256", "Dedicated_Sram", 40 << 10),
    ("ethos-u85-1024", "Shared_Sram", None),
]

MODELS = [
    "models/mlpt_vww",
    "models/mlpt_kws",
    "models/mlpt_resnet8",
    "models/emza_ssd_slim_120x160",
    "models/coral_movenet_lightning",
    "models/seanet_leaky_relu0_int16",
    "models/tflm_audio_preprocessor_int8",
    "cases/attn_197x64",
    "cases/batch2_mean",
    "cases/fc_dynamic_weights",
]
"""Cascades, slices, in-place results, scratch, batches in pieces, CPU ops, reshaped maps."""


T = TypeVar("T")


def replace(value: T, **changes: Any) -> T:
    """A changed copy of a frozen value, struct or dataclass."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return replace_dataclass(value, **changes)  # type: ignore[type-var]


def schedule_of(path: Path, target: Target, limit: int | None) -> tuple[VelaResult, VelaSchedule]:
    assert target.accelerator is not None
    content = path.read_bytes()
    model = read_model(content, path.stem)
    result = compile_model(content, target, VelaOptions(arena_cache_size_bytes=limit), cache=None)
    graph = build_graph(model, target.accelerator.family)
    return result, read_schedule(result, model, graph, target)


def planned(schedule: VelaSchedule) -> Plan:
    plan = from_vela(schedule)
    assert isinstance(plan, Plan), plan
    return plan


@pytest.mark.parametrize("setup", SETUPS, ids=lambda s: f"{s[0]}-{s[1]}")
def test_schedules_are_plans(setup: tuple[str, str, int | None], corpus_dir: Path) -> None:
    """Every schedule matches, holds in the independent check, and has Vela's own peak.

    Vela's peak lacks tensors that it leaves to the runtime; the plan names those.
    """
    name, mode, limit = setup
    target = load_target(name, memory_mode=mode)
    seen: Counter[str] = Counter()
    for model in MODELS:
        result, schedule = schedule_of(corpus_dir / f"{model}.tflite", target, limit)
        plan = planned(schedule)
        assert check_plan(schedule.graph, target, plan) == [], model
        peak = result.report.memories[target.cache.vela_name].peak_bytes
        runtimes = target.cache.name == target.arena.name and bool(plan.notes)
        assert plan.sram_peak_bytes == peak or (runtimes and plan.sram_peak_bytes > peak), model
        seen["cascades"] += any(len(segment.ops) > 1 for segment in plan.segments)
        seen["in place"] += any(buffer.in_place_of is not None for buffer in plan.buffers)
        runs = [run for segment in plan.segments for run in segment.runs]
        seen["slices"] += any(run.buffering and run.buffering.slices > 1 for run in runs)
        seen["prefetch"] += any(run.buffering and run.buffering.prefetched for run in runs)
    assert seen["in place"]
    if mode != "Sram_Only":
        assert seen["slices"]
        assert seen["prefetch"]
    assert seen["cascades"] or limit is None or limit > 100_000


@pytest.mark.parametrize("setup", SETUPS[::2], ids=lambda s: f"{s[0]}-{s[1]}")
def test_both_costs_of_vela_schedule(setup: tuple[str, str, int | None], corpus_dir: Path) -> None:
    """Vela-compatible = reported, per network; striped from our ops = striped from Vela's rows.

    The two ways share the cost functions and nothing else: shapes, windows, layouts and memories
    come once from our graph and once from the database. Stripes are those of the command stream.
    """
    name, mode, limit = setup
    target = load_target(name, memory_mode=mode)
    for model in MODELS:
        result, schedule = schedule_of(corpus_dir / f"{model}.tflite", target, limit)
        rows = schedule.in_order
        compatible = compatible_costs(target, rows, schedule.slices)
        assert sum(c.cycles for c in compatible.values()) == result.report.total_cycles, model
        recosted = recost_rows(target, rows, schedule.slices)
        plan = planned(schedule)
        assert sum(c.cycles for c in recosted.values()) == plan.amounts.npu_cycles, model
        started = Counter(row.scheduled_id for row in read_queue(result.database))
        for segment in plan.segments:
            if len(segment.ops) == 1:
                continue
            for run in segment.runs:
                assert run.runs == started[schedule.matching.rows[run.op][0].id], model


def test_striped_cost_of_the_first_conv(corpus_dir: Path) -> None:
    """mlpt_vww's first op in 48 single rows: Vela reports 25344 cycles for it.

    Its own estimate of the NPU cycles is 49152 = 48 x 1024 (VELA_SPEC §8.1). Our stripes are alike
    but the last, whose window hangs over the lower edge: it reads 2 rows, not 3, so its block fill
    is shorter. 47 x 1024 = 48128 is a lower bound.
    """
    target = load_target("ethos-u55-128")
    _, schedule = schedule_of(corpus_dir / "models" / "mlpt_vww.tflite", target, 48 << 10)
    row = schedule.in_order[0]
    cost = recost_rows(target, schedule.in_order, schedule.slices)[row.id]
    assert row.op_cycles == 25344
    assert row.est_cycles == 49152
    assert 48128 < cost.core_cycles < 49152


def test_one_subgraph_of_two_is_named(corpus_dir: Path) -> None:
    """Vela's database keeps the rows of one subgraph: the other one is no plan, with the reason."""
    path = corpus_dir / "models" / "aieq_two_signatures_a8w8.tflite"
    _, schedule = schedule_of(path, load_target("ethos-u55-128"), None)
    found = from_vela(schedule)
    assert isinstance(found, Unmatched)
    reasons = [stray.reason for stray in found.ops]
    assert any("rows of one subgraph only" in reason for reason in reasons)
    assert any("it is an op of subgraph 1" in reason for reason in reasons)


def test_an_op_that_vela_lacks_is_named(corpus_dir: Path) -> None:
    """Rows taken away leave our op unmatched, others matched; swapped rows are out of order."""
    target = load_target("ethos-u55-128")
    _, schedule = schedule_of(corpus_dir / "models" / "mlpt_kws.tflite", target, None)
    ops = schedule.ops
    without = match_ops(schedule.graph, (*ops[:3], *ops[4:]))
    assert [stray.id for stray in without.only_ours] == [3]
    assert not without.only_theirs
    assert not without.is_complete
    assert len(without.rows) == len(schedule.graph.ops) - 1
    later = replace(ops[2], index=ops[5].index), replace(ops[5], index=ops[2].index)
    swapped = match_ops(schedule.graph, (*ops[:2], later[1], *ops[3:5], later[0], *ops[6:]))
    assert not swapped.is_complete


def test_a_buffer_without_address_is_named(corpus_dir: Path) -> None:
    target = load_target("ethos-u55-128")
    _, schedule = schedule_of(corpus_dir / "models" / "mlpt_resnet8.tflite", target, None)
    taken = next(t for t in schedule.tensors if t.start_time > 2 and t.usage == "OpLocal")
    rest = tuple(t for t in schedule.tensors if t.id != taken.id)
    found = from_vela(replace(schedule, tensors=rest))
    assert isinstance(found, Unmatched)
    assert any("has no place for" in reason for reason in found.reasons)


def test_the_check_finds_damage(corpus_dir: Path) -> None:
    """The control: rows less, another address, a takeover that is none, slices out of order."""
    target = load_target("ethos-u55-128")
    _, schedule = schedule_of(corpus_dir / "models" / "mlpt_vww.tflite", target, 48 << 10)
    graph, plan = schedule.graph, planned(schedule)
    at = next(k for k, b in enumerate(plan.buffers) if b.kind is BufferKind.ROLLING)
    rolling = plan.buffers[at]
    fewer = replace(rolling, rows=2)
    damaged = replace(plan, buffers=(*plan.buffers[:at], fewer, *plan.buffers[at + 1 :]))
    assert check_plan(graph, target, damaged)

    memory, allocation = plan.allocations[0]
    moved = replace(allocation, offsets=(*(0 for _ in allocation.offsets),))
    assert check_plan(graph, target, replace(plan, allocations=((memory, moved),)))

    at = next(k for k, b in enumerate(plan.buffers) if b.in_place_of is not None)
    alone = replace(plan.buffers[at], in_place_of=None)
    assert check_plan(
        graph, target, replace(plan, buffers=(*plan.buffers[:at], alone, *plan.buffers[at + 1 :]))
    )


@pytest.mark.parametrize("name", ["ethos-u65-512", "ethos-u85-512"])
def test_inserted_copies_of_the_input(name: str) -> None:
    """A 1x1 convolution to 1024 channels reads its input from DRAM many times: Vela copies it.

    The copy runs before its reader, whose weights are prefetched under it; the reader reads SRAM.
    16 x 16 x 128 bytes are 32768.
    """
    b = Builder(seed=1)
    wide = b.conv2d(b.input("x", (1, 16, 16, 128)), 1024, 1)
    b.output(b.conv2d(b.max_pool2d(wide, 2, stride=2), 32, 1))
    content = b.build()
    target = load_target(name, memory_mode="Dedicated_Sram")
    assert target.accelerator is not None
    model = read_model(content, "copied")
    options = VelaOptions(arena_cache_size_bytes=1 << 20)
    result = compile_model(content, target, options, cache=None)
    graph = build_graph(model, target.accelerator.family)
    schedule = read_schedule(result, model, graph, target)
    assert len(schedule.matching.copies) == 1
    plan = planned(schedule)
    assert check_plan(graph, target, plan) == []
    (copy,) = plan.segments[0].copies
    assert (copy.source, copy.destination, copy.size_bytes) == ("dram", "sram", 32768)
    reads = plan.segments[0].runs[0].amounts
    assert reads.read_from("dram") < 300_000, "weights alone"
    recosted = recost_rows(target, schedule.in_order, schedule.slices)
    assert sum(c.cycles for c in recosted.values()) == plan.amounts.npu_cycles
    compatible = compatible_costs(target, schedule.in_order, schedule.slices)
    assert sum(c.cycles for c in compatible.values()) == result.report.total_cycles
    bare = replace(plan.segments[0], copies=())
    assert check_plan(graph, target, replace(plan, segments=(bare, *plan.segments[1:])))
