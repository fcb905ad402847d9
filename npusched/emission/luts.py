"""Tables in the SHRAM: eight slots of 256 bytes, filled by DMA when another table is needed."""

from __future__ import annotations

from dataclasses import dataclass

from npusched.sim.program import LUT_BYTES, LUT_SLOT_BYTES

_SLOTS = LUT_BYTES // LUT_SLOT_BYTES


@dataclass(slots=True)
class _Slot:
    """What a slot holds: key and part of a table; ``used``: when it was last needed."""

    key: tuple[int, int] | None = None
    part: int = 0
    used: int = 0


class LutSlots:
    """Follows which tables the SHRAM holds. A table is known by (read-only offset, length)."""

    def __init__(self) -> None:
        self._slots = [_Slot() for _ in range(_SLOTS)]

    def need(self, key: tuple[int, int], now: int) -> tuple[int, bool]:
        """Return the first slot for a table, and whether it must be copied there first.

        Tables lie at multiples of their size; the least recently used slots are given up. ``now``:
        number of the kernel, from 0 (as in Vela, slots that kernel 0 used count as unused).
        """
        count = max(1, key[1] // LUT_SLOT_BYTES)
        places = range(0, _SLOTS, count)
        for first in places:
            held = self._slots[first : first + count]
            if all(slot.key == key and slot.part == part for part, slot in enumerate(held)):
                self._mark(first, count, key, now)
                return first, False
        first = min(places, key=lambda at: max(s.used for s in self._slots[at : at + count]))
        self._mark(first, count, key, now)
        return first, True

    def _mark(self, first: int, count: int, key: tuple[int, int], now: int) -> None:
        for part in range(count):
            self._slots[first + part] = _Slot(key, part, now)

    def forget(self) -> None:
        """Something else was written there."""
        self._slots = [_Slot() for _ in range(_SLOTS)]
