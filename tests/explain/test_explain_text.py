"""Explanations as text: plain, short, inert, golden; and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import npusched
from npusched.cli import run
from npusched.cli.explain import SUBJECTS
from npusched.demos import demo
from npusched.report.explain_text import LINES, render_explanation, render_explanation_json
from npusched.report.explain_types import ExplainReport
from npusched.report.layout import cell_width
from npusched.tflite import Builder
from tests.explain import kit
from tests.explain.kit import TARGET, explained
from tests.report.check_kit import HOSTILE

GOLDEN = Path(__file__).with_name("golden")


@cache
def reports() -> dict[str, ExplainReport]:
    """One of every subject that needs no Vela, by name of its golden file."""
    return {
        "peak": explained(kit.wide(17)),
        "peak_softmax": explained(kit.attention_like()),
        "op_flash": explained(kit.dense(), "op", op=0),
        "op_lstm": explained(kit.recurrent(), "op", op=0),
        "op_cpu": explained(kit.backwards(), "op", op=1),
        "op_view": explained(kit.averaged(), "op", op=2),
        "fallbacks": explained(kit.stretched(), "fallbacks"),
        "fallbacks_none": explained(kit.wide(17), "fallbacks"),
        "fusion": explained(demo("ds_cnn"), "fusion", sram=16_790),
        "fusion_norm": explained(kit.norm_behind_pool(), "fusion"),
        "mode": explained(kit.dense(), "mode"),
    }


def test_the_text_of_every_subject(golden: Callable[[Path, str], None]) -> None:
    for name, report in reports().items():
        golden(GOLDEN / f"{name}.txt", render_explanation(report))


@pytest.mark.parametrize("width", [50, 80, 160])
def test_the_text_fits_a_terminal(width: int) -> None:
    for report in reports().values():
        rows = render_explanation(report, width=width).splitlines()
        assert max(map(cell_width, rows)) <= width
        assert len(rows) <= LINES
        coloured = render_explanation(report, width=width, colour=True)
        assert len(coloured.splitlines()) == len(rows)


def hostile(name: str) -> bytes:
    """A model all of whose names are hostile, with ops on the NPU and on the CPU."""
    b = Builder(name)
    x = b.conv2d(b.input(f"{name}x", (1, 12, 12, 17)), 17, 3, name=f"{name}a")
    y = b.tensor(f"{name}b", (1, 12, 12, 17), "int8", scale=0.1, zero_point=0)
    b.custom(name, [x], [y])
    x = b.mul(y, 0.5, name=f"{name}c")
    b.output(b.conv2d(x, 4, 3, name=f"{name}d"))
    return b.build()


@pytest.mark.parametrize(
    "name", [*HOSTILE, "<script>x</script>", "y" * 10_000], ids=range(len(HOSTILE) + 2)
)
def test_hostile_names_are_inert(name: str) -> None:
    content = hostile(name)
    for subject, options in (
        ("peak", {}),
        ("op", {"op": 0}),
        ("op", {"op": 1}),
        ("fallbacks", {}),
        ("fusion", {}),
    ):
        report = npusched.explain(content, TARGET, subject, use_vela=False, **options)  # type: ignore[arg-type]
        text = render_explanation(report)
        assert len(text.splitlines()) <= LINES
        assert all(character.isprintable() for character in text.replace("\n", ""))
        assert "::" not in text
        assert "##[" not in text
        for sentence in report.sentences:
            assert sentence.isprintable()
            assert len(sentence) < 2000
        assert "\x1b" not in render_explanation(report, colour=False)
        assert "<script" not in report._repr_html_()
        json.loads(render_explanation_json(report))


def test_a_notebook_shows_the_text_escaped() -> None:
    shown = explained(hostile("<img src=x>"), "fallbacks")._repr_html_()
    assert shown.startswith("<pre>")
    assert "<img" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["peak", "3"], "'peak' takes no further word"),
        (["op"], "say which: op N"),
        (["layer"], "say which: layer NAME"),
        (["op", "first"], "'op' takes the number of an op"),
        (["op", "99"], "its ops are numbered 0 to"),
        (["op", "-1"], "no such option"),
        (["layer", "nothing"], "no op makes a tensor called 'nothing'"),
        (["layer", "conv"], "ops match 'conv'"),
        (["peaks"], "'peaks' is not one of"),
        (["peak", "--arena-cache-size", "1KiB"], "--arena-cache-size goes with 'vela'"),
        (["vela", "--arena-cache-size", "much"], "much"),
    ],
)
def test_bad_usage_is_explained(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", "demo:ds_cnn", *words, "-c", TARGET, "--no-vela"]) == 2
    shown = " ".join(capsys.readouterr().err.split()).lower()
    assert said.lower() in shown
    assert "traceback" not in shown


def test_a_budget_that_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "demo:ds_cnn", "peak", "-c", TARGET, "--no-vela", "--sram", "8KiB"]
    assert run(words) == 1
    assert "the smallest feasible budget is" in capsys.readouterr().err


def test_the_command_prints_what_the_function_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(kit.wide(17))
    by_number = explained(kit.wide(17), "op", op=1)
    made = {
        "peak": explained(kit.wide(17)),
        "op 1": by_number,
        "op #1": by_number,
        "layer wide1": by_number,
        "mode": explained(kit.wide(17), "mode"),
    }
    for words, report in made.items():
        arguments = ["explain", str(path), *words.split(), "-c", TARGET, "--no-vela"]
        assert run([*arguments, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        expected = json.loads(render_explanation_json(report))
        assert found.pop("model") | {"name": "model"} == expected.pop("model")
        assert found == expected
    out = tmp_path / "out.txt"
    assert run(["explain", str(path), "peak", "-c", TARGET, "--no-vela", "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8").startswith("explain peak · model.tflite")


def test_modes_keep_the_options_of_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    """Clock and derating hold in every mode."""
    words = ["explain", "demo:ds_cnn", "mode", "-c", TARGET, "--no-vela", "--format", "json"]
    assert run(words) == 0
    plain = json.loads(capsys.readouterr().out)["modes"]
    assert run([*words, "--clock", "250MHz", "--derate", "flash=0.5"]) == 0
    slow = json.loads(capsys.readouterr().out)["modes"]
    assert [mode["memory_mode"] for mode in slow] == [mode["memory_mode"] for mode in plain]
    by_name = {mode["memory_mode"]: mode for mode in slow}
    only = next(mode for mode in plain if mode["memory_mode"] == "Sram_Only")
    assert by_name["Sram_Only"]["cycles"] == only["cycles"]
    assert by_name["Sram_Only"]["latency_s"] > 1.5 * only["latency_s"]
    assert by_name["Shared_Sram"]["cycles"] > plain[0]["cycles"]


def test_every_subject_of_the_command_is_known() -> None:
    from npusched.api import subject_of

    assert {subject_of(word) for word in SUBJECTS} == {
        "peak",
        "op",
        "fallbacks",
        "mode",
        "fusion",
        "vela",
    }
