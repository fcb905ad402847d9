"""``npusched run``, ``prove`` and ``inspect``: results, exit codes, what is refused and how."""

from __future__ import annotations

import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npusched.api import npz_bytes, run_compiled
from npusched.cli import run
from npusched.cli.executing import MODES
from npusched.demos import demo
from npusched.errors import SimError
from npusched.hardware import load_target
from npusched.sim import host as sim_host
from npusched.sim.mutate import register_writes
from npusched.sim.proof import Mode
from npusched.sim.run import open_compiled
from npusched.tflite import Builder
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model
from npusched.vela.stream import Register

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

TARGET = ["-c", "ethos-u55-128"]


def compiled(content: bytes, config: str = "ethos-u55-128") -> bytes:
    return compile_model(content, load_target(config), VelaOptions(), cache=None).compiled


def mixed() -> bytes:
    """A convolution on the NPU, and a dequantisation that stays on the host."""
    b = Builder("mixed")
    b.output(b.dequantize(b.conv2d(b.input("x", (1, 8, 8, 3)), 4)))
    return b.build()


def with_lower_maximum(content: bytes) -> bytes:
    """The file with the first kernel's upper clip limit at -100: its values change."""
    stream = open_compiled(content).file.operators[0].stream
    raw = struct.pack(f"<{len(stream.words)}I", *stream.words)
    start = content.index(raw)
    word = next(w for w, code in register_writes(stream) if code == Register.ACTIVATION_MAX)
    changed = struct.pack("<I", Register.ACTIVATION_MAX | (-100 & 0xFFFF) << 16)
    return content[: start + 4 * word] + changed + content[start + 4 * word + 4 :]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """demo:chain:4, compiled."""
    path = tmp_path_factory.mktemp("compiled") / "chain_vela.tflite"
    path.write_bytes(compiled(demo("chain:4")))
    return path


def fails(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int = 2, *, as_json: bool = True
) -> dict[str, Any]:
    """What, why and hint, without a traceback; as JSON, too."""
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert "Traceback" not in shown.err
    assert "hint: " in shown.err
    if not as_json:
        return {"text": " ".join(shown.err.split())}
    assert run([*arguments, "--format", "json"]) == code
    error: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    return error


def form_of(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int = 0
) -> dict[str, Any]:
    assert run([*arguments, "--format", "json"]) == code
    form: dict[str, Any] = json.loads(capsys.readouterr().out)
    return form


