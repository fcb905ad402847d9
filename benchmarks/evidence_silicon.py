"""Predicted / measured latency of command streams that a vendor compiled and timed on silicon.

Predicted is the timeline of the very stream (``sim.timeline``) on the board's target file, the
estimated NPU call, and the host's float quantisation where the measurement holds it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from benchmarks.evidence import ROOT, Case, Evidence, Row, case_of, corpus, hw_configs
from npusched.api.timing import call_seconds
from npusched.cost.cpu import host_cycles
from npusched.hardware import Target, load_target
from npusched.ops.catalogue import CostClass
from npusched.ops.macs import HostWork
from npusched.sim.check import check_bare
from npusched.sim.program import LoadedKernel, Program, load_bare
from npusched.sim.timeline import Timeline, simulate, total_cycles
from npusched.vela.stream import decode_stream

BOARD = "renesas-ra8p1"
MODES = {
    "mram_weights_sram_arena": "Sram_Only_Mram",
    "sram_only": "Sram_Only",
    "ospi_weights_sdram_arena": "External",
}
"""Memory mode of the board's file for each arrangement of SILICON.json."""

INI_MODES = {"mram_weights_sram_arena": "Shared_Sram", "sram_only": "Sram_Only"}
"""The same in the vendor's ra8p1.ini, which has no external memories."""

OFF_CHIP = "ospi_weights_sdram_arena"
ROUNDED = "_rounded"
FLOAT_INPUT = ("ad01", "resnet8_renesas")
"""Measured with float quantise and dequantise on the CPU (SILICON.json, note)."""

BAR = (0.75, 1.3)
"""Predicted / measured that is asked for in on-chip memory."""

BARRED = ("kws", "ad01", "resnet8_renesas")
_STEPS = 24


@lru_cache(maxsize=1)
def silicon() -> dict[str, dict[str, float]]:
    """Measured milliseconds by stream file, then arrangement."""
    streams = json.loads(silicon_json().read_text())["streams"]
    return {f"silicon/{each['file']}": each["measured_latency_ms"] for each in streams}


def silicon_json() -> Path:
    """The table of streams and measurements."""
    return corpus() / "silicon" / "SILICON.json"


def ini() -> Path:
    """The vendor's system configuration."""
    return corpus() / "specs" / "vela_ini" / "ra8p1.ini"


def cases() -> list[Case]:
    """(stream, arrangement)."""
    return [(path, where) for path, found in silicon().items() for where in found]


def measure(case: Case) -> Row:
    """Predict one stream in one arrangement of memories; all times in microseconds."""
    path, where = case
    arrangement = where.removesuffix(ROUNDED)
    program = program_of(path)
    target = load_target(BOARD, memory_mode=MODES[arrangement])
    timeline = simulate(program, target)
    microseconds = 1000 * silicon()[path][where]
    npu, call, host = parts(path, timeline, target)
    predicted = npu + call + host
    longest = max(timeline.kernels, key=lambda run: run.end - run.start)
    row: Row = {
        "measured_us": round(microseconds, 2),
        "whole_ms": where.endswith(ROUNDED),
        "cycles": timeline.total_cycles,
        "idle_cycles": timeline.idle_cycles,
        "compute_cycles": sum(run.cost.npu_cycles for run in timeline.kernels),
        "npu_us": round(npu, 2),
        "call_us": round(call, 2),
        "host_us": round(host, 2),
        "predicted_us": round(predicted, 2),
        "ratio": round(predicted / microseconds, 3),
        "bytes": moved_bytes(timeline),
        "longest": {
            "kernel": _label(program, longest.command),
            "cycles": longest.end - longest.start,
            "compute_cycles": longest.cost.npu_cycles,
        },
        "hazards": [str(hazard) for hazard in check_bare(program)],
    }
    if arrangement == OFF_CHIP:
        row.update(_off_chip(path, microseconds))
    else:
        literal = load_target(
            "ethos-u55-256",
            vela_config=ini(),
            system_config="RA8P1",
            memory_mode=INI_MODES[arrangement],
        )
        cycles = total_cycles(program, literal)
        as_ini = 1e6 * cycles / literal.clock_hz + call + host
        row["ini_ratio"] = round(as_ini / microseconds, 3)
    return row


@lru_cache(maxsize=8)
def program_of(path: str) -> Program:
    """The stream, loaded without constants."""
    return load_bare(decode_stream((corpus() / path).read_bytes()))


def _label(program: Program, index: int) -> str:
    command = program.commands[index]
    assert isinstance(command, LoadedKernel)
    return command.state.label


def parts(path: str, timeline: Timeline, target: Target) -> tuple[float, float, float]:
    """Microseconds of the NPU, of its call, and of float quantisation on the host."""
    npu = 1e6 * timeline.total_cycles / target.clock_hz
    return npu, 1e6 * call_seconds(timeline, target), _float_us(path, timeline, target)


