"""Decoder of the weight streams that the NPU reads (MLW), in numpy.

Format facts from Vela 5.2.0, mlw_decode.c. A stream is a run of slices, each with a header, an
optional palette and interleaved Golomb-Rice codes of weights and of zero runs; code 7 in the
place of a slice's first field ends a part (bytes are aligned, another part or the end follows).

Codes come in chunks of up to 12 symbols whose length depends on their own bits, so positions are
found one chunk at a time; everything else is done for all symbols of a slice at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from npusched.errors import SimError

Int16Array = npt.NDArray[np.int16]
_Ints = npt.NDArray[Any]

_END = 7
_NO_ZERO_RUNS = 6
_UNCOMPRESSED = 7
_CHUNK = 12
_WINDOW_BITS = 12
_BALANCE = 8
_MAX_VALUE = 512
"""Coded values have 9 bits."""

_POPULATION = bytes(value.bit_count() for value in range(1 << _WINDOW_BITS))
_LANES = np.arange(_CHUNK)
_COUNTED = np.arange(_MAX_VALUE, dtype=np.int64)


def decode_mlw(stream: bytes) -> Int16Array:
    """Return the weights of an encoded stream, in stream order, zeros included (int16).

    Linear in the length of the stream and of the result. Raises SimError for a stream that is
    truncated or that no encoder could have written.
    """
    size_bits = 8 * len(stream)
    windows = _windows(stream)
    view = windows.data
    parts: list[npt.NDArray[np.int64]] = []
    position = 0
    palette: _Palette | None = None
    try:
        while True:
            run_code = view[position] & 7
            position += 3
            while run_code == _END:
                position = (position + 7) & ~7
                palette = None
                if position == size_bits:
                    return _join(parts)
                run_code = view[position] & 7
                position += 3
            header, palette, position = _read_header(view, position, run_code, palette)
            values, position = _read_slice(windows, view, position, header, palette)
            if position > size_bits:
                raise _damaged(f"it ends after {len(stream)} bytes, in mid-slice")
            parts.append(values)
    except IndexError:
        raise _damaged(f"it ends after {len(stream)} bytes, without an end mark") from None


def _damaged(why: str) -> SimError:
    return SimError(
        "cannot decode the encoded weights", why, "the compiled file is damaged: compile again"
    )


def _join(parts: list[_Ints]) -> Int16Array:
    joined = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return joined.astype(np.int16)


def _windows(stream: bytes) -> npt.NDArray[np.uint16]:
    """Return the 12 bits that begin at each bit position (zeros behind the end)."""
    padded = np.frombuffer(stream + b"\0\0", np.uint8).astype(np.uint32)
    three = padded[:-2] | padded[1:-1] << 8 | padded[2:] << 16
    shifted = three[:, None] >> np.arange(8, dtype=np.uint32)[None, :]
    return (shifted & 0xFFF).astype(np.uint16).ravel()


@dataclass(frozen=True, slots=True)
class _Palette:
    """Values of small codes; larger codes count on from an offset. ``index_bits`` of raw codes.

    ``signed``: the weight of every code.
    """

    signed: _Ints
    index_bits: int
    has_zero_runs: bool


@dataclass(frozen=True, slots=True)
class _Header:
    """One slice: number of nonzero-run weights, code lengths, whether it renews the palette."""

    weights: int
    remainder_bits: int
    truncated: bool
    uncompressed: bool
    zero_bits: int
    has_zero_runs: bool
    is_new: bool

    @property
    def zero_runs(self) -> int:
        """Zero runs in the slice: one behind each weight, one more before the first if renewed."""
        return self.weights + self.is_new if self.has_zero_runs else 0


def _read_header(
    view: memoryview, position: int, run_code: int, palette: _Palette | None
) -> tuple[_Header, _Palette, int]:
    """Read a slice header behind its first field; return it, its palette and what follows."""
    if run_code in (4, 5):
        raise _damaged(f"zero-run code {run_code} is not in use")
    count = (view[position] | (view[position + 12] & 7) << 12) + 1
    code = view[position + 15] & 7
    truncated, is_new = bool(view[position + 18] & 1), bool(view[position + 19] & 1)
    position += 20
    has_zero_runs = run_code != _NO_ZERO_RUNS
    if code == 6:
        raise _damaged("weight code 6 is not in use")
    if is_new:
        palette, position = _read_palette(view, position, has_zero_runs)
    elif palette is None:
        raise _damaged("its first slice defines no palette")
    elif palette.has_zero_runs != has_zero_runs:
        raise _damaged("zero runs change without a new palette")
    uncompressed = code == _UNCOMPRESSED
    header = _Header(
        weights=count,
        remainder_bits=palette.index_bits if uncompressed else code,
        truncated=truncated,
        uncompressed=uncompressed,
        zero_bits=run_code if has_zero_runs else 0,
        has_zero_runs=has_zero_runs,
        is_new=is_new,
    )
    return header, palette, position


def _read_palette(view: memoryview, position: int, has_zero_runs: bool) -> tuple[_Palette, int]:
    offset = view[position] & 31
    size = view[position + 5] & 31
    size += size > 0
    bits = (view[position + 10] & 7) + 2
    position += 13
    mask = (1 << bits) - 1
    coded = [view[position + i * bits] & mask for i in range(size)]
    table = np.concatenate([np.array(coded, np.int64), _COUNTED + offset])
    signed = np.where(table & 1, -(table >> 1), table >> 1)
    index_bits = (size - 1).bit_length() if size else bits
    return _Palette(signed, index_bits, has_zero_runs), position + size * bits


def _read_slice(
    windows: npt.NDArray[np.uint16],
    view: memoryview,
    position: int,
    header: _Header,
    palette: _Palette,
) -> tuple[_Ints, int]:
    """Return the slice's weights with their zero runs, and the position behind it."""
    weight_chunks, zero_chunks, position = _find_chunks(view, position, header)
    if position > len(windows):
        raise IndexError
    per_chunk = 8 if header.uncompressed and header.remainder_bits > 5 else _CHUNK
    codes = _symbols(
        windows,
        weight_chunks,
        header.weights,
        remainder_bits=header.remainder_bits,
        lanes=per_chunk,
        form="none" if header.uncompressed else "short" if header.truncated else "pairs",
    )
    if codes.size and int(codes.max()) >= _MAX_VALUE:
        raise _damaged(f"coded weight {int(codes.max())} has more than 9 bits")
    values = palette.signed[codes]
    if not header.has_zero_runs:
        return values, position
    zeros = _symbols(
        windows,
        zero_chunks,
        header.zero_runs,
        remainder_bits=header.zero_bits,
        lanes=12 if header.zero_bits < 3 else 8,
        form="unary",
    )
    before = int(zeros[0]) if header.is_new else 0
    after = zeros[1:] if header.is_new else zeros
    places = before + np.arange(header.weights) + np.cumsum(after) - after
    result = np.zeros(before + header.weights + int(after.sum()), np.int64)
    result[places] = values
    return result, position


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Bit positions of chunks: first unary part, second unary part, remainders; symbols of each."""

    unary: list[int]
    second: list[int]
    remainders: list[int]
    symbols: list[int]


def _appenders(found: _Chunks) -> tuple[Callable[[int], None], ...]:
    """The ``append`` of each list, in order of the fields: the walks below are hot."""
    lists = (found.unary, found.second, found.remainders, found.symbols)
    return tuple(each.append for each in lists)


def _find_chunks(view: memoryview, position: int, header: _Header) -> tuple[_Chunks, _Chunks, int]:
    """Walk the chunks of a slice. Remainders of a chunk stand behind the unary part of the next."""
    weights = _Chunks([], [], [], [])
    zeros = _Chunks([], [], [], [])
    if header.has_zero_runs:
        return weights, zeros, _walk_both(view, position, header, weights, zeros)
    if header.uncompressed:
        lanes = 8 if header.remainder_bits > 5 else _CHUNK
        chunks = -(-header.weights // lanes)
        places = [position + i * lanes * header.remainder_bits for i in range(chunks)]
        weights = _Chunks(places, places, places, [lanes] * chunks)
        return weights, zeros, position + header.weights * header.remainder_bits
    return weights, zeros, _walk_weights(view, position, header, weights)


def _walk_weights(view: memoryview, position: int, header: _Header, found: _Chunks) -> int:
    """Walk a slice without zero runs; return the position behind it."""
    population = _POPULATION
    bits, wanted, truncated = header.remainder_bits, header.weights, header.truncated
    unary, second, remainders, symbols = _appenders(found)
    done, previous = 0, -1
    while done < wanted:
        unary(position)
        ones = population[view[position]]
        position += _CHUNK
        second(position)
        count = _CHUNK
        if not truncated:
            count -= population[view[position] & ((1 << ones) - 1)]
        position += ones
        if previous >= 0:
            remainders(position)
            position += previous * bits
        symbols(count)
        done += count
        previous = count
    remainders(position)
    return position + (previous - (done - wanted)) * bits


def _walk_both(
    view: memoryview, position: int, header: _Header, weights: _Chunks, zeros: _Chunks
) -> int:
    """Walk a slice whose weights alternate with zero runs; return the position behind it.

    Whichever of the two is ahead pauses: weights pause when 8 ahead, zero runs when ahead.
    """
    population = _POPULATION
    bits, wanted, truncated = header.remainder_bits, header.weights, header.truncated
    uncompressed, zero_bits, zeros_wanted = (
        header.uncompressed,
        header.zero_bits,
        header.zero_runs,
    )
    zero_lanes = 12 if zero_bits < 3 else 8
    zero_mask = (1 << zero_lanes) - 1
    raw_lanes = 8 if uncompressed and bits > 5 else _CHUNK
    unary, second, remainders, symbols = _appenders(weights)
    zeros_unary, _, zeros_remainders, zeros_symbols = _appenders(zeros)
    done = zeros_done = 0
    pending = zeros_pending = -1
    while True:
        ahead = done - zeros_done
        takes_weights = ahead < _BALANCE and done < wanted
        takes_zeros = ahead >= 0 and zeros_done < zeros_wanted
        first = position
        if takes_weights and not uncompressed:
            position += _CHUNK
        if takes_zeros:
            zeros_unary(position)
            zeros_count = zero_lanes - population[view[position] & zero_mask]
            position += zero_lanes
        if takes_weights:
            count = raw_lanes
            unary(first)
            second(position)
            if not uncompressed:
                ones = population[view[first]]
                if not truncated:
                    count -= population[view[position] & ((1 << ones) - 1)]
                position += ones
            symbols(count)
        if pending >= 0:
            remainders(position)
            position += pending * bits
        if zeros_pending >= 0:
            zeros_remainders(position)
            position += zeros_pending * zero_bits
        pending = zeros_pending = -1
        if takes_weights:
            pending = min(count, wanted - done)
            done += count
        if takes_zeros:
            zeros_symbols(zeros_count)
            zeros_pending = min(zeros_count, zeros_wanted - zeros_done)
            zeros_done += zeros_count
        if not takes_weights and not takes_zeros:
            return position


def _symbols(
    windows: npt.NDArray[np.uint16],
    chunks: _Chunks,
    wanted: int,
    *,
    remainder_bits: int,
    lanes: int,
    form: str,
) -> _Ints:
    """Return the first ``wanted`` symbols of the chunks.

    ``form`` of the quotients: "none" (no quotient), "unary" (runs of ones), "pairs" (runs of
    twos, each a one in both unary parts, ended by 0 or 1), "short" (0, 1 or 2 per lane).
    """
    counts = np.array(chunks.symbols, np.int64)
    if form == "none":
        quotients = np.zeros(int(counts.sum()), np.int64)
    else:
        steps = _lane_codes(windows, chunks, lanes, form)
        if form == "short":
            quotients = steps
        else:
            ends = np.flatnonzero(steps < (1 if form == "unary" else 2))
            total = np.cumsum(steps)[ends]
            quotients = total.copy()
            quotients[1:] -= total[:-1]
    quotients = quotients[:wanted]
    if len(quotients) < wanted:
        raise _damaged(f"a slice holds {len(quotients)} of {wanted} symbols")
    if remainder_bits == 0:
        return quotients
    starts = np.cumsum(counts) - counts
    places = np.repeat(np.array(chunks.remainders, np.int64) - starts * remainder_bits, counts)[
        :wanted
    ]
    places += np.arange(wanted) * remainder_bits
    remainders = windows[np.minimum(places, len(windows) - 1)] & ((1 << remainder_bits) - 1)
    symbols: _Ints = (quotients << remainder_bits) + remainders
    return symbols


def _lane_codes(windows: npt.NDArray[np.uint16], chunks: _Chunks, lanes: int, form: str) -> _Ints:
    """Return what each lane of each chunk adds to a quotient, in order."""
    last = len(windows) - 1
    first = windows[np.minimum(np.array(chunks.unary, np.int64), last)].astype(np.int64)
    ones = first[:, None] >> _LANES[:lanes] & 1
    if form == "unary":
        return ones.ravel()
    second = windows[np.minimum(np.array(chunks.second, np.int64), last)].astype(np.int64)
    rank = np.cumsum(ones, axis=1) - ones
    codes: _Ints = (ones + (ones & (second[:, None] >> rank))).ravel()
    return codes
