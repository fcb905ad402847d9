"""Tables of the page: heads and rows of cells, which the template writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from markupsafe import Markup

from npusched.report.compare_text import how, ranked_ops, total_cells, total_rows
from npusched.report.compare_types import CompareReport
from npusched.report.frontier import spread
from npusched.report.frontier_types import FrontierReport
from npusched.report.svg.memory import peak_buffers
from npusched.report.svg.words import (
    BUFFER_NAMES,
    bound_name,
    op_number,
    segment_range,
    shape_text,
)
from npusched.report.text_tables import op_seconds
from npusched.report.types import OpFacts, PlanReport
from npusched.report.units import (
    group_digits,
    human_bytes,
    human_seconds,
    percent_change,
    plain_text,
    plural,
    short_name,
)
from npusched.vela.join import JoinedOp, Side

MAX_OPS: Final = 320
"""Most kernels of the table, the longest; the JSON has all."""

FULL_NAME: Final = 200
"""Most characters of a name that is shown on hover."""

WORST: Final = 8


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A column: classes "n" (a number, flush right) and "opt" (left out where there is no room)."""

    title: str
    classes: str = ""
    sorted: Literal["", "ascending", "descending"] = ""
    why: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Cells in order; strings are escaped by the template."""

    cells: tuple[str, ...]
    classes: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table; ``bound``: index of the column that says what a kernel waits for."""

    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    id: str = ""
    sorts: bool = False
    bound: int | None = None


_OP_HEADS: Final = (
    Head(title="#", classes="n", sorted="ascending", why="number of the op in the file"),
    Head(title="kernel"),
    Head(title="out h×w×c", classes="opt"),
    Head(title="cycles", classes="n"),
    Head(title="time %", classes="n"),
    Head(title="MACs %", classes="n opt", why="share of the MAC array that is busy"),
    Head(title="read KiB", classes="n opt", why="bytes read from all memories"),
    Head(title="written KiB", classes="n opt", why="bytes written to all memories"),
    Head(title="runs", classes="opt", why="whole, or how many stripes; of which fused chain"),
    Head(title="bound by"),
)


def op_table(report: PlanReport) -> Table:
    """Every kernel (at most ``MAX_OPS``, the longest) with what it costs and waits for."""
    total = sum(op_seconds(report, op) for op in report.ops) or 1.0
    longest = sorted(report.ops, key=lambda op: -op_seconds(report, op))[:MAX_OPS]
    kept = {op.id for op in longest}
    rows = [_op_row(report, op, total) for op in report.ops if op.id in kept]
    return Table(heads=_OP_HEADS, rows=tuple(rows), id="op-table", sorts=True, bound=9)


def _op_row(report: PlanReport, op: OpFacts, total: float) -> Row:
    segment = report.segments[op.segment]
    runs = "whole"
    if len(segment.ops) > 1:
        runs = f"{group_digits(segment.stripes)}× in {segment_range(segment)}"
    elif segment.stripes > 1:
        runs = plural(segment.stripes, "stripe")
    busy = "-"
    if report.target.accelerator is not None and op.cycles:
        rate = op.macs / (op.cycles * report.target.accelerator.macs_per_cycle)
        busy = f"{100 * rate:.1f}" if op.macs else "-"
    kind = "+".join(plain_text(part, 32) for part in (op.kind, *op.fused))
    many = f" ×{group_digits(op.count)}" if op.count > 1 else ""
    cells = (
        op_number(op).removeprefix("#"),
        Markup('<span class="k">{}</span> {}').format(kind + many, named(op.name)),
        shape_text(op.ofm_shape),
        group_digits(op.cycles + op.cpu_cycles),
        f"{100 * op_seconds(report, op) / total:.1f}",
        busy,
        _kib(op.bytes_read),
        _kib(op.bytes_written),
        runs,
        bound_name(op.bound_by),
    )
    return Row(cells=cells, classes=op.placement)


def named(name: str) -> str:
    """The last part of a name; the whole one on hover."""
    short, full = short_name(name, 32), plain_text(name, FULL_NAME)
    if short == full:
        return Markup('<span class="nm">{}</span>').format(short)
    return Markup('<span class="nm" title="{}">{}</span>').format(full, short)


def _kib(moved: Mapping[str, int]) -> str:
    total = sum(moved.values())
    return f"{total / 1024:.1f}" if total else "0"


def peak_table(report: PlanReport) -> tuple[str, Table]:
    """What is alive at the peak, the largest first, and a title for it."""
    step, alive = peak_buffers(report)
    where = segment_range(report.segments[step]) or "the start"
    rows = [
        Row(
            cells=(
                named(item.tensor),
                BUFFER_NAMES[item.kind],
                group_digits(item.offset),
                group_digits(item.size_bytes),
                group_digits(item.size_bytes - item.logical_bytes),
            )
        )
        for item in alive[:60]
    ]
    heads = (
        Head(title="tensor or op"),
        Head(title="what"),
        Head(title="address", classes="n"),
        Head(title="bytes", classes="n"),
        Head(title="of them padding", classes="n"),
    )
    return f"What is alive at the peak ({where})", Table(heads=heads, rows=tuple(rows))


