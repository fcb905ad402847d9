"""Seeded mutations of files, for tests that feed broken models to anything that reads them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from npusched.errors import ModelError
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value
from npusched.tflite.schema import TABLES, Field

_Path: TypeAlias = tuple[str | int, ...]

_WORDS = (0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_VALUES = (-(2**31), -129, -2, -1, 0, 1, 2, 3, 7, 16, 127, 128, 255, 1000, 65536, 2**24, 2**31 - 1)


def mutations(content: bytes, seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield ``count`` (label, mutated bytes) of ``content``; the same for the same seed.

    Bit flips, byte and 32-bit overwrites, truncations, splices, removed and repeated spans, and
    several of them at once. Half of all positions are those of words that look like offsets or
    counts (small numbers), so that structure is hit also in files that are mostly weights. Every
    third case of a readable file is a well-formed file with wrong values instead.
    """
    targets = _likely_structure(content)
    try:
        tree = decode(content)
    except ModelError:
        tree = None
    for index in range(count):
        rng = random.Random(f"{seed}/{index}/{len(content)}")
        if tree is not None and index % 3 == 2:
            label, changed = _wrong_values(rng, tree)
            yield f"seed {seed} case {index}: {label}", encode(changed)
            continue
        mutated = bytearray(content)
        labels = [
            rng.choice(_MUTATORS)(rng, mutated, targets) for _ in range(rng.choice((1, 1, 1, 2, 4)))
        ]
        yield f"seed {seed} case {index}: {', '.join(labels)}", bytes(mutated)


def _wrong_values(rng: random.Random, tree: Record) -> tuple[str, Record]:
    """Return a copy of the tree in which 1 to 4 numbers are different."""
    places = list(_numbers(tree, ()))
    chosen = {rng.choice(places): rng.choice(_VALUES) for _ in range(rng.choice((1, 1, 2, 4)))}
    label = ", ".join(f"{'.'.join(map(str, path))} = {value}" for path, value in chosen.items())
    return label, _replaced(tree, (), chosen)


def _numbers(record: Record, path: _Path) -> Iterator[_Path]:
    """Yield the path of every integer in the tree."""
    for name, value in record.values.items():
        if isinstance(value, Record):
            yield from _numbers(value, (*path, name))
        elif isinstance(value, tuple):
            for index, element in enumerate(value[:64]):
                if isinstance(element, Record):
                    yield from _numbers(element, (*path, name, index))
                elif isinstance(element, int):
                    yield (*path, name, index)
        elif isinstance(value, int):
            yield (*path, name)


def _replaced(record: Record, path: _Path, chosen: Mapping[_Path, int]) -> Record:
    def child(value: object, place: _Path) -> object:
        if isinstance(value, Record):
            return _replaced(value, place, chosen)
        if place not in chosen:
            return value
        return bool(chosen[place]) if isinstance(value, bool) else chosen[place]

    values: dict[str, Value] = {}
    for name, value in record.values.items():
        field = TABLES[record.table].fields[name]
        if isinstance(value, tuple):
            found = tuple(child(v, (*path, name, i)) for i, v in enumerate(value))
            values[name] = tuple(_fit(v, field) for v in found)  # type: ignore[assignment]
        else:
            values[name] = _fit(child(value, (*path, name)), field)  # type: ignore[assignment]
    return Record(record.table, values)


def _fit(value: object, field: Field) -> object:
    """Wrap an integer into the field's type."""
    if not isinstance(value, int) or isinstance(value, bool) or field.code in "?fd":
        return value
    bits = 8 * field.element_bytes
    wrapped = value % (1 << bits)
    return wrapped - (1 << bits) if field.code.islower() and wrapped >> (bits - 1) else wrapped


def _likely_structure(content: bytes) -> list[int]:
    words = struct.unpack_from(f"<{len(content) // 4}I", content)
    return [4 * i for i, word in enumerate(words) if 0 < word < len(content)] or [0]


def _place(rng: random.Random, data: bytearray, targets: list[int]) -> int:
    if not data:
        return 0
    place = rng.choice(targets) if rng.random() < 0.5 else rng.randrange(len(data))
    return min(place, len(data) - 1)


def _flip_bits(rng: random.Random, data: bytearray, targets: list[int]) -> str:
    places = [_place(rng, data, targets) for _ in range(rng.choice((1, 1, 2, 8)))]
    for place in places:
        if data:
            data[place] ^= 1 << rng.randrange(8)
    return f"bits at {places}"


def _overwrite_byte(rng: random.Random, data: bytearray, targets: list[int]) -> str:
    place = _place(rng, data, targets)
    if data:
        data[place] = rng.randrange(256)
    return f"byte at {place}"


def _overwrite_word(rng: random.Random, data: bytearray, targets: list[int]) -> str:
    place = _place(rng, data, targets) & ~3
    word = rng.choice((*_WORDS, rng.getrandbits(32), rng.randrange(1, len(data) + 2)))
    data[place : place + 4] = struct.pack("<I", word)
    return f"word {word:#x} at {place}"


def _truncate(rng: random.Random, data: bytearray, _targets: list[int]) -> str:
    size = rng.randrange(len(data) + 1)
    del data[size:]
    return f"cut to {size}"


def _splice(rng: random.Random, data: bytearray, targets: list[int]) -> str:
    source, target = _place(rng, data, targets), _place(rng, data, targets)
    size = rng.choice((4, 8, 16, 64))
    data[target : target + size] = data[source : source + size]
    return f"{size} bytes of {source} over {target}"


def _remove(rng: random.Random, data: bytearray, targets: list[int]) -> str:
    place, size = _place(rng, data, targets), rng.choice((1, 2, 4, 16, 100))
    del data[place : place + size]
    return f"{size} bytes removed at {place}"


def _noise(rng: random.Random, data: bytearray, targets: list[int]) -> str:
    place, size = _place(rng, data, targets), rng.choice((4, 16, 64))
    data[place : place + size] = rng.randbytes(size)
    return f"{size} random bytes at {place}"


_MUTATORS = (
    _flip_bits,
    _flip_bits,
    _overwrite_byte,
    _overwrite_word,
    _overwrite_word,
    _overwrite_word,
    _truncate,
    _splice,
    _remove,
    _noise,
)
