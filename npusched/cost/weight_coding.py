"""Length of an encoded weight stream, computed from its values without encoding them.

A stream is cut into sections of 128 Ki values with a palette each. Values become indices (palette
entries by frequency, the others by magnitude and sign), coded by Golomb-Rice codes with one of a
few parameters; where zeros are frequent, runs of zeros are coded apart. Sources: VELA_SPEC §5; Vela
5.2.0, ``regor/dependencies/mlw_codec`` (create_palette, update_palette, search_grc_params,
encode_slice). The encoder may change the parameters within a section; here the best single ones
count for the whole section, so a result is at most a little too long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from npusched.cost.arith import ceil_div, round_up
from npusched.cost.weight_stream import Values

SECTION_VALUES = 128 * 1024
"""Values per section (Vela 5.2.0, ``EncodeWeights``)."""

_ZERO_FREQUENCY = 5
_LONGEST_SLICE = (1 << 15) - 1
_SLICE_HEADER_BITS = 23
_PALETTE_HEADER_BITS = 13
_CHUNK_SYMBOLS = 12
_PALETTE = 32
_ORIGIN = 256
_MAX_QUOTIENT = 31
_Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Palette:
    """``index_of[value + 256]``; ``uncompressed_bits`` 0 = that mode cannot be used."""

    index_of: _Counts
    size: int
    entry_bits: int
    uncompressed_bits: int


def encoded_bytes(stream: Values) -> int:
    """Bytes of one core's encoded stream: all sections, end marker, rounded up to 16."""
    bits = 0
    sections = 0
    while sections * SECTION_VALUES < len(stream) or sections == 0:
        start = sections * SECTION_VALUES
        bits += _section_bits(stream[start : start + SECTION_VALUES])
        sections += 1
    return round_up(ceil_div(bits + 3, 8), 16)


def _section_bits(values: Values) -> int:
    """Bits of one section with its palette."""
    if len(values) == 0:
        return 0
    counts = np.bincount(values.astype(np.int64) + _ORIGIN, minlength=2 * _ORIGIN)
    zero_runs = _uses_zero_runs(values, counts)
    palette = _palette(counts, zero_runs)
    coded = counts.copy()
    if zero_runs:
        coded[_ORIGIN] = 0
    symbols = np.bincount(palette.index_of, weights=coded, minlength=1).astype(np.int64)
    count = int(coded.sum())
    slices = max(ceil_div(count, _LONGEST_SLICE), 1)
    bits = slices * (_SLICE_HEADER_BITS + _CHUNK_SYMBOLS // 2)
    bits += _PALETTE_HEADER_BITS + palette.size * palette.entry_bits
    bits += _weight_bits(symbols, palette.uncompressed_bits)
    if zero_runs:
        bits += _run_bits(values) + slices * _CHUNK_SYMBOLS // 2
    return bits


def _uses_zero_runs(values: Values, counts: _Counts) -> bool:
    """Zeros are clearly the most frequent value, and half of them stand in runs of two or more."""
    zeros = int(counts[_ORIGIN])
    others = counts.copy()
    others[_ORIGIN] = 0
    if zeros <= _ZERO_FREQUENCY * int(others.max()):
        return False
    runs = _run_lengths(values)
    return int(runs[runs >= 2].sum()) >= zeros // 2


def _run_lengths(values: Values) -> _Counts:
    """Lengths of the runs of zeros before, between and after the other values."""
    places = np.flatnonzero(values)
    edges = np.concatenate(([-1], places, [len(values)]))
    return np.diff(edges) - 1


def _palette(counts: _Counts, zero_runs: bool) -> _Palette:
    """Choose palette and index mapping as the encoder does."""
    weights = np.arange(-_ORIGIN + 1, _ORIGIN)
    coded = 2 * np.abs(weights) + (weights < 0)
    frequency = counts[1 : 2 * _ORIGIN].copy()
    if zero_runs:
        frequency[_ORIGIN - 1] = 0
    total = int(frequency.sum())
    used = frequency > 0
    largest = int(coded[used].max()) if total else 0
    by_code = np.zeros(2 * _ORIGIN, dtype=np.int64)
    by_code[coded] = frequency
    direct = 0
    if total:
        direct = min(int(np.flatnonzero(by_code)[0]), _PALETTE - 1)
    order = np.lexsort((-np.arange(2 * _ORIGIN), -by_code))
    distinct = int(used.sum())
    only_palette = 0 < distinct <= _PALETTE
    limit = _PALETTE if only_palette else min(_PALETTE, 2 * _ORIGIN - 1 - largest)
    size = min(limit if limit != 1 else 0, distinct)
    chosen = order[:size]
    inside = int(by_code[chosen].sum())
    if size == 1:
        size = 2
    largest_entry = int(chosen.max()) if len(chosen) else 0
    if inside < total // 2:
        size, chosen, largest_entry = 0, order[:0], largest
        only_palette = False
    entry_bits = max(2, largest_entry.bit_length())
    index = np.zeros(2 * _ORIGIN, dtype=np.int64)
    index[weights + _ORIGIN] = np.maximum(coded + size - direct, 0)
    for position, code in enumerate(chosen):
        value = -(int(code) >> 1) if int(code) & 1 else int(code) >> 1
        index[value + _ORIGIN] = position
    if only_palette:
        uncompressed = (size - 1).bit_length() if size else 0
    else:
        uncompressed = entry_bits if size == 0 else 0
    return _Palette(index, size, entry_bits, uncompressed)


def _weight_bits(symbols: _Counts, uncompressed_bits: int) -> int:
    """Bits of all indices with the best Golomb-Rice parameter (or none)."""
    used = np.flatnonzero(symbols)
    if not len(used):
        return 0
    times = symbols[used]
    best: list[int] = []
    for divisor in range(6):
        quotient = used >> divisor
        if quotient.max() <= _MAX_QUOTIENT:
            best.append(int((times * (quotient + 1 + divisor)).sum()))
        if quotient.max() <= 2:
            best.append(int((times * (np.minimum(quotient + 1, 2) + divisor)).sum()))
    if uncompressed_bits:
        best.append(int(times.sum()) * uncompressed_bits)
    return min(best) if best else int(times.sum()) * 9


def _run_bits(values: Values) -> int:
    """Bits of all zero runs with the best parameter."""
    runs = _run_lengths(values)
    return min(int(((runs >> divisor) + 1 + divisor).sum()) for divisor in range(4))
