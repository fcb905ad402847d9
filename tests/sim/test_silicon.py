"""Streams that were timed on silicon: within the bar where the memory is on the chip."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.evidence_silicon import BAR, BARRED, MODES, cases, measure, program_of
from npusched.hardware import load_target
from npusched.sim.check import check_bare, check_executable
from npusched.sim.hazards import HazardKind, find_hazards
from npusched.sim.program import LoadedKernel, Program
from npusched.sim.timeline import total_cycles
from npusched.tflite import Builder
from tests.sim.sim_models import accelerator, executable

STREAMS = (
    "kws",
    "ad01",
    "resnet8_renesas",
    "mobilenet_v1_0.25_224",
    "mobilenet_v2_1.0_224",
    "yolox_tiny_224",
)


def test_on_chip_latencies_are_within_the_bar(corpus_dir: Path) -> None:
    """kws, ad01 and resnet8, every arrangement, one target file, nothing fitted to them."""
    assert corpus_dir.is_dir()
    ratios = {
        case: measure(case)["ratio"]
        for case in cases()
        if Path(case[0]).name.removesuffix(".command_stream.bin") in BARRED
    }
    assert len(ratios) == 5
    for case, ratio in ratios.items():
        assert isinstance(ratio, float)
        assert BAR[0] <= ratio <= BAR[1], case


def test_slower_arrangements_are_predicted_to_be_slower(corpus_dir: Path) -> None:
    """Weights beside the arena in SRAM, which one port serves: slower, as measured for kws."""
    assert corpus_dir.is_dir()
    program = program_of("silicon/kws.command_stream.bin")
    times = [
        total_cycles(program, load_target("renesas-ra8p1", memory_mode=MODES[where]))
        for where in ("mram_weights_sram_arena", "sram_only", "ospi_weights_sdram_arena")
    ]
    assert times == sorted(set(times))


@pytest.mark.parametrize("name", STREAMS)
def test_static_findings(name: str, corpus_dir: Path) -> None:
    """None but one in each MobileNet: the maximum in front of its softmax (reports/silicon.md)."""
    assert corpus_dir.is_dir()
    program = program_of(f"silicon/{name}.command_stream.bin")
    found = check_bare(program, accelerator("ethos-u55-256"))
    if not name.startswith("mobilenet"):
        assert found == ()
        return
    (finding,) = found
    assert finding.kind is HazardKind.BLOCK_DEPENDENCY
    before, kernel = around(program, finding.offset_bytes)
    assert kernel.state.block_dependency == 3
    assert kernel.ifm.span == before.ofm.span
    assert kernel.state.window.w == 1000
    assert before.state.block.c == 128


def around(program: Program, offset_bytes: int) -> tuple[LoadedKernel, LoadedKernel]:
    """The kernel at a byte of the stream, and the one before it."""
    kernels = program.kernels
    index = next(i for i, k in enumerate(kernels) if k.state.offset_bytes == offset_bytes)
    return kernels[index - 1], kernels[index]


def test_vela_does_not_overlap_such_a_maximum() -> None:
    """Vela 5.2 writes BLOCKDEP 0 for the same two kernels; 3 is a finding there, too."""
    pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    b = Builder("classifier")
    b.output(b.softmax(b.fully_connected(b.input("x", (1, 256)), 1000)))
    ready = executable(b.build(), "ethos-u55-256")
    assert check_executable(ready) == ((),)
    program = ready.programs[0]
    index, command = next(
        (i, c)
        for i, c in enumerate(program.commands)
        if isinstance(c, LoadedKernel) and c.state.label.endswith("(max)")
    )
    assert command.state.window.w == 1000
    assert command.state.block_dependency == 0
    risky = replace(command, state=replace(command.state, block_dependency=3))
    changed = (*program.commands[:index], risky, *program.commands[index + 1 :])
    found = find_hazards(replace(program, commands=changed))
    assert HazardKind.BLOCK_DEPENDENCY in {hazard.kind for hazard in found}
