"""``npusched emit`` and ``npusched.emit``: files, sidecar, text, budgets, refusals."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import npusched
from npusched import api
from npusched.api import emitting
from npusched.cli import run
from npusched.emission import gate
from npusched.emission.container import write_file
from npusched.emission.parts import Emitted
from npusched.emission.planned import emit_plan
from npusched.errors import InfeasibleError
from npusched.hardware import load_target
from npusched.report.emit_text import render_emit_text
from npusched.report.execution_json import form_schema
from npusched.report.layout import cell_width
from npusched.sim.run import open_compiled
from npusched.tflite import Builder
from tests.emit.emit_kit import chain

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

TARGET = ["-c", "ethos-u55-128"]
LITTLE = ["--sram", "20KiB", "--candidates", "none"]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("net") / "net.tflite"
    path.write_bytes(chain())
    return str(path)


def sidecar(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
    jsonschema.validate(found, form_schema("emit"))
    return found


def error_of(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int = 2) -> str:
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    return " ".join(shown.err.split())


def test_file_and_sidecar(net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sidecar speaks of this very file: hashes, sizes, every kernel with its segment."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    output = tmp_path / "out.tflite"
    assert run(["emit", net, *TARGET, *LITTLE, "--prove", "2", "-o", str(output)]) == 0
    shown = capsys.readouterr().out
    assert f"{output},{output.with_suffix('.json')}" in "".join(shown.split())
    text = " ".join(shown.split())
    assert "memory: all passed" in text
    assert "proof equal on 2 inputs (seed 0)" in text
    assert "not run on hardware" in text
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.json", "out.tflite"]

    content, form = output.read_bytes(), sidecar(output)
    assert form["file_sha256"] == hashlib.sha256(content).hexdigest()
    assert form["sha256"] == hashlib.sha256(chain()).hexdigest()
    assert form["proof"]["verdict"] == "equal"
    sizes = {each["what"]: each["file_bytes"] for each in form["sizes"]}
    assert sizes["sram"] <= 20 << 10
    assert sizes["file"] == len(content)
    ready = open_compiled(content)
    assert sizes["constants"] == ready.programs[0].regions[0].size_bytes
    kernels = form["kernels"]
    assert len(kernels) == form["npu_kernels"] == len(ready.programs[0].kernels)
    assert all(0 <= each["segment"] < form["plan"]["segments"] for each in kernels)
    assert any(buffer["capacity_rows"] for each in kernels for buffer in each["buffers"])
    for each, kernel in zip(kernels, ready.programs[0].kernels, strict=True):
        assert each["rows"][1] - each["rows"][0] == kernel.state.ofm.h
        assert each["channels"][1] - each["channels"][0] == kernel.state.ofm.c
        assert each["block"] == [kernel.state.block.h, kernel.state.block.w, kernel.state.block.c]


def test_json_is_the_sidecar(net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "out.tflite"
    arguments = ["emit", net, *TARGET, *LITTLE, "--format", "json", "-o", str(output)]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out) == sidecar(output)
    assert sidecar(output)["proof"] is None


def test_the_same_plan_gives_the_same_file(net: str, tmp_path: Path) -> None:
    for name in ("a.tflite", "b.tflite"):
        assert run(["emit", net, *TARGET, *LITTLE, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.tflite").read_bytes() == (tmp_path / "b.tflite").read_bytes()


def test_a_plan_from_a_file(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same file as planned at once; a plan of another target is refused."""
    plan, output = tmp_path / "plan.json", tmp_path / "out.tflite"
    assert run(["plan", net, *TARGET, *LITTLE, "--format", "json", "-o", str(plan)]) == 0
    assert run(["emit", net, *TARGET, "--plan-file", str(plan), "-o", str(output)]) == 0
    assert sidecar(output)["plan"]["origin"] == "plan.json"
    direct = npusched.emit(net, "ethos-u55-128", sram="20KiB", candidates="none")
    assert direct.content == output.read_bytes()
    capsys.readouterr()
    other = ["emit", net, "-c", "ethos-u55-256", "--plan-file", str(plan), "-o", str(output)]
    assert "made for another target" in error_of(capsys, other)
    lost = ["emit", net, *TARGET, "--plan-file", str(plan), "-o", str(plan.with_suffix(".tflite"))]
    assert f"would overwrite {plan}" in error_of(capsys, lost)
    assert f"would overwrite {net}" in error_of(capsys, ["emit", net, *TARGET, "-o", net])
    assert api.sidecar_of(Path("a/b.v1")) == Path("a/b.v1.json")
    stated = ["emit", net, *TARGET, *LITTLE, "--plan-file", str(plan), "-o", str(output)]
    assert "stated by the file of --plan-file" in error_of(capsys, stated)


