"""``npusched compare``: exit codes, formats, options, files of a run, measurements."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from npusched.cli import run
from npusched.cli.compare import ALLOCATORS, FEATURES
from npusched.demos import demo
from npusched.errors import VelaError
from npusched.hardware import load_target
from npusched.tflite import Builder
from npusched.vela import runner
from npusched.vela.options import Allocator, Feature
from npusched.vela.process import not_installed

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

TARGET = ["-c", "ethos-u55-128", "--no-cache"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "chain.tflite"
    path.write_bytes(demo("chain:4"))
    return path


def fails(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int) -> dict[str, object]:
    """Run for text and for JSON: the code, what/why/hint, and no traceback."""
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err
    assert run([*arguments, "--format", "json"]) == code
    form = json.loads(capsys.readouterr().out)
    error: dict[str, object] = form["error"]
    assert error["what"]
    assert error["hint"]
    return error


def compared(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> Any:
    """The JSON of a comparison that succeeds."""
    assert run(["compare", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_truncated_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "cut.tflite"
    path.write_bytes(demo("chain:4")[:700])
    error = fails(capsys, ["compare", str(path), *TARGET], 2)
    assert error["kind"] == "model"
    assert error["why"]


def test_a_float_model_runs_on_the_cpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It compiles: everything stays on the CPU on both sides, and Vela counts no cycles."""
    b = Builder("float")
    b.output(b.relu(b.input("x", (1, 8, 8, 4), "float32")))
    path = tmp_path / "float.tflite"
    path.write_bytes(b.build())
    form = compared(capsys, [str(path), *TARGET])
    totals = form["totals"]
    assert totals["vela"]["cycles"] == totals["npusched"]["cycles"] == 0
    assert totals["vela_recosted"]["cpu_cycles"] == totals["npusched"]["cpu_cycles"] > 0
    assert [note["id"] for note in form["notes"]] == ["cpu_ops_are_free"]
    (op,) = form["ops"]
    assert op["npusched"]["placement"] == op["vela"]["placement"] == "cpu"


def test_a_compiled_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    result = runner.compile_model(demo("chain:4"), load_target("ethos-u55-128"), cache=None)
    path = tmp_path / "chain_vela.tflite"
    path.write_bytes(result.compiled)
    error = fails(capsys, ["compare", str(path), *TARGET], 2)
    assert "already compiled" in str(error["what"])


def test_a_model_on_which_vela_fails(capsys: pytest.CaptureFixture[str], corpus_dir: Path) -> None:
    path = corpus_dir / "models" / "tflm_trained_lstm_float.tflite"
    error = fails(capsys, ["compare", str(path), *TARGET], 3)
    assert error["kind"] == "vela"
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in str(error["why"])


def test_vela_uninstalled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    """A plan survives that with a warning, a comparison cannot."""

    def missing() -> str:
        raise not_installed("no distribution ethos-u-vela in this Python environment")

    monkeypatch.setattr(runner, "vela_version", missing)
    error = fails(capsys, ["compare", str(model), *TARGET], 3)
    assert error["kind"] == "vela"
    assert "install" in str(error["hint"])


def test_vela_that_crashes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise VelaError("Vela crashed", "signal 11", "report it to Arm")

    monkeypatch.setattr(runner, "compile_model", crash)
    fails(capsys, ["compare", str(model), *TARGET], 3)


