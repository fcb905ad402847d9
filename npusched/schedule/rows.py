"""Which rows run when: stripes of a chain, the rows they need, and the rows that must be kept.

A chain runs backwards from demand: before the last op makes rows [a, b), the op before it must
have made the rows that this needs, and so on. Rows are OFM rows of the op they belong to. Two
policies exist: *aligned* always makes full stripes (Vela), *demand* makes no row before it is
needed (PLANNER §1).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

import msgspec


class Policy(StrEnum):
    """When a producer in a chain makes rows."""

    ALIGNED = "aligned"
    DEMAND = "demand"


class Window(msgspec.Struct, frozen=True):
    """How rows of an op's OFM map to rows of its primary IFM.

    OFM rows [a, b) need IFM rows [a * stride - pad_top, (b - 1) * stride + extent - pad_top),
    clipped to [0, ifm_rows). ``whole``: every stripe needs all rows (broadcast over height).
    """

    ofm_rows: int
    ifm_rows: int
    stride: int = 1
    extent: int = 1
    pad_top: int = 0
    whole: bool = False

    def needed(self, a: int, b: int) -> tuple[int, int]:
        """IFM rows [lo, hi) that OFM rows [a, b) need."""
        if self.whole:
            return 0, self.ifm_rows
        lo = a * self.stride - self.pad_top
        hi = (b - 1) * self.stride + self.extent - self.pad_top
        if hi > self.ifm_rows:
            hi = self.ifm_rows
        if hi < 1:
            hi = 1
        return 0 if lo < 0 else lo if lo < hi else hi - 1, hi


class Run(msgspec.Struct, frozen=True, eq=False):
    """The stripes of one op of a chain: ``starts``/``ends`` of its OFM rows, in issue order.

    ``kept_rows``: rows of the op's OFM that the rolling buffer must hold (0 for the last op).
    """

    stripe_rows: int
    starts: Sequence[int]
    ends: Sequence[int]
    kept_rows: int

    @property
    def count(self) -> int:
        """Number of stripes."""
        return len(self.starts)

    def sizes(self, window: Window) -> list[tuple[int, int, int]]:
        """Distinct stripes as (start, end, how many cost the same), the first one of each kind.

        Stripes are alike if they have as many OFM rows and need as many IFM rows.
        """
        first: dict[tuple[int, int], tuple[int, int]] = {}
        count: dict[tuple[int, int], int] = {}
        for start, end in zip(self.starts, self.ends, strict=True):
            low, high = window.needed(start, end)
            kind = (end - start, high - low)
            if kind in count:
                count[kind] += 1
            else:
                first[kind], count[kind] = (start, end), 1
        return [(*first[kind], number) for kind, number in count.items()]


def last_run(rows: int, stripe_rows: int) -> Run:
    """Stripes of the last op: ``stripe_rows`` each, the last one what is left of ``rows``."""
    starts = range(0, rows, stripe_rows)
    return Run(stripe_rows=stripe_rows, starts=starts, ends=(*starts[1:], rows), kept_rows=0)


def producer_run(consumer: Run, window: Window, policy: Policy) -> Run:
    """Stripes of the op whose OFM ``consumer`` reads through ``window``.

    The nominal height is consumer's times the stride. Rows that nobody needs are not made.
    ``kept_rows`` is tight: rows made so far minus the first row that an unfinished stripe of the
    consumer still needs, at its largest (proof in PLANNER §1: those rows form one interval, so
    they are distinct modulo its length). It is no less than what one stripe writes: rows that a
    stride beyond the window skips are written all the same.
    """
    rows = window.ifm_rows
    height = min(rows, consumer.stripe_rows * window.stride)
    if window.whole:
        run = last_run(rows, height)
        return Run(stripe_rows=height, starts=run.starts, ends=run.ends, kept_rows=rows)
    starts: list[int] = []
    done = kept = 0
    for start, end in zip(consumer.starts, consumer.ends, strict=True):
        low, high = window.needed(start, end)
        while done < high:
            starts.append(done)
            done = min(done + height, rows if policy is Policy.ALIGNED else high)
            kept = max(kept, done - starts[-1])
        kept = max(kept, done - low)
    return Run(stripe_rows=height, starts=starts, ends=(*starts[1:], done), kept_rows=kept)


def chain_runs(windows: Sequence[Window], stripe_rows: int, policy: Policy) -> list[Run]:
    """Runs of all ops of a chain, first op first. ``windows[k]`` belongs to op k."""
    runs = [last_run(windows[-1].ofm_rows, stripe_rows)]
    for window in reversed(windows[1:]):
        runs.append(producer_run(runs[-1], window, policy))
    return runs[::-1]


Inputs = Sequence[Sequence[tuple[int, Window]]]
"""Per op of a segment: (op of the segment that makes the input, window on it), in input order."""


def segment_runs(
    rows: Sequence[int],
    inputs: Inputs,
    stripe_rows: int,
    policy: Policy,
    *,
    whole: Sequence[int] = (),
) -> list[Run]:
    """Runs of a segment of any shape with one sink, its last op; ``rows`` are OFM rows per op.

    Before an op makes a stripe, its inputs are run, in order, until they have the rows that the
    stripe needs. A buffer keeps what an unfinished reader may still want (see ``producer_run``).
    The ops ``whole`` make all their rows, at the end what the segment itself did not ask for.
    Where every op has one reader this gives the same as ``chain_runs``.
    """
    return _Execution(rows, inputs, stripe_rows, policy).runs(whole)


class _Execution:
    """Event by event, as PLANNER §1 defines it."""

    def __init__(
        self, rows: Sequence[int], inputs: Inputs, stripe_rows: int, policy: Policy
    ) -> None:
        self.rows, self.inputs = rows, inputs
        self.aligned = policy is Policy.ALIGNED
        count = len(rows)
        self.readers: list[list[tuple[int, Window]]] = [[] for _ in range(count)]
        for reader, edges in enumerate(inputs):
            for maker, window in edges:
                self.readers[maker].append((reader, window))
        self.heights = [0] * count
        self.heights[-1] = min(stripe_rows, rows[-1])
        for op in range(count - 2, -1, -1):
            wanted = max(
                window.ifm_rows if window.whole else self.heights[reader] * window.stride
                for reader, window in self.readers[op]
            )
            self.heights[op] = min(rows[op], wanted)
        self.done = [0] * count
        self.kept = [0] * count
        self.starts: list[list[int]] = [[] for _ in range(count)]

    def runs(self, whole: Sequence[int]) -> list[Run]:
        self.make(len(self.rows) - 1, self.rows[-1])
        for op in whole:
            self.make(op, self.rows[op])
        return [
            Run(
                stripe_rows=self.heights[op],
                starts=self.starts[op],
                ends=(*self.starts[op][1:], self.done[op]),
                kept_rows=self.kept[op],
            )
            for op in range(len(self.rows))
        ]

    def make(self, op: int, upto: int) -> None:
        while self.done[op] < upto:
            start = self.done[op]
            end = min(start + self.heights[op], self.rows[op])
            if not self.aligned:
                end = min(end, upto)
            for maker, window in self.inputs[op]:
                self.make(maker, window.needed(start, end)[1])
            self.starts[op].append(start)
            self.done[op] = end
            if self.readers[op]:
                oldest = min(
                    (
                        window.needed(self.done[reader], self.done[reader] + 1)[0]
                        for reader, window in self.readers[op]
                        if self.done[reader] < self.rows[reader]
                    ),
                    default=end,
                )
                self.kept[op] = max(self.kept[op], end - oldest, end - start)


@lru_cache(maxsize=4096)
def stripe_candidates(rows: int) -> tuple[int, ...]:
    """Stripe heights worth trying for an OFM of ``rows`` rows, highest first, whole excluded.

    For each number of stripes the smallest height that gives it: any other height with as many
    stripes keeps more rows. About 2 * sqrt(rows) values.
    """
    return tuple(sorted({-(-rows // count) for count in range(2, rows + 1)}, reverse=True))
