"""What a plan minimises."""

from __future__ import annotations

from enum import StrEnum

import msgspec

DEFAULT_LAMBDA_CYCLES_PER_BYTE = 0.1
"""Price of an off-chip byte (PLANNER §3: halves flash traffic for at most 0.5 % of cycles)."""


class Goal(StrEnum):
    """The first thing to minimise; SRAM is minimised under the others as a tie-break."""

    CYCLES = "cycles"
    ENERGY = "energy"
    OFFCHIP = "offchip"
    SRAM = "sram"


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """``cycles``: cycles + lambda x off-chip bytes. ``offchip``: bytes, then cycles.

    ``energy``: typical nanojoules. ``sram``: the smallest budget that has a plan, and the best
    ``cycles`` plan in it. CPU cycles count at the NPU clock.
    """

    goal: Goal = Goal.CYCLES
    lambda_cycles_per_byte: float = DEFAULT_LAMBDA_CYCLES_PER_BYTE

    def score(self, *, cycles: float, offchip_bytes: int, energy_nj: float) -> float:
        """Value of one part of a plan; parts add up."""
        if self.goal is Goal.ENERGY:
            return energy_nj
        if self.goal is Goal.OFFCHIP:
            return offchip_bytes + cycles * 1e-9
        return cycles + self.lambda_cycles_per_byte * offchip_bytes
