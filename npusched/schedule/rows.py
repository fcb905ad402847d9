"""Which rows run when: stripes of a chain, the rows they need, and the rows that must be kept.

A chain runs backwards from demand: before the last op makes rows [a, b), the op before it must
have made the rows that this needs, and so on. Rows are OFM rows of the op they belong to. Two
policies exist: *aligned* always makes full stripes (Vela), *demand* makes no row before it is
needed (PLANNER §1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


class Policy(StrEnum):
    """When a producer in a chain makes rows."""

    ALIGNED = "aligned"
    DEMAND = "demand"


@dataclass(frozen=True, slots=True)
class Window:
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
        lo = max(0, a * self.stride - self.pad_top)
        hi = min(self.ifm_rows, (b - 1) * self.stride + self.extent - self.pad_top)
        return min(lo, max(hi - 1, 0)), max(hi, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The stripes of one op of a chain: ``starts``/``ends`` of its OFM rows, in issue order.

    ``kept_rows``: rows of the op's OFM that the rolling buffer must hold (0 for the last op).
    """

    stripe_rows: int
    starts: IntArray
    ends: IntArray
    kept_rows: int

    @property
    def count(self) -> int:
        """Number of stripes."""
        return len(self.starts)

    def sizes(self, window: Window) -> list[tuple[int, int, int]]:
        """Distinct stripes as (start, end, how many cost the same), the first one of each kind.

        Stripes are alike if they have as many OFM rows and need as many IFM rows.
        """
        if window.whole:
            needed = np.full_like(self.starts, window.ifm_rows)
        else:
            low, high = _needed(window, self.starts, self.ends)
            needed = high - low
        code = (self.ends - self.starts) * (1 << 32) + needed
        _, first, counts = np.unique(code, return_index=True, return_counts=True)
        return sorted(
            (int(self.starts[at]), int(self.ends[at]), int(n))
            for at, n in zip(first, counts, strict=True)
        )


def _needed(window: Window, starts: IntArray, ends: IntArray) -> tuple[IntArray, IntArray]:
    high = np.minimum(window.ifm_rows, (ends - 1) * window.stride + window.extent - window.pad_top)
    high = np.maximum(high, 1)
    low = np.maximum(0, starts * window.stride - window.pad_top)
    return np.minimum(low, high - 1), high


def last_run(rows: int, stripe_rows: int) -> Run:
    """Stripes of the last op: ``stripe_rows`` each, the last one what is left of ``rows``."""
    starts = np.arange(0, rows, stripe_rows, dtype=np.int64)
    return Run(
        stripe_rows=stripe_rows,
        starts=starts,
        ends=np.minimum(starts + stripe_rows, rows),
        kept_rows=0,
    )


def producer_run(consumer: Run, window: Window, policy: Policy) -> Run:
    """Stripes of the op whose OFM ``consumer`` reads through ``window``.

    The nominal height is consumer's times the stride. Rows that nobody needs are not made.
    ``kept_rows`` is tight: rows made so far minus the first row that an unfinished stripe of the
    consumer still needs, at its largest (proof in PLANNER §1: those rows form one interval, so
    they are distinct modulo its length).
    """
    rows = window.ifm_rows
    height = min(rows, consumer.stripe_rows * window.stride)
    if window.whole:
        run = last_run(rows, height)
        return Run(stripe_rows=height, starts=run.starts, ends=run.ends, kept_rows=rows)
    low, high = _needed(window, consumer.starts, consumer.ends)
    high = np.maximum.accumulate(high)
    if policy is Policy.ALIGNED:
        done = np.minimum(-(-high // height) * height, rows)
        starts = np.arange(0, int(done[-1]), height, dtype=np.int64)
        ends = np.minimum(starts + height, rows)
    else:
        done = high
        starts, ends = _pieces(done, height)
    return Run(
        stripe_rows=height,
        starts=starts,
        ends=ends,
        kept_rows=int(np.max(done - np.minimum(low, done))),
    )


def _pieces(done: IntArray, height: int) -> tuple[IntArray, IntArray]:
    """Cut the steps between successive ``done`` values into stripes of at most ``height`` rows."""
    edges = np.unique(done)
    begins = np.concatenate(([0], edges[:-1]))
    if int(np.max(edges - begins)) <= height:
        return begins, edges
    starts: list[int] = []
    for begin, end in zip(begins.tolist(), edges.tolist(), strict=True):
        starts.extend(range(begin, end, height))
    first = np.array(starts, dtype=np.int64)
    return first, np.concatenate((first[1:], [int(edges[-1])]))


def chain_runs(windows: Sequence[Window], stripe_rows: int, policy: Policy) -> list[Run]:
    """Runs of all ops of a chain, first op first. ``windows[k]`` belongs to op k."""
    runs = [last_run(windows[-1].ofm_rows, stripe_rows)]
    for window in reversed(windows[1:]):
        runs.append(producer_run(runs[-1], window, policy))
    return runs[::-1]


@lru_cache(maxsize=4096)
def stripe_candidates(rows: int) -> tuple[int, ...]:
    """Stripe heights worth trying for an OFM of ``rows`` rows, highest first, whole excluded.

    For each number of stripes the smallest height that gives it: any other height with as many
    stripes keeps more rows. About 2 * sqrt(rows) values.
    """
    return tuple(sorted({-(-rows // count) for count in range(2, rows + 1)}, reverse=True))
