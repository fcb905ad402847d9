"""The debug database as columns of text, decoded when they are looked at (VELA_SPEC §6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from npusched.errors import VelaError
from npusched.vela.protocol import Columns

_CELLS = msgspec.msgpack.Decoder(tuple[str, ...])


def broken(why: str) -> VelaError:
    """Return the error for a debug database whose tables make no sense."""
    return VelaError(
        "cannot read Vela's debug database",
        why,
        "compile again with Vela 5.x and --enable-debug-db",
        reason="database",
    )


class DebugTable:
    """One table. Cells are strings as Vela writes them; a column is decoded once."""

    def __init__(self, name: str, columns: Mapping[str, msgspec.Raw]) -> None:
        self.name = name
        self.header = tuple(columns)
        self._raw = columns
        self._decoded: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self.column(self.header[0])) if self.header else 0

    def column(self, name: str) -> tuple[str, ...]:
        """Return a column's cells in row order. Raises KeyError if the table has none such."""
        if name not in self._decoded:
            self._decoded[name] = _CELLS.decode(self._raw[name])
        return self._decoded[name]

    def ints(self, name: str) -> tuple[int, ...]:
        """Return a column as integers: empty cells are 0, 0x prefixes are hexadecimal.

        A missing column is all zeros (Vela writes some only for some memories). Raises VelaError
        for a cell that is no number.
        """
        if name not in self._raw:
            return (0,) * len(self)
        cells = self.column(name)
        try:
            known = {cell: int(cell, 0) if cell else 0 for cell in set(cells)}
        except ValueError as error:
            raise broken(f"column {name} of table {self.name}: {error}") from None
        return tuple([known[cell] for cell in cells])

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a column, all "" if the table has none such."""
        return self.column(name) if name in self._raw else ("",) * len(self)

    def rows(self) -> Iterator[dict[str, str]]:
        """Walk over the rows as dictionaries."""
        cells = [self.column(name) for name in self.header]
        for row in zip(*cells, strict=True):
            yield dict(zip(self.header, row, strict=True))


class DebugDatabase:
    """All tables by name. A table that Vela did not write is an empty one."""

    def __init__(self, columns: Columns) -> None:
        self._tables = {name: DebugTable(name, table) for name, table in columns.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables that Vela wrote."""
        return tuple(self._tables)

    def __bool__(self) -> bool:
        return bool(self._tables)

    def table(self, name: str) -> DebugTable:
        """Return a table, empty if Vela did not write it."""
        return self._tables.get(name) or DebugTable(name, {})
