"""What changed between two plans: totals, settings, ops, in every form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import npusched
from npusched.report.diff_build import build_diff, relative_change
from npusched.report.diff_md import MARKDOWN_OPS, render_diff_md
from npusched.report.diff_text import MAX_LINES, render_diff_text
from npusched.report.diff_types import DiffReport, OpChange
from npusched.report.figures import FIGURES
from npusched.report.layout import cell_width
from npusched.report.types import PlanReport, SourceOp
from npusched.tflite import Builder
from tests.report.check_kit import HOSTILE, TARGET, planned, renamed

GOLDEN = Path(__file__).with_name("golden")
replace = msgspec.structs.replace


def diff(before: PlanReport, after: PlanReport) -> DiffReport:
    return build_diff(before, after, before_file="before.json", after_file="after.json")


@pytest.fixture(scope="module")
def roomy() -> PlanReport:
    return planned("demo:mobilenet", sram="96KiB")


@pytest.fixture(scope="module")
def tight() -> PlanReport:
    return planned("demo:mobilenet", sram="48KiB")


def op_seconds(plan: PlanReport) -> float:
    target = plan.target
    return sum(op.cycles / target.clock_hz + op.cpu_cycles / target.cpu.clock_hz for op in plan.ops)


def test_a_plan_does_not_differ_from_itself(roomy: PlanReport) -> None:
    report = diff(roomy, roomy)
    assert report.ops == ()
    assert report.settings == ()
    assert report.unchanged_ops == len(roomy.source_ops)
    assert all(total.change == 0 and total.relative == 0 for total in report.totals)
    assert "0 changed" not in render_diff_text(report)


def test_totals_are_those_of_the_plans(roomy: PlanReport, tight: PlanReport) -> None:
    report = diff(roomy, tight)
    assert [total.metric for total in report.totals] == list(FIGURES)
    for total in report.totals:
        assert total.before == FIGURES[total.metric].of(roomy)
        assert total.after == FIGURES[total.metric].of(tight)
        assert total.change == total.after - total.before
    by_name = {total.metric: total for total in report.totals}
    assert by_name["cycles"].before == roomy.totals.cycles < by_name["cycles"].after
    assert by_name["sram_peak_bytes"].change < 0


def test_changes_of_ops_add_up_to_the_change_of_all(roomy: PlanReport, tight: PlanReport) -> None:
    """Every kernel counts once, for one op; so the movers explain the whole difference."""
    for a, b in ((roomy, tight), (roomy, planned("demo:resnet8", "ethos-u65-256"))):
        report = diff(a, b)
        moved = sum(change.change_s for change in report.ops)
        assert moved == pytest.approx(op_seconds(b) - op_seconds(a), rel=1e-9)
        sizes = [abs(change.change_s) for change in report.ops]
        assert sizes == sorted(sizes, reverse=True)


def test_swapping_the_plans_swaps_the_sides(roomy: PlanReport, tight: PlanReport) -> None:
    there, back = diff(roomy, tight), diff(tight, roomy)
    assert {(c.before, c.after) for c in there.ops} == {(c.after, c.before) for c in back.ops}
    assert there.unchanged_ops == back.unchanged_ops
    assert [s.setting for s in there.settings] == ["budget_bytes"]
    assert (there.settings[0].before, there.settings[0].after) == ("98304", "49152")


def test_chains_and_stripes_that_change_are_said(roomy: PlanReport, tight: PlanReport) -> None:
    report = diff(roomy, tight)
    first = next(c for c in report.ops if c.after is not None and c.after.index == 0)
    segment = tight.segments[0]
    assert first.after is not None
    assert len(segment.ops) > 1
    assert "chain" in first.changed
    assert "stripes" in first.changed
    assert first.after.chain_ops == len(segment.source_ops)
    assert (first.after.stripe_rows, first.after.stripes) == (segment.stripe_rows, segment.stripes)
    assert f"→ chain of {len(segment.source_ops)}" in render_diff_text(report, width=200)


def test_a_chain_that_only_moved_is_the_same_chain(roomy: PlanReport) -> None:
    """Numbers of segments do not matter, members do."""
    moved = replace(roomy, ops=tuple(replace(op, segment=op.segment + 1) for op in roomy.ops))
    shifted = replace(moved, segments=(roomy.segments[0], *roomy.segments))
    assert diff(roomy, shifted).ops == ()


def test_placement_that_changes_is_said(roomy: PlanReport) -> None:
    sources = list(roomy.source_ops)
    sources[3] = replace(sources[3], placement="cpu")
    (change,) = diff(roomy, replace(roomy, source_ops=tuple(sources))).ops
    assert change.changed == ("placement",)
    assert change.before is not None
    assert (change.state, change.before.index) == ("changed", 3)
    assert "npu → cpu" in render_diff_text(
        diff(roomy, replace(roomy, source_ops=tuple(sources))), width=140
    )


def network(*layers: str) -> bytes:
    """A chain of layers: name -> depth of a 3×3 convolution, "dw" for a depthwise one."""
    b = Builder("net", seed=1)
    x = b.input("x", (1, 16, 16, 8))
    for layer in layers:
        x = b.depthwise_conv2d(x, 3) if layer == "dw" else b.conv2d(x, int(layer), 3)
    b.output(x)
    return b.build()


def names(plan: PlanReport, *given: str) -> PlanReport:
    """The plan with other names of its ops and another hash."""
    ops = tuple(replace(op, name=name) for op, name in zip(plan.source_ops, given, strict=True))
    return replace(plan, source_ops=ops, model=replace(plan.model, sha256="0" * 64))


def of(content: bytes) -> PlanReport:
    return npusched.plan(content, TARGET, use_vela=False)


def pairs(report: DiffReport) -> dict[int, tuple[int, str]]:
    return {
        c.before.index: (c.after.index, c.matched_by)
        for c in report.ops
        if c.before is not None and c.after is not None
    }


def states(report: DiffReport) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"added": [], "removed": []}
    for change in report.ops:
        side = change.after or change.before
        if change.state in found and side is not None:
            found[change.state].append(side.index)
    return found


def test_two_models_are_matched_by_name_wherever_the_op_is() -> None:
    a = names(of(network("16", "dw", "8")), "first", "second", "third")
    b = names(of(network("32", "16", "dw", "8")), "new", "first", "second", "third")
    b = replace(b, model=replace(b.model, sha256="1" * 64))
    report = diff(a, b)
    assert not report.same_model
    assert states(report) == {"added": [0], "removed": []}
    assert pairs(report).items() <= {0: (1, "name"), 1: (2, "name"), 2: (3, "name")}.items()
    back = diff(b, a)
    assert states(back) == {"added": [], "removed": [0]}


def test_a_name_whose_kind_changed_is_one_op() -> None:
    a = names(of(network("8", "8")), "one", "two")
    b = names(of(network("8", "dw")), "one", "two")
    b = replace(b, model=replace(b.model, sha256="1" * 64))
    change = next(c for c in diff(a, b).ops if c.name == "two")
    assert change.state == "changed"
    assert "kind" in change.changed
    assert "was CONV_2D" in render_diff_text(diff(a, b), width=140)


def test_renamed_ops_are_matched_by_kind_shape_and_order() -> None:
    """The op of depth 32 has no partner; the others have, though all names and indices differ."""
    a = names(of(network("16", "dw", "8")), "a", "b", "c")
    b = names(of(network("16", "32", "16", "dw", "8")), "p", "q", "r", "s", "t")
    b = replace(b, model=replace(b.model, sha256="1" * 64))
    report = diff(a, b)
    assert states(report)["removed"] == []
    assert states(report)["added"] == [1, 2]


def test_ops_without_a_name_are_not_one_op() -> None:
    a = names(of(network("8", "dw")), "", "")
    b = names(of(network("dw", "8")), "", "")
    b = replace(b, model=replace(b.model, sha256="1" * 64))
    for before, (after, how) in pairs(diff(a, b)).items():
        assert a.source_ops[before].kind == b.source_ops[after].kind
        assert how == "order"


def test_another_target_is_said_first(roomy: PlanReport) -> None:
    report = diff(roomy, planned("demo:mobilenet", "ethos-u65-256"))
    assert report.same_model
    settings = [change.setting for change in report.settings]
    assert settings[:2] == ["budget_memory", "budget_bytes"] or settings[0] == "budget_bytes"
    chosen = [name for name in settings if name.startswith("target.")]
    assert chosen[0] == "target.name"
    assert "target.accelerator.macs_per_cycle" in chosen


def test_relative_changes() -> None:
    assert relative_change(0, 0) == 0
    assert relative_change(0, 5) is None
    assert relative_change(4, 5) == 0.25


CASES = ["budget", "target", "model"]


def other(case: str) -> PlanReport:
    match case:
        case "budget":
            return planned("demo:mobilenet", sram="48KiB")
        case "target":
            return planned("demo:mobilenet", "renesas-ra8p1")
        case _:
            return planned("demo:unet", "ethos-u85-256")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [40, 80, 100, 160])
def test_text_is_short_at_any_width(case: str, width: int, roomy: PlanReport) -> None:
    text = render_diff_text(diff(roomy, other(case)), width=width)
    assert max(cell_width(row) for row in text.splitlines()) <= width
    assert len(text.splitlines()) <= (MAX_LINES if width >= 80 else 60)


def test_text_is_short_where_all_of_it_is_long(roomy: PlanReport) -> None:
    """Headers on two lines, every total, many settings, many ops."""
    a, b = renamed(roomy, "n" * 60), renamed(planned("demo:unet", "ethos-u65-256"), "m" * 60)
    totals = dict.fromkeys(("cpu_cycles", "dram_bytes", "flash_bytes", "sram_bytes"), 10**9)
    report = diff(a, replace(b, totals=replace(b.totals, **totals)))
    assert len(report.settings) > 20
    assert len(report.ops) > 8
    text = render_diff_text(report, width=80)
    assert len(text.splitlines()) <= MAX_LINES
    assert "more settings differ" in text


def test_the_text_lists_as_many_ops_as_asked(roomy: PlanReport, tight: PlanReport) -> None:
    report = diff(roomy, tight)
    assert "more op" in render_diff_text(report, top=1)
    everything = render_diff_text(report, top=1000)
    assert "more op" not in everything
    assert sum(row.startswith("  #") for row in everything.splitlines()) == len(report.ops)


def test_forms_are_as_they_were(
    roomy: PlanReport, tight: PlanReport, golden: Callable[[Path, str], None]
) -> None:
    report = diff(roomy, tight)
    golden(GOLDEN / "diff.txt", render_diff_text(report))
    golden(GOLDEN / "diff.md", render_diff_md(report))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_inert_in_text_and_markdown(name: str, roomy: PlanReport) -> None:
    a, b = renamed(roomy, name[::-1]), renamed(planned("demo:unet", "ethos-u85-256"), name)
    report = build_diff(a, b, before_file=name, after_file=name)
    for width in (40, 100):
        text = render_diff_text(report, width=width)
        assert all(c == "\n" or c.isprintable() for c in text)
        assert not any(row.lstrip().startswith("::") or "##[" in row for row in text.splitlines())
        assert len(text.splitlines()) <= 60
    page = render_diff_md(report)
    assert all(c == "\n" or c.isprintable() for c in page)
    for row in page.splitlines():
        bare = row.replace("\\\\", "")
        assert not row.startswith("|") or bare.count("|") - bare.count("\\|") in (6, 7, 4)
        assert not any(link in row for link in ("@", "://", "www."))
        for mark in ("<", "`", "[", "*"):
            assert bare.count(mark) == bare.count(f"\\{mark}")


def many_ops(count: int) -> PlanReport:
    """A plan of as many ops, all of one name, none with a kernel."""
    plan = planned("demo:block")
    ops: tuple[SourceOp, ...] = tuple(
        replace(plan.source_ops[0], index=k, name="same", scheduled_ops=()) for k in range(count)
    )
    model = replace(plan.model, sha256=f"{count:064x}")
    return replace(plan, source_ops=ops, ops=(), model=model)


def test_long_models_make_short_pages() -> None:
    report = diff(many_ops(0), many_ops(60))
    assert len(report.ops) == 60
    rows = [row for row in render_diff_md(report).splitlines() if re.match(r"\| \d", row)]
    assert len(rows) == MARKDOWN_OPS
    assert "10 more ops." in render_diff_md(report)


def test_many_equal_names_are_matched_in_order_and_soon() -> None:
    """20 000 ops of one name: n steps, not n²."""
    report = diff(many_ops(20_000), many_ops(19_999))
    assert states(report) == {"added": [], "removed": [19_999]}
    assert report.unchanged_ops == 19_999


def test_json_reads_back(roomy: PlanReport, tight: PlanReport) -> None:
    from npusched.report.diff_text import render_diff_json

    report = diff(roomy, tight)
    assert msgspec.json.decode(render_diff_json(report), type=DiffReport) == report
    form = json.loads(render_diff_json(report))
    assert form["totals"][0]["metric"] == "cycles"


def test_every_change_has_a_side(roomy: PlanReport) -> None:
    changes: tuple[OpChange, ...] = diff(roomy, planned("demo:unet")).ops
    for change in changes:
        assert (change.before is None) == (change.state == "added")
        assert (change.after is None) == (change.state == "removed")
        assert (change.matched_by == "") == (change.state != "changed")
        assert bool(change.changed) == (change.state == "changed")
