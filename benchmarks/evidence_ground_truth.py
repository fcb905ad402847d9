"""Published measurements (silicon) and cycle models (FVP) against our predictions.

Each pair is a row of ``specs/measured.csv`` whose model is in the corpus. Predicted is what ran:
Vela's schedule, at our striped cost, and on boards without NPU our plan for the host.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from benchmarks.crosscheck import slices_of
from benchmarks.evidence import ROOT, Case, Evidence, Row, case_of, corpus, hw_configs
from npusched.api import plan
from npusched.hardware import Target, load_target
from npusched.tflite import read_model
from npusched.vela.options import VelaOptions
from npusched.vela.recost import SliceSizes, recost_rows
from npusched.vela.rows import VelaRow, read_rows
from npusched.vela.runner import compile_model

KWS, VWW, AD, IC = (f"models/mlpt_{name}.tflite" for name in ("kws", "vww", "ad01", "resnet8"))
RNNOISE, CNN_S = "models/mlzoo_rnnoise_int8.tflite", "models/mlzoo_cnn_s_kws_int8.tflite"
MOBILENET_V2 = "models/tflm_mobilenet_v2_pytorch_nchw.tflite"

FITTED, TESTED, OTHER_FILE, OTHER_TARGET, HOST_FIT, OTHER_LIBRARY = (
    "fitted",
    "tested",
    "other file",
    "other target",
    "host, fitted",
    "host, other library",
)
ROLES = {
    FITTED: "the board's SRAM bandwidth was fitted to this measurement alone",
    TESTED: "nothing was fitted to it",
    OTHER_FILE: "the same architecture from another converter (with transposes of its input)",
    OTHER_TARGET: "no target file for the board: Arm's High_End_Embedded at the board's clock",
    HOST_FIT: "no NPU; the cycles per MAC of the host's file were fitted to these measurements",
    OTHER_LIBRARY: "no NPU; measured with another library than the host's file describes",
}


BOARD = "renesas-ra8p1"
BANDWIDTHS = (4.0, 6.0, 8.0, 10.0)
"""Bytes per NPU cycle at which the board's pairs are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A model, the measured row (by beginnings of its device, memory and model), and our target."""

    path: str
    device: str
    memory: str
    model: str
    target: str
    system: str | None = None
    mode: str | None = None
    clock_hz: float | None = None
    role: str = TESTED


def _ra8p1(path: str, model: str, mode: str, role: str = TESTED) -> Pair:
    memory = "SRAM only" if mode == "Sram_Only" else "MRAM weights"
    return Pair(
        path=path,
        device="Renesas RA8P1",
        memory=memory,
        model=model,
        target=BOARD,
        mode=mode,
        role=role,
    )


def _hosts() -> list[Pair]:
    boards = (
        ("Renesas EK-RA8D1", "cortex-m85", 480e6, HOST_FIT),
        ("STM32H7A3", "cortex-m7", 280e6, HOST_FIT),
        ("STM32L4R5", "cortex-m4", 120e6, OTHER_LIBRARY),
    )
    models = ((AD, "AD"), (IC, "IC"), (KWS, "KWS"), (VWW, "VWW"))
    return [
        Pair(
            path=path,
            device=device,
            memory="",
            model=f"MLPerfTiny {name}",
            target=target,
            clock_hz=clock,
            role=role,
        )
        for device, target, clock, role in boards
        for path, name in models
    ]


