"""Gates: what passes, what fails, what is said, in every form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusched
from npusched.errors import InfeasibleError, NpuschedError, TargetError
from npusched.report.check_build import LIMITED, REGRESSED, Baseline, Limits, build_check
from npusched.report.check_forms import (
    RULES,
    message,
    render_check_github,
    render_check_junit,
    render_check_sarif,
)
from npusched.report.check_text import render_check_text
from npusched.report.check_types import CheckReport, Gate
from npusched.report.figures import FIGURES
from npusched.report.layout import cell_width
from npusched.report.types import Interval, PlanReport
from tests.report.check_kit import HOSTILE, TARGET, planned, renamed
from tests.report.sarif_schema import SARIF

GOLDEN = Path(__file__).with_name("golden")
replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def plan() -> PlanReport:
    return planned(sram="64KiB")


def gate(report: CheckReport, name: str) -> Gate:
    (found,) = (each for each in report.gates if each.id == name)
    return found


def baseline(plan: PlanReport, percent: str = "0%") -> Baseline:
    from npusched.api import baseline_of
    from npusched.report.json_form import render_json

    return baseline_of(render_json(plan).encode(), "plan.json", percent)


def scaled(plan: PlanReport, **factors: float) -> PlanReport:
    """The plan with totals multiplied."""
    totals: dict[str, Any] = {
        name: type(getattr(plan.totals, name))(getattr(plan.totals, name) * factor)
        for name, factor in factors.items()
        if name != "energy"
    }
    if "energy" in factors:
        typical = plan.totals.energy_nj.typical * factors["energy"]
        totals["energy_nj"] = Interval(low=1.0, typical=typical, high=typical)
    return replace(plan, totals=replace(plan.totals, **totals))


@pytest.mark.parametrize("field", LIMITED)
def test_a_value_may_be_its_limit_and_no_more(field: str, plan: PlanReport) -> None:
    name, metric = LIMITED[field]
    value = FIGURES[metric].of(plan)
    exactly = build_check(plan, replace(Limits(), **{field: value}))
    assert exactly.verdict == "pass"
    assert gate(exactly, name).excess == 0
    if value == 0:
        return
    less = value - 1 if isinstance(value, int) else value * (1 - 1e-12)
    below = build_check(plan, replace(Limits(), **{field: less}))
    assert below.verdict == "fail"
    failed = gate(below, name)
    assert (failed.value, failed.limit, failed.excess) == (value, less, value - less)
    assert not failed.passed


def test_only_limits_that_are_given_are_gates(plan: PlanReport) -> None:
    report = build_check(plan, Limits(cpu_ops=0, flash_bytes=1))
    assert [each.id for each in report.gates] == ["max-flash", "max-cpu-ops"]
    assert [each.passed for each in report.gates] == [False, True]


@pytest.mark.parametrize(
    ("factors", "failing"),
    [
        ({"cycles": 1.02}, []),
        ({"cycles": 1.03}, ["max-regression-cycles"]),
        ({"latency_s": 1.0201}, ["max-regression-latency"]),
        ({"sram_peak_bytes": 1.03}, ["max-regression-sram"]),
        ({"constant_bytes": 1.03}, ["max-regression-flash"]),
        ({"energy": 1.03}, ["max-regression-energy"]),
        ({"cycles": 0.5, "latency_s": 0.5, "energy": 0.5}, []),
        ({"dram_bytes": 2.0, "dispatches": 2.0}, []),
    ],
)
def test_regressions(factors: dict[str, float], failing: list[str], plan: PlanReport) -> None:
    report = build_check(scaled(plan, **factors), Limits(), baseline=baseline(plan, "2%"))
    assert [each.id for each in report.gates if not each.passed] == failing
    assert len(report.gates) == len(REGRESSED)


def test_a_regression_names_the_ops_that_are_slower() -> None:
    before, after = planned(sram="64KiB"), planned(sram="14KiB")
    report = build_check(after, Limits(), baseline=baseline(before, "2%"))
    worst = npusched.diff(before, after).ops[0]
    assert worst.after is not None
    help_ = gate(report, "max-regression-latency").help
    assert help_.startswith(f"slower: #{worst.after.index} {worst.after.kind} +")
    assert gate(report, "max-regression-flash").help == ""


def test_a_regression_is_judged_exactly(plan: PlanReport) -> None:
    """1 % of 10 000 cycles is 100: 10 100 pass, 10 101 do not, whatever floats make of 1.01."""
    before = replace(plan, totals=replace(plan.totals, cycles=10_000))
    for cycles, passed in ((10_100, True), (10_101, False)):
        after = replace(plan, totals=replace(plan.totals, cycles=cycles))
        report = build_check(after, Limits(), baseline=baseline(before, "1%"))
        found = gate(report, "max-regression-cycles")
        assert (found.passed, found.limit, found.baseline) == (passed, 10_100, 10_000)
    assert (
        "NPU cycles: 10 101 cycles, 10 000 cycles before (+1.0 %; 1 % more is allowed)"
        in found.text
    )


def test_what_was_nothing_may_not_become_something(plan: PlanReport) -> None:
    before = replace(plan, totals=replace(plan.totals, constant_bytes=0))
    report = build_check(plan, Limits(), baseline=baseline(before, "50%"))
    assert "0 bytes before (new" in gate(report, "max-regression-flash").text
    assert not gate(report, "max-regression-flash").passed


def test_an_infeasible_budget_is_a_failed_gate_with_the_smallest_feasible_one() -> None:
    """What `plan` raises, with its figures; the other gates are of the plan that is feasible."""
    with pytest.raises(InfeasibleError) as raised:
        planned(sram="8KiB")
    need = raised.value.values["smallest_feasible_bytes"]
    assert isinstance(need, int)
    report = npusched.check(
        "demo:ds_cnn", TARGET, max_sram="8KiB", max_latency="1s", use_vela=False
    )
    failed = gate(report, "max-sram")
    assert (failed.value, failed.limit, failed.excess) == (need, 8192, need - 8192)
    assert f"the smallest feasible budget is {need} bytes" in failed.text
    assert f"allow {need} bytes, or shrink" in failed.help
    assert not report.fits
    assert report.totals == planned(sram=need).totals
    assert gate(report, "max-latency").value == report.totals.latency_s
    assert [each.passed for each in report.gates] == [False, True]
    at_need = npusched.check("demo:ds_cnn", TARGET, max_sram=need, use_vela=False)
    assert at_need.verdict == "pass"


def test_a_budget_below_the_limit_is_a_gate_of_its_own() -> None:
    report = npusched.check(
        "demo:ds_cnn", TARGET, sram="8KiB", max_sram="64KiB", max_cpu_ops=0, use_vela=False
    )
    assert {each.id: each.passed for each in report.gates} == {
        "sram": False,
        "max-sram": True,
        "max-cpu-ops": True,
    }


def test_an_off_chip_limit_that_no_plan_keeps() -> None:
    report = npusched.check(
        "demo:ds_cnn",
        TARGET,
        max_sram="64KiB",
        max_offchip_bytes=100,
        use_vela=False,
    )
    failed = gate(report, "max-offchip-bytes")
    assert not failed.passed
    assert failed.limit == 100
    assert failed.value == report.totals.flash_bytes + report.totals.dram_bytes
    assert gate(report, "max-sram").passed


def test_both_budgets_may_fail() -> None:
    report = npusched.check(
        "demo:ds_cnn", TARGET, max_sram="1KiB", max_offchip_bytes=1, use_vela=False
    )
    assert {each.id for each in report.gates if not each.passed} == {
        "max-sram",
        "max-offchip-bytes",
    }


def test_more_sram_is_offered_where_it_helps() -> None:
    roomy = planned()
    report = npusched.check(
        "demo:ds_cnn",
        TARGET,
        max_sram="14KiB",
        max_latency=roomy.totals.latency_s,
        use_vela=False,
    )
    failed = gate(report, "max-latency")
    assert failed.help.startswith("with ")
    assert f"{1e3 * roomy.totals.latency_s:.6g} ms" in failed.help


def test_a_latency_that_no_plan_reaches_is_said_so() -> None:
    report = npusched.check(
        "demo:ds_cnn", TARGET, max_sram="64KiB", max_latency="1us", use_vela=False
    )
    assert gate(report, "max-latency").help.startswith("no plan can: the work of the NPU alone")


def test_cpu_ops_are_named_with_the_fix() -> None:
    report = npusched.check("demo:ds_cnn", "cortex-m4", max_cpu_ops=2)
    failed = gate(report, "max-cpu-ops")
    assert failed.value == report.cpu_ops > 2
    assert failed.help.startswith("#0 CONV_2D")
    assert failed.help.endswith(f"| {report.cpu_ops - 3} more")


def test_nothing_to_check_is_an_error() -> None:
    with pytest.raises(NpuschedError, match="there is nothing to check"):
        npusched.check("demo:ds_cnn", TARGET, use_vela=False)


def test_a_baseline_of_another_target_is_refused(plan: PlanReport) -> None:
    with pytest.raises(NpuschedError, match="another target") as raised:
        npusched.check("demo:ds_cnn", "ethos-u65-256", baseline=plan, use_vela=False)
    assert 'name "ethos-u55-128", now "ethos-u65-256"' in raised.value.why
    target = replace(plan.target, clock_hz=4e8)
    slower = replace(plan, target=target)
    with pytest.raises(NpuschedError, match=r"clock_hz 400000000\.0, now 500000000\.0"):
        npusched.check("demo:ds_cnn", TARGET, baseline=slower, use_vela=False)


def test_a_baseline_of_another_model_budget_and_version_is_taken(plan: PlanReport) -> None:
    old = replace(planned("demo:block"), npusched_version="0.0.9")
    report = npusched.check(
        "demo:ds_cnn", TARGET, sram="64KiB", baseline=old, max_regression="1000000%", use_vela=False
    )
    assert report.verdict == "pass"
    assert report.baseline is not None
    assert report.baseline.sha256 != report.sha256
    changed = {setting.setting: setting.before for setting in report.baseline.settings}
    assert changed["npusched_version"] == '"0.0.9"'
    assert "budget_bytes" in changed
    same = npusched.check("demo:ds_cnn", TARGET, sram="64KiB", baseline=plan, use_vela=False)
    assert same.verdict == "pass"
    assert same.baseline is not None
    assert same.baseline.settings == ()


@pytest.fixture(scope="module")
def failing(plan: PlanReport) -> CheckReport:
    """Limits passed and failed, a budget that is infeasible, and regressions."""
    before = scaled(plan, cycles=0.9, constant_bytes=0.5)
    return npusched.check(
        "demo:ds_cnn",
        TARGET,
        max_sram="8KiB",
        max_latency="5ms",
        max_flash="16KiB",
        max_cpu_ops=0,
        baseline=before,
        max_regression="2%",
        use_vela=False,
    )


@pytest.fixture(scope="module")
def passing() -> CheckReport:
    return npusched.check("demo:ds_cnn", TARGET, max_sram="64KiB", use_vela=False)


FORMS: dict[str, Callable[[CheckReport], str]] = {
    "check.txt": render_check_text,
    "check.github.txt": lambda report: render_check_github(report, path="nets/kws.tflite") + "\n",
    "check.sarif": lambda report: render_check_sarif(report, path="nets/kws.tflite") + "\n",
    "check.junit.xml": render_check_junit,
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_as_they_were(
    name: str, failing: CheckReport, golden: Callable[[Path, str], None]
) -> None:
    golden(GOLDEN / name, FORMS[name](failing))


@pytest.mark.parametrize("width", [40, 72, 100, 160])
def test_text_fits_the_terminal(width: int, failing: CheckReport) -> None:
    text = render_check_text(failing, width=width)
    assert max(cell_width(row) for row in text.splitlines()) <= width
    assert len(text.splitlines()) <= (40 if width >= 72 else 70)
    assert text.startswith("fail")
    assert "\x1b" not in text
    assert "\x1b[1;31m" in render_check_text(failing, width=width, colour=True)


def test_a_pass_in_all_forms(passing: CheckReport) -> None:
    assert render_check_text(passing).startswith("pass · demo:ds_cnn · ethos-u55-128")
    assert render_check_github(passing) == (
        "::notice title=npusched%3A demo%3Ads_cnn on ethos-u55-128::1 gate passed"
    )
    assert json.loads(render_check_sarif(passing))["runs"][0]["results"] == []
    suites = ElementTree.fromstring(render_check_junit(passing))
    assert suites.get("failures") == "0"
    assert [case.get("name") for case in suites.iter("testcase")] == ["max-sram"]


def test_github_annotations_name_gate_file_and_figures(failing: CheckReport) -> None:
    rows = render_check_github(failing, path="a,b:c.tflite").splitlines()
    assert len(rows) == sum(not each.passed for each in failing.gates)
    assert all(row.startswith("::error file=a%2Cb%3Ac.tflite,title=npusched%3A ") for row in rows)
    assert rows[0].split("::")[1].endswith("title=npusched%3A SRAM peak above the limit")
    assert "the smallest feasible budget is" in rows[0]


def test_sarif_is_valid_and_points_to_its_rules(failing: CheckReport) -> None:
    jsonschema.Draft202012Validator.check_schema(SARIF)
    log = json.loads(render_check_sarif(failing, path="nets/my net.tflite"))
    jsonschema.Draft202012Validator(SARIF).validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == [each.id for each in failing.gates]
    failed = {each.id: each for each in failing.gates if not each.passed}
    assert [result["ruleId"] for result in run["results"]] == list(failed)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["properties"]["excess"] == failed[result["ruleId"]].excess
        (place,) = result["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "nets/my%20net.tflite"
    broken = json.loads(json.dumps(log))
    del broken["runs"][0]["tool"]["driver"]["name"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SARIF)


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("a/b c.tflite", "a/b%20c.tflite"),
        ("/nets/a.tflite", "file:///nets/a.tflite"),
        ("javascript:x", "javascript%3Ax"),
        ("../a#b?c", "../a%23b%3Fc"),
        ("half \ud800", "half%20%3F"),
        ("", "demo%3Ads_cnn"),
    ],
)
def test_sarif_paths_are_uris(path: str, uri: str, failing: CheckReport) -> None:
    run = json.loads(render_check_sarif(failing, path=path))["runs"][0]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri


def test_every_gate_has_a_rule() -> None:
    ids = {name for name, _ in LIMITED.values()} | {"sram", "max-offchip-bytes"}
    assert len(RULES) == len(ids) + len(REGRESSED)
    assert ids < RULES.keys()


def test_junit_counts_and_says(failing: CheckReport) -> None:
    suites = ElementTree.fromstring(render_check_junit(failing))
    assert suites.tag == "testsuites"
    (suite,) = suites.findall("testsuite")
    cases = suite.findall("testcase")
    failures = [case for case in cases if case.find("failure") is not None]
    failed = [each.id for each in failing.gates if not each.passed]
    for counted in (suites, suite):
        assert counted.get("tests") == str(len(failing.gates)) == str(len(cases))
        assert counted.get("failures") == str(len(failed))
        assert counted.get("errors") == "0"
    assert [case.get("name") for case in failures] == failed
    said = failures[0].findtext("failure")
    assert said is not None
    assert "the smallest feasible budget is" in said


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=120), st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_name_is_inert(name: str, path: str) -> None:
    """As below, for whatever hypothesis thinks of; annotations read back as what was said."""
    first = Gate(
        id="max-sram",
        kind="limit",
        metric="sram_peak_bytes",
        title="SRAM peak",
        unit="bytes",
        value=2,
        limit=1,
        excess=1,
        baseline=None,
        passed=False,
        text=f"it is {name}",
        help=path,
    )
    report = replace(checked_once(), model=name, verdict="fail", gates=(first,))
    (row,) = render_check_github(report, path=path).split("\n")
    head, _, text = row.removeprefix("::error ").partition("::")
    assert row.isprintable()
    assert unquote(text).endswith(message(first))
    assert head.count(",") == bool(path)
    suites = ElementTree.fromstring(render_check_junit(report).encode())
    assert suites.findtext("testsuite/testcase/failure") == message(first)
    log = json.loads(render_check_sarif(report, path=path))
    jsonschema.Draft202012Validator(SARIF).validate(log)


@cache
def checked_once() -> CheckReport:
    return build_check(planned(), Limits(cpu_ops=0))


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf])
def test_limits_are_numbers(value: float) -> None:
    with pytest.raises(TargetError, match="the limit latency_s is"):
        npusched.check("demo:ds_cnn", TARGET, max_latency=value, use_vela=False)
    with pytest.raises(TargetError, match="max_regression is"):
        npusched.check(
            "demo:ds_cnn", TARGET, baseline=planned(), max_regression=value, use_vela=False
        )


def test_in_a_notebook(plan: PlanReport) -> None:
    hostile = build_check(renamed(plan, "<b>x</b>"), Limits(cpu_ops=0))
    assert "&lt;b&gt;" in hostile._repr_html_()
    assert "<b>" not in hostile._repr_html_()
    assert npusched.diff(plan, plan)._repr_html_().startswith("<pre>before")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_inert_in_every_form(name: str, plan: PlanReport) -> None:
    """A model file's names can neither add a line, a command, an element nor a colour."""
    hostile = renamed(planned("demo:ds_cnn", "cortex-m4"), name)
    before = renamed(scaled(hostile, cpu_cycles=0.5, latency_s=0.5), name[::-1])
    report = build_check(
        hostile,
        Limits(cpu_ops=0, sram_bytes=1, flash_bytes=1),
        broken=[InfeasibleError(f"no plan: {name}", name, name, need_bytes=9, have_bytes=1)],
        baseline=Baseline(plan=before, file=name, max_regression=baseline(plan).max_regression),
    )
    failed = sum(not each.passed for each in report.gates)
    assert failed >= 3

    for width in (40, 100):
        text = render_check_text(report, width=width)
        assert all(c == "\n" or c.isprintable() for c in text)
        assert not any(row.lstrip().startswith("::") or "##[" in row for row in text.splitlines())

    rows = render_check_github(report, path=name).split("\n")
    assert len(rows) == failed
    for row in rows:
        assert row.isprintable()
        assert row.startswith("::error file=")
        properties = row.removeprefix("::error ").split("::")[0].split(",")
        assert [part.split("=")[0] for part in properties] == ["file", "title"]

    log = json.loads(render_check_sarif(report, path=name))
    jsonschema.Draft202012Validator(SARIF).validate(log)
    for result in log["runs"][0]["results"]:
        assert result["message"]["text"].isprintable()
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].isascii()

    xml = render_check_junit(report)
    suites = ElementTree.fromstring(xml.encode())
    assert len(list(suites.iter("failure"))) == failed
    assert {element.tag for element in suites.iter()} == {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
    }
