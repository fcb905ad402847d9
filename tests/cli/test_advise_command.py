"""``npusched advise`` and ``plan --advice``: forms, files, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import jsonschema
import msgspec
import pytest

import npusched
from npusched.cli import run
from npusched.cli.options import ADVICE
from npusched.report.advice_text import MAX_LINES, render_advice_md, render_advice_text
from npusched.report.advice_types import AdviceReport
from npusched.report.execution_json import form_schema
from npusched.report.layout import cell_width
from npusched.report.types import AdviceMode
from npusched.tflite import read_model
from tests.advise import networks as nets
from tests.cli.test_executing import form_of
from tests.report.check_kit import HOSTILE

TARGET = ["-c", "ethos-u55-128", "--no-vela"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("nets") / "net.tflite"
    path.write_bytes(nets.stack(17, 10))
    return str(path)


@pytest.fixture(scope="module")
def report(model: str) -> AdviceReport:
    return npusched.advice(model, "ethos-u55-128", use_vela=False)


def number_of(report: AdviceReport, changes: str) -> int:
    """Number of the first advice that changes the model (or the target)."""
    return next(n for n, item in enumerate(report.advice, 1) if item.changes == changes)


def test_text_names_the_change_the_effect_and_how_sure_it_is(
    model: str, report: AdviceReport, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", model, *TARGET]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("net.tflite · ethos-u55-128 @ 500 MHz · Shared_Sram")
    text = " ".join(shown.out.split())
    number = number_of(report, "model")
    assert f"{number} NS101 CONV_2D #0 from 17 channels, stored as 32, to 16: time -" in text
    assert "as many as are stored would cost no more" in text
    assert "(sure: medium, +-15 % of the change)" in text
    assert len(shown.out.splitlines()) <= MAX_LINES


def test_json_is_the_report(
    model: str, report: AdviceReport, capsys: pytest.CaptureFixture[str]
) -> None:
    form = form_of(capsys, ["advise", model, *TARGET], 0)
    jsonschema.validate(form, form_schema("advice"))
    assert msgspec.convert(form, AdviceReport) == report
    item = report.advice[number_of(report, "model") - 1]
    assert (item.id, item.confidence, item.band) == ("NS101", "medium", 0.15)
    assert item.gain is not None
    gains = [each.gain or 0.0 for each in report.advice]
    assert gains == sorted(gains, reverse=True)
    assert len(report.rules) > 15


def test_markdown_has_a_row_per_advice(
    model: str, report: AdviceReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "advice.md"
    assert run(["advise", model, *TARGET, "--format", "md", "-o", str(page)]) == 0
    assert capsys.readouterr().out == ""
    text = page.read_text(encoding="utf-8")
    assert text == render_advice_md(report)
    assert text.count("\n| NS") + text.count(" | NS") == len(report.advice)
    assert "NS101" in text


def test_apply_writes_the_changed_model(
    model: str, report: AdviceReport, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "changed.tflite"
    number = str(number_of(report, "model"))
    assert run(["advise", model, *TARGET, "--apply", number, "-o", str(out)]) == 0
    assert "to 16" in capsys.readouterr().err
    shapes = {t.shape for t in read_model(out.read_bytes(), "x").subgraphs[0].tensors}
    assert (1, 10, 10, 16) in shapes
    assert (1, 10, 10, 17) not in shapes


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--apply", "1"], 2, "a model is binary"),
        (["--apply", "1", "-o", "-"], 2, "a model is binary"),
        (["--apply", "99", "-o", "x.tflite"], 2, "there is no advice 99"),
        (["--apply", "TARGET", "-o", "x.tflite"], 2, "does not change the model"),
        (["--sram", "many"], 2, "many"),
    ],
)
def test_what_cannot_be_done_is_said(
    model: str,
    report: AdviceReport,
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [a.replace("TARGET", str(number_of(report, "target"))) for a in arguments]
    assert run(["advise", model, *TARGET, *arguments]) == code
    shown = capsys.readouterr()
    assert says in " ".join(shown.err.split())
    assert not (tmp_path / "x.tflite").exists()


def test_a_budget_that_nothing_fits_is_no_error_here(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", model, *TARGET, "--sram", "1KiB"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "no plan keeps the budget of 1.00 KiB: advice is about the SRAM that it lacks" in text
    assert "SRAM -" in text
    assert run(["advise", model, *TARGET, "--max-offchip-bytes", "1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "no plan keeps the limit on off-chip bytes" in text


def test_a_plan_brings_notes_or_all_advice_or_none(
    model: str, report: AdviceReport, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = form_of(capsys, ["plan", model, *TARGET], 0)["advice"]
    assert [(each["id"], each["changes"], each["gain"]) for each in quick] == [("NS101", "", None)]
    assert all(value is None for each in quick for value in each["delta"].values())
    full = form_of(capsys, ["plan", model, *TARGET, "--advice", "all"], 0)["advice"]
    assert [msgspec.convert(each, type(report.advice[0])) for each in full] == [*report.advice]
    assert form_of(capsys, ["plan", model, *TARGET, "--advice", "none"], 0)["advice"] == []
    assert tuple(ADVICE) == get_args(AdviceMode)
    assert run(["plan", model, *TARGET, "--frontier", "--advice", "all"]) == 2
    assert "--advice is about one plan" in capsys.readouterr().err


def test_many_and_hostile_advices_stay_within_40_lines(report: AdviceReport) -> None:
    replace = msgspec.structs.replace
    for text in HOSTILE:
        item = replace(report.advice[0], message=text * 3)
        crowded = replace(report, model=text, advice=(item,) * 60, target=text)
        for width in (40, 100, 200):
            shown = render_advice_text(crowded, width=width).splitlines()
            assert len(shown) <= MAX_LINES
            assert all(cell_width(row) <= width for row in shown)
            assert all(c.isprintable() for row in shown for c in row)
            assert any("more: --format json" in row for row in shown)
        page = render_advice_md(crowded)
        assert "<" not in page.replace("\\<", "")
        assert all(c.isprintable() or c == "\n" for c in page)


def test_a_notebook_shows_the_text_escaped(report: AdviceReport) -> None:
    shown = msgspec.structs.replace(report, model="<b>")._repr_html_()
    assert "<b>" not in shown
    assert "NS101" in shown