def _float_us(path: str, timeline: Timeline, target: Target) -> float:
    """Quantise of the input, dequantise of the result: a kernel call each (GROUND_TRUTH §5)."""
    if not any(name in path for name in FLOAT_INPUT):
        return 0.0
    elements = [
        sum(each.read_first_bytes for each in timeline.occupancy),
        sum(each.result_bytes for each in timeline.occupancy),
    ]
    cycles = [
        host_cycles(target.cpu, HostWork(cost_class=CostClass.QUANTIZE, macs=0, elements=count))
        for count in elements
    ]
    return 1e6 * sum(cycles) / target.cpu.clock_hz


def moved_bytes(timeline: Timeline) -> dict[str, int]:
    """Bytes that kernels move, by memory."""
    sums: Counter[str] = Counter()
    for run in timeline.kernels:
        for transfer in run.cost.transfers:
            sums[transfer.memory] += transfer.bytes_read + transfer.bytes_written
    return dict(sorted(sums.items()))


def external(bytes_per_cycle: float, *, arena: str = "sdram") -> Target:
    """The board with one bandwidth for both external memories; ``arena``: memory of the arena."""
    target = load_target(BOARD, memory_mode="External")
    memories = tuple(
        replace(memory, bandwidth_bytes_per_cycle=bytes_per_cycle)
        if memory.name in ("ospi", "sdram")
        else memory
        for memory in target.memories
    )
    return replace(
        target,
        name=f"{BOARD}-{arena}-{bytes_per_cycle}",  # what costs are memoised by
        memories=memories,
        roles=replace(target.roles, arena=arena, cache=arena),
    )


def _fitted(path: str, measured_us: float) -> float:
    """Bytes per cycle at which the prediction, which falls with it, equals the measurement."""
    low, high = 0.01, 16.0
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _predict(path, middle) > measured_us else (low, middle)
    return low


def _predict(path: str, bytes_per_cycle: float, arena: str = "sdram") -> float:
    """Microseconds of the NPU alone."""
    target = external(bytes_per_cycle, arena=arena)
    return 1e6 * total_cycles(program_of(path), target) / target.clock_hz


def _off_chip(path: str, measured_us: float) -> Row:
    """Fit the one bandwidth to the other stream and test it on this one; and the reverse."""
    others = [each for each, found in silicon().items() if OFF_CHIP in found and each != path]
    own = _fitted(path, measured_us)
    tested = {}
    for other in others:
        rate = _fitted(other, 1000 * silicon()[other][OFF_CHIP])
        tested[other] = {
            "bytes_per_cycle": round(rate, 3),
            "ratio": round(_predict(path, rate) / measured_us, 3),
            "ratio_arena_in_sram": round(_predict(path, rate, "sram") / measured_us, 3),
        }
    return {"own_fit_bytes_per_cycle": round(own, 3), "fitted_on": tested}


def render(rows: Sequence[Row]) -> str:
    """One line per measurement, what was fitted, and the findings."""
    return "\n".join([*_table(rows), "", *_external(rows), "", *_findings(rows)])


