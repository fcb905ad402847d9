"""Records -> bytes: a deterministic flatbuffer writer driven by the schema."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from npusched.tflite.records import Record, Value
from npusched.tflite.schema import IDENTIFIER, TABLES, UNIONS, Field

BUFFER_ALIGNMENT: Final = 16
"""Alignment in bytes of constant data, as TFLite asks for (``Buffer.data`` force_align)."""


def encode(root: Record, identifier: bytes = IDENTIFIER) -> bytes:
    """Return the flatbuffer of a record tree.

    The same tree gives the same bytes. Fields that hold their default are left out, tables with
    the same layout share a vtable, ``Buffer.data`` starts at multiples of 16 bytes.
    """
    encoder = _Encoder(identifier)
    position = encoder.table(root)
    struct.pack_into("<I", encoder.out, 0, position)
    return bytes(encoder.out)


class _Encoder:
    """Writes front to back: a table, then what it refers to, so that offsets point forward."""

    def __init__(self, identifier: bytes) -> None:
        self.out = bytearray(4) + bytearray(identifier)
        self.vtables: dict[bytes, int] = {}

    def align(self, alignment: int, ahead: int = 0) -> None:
        """Pad so that the byte ``ahead`` of the end lies at a multiple of ``alignment``."""
        self.out += bytes(-(len(self.out) + ahead) % alignment)

    def table(self, record: Record) -> int:
        """Write a table and everything below it; return its position."""
        scalars, children = _split(record)
        slots, inline_bytes = _layout([f for f, _ in scalars], [f for f, _ in children])
        vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), inline_bytes, *slots)
        self.align(2)
        if vtable not in self.vtables:
            self.vtables[vtable] = len(self.out)
            self.out += vtable
        wide = any(field.inline_bytes == 8 for field, _ in scalars)
        self.align(8 if wide else 4, ahead=4 if wide else 0)
        position = len(self.out)
        self.out += bytes(inline_bytes)
        struct.pack_into("<i", self.out, position, position - self.vtables[vtable])
        for field, number in scalars:
            struct.pack_into(f"<{field.code}", self.out, position + slots[field.slot], number)
        for field, value in children:
            if field.is_union and isinstance(value, Record):
                code = UNIONS[field.base].index(value.table)
                self.out[position + slots[field.slot - 1]] = code
            place = position + slots[field.slot]
            target = self.child(field, value)
            struct.pack_into("<I", self.out, place, target - place)
        return position

    def child(self, field: Field, value: Value) -> int:
        """Write what an offset field refers to; return its position."""
        if isinstance(value, Record):
            return self.table(value)
        if isinstance(value, str):
            raw = value.encode("utf-8", "surrogateescape")
            self.align(4)
            position = len(self.out)
            self.out += struct.pack("<I", len(raw)) + raw + b"\0"
            return position
        if isinstance(value, bytes | memoryview):
            self.align(BUFFER_ALIGNMENT, ahead=4)
            position = len(self.out)
            self.out += struct.pack("<I", len(value))
            self.out += value
            return position
        if isinstance(value, tuple):
            return self.vector(field, value)
        raise TypeError(f"field {field.name} cannot hold {value!r}")

    def vector(self, field: Field, values: Sequence[int | float | str | Record]) -> int:
        """Write a vector of scalars, strings or tables."""
        self.align(4)
        self.align(max(field.element_bytes, 4), ahead=4)
        position = len(self.out)
        self.out += struct.pack("<I", len(values))
        if field.code:
            self.out += struct.pack(f"<{len(values)}{field.code}", *values)
            return position
        places = range(len(self.out), len(self.out) + 4 * len(values), 4)
        self.out += bytes(4 * len(values))
        for place, value in zip(places, values, strict=True):
            if not isinstance(value, Record | str):
                raise TypeError(f"field {field.name} cannot hold {value!r}")
            target = self.child(field, value)
            struct.pack_into("<I", self.out, place, target - place)
        return position


def _split(record: Record) -> tuple[list[tuple[Field, int | float]], list[tuple[Field, Value]]]:
    """Return the record's inline values that differ from their defaults, and its references."""
    scalars: list[tuple[Field, int | float]] = []
    children: list[tuple[Field, Value]] = []
    fields = TABLES[record.table].fields
    for name, value in record.values.items():
        field = fields[name]
        if isinstance(value, int | float):
            if value != field.default:
                scalars.append((field, value))
        else:
            children.append((field, value))
    scalars.sort(key=lambda pair: pair[0].slot)
    children.sort(key=lambda pair: pair[0].slot)
    return scalars, children


def _layout(scalars: list[Field], children: list[Field]) -> tuple[list[int], int]:
    """Return every slot's offset in the table (0 = absent) and the table's inline size in bytes.

    Wide fields come first, so that none needs padding behind the 4-byte vtable offset (the table
    itself is placed so that the fields are aligned).
    """
    placed = [(field.slot, field.inline_bytes) for field in (*scalars, *children)]
    placed += [(field.slot - 1, 1) for field in children if field.is_union]
    slots = [0] * (1 + max((slot for slot, _ in placed), default=-1))
    offset = 4
    for slot, size in sorted(placed, key=lambda pair: (-pair[1], pair[0])):
        slots[slot] = offset
        offset += size
    return slots, offset
