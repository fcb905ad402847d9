"""What we tell Vela: the ini comes back as the same target, and Vela's core agrees with Arm's."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from npusched.errors import TargetError
from npusched.hardware import (
    describe_target,
    load_target,
    needs_vela_ini,
    target_names,
    vela_accelerator,
    vela_arguments,
    vela_ini,
)
from npusched.hardware.target import MemoryMode, Target
from npusched.hardware.width import vela_bandwidth

NPU_TARGETS = [name for name in target_names() if load_target(name).accelerator is not None]

needs_vela = pytest.mark.skipif(find_spec("ethosu") is None, reason="ethos-u-vela is not installed")


@pytest.mark.parametrize("name", NPU_TARGETS)
def test_the_ini_reads_back_as_the_same_target(name: str, tmp_path: Path) -> None:
    """Same figures and roles; names, capacities and port widths, unknown to Vela, are lost."""
    for mode in describe_target(name).memory_modes:
        target = load_target(name, memory_mode=mode, clock_hz=123e6, derate={"sram": 0.3})
        path = tmp_path / "vela.ini"
        path.write_text(vela_ini(target))
        assert target.accelerator is not None
        base, width = target.accelerator.name, target.accelerator.axi_bytes
        back = load_target(base, vela_config=path)
        assert (back.system_config, back.memory_mode_name) == (target.system_config, mode)
        assert back.clock_hz == 123e6
        assert back.memory_mode is target.memory_mode
        assert back.arena_cache_bytes == target.arena_cache_bytes
        pairs = [(back.arena, target.arena), (back.cache, target.cache)]
        if target.memory_mode is not MemoryMode.SRAM_ONLY:
            pairs.append((back.const, target.const))
        for ours, theirs in pairs:
            physical = ours.bandwidth_bytes_per_cycle
            assert physical == pytest.approx(theirs.clock_scale * width * theirs.ports)
            for key in (
                "vela_bandwidth_bytes_per_cycle",
                "vela_name",
                "read_latency_cycles",
                "write_latency_cycles",
                "burst_bytes",
                "ports",
                "max_reads",
                "max_writes",
            ):
                assert getattr(ours, key) == getattr(theirs, key), key


def test_arguments() -> None:
    assert vela_arguments(load_target("ethos-u65-512")) == (
        "--accelerator-config",
        "ethos-u65-512",
        "--config",
        "Arm/vela.ini",
        "--system-config",
        "Ethos_U65_High_End",
        "--memory-mode",
        "Dedicated_Sram_384KB",
    )
    board = vela_arguments(load_target("renesas-ra8p1"), "./ra8p1.ini")
    assert board[1] == "ethos-u55-256"
    assert board[3] == "./ra8p1.ini"


def test_when_an_own_ini_is_needed() -> None:
    assert not needs_vela_ini(load_target("ethos-u55-128"))
    assert not needs_vela_ini(load_target("ethos-u85-2048", system_config="SYS_DRAM_High"))
    assert needs_vela_ini(load_target("ethos-u55-128", clock_hz=1e6))
    assert needs_vela_ini(load_target("ethos-u55-128", derate={"flash": 0.9}))
    assert needs_vela_ini(load_target("renesas-ra8p1"))


def test_a_host_only_target_is_nothing_to_vela() -> None:
    target = load_target("cortex-m4")
    for ask in (vela_ini, vela_accelerator, vela_arguments, needs_vela_ini):
        with pytest.raises(TargetError, match="has no NPU"):
            ask(target)


@pytest.mark.parametrize(
    ("name", "scale", "ports", "expected"),
    [
        ("Ethos_U55_High_End_Embedded", 0.125, 1, 1.0),
        ("Ethos_U55x", 1.0, 1, 8.0),
        ("ethos_u55", 1.0, 1, 16.0),  # case matters
        ("My_Ethos_U55", 1.0, 1, 16.0),  # the beginning counts
        ("Ethos_U85_SYS_DRAM_High", 0.75, 2, 24.0),
        ("Slow", 1e-9, 1, float.fromhex("0x1.a36e2ep-14")),  # float32(0.0001), the least
        ("Third", 1 / 3, 1, 5.333333015441895),  # float32 of the printed 5.333333
    ],
)
def test_vela_bandwidth(name: str, scale: float, ports: int, expected: float) -> None:
    """VELA_SPEC §1.3: scale x (8 if the name begins with Ethos_U55 else 16) x ports, float32."""
    assert vela_bandwidth(name, scale, ports) == pytest.approx(expected, rel=1e-9)


_COMPILE = """
import json, sys
from ethosu import regor

