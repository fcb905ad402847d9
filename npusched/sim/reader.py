"""Register values of one op, each refused by name if it was never set or is not modelled."""

from __future__ import annotations

from typing import TypeVar

from npusched.errors import SimError
from npusched.vela.stream import Register, Registers

_T = TypeVar("_T")

MODELLED_HINT = "docs/simulation.md says what is modelled"


class Reader:
    """Reads registers of one op: those never set are refused by name."""

    def __init__(self, registers: Registers, where: str) -> None:
        self._registers = registers
        self.where = where

    def get(self, register: Register | int) -> int:
        """Return the register's value."""
        value = self._registers.get(register)
        if value is None:
            raise self.refuse(f"it uses register {_name(register)}, which was never set")
        return value

    def optional(self, register: Register | int) -> int:
        """Return the register's value, 0 if it was never set."""
        return self._registers.get(register, 0)

    def signed(self, register: Register, bits: int) -> int:
        """Return the register's value as a two's complement number."""
        value = self.get(register)
        return value - (1 << bits) if value >> (bits - 1) else value

    def stride(self, register: Register | int) -> int:
        """Return a stride in bytes: 40 bits, two's complement (U55: 32 bits, SIM.md §3)."""
        value = self.get(register)
        bits = 40 if value >> 32 else 32
        return value - (1 << bits) if value >> (bits - 1) else value

    def pick(self, table: dict[int, _T], value: int, what: str) -> _T:
        """Return what ``value`` of the field ``what`` means."""
        if value not in table:
            raise self.refuse(f"{what} has the unknown value {value}")
        return table[value]

    def refuse(self, why: str) -> SimError:
        """Return the error that names the op and what it asks for."""
        return SimError(f"cannot execute {self.where}", why, MODELLED_HINT)


def _name(register: int) -> str:
    try:
        return Register(register).name
    except ValueError:
        return f"{register:#x}"
