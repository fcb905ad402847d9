"""``npusched tune`` on the command line: forms, limits, exit codes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from npusched.cli import run
from npusched.report.layout import cell_width
from npusched.report.tune_forms import read_tune_json
from npusched.report.tune_plot import plot_lines
from npusched.report.tune_text import render_tune

MODEL = "demo:mobilenet"
TARGET = "ethos-u55-128"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("NPUSCHED_CACHE_DIR", str(cache))


def out(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(["tune", MODEL, "--points", "10", *arguments]) == code
    return capsys.readouterr().out


def test_text_is_short_and_says_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, "-c", TARGET, "--sram", "64KiB", "--max-latency", "2ms")
    assert len(text.splitlines()) <= 45
    assert max(cell_width(row) for row in text.splitlines()) <= 100
    for part in ("knee", "within 1 % of fastest", "kTensorArenaSize", "(estimate)", "budget"):
        assert part in text
    assert "\n  vela mobilenet.tflite --accelerator-config ethos-u55-128" in text
    assert "predicted" in text


@pytest.mark.parametrize("width", [60, 80, 140])
def test_text_fits_the_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    report = read_tune_json(out(capsys, "-c", TARGET, "-f", "json"))
    for colour in (False, True):
        text = render_tune(report, width=width, colour=colour)
        assert ("\x1b[" in text) == colour
    assert max(cell_width(row) for row in render_tune(report, width=width).splitlines()) <= width


def test_the_plot_shows_both_sources_budget_and_knee(capsys: pytest.CaptureFixture[str]) -> None:
    report = read_tune_json(out(capsys, "-c", TARGET, "-f", "json", "--sram", "64KiB"))
    rows = ["".join(text for text, _ in row) for row in plot_lines(report, 80)]
    body = "\n".join(row.split("│", 1)[1] for row in rows[:-2])
    assert body.count("K") == 1
    assert {"o", "x", "│"} <= set(body)
    assert all(cell_width(row) <= 80 for row in rows)


def test_the_command_in_the_text_is_the_one_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines broken with a backslash are one command."""
    report = read_tune_json(out(capsys, "-c", TARGET, "-f", "json"))
    text = render_tune(report, width=80)
    joined = " ".join(text.replace("\\\n", " ").split())
    point = report.chosen("knee", "vela")
    assert point is not None
    assert point.vela_command is not None
    assert point.vela_command in joined


def test_csv_and_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    report = read_tune_json(out(capsys, "-c", TARGET, "-f", "json"))
    rows = list(csv.DictReader(io.StringIO(out(capsys, "-c", TARGET, "-f", "csv"))))
    assert len(rows) == len(report.frontier)
    for row, point in zip(rows, report.frontier, strict=True):
        assert int(row["sram_bytes"]) == point.sram_bytes
        assert row["vela_command"] == (point.vela_command or "")
    assert any("knee" in row["recommended"].split() for row in rows)
    page = out(capsys, "-c", TARGET, "-f", "md")
    assert page.startswith("# demo:mobilenet: SRAM against latency\n")
    commands = {report.frontier[c.point].vela_command for c in report.recommended}
    assert all(command in page for command in commands if command)


def test_a_target_of_its_own_needs_its_ini(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    form = json.loads(out(capsys, "-c", "renesas-ra8p1", "-f", "json", "--write-ini", str(folder)))
    (written,) = folder.iterdir()
    assert written.name == form["vela_ini"]["name"]
    assert written.read_text() == form["vela_ini"]["text"]
    named = [p["vela_command"] for p in form["frontier"] if p["vela_command"]]
    assert all(f"--config ./{written.name} " in command for command in named)
    assert run(["tune", MODEL, "-c", TARGET, "--points", "10", "--write-ini", str(folder)]) == 0
    assert "no vela.ini is needed" in capsys.readouterr().err


def test_targets_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--configs", "ethos-u55-128,ethos-u55-256", "--memory-modes", "all", "--no-vela")
    text = out(capsys, *arguments)
    assert text.count("Sram_Only†") == 2
    assert "64.0 KiB more SRAM" in " ".join(text.split())
    assert "SRAM with all weights in it" in text
    form = json.loads(out(capsys, *arguments, "-f", "json"))
    rows = {(row["config"], row["memory_mode"]): row for row in form["rows"]}
    assert len(rows) == 4
    shared, alone = (rows[TARGET, mode] for mode in ("Shared_Sram", "Sram_Only"))
    assert alone["holds_constants"]
    assert alone["floor"]["sram_bytes"] > shared["floor"]["sram_bytes"]
    base = shared["at_budget"]["latency_s"]
    for answer in form["answers"]:
        assert answer["change_percent"] == pytest.approx(100 * (answer["latency_s"] / base - 1))
    assert form["budget_bytes"] == shared["knee"]["sram_bytes"]
    assert len(list(csv.DictReader(io.StringIO(out(capsys, *arguments, "-f", "csv"))))) == 4
    assert "| ethos-u55-256 |" in out(capsys, *arguments, "-f", "md")
    modes = out(capsys, "-c", TARGET, "--memory-modes", "Sram_Only,Shared_Sram", "--no-vela")
    assert modes.count("ethos-u55-128  ") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "name a target"),
        (("-c", TARGET, "--configs", "ethos-u55-256"), 2, "one of them"),
        (("--configs", ",", "--memory-modes", "all"), 2, "name a target"),
        (("--configs", TARGET, "--max-latency", "1ms"), 2, "go with one target"),
        (("-c", TARGET, "--clock", "1GHz", "--memory-modes", "all"), 2, "do not go with"),
        (("-c", TARGET, "--max-latency", "fast"), 2, "not a time"),
        (("-c", TARGET, "--max-latency", "0ms"), 2, "not positive"),
        (("-c", TARGET, "--sram", "1KiB"), 1, "1024"),
        (("-c", TARGET, "--max-latency", "1us"), 1, "as fast as that"),
        (("--configs", "ethos-u99"), 2, "ethos-u99"),
        (("-c", TARGET, "--memory-modes", "Nowhere"), 2, "Nowhere"),
    ],
)
def test_what_cannot_be_asked(
    arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", MODEL, "--points", "10", *arguments]) == code
    assert said in capsys.readouterr().err


def test_a_curve_takes_a_plain_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Everything that the text is drawn with has an ASCII form."""
    from npusched.cli.output import _PLAIN

    text = out(capsys, "-c", TARGET, "--sram", "64KiB")
    assert text.translate(_PLAIN).isascii()
    matrix = out(capsys, "--configs", TARGET, "--memory-modes", "all", "--no-vela")
    assert matrix.translate(_PLAIN).isascii()