job = json.load(open(sys.argv[1]))
model = open(job["model"], "rb").read()
options = (
    "[compiler]\\noutput_format=TFLite\\n[scheduler]\\noptimize=Performance\\n"
    "arena_size_limit=65536\\n[graph]\\n"
)
results = []
for architecture, system in job["systems"]:
    report = regor.compile(architecture, model, "TFLITE", system, options=options).perf_report
    memories = {
        name: [memory.peakUsage, memory.totalAccessCycles]
        for name, memory in report.memories.items()
        if memory.totalAccessCycles
    }
    results.append([report.npuCycles, report.totalCycles, memories])
json.dump(results, open(sys.argv[2], "w"))
"""


def compile_all(folder: Path, model: Path, systems: list[tuple[Target, str]]) -> list[object]:
    """Return cycles as Vela's core reports them, in a process of its own (it may crash)."""
    job = {
        "model": str(model),
        "systems": [
            (vela_accelerator(target).architecture, system_text(target, ini))
            for target, ini in systems
        ],
    }
    asked, answered = folder / "job.json", folder / "results.json"
    asked.write_text(json.dumps(job))
    subprocess.run(
        [sys.executable, "-c", _COMPILE, str(asked), str(answered)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    results: list[object] = json.loads(answered.read_text())
    return results


def system_text(target: Target, ini: str) -> str:
    """VELA_SPEC §6: [architecture], [vela], then the text of a vela.ini."""
    _, macs, cores = vela_accelerator(target)
    return (
        f"[architecture]\nmacs={macs}\ncores={cores}\n"
        f"[vela]\nsystem_config_name={target.system_config}\n"
        f"memory_mode_name={target.memory_mode_name}\n{ini}"
    )


@pytest.fixture
def model(corpus_dir: Path) -> Path:
    return corpus_dir / "models" / "mlpt_kws.tflite"


@needs_vela
def test_vela_sees_the_same_through_our_ini_and_arms(model: Path, tmp_path: Path) -> None:
    spec = find_spec("ethosu")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations)))
    arm = (folder / "config_files" / "Arm" / "vela.ini").read_text()
    targets = []
    for name in NPU_TARGETS:
        known = describe_target(name)
        if name != "renesas-ra8p1":
            targets += [
                load_target(name, system_config=config, memory_mode=mode)
                for config in known.system_configs
                for mode in ("Sram_Only", "Shared_Sram", "Dedicated_Sram_384KB")
                if mode in known.memory_modes
            ]
    systems = [(target, ini) for target in targets for ini in (vela_ini(target), arm)]
    results = compile_all(tmp_path, model, systems)
    assert len(results) == 2 * (4 * 2 * 2 + 2 * 4 * 3 + 5 * 5 * 3)
    for index, target in enumerate(targets):
        ours, arms = results[2 * index : 2 * index + 2]
        assert ours == arms, (target.name, target.system_config, target.memory_mode_name)


@needs_vela
def test_the_name_widens_the_port_as_we_say(model: Path, tmp_path: Path) -> None:
    """RA8P1 at 0.5 is 8 bytes per cycle to Vela: the same as scale 1.0 under an Ethos_U55 name."""
    board = load_target("renesas-ra8p1")
    text = vela_ini(board)
    named = text.replace("Config.RA8P1", "Config.Ethos_U55_RA8P1")
    doubled = named.replace("clock_scale=0.5", "clock_scale=1.0")
    path = tmp_path / "doubled.ini"
    path.write_text(doubled)
    renamed = load_target("ethos-u55-256", vela_config=path)
    assert renamed.arena.vela_bandwidth_bytes_per_cycle == 8
    ours, same, narrow = compile_all(
        tmp_path, model, [(board, text), (renamed, doubled), (renamed, named)]
    )
    assert ours == same
    assert ours != narrow


@needs_vela
@pytest.mark.parametrize(
    ("name", "mode"),
    [("renesas-ra8p1", "Shared_Sram"), ("renesas-ra8p1", "External"), ("ethos-u65-256", None)],
)
def test_the_vela_command_takes_our_ini(
    model: Path, tmp_path: Path, name: str, mode: str | None
) -> None:
    """The Python front end checks more than the core does."""
    target = load_target(name, memory_mode=mode, clock_hz=250e6)
    path = tmp_path / "own.ini"
    path.write_text(vela_ini(target))
    command = [
        *(sys.executable, "-c", "import sys; from ethosu.vela.vela import main; sys.exit(main())"),
        str(model),
        *vela_arguments(target, str(path)),
        *("--output-dir", str(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mlpt_kws_vela.tflite").is_file()