def memory_table(report: PlanReport) -> Table:
    """The target's memories, what each is for, and what an inference moves."""
    roles = report.target.roles
    uses = {"constants": roles.const, "arena": roles.arena, "cache": roles.cache}
    if roles.cache == roles.arena:
        del uses["cache"]
    rows = []
    for memory in report.target.memories:
        read = sum(op.bytes_read.get(memory.name, 0) for op in report.ops)
        written = sum(op.bytes_written.get(memory.name, 0) for op in report.ops)
        capacity = memory.capacity_bytes
        rows.append(
            Row(
                cells=(
                    plain_text(memory.name, 24),
                    memory.kind.value.replace("_", " "),
                    ", ".join(use for use, where in uses.items() if where == memory.name) or "-",
                    f"{memory.bandwidth_bytes_per_cycle:.3g}",
                    "-" if capacity is None else human_bytes(capacity),
                    human_bytes(read),
                    human_bytes(written),
                )
            )
        )
    titles = ("memory", "kind", "holds", "B/cycle", "capacity", "read", "written")
    heads = tuple(Head(title=title, classes="n" if k > 2 else "") for k, title in enumerate(titles))
    return Table(heads=heads, rows=tuple(rows))


def frontier_table(report: FrontierReport) -> Table:
    """At most 40 plans of the frontier, the most SRAM first."""
    rows = []
    for index in spread(len(report.points), 40):
        point = report.points[index]
        sums = point.totals
        whose = "npusched" if point.source == "npusched" else "Vela's own"
        rows.append(
            Row(
                cells=(
                    group_digits(sums.sram_peak_bytes),
                    group_digits(sums.cycles),
                    human_seconds(sums.latency_s),
                    human_bytes(sums.dram_bytes + sums.flash_bytes),
                    str(point.fused_ops),
                    whose,
                )
            )
        )
    titles = ("SRAM bytes", "NPU cycles", "latency", "DRAM and flash", "fused ops", "plan")
    heads = tuple(Head(title=title, classes="n" if k < 5 else "") for k, title in enumerate(titles))
    return Table(heads=heads, rows=tuple(rows), sorts=False)


def totals_table(report: CompareReport) -> Table:
    """The totals of both sides, as the text form has them."""
    titles = ("", "cycles", "NPU only", "NPU time", "CPU time", "SRAM peak", "DRAM", "flash")
    heads = tuple(Head(title=title, classes="n" if k else "") for k, title in enumerate(titles))
    rows = [Row(cells=(title.strip(), *total_cells(total))) for title, total in total_rows(report)]
    return Table(heads=heads, rows=tuple(rows))


def worst_table(report: CompareReport) -> Table:
    """The ops where our plan loses most against Vela's schedule, then those that part most."""
    ranked = ranked_ops(report)
    lost = [op for op in ranked if _lead(op) > 0]
    others = [op for op in ranked if _lead(op) < 0]
    shown = (lost + others)[:WORST]
    rows = [
        Row(
            cells=(
                _op_with_ways(op),
                _cycles(op.npusched),
                _cycles(op.vela_recosted or op.vela),
                _change(op),
            )
        )
        for op in shown
    ]
    heads = (
        Head(title="op"),
        Head(title="npusched", classes="n"),
        Head(title="Vela", classes="n"),
        Head(title="change", classes="n"),
    )
    caption = "Where the two part most"
    if lost:
        caption += f", losses first ({plural(len(lost), 'op')})"
    if not shown:
        caption = "Every op takes the same cycles on both sides"
    return Table(heads=heads, rows=tuple(rows), caption=caption)


def _op_with_ways(op: JoinedOp) -> str:
    """Kind and name of an op, and how each side runs it."""
    kind = plain_text(op.kind, 32)
    text = '<span class="k">#{} {}</span> {}<span class="how">ours {}; Vela {}</span>'
    return Markup(text).format(op.index, kind, named(op.name), how(op.npusched), how(op.vela))


def _lead(op: JoinedOp) -> int:
    """Cycles that Vela's schedule of an op saves against ours."""
    theirs = op.vela_recosted or op.vela
    if op.npusched is None or theirs is None:
        return 0
    return op.npusched.cycles - theirs.cycles


def _cycles(side: Side | None) -> str:
    return "-" if side is None else group_digits(side.cycles)


def _change(op: JoinedOp) -> str:
    theirs = op.vela_recosted or op.vela
    if op.npusched is None or theirs is None or not theirs.cycles:
        return "-"
    return percent_change(op.npusched.cycles, theirs.cycles)
