"""Explanations of models that are no cases: the figures are those of plans, costs and compiles."""

from __future__ import annotations

import pytest

import npusched
from npusched.api import PlanOptions
from npusched.api.planning import Planned, content_of, make_plan
from npusched.demos import demo
from npusched.errors import ModelError, TargetError
from npusched.hardware import load_target
from npusched.report.explain_types import PeakFacts, Subject
from npusched.schedule import Planner
from npusched.schedule.boundaries import EndReason, boundaries_of, divided, division_of
from npusched.schedule.what_if import Costing
from tests.explain import kit
from tests.explain.kit import TARGET, explained


def peak_of(content: bytes) -> PeakFacts:
    found = explained(content, "peak").peak
    assert found is not None
    return found


def planned(model: str | bytes, target: str = TARGET, **options: object) -> Planned:
    content, name = content_of(model)
    made = PlanOptions(use_vela=False, **options)  # type: ignore[arg-type]
    return make_plan(content, name=name, target=load_target(target), options=made)


def own(made: Planned) -> Planner:
    return made.planner.planner_of(made.plan.order)


MADE = [
    ("demo:ds_cnn", None, TARGET),
    ("demo:ds_cnn", 16_000, TARGET),
    ("demo:block", None, "ethos-u65-256"),
    (kit.wide(17), 300_000, TARGET),
    (kit.recurrent(), None, TARGET),
    (kit.backwards(), None, "ethos-u85-256"),
]


# The peak.


@pytest.mark.parametrize(("model", "sram", "target"), MADE[:4])
def test_the_parts_make_the_peak(model: str | bytes, sram: int | None, target: str) -> None:
    report = npusched.explain(model, target, "peak", sram=sram, use_vela=False)
    plan = npusched.plan(model, target, sram=sram, use_vela=False)
    peak = report.peak
    assert peak is not None
    assert peak.sram_peak_bytes == plan.totals.sram_peak_bytes
    assert sum(part.size_bytes for part in peak.parts) == peak.live_bytes
    assert peak.live_bytes == plan.totals.sram_bound_bytes
    assert peak.live_bytes + peak.gap_bytes == peak.sram_peak_bytes
    assert sum(share.size_bytes for share in peak.shares) == peak.live_bytes
    for part in peak.parts:
        assert part.data_bytes + part.padding_bytes + part.rounding_bytes == part.size_bytes
        assert min(part.data_bytes, part.padding_bytes) >= 0
        assert 0 <= part.rounding_bytes < 16
    names = {item.tensor for item in plan.allocation}
    assert all(part.tensor in names for part in peak.parts)


def test_one_channel_more_is_padding() -> None:
    """33 channels are stored as 48; 32 need no padding, and the difference is what that costs."""
    more, less = peak_of(kit.wide(33)), peak_of(kit.wide(32))
    assert (less.padding_bytes, less.padded_channels) == (0, None)
    assert (more.padded_channels, more.stored_channels) == (33, 48)
    assert more.padding_bytes == 2 * 96 * 64 * (48 - 33)
    assert more.naive_peak_bytes == 2 * 96 * 64 * 33
    text = " ".join(explained(kit.wide(33)).sentences)
    assert "33 channels are stored as 48" in text
    assert "32 would save them" in text


def test_levers_are_plans() -> None:
    """Each is what planning with its budget gives, and keeps what it promises."""
    report = explained(kit.wide(33))
    assert report.peak is not None
    levers = {lever.id: lever for lever in report.peak.levers}
    assert {"within_10_percent", "floor"} <= set(levers)
    for lever in levers.values():
        plan = npusched.plan(kit.wide(33), TARGET, sram=lever.sram_peak_bytes, use_vela=False)
        assert plan.totals.sram_peak_bytes == lever.sram_peak_bytes
        assert plan.totals.cycles == lever.cycles
        assert lever.cycles - lever.cycles_change == report.plan.cycles
    assert levers["within_10_percent"].cycles <= 1.11 * report.plan.cycles
    order = [lever.sram_peak_bytes for lever in report.peak.levers]
    assert order == sorted(order, reverse=True)
    with pytest.raises(npusched.InfeasibleError):
        npusched.plan(kit.wide(33), TARGET, sram=order[-1] - 16, use_vela=False)


def test_a_softmax_is_wide_temporaries() -> None:
    """A decomposed op keeps results of 32 bits, several times its own tensors."""
    peak = peak_of(kit.attention_like())
    assert peak.kinds == ("SOFTMAX",)
    wide = [part for part in peak.parts if part.role == "temporary" and part.widened == 4]
    assert len(wide) >= 2
    assert peak.temporary_bytes > 3 * peak.naive_peak_bytes
    op = explained(kit.attention_like(), "op", op=0).op
    assert op is not None
    assert op.kernels > 20
    assert op.temporary_bytes >= max(part.size_bytes for part in wide)


