"""The greedy search for Golomb-Rice parameters along a stream of values.

Each parameter's bits are counted along the stream; the current one is left where it cannot code a
value, or where another one is ahead by more than the price of a new slice. If the other one was
better all along, it takes over the slice from its start. Source: Vela 5.2.0, ``search_grc_params``
(regor/dependencies/mlw_codec). The counts of a window are computed at once; a switch restarts the
window behind it.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int32]
_Values = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

SWITCH_BITS = 40
"""Price of a new slice in the search."""

_MAX_QUOTIENT = 31
_MAX_TRUNCATED = 2
_NO_UNCOMPRESSED_BITS = 100
_SHORT_WINDOW = 128
_LONG_WINDOW = 2048
_NEVER = np.iinfo(np.int32).max


class RiceCode(msgspec.Struct, frozen=True):
    """One way to code a value: quotient by 2^divisor in unary, remainder in ``divisor`` bits.

    ``truncated``: quotients 0, 1, 2 in 1, 2, 2 bits. ``limited``: quotients have a maximum.
    """

    divisor: int
    truncated: bool = False
    uncompressed: bool = False
    limited: bool = True


class Slice(msgspec.Struct, frozen=True):
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


class _State(msgspec.Struct):
    """Per code: bits so far, first position since which it can code everything, coded last time."""

    bits: _Ints
    reset: _Ints
    coded: _Bools
    active: int = -1
    active_bits: int = 0


def search_slices(
    values: _Values, codes: tuple[RiceCode, ...], *, uncompressed_bits: int
) -> list[Slice]:
    """Return the slices that the encoder cuts ``values`` into; none if there are no values.

    ``uncompressed_bits`` 0: values cannot be stored uncompressed.
    """
    n = len(codes)
    state = _State(
        np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    )
    slices: list[Slice] = []
    costs, ables = _tables(values, codes, uncompressed_bits)
    at, width = 0, _SHORT_WINDOW
    while at < len(values):
        window = values[at : at + width]
        step = _advance(state, costs[:, window], ables[:, window], at, codes, slices)
        width = min(2 * width, _LONG_WINDOW) if step == len(window) else _SHORT_WINDOW
        at += step
    if len(values) and (not slices or slices[-1].code != codes[state.active]):
        slices.append(Slice(codes[state.active], len(values)))
    elif slices:
        slices[-1] = Slice(slices[-1].code, len(values))
    return slices


def _tables(
    values: _Values, codes: tuple[RiceCode, ...], uncompressed_bits: int
) -> tuple[_Ints, _Bools]:
    """Bits of each possible value under each code, and whether the code can express it."""
    possible = np.arange(int(values.max()) + 1 if len(values) else 1)
    return _costs(possible, codes, uncompressed_bits)


def _costs(
    values: _Values, codes: tuple[RiceCode, ...], uncompressed_bits: int
) -> tuple[_Ints, _Bools]:
    """Bits of each value under each code, and whether the code can express it."""
    cost = np.empty((len(codes), len(values)), dtype=np.int32)
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
    offset: int,
    codes: tuple[RiceCode, ...],
    slices: list[Slice],
) -> int:
    """Go on from ``offset`` to behind the next switch or the window's end; return how far."""
    length = int(cost.shape[1])
    active_line = np.zeros(length + 1, dtype=np.int32)
    if state.active >= 0:
        np.cumsum(cost[state.active], out=active_line[1:])
        active_line += state.active_bits
    counts, failed = _counts(state, cost, can, active_line)
    event = 0
    if state.active >= 0:
        best = np.where(can, counts, _NEVER).min(axis=0)
        leave = ~can[state.active] | (best + SWITCH_BITS < active_line[:-1])
        event = int(leave.argmax())
        if not leave[event]:
            event = length
    _remember(state, counts, can, failed, offset, min(event, length - 1))
    if event == length:
        state.active_bits = int(state.bits[state.active])
        return length
    _switch(state, offset + event, codes, slices)
    return event + 1


def _counts(state: _State, cost: _Ints, can: _Bools, active_line: _Ints) -> tuple[_Ints, _Ints]:
    """Bits of each code after each value, and where it failed last (-1: nowhere in the window).

    Behind a failure a code goes on from the active one's bits.
    """
    total = np.cumsum(cost, axis=1, dtype=np.int32)
    base = np.where(state.coded, state.bits, active_line[0])[:, None]
    failed: _Ints = np.full(can.shape, -1, dtype=np.int32)
    rows = np.flatnonzero(~can.all(axis=1))
    counts: _Ints = base + total
    if len(rows):
        places = np.where(can[rows], -1, np.arange(can.shape[1], dtype=np.int32))
        behind = np.maximum.accumulate(places, axis=1)
        failed[rows] = behind
        since = total[rows] - np.take_along_axis(total[rows], np.maximum(behind, 0), axis=1)
        counts[rows] = np.where(behind >= 0, active_line[behind + 1] + since, counts[rows])
    return counts, failed


def _remember(
    state: _State, counts: _Ints, can: _Bools, failed: _Ints, offset: int, last: int
) -> None:
    """Keep the counts after value ``last`` (relative); a failed code pays the price of a switch."""
    before = counts[:, last - 1] if last > 0 else state.bits
    state.bits = np.where(can[:, last], counts[:, last], before + SWITCH_BITS)
    at = failed[:, last]
    state.reset = np.where(at >= 0, offset + at + 1, state.reset)
    state.coded = can[:, last].copy()


def _switch(state: _State, position: int, codes: tuple[RiceCode, ...], slices: list[Slice]) -> None:
    """Make the best code active; close the slice unless the best one was better all along."""
    usable = np.where(state.coded, state.bits, _NEVER)
    best = int(usable.argmin())
    old = state.active
    if old >= 0:
        better = state.bits[best] < state.bits[old] and state.reset[best] <= state.reset[old]
        if not better:
            slices.append(Slice(codes[old], position))
    state.active = best
    state.active_bits = int(state.bits[best])
