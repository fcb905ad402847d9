"""Encoder of the weight streams that the NPU reads (MLW), in numpy.

The counterpart of ``sim.mlw``, which describes the format; palettes and codes are chosen by
``cost.weight_coding`` as Vela chooses them, so that sizes equal those that plans reckon with.
Codes stand in chunks whose places depend on those before: they are found one chunk at a time, all
bits are then set at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npusched.cost.rice_slices import RiceCode
from npusched.cost.weight_coding import CodedSection, CodedSlice, Ints, Palette, code_sections
from npusched.cost.weight_stream import Values

_Bits = npt.NDArray[np.uint8]

ALIGNMENT_BITS = 128
"""Streams end at multiples of 16 bytes, filled with ones."""

_NO_ZERO_RUNS = 6
_UNCOMPRESSED = 7
_END_BITS = 3
_LANES = 12
_SHORT_LANES = 8
_LEAD = 8
"""Weights pause when they are this many symbols ahead of zero runs."""


def encode_mlw(stream: Values) -> bytes:
    """Return one core's stream of weights encoded, a multiple of 16 bytes.

    ``stream``: weights minus zero point in the order in which the NPU wants them, -255 .. 255.
    """
    parts = [part for section in code_sections(stream) for part in _section(section)]
    size_bits = sum(map(len, parts)) + _END_BITS
    parts.append(np.ones(_END_BITS + -size_bits % ALIGNMENT_BITS, np.uint8))
    return np.packbits(np.concatenate(parts), bitorder="little").tobytes()


def _section(section: CodedSection) -> list[_Bits]:
    """Return the bits of a section: per slice a header, the first with the palette, and codes."""
    parts = []
    for each in section.slices:
        is_new = each.start == 0
        parts.append(_header(each, section.run_code, is_new))
        if is_new:
            parts.append(_palette(section.palette))
        indices = section.indices[each.start : each.start + each.weights]
        weights = _weights(indices, each.code, section.palette.uncompressed_bits)
        runs = section.runs_of(each)
        coded = None
        if runs is not None and section.run_code is not None:
            coded = _runs(runs, section.run_code)
        parts.append(_write(weights, coded))
    return parts


def _fields(*fields: tuple[int, int]) -> _Bits:
    """Return (value, width) fields as bits, low ones first."""
    return np.array([value >> bit & 1 for value, width in fields for bit in range(width)], np.uint8)


def _header(each: CodedSlice, run_code: RiceCode | None, is_new: bool) -> _Bits:
    return _fields(
        (_NO_ZERO_RUNS if run_code is None else run_code.divisor, 3),
        (each.weights - 1, 15),
        (_UNCOMPRESSED if each.code.uncompressed else each.code.divisor, 3),
        (int(each.code.truncated), 1),
        (int(is_new), 1),
    )


def _palette(palette: Palette) -> _Bits:
    return _fields(
        (palette.offset, 5),
        (max(palette.size - 1, 0), 5),
        (palette.entry_bits - 2, 3),
        *((entry, palette.entry_bits) for entry in palette.entries),
    )


@dataclass(frozen=True, slots=True)
class _Coded:
    """Symbols of a slice in chunks of ``lanes`` lanes.

    ``codes`` (chunks, lanes): 0 ends a symbol, so does 1 for weights; a lane above 0 sets its unary
    bit and, with ``has_second``, has a second bit that says whether it is 2. ``ends``: lane in
    which each symbol ends. ``unary_bits`` per chunk, 0 for values that are stored as they are.
    """

    codes: Ints
    ends: Ints
    remainders: Ints
    remainder_bits: int
    unary_bits: int
    has_second: bool

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.codes)

    @property
    def home(self) -> Ints:
        """Chunk in which each symbol ends."""
        found: Ints = self.ends // self.codes.shape[1]
        return found

    @property
    def symbols(self) -> Ints:
        """Symbols that end in each chunk."""
        return np.bincount(self.home, minlength=self.chunks)

    @property
    def second_bits(self) -> Ints:
        """Second bits in each chunk."""
        counts: Ints = (self.codes > 0).sum(axis=1) * self.has_second
        return counts


def _chunked(lanes: Ints, width: int) -> Ints:
    return np.pad(lanes, (0, -len(lanes) % width)).reshape(-1, width)


def _weights(indices: Ints, code: RiceCode, uncompressed_bits: int) -> _Coded:
    """Lay out palette indices: quotients 0, 1, 2 in one lane, or runs of twos and a last 0 or 1."""
    count = len(indices)
    if code.uncompressed:
        width = _SHORT_LANES if uncompressed_bits > 5 else _LANES
        empty = _chunked(np.zeros(count, np.int64), width)
        return _Coded(empty, np.arange(count), indices, uncompressed_bits, 0, False)
    quotients = indices >> code.divisor
    if code.truncated:
        lanes, ends = quotients, np.arange(count)
    else:
        ends = np.cumsum(quotients // 2 + 1) - 1
        lanes = np.full(int(ends[-1]) + 1, 2)
        lanes[ends] = quotients % 2
    remainders = indices & ((1 << code.divisor) - 1)
    return _Coded(_chunked(lanes, _LANES), ends, remainders, code.divisor, _LANES, True)


def _runs(runs: Ints, code: RiceCode) -> _Coded:
    """Lay out zero runs: quotients as ones, ended by 0."""
    width = _LANES if code.divisor < 3 else _SHORT_LANES
    ends = np.cumsum((runs >> code.divisor) + 1) - 1
    lanes = np.ones(int(ends[-1]) + 1, np.int64)
    lanes[ends] = 0
    remainders = runs & ((1 << code.divisor) - 1)
    return _Coded(_chunked(lanes, width), ends, remainders, code.divisor, width, False)


class _Writer:
    """Where the chunks of one kind go. ``pending``: chunk whose remainders are due, -1 = none."""

    def __init__(self, coded: _Coded) -> None:
        self.chunks = coded.chunks
        self.symbols: list[int] = coded.symbols.tolist()
        self.unary_bits = coded.unary_bits
        self.second_bits: list[int] = coded.second_bits.tolist()
        self.remainder_bits = coded.remainder_bits
        self.unary: list[int] = []
        self.second: list[int] = []
        self.remainders: list[int] = []
        self.done = 0
        self.pending = -1

    @property
    def is_left(self) -> bool:
        """True if there are more chunks."""
        return len(self.unary) < self.chunks

    def place_unary(self, position: int) -> int:
        """Place the next chunk's unary bits; return what follows."""
        self.unary.append(position)
        return position + self.unary_bits

    def place_second(self, position: int) -> int:
        """Place the second bits of the chunk just begun; return what follows."""
        self.second.append(position)
        return position + self.second_bits[len(self.second) - 1]

    def settle(self, position: int, is_taken: bool) -> int:
        """Place the remainders that are due; those of the chunk just taken are due next."""
        if self.pending >= 0:
            self.remainders.append(position)
            position += self.symbols[self.pending] * self.remainder_bits
        self.pending = len(self.unary) - 1 if is_taken else -1
        if is_taken:
            self.done += self.symbols[self.pending]
        return position


