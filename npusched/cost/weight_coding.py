"""Length of an encoded weight stream, computed from its values without encoding them.

A stream is cut into sections of 128 Ki values with a palette each. Values become indices (palette
entries by frequency, the others by magnitude and sign); where zeros are frequent, runs of zeros
are coded apart. Both are coded by Golomb-Rice codes whose parameters change between *slices* of a
section (``rice_slices``). Sources: VELA_SPEC §5; Vela 5.2.0, ``regor/dependencies/mlw_codec``
(create_palette, update_palette, ml_encode_section, encode_slice). ``emit.mlw_encode`` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.cost.arith import ceil_div, round_up
from npusched.cost.rice_slices import RUN_CODES, WEIGHT_CODES, RiceCode, Slice, search_slices
from npusched.cost.weight_stream import Values

SECTION_VALUES = 128 * 1024
"""Values per section (Vela 5.2.0, ``EncodeWeights``)."""

_ZERO_FREQUENCY = 5
_LONGEST_SLICE = (1 << 15) - 1
_SLICE_HEADER_BITS = 23
_PALETTE_HEADER_BITS = 13
_END_MARKER_BITS = 3
_CHUNK_SYMBOLS = 12
_PALETTE = 32
_ORIGIN = 256
Ints = npt.NDArray[np.int64]


class Palette(msgspec.Struct, frozen=True):
    """``index_of[value + 256]``; ``uncompressed_bits`` 0 = that mode cannot be used.

    ``entries``: the codes (magnitude, then sign) of indices below ``size``; larger indices count on
    from code ``offset``.
    """

    index_of: Ints
    size: int
    entry_bits: int
    uncompressed_bits: int
    entries: tuple[int, ...]
    offset: int


class CodedSlice(msgspec.Struct, frozen=True):
    """``weights`` indices from ``start`` on, coded alike, and the zero runs behind each of them."""

    start: int
    weights: int
    code: RiceCode


class CodedSection(msgspec.Struct, frozen=True):
    """A section ready to be written: its palette, indices of weights, lengths of zero runs.

    ``runs`` and ``run_code`` are None where zeros are coded as weights. There is one run before the
    first weight and one behind each.
    """

    palette: Palette
    indices: Ints
    runs: Ints | None
    slices: tuple[CodedSlice, ...]
    run_code: RiceCode | None

    def runs_of(self, each: CodedSlice) -> Ints | None:
        """Return the zero runs that are written with a slice (the first has one more)."""
        if self.runs is None:
            return None
        first = 0 if each.start == 0 else each.start + 1
        runs: Ints = self.runs[first : each.start + each.weights + 1]
        return runs


class CodedStream(msgspec.Struct, frozen=True):
    """Size of an encoded stream, and how many of its zeros are coded as runs."""

    size_bytes: int
    run_zeros: int


def encoded_bytes(stream: Values) -> int:
    """Bytes of one core's encoded stream: all sections, end marker, rounded up to 16."""
    return code_stream(stream).size_bytes


def code_stream(stream: Values) -> CodedStream:
    """Like ``encoded_bytes``, with the number of zeros in runs."""
    bits = zeros = 0
    for section in code_sections(stream):
        bits += _section_bits(section)
        zeros += 0 if section.runs is None else int(section.runs.sum())
    return CodedStream(round_up(ceil_div(bits + _END_MARKER_BITS, 8), 16), zeros)


def code_sections(stream: Values) -> Iterator[CodedSection]:
    """Choose palette and codes of each section of one core's stream."""
    for start in range(0, len(stream), SECTION_VALUES):
        yield _code_section(stream[start : start + SECTION_VALUES])


def _code_section(values: Values) -> CodedSection:
    counts = np.bincount(values.astype(np.int64) + _ORIGIN, minlength=2 * _ORIGIN)
    zero_runs = _uses_zero_runs(values, counts)
    palette = make_palette(counts, zero_runs)
    if not zero_runs:
        symbols, runs = values, None
    elif values.any():
        symbols, runs = values[values != 0], _run_lengths(values)
    else:  # a slice needs a weight: the first zero is coded as one
        symbols, runs = values[:1], np.array([0, len(values) - 1])
    indices = palette.index_of[symbols.astype(np.int64) + _ORIGIN]
    slices = search_slices(indices, WEIGHT_CODES, uncompressed_bits=palette.uncompressed_bits)
    run_code = None if runs is None else _run_code(runs)
    return CodedSection(palette, indices, runs, tuple(_cut(slices)), run_code)


def _run_code(runs: Ints) -> RiceCode:
    """Return the code of all zero runs: every code can code all, so the best one takes all."""
    (only,) = search_slices(runs, RUN_CODES, uncompressed_bits=0)
    return only.code