def test_run_writes_what_the_simulator_gives(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """By name, with a batch axis; one value or a batch of them as input."""
    ready = open_compiled(chain.read_bytes())
    graph = ready.graph
    (given,) = (graph.tensors[index] for index in graph.inputs)
    values = np.arange(2 * given.elements).reshape(2, *given.shape).astype(np.int8)
    expected = next(iter(ready.run({given.index: values}).values()))
    name = graph.tensors[graph.outputs[0]].name
    inputs, outputs = tmp_path / "in.npz", tmp_path / "out.npz"
    for part, count in ((values, 2), (values[0], 1)):
        inputs.write_bytes(npz_bytes({given.name: part}))
        assert run(["run", str(chain), "-i", str(inputs), "-o", str(outputs)]) == 0
        with np.load(outputs) as found:
            assert found.files == [name]
            assert np.array_equal(found[name], expected[:count])
    assert capsys.readouterr().out == ""


def test_run_summarises_its_outputs_as_json(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """Arrays go to -o; the hash is that of their bytes."""
    outputs = tmp_path / "out.npz"
    form = form_of(capsys, ["run", str(chain), "--seed", "3", "-o", str(outputs)])
    (output,) = form["outputs"]
    with np.load(outputs) as found:
        values = found[output["name"]]
    assert output["shape"] == list(values.shape)
    assert (output["lowest"], output["highest"]) == (values.min(), values.max())
    assert output["sha256"] == hashlib.sha256(values.tobytes()).hexdigest()
    assert (form["seed"], form["npu_operators"]) == (3, 1)
    assert form == form_of(capsys, ["run", str(chain), "--seed", "3"])
    both = ["run", str(chain), "-o", "-", "--format", "json"]
    assert run(both) == 2
    assert "both write to stdout" in json.loads(capsys.readouterr().out)["error"]["what"]


def test_run_draws_inputs_by_seed(capsys: pytest.CaptureFixture[str], chain: Path) -> None:
    shown = []
    for seed in ("0", "0", "1"):
        assert run(["run", str(chain), "--seed", seed]) == 0
        shown.append(capsys.readouterr().out.replace("seed 1", "seed 0"))
    assert "1 NPU operator" in shown[0]
    assert shown[0] == shown[1] != shown[2]


def test_npz_files_are_deterministic_and_take_any_name() -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "file": np.arange(3),
        "a/b;c": np.zeros((2, 2), np.int8),
    }
    content = npz_bytes(arrays)
    assert content == npz_bytes(dict(arrays))
    with np.load(io.BytesIO(content)) as found:
        assert sorted(found.files) == sorted(arrays)
        assert np.array_equal(found["file"], np.arange(3))


@pytest.mark.parametrize("kind", ["missing", "text", "single", "cut", "names", "type", "scalar"])
def test_bad_inputs(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "in.npz"
    written = io.BytesIO()
    np.savez(written, x=np.zeros((1, 4), np.int8))
    content = {
        "text": b"hello",
        "single": b"\x93NUMPY",
        "cut": written.getvalue()[:90],
        "names": npz_bytes({"nobody": np.zeros(1)}),
        "type": npz_bytes({"x": np.zeros((1, 4))}),
        "scalar": npz_bytes({"x": np.array(3, np.int8)}),
    }.get(kind)
    if content is not None:
        path.write_bytes(content)
    fails(capsys, ["run", str(chain), "--input", str(path)], as_json=False)


def test_uncompiled_and_foreign_files(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """A plain model is told apart from a damaged file, and a U85 is refused by name."""
    assert "no NPU operator" in fails(capsys, ["run", "demo:chain:4"], as_json=False)["text"]
    error = fails(capsys, ["inspect", "demo:chain:4"])
    assert error["kind"] == "model"
    assert "compile it with Vela" in error["hint"]
    cut = tmp_path / "cut.tflite"
    cut.write_bytes(chain.read_bytes()[:900])
    assert fails(capsys, ["inspect", str(cut)])["kind"] == "model"
    u85 = tmp_path / "u85.tflite"
    u85.write_bytes(compiled(demo("chain:4"), "ethos-u85-256"))
    assert "U85" in fails(capsys, ["inspect", str(u85)])["what"]
    assert "U85" in fails(capsys, ["run", str(u85)], as_json=False)["text"]


def test_host_ops_without_litert(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What to install is said; files without host ops run all the same."""

    def missing(*_: object, **__: object) -> None:
        raise SimError(
            "the reference kernels are not installed",
            "",
            'install them: pip install "npusched[prove]"',
        )

    monkeypatch.setattr(sim_host, "reference_values", missing)
    path = tmp_path / "mixed_vela.tflite"
    path.write_bytes(compiled(mixed()))
    assert "npusched[prove]" in fails(capsys, ["run", str(path)], as_json=False)["text"]
    form = form_of(capsys, ["inspect", str(path)])
    assert form["host_ops"] == {"DEQUANTIZE": 1}


def test_inspect_a_file(capsys: pytest.CaptureFixture[str], chain: Path) -> None:
    """Totals are the sums of the ops; the file fits the accelerator it was made for only."""
    form = form_of(capsys, ["inspect", str(chain), *TARGET])
    totals = form["totals"]
    assert (form["form"], form["accelerator"]) == ("tflite", "ethos-u55-128")
    assert form["fit"] == {"target": "ethos-u55-128", "fits": True, "reasons": []}
    assert form["hazards"] == []
    assert totals["macs"] == sum(op["macs"] for op in form["ops"]) > 0
    assert totals["dma_bytes"] == sum(op["dma_bytes"] for op in form["ops"])
    assert totals["npu_ops"] == sum(op["kind"] != "dma" for op in form["ops"]) == 4
    (peak,) = (m["high_water_bytes"] for m in form["memory_map"] if m["memory"] == "scratch")
    assert totals["sram_peak_bytes"] == peak
    other = form_of(capsys, ["inspect", str(chain), "-c", "ethos-u65-256"])
    assert not other["fit"]["fits"]
    assert "made for ethos-u55-128" in other["fit"]["reasons"][0]


def test_inspect_without_npu(capsys: pytest.CaptureFixture[str], chain: Path) -> None:
    form = form_of(capsys, ["inspect", str(chain), "-c", "cortex-m55"])
    assert form["fit"]["reasons"][0].endswith("the target has no NPU")
    assert form_of(capsys, ["inspect", str(chain)])["fit"] is None


def test_inspect_a_staging_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """U65 files in Dedicated_Sram: the SRAM peak is that of the staging memory."""
    path = tmp_path / "u65.tflite"
    path.write_bytes(compiled(demo("chain:4"), "ethos-u65-512"))
    form = form_of(capsys, ["inspect", str(path), "-c", "ethos-u65-512"])
    marks = {use["memory"]: use["high_water_bytes"] for use in form["memory_map"]}
    assert form["totals"]["sram_peak_bytes"] == marks["scratch_fast"] > 0
    assert form["fit"]["fits"]
    reasons = form_of(capsys, ["inspect", str(path), *TARGET])["fit"]["reasons"]
    assert any("Dedicated_Sram" in reason for reason in reasons)


def test_inspect_a_bare_stream(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """The stream alone issues the same ops as in its file."""
    content = chain.read_bytes()
    start = content.index(b"COP1")
    path = tmp_path / "stream.bin"
    path.write_bytes(content[start:])
    bare, whole = (form_of(capsys, ["inspect", str(each)]) for each in (path, chain))
    assert bare["form"] == "stream"
    assert bare["ops"] == whole["ops"]
    assert bare["totals"]["traffic"] == whole["totals"]["traffic"]
    assert (bare["host_ops"], bare["totals"]["constant_bytes"]) == ({}, 0)
    path.write_bytes(content[start : start + 100])
    assert "announces" in fails(capsys, ["inspect", str(path)])["why"]


def test_inspect_predicts_only_on_its_own_accelerator(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """Time needs a target with the stream's accelerator; memories and clock change it."""
    assert form_of(capsys, ["inspect", str(chain)])["timing"] is None
    form = form_of(capsys, ["inspect", str(chain), *TARGET])
    timing = form["timing"]
    assert timing["basis"] == "predicted"
    assert "not ops of the host" in timing["covers"]
    assert timing["cycles"] == max(op["end_cycle"] for op in form["ops"]) > 0
    assert timing["latency_s"] == timing["cycles"] / timing["clock_hz"]
    half = form_of(capsys, ["inspect", str(chain), *TARGET, "--clock", "250MHz"])["timing"]
    assert half["cycles"] == timing["cycles"]
    assert half["latency_s"] == 2 * timing["latency_s"]
    slow = form_of(capsys, ["inspect", str(chain), *TARGET, "--derate", "sram=0.1"])["timing"]
    assert slow["cycles"] > timing["cycles"]
    other = form_of(capsys, ["inspect", str(chain), "-c", "ethos-u55-256"])
    assert other["timing"] is None
    assert "made for ethos-u55-128" in other["untimed"]
    assert all(op["start_cycle"] is None for op in other["ops"])
    path = tmp_path / "none.json"
    arguments = ["inspect", str(chain), "-c", "ethos-u55-256", "--trace", str(path)]
    assert "trace" in fails(capsys, arguments)["what"]
    assert not path.exists()


def test_inspect_with_a_vela_config(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """A vela.ini of the user's says what the memories can do."""
    text = """[System_Config.Slow]
core_clock=100e6
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=0.125
OffChipFlash_clock_scale=0.125
[Memory_Mode.Mine]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
"""
    ini = tmp_path / "slow.ini"
    ini.write_text(text)
    options = ["--vela-config", str(ini), "--system-config", "Slow", "--memory-mode", "Mine"]
    slow = form_of(capsys, ["inspect", str(chain), *TARGET, *options])["timing"]
    usual = form_of(capsys, ["inspect", str(chain), *TARGET])["timing"]
    assert (slow["system_config"], slow["memory_mode"], slow["clock_hz"]) == ("Slow", "Mine", 1e8)
    assert slow["cycles"] > usual["cycles"]
    for needs in (["--memory-mode", "Sram_Only"], ["--trace", str(tmp_path / "trace.json")]):
        assert run(["inspect", str(chain), *needs]) == 2
        assert "--config" in capsys.readouterr().err


def test_inspect_writes_a_trace(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """Of a file and of its stream alone: the same slices, and the report as without."""
    content = chain.read_bytes()
    bare = tmp_path / "stream.bin"
    bare.write_bytes(content[content.index(b"COP1") :])
    slices = []
    for each in (chain, bare):
        path = tmp_path / f"{each.stem}.json"
        shown = form_of(capsys, ["inspect", str(each), *TARGET, "--trace", str(path)])
        assert shown == form_of(capsys, ["inspect", str(each), *TARGET])
        events = json.loads(path.read_text())["traceEvents"]
        slices.append([event for event in events if event["ph"] == "X"])
    assert slices[0] == slices[1] != []


@pytest.mark.parametrize("register", [Register.OFM_BASE0, Register.OFM_STRIDE_Y])
def test_inspect_wild_addresses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, register: Register
) -> None:
    """Addresses of 2**40 are refused; the stride of a single row means nothing."""
    b = Builder("line")
    b.output(b.conv2d(b.input("x", (1, 1, 8, 16)), 16, 1))
    content = compiled(b.build())
    (operator,) = open_compiled(content).file.operators
    payload = bytearray(content[content.index(b"COP1") :])
    word = next(w for w, code in register_writes(operator.stream) if code == register)
    struct.pack_into("<I", payload, operator.stream.start_bytes + 4 * word, register | 0xFF << 16)
    path = tmp_path / "wild.bin"
    path.write_bytes(payload)
    if register is Register.OFM_BASE0:
        assert "too large" in fails(capsys, ["inspect", str(path)])["what"]
    else:
        assert form_of(capsys, ["inspect", str(path)])["hazards"] == []


def test_prove_equal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    path = tmp_path / "mixed.tflite"
    path.write_bytes(mixed())
    arguments = ["prove", str(path), *TARGET, "--no-cache", "--inputs", "3", "--seed", "4"]
    form = form_of(capsys, arguments)
    assert (form["verdict"], form["inputs"], form["seed"]) == ("equal", 3, 4)
    assert form["outputs_equal"]
    assert form["intermediates"]["coverage"] == 1.0
    assert form["difference"] is None
    assert form["hazards"] == form["warnings"] == []
    assert form["executed"]["npu_ops"] == 1
    assert form["compiler"].startswith("Vela ")


def test_prove_names_the_first_difference(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    """A damaged stream: exit code 1, and the first kernel with its place and values."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    path = tmp_path / "damaged.tflite"
    path.write_bytes(with_lower_maximum(chain.read_bytes()))
    arguments = ["prove", "demo:chain:4", "--inputs", "2", "--compiled"]
    form = form_of(capsys, [*arguments, str(path), *TARGET], 1)
    assert (form["verdict"], form["outputs_equal"]) == ("different", False)
    assert form["compiler"] == "damaged.tflite"
    assert form["difference"]["kernel"] == "kernel 0 (depthwise)"
    assert form["difference"]["got"] == -100 < form["difference"]["expected"]
    assert run([*arguments, str(path), *TARGET]) == 1
    assert "-100 instead of" in " ".join(capsys.readouterr().out.split())
    assert run([*arguments, str(chain), "-c", "ethos-u55-64", "--mode", "hardware"]) == 0
    shown = capsys.readouterr()
    assert "hardware mode" in shown.out
    assert "made for ethos-u55-128" in " ".join(shown.err.split())


def test_what_prove_refuses(
    capsys: pytest.CaptureFixture[str], chain: Path, tmp_path: Path
) -> None:
    model = "demo:chain:4"
    assert "u85" in fails(capsys, ["prove", model, "-c", "ethos-u85-256"])["what"]
    assert "no NPU" in fails(capsys, ["prove", model, "-c", "cortex-m55"])["what"]
    assert "already compiled" in fails(capsys, ["prove", str(chain), *TARGET])["what"]
    both = ["prove", model, *TARGET, "--compiled", str(chain), "--optimise", "Size"]
    fails(capsys, both)
    fails(capsys, ["prove", model, *TARGET, "--inputs", "0"])
    b = Builder("float")
    b.output(b.relu(b.input("x", (1, 8, 8, 4), "float32")))
    path = tmp_path / "float.tflite"
    path.write_bytes(b.build())
    assert "nothing to prove" in fails(capsys, ["prove", str(path), *TARGET, "--no-cache"])["what"]


def test_another_models_file(capsys: pytest.CaptureFixture[str], chain: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    arguments = ["prove", "demo:ds_cnn", *TARGET, "--inputs", "1", "--compiled", str(chain)]
    assert "another model" in fails(capsys, arguments)["what"]


def test_names_of_outputs_are_unique() -> None:
    """Outputs without a name or of the same name get their tensor's number."""
    report, outputs = run_compiled(compiled(mixed_outputs()), name="m")
    assert len(outputs) == len(report.outputs) == 2


def mixed_outputs() -> bytes:
    b = Builder("two")
    x = b.conv2d(b.input("x", (1, 8, 8, 3)), 4)
    b.output(x, b.max_pool2d(x))
    return b.build()


def test_choices_are_those_of_the_simulator() -> None:
    assert [mode.value for mode in Mode] == MODES