def test_constants_count_where_they_share() -> None:
    target = load_target(TARGET, memory_mode="Sram_Only")
    report = npusched.explain(kit.dense(), target, "peak", use_vela=False)
    assert report.peak is not None
    (share,) = [share for share in report.peak.shares if share.role == "constants"]
    assert share.size_bytes == report.peak.constant_bytes == report.plan.constant_bytes
    roles = {part.role for part in report.peak.parts}
    assert roles == {"constants", "input", "output"}


# An op and its resources.


@pytest.mark.parametrize(("model", "sram", "target"), MADE)
def test_costing_again_gives_the_plan(model: str | bytes, sram: int | None, target: str) -> None:
    made = planned(model, target, sram=sram)
    costing = Costing.of(own(made), made.plan, made.plan.budget_bytes)
    mine = [run for segment in made.plan.segments for run in segment.runs]
    assert costing.runs({run.op for run in mine}) == mine


def test_twice_the_flash_is_the_plan_of_twice_the_flash() -> None:
    """A target with half the bandwidth, and the resource that doubles it again."""
    slow = load_target(TARGET, derate={"flash": 0.5})
    op = npusched.explain(kit.dense(), slow, "op", op=0, use_vela=False).op
    assert op is not None
    (flash,) = [each for each in op.resources if each.binds]
    fast = npusched.plan(kit.dense(), TARGET, use_vela=False)
    assert (flash.name, flash.holds) == ("flash", "constants")
    assert flash.doubled_cycles == fast.totals.cycles
    assert flash.doubled_frees_cycles == op.cycles - fast.totals.cycles
    assert op.cycles == 2 * fast.totals.cycles
    assert flash.unlimited_cycles is not None
    assert flash.unlimited_cycles < flash.doubled_cycles


def test_twice_the_macs_is_the_plan_of_the_next_accelerator() -> None:
    """For a convolution that MACs bind; there is nothing twice as large as the largest."""
    content = kit.wide(32)
    op = explained(content, "op", op=1).op
    assert op is not None
    (npu,) = [each for each in op.resources if each.name == "npu"]
    larger = npusched.plan(content, "ethos-u55-256", use_vela=False)
    found = sum(each.cycles for each in larger.ops if each.source_ops[0][1] == 1)
    assert npu.binds
    assert npu.doubled_as == "ethos-u55-256"
    assert npu.doubled_cycles == pytest.approx(found, rel=0.01)
    op = explained(content, "op", target="ethos-u55-256", op=1).op
    assert op is not None
    (npu,) = [each for each in op.resources if each.name == "npu"]
    assert (npu.doubled_as, npu.doubled_cycles) == ("", None)


@pytest.mark.parametrize("target", [TARGET, "ethos-u65-256", "ethos-u85-256"])
def test_more_of_a_memory_never_costs(target: str) -> None:
    for content, index in ((kit.wide(17), 1), (kit.dense(), 0), (kit.averaged(), 1)):
        op = explained(content, "op", target=target, op=index).op
        assert op is not None
        assert sum(each.binds for each in op.resources) >= 1
        for each in op.resources:
            if each.name != "npu":
                assert each.unlimited_cycles is not None
                assert each.doubled_cycles is not None
                assert each.unlimited_cycles <= each.doubled_cycles <= op.cycles
            assert each.busy_cycles <= op.cycles


def test_shares_and_kernels_add_up() -> None:
    plan = npusched.plan(kit.recurrent(), TARGET, use_vela=False)
    found = [explained(kit.recurrent(), "op", op=k).op for k in range(plan.model.op_count)]
    ops = [op for op in found if op is not None]
    assert sum(op.cycles for op in ops) == plan.totals.cycles
    assert sum(op.share for op in ops) <= 1
    assert sum(op.kernels for op in ops) <= plan.totals.dispatches
    for op in ops:
        assert sum(each.kernels for each in op.kernel_kinds) == op.kernels
        assert sum(each.cycles for each in op.kernel_kinds) == op.cycles


def test_an_lstm_reads_its_weights_every_step() -> None:
    """One op, many kernels, weights read once per step, bound by flash."""
    reports = [explained(kit.recurrent(steps), "op", op=0) for steps in (3, 9)]
    short, long = (report.op for report in reports)
    assert short is not None
    assert long is not None
    assert short.weights is not None
    assert long.weights is not None
    assert 40 < short.kernels < long.kernels
    assert short.weights.reads == pytest.approx(3, rel=0.02)
    assert long.weights.reads == pytest.approx(9, rel=0.02)
    assert long.weights.stored_bytes == short.weights.stored_bytes
    assert [each.name for each in long.resources if each.helps_most] == ["flash"]
    assert "read 9.0 times per inference" in " ".join(reports[1].sentences)