PAIRS = (
    _ra8p1(VWW, "MLPerfTiny VWW MobileNet", "Shared_Sram", FITTED),
    _ra8p1(VWW, "MLPerfTiny VWW MobileNet", "Sram_Only"),
    _ra8p1(KWS, "MLPerfTiny KWS", "Shared_Sram"),
    _ra8p1(KWS, "MLPerfTiny KWS", "Sram_Only"),
    _ra8p1(AD, "MLPerfTiny AD ad01", "Shared_Sram"),
    Pair(
        path=RNNOISE,
        device="Corstone-300 FVP (Arm MLEK",
        memory="Shared_Sram",
        model="rnnoise",
        target="ethos-u55-128",
        mode="Shared_Sram",
    ),
    Pair(
        path=CNN_S,
        device="Corstone-300 FVP (Zephyr",
        memory="Shared_Sram",
        model="cnn_s",
        target="ethos-u55-128",
        mode="Shared_Sram",
    ),
    Pair(
        path=MOBILENET_V2,
        device="Corstone-300 FVP",
        memory="Sram_Only",
        model="MobileNetV2 torchvision",
        target="ethos-u55-128",
        mode="Sram_Only",
        role=OTHER_FILE,
    ),
    Pair(
        path=MOBILENET_V2,
        device="Corstone-320 FVP",
        memory="memory mode not stated",
        model="MobileNetV2 torchvision",
        target="ethos-u85-128",
        system="Ethos_U85_SYS_DRAM_Mid",
        mode="Sram_Only",
        role=OTHER_FILE,
    ),
    Pair(
        path=RNNOISE,
        device="Nuvoton NuMaker-M55M1",
        memory="flash",
        model="rnnoise",
        target="ethos-u55-256",
        mode="Shared_Sram",
        clock_hz=220e6,
        role=OTHER_TARGET,
    ),
    *_hosts(),
)


def cases() -> list[Case]:
    """One case per pair."""
    return [(pair.path, pair.device, pair.memory, pair.model, pair.target) for pair in PAIRS]


def measure(case: Case) -> Row:
    """Predict one pair, in the unit of the measurement: NPU cycles of an FVP, else microseconds."""
    pair = next(pair for pair, known in zip(PAIRS, cases(), strict=True) if known == case)
    published = _published(pair)
    content = (corpus() / pair.path).read_bytes()
    target = load_target(
        pair.target, system_config=pair.system, memory_mode=pair.mode, clock_hz=pair.clock_hz
    )
    planned = plan(content, target, use_cache=False).totals
    is_cycles = "FVP" in pair.device
    measured = (
        float(published["npu_cycles"]) if is_cycles else 1000 * float(published["latency_ms"])
    )
    row: Row = {
        "unit": "NPU cycles" if is_cycles else "us",
        "measured": round(measured, 2),
        "predicted": round(1e6 * planned.latency_s, 2),
        "role": pair.role,
        "source": published["source"].split(" ")[0],
    }
    if target.accelerator is not None:
        scale = 1.0 if is_cycles else 1e6 / target.clock_hz
        extra = 0.0 if is_cycles else 1e6 * planned.latency_s - planned.cycles * scale
        schedule = _VelaSchedule.of(content, target)
        row["predicted"] = round(schedule.cycles(target) * scale + extra, 2)
        row["vela_report"] = round(schedule.reported * scale, 2)
        if target.name == BOARD:
            row["by_bandwidth"] = [
                round(schedule.cycles(_with_sram(target, each)) * scale + extra, 2)
                for each in BANDWIDTHS
            ]
    return row


@dataclass(frozen=True, slots=True)
class _VelaSchedule:
    """Vela's default schedule, ready to be costed, and Vela's own total."""

    rows: tuple[VelaRow, ...]
    slices: dict[int, SliceSizes]
    reported: int

    @classmethod
    def of(cls, content: bytes, target: Target) -> _VelaSchedule:
        """Compile."""
        model = read_model(content, "model")
        result = compile_model(content, target, VelaOptions(), cache=None)
        rows = read_rows(result.database, target)
        slices = slices_of(target, result, model, rows)
        return cls(rows, slices, result.report.total_cycles)

    def cycles(self, target: Target) -> int:
        """Our striped cost of it."""
        costs = recost_rows(target, self.rows, self.slices)
        return sum(cost.cycles for cost in costs.values())


def _with_sram(target: Target, bytes_per_cycle: float) -> Target:
    """The same target with another bandwidth of its SRAM."""
    memories = [
        replace(memory, bandwidth_bytes_per_cycle=bytes_per_cycle)
        if memory.name == "sram"
        else memory
        for memory in target.memories
    ]
    return replace(target, memories=tuple(memories))


