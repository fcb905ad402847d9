"""Rows of a chain against a slow event-by-event execution that knows nothing of the formulas."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.schedule.rows import (
    Policy,
    Run,
    Window,
    chain_runs,
    last_run,
    producer_run,
    segment_runs,
    stripe_candidates,
)


class _Slow:
    """Executes a chain row by row: a producer runs only when a consumer asks (PLANNER §1)."""

    def __init__(self, windows: list[Window], heights: list[int], policy: Policy) -> None:
        self.windows, self.heights, self.policy = windows, heights, policy
        self.done = [0] * len(windows)
        self.stripes: list[list[tuple[int, int]]] = [[] for _ in windows]
        self.kept = [0] * len(windows)
        self.run(len(windows) - 1, windows[-1].ofm_rows)

    def run(self, v: int, upto: int) -> None:
        rows = self.windows[v].ofm_rows
        while self.done[v] < upto:
            a = self.done[v]
            b = min(a + self.heights[v], rows)
            if self.policy is Policy.DEMAND:
                b = min(b, upto)
            if v:
                self.run(v - 1, self.windows[v].needed(a, b)[1])
                low = self.windows[v].needed(a, b)[0]
                self.kept[v - 1] = max(self.kept[v - 1], self.done[v - 1] - low)
            self.stripes[v].append((a, b))
            self.done[v] = b
            if v < len(self.windows) - 1:
                self.kept[v] = max(self.kept[v], b - a)  # all rows of a stripe are written


@st.composite
def chains(draw: st.DrawFn) -> list[Window]:
    """Up to five ops; heights chain (IFM rows of one = OFM rows of the one before)."""
    rows = draw(st.integers(3, 40))
    windows: list[Window] = []
    for _ in range(draw(st.integers(1, 5))):
        extent = draw(st.integers(1, 5))
        stride = draw(st.integers(1, 3))
        pad = draw(st.integers(0, extent // 2))
        below = draw(st.integers(0, extent // 2))
        ofm = (rows + pad + below - extent) // stride + 1
        if ofm < 1:
            break
        windows.append(
            Window(ofm_rows=ofm, ifm_rows=rows, stride=stride, extent=extent, pad_top=pad)
        )
        rows = ofm
    return windows or [Window(ofm_rows=rows, ifm_rows=rows)]


@settings(deadline=None)
@given(chains(), st.integers(1, 12), st.sampled_from(list(Policy)))
def test_runs_equal_event_by_event_execution(
    windows: list[Window], height: int, policy: Policy
) -> None:
    height = min(height, windows[-1].ofm_rows)
    runs = chain_runs(windows, height, policy)
    slow = _Slow(windows, [r.stripe_rows for r in runs], policy)
    for run, stripes, kept in zip(runs, slow.stripes, slow.kept, strict=True):
        assert list(zip(run.starts, run.ends, strict=True)) == stripes
        assert run.kept_rows == kept


@settings(deadline=None)
@given(chains(), st.integers(1, 12), st.sampled_from(list(Policy)))
def test_general_execution_equals_chain_formula(
    windows: list[Window], height: int, policy: Policy
) -> None:
    height = min(height, windows[-1].ofm_rows)
    inputs = [[] if k == 0 else [(k - 1, windows[k])] for k in range(len(windows))]
    general = segment_runs([w.ofm_rows for w in windows], inputs, height, policy)
    for a, b in zip(chain_runs(windows, height, policy), general, strict=True):
        assert (a.stripe_rows, list(a.starts), list(a.ends), a.kept_rows) == (
            b.stripe_rows,
            list(b.starts),
            list(b.ends),
            b.kept_rows,
        )


def test_residual_join_keeps_rows_for_the_slower_branch() -> None:
    """x -> conv 3x3 -> conv 3x3 -> add(x): 8 rows, stripes of 1, demand.

    For row r of the sum, the second conv needs rows up to r + 1 of the first, and that needs rows
    up to r + 2 of x; the sum has finished row r - 1, so rows r .. r + 2 of x are alive: 3. The
    first conv's rows r - 1 .. r + 1 feed the second: 3. The second's row r is used at once: 1.
    """
    plain = Window(ofm_rows=8, ifm_rows=8)
    conv = Window(ofm_rows=8, ifm_rows=8, extent=3, pad_top=1)
    inputs = [[], [(0, conv)], [(1, conv)], [(2, plain), (0, plain)]]
    x, first, second, _ = segment_runs([8, 8, 8, 8], inputs, 1, Policy.DEMAND)
    assert (x.kept_rows, first.kept_rows, second.kept_rows) == (3, 3, 1)
    assert x.starts[:3] == [0, 1, 2]


def test_two_3x3_convolutions_by_hand() -> None:
    """48 rows, 3x3, pad 1, final stripe 4.

    Stripe k of the second conv needs rows 4k-1 .. 4k+5 of the first: 5 rows for k = 0, 6 inside.
    Demand: 5, then 4 at a time: the first stripe is cut 4 + 1. Kept: 6 rows (Vela keeps
    rup(4 + 6, 6) = 12). Aligned: done is 8 after the first, so 4k+8 - (4k-1) = 9 rows.
    """
    window = Window(ofm_rows=48, ifm_rows=48, extent=3, pad_top=1)
    demand = producer_run(last_run(48, 4), window, Policy.DEMAND)
    assert demand.kept_rows == 6
    assert list(demand.starts[:4]) == [0, 4, 5, 9]
    aligned = producer_run(last_run(48, 4), window, Policy.ALIGNED)
    assert aligned.kept_rows == 9
    assert aligned.count == 12


@pytest.mark.parametrize("policy", list(Policy))
def test_rows_that_a_stride_skips_are_written_all_the_same(policy: Policy) -> None:
    """1x1, stride 3, stripes of 2: rows 0, 3, 6, 9 of 12 are needed, and made 6 at a time.

    Aligned: 0 .. 5 and 6 .. 11. Demand stops behind row 3, so the next stripe is 4 .. 9. Either
    way a stripe writes 6 rows; the 4 rows from the first to the last that is read could not.
    """
    window = Window(ofm_rows=4, ifm_rows=12, stride=3)
    run = producer_run(last_run(4, 2), window, policy)
    general, _ = segment_runs([12, 4], [[], [(0, window)]], 2, policy)
    assert max(end - start for start, end in zip(run.starts, run.ends, strict=True)) == 6
    assert (run.kept_rows, general.kept_rows) == (6, 6)


def test_sizes_count_every_stripe_once() -> None:
    """Stripes 0-4 and 4-8 need 9 rows each, 8-10 needs rows 16-20 (one is cut off): 4."""
    window = Window(ofm_rows=10, ifm_rows=20, stride=2, extent=3, pad_top=0)
    run = last_run(10, 4)
    assert run.sizes(window) == [(0, 4, 2), (8, 10, 1)]


def test_broadcast_input_keeps_everything() -> None:
    run = producer_run(last_run(8, 2), Window(ofm_rows=8, ifm_rows=5, whole=True), Policy.DEMAND)
    assert run.kept_rows == 5
    assert list(zip(run.starts, run.ends, strict=True)) == [(0, 2), (2, 4), (4, 5)]


@pytest.mark.parametrize("rows", [1, 2, 7, 48, 112])
def test_candidates_cover_every_number_of_stripes(rows: int) -> None:
    reachable = {-(-rows // h) for h in range(1, rows)}
    assert {-(-rows // h) for h in stripe_candidates(rows)} == reachable


@given(st.integers(1, 60), st.integers(1, 60))
def test_last_run_covers_all_rows_once(rows: int, height: int) -> None:
    run: Run = last_run(rows, min(rows, height))
    covered = [row for a, b in zip(run.starts, run.ends, strict=True) for row in range(a, b)]
    assert covered == list(range(rows))