def test_a_mean_is_several_kernels() -> None:
    op = explained(kit.averaged(), "op", op=1).op
    assert op is not None
    assert op.kind == "MEAN"
    assert op.kernels > 1
    assert op.temporary_bytes > 0


def test_a_layer_is_found_by_its_name() -> None:
    content = kit.wide(16)
    for name in ("wide1", "last"):
        assert explained(content, "op", layer=name).op is not None
    by_name = explained(content, "op", layer="wide1").op
    assert by_name == explained(content, "op", op=1).op
    with pytest.raises(ModelError, match="2 ops match 'wide'"):
        explained(content, "op", layer="wide")
    with pytest.raises(ModelError, match="no op makes"):
        explained(content, "op", layer="wade1")
    with pytest.raises(ModelError, match="no op makes"):
        explained(content, "op", layer="")
    for number in (-1, 3, None):
        with pytest.raises(ModelError, match="has no op"):
            explained(content, "op", op=number)


# Chains.


@pytest.mark.parametrize(("model", "sram", "target"), MADE)
def test_a_longer_chain_is_never_better(model: str | bytes, sram: int | None, target: str) -> None:
    """The plan is the best one: what its own division costs, and what any longer chain does."""
    made = planned(model, target, sram=sram)
    plan, planner = made.plan, own(made)
    base = divided(planner, division_of(plan)).solve(plan.budget_bytes)
    assert base is not None
    assert base.score == pytest.approx(plan.objective, rel=1e-9)
    ends = boundaries_of(planner, plan, plan.budget_bytes)
    assert [end.segment for end in ends] == list(range(len(plan.segments)))
    assert ends[-1].reason is EndReason.NETWORK_ENDS
    for end in ends:
        assert (end.grown is None) == (end.reason not in (EndReason.COSTS, EndReason.BUDGET)), end
        assert (end.stop is not None) == (end.reason is EndReason.BARRIER)
        if end.reason is EndReason.COSTS:
            assert end.score_change >= -1e-6 * plan.objective
        if end.reason is EndReason.BUDGET:
            assert plan.budget_bytes is not None
            assert end.least_sram_bytes > plan.budget_bytes


def test_a_chain_that_the_budget_forbids() -> None:
    """With little SRAM some longer chains do not fit; with what they need they are a plan."""
    content, budget = demo("ds_cnn"), 16_790
    made = planned(content, sram=budget)
    ends = boundaries_of(own(made), made.plan, budget)
    barred = [end for end in ends if end.reason is EndReason.BUDGET]
    assert barred
    for end in barred[:2]:
        roomy = planned(content, sram=end.sram_bytes + 4096)
        assert roomy.plan.objective <= made.plan.objective + end.score_change + 1e-6


def test_barriers_are_named() -> None:
    fusion = explained(kit.backwards(), "fusion").fusion
    assert fusion is not None
    whys = {end.last_op: (end.reason, end.why) for end in fusion.ends}
    assert whys[(0, 0)] == ("barrier", "#1 STRIDED_SLICE: an op on the CPU is in between")


def test_batch_norms_and_who_could_take_them() -> None:
    behind = explained(kit.norm_behind_pool(), "fusion").fusion
    before = explained(kit.norm_behind_conv(), "fusion").fusion
    none = explained(kit.wide(16), "fusion").fusion
    assert behind is not None
    assert before is not None
    assert none is not None
    (norm,) = behind.batch_norms
    assert (norm.source_ops, norm.into, norm.where) == ((1, 2), 3, "behind")
    assert norm.cycles > 0
    assert "not linear" in norm.blocker
    (norm,) = before.batch_norms
    assert (norm.source_ops, norm.into, norm.where) == ((1, 2), 0, "before")
    assert none.batch_norms == ()
    op = explained(kit.norm_behind_pool(), "op", op=0).op
    assert op is not None
    assert op.kernels == 36


def test_chains_of_the_plan() -> None:
    report = explained(kit.wide(16), "fusion", sram="100KiB")
    plan = npusched.plan(kit.wide(16), TARGET, sram="100KiB", use_vela=False)
    assert report.fusion is not None
    fused = [segment for segment in plan.segments if len(segment.ops) > 1]
    assert len(report.fusion.chains) == len(fused) >= 1
    for chain, segment in zip(report.fusion.chains, fused, strict=True):
        assert (chain.cycles, chain.unfused_cycles) == (segment.cycles, segment.unfused_cycles)
        assert (chain.stripes, chain.stripe_rows) == (segment.stripes, segment.stripe_rows)
        assert 0 < chain.rolling_bytes < chain.kept_bytes