def test_identity(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.tflite"
    assert run(["emit", net, *TARGET, "--identity", "-o", str(output)]) == 0
    assert "own schedule, every op whole" in capsys.readouterr().out
    form = sidecar(output)
    assert (form["schedule"], form["plan"]) == ("identity", None)
    assert all(each["segment"] == -1 for each in form["kernels"])
    both = ["emit", net, *TARGET, "--identity", "--safe-rolling", *LITTLE, "-o", str(output)]
    text = error_of(capsys, both)
    assert "--sram, --candidates, --safe-rolling: --identity makes no plan" in text


def test_safe_rolling_takes_more_and_says_so(net: str, tmp_path: Path) -> None:
    forms = []
    for name, options in (("tight", []), ("safe", ["--safe-rolling", "--serial-kernels"])):
        output = tmp_path / f"{name}.tflite"
        arguments = ["emit", net, *TARGET, "--sram", "24KiB", "--candidates", "none"]
        assert run([*arguments, *options, "-o", str(output)]) == 0
        forms.append(sidecar(output))
    assert [form["options"] for form in forms] == [[], ["safe-rolling", "serial-kernels"]]

    def rows(form: dict[str, Any]) -> int:
        uses = [use for each in form["kernels"] for use in each["buffers"]]
        return max(int(use["capacity_rows"]) for use in uses)

    assert rows(forms[1]) > rows(forms[0])


def test_u65_has_two_memories(net: str, tmp_path: Path) -> None:
    """Dedicated_Sram: the budget limits the staging memory, the arena is in DRAM."""
    output = tmp_path / "out.tflite"
    arguments = ["emit", net, "-c", "ethos-u65-512", "--sram", "32KiB", "--candidates", "none"]
    assert run([*arguments, "-o", str(output)]) == 0
    sizes = {each["what"]: each["file_bytes"] for each in sidecar(output)["sizes"]}
    assert sizes["sram"] <= 32 << 10
    assert sizes["arena"] > 0


def test_planned_again_until_the_file_fits(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that come out 600 bytes larger than planned: the second plan has that much less."""
    made: list[int] = []

    def larger(*arguments: Any, **named: Any) -> Emitted:
        emitted = emit_plan(*arguments, **named)
        made.append(emitted.arena_bytes)
        extra = emitted.arena_bytes + 592
        return type(emitted)(
            emitted.template,
            emitted.streams,
            emitted.read_only,
            extra,
            emitted.fast_bytes,
            emitted.addresses,
        )

    monkeypatch.setattr(emitting, "emit_plan", larger)
    least, *others = sorted(point.totals.sram_peak_bytes for point in _frontier(net))
    budget = next(size for size in others if size >= least + 592)
    report = npusched.emit(net, "ethos-u55-128", sram=budget, candidates="none").report
    assert report.plan is not None
    assert report.plan.attempts == len(made) > 1
    assert report.plan.planned_bytes is not None
    assert report.plan.planned_bytes < budget
    size = report.size("sram")
    assert size is not None
    assert size.file_bytes <= budget
    with pytest.raises(InfeasibleError, match=f"give --sram {least + 592} or more"):
        npusched.emit(net, "ethos-u55-128", sram=least + 16, candidates="none")


def _frontier(net: str) -> Any:
    return npusched.frontier(net, "ethos-u55-128", candidates="none").points


def test_what_differs_is_not_written(
    net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte of the first bias changed: found by the gate, and without it by the proof."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

    def damaged(*arguments: Any, **named: Any) -> Emitted:
        emitted = emit_plan(*arguments, **named)
        scales = bytearray(emitted.read_only)
        scales[0] ^= 0x40  # the first bias
        return type(emitted)(
            emitted.template,
            emitted.streams,
            bytes(scales),
            emitted.arena_bytes,
            emitted.fast_bytes,
            emitted.addresses,
        )

    monkeypatch.setattr(emitting, "emit_plan", damaged)
    output = tmp_path / "out.tflite"
    arguments = ["emit", net, *TARGET, *LITTLE, "--prove", "2", "-o", str(output)]
    assert "it fails the check 'numerics'" in error_of(capsys, arguments, code=1)
    monkeypatch.setattr(gate, "find_numeric_faults", lambda *_: ())
    text = error_of(capsys, arguments, code=1)
    assert "the file is not written: its results differ from the reference kernels" in text
    assert not list(tmp_path.iterdir())


def test_a_file_that_fails_a_check_is_not_written(
    net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emitting, "write_file", lambda emitted: write_file(emitted)[:-64])
    output = tmp_path / "out.tflite"
    text = error_of(capsys, ["emit", net, *TARGET, *LITTLE, "-o", str(output)], code=1)
    assert "the file is not written: it fails the check" in text
    assert not list(tmp_path.iterdir())


def test_refusals(
    net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, in one sentence, with exit code 2, and nothing is written."""
    output = ["-o", str(tmp_path / "out.tflite")]
    for config in ("ethos-u85-256", "cortex-m4"):
        text = error_of(capsys, ["emit", net, "-c", config, *output])
        assert f"cannot emit for {config}" in text
    b = Builder("float")
    b.output(b.conv2d(b.input("x", (1, 8, 8, 3), "float32"), 4, 3))
    host = tmp_path / "host.tflite"
    host.write_bytes(b.build())
    assert "there is nothing to emit" in error_of(capsys, ["emit", str(host), *TARGET, *output])
    text = error_of(capsys, ["emit", net, *TARGET, "-o", str(tmp_path / "out.json")])
    assert "-o names a .tflite file" in text
    text = error_of(capsys, ["emit", net, *TARGET, "-o", str(tmp_path / "no" / "out.tflite")])
    assert "cannot write" in text
    text = error_of(capsys, ["emit", net, *TARGET, "--sram", "4KiB", *output], code=1)
    assert "no plan fits 4096 bytes" in text
    monkeypatch.setattr("npusched.vela.runner.vela_version", lambda: "6.0.1")
    text = error_of(capsys, ["emit", net, *TARGET, *output])
    assert "cannot emit with Vela 6.0.1" in text
    assert [path.name for path in tmp_path.iterdir()] == ["host.tflite"]


def test_a_compiled_file_is_refused(
    net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, second = tmp_path / "first.tflite", tmp_path / "second.tflite"
    assert run(["emit", net, *TARGET, "--identity", "-o", str(first)]) == 0
    capsys.readouterr()
    text = error_of(capsys, ["emit", str(first), *TARGET, "-o", str(second)])
    assert "was already compiled by Vela" in text


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_text_fits_the_terminal(width: int) -> None:
    result = api.emit_report(
        chain(),
        name="n" * 60,
        target=load_target("ethos-u55-128"),
        options=api.PlanOptions(sram=24 << 10, candidates="none"),
        settings=api.EmitSettings(safe_rolling=True),
    )
    text = render_emit_text(result.report, width=width, colour=False, written=("x" * 50,))
    assert max(cell_width(row) for row in text.splitlines()) <= width
    assert len(text.splitlines()) <= 40
