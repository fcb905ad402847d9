"""``npusched prove --plan``: verdict, exit codes, plans from files, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import npusched
from npusched.cli import run
from npusched.sim import prove_plan as proving
from npusched.sim.execute_plan import Executed, PlanExecutor
from npusched.tflite import Builder
from tests.cli.test_executing import fails, form_of

TARGET = ["-c", "ethos-u55-128"]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three layers, the middle one's input largest."""
    b = Builder("net", seed=2)
    x = b.conv2d(b.input("x", (1, 24, 16, 4)), 16, (3, 3))
    b.output(b.conv2d(b.depthwise_conv2d(x, 3), 8, (3, 3), stride=2))
    path = tmp_path_factory.mktemp("net") / "net.tflite"
    path.write_bytes(b.build())
    return str(path)


def prove(net: str) -> list[str]:
    return ["prove", net, *TARGET, "--inputs", "2"]


def planned(net: str, path: Path, *options: str) -> Path:
    arguments = ["plan", net, *TARGET, "--no-vela", *options]
    assert run([*arguments, "--format", "json", "-o", str(path)]) == 0
    return path


def test_a_plan_is_proved(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    form = form_of(capsys, [*prove(net), "--plan", "--sram", "4KiB", "--no-vela", "--seed", "3"])
    assert (form["verdict"], form["inputs"], form["seed"]) == ("equal", 2, 3)
    assert form["plan"]["origin"] == "planned"
    assert form["plan"]["budget_bytes"] == 4096
    assert form["plan"]["rolling_buffers"] == form["maps"]["rolled"] > 0
    assert form["maps"]["compared"] == form["maps"]["equal"] == 3
    assert form["interpreter_equal"]
    assert run([*prove(net), "--plan", "--sram", "4KiB", "--no-vela"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "equal on 2 inputs" in text
    assert "of 4.00 KiB" in text


def test_a_plan_from_a_file(net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Budget and objective are the file's; --lambda must be given again."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    path = planned(net, tmp_path / "plan.json", "--sram", "4KiB", "--objective", "energy")
    form = form_of(capsys, [*prove(net), "--plan-file", str(path)])
    assert form["verdict"] == "equal"
    assert form["plan"]["origin"] == "plan.json"
    assert (form["plan"]["objective"], form["plan"]["budget_bytes"]) == ("energy", 4096)
    assert form["plan"]["vela_version"] is None


def test_files_of_other_plans(net: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = planned(net, tmp_path / "plan.json", "--sram", "4KiB")
    arguments = [*prove(net), "--plan-file", str(path)]
    other = ["prove", "demo:block", *TARGET, "--plan-file", str(path)]
    assert "made for another model" in fails(capsys, other)["what"]
    other = ["prove", net, "-c", "ethos-u55-64", "--plan-file", str(path)]
    assert "made for another target" in fails(capsys, other)["what"]
    clock = [*arguments, "--clock", "100MHz"]
    assert "with other options" in fails(capsys, clock)["why"]
    form = json.loads(path.read_text())
    for change, what in (
        ({"npusched_version": "9.9"}, "made by another version"),
        ({"surprise": 1}, "no plan of this version"),
        ({"budget_bytes": 5000}, "cannot be made again"),
        ({"allocation": form["allocation"][:-1]}, "cannot be made again"),
        ({"totals": {**form["totals"], "cycles": 1}}, "cannot be made again"),
    ):
        path.write_text(json.dumps({**form, **change}))
        assert what in fails(capsys, arguments)["what"]
    path.write_bytes(b"\xff\xfe nothing")
    assert "no plan of this version" in fails(capsys, arguments)["what"]
    fails(capsys, [*prove(net), "--plan-file", str(tmp_path / "missing.json")])


def test_options_that_do_not_go_together(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--plan" in fails(capsys, [*prove(net), "--sram", "4KiB"])["what"]
    assert "--lambda" in fails(capsys, [*prove(net), "--lambda", "0.1"])["what"]
    fails(capsys, [*prove(net), "--plan", "--optimise", "Size"])
    fails(capsys, [*prove(net), "--plan", "--compiled", "x.tflite"])
    fails(capsys, [*prove(net), "--plan-file", "plan.json", "--sram", "4KiB"])


def test_no_plan_fits(net: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, [*prove(net), "--plan", "--sram", "100"], 1)["kind"] == "infeasible"


def test_unpublished_functions_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    builder = Builder("tanh")
    builder.output(builder.tanh(builder.input("x", (1, 8, 8, 4), "int16")))
    path = tmp_path / "tanh.tflite"
    path.write_bytes(builder.build())
    error = fails(capsys, ["prove", str(path), *TARGET, "--plan", "--no-vela"])
    assert "not published" in error["why"]


def test_u85_plans(capsys: pytest.CaptureFixture[str]) -> None:
    """What a U85 shares with the others is executed, what only it has is refused by name."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    config = ["-c", "ethos-u85-256", "--plan", "--no-vela", "--inputs", "2"]
    assert form_of(capsys, ["prove", "demo:unet", *config])["verdict"] == "equal"
    assert "U85" in fails(capsys, ["prove", "demo:resnet8", *config])["why"]


def test_a_difference_is_exit_code_1(
    net: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor that gets one value of the output wrong."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

    class Wrong(PlanExecutor):
        def run_batch(self, batch: Any) -> list[Executed]:
            found = super().run_batch(batch)
            tensor = self.graph.outputs[0]
            found[0].tensors[tensor][0, 2, 3, 1] ^= 1
            return found

    monkeypatch.setattr(proving, "PlanExecutor", Wrong)
    arguments = [*prove(net), "--plan", "--no-vela"]
    form = form_of(capsys, arguments, 1)
    assert form["verdict"] == "different"
    assert [form["difference"][key] for key in ("row", "column", "channel")] == [2, 3, 1]
    assert form["difference"]["differing"] == 1
    assert not form["interpreter_equal"]
    assert run(arguments) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "differs from the interpreter" in text
    assert "channel 1:" in text


def test_hardware_mode_rounds_as_the_npu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Fully connected layers round twice there: by 1 at most, plan and interpreter alike."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    builder = Builder("fc", seed=4)
    builder.output(builder.fully_connected(builder.input("x", (1, 64), "int8"), 200))
    path = tmp_path / "fc.tflite"
    path.write_bytes(builder.build())
    arguments = ["prove", str(path), *TARGET, "--plan", "--no-vela", "--inputs", "40"]
    assert form_of(capsys, arguments)["verdict"] == "equal"
    form = form_of(capsys, [*arguments, "--mode", "hardware"], 1)
    assert form["mode"] == "hardware"
    assert form["outputs"][0]["largest"] == 1.0
    assert form["interpreter_equal"]
    assert form["difference"]["against"] == "LiteRT"


def test_in_python() -> None:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    report = npusched.prove_plan("demo:block", "ethos-u65-256", inputs=2, use_vela=False)
    assert isinstance(report, npusched.PlanProofReport)
    assert report.verdict == "equal"
