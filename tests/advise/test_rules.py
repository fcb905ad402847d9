"""Every rule: what it predicts comes true in a network that was built so from the start.

The changed networks are made by the builder, not by the edits that the rules plan. Each rule is
silent about the network that follows it, and about a healthy one.
"""

from __future__ import annotations

from functools import cache, partial

import msgspec
import pytest

import npusched
from npusched.advise import RULES, Confidence, within_band
from npusched.api.advising import Advised, advise_model
from npusched.api.options import PlanOptions
from npusched.errors import InfeasibleError
from npusched.hardware import load_target
from npusched.ir import OpKind
from npusched.report.types import Advice, PlanReport
from tests.advise import networks as nets

CONFIG = "ethos-u55-128"
MODEL_RULES = [
    ("NS001", partial(nets.float_network, "float32"), partial(nets.float_network, "int8"), {}),
    (
        "NS002",
        partial(nets.float_middle, in_float=True),
        partial(nets.float_middle, in_float=False),
        {},
    ),
    (
        "NS003",
        partial(nets.float_input, in_float=True),
        partial(nets.float_input, in_float=False),
        {},
    ),
    ("NS101", partial(nets.stack, 17), partial(nets.stack, 16), {}),
    ("NS101", partial(nets.stack, 34), partial(nets.stack, 32), {"objective": "sram"}),
    ("NS102", partial(nets.norm_behind, folded=False), partial(nets.norm_behind, folded=True), {}),
    ("NS103", partial(nets.custom_middle, "MyOp"), partial(nets.custom_middle, ""), {}),
    ("NS104", partial(nets.norm_before, folded=False), partial(nets.norm_before, folded=True), {}),
    ("NS105", partial(nets.island, turned=True), partial(nets.island, turned=False), {}),
    (
        "NS106",
        partial(nets.turned_input, turned=True),
        partial(nets.turned_input, turned=False),
        {},
    ),
    (
        "NS107",
        partial(nets.high_pool, OpKind.MAX_POOL_2D, (512,)),
        partial(nets.high_pool, OpKind.MAX_POOL_2D, (32, 16)),
        {},
    ),
    (
        "NS107",
        partial(nets.high_pool, OpKind.AVERAGE_POOL_2D, (512,)),
        partial(nets.high_pool, OpKind.AVERAGE_POOL_2D, (32, 16)),
        {},
    ),
    (
        "NS108",
        partial(nets.wide_stride, in_two=False),
        partial(nets.wide_stride, in_two=True),
        {},
    ),
    (
        "NS108",
        partial(nets.depthwise_stride, in_two=False),
        partial(nets.depthwise_stride, in_two=True),
        {},
    ),
    ("NS109", partial(nets.classifier, softmax=True), partial(nets.classifier, softmax=False), {}),
    ("NS110", partial(nets.attention, 1), partial(nets.attention, 2), {"objective": "sram"}),
    ("NS111", partial(nets.global_mean, pooled=False), partial(nets.global_mean, pooled=True), {}),
    ("NS112", partial(nets.silu, hard=False), partial(nets.silu, hard=True), {}),
    (
        "NS205",
        partial(nets.heavy_weights, sparse=False),
        partial(nets.heavy_weights, sparse=True),
        {},
    ),
]


@cache
def advised(content: bytes, config: str = CONFIG, **options: str | int) -> Advised:
    return advise_model(
        content,
        name="net",
        target=load_target(config),
        options=msgspec.structs.replace(PlanOptions(candidates="none", use_vela=False), **options),
    )


@cache
def planned(content: bytes, config: str = CONFIG, **options: str | int) -> PlanReport:
    return npusched.plan(content, config, candidates="none", use_vela=False, **options)  # type: ignore[arg-type]


def by_rule(found: Advised, rule: str) -> list[Advice]:
    return [each for each in found.report.advice if each.id == rule]


def figures(report: PlanReport) -> dict[str, float]:
    totals = report.totals
    return {
        "latency_s": totals.latency_s,
        "cycles": totals.cycles,
        "sram_bytes": totals.sram_peak_bytes,
        "energy_nj": totals.energy_nj.typical,
        "constant_bytes": totals.constant_bytes,
    }


def holds(advice: Advice, before: PlanReport, after: PlanReport) -> list[str]:
    """The figures whose change is outside the band of the advice."""
    old, new = figures(before), figures(after)
    return [
        f"{name}: {new[name] - old[name]} and not {getattr(advice.delta, name)} of {old[name]}"
        for name in old
        if not within_band(
            getattr(advice.delta, name),
            new[name] - old[name],
            old[name],
            Confidence(advice.confidence),
        )
    ]


@pytest.mark.parametrize(
    ("rule", "broken", "mended", "options"),
    MODEL_RULES,
    ids=[f"{rule}-{number}" for number, (rule, *_) in enumerate(MODEL_RULES)],
)
def test_the_change_brings_what_is_predicted(
    rule: str, broken: nets.Net, mended: nets.Net, options: dict[str, str]
) -> None:
    before, after = broken(), mended()
    (found,) = by_rule(advised(before, **options), rule)
    assert found.changes == "model"
    assert found.gain is not None
    assert found.gain > 0
    assert holds(found, planned(before, **options), planned(after, **options)) == []
    assert not by_rule(advised(after, **options), rule)


def test_a_healthy_model_has_nothing_to_change() -> None:
    """But for its target: a larger NPU is always faster."""
    report = advised(nets.healthy()).report
    assert {each.changes for each in report.advice} <= {"target"}
    assert report.planned_changes >= 3