def test_targets_without_npu_and_budgets_without_plan(
    capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    assert fails(capsys, ["compare", str(model), "-c", "cortex-m55"], 2)["kind"] == "target"
    error = fails(capsys, ["compare", str(model), *TARGET, "--sram", "1KiB"], 1)
    assert error["kind"] == "infeasible"
    fails(capsys, ["compare", str(model), *TARGET, "--arena-cache-size", "lots"], 2)


def test_text_and_markdown(capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path) -> None:
    assert run(["compare", str(model), *TARGET]) == 0
    text = capsys.readouterr().out
    assert "npusched plan" in text
    assert len(text.splitlines()) <= 40
    page = tmp_path / "page.md"
    assert run(["compare", str(model), *TARGET, "-f", "md", "-o", str(page)]) == 0
    assert capsys.readouterr().out == ""
    assert page.read_text().startswith("# chain.tflite")


def test_options_reach_vela(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    arguments = ["--optimise", "size", "--arena-cache-size", "100000"]
    arguments += ["--disable-feature", "cascading", "--disable-feature", "FWD"]
    form = compared(capsys, [str(model), *TARGET, *arguments, "--tensor-allocator", "linearalloc"])
    options = form["vela"]["options"]
    assert options["optimise"] == "Size"
    assert options["arena_cache_size_bytes"] == 100_000
    assert options["disable"] == ["Cascading", "FWD"]
    assert options["allocator"] == "LinearAlloc"
    assert form["vela"]["cascades"] == 0


def test_the_budget_is_velas_arena_limit(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    """With --sram both get the limit."""
    form = compared(capsys, [str(model), *TARGET, "--sram", "100KiB"])
    assert form["budget_bytes"] == form["vela"]["arena_limit_bytes"] == 100 << 10


def test_an_arena_over_its_limit_is_noted(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    """Vela's limit is an aim only (VELA_SPEC §4): the note has both figures."""
    form = compared(capsys, [str(model), *TARGET, "--arena-cache-size", "1KiB"])
    (note,) = [note for note in form["notes"] if note["id"] == "arena_over_budget"]
    used = form["totals"]["vela"]["sram_peak_bytes"]
    assert note["figures"] == {"asked_bytes": 1024, "used_bytes": used}
    assert str(used - 1024) in note["text"]


def test_choices_are_those_of_the_options() -> None:
    assert [feature.value for feature in Feature] == FEATURES
    assert [allocator.value for allocator in Allocator] == ALLOCATORS


@pytest.fixture(scope="module")
def vela_output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the vela command writes for chain.tflite, its database included."""
    folder = tmp_path_factory.mktemp("vela")
    (folder / "chain.tflite").write_bytes(demo("chain:4"))
    command = importlib.import_module("ethosu.vela.vela")
    arguments = ["--accelerator-config", "ethos-u55-128", "--config", "Arm/vela.ini"]
    arguments += ["--system-config", "Ethos_U55_High_End_Embedded", "--memory-mode", "Shared_Sram"]
    arguments += ["--enable-debug-db", "--verbose-performance", "--output-dir", str(folder / "out")]
    command.main([*arguments, str(folder / "chain.tflite")])
    return folder


def test_files_of_a_run_are_as_good_as_a_run(
    capfd: pytest.CaptureFixture[str], vela_output: Path
) -> None:
    """Same rows and totals, whether Vela runs here or its files are read."""
    model = str(vela_output / "chain.tflite")
    capfd.readouterr()
    ran = compared(capfd, [model, *TARGET])
    read = compared(capfd, [model, *TARGET, "--vela-output", str(vela_output / "out")])
    assert read["vela"]["source"] == "files"
    for total in ("vela", "vela_compatible", "vela_recosted"):
        mine, theirs = ran["totals"][total], read["totals"][total]
        assert mine["cycles"] == theirs["cycles"]
        assert mine["sram_peak_bytes"] == theirs["sram_peak_bytes"]
        assert mine["flash_bytes"] == theirs["flash_bytes"]
    sides = ("vela", "vela_compatible", "vela_recosted")
    for one, other in zip(ran["ops"], read["ops"], strict=True):
        assert [one[side] for side in sides] == [other[side] for side in sides]


def test_files_are_read_without_vela(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, vela_output: Path
) -> None:
    def missing() -> str:
        raise not_installed("no distribution ethos-u-vela in this Python environment")

    monkeypatch.setattr(runner, "vela_version", missing)
    capfd.readouterr()
    arguments = [str(vela_output / "chain.tflite"), *TARGET]
    read = compared(capfd, [*arguments, "--vela-output", str(vela_output / "out")])
    assert read["vela"]["is_plan"]
    assert read["totals"]["vela_compatible"]["cycles"] == read["totals"]["vela"]["cycles"]


def test_csv_files_alone(
    capfd: pytest.CaptureFixture[str], vela_output: Path, tmp_path: Path
) -> None:
    """Totals and rows as reported; nothing that a schedule is needed for."""
    for path in (vela_output / "out").glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    model = str(vela_output / "chain.tflite")
    capfd.readouterr()
    ran = compared(capfd, [model, *TARGET])
    read = compared(capfd, [model, *TARGET, "--vela-output", str(tmp_path)])
    assert read["totals"]["vela_recosted"] is None
    assert read["executed"] is None
    assert "no schedule" in read["not_executed"]
    assert not read["vela"]["is_plan"]
    for name in ("cycles", "npu_cycles", "sram_peak_bytes", "flash_bytes"):
        assert ran["totals"]["vela"][name] == read["totals"]["vela"][name], name
    for one, other in zip(ran["ops"], read["ops"], strict=True):
        for name in ("cycles", "npu_cycles", "memory_cycles", "kernels"):
            assert one["vela"][name] == other["vela"][name]


def test_files_without_a_compiled_model(
    capfd: pytest.CaptureFixture[str], vela_output: Path, tmp_path: Path
) -> None:
    """Executed figures are those of a run; without the compiled file their lack is explained."""
    arguments = [str(vela_output / "chain.tflite"), *TARGET]
    capfd.readouterr()
    ran = compared(capfd, arguments)
    read = compared(capfd, [*arguments, "--vela-output", str(vela_output / "out")])
    assert ran["executed"] == read["executed"]
    assert ran["executed"]["kernels"] == 4
    for path in (vela_output / "out").iterdir():
        if path.suffix != ".tflite":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    read = compared(capfd, [*arguments, "--vela-output", str(tmp_path)])
    assert read["executed"] is None
    assert read["not_executed"] == "there is no compiled file"


def test_files_of_another_target_are_noted(
    capfd: pytest.CaptureFixture[str], vela_output: Path
) -> None:
    arguments = [str(vela_output / "chain.tflite"), "-c", "ethos-u55-256", "--no-cache"]
    assert run(["compare", *arguments, "--vela-output", str(vela_output / "out")]) == 0
    assert "Vela's files are for accelerator" in " ".join(capfd.readouterr().err.split())


def test_folders_without_output(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    fails(capsys, ["compare", str(model), *TARGET, "--vela-output", str(empty)], 2)
    fails(capsys, ["compare", str(model), *TARGET, "--vela-output", str(tmp_path / "none")], 2)
    both = ["--vela-output", str(empty), "--optimise", "Size"]
    fails(capsys, ["compare", str(model), *TARGET, *both], 2)


def test_measurements_stand_beside(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    """Ratios are predicted / measured, of the quantity that was measured."""
    path = tmp_path / "board.csv"
    path.write_text("index,cycles,npu_idle\n,50000,12\n1,4000,\n")
    form = compared(capsys, [str(model), *TARGET, "--measured", str(path)])
    network, op = form["measured"]
    assert network["source_op"] is None
    assert network["counters"] == {"npu_idle": 12}
    total = form["totals"]["npusched"]["cycles"]
    assert network["npusched_ratio"] == pytest.approx(total / 50000)
    assert op["source_op"] == [0, 1]
    row = form["ops"][1]["vela_recosted"]
    assert op["vela_recosted_ratio"] == pytest.approx(row["cycles"] / 4000)
    assert form["provenance"]["measured"] == "measured"
    path.write_text('{"network": {"latency_ms": 0.2}}')
    form = compared(capsys, [str(model), *TARGET, "--measured", str(path)])
    (network,) = form["measured"]
    assert network["vela_ratio"] == pytest.approx(form["totals"]["vela"]["cycles"] / 500e6 / 0.2e-3)
    path.write_text("nothing,here\n1,2\n")
    fails(capsys, ["compare", str(model), *TARGET, "--measured", str(path)], 2)


def test_help_needs_no_heavy_import() -> None:
    """The command's module alone does not load numpy, msgspec or Vela."""
    assert "npusched.cli.compare" in sys.modules
    source = Path(str(sys.modules["npusched.cli.compare"].__file__)).read_text()
    top = source.split("def compare(")[0].split("if TYPE_CHECKING:")[0]
    assert "npusched.vela" not in top
    assert "npusched.report" not in top