def _table(rows: Sequence[Row]) -> list[str]:
    barred = [row for row in rows if _name(row) in BARRED]
    inside = [row for row in barred if BAR[0] <= _number(row, "ratio") <= BAR[1]]
    lines = [
        "Streams that Renesas compiled (an unstated version of Vela's Python compiler inside its",
        "own tool) and timed on a RA8P1: Ethos-U55-256 at 500 MHz, Cortex-M85 at 1 GHz. Predicted",
        "is the timeline of the very stream with the target file `renesas-ra8p1`, one for all",
        "rows: NPU (kernels, DMAs, waits), estimated call (driver, cache maintenance), and for",
        "ad01 and resnet8 the float quantise and dequantise on the CPU that their measurements",
        "hold (our cost of the Cortex-M85; an estimate). Microseconds; ratios are predicted /",
        "measured. *Compute* is the NPU's work without waiting for memories.",
        "",
        "Fitted: the SRAM's 8 bytes per cycle, to VWW with weights in MRAM, which is none of these",
        "streams (reports/ground_truth.md); the external memories' 0.52, to the bytes of",
        "MobileNetV2. Nothing was fitted to the on-chip rows. *ini*: the vendor's ra8p1.ini read",
        "literally, 4 bytes per cycle for every memory and nothing fitted.",
        "",
        f"Asked for in on-chip memory: kws, ad01 and resnet8 within {BAR[0]} to {BAR[1]}. Inside:",
        f"{len(inside)} of {len(barred)}.",
        "",
        "| stream | memories | role | measured | NPU | call | float | predicted | ratio | ini |"
        " compute |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        where = case_of(row)[1]
        role = "fitted or tested below" if where == OFF_CHIP else "tested"
        measured = f"{_number(row, 'measured_us'):g}"
        ini_ratio = f"{_number(row, 'ini_ratio'):.2f}" if "ini_ratio" in row else "-"
        compute = _number(row, "compute_cycles") / _number(row, "cycles")
        lines.append(
            f"| {_name(row)} | {where.removesuffix(ROUNDED).replace('_', ' ')} | {role} | "
            f"{measured + (' (whole ms)' if row['whole_ms'] else '')} | "
            f"{_number(row, 'npu_us'):.1f} | {_number(row, 'call_us'):.1f} | "
            f"{_number(row, 'host_us'):.1f} | {_number(row, 'predicted_us'):.1f} | "
            f"{_number(row, 'ratio'):.2f} | {ini_ratio} | {100 * compute:.0f} % |"
        )
    return [*lines, "", *_whole(next(row for row in rows if row["whole_ms"]))]


def _whole(row: Row) -> list[str]:
    """What a figure in whole milliseconds allows to say (MobileNetV1)."""
    longest = row["longest"]
    assert isinstance(longest, dict)
    excess = longest["cycles"] - longest["compute_cycles"]
    without = _number(row, "predicted_us") - excess / 500
    return [
        "MobileNetV1 is published as 1 in whole milliseconds, so it is outside if that is the",
        "nearest one (0.5 to 1.5 ms), and hardly if it was cut off (1 to 2 ms). Its longest",
        f"kernel, {longest['kernel']}, takes {longest['cycles']} cycles for",
        f"{longest['compute_cycles']} of work: an NHWC image of 6 channels in blocks of 8, where",
        "the cost counts each pixel as a burst of its own, as Vela does. Bound by its work alone,",
        f"the total would be {without:.0f} us.",
    ]


def _external(rows: Sequence[Row]) -> list[str]:
    """The external memories: one bandwidth, fitted on one stream and tested on the other."""
    lines = [
        "## External memories",
        "",
        "Weights in OSPI flash, arena in SDRAM. One bandwidth for both memories, fitted to one",
        "stream and tested on the other:",
        "",
        "| fitted to | bytes/cycle | tested on | ratio |",
        "|---|---|---|---|",
    ]
    pairs = [row for row in rows if "fitted_on" in row]
    guess: list[str] = []
    for row in pairs:
        tested = row["fitted_on"]
        assert isinstance(tested, dict)
        for other, found in tested.items():
            lines.append(
                f"| {_stem(other)} | {found['bytes_per_cycle']:.3f} | {_name(row)} | "
                f"{found['ratio']:.2f} |"
            )
        if _name(row).startswith("yolox"):
            guess = [f"{found['ratio_arena_in_sram']:.2f}" for found in tested.values()]
    lines += ["", "| stream | moved in OSPI | moved in SDRAM | measured |", "|---|---|---|---|"]
    for row in pairs:
        moved = row["bytes"]
        assert isinstance(moved, dict)
        lines.append(
            f"| {_name(row)} | {moved['ospi'] / 1e6:.1f} MB | {moved['sdram'] / 1e6:.1f} MB | "
            f"{_number(row, 'measured_us') / 1000:g} ms |"
        )
    return [
        *lines,
        "",
        "Both tests fail: YOLOX moves more than MobileNetV2 in each memory, in less time, so",
        "slower or faster memories do not explain it. With YOLOX's arena in the SRAM, where its",
        f"803 kB would fit, the bandwidth fitted to MobileNetV2 gives {', '.join(guess)} for it.",
        "That was seen after the fact: a guess at the vendor's arrangement, not a test of ours.",
    ]


def _findings(rows: Sequence[Row]) -> list[str]:
    """What the static checks say."""
    lines = ["## Static checks", ""]
    for path in dict.fromkeys(case_of(row)[0] for row in rows):
        row = next(row for row in rows if case_of(row)[0] == path)
        found = row["hazards"]
        assert isinstance(found, list)
        lines.append(f"- {_stem(path)}: {'; '.join(found) or 'no findings'}")
    return [
        *lines,
        "",
        "The two findings are of one kind, in the softmax: a maximum over all 1000 results of a",
        "fully connected layer that writes 8 blocks of 128 channels. Its only job reads all of",
        "them, the last block included, so BLOCKDEP must be 0; Vela 5.2 writes that there. Older",
        "Vela wrote 3 (its Python code, still in the package, computes it for these two kernels):",
        "it takes the first 8 columns, one sub-kernel, for all that the job reads. The chip runs",
        "the streams, perhaps because the last columns are fetched 112 sub-kernels after the",
        "first; whether hardware guards that is not published. The findings stand.",
    ]


def _name(row: Row) -> str:
    return _stem(case_of(row)[0])


def _stem(path: str) -> str:
    return Path(path).name.removesuffix(".command_stream.bin")


def _number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float)
    return value


def inputs() -> list[Path]:
    """The table, the vendor's ini, and the target files that are used."""
    folder = ROOT / "hw_configs"
    boards = [folder / f"{BOARD}.toml", *sorted(folder.glob("cortex-*.toml"))]
    return [*hw_configs(), *boards, silicon_json(), ini()]


EVIDENCE = Evidence(
    name="silicon",
    title="Streams that were timed on silicon",
    cases=cases,
    measure=measure,
    render=render,
    inputs=inputs,
)