# The CPU, and memory modes.


def test_fallbacks_with_limit_value_and_fix() -> None:
    facts = explained(kit.stretched(), "fallbacks").fallbacks
    assert facts is not None
    (op,) = facts.ops
    assert (op.index, op.kind, op.npu_families) == (1, "TRANSPOSE_CONV", ("ethos-u85",))
    assert op.reasons[0].value == "4x4"
    assert "Vela 5.2" in op.reasons[0].text
    assert op.reasons[0].fix
    assert facts.rules_of == "5.2"
    assert facts.npu_macs + op.macs == facts.macs
    assert op.time_s > 0
    facts = explained(kit.backwards(), "fallbacks").fallbacks
    assert facts is not None
    assert [each.kind for each in facts.ops] == ["STRIDED_SLICE"]
    assert "-2" in facts.ops[0].reasons[0].value
    assert facts.npu_invocations == 2
    assert facts.ops[0].handed_bytes > 0
    none = explained(kit.wide(16), "fallbacks")
    assert none.fallbacks is not None
    assert none.fallbacks.ops == ()
    assert "No op of 3 falls to the CPU" in none.sentences[0]


def test_families_are_what_planning_for_them_says() -> None:
    for content in (kit.stretched(), kit.backwards(), kit.attention_like()):
        facts = explained(content, "fallbacks").fallbacks
        assert facts is not None
        for family, target in (
            ("ethos-u55", TARGET),
            ("ethos-u65", "ethos-u65-256"),
            ("ethos-u85", "ethos-u85-256"),
        ):
            plan = npusched.plan(content, target, use_vela=False)
            found = tuple(op.index for op in plan.source_ops if op.placement == "cpu")
            (mine,) = [each for each in facts.families if each.family == family]
            assert (mine.cpu_ops, mine.indices) == (len(found), found)


@pytest.mark.parametrize("target", [TARGET, "ethos-u65-256"])
def test_modes_are_plans(target: str) -> None:
    report = npusched.explain(kit.dense(), target, "mode", use_vela=False)
    assert len(report.modes) >= 2
    assert [mode.is_chosen for mode in report.modes].count(True) == 1
    assert report.modes[0].is_chosen
    for mode in report.modes:
        plan = npusched.plan(
            kit.dense(), load_target(target, memory_mode=mode.memory_mode), use_vela=False
        )
        assert mode.cycles == plan.totals.cycles
        assert mode.sram_peak_bytes == plan.totals.sram_peak_bytes
        assert sum(share.share for share in mode.bound_by) == pytest.approx(1)
    by_name = {mode.memory_mode: mode for mode in report.modes}
    only, shared = by_name["Sram_Only"], by_name["Shared_Sram"]
    assert only.cycles is not None
    assert shared.cycles is not None
    assert shared.bound_by[0].bound_by == "weights"
    assert only.cycles < shared.cycles
    if target == TARGET:
        assert "Fastest: Sram_Only." in report.sentences


def test_a_mode_that_does_not_fit_says_so() -> None:
    report = npusched.explain(kit.dense(), TARGET, "mode", sram=4096, use_vela=False)
    by_name = {mode.memory_mode: mode for mode in report.modes}
    assert by_name["Sram_Only"].cycles is None
    assert "no plan fits 4096 bytes" in by_name["Sram_Only"].why_not
    assert by_name["Shared_Sram"].cycles is not None


def test_a_cpu_alone_can_be_explained() -> None:
    content = demo("ds_cnn")
    subjects: tuple[Subject, ...] = ("peak", "fallbacks", "fusion")
    for subject in subjects:
        report = explained(content, subject, target="cortex-m4")
        assert report.sentences
    op = explained(content, "op", target="cortex-m4", op=0).op
    assert op is not None
    assert (op.placement, op.resources) == ("cpu", ())
    with pytest.raises(TargetError, match="has no NPU"):
        explained(content, "vela", target="cortex-m4")


def test_a_report_is_about_one_subject() -> None:
    parts = ("peak", "op", "fallbacks", "modes", "fusion", "vela")
    subjects: dict[Subject, str] = {"peak": "peak", "fusion": "fusion", "mode": "modes"}
    for subject, part in subjects.items():
        report = explained(kit.wide(16), subject)
        assert [name for name in parts if getattr(report, name)] == [part]
