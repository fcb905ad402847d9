"""Every model of the corpus on three targets: a plan that holds, or the right refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npusched import api
from npusched.api.planning import graph_of, read
from npusched.errors import InfeasibleError, JsonValue, ModelError
from npusched.hardware import Target, load_target
from npusched.report import PlanReport, render_json, render_text
from tests.conftest import corpus_models

TARGETS: dict[str, Target] = {
    "u55": load_target(
        "ethos-u55-128", system_config="Ethos_U55_High_End_Embedded", memory_mode="Shared_Sram"
    ),
    "u65": load_target(
        "ethos-u65-256", system_config="Ethos_U65_High_End", memory_mode="Dedicated_Sram_384KB"
    ),
    "u85": load_target(
        "ethos-u85-256",
        system_config="Ethos_U85_SYS_DRAM_Mid",
        memory_mode="Dedicated_Sram_384KB",
    ),
}
MODELS = corpus_models() or [Path("corpus-is-absent")]
COMPILED = {"tflm_person_detect_vela.tflite"}
SLOW_IN_VELA = {"coral_deeplabv3_mnv2_dm05_uint8.tflite"}
"""Vela takes 10 to 20 s for it; its weight sizes are estimated here."""


def _plan(path: Path, target: Target, sram: int | None = None) -> PlanReport:
    return api.plan_report(
        path.read_bytes(),
        name=path.name,
        target=target,
        options=api.PlanOptions(sram=sram, use_vela=path.name not in SLOW_IN_VELA),
    )


@pytest.mark.parametrize("name", sorted(TARGETS))
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_plan_or_reason(path: Path, name: str, corpus_dir: Path) -> None:
    """The plan passes its own check inside ``plan_report``; figures are consistent."""
    assert corpus_dir.is_dir()
    target = TARGETS[name]
    if path.name in COMPILED:
        with pytest.raises(ModelError, match="already compiled by Vela"):
            _plan(path, target)
        return
    report = _plan(path, target)
    _check(report)
    text = render_text(report)
    assert len(text.splitlines()) <= 40
    assert json.loads(render_json(report))["totals"]["cycles"] == report.totals.cycles


def _check(report: PlanReport) -> None:
    totals = report.totals
    assert totals.cycles == sum(op.cycles for op in report.ops)
    assert totals.cycles == sum(segment.cycles for segment in report.segments)
    assert totals.cpu_cycles == sum(op.cpu_cycles for op in report.ops)
    assert totals.sram_bound_bytes <= totals.sram_peak_bytes
    assert report.budget_bytes is None or totals.sram_peak_bytes <= report.budget_bytes
    assert totals.energy_nj.low <= totals.energy_nj.typical <= totals.energy_nj.high
    cpu_cycles = totals.cpu_cycles * report.target.clock_hz / report.target.cpu.clock_hz
    offchip_bytes = totals.dram_bytes + totals.flash_bytes
    value = totals.cycles + cpu_cycles + 0.1 * offchip_bytes
    assert report.bound.value == pytest.approx(value, rel=1e-6, abs=2 * len(report.ops))
    assert totals.latency_s * report.target.clock_hz >= totals.cycles * (1 - 1e-9)
    covered = {tuple(ref) for op in report.ops for ref in op.source_ops}
    for source in report.source_ops:
        assert bool(source.cpu_reasons) == (source.placement == "cpu")
        if source.placement == "cpu":
            assert all(reason.text and reason.limit for reason in source.cpu_reasons)
            assert (source.subgraph, source.index) in covered
    levels = {level.level: level for level in report.fusion_levels}
    assert list(levels) == ["as_stored", "L0", "L1", "L2", "L3", "plan"]
    assert levels["L1"].traffic_bytes <= levels["L0"].traffic_bytes
    assert levels["plan"].cycles >= totals.cycles


@pytest.mark.parametrize("name", ["u55", "u85"])
@pytest.mark.parametrize("path", MODELS[::5], ids=lambda path: path.stem)
def test_smallest_budget_is_named_and_works(path: Path, name: str, corpus_dir: Path) -> None:
    assert corpus_dir.is_dir()
    target = TARGETS[name]
    if path.name in COMPILED:
        return
    try:
        smallest = _plan(path, target, sram=0).totals.sram_peak_bytes
    except InfeasibleError as error:
        values = error.values
        smallest = _fits_what_it_names(path, target, values)
    assert _plan(path, target, sram=smallest).totals.sram_peak_bytes <= smallest


def _fits_what_it_names(path: Path, target: Target, values: dict[str, JsonValue]) -> int:
    named = values["smallest_feasible_bytes"]
    assert isinstance(named, int)
    assert (values["have_bytes"], values["excess_bytes"]) == (0, named)
    used = _plan(path, target, sram=named).totals.sram_peak_bytes
    assert used <= named
    return used


def test_more_memory_is_never_slower(corpus_dir: Path) -> None:
    """A branchy graph: the op order of least memory also hides more copies, whatever the budget."""
    content = (corpus_dir / "models/mww_okay_nabu_v2.tflite").read_bytes()
    values = [
        api.plan_report(
            content,
            name="m",
            target=TARGETS["u55"],
            options=api.PlanOptions(sram=sram, candidates="none"),
        ).bound.value
        for sram in ("16KiB", "32KiB", "64KiB", "1MiB", None)
    ]
    assert values == sorted(values, reverse=True)


def test_source_facts(corpus_dir: Path) -> None:
    """Op counts, MACs, constants and naive peaks of every case (counted from the files)."""
    cases = json.loads((corpus_dir / "cases" / "CASES.json").read_text())["cases"]
    assert len(cases) >= 20
    for case in cases:
        facts = case["source_facts"]
        path = corpus_dir / "cases" / case["file"]
        report = json.loads(render_json(_plan(path, TARGETS["u55"])))["model"]
        op = f"op {report['naive_peak_op']}"
        assert report["op_count"] == facts["n_source_ops"], case["name"]
        assert report["op_counts"] == facts["ops"], case["name"]
        assert report["macs"] == facts["macs"], case["name"]
        assert report["const_bytes"] == facts["const_bytes"], case["name"]
        assert report["naive_peak_bytes"] == facts["naive_peak_bytes"], case["name"]
        assert facts["naive_peak_at"].startswith(op + " "), case["name"]


def test_every_subgraph_can_be_lowered(corpus_dir: Path) -> None:
    """Models with several signatures: each entry point has a graph of its own."""
    path = corpus_dir / "models" / "aieq_two_signatures_a8w8.tflite"
    model = read(path.read_bytes(), path.name)
    assert len(model.signatures) == 2
    graphs = [graph_of(model, TARGETS["u55"], known.key) for known in model.signatures]
    assert [graph.subgraph for graph in graphs] == [s.subgraph for s in model.signatures]