def _write(weights: _Coded, runs: _Coded | None) -> _Bits:
    """Interleave the chunks of a slice as the decoder reads them."""
    first = _Writer(weights)
    second = None if runs is None else _Writer(runs)
    position = 0
    while True:
        ahead = 0 if second is None else first.done - second.done
        takes_weights = ahead < _LEAD and first.is_left
        takes_runs = second is not None and ahead >= 0 and second.is_left
        if takes_weights:
            position = first.place_unary(position)
        if takes_runs and second is not None:
            position = second.place_unary(position)
            second.place_second(position)
        if takes_weights:
            position = first.place_second(position)
        position = first.settle(position, takes_weights)
        if second is not None:
            position = second.settle(position, takes_runs)
        if not takes_weights and not takes_runs:
            break
    bits = np.zeros(position, np.uint8)
    _set_bits(bits, weights, first)
    if runs is not None and second is not None:
        _set_bits(bits, runs, second)
    return bits


def _set_bits(bits: _Bits, coded: _Coded, writer: _Writer) -> None:
    """Set all bits of one kind."""
    places = (writer.unary, writer.second, writer.remainders)
    unary, second, remainders = (np.array(each, np.int64) for each in places)
    is_set = coded.codes > 0
    if coded.unary_bits:
        bits[(unary[:, None] + np.arange(coded.codes.shape[1]))[is_set]] = 1
    if coded.has_second:
        rank: Ints = np.cumsum(is_set, axis=1) - is_set
        bits[(second[:, None] + rank)[coded.codes == 2]] = 1
    symbols, home = coded.symbols, coded.home
    order = np.arange(len(coded.ends)) - (np.cumsum(symbols) - symbols)[home]
    starts = remainders[home] + order * coded.remainder_bits
    for bit in range(coded.remainder_bits):
        bits[starts + bit] = coded.remainders >> bit & 1