def _cut(slices: list[Slice]) -> Iterator[CodedSlice]:
    """Cut slices where they are longer than a header can say."""
    start = 0
    for each in slices:
        for at in range(start, each.end, _LONGEST_SLICE):
            yield CodedSlice(at, min(each.end - at, _LONGEST_SLICE), each.code)
        start = each.end


def _section_bits(section: CodedSection) -> int:
    """Bits of one section with its palette."""
    palette = section.palette
    bits = _PALETTE_HEADER_BITS + palette.size * palette.entry_bits
    for each in section.slices:
        indices = section.indices[each.start : each.start + each.weights]
        bits += _SLICE_HEADER_BITS + _weight_bits(indices, each.code, palette.uncompressed_bits)
        runs = section.runs_of(each)
        if runs is not None and section.run_code is not None:
            bits += _run_bits(runs, section.run_code)
    return bits


def _weight_bits(indices: Ints, code: RiceCode, uncompressed_bits: int) -> int:
    """Bits of one slice's indices: unary parts in chunks of 12 symbols, then remainders."""
    if code.uncompressed:
        return len(indices) * uncompressed_bits
    quotient = indices >> code.divisor
    if code.truncated:
        symbols, second = len(indices), int((quotient > 0).sum())
    else:
        symbols, second = int((quotient // 2 + 1).sum()), int(((quotient + 1) // 2).sum())
    unary = ceil_div(symbols, _CHUNK_SYMBOLS) * _CHUNK_SYMBOLS
    return unary + second + len(indices) * code.divisor


def _run_bits(runs: Ints, code: RiceCode) -> int:
    """Bits of one slice's zero runs."""
    chunk = 12 if code.divisor < 3 else 8
    symbols = int(((runs >> code.divisor) + 1).sum())
    return ceil_div(symbols, chunk) * chunk + len(runs) * code.divisor


def _uses_zero_runs(values: Values, counts: Ints) -> bool:
    """Zeros are clearly the most frequent value, and half of them stand in runs of two or more."""
    zeros = int(counts[_ORIGIN])
    others = counts.copy()
    others[_ORIGIN] = 0
    if zeros <= _ZERO_FREQUENCY * int(others.max()):
        return False
    runs = _run_lengths(values)
    return int(runs[runs >= 2].sum()) >= zeros // 2


def _run_lengths(values: Values) -> Ints:
    """Lengths of the runs of zeros before, between and after the other values."""
    places = np.flatnonzero(values)
    edges = np.concatenate(([-1], places, [len(values)]))
    lengths: Ints = np.diff(edges) - 1
    return lengths


def make_palette(counts: Ints, zero_runs: bool) -> Palette:
    """Choose palette and index mapping for ``counts[value + 256]`` as the encoder does."""
    weights = np.arange(-_ORIGIN + 1, _ORIGIN)
    codes = 2 * np.abs(weights) + (weights < 0)
    frequency = counts[1 : 2 * _ORIGIN].copy()
    if zero_runs:
        frequency[_ORIGIN - 1] = 0
    by_code = np.zeros(2 * _ORIGIN, dtype=np.int64)
    by_code[codes] = frequency
    used = np.flatnonzero(by_code)
    total = int(frequency.sum())
    largest = int(used[-1]) if total else 0
    direct = min(int(used[0]), _PALETTE - 1) if total else 0

    only_palette = 0 < len(used) <= _PALETTE
    limit = _PALETTE if only_palette else min(_PALETTE, 2 * _ORIGIN - 1 - largest)
    order = np.lexsort((-np.arange(2 * _ORIGIN), -by_code))  # frequent first, then large codes
    chosen = order[: min(0 if limit == 1 else limit, len(used))]
    size = 2 if len(chosen) == 1 else len(chosen)
    top = int(chosen.max()) if size else 0
    if int(by_code[chosen].sum()) < total // 2:
        size, chosen, top = 0, chosen[:0], largest

    index = np.zeros(2 * _ORIGIN, dtype=np.int64)
    index[weights + _ORIGIN] = np.maximum(codes + (weights == 0) + size - direct, 0)
    for position, code in enumerate(int(c) for c in chosen):
        index[_ORIGIN + (-(code >> 1) if code & 1 else code >> 1)] = position
    entry_bits = max(2, top.bit_length())
    plain_bits = (size - 1).bit_length() if only_palette else 0 if size else entry_bits
    entries = tuple(int(code) for code in chosen) + (0,) * (size - len(chosen))
    return Palette(index, size, entry_bits, plain_bits, entries, direct)
