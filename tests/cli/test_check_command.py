"""``npusched check`` and ``diff``: exit codes, formats, files, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from npusched.cli import run
from npusched.cli.app import app
from npusched.demos import demo
from npusched.report.check_build import LIMITED
from tests.cli.test_executing import fails, form_of
from tests.hardware.test_vela_ini_read import MODES, SYSTEM

TARGET = ["-c", "ethos-u55-128", "--no-vela"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("nets") / "kws.tflite"
    path.write_bytes(demo("ds_cnn"))
    return str(path)


@pytest.fixture(scope="module")
def plan(model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    arguments = ["plan", model, *TARGET, "--sram", "64KiB", "--format", "json", "-o", str(path)]
    assert run(arguments) == 0
    return str(path)


def edited(plan: str, path: Path, **totals: Any) -> str:
    form = json.loads(Path(plan).read_text())
    form["totals"].update(totals)
    path.write_text(json.dumps(form))
    return str(path)


def test_a_model_within_its_limits_is_0(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--max-sram", "64KiB", "--max-latency", "5ms", "--max-flash", "1MiB"]
    limits += ["--max-dram-bytes", "0", "--max-cpu-ops", "0", "--max-energy", "1mJ"]
    assert run(["check", model, *TARGET, *limits]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("pass · kws.tflite · ethos-u55-128 @ 500 MHz")
    assert "6 gates passed" in shown.out
    assert shown.err == ""


def test_a_model_over_a_limit_is_1_and_the_gate_is_named(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check", model, *TARGET, "--max-sram", "8KiB", "--max-latency", "5ms"]
    assert run(arguments) == 1
    shown = capsys.readouterr()
    assert shown.err == ""
    text = " ".join(shown.out.split())
    assert text.startswith("fail · kws.tflite")
    assert "1 of 2 gates failed" in text
    assert "max-sram: no plan fits 8192 bytes of sram: the smallest feasible budget is" in text
    form = form_of(capsys, arguments, 1)
    assert form["verdict"] == "fail"
    assert [(gate["id"], gate["passed"]) for gate in form["gates"]] == [
        ("max-sram", False),
        ("max-latency", True),
    ]


def test_each_option_sets_its_gate(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As small as it can be said, each limit fails alone, but for DRAM and CPU, which are 0."""
    for name, _ in LIMITED.values():
        small = {"max-latency": "1ns", "max-energy": "1nJ", "max-cpu-ops": "0"}.get(name, "0")
        small = "1" if name in ("max-sram", "max-flash") else small
        passes = name in ("max-dram-bytes", "max-cpu-ops")
        form = form_of(capsys, ["check", model, *TARGET, f"--{name}", small], 0 if passes else 1)
        assert [gate["id"] for gate in form["gates"]] == [name]
    options = {name for parameter in app.commands["check"].params for name in parameter.opts}
    assert {f"--{name}" for name, _ in LIMITED.values()} <= options