def _published(pair: Pair) -> dict[str, str]:
    """The one row of the table that a pair names."""
    with measured_csv().open(newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["device"].startswith(pair.device)
            and row["memory"].startswith(pair.memory)
            and row["model"].startswith(pair.model)
            and row["npu"].startswith("none") == pair.target.startswith("cortex")
        ]
    assert len(rows) == 1, f"{len(rows)} rows for {pair}"
    return rows[0]


def measured_csv() -> Path:
    """The table of published measurements."""
    return corpus() / "specs" / "measured.csv"


def render(rows: Sequence[Row]) -> str:
    """All pairs, then the means."""
    lines = [
        "Ratios are predicted / measured. Predicted is our striped cost of the schedule that Vela",
        "5.2 makes by default (boards and FVPs ran schedules of unstated versions of Vela), in",
        "microseconds with our estimate of the host's hand-off (driver call, cache maintenance);",
        "on boards without NPU our plan. AD on the RA8P1 was measured with float quantisation of",
        "its input and output on the CPU (about 10 us), which the model at hand does not have.",
        "",
        "| device | memory | model | target | role | unit | measured | predicted | Vela's report |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        device, memory, _, target = case_of(row)[1:]
        cells = [_ratio(row, name) for name in ("predicted", "vela_report")]
        lines.append(
            f"| {device.split(' (')[0]} | {memory or '-'} | `{case_of(row)[0]}` | {target} | "
            f"{row['role']} | {row['unit']} | {_number(row, 'measured'):.10g} | "
            f"{' | '.join(cells)} |"
        )
    lines += ["", *(f"- *{role}*: {text}" for role, text in ROLES.items()), ""]
    lines += [*_fit(rows), ""]
    for title, roles in (
        ("NPU, nothing fitted", (TESTED,)),
        ("NPU, all", (FITTED, TESTED, OTHER_FILE, OTHER_TARGET)),
        ("hosts", (HOST_FIT, OTHER_LIBRARY)),
    ):
        mine = [row for row in rows if row["role"] in roles]
        ratios = [_number(row, "predicted") / _number(row, "measured") for row in mine]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(
            f"- {title}: {len(mine)} pairs, {min(ratios):.2f} to {max(ratios):.2f} of the"
            f" measurement, geometric mean {mean:.2f}"
        )
    return "\n".join(lines)


def _fit(rows: Sequence[Row]) -> list[str]:
    """How the board's SRAM bandwidth was chosen: every pair at several bandwidths."""
    titles = " | ".join(f"{each:g} bytes/cycle" for each in BANDWIDTHS)
    lines = [
        "SRAM bandwidth of the RA8P1. Its bus runs at half the NPU's clock; how wide it is, is not",
        "stated. Fitted to VWW with weights in MRAM alone: more than the 8 bytes per cycle of the",
        "NPU's port would fit better, so 8 is what the target file has; MRAM stays at the 4 of its",
        "clock. Predicted / measured:",
        "",
        f"| model | memory | {titles} |",
        f"|---|---|{'---|' * len(BANDWIDTHS)}",
    ]
    for row in rows:
        values = row.get("by_bandwidth")
        if isinstance(values, list):
            ratios = [f"{value / _number(row, 'measured'):.2f}" for value in values]
            lines.append(f"| `{case_of(row)[0]}` | {case_of(row)[2]} | {' | '.join(ratios)} |")
    return lines


def _number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, int | float)
    return value


def _ratio(row: Row, name: str) -> str:
    if name not in row:
        return "-"
    return f"{_number(row, name):.10g} ({_number(row, name) / _number(row, 'measured'):.2f})"


def inputs() -> list[Path]:
    """Target files, the board's among them, and the measurements."""
    folder = ROOT / "hw_configs"
    boards = [folder / "renesas-ra8p1.toml", *sorted(folder.glob("cortex-*.toml"))]
    return [*hw_configs(), *boards, measured_csv()]


EVIDENCE = Evidence(
    name="ground_truth",
    title="Predictions against published measurements",
    cases=cases,
    measure=measure,
    render=render,
    inputs=inputs,
    sample_size=5,
)
