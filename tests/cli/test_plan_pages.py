"""``npusched plan --format html`` and ``npusched plot``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from npusched.api import pages as api_pages
from npusched.cli import options as cli_options
from npusched.cli import pages, png, run
from npusched.cli.status import STATUS
from npusched.errors import NpuschedError, VelaError
from npusched.report.svg import PLAN_FIGURES, Theme
from tests.report.page_kit import model

TARGET = ("-c", "ethos-u55-128")


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.tflite"
    file.write_bytes(model())
    return str(file)


def test_a_page_has_both_parts(small: str, tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    assert run(["plan", small, *TARGET, "--sram", "32KiB", "-f", "html", "-o", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "<h1>small.tflite</h1>" in text
    for part in ("plan-json", "frontier-json", "compare-json"):
        assert f'id="{part}"' in text


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        (("--with", "none"), set()),
        (("--with", "frontier"), {"frontier"}),
        (("--with", "compare"), {"compare"}),
        (("--no-vela",), {"frontier"}),
        (("--no-vela", "--with", "frontier"), {"frontier"}),
    ],
)
def test_parts_as_asked(
    small: str, capsys: pytest.CaptureFixture[str], asked: tuple[str, ...], there: set[str]
) -> None:
    assert run(["plan", small, *TARGET, "-f", "html", *asked]) == 0
    text = capsys.readouterr().out
    found = {part for part in ("frontier", "compare") if f'id="{part}-json"' in text}
    assert found == there
    for gone in {"frontier", "compare"} - there:
        assert re.search(f'id="{gone}"[^>]*><h2>[^<]*</h2>\\s*<p class="lead">Not co', text)


def test_long_frontiers_only_when_asked(
    small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api_pages, "FRONTIER_KERNELS", 3)
    arguments = ["plan", small, *TARGET, "-f", "html", "--no-vela"]
    assert run(arguments) == 0
    assert "a frontier of 5 kernels may take minutes" in capsys.readouterr().out.replace(
        "\u00a0", " "
    )
    assert run([*arguments, "--with", "frontier"]) == 0
    assert 'id="frontier-json"' in capsys.readouterr().out


def test_vela_may_fail_unless_it_was_asked_for(
    small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise VelaError("Vela crashed", "signal 11")

    monkeypatch.setattr("npusched.api.comparing.compare_report", fail)
    arguments = ["plan", small, *TARGET, "-f", "html"]
    assert run(arguments) == 0
    assert "Not compared: Vela crashed. signal 11" in capsys.readouterr().out.replace("\u00a0", " ")
    assert run([*arguments, "--with", "compare"]) == 3
    assert "Vela crashed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-f", "html", "--frontier"), "--with frontier puts the curve in it"),
        (("--with", "frontier"), "--with goes with --format html"),
        (("-f", "html", "--with", "none", "--with", "compare"), "--with none stands alone"),
        (("-f", "html", "--with", "compare", "--no-vela"), "--no-vela forbids it"),
    ],
)
def test_wrong_combinations(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "demo:block", *TARGET, *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_terminal_gets_no_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert run(["plan", "demo:block", *TARGET, "-f", "html"]) == 2
    assert "-o FILE" in capsys.readouterr().err


def test_stages_are_said_and_not_written(
    small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["plan", small, *TARGET, "--no-vela", "-f", "html", "-o", str(tmp_path / "r.html")]
    assert run(arguments) == 0
    assert capsys.readouterr().err == ""
    said: list[str] = []
    monkeypatch.setattr(STATUS, "say", said.append)
    assert run(arguments) == 0
    assert said == [
        "planning",
        "finding the best plan for every amount of SRAM",
        "drawing",
    ]


@pytest.mark.parametrize("figure", pages.FIGURES)
def test_plots(figure: str, small: str, tmp_path: Path) -> None:
    file = tmp_path / "figure.svg"
    arguments = ["plot", small, figure, *TARGET, "--sram", "32KiB", "-o", str(file)]
    assert run(arguments) == 0
    assert file.read_text(encoding="utf-8").startswith("<svg xmlns=")


def test_a_plot_to_stdout(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", small, "fusion", *TARGET, "--no-vela", "--theme", "dark"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("<svg ")
    assert "prefers-color-scheme" not in text


def test_a_picture(small: str, tmp_path: Path) -> None:
    try:
        png.find_browser()
    except NpuschedError as error:
        pytest.skip(error.why)
    file = tmp_path / "figure.png"
    arguments = ["plot", small, "roofline", *TARGET, "--no-vela", "-o", str(file)]
    assert run(arguments) == 0
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG")
    width, height = (int.from_bytes(content[k : k + 4]) for k in (16, 20))
    assert width == 2 * (490 + 40)
    assert height > width / 2


def test_no_browser_no_picture(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figure.png"
    arguments = ["plot", small, "memory", *TARGET, "-o", str(file)]
    monkeypatch.setenv(png.VARIABLE, str(tmp_path / "nothing"))
    assert run(arguments) == 2
    assert f"${png.VARIABLE} names" in capsys.readouterr().err
    monkeypatch.delenv(png.VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(arguments) == 2
    assert "install chromium" in capsys.readouterr().err
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(NpuschedError, match="made no picture: no display"):
        png.png_of('<svg class="nf" width="10" height="10"/>', str(broken))
    assert not file.exists()


def test_what_cannot_be_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["plot", "demo:ds_cnn", "roofline", "-c", "cortex-m4"]) == 2
    assert "there is no roofline figure for this plan" in capsys.readouterr().err
    assert run(["plot", "demo:ds_cnn", "memory", *TARGET, "-o", str(tmp_path / "f.pdf")]) == 2
    assert "a figure is .svg or .png, not '.pdf'" in capsys.readouterr().err


def test_choices_are_the_library_s() -> None:
    assert tuple(pages.FIGURES) == get_args(api_pages.FigureName)
    assert set(pages.FIGURES) - {"frontier", "compare"} == set(PLAN_FIGURES)
    assert tuple(pages.THEMES) == get_args(Theme)
    assert tuple(cli_options.PAGE_PARTS) == (*get_args(api_pages.PagePart), "none")
