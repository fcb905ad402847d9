"""Length of an encoded weight stream, computed from its values without encoding them.

A stream is cut into sections of 128 Ki values with a palette each. Values become indices (palette
entries by frequency, the others by magnitude and sign); where zeros are frequent, runs of zeros
are coded apart. Both are coded by Golomb-Rice codes whose parameters change between *slices* of a
section (``rice_slices``). Sources: VELA_SPEC §5; Vela 5.2.0, ``regor/dependencies/mlw_codec``
(create_palette, update_palette, ml_encode_section, encode_slice).
"""

from __future__ import annotations

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
    """``index_of[value + 256]``; ``uncompressed_bits`` 0 = that mode cannot be used."""

    index_of: Ints
    size: int
    entry_bits: int
    uncompressed_bits: int


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
    for start in range(0, len(stream), SECTION_VALUES):
        section_bits, section_zeros = _section(stream[start : start + SECTION_VALUES])
        bits += section_bits
        zeros += section_zeros
    return CodedStream(round_up(ceil_div(bits + _END_MARKER_BITS, 8), 16), zeros)


def _section(values: Values) -> tuple[int, int]:
    """Bits of one section with its palette, and its zeros that are coded as runs."""
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
    uncompressed = palette.uncompressed_bits
    slices = search_slices(indices, WEIGHT_CODES, uncompressed_bits=uncompressed)
    run_slices = None if runs is None else search_slices(runs, RUN_CODES, uncompressed_bits=0)
    bits = _PALETTE_HEADER_BITS + palette.size * palette.entry_bits
    bits += _slice_bits(indices, slices, runs, run_slices, uncompressed)
    return bits, 0 if runs is None else int(runs.sum())


def _slice_bits(
    indices: Ints,
    slices: list[Slice],
    runs: Ints | None,
    run_slices: list[Slice] | None,
    uncompressed_bits: int,
) -> int:
    """Walk over the slices of a section as the encoder does, adding up their bits."""
    bits = at = w = z = 0
    while at < len(indices):
        code = slices[w].code
        length = min(slices[w].end - at, _LONGEST_SLICE)
        bits += _SLICE_HEADER_BITS
        bits += _weight_bits(indices[at : at + length], code, uncompressed_bits)
        step = length
        if runs is not None and run_slices is not None:
            first = 0 if at == 0 else at + 1
            bits += _run_bits(runs[first : at + length + 1], run_slices[z].code)
            step = min(length, min(run_slices[z].end - at, _LONGEST_SLICE))
        at += step
        if slices[w].end <= at:
            w += 1
        if run_slices is not None and z + 1 < len(run_slices) and run_slices[z].end <= at:
            z += 1
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
    return Palette(index, size, entry_bits, plain_bits)
