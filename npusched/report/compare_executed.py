"""What Vela's streams really read and write, beside our prediction and Vela's estimate.

Counted from the addresses in the compiled file, without data and without decoding constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from npusched.cost.types import OpCost
from npusched.cost.types import Purpose as CostPurpose
from npusched.errors import NpuschedError
from npusched.hardware.target import AcceleratorU55, Target
from npusched.report.compare_types import ExecutedRow, ExecutedStreams, PurposeName
from npusched.sim.container import read_compiled_file
from npusched.sim.figures import SHRAM, Figures, Purpose, count_figures
from npusched.vela.records import VelaOp
from npusched.vela.row_fields import memory_names

_Place: TypeAlias = tuple[str, PurposeName]
_Part: TypeAlias = tuple[_Place, Sequence[int]]
_Sums: TypeAlias = dict[_Place, list[int]]
"""(memory, purpose) -> what is added up."""

_COUNTED: Mapping[Purpose, PurposeName] = {
    Purpose.FEATURE_MAP: "feature_map",
    Purpose.WEIGHTS: "weights",
    Purpose.SCALES: "weights",
}

_PREDICTED: Mapping[CostPurpose, PurposeName] = {
    CostPurpose.FEATURE_MAP: "feature_map",
    CostPurpose.WEIGHTS: "weights",
    CostPurpose.SCALES: "weights",
    CostPurpose.LUT: "table",
}

_ESTIMATED: Mapping[str, PurposeName] = {
    "FeatureMap": "feature_map",
    "Weights": "weights",
    "Scales": "weights",
    "Lut": "table",
}


def count_streams(
    compiled: bytes,
    target: Target,
    subgraph: int,
    compatible: Mapping[int, OpCost],
    rows: Sequence[VelaOp],
) -> ExecutedStreams | str:
    """Return the executed figures of one subgraph's operators; why there are none, as a sentence.

    ``compatible``: our costs of Vela's rows; ``rows``: what Vela estimates of them.
    """
    if not isinstance(target.accelerator, AcceleratorU55):
        return "streams for Ethos-U85 are not modelled"
    if not compiled:
        return "there is no compiled file"
    try:
        file = read_compiled_file(compiled)
        figures = [
            count_figures(operator.load(resolves_constants=False), operator.host_spans)
            for operator in file.operators
            if operator.subgraph == subgraph
        ]
    except NpuschedError as error:
        return f"{error.what}: {error.why}" if error.why else error.what
    return _streams(target, figures, compatible, rows)


def _streams(
    target: Target,
    figures: Sequence[Figures],
    compatible: Mapping[int, OpCost],
    rows: Sequence[VelaOp],
) -> ExecutedStreams:
    executed = _executed(target, figures)
    predicted = _add(
        ((t.memory, _PREDICTED[t.purpose]), (t.bytes_read, t.bytes_written))
        for cost in compatible.values()
        for t in cost.transfers
    )
    names = memory_names(target)
    estimated = _add(
        ((names[t.memory], _ESTIMATED[t.purpose]), (t.read_bytes, t.written_bytes))
        for op in rows
        for t in op.traffic
        if t.memory in names and t.purpose in _ESTIMATED
    )
    peaks: Counter[str] = Counter()
    for use in (use for each in figures for use in each.memories):
        peaks[use.memory] = max(peaks[use.memory], use.high_water_bytes)
    fetched = [sums for (_, purpose), sums in executed.items() if purpose == "weights"]
    return ExecutedStreams(
        kernels=sum(each.kernel_count for each in figures),
        dmas=sum(each.dmas for each in figures),
        dma_bytes=sum(each.dma_bytes for each in figures),
        staged_bytes=_written(executed, "weights"),
        predicted_staged_bytes=_written(predicted, "weights"),
        vela_staged_bytes=_written(estimated, "weights"),
        reread_bytes=sum(read - once for read, _, once in fetched),
        sram_peak_bytes=peaks["scratch_fast"] or peaks["scratch"],
        rows=tuple(
            _row(place, executed, predicted, estimated)
            for place in sorted({*executed, *predicted, *estimated})
        ),
    )


def _executed(target: Target, figures: Sequence[Figures]) -> _Sums:
    """Bytes fetched, written, and needed once, of kernels and DMAs."""
    roles = target.roles
    memories = {"read_only": roles.const, "scratch": roles.arena, "scratch_fast": roles.cache}
    parts: list[_Part] = []
    for each in figures:
        parts += [
            (
                (memories[t.memory], _COUNTED[t.purpose]),
                (t.fetched_bytes, t.written_bytes, t.read_bytes),
            )
            for t in each.traffic
            if t.purpose in _COUNTED
        ]
        parts += _copied(each, memories)
    return _add(parts)


def _copied(figures: Figures, memories: Mapping[str, str]) -> list[_Part]:
    """DMA bytes by what they carry: what reaches the SHRAM is tables, what leaves an arena maps."""
    moves = [t for t in figures.traffic if t.purpose is Purpose.DMA]
    tables = sum(t.written_bytes for t in moves if t.memory == SHRAM)
    maps = sum(t.read_bytes for t in moves if t.memory != "read_only")
    found: list[_Part] = []
    for t in moves:
        if t.memory == SHRAM:
            continue
        memory = memories[t.memory]
        if t.memory == "read_only":
            weights = t.read_bytes - tables
            found.append(((memory, "table"), (tables, 0, tables)))
            found.append(((memory, "weights"), (weights, 0, weights)))
        else:
            copies = min(t.written_bytes, maps)
            found.append(((memory, "feature_map"), (t.read_bytes, copies, t.read_bytes)))
            found.append(((memory, "weights"), (0, t.written_bytes - copies, 0)))
    return found


def _add(parts: Iterable[_Part]) -> _Sums:
    sums: _Sums = {}
    for place, amounts in parts:
        known = sums.setdefault(place, [0] * len(amounts))
        for number, amount in enumerate(amounts):
            known[number] += amount
    return {place: amounts for place, amounts in sums.items() if any(amounts)}


def _written(sums: _Sums, purpose: PurposeName) -> int:
    return sum(amounts[1] for (_, kind), amounts in sums.items() if kind == purpose)


def _row(place: _Place, executed: _Sums, predicted: _Sums, estimated: _Sums) -> ExecutedRow:
    read, written, once = executed.get(place, [0, 0, 0])
    ours, theirs = predicted.get(place, [0, 0]), estimated.get(place, [0, 0])
    return ExecutedRow(
        memory=place[0],
        purpose=place[1],
        read_bytes=read,
        once_bytes=once,
        written_bytes=written,
        predicted_read_bytes=ours[0],
        predicted_written_bytes=ours[1],
        vela_read_bytes=theirs[0],
        vela_written_bytes=theirs[1],
    )