def test_annotations_for_github(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", model, *TARGET, "--format", "github"]
    assert run([*arguments, "--max-sram", "8KiB", "--max-flash", "1KiB"]) == 1
    rows = capsys.readouterr().out.splitlines()
    path = model.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    assert [row.split("::")[1] for row in rows] == [
        f"error file={path},title=npusched%3A SRAM peak above the limit",
        f"error file={path},title=npusched%3A Constants in flash above the limit",
    ]
    assert "the limit 1 024 bytes" in rows[1]
    assert run([*arguments, "--max-sram", "64KiB"]) == 0
    (row,) = capsys.readouterr().out.splitlines()
    assert row.startswith("::notice file=")


@pytest.mark.parametrize("sizes", [["--max-sram", "64KiB"], ["--max-sram", "8KiB"]])
def test_sarif_and_junit_say_the_same(
    sizes: list[str], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = 0 if sizes[1] == "64KiB" else 1
    out = tmp_path / "out"
    assert run(["check", model, *TARGET, *sizes, "-f", "sarif", "-o", str(out)]) == code
    log = json.loads(out.read_text())
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == ["max-sram"] * code
    assert run(["check", model, *TARGET, *sizes, "-f", "junit", "-o", str(out)]) == code
    assert ElementTree.fromstring(out.read_text()).get("failures") == str(code)
    assert capsys.readouterr().out == ""


def test_a_baseline_that_is_kept_is_0(
    model: str, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check", model, *TARGET, "--sram", "64KiB", "--baseline", plan]
    assert run(arguments) == 0
    assert "baseline: plan.json of kws.tflite (the same model)" in capsys.readouterr().out


def test_a_regression_is_1_and_allowed_if_it_is_small(
    model: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cycles = json.loads(Path(plan).read_text())["totals"]["cycles"]
    before = edited(plan, tmp_path / "before.json", cycles=cycles * 100 // 101)
    arguments = ["check", model, *TARGET, "--sram", "64KiB", "--baseline", before]
    form = form_of(capsys, arguments, 1)
    (failed,) = (gate for gate in form["gates"] if not gate["passed"])
    assert failed["id"] == "max-regression-cycles"
    assert (failed["baseline"], failed["value"]) == (cycles * 100 // 101, cycles)
    assert run([*arguments, "--max-regression", "2%"]) == 0
    assert run([*arguments, "--max-regression", "0.5%", "-f", "github"]) == 1
    shown = capsys.readouterr().out
    assert "title=npusched%3A More NPU cycles than the baseline::" in shown
    assert "+1.0 %25; 0.5 %25 more is allowed" in shown


def test_a_model_that_changed_is_held_against_its_baseline(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    form = form_of(capsys, ["check", "demo:mobilenet", *TARGET, "--baseline", plan], 1)
    assert form["baseline"]["model"] == "kws.tflite"
    assert form["baseline"]["sha256"] != form["sha256"]
    failed = {gate["id"] for gate in form["gates"] if not gate["passed"]}
    assert {"max-regression-cycles", "max-regression-flash"} <= failed


def test_a_baseline_of_another_target_is_2(
    model: str, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ["check", model, "-c", "ethos-u65-256", "--no-vela", "--baseline", plan]
    error = fails(capsys, other)
    assert "is of another target" in error["what"]
    assert (error["baseline_target"], error["target"]) == ("ethos-u55-128", "ethos-u65-256")
    clock = ["check", model, *TARGET, "--clock", "400MHz", "--baseline", plan]
    assert "clock_hz 500000000.0, now 400000000.0" in fails(capsys, clock)["why"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "truncated"),
        (b"{}", "missing required field"),
        (b'{"schema_version": 7}', "Expected `str`"),
        (b"\xff\xfe", ""),
        (b"[" * 100_000, ""),
        (b"null", "Expected `object`"),
    ],
)
def test_files_that_are_no_plans_are_2(
    content: bytes, why: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    for arguments in (
        ["check", model, *TARGET, "--baseline", str(path)],
        ["diff", str(path), str(path)],
    ):
        error = fails(capsys, arguments)
        assert error["what"] == "bad.json is no plan of this version"
        assert why in error["why"]
        assert "npusched plan MODEL" in error["hint"]


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"schema_version": "9.0"}, "its form is 9.0"),
        ({"clock_hz": 0.0}, "runs at 0 Hz"),
        ({"clock_hz": -1.0}, "runs at -1 Hz"),
    ],
)
def test_plans_that_cannot_be_are_2(
    edit: dict[str, Any], why: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = json.loads(Path(plan).read_text())
    for name, value in edit.items():
        (form["target"] if name == "clock_hz" else form)[name] = value
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(form))
    assert why in fails(capsys, ["diff", str(path), plan])["why"]


def test_endless_figures_of_a_baseline_are_2(
    model: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path(plan).read_text()
    latency = json.loads(text)["totals"]["latency_s"]
    path = tmp_path / "endless.json"
    path.write_text(text.replace(f'"latency_s": {latency!r}', '"latency_s": 1e999'))
    assert "1e999" in path.read_text()
    error = fails(capsys, ["check", model, *TARGET, "--baseline", str(path)])
    assert error["what"] == "endless.json is no plan of this version"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "there is nothing to check"),
        (["--sram", "64KiB"], "there is nothing to check"),
        (["--max-regression", "2%"], "--max-regression goes with --baseline"),
        (["--max-latency", "5"], "'5' has no unit"),
        (["--max-latency", "-5ms"], "not a time"),
        (["--max-latency", "0ms"], "out of range"),
        (["--max-energy", "5 uJJ"], "unknown unit"),
        (["--max-sram", "much"], "not a size"),
        (["--max-cpu-ops", "-1"], "--max-cpu-ops"),
        (["--baseline", "absent.json"], "cannot read absent.json"),
        (["--max-sram", "1KiB", "--format", "sariff"], "did you mean 'sarif'?"),
    ],
)
def test_bad_options_are_2(
    options: list[str], said: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", model, *TARGET, *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in " ".join(shown.err.split())


def test_a_wrong_percentage_is_2(model: str, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    for share in ("2", "-2%", "2%%", "much", "99999999%"):
        arguments = ["check", model, *TARGET, "--baseline", plan, "--max-regression", share]
        assert run(arguments) == 2, share
        said = "has no unit" if share == "2" else "percentage"
        assert said in capsys.readouterr().err


def test_a_target_without_the_room_is_1(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody named an SRAM limit, the memory mode's arena is too small: a gate, not a crash."""
    ini = tmp_path / "small.ini"
    ini.write_text(f"{SYSTEM}{MODES}arena_cache_size=4096\n")
    arguments = ["check", model, *TARGET, "--vela-config", str(ini), "--max-cpu-ops", "0"]
    form = form_of(capsys, arguments, 1)
    assert [(gate["id"], gate["passed"]) for gate in form["gates"]] == [
        ("sram", False),
        ("max-cpu-ops", True),
    ]
    assert form["gates"][0]["limit"] == 4096
    assert "the target has no more" in form["gates"][0]["help"]
    assert form["fits"] is False


def test_diff_in_all_forms(
    model: str, plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = tmp_path / "after.json"
    arguments = ["plan", model, *TARGET, "--sram", "16KiB", "--format", "json", "-o", str(after)]
    assert run(arguments) == 0
    assert run(["diff", plan, str(after)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("before  plan.json: kws.tflite")
    assert "budget_bytes" in text
    assert len(text.splitlines()) <= 40
    assert run(["diff", plan, str(after), "--top", "1"]) == 0
    assert "more op" in capsys.readouterr().out
    form = form_of(capsys, ["diff", plan, str(after)])
    assert form["same_model"] is True
    assert form["before"]["file"] == "plan.json"
    assert form["ops"]
    page = tmp_path / "diff.md"
    assert run(["diff", plan, str(after), "--format", "md", "-o", str(page)]) == 0
    assert page.read_text().startswith("# Plans: what changed\n")


def test_diff_of_files_that_are_not_there_is_2(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot read absent.json" in fails(capsys, ["diff", plan, "absent.json"])["what"]