def test_memory_mode_flash_and_accelerator_are_planned_as_such() -> None:
    content = nets.heavy_weights(sparse=False)
    report = advised(content).report
    before = planned(content)
    (mode,) = by_rule(advised(content), "NS201")
    assert "memory mode Sram_Only" in mode.message
    only = load_target(CONFIG, memory_mode="Sram_Only")
    after = npusched.plan(content, only, candidates="none", use_vela=False)
    assert holds(mode, before, after) == []
    assert mode.delta.sram_bytes is not None
    assert mode.delta.sram_bytes > 0  # what gets worse is said
    assert f"but SRAM +{mode.delta.sram_bytes:,}" in mode.message
    (flash,) = by_rule(advised(content), "NS202")
    target = load_target(CONFIG)
    memories = tuple(
        msgspec.structs.replace(m, bandwidth_bytes_per_cycle=2 * m.bandwidth_bytes_per_cycle)
        if m.name == "flash"
        else m
        for m in target.memories
    )
    faster = msgspec.structs.replace(target, memories=memories)
    after = npusched.plan(content, faster, candidates="none", use_vela=False)
    assert holds(flash, before, after) == []
    assert not by_rule(advised(content), "NS204")  # flash binds: more MACs do not help
    assert report.advice[0].id == "NS201"
    fast = nets.healthy()
    (larger,) = by_rule(advised(fast), "NS204")
    assert holds(larger, planned(fast), planned(fast, "ethos-u55-256")) == []


def test_an_lstm_is_named_where_its_weights_are_read_step_by_step() -> None:
    from npusched.tflite import Builder

    b = Builder("net")
    b.output(b.lstm(b.input("x", (1, 6, 16)), 16))
    found = by_rule(advised(b.build()), "NS201")
    assert found
    assert "LSTM #0 runs as" in found[0].message


def test_more_sram_is_proposed_where_it_helps() -> None:
    content = nets.stack(32)
    floor = planned(content, objective="sram").totals.sram_peak_bytes
    (more,) = by_rule(advised(content, sram=floor), "NS203")
    assert more.changes == "budget"
    assert holds(more, planned(content, sram=floor), planned(content)) == []
    assert not by_rule(advised(content), "NS203")


def test_where_no_plan_fits_advice_is_about_sram() -> None:
    content = nets.stack(17)
    with pytest.raises(InfeasibleError):
        planned(content, sram=1024)
    report = advised(content, sram=1024).report
    assert not report.fits
    assert report.budget_bytes == 1024
    assert report.before.sram_bytes == planned(content, objective="sram").totals.sram_peak_bytes
    assert report.advice
    for each in report.advice:
        assert each.delta.sram_bytes is not None
        assert each.delta.sram_bytes < 0


def test_a_budget_that_the_board_lacks_is_a_warning() -> None:
    """The plan would need 2.5 MiB of 1,872 KiB: within what there is, it is striped."""
    content = nets.built(
        lambda b, x: b.conv2d(b.conv2d(x, 64, activation="RELU"), 16), (1, 180, 180, 16)
    )
    found = advised(content, "renesas-ra8p1", sram="64MiB")
    assert not found.report.fits
    (advice,) = by_rule(found, "NS206")
    assert advice.severity == "warning"
    assert "drop --sram" in advice.message
    fitting = planned(content, "renesas-ra8p1")
    wide = planned(content, "renesas-ra8p1", sram="64MiB")
    assert holds(advice, wide, fitting) == []
    assert not by_rule(advised(content, "renesas-ra8p1"), "NS206")
    assert not by_rule(advised(nets.stack(32), "renesas-ra8p1", sram="64MiB"), "NS206")


def test_a_board_has_no_other_accelerator() -> None:
    assert not by_rule(advised(nets.healthy(), "renesas-ra8p1"), "NS204")


def test_a_host_without_npu_has_no_advice_of_the_npu() -> None:
    for content in (nets.stack(17), nets.float_network("float32")):
        report = advised(content, "cortex-m55").report
        assert not [each for each in report.advice if each.id in ("NS001", "NS101", "NS204")]


def test_rules_have_one_place_each() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    tested = {rule for rule, *_ in MODEL_RULES} | {"NS201", "NS202", "NS203", "NS204", "NS206"}
    assert set(ids) == tested


@pytest.mark.parametrize("objective", ["energy", "sram", "offchip"])
def test_nothing_is_proposed_that_does_not_help(objective: str) -> None:
    """Each advice gains in the objective that was asked for, by its own figures."""
    field = {"energy": "energy_nj", "sram": "sram_bytes", "offchip": "offchip_bytes"}
    for content in (nets.stack(17), nets.heavy_weights(sparse=False)):
        for each in advised(content, objective=objective).report.advice:
            assert each.gain is not None
            assert each.gain >= 0.005
            assert getattr(each.delta, field[objective]) < 0


def test_names_of_any_length_leave_room_for_the_effect() -> None:
    """A custom code and an input of 10,000 characters."""
    from npusched.tflite import Builder

    b = Builder("net")
    x = b.quantize(b.input("x" * 10_000, (1, 8, 8, 16), "float32"), "int8")
    y = b.conv2d(x, 16)
    z = b.tensor("custom", y.shape, "int8", scale=1 / 128)
    b.custom("C" * 10_000, [y], [z])
    b.output(b.conv2d(z, 16))
    report = advised(b.build()).report
    assert {"NS003", "NS103"} <= {each.id for each in report.advice}
    for each in report.advice:
        assert len(each.message) < 500
        assert "time -" in each.message
