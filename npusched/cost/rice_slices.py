"""The greedy search for Golomb-Rice parameters along a stream of values.

Each parameter's bits are counted along the stream; the current one is left where it cannot code a
value, or where another one is ahead by more than the price of a new slice. If the other one was
better all along, it takes over the slice from its start. Source: Vela 5.2.0, ``search_grc_params``
(regor/dependencies/mlw_codec). The counts of a window are computed at once; a switch restarts the
window behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

SWITCH_BITS = 40
"""Price of a new slice in the search."""

_MAX_QUOTIENT = 31
_MAX_TRUNCATED = 2
_NO_UNCOMPRESSED_BITS = 100
_WINDOW = 2048


@dataclass(frozen=True, slots=True)
class RiceCode:
    """One way to code a value: quotient by 2^divisor in unary, remainder in ``divisor`` bits.

    ``truncated``: quotients 0, 1, 2 in 1, 2, 2 bits. ``limited``: quotients have a maximum.
    """

    divisor: int
    truncated: bool = False
    uncompressed: bool = False
    limited: bool = True


@dataclass(frozen=True, slots=True)
class Slice:
    """Values up to ``end`` use ``code``."""

    code: RiceCode
    end: int


WEIGHT_CODES = (
    *(RiceCode(divisor) for divisor in range(6)),
    *(RiceCode(divisor, truncated=True) for divisor in range(6)),
    RiceCode(0, uncompressed=True),
)
"""Codes of weight indices, in the encoder's order."""

RUN_CODES = tuple(RiceCode(divisor, limited=False) for divisor in range(4))
"""Codes of zero runs."""


@dataclass(slots=True)
class _State:
    """Per code: bits so far, first position since which it can code everything, coded last time."""

    bits: _Ints
    reset: _Ints
    coded: _Bools
    active: int = -1
    active_bits: int = 0


def search_slices(
    values: _Ints, codes: tuple[RiceCode, ...], *, uncompressed_bits: int
) -> list[Slice]:
    """Return the slices that the encoder cuts ``values`` into (not empty unless they are).

    ``uncompressed_bits`` 0: values cannot be stored uncompressed.
    """
    n = len(codes)
    state = _State(
        np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    )
    slices: list[Slice] = []
    at = 0
    while at < len(values):
        window = values[at : at + _WINDOW]
        cost, can = _costs(window, codes, uncompressed_bits)
        done = 0
        while done < len(window):
            done = _advance(state, cost, can, done, at, codes, slices)
        at += len(window)
    if len(values) and (not slices or slices[-1].code != codes[state.active]):
        slices.append(Slice(codes[state.active], len(values)))
    elif slices:
        slices[-1] = Slice(slices[-1].code, len(values))
    return slices


def _costs(
    values: _Ints, codes: tuple[RiceCode, ...], uncompressed_bits: int
) -> tuple[_Ints, _Bools]:
    """Bits of each value under each code, and whether the code can express it."""
    cost = np.empty((len(codes), len(values)), dtype=np.int64)
    can = np.ones((len(codes), len(values)), dtype=np.bool_)
    for row, code in enumerate(codes):
        if code.uncompressed:
            cost[row] = uncompressed_bits or _NO_UNCOMPRESSED_BITS
            continue
        quotient = values >> code.divisor
        unary = np.minimum(quotient + 1, 2) if code.truncated else quotient + 1
        cost[row] = unary + code.divisor
        if code.limited:
            can[row] = quotient <= (_MAX_TRUNCATED if code.truncated else _MAX_QUOTIENT)
    return cost, can


def _advance(
    state: _State,
    cost: _Ints,
    can: _Bools,
    start: int,
    offset: int,
    codes: tuple[RiceCode, ...],
    slices: list[Slice],
) -> int:
    """Go on from ``start`` to the next switch or the window's end; return where."""
    cost, can = cost[:, start:], can[:, start:]
    length = cost.shape[1]
    if state.active < 0:
        active_line = np.zeros(length + 1, dtype=np.int64)
    else:
        active_line = state.active_bits + np.concatenate(
            ([0], np.cumsum(cost[state.active], dtype=np.int64))
        )
    counts = _counts(state, cost, can, active_line)
    best = np.where(can, counts, np.iinfo(np.int64).max).min(axis=0)
    if state.active < 0:
        event = 0
    else:
        leave = ~can[state.active] | (best + SWITCH_BITS < active_line[:-1])
        event = int(leave.argmax()) if leave.any() else length
    last = min(event, length - 1)
    _remember(state, counts, can, start + offset, last)
    if event >= length:
        state.active_bits = int(state.bits[state.active])
        return start + length
    _switch(state, start + offset + event, codes, slices)
    return start + event + 1


def _counts(state: _State, cost: _Ints, can: _Bools, active_line: _Ints) -> _Ints:
    """Bits of each code after each value; a code restarts from the active one where it failed."""
    total = np.cumsum(cost, axis=1)
    counts = np.empty_like(total)
    for row in range(len(cost)):
        base = int(state.bits[row]) if state.coded[row] else int(active_line[0])
        line = base + total[row]
        failed = np.flatnonzero(~can[row])
        if len(failed):
            # behind a failure at p: the active code's bits after p, then its own
            which = np.searchsorted(failed, np.arange(len(line)), side="right") - 1
            behind = which >= 0
            p = failed[which[behind]]
            line[behind] = active_line[p + 1] + total[row][behind] - total[row][p]
        counts[row] = line
    return counts


def _remember(state: _State, counts: _Ints, can: _Bools, offset: int, last: int) -> None:
    """Keep the counts after value ``last`` (relative); a failed code pays the price of a switch."""
    before = counts[:, last - 1] if last > 0 else state.bits
    failed = ~can[:, last]
    state.bits = np.where(failed, before + SWITCH_BITS, counts[:, last])
    for row in range(len(can)):
        places = np.flatnonzero(~can[row, : last + 1])
        if len(places):
            state.reset[row] = offset + int(places[-1]) + 1
    state.coded = can[:, last].copy()


def _switch(state: _State, position: int, codes: tuple[RiceCode, ...], slices: list[Slice]) -> None:
    """Make the best code active; close the slice unless the best one was better all along."""
    usable = np.where(state.coded, state.bits, np.iinfo(np.int64).max)
    best = int(usable.argmin())
    old = state.active
    if old >= 0:
        better = state.bits[best] < state.bits[old] and state.reset[best] <= state.reset[old]
        if not better:
            slices.append(Slice(codes[old], position))
    state.active = best
    state.active_bits = int(state.bits[best])
