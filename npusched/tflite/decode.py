"""Bytes -> records, every access checked: the flatbuffer verifier and decoder in one.

A flatbuffer offset only points forward, so tables cannot form cycles, and the schema bounds the
nesting. What can still explode is sharing (many offsets to one table, which nests) and counts;
both are bounded by budgets that grow with the file: no file makes the decoder visit more tables
or unpack more numbers than its size can justify.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from npusched.errors import ModelError
from npusched.tflite.records import Record, Value
from npusched.tflite.schema import MAX_DEPTH, TABLES, UNIONS, Field, TableSpec

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_SCALAR = {code: struct.Struct(f"<{code}") for code in "bB?hHiIqQfd"}

MAX_TABLES = 200_000
"""Tables that one file may hold (a table takes about 5 us to decode)."""
MAX_NUMBERS = 4_000_000
"""Elements of scalar vectors, buffers apart, that one file may hold (32 bytes each as a tuple)."""

_HINT = "the file is damaged or not a TFLite model: export or download it again"


def corrupt(what: str, position: int, size: int) -> NoReturn:
    """Raise the ModelError for a broken file; ``position`` is where, in bytes."""
    raise ModelError(
        "cannot read the model: the file is corrupt",
        f"at byte {position} of {size}: {what}",
        _HINT,
        position=position,
        size_bytes=size,
    )


def decode(content: bytes, table: str = "Model", *, keeps_text: bool = False) -> Record:
    """Return the root table of a flatbuffer.

    ``content`` starts with the offset of a ``table`` and a 4-byte identifier, which the caller
    has looked at. ``keeps_text``: texts that are to be written again keep control characters and
    invalid UTF-8 (as surrogates); else those become U+FFFD. Time and memory are linear in
    ``len(content)``. Raises ModelError (with the byte offset) for anything that lies outside the
    file or exceeds a budget.
    """
    if len(content) < 8:
        corrupt("too short for a flatbuffer (8 bytes)", 0, len(content))
    decoder = _Decoder(content, keeps_text)
    return decoder.table(_U32.unpack_from(content, 0)[0], TABLES[table], 0)


def _printable(raw: bytes) -> str:
    """Text for people: invalid UTF-8 and control characters become U+FFFD."""
    text = raw.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


class _Decoder:
    """Position-checked access to one file and the budgets it has left."""

    def __init__(self, content: bytes, keeps_text: bool = False) -> None:
        self.content = content
        self.keeps_text = keeps_text
        self.view = memoryview(content).toreadonly()
        self.size = len(content)
        self.tables_left = min(MAX_TABLES, self.size // 4 + 16)
        self.numbers_left = min(MAX_NUMBERS, 16 * self.size)
        self.layouts: dict[int, tuple[tuple[int, ...], int]] = {}

    def fail(self, what: str, position: int) -> NoReturn:
        corrupt(what, position, self.size)

    def table(self, position: int, spec: TableSpec, depth: int) -> Record:
        """Decode the table at ``position``."""
        self.tables_left -= 1
        if self.tables_left < 0:
            self.fail(f"more tables than a file of this size can hold ({spec.name})", position)
        if depth > MAX_DEPTH:
            self.fail(f"tables nested more than {MAX_DEPTH} deep", position)
        if position + 4 > self.size:
            self.fail(f"table {spec.name} lies outside the file", position)
        slots, inline_bytes = self.layout(position - _I32.unpack_from(self.content, position)[0])
        if position + inline_bytes > self.size:
            self.fail(f"table {spec.name} of {inline_bytes} bytes runs over the end", position)
        values: dict[str, Value] = {}
        for field, offset in zip(spec.slots, slots, strict=False):
            if field is None or offset == 0:
                continue
            if offset < 4 or offset + field.inline_bytes > inline_bytes:
                self.fail(f"field {spec.name}.{field.name} lies outside its table", position)
            value: Value | None
            if field.is_union:
                value = self.union(
                    position, slots[field.slot - 1], inline_bytes, offset, field, depth
                )
            elif field.code and not field.is_vector:
                value = _SCALAR[field.code].unpack_from(self.content, position + offset)[0]
            else:
                value = self.indirect(self.follow(position + offset), field, depth)
            if value is not None:
                values[field.name] = value
        return Record(spec.name, values, position)

    def layout(self, position: int) -> tuple[tuple[int, ...], int]:
        """Return the vtable at ``position``: field offsets and the table's inline size in bytes."""
        known = self.layouts.get(position)
        if known is not None:
            return known
        if position < 0 or position + 4 > self.size:
            self.fail("a table's vtable lies outside the file", position)
        vtable_bytes, inline_bytes = struct.unpack_from("<HH", self.content, position)
        if vtable_bytes < 4 or vtable_bytes % 2 or position + vtable_bytes > self.size:
            self.fail(f"a vtable of {vtable_bytes} bytes is malformed", position)
        if inline_bytes < 4:
            self.fail(f"a table of {inline_bytes} bytes is malformed", position)
        count = vtable_bytes // 2 - 2
        found = struct.unpack_from(f"<{count}H", self.content, position + 4), inline_bytes
        self.layouts[position] = found
        return found

    def follow(self, position: int) -> int:
        """Return the target of the offset stored at ``position`` (which is inside the file)."""
        distance: int = _U32.unpack_from(self.content, position)[0]
        if distance == 0 or position + distance + 4 > self.size:
            self.fail(f"an offset of {distance} leads out of the file", position)
        return position + distance

    def union(
        self,
        position: int,
        type_offset: int,
        inline_bytes: int,
        offset: int,
        field: Field,
        depth: int,
    ) -> Record | None:
        """Decode a union's value; None for NONE and for members newer than the schema."""
        if type_offset == 0 or type_offset + 1 > inline_bytes:
            return None
        code = self.content[position + type_offset]
        members = UNIONS[field.base]
        if code == 0 or code >= len(members):
            return None
        return self.table(self.follow(position + offset), TABLES[members[code]], depth + 1)

    def indirect(self, target: int, field: Field, depth: int) -> Value:
        """Decode the string, vector or table at ``target``."""
        if field.is_vector:
            return self.vector(target, field, depth)
        if field.base == "str":
            return self.string(target)
        return self.table(target, TABLES[field.base], depth + 1)

    def count(self, target: int, element_bytes: int, name: str) -> int:
        """Return the element count stored at ``target``; all elements lie inside the file."""
        count: int = _U32.unpack_from(self.content, target)[0]
        if target + 4 + count * element_bytes > self.size:
            self.fail(f"{name} claims {count} elements of {element_bytes} bytes", target)
        return count

    def string(self, target: int) -> str:
        """Decode a string (a final NUL is not required)."""
        count = self.count(target, 1, "a string")
        self.numbers_left -= count
        if self.numbers_left < 0:
            self.fail("more text than a file of this size can hold", target)
        raw = self.content[target + 4 : target + 4 + count]
        return raw.decode("utf-8", "surrogateescape") if self.keeps_text else _printable(raw)

    def vector(self, target: int, field: Field, depth: int) -> Value:
        """Decode a vector: of bytes as a view, of other scalars, strings or tables as a tuple."""
        count = self.count(target, field.element_bytes, f"vector {field.name}")
        start = target + 4
        if field.base == "u8":
            return self.view[start : start + count]
        self.numbers_left -= count
        if self.numbers_left < 0:
            self.fail(f"more numbers than a file of this size can hold ({field.name})", target)
        if field.code:
            return struct.unpack_from(f"<{count}{field.code}", self.content, start)
        spec = TABLES[field.base]
        positions = range(start, start + 4 * count, 4)
        return tuple(self.table(self.follow(p), spec, depth + 1) for p in positions)
