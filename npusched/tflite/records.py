"""Tables of a file as plain records: what the decoder makes and the encoder takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from npusched.tflite.schema import TABLES

Value: TypeAlias = "int | float | str | bytes | memoryview | Vector | Record"
Vector: TypeAlias = "tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | tuple[Record, ...]"


class Record:
    """One table of the file: ``table`` names it in the schema, ``values`` holds what is there.

    An absent field reads as the schema's default (0, "", an empty vector, None for a table).
    Unsigned byte vectors are memory views of the file, other scalar vectors are tuples.
    ``position`` is the table's byte offset in the file, for messages (-1: not from a file).
    """

    __slots__ = ("position", "table", "values")

    def __init__(self, table: str, values: Mapping[str, Value], position: int = -1) -> None:
        self.table = table
        self.values = values
        self.position = position

    def __repr__(self) -> str:
        return f"Record({self.table!r}, {dict(self.values)!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Record)
            and self.table == other.table
            and dict(self.values) == dict(other.values)
        )

    __hash__ = None  # type: ignore[assignment]

    def has(self, name: str) -> bool:
        """True if the file has the field."""
        return name in self.values

    def integer(self, name: str) -> int:
        """Integer (or bool as 0/1) field ``name``."""
        value = self.values.get(name)
        if value is None:
            return int(TABLES[self.table].fields[name].default)
        if isinstance(value, int):
            return value
        raise TypeError(f"{self.table}.{name} is not an integer")

    def flag(self, name: str) -> bool:
        """Boolean field ``name``."""
        return bool(self.integer(name))

    def real(self, name: str) -> float:
        """Floating point field ``name``."""
        value = self.values.get(name)
        if value is None:
            return float(TABLES[self.table].fields[name].default)
        if isinstance(value, float | int):
            return float(value)
        raise TypeError(f"{self.table}.{name} is not a number")

    def text(self, name: str) -> str:
        """String field ``name``."""
        value = self.values.get(name, "")
        if isinstance(value, str):
            return value
        raise TypeError(f"{self.table}.{name} is not a string")

    def blob(self, name: str) -> memoryview:
        """Byte vector ``name``."""
        value = self.values.get(name, b"")
        if isinstance(value, bytes | memoryview):
            return memoryview(value)
        raise TypeError(f"{self.table}.{name} is not a byte vector")

    def ints(self, name: str) -> tuple[int, ...]:
        """Integer vector ``name``."""
        value = self.values.get(name, ())
        if isinstance(value, tuple):
            return value  # type: ignore[return-value]
        raise TypeError(f"{self.table}.{name} is not a vector of integers")

    def reals(self, name: str) -> tuple[float, ...]:
        """Floating point vector ``name``."""
        value = self.values.get(name, ())
        if isinstance(value, tuple):
            return value  # type: ignore[return-value]
        raise TypeError(f"{self.table}.{name} is not a vector of numbers")

    def record(self, name: str) -> Record | None:
        """Table or union field ``name``; None if absent."""
        value = self.values.get(name)
        if value is None or isinstance(value, Record):
            return value
        raise TypeError(f"{self.table}.{name} is not a table")

    def records(self, name: str) -> tuple[Record, ...]:
        """Vector of tables ``name``."""
        value = self.values.get(name, ())
        if isinstance(value, tuple):
            return value  # type: ignore[return-value]
        raise TypeError(f"{self.table}.{name} is not a vector of tables")
