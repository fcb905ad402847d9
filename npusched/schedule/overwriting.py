"""Which map a segment's result may be written over, and what that saves."""

from __future__ import annotations

from collections.abc import Mapping

from npusched.graph.opgraph import OpGraph
from npusched.schedule.fusing import Fusing
from npusched.schedule.lifetimes import Lifetime
from npusched.schedule.rows import Policy


class Overwriting:
    """``in_place``: element by element. ``overlapping``: also over rows that have been used.

    ``cache`` is the budget memory; elsewhere nothing is saved.
    """

    def __init__(
        self,
        graph: OpGraph,
        lives: Mapping[int, Lifetime],
        fusing: Fusing,
        cache: str,
        *,
        in_place: bool,
        overlapping: bool,
    ) -> None:
        self.graph, self.lives, self.fusing, self.cache = graph, lives, fusing, cache
        self.in_place, self.overlapping = in_place, overlapping

    def found(
        self, i: int, j: int, stripe_rows: int, policy: Policy, homes: Mapping[int, str]
    ) -> tuple[int | None, int, int]:
        """(map whose place the result takes, bytes of the budget memory that this saves, shift)."""
        result = self.lives[self.graph.ops[j].final_ofm.tensor] if self.graph.ops[j].ofms else None
        if result is None or result.last <= j:
            return None, 0, 0
        if homes.get(result.tensor, result.homes[0]) != self.cache:
            return None, 0, 0
        for tensor in self.fusing.overwritable(i, j) if self.in_place else ():
            if homes.get(tensor, self.lives[tensor].homes[0]) != self.cache:
                continue
            if self.fusing.may_overwrite(tensor, i, j, stripe_rows, policy):
                return tensor, result.size_bytes, 0
        best: tuple[int | None, int, int] = (None, 0, 0)
        if not self.overlapping or stripe_rows >= self.fusing.windows[j].ofm_rows:
            return best
        for tensor in self.fusing.overlaps(i, j):
            life = self.lives[tensor]
            if homes.get(tensor, life.homes[0]) == self.cache:
                shift = self.fusing.shift_bytes(tensor, i, j, stripe_rows, policy)
                both = shift + max(life.size_bytes, result.size_bytes - shift)
                saved = life.size_bytes + result.size_bytes - both
                if saved > best[1]:
                    best = (tensor, saved, shift)
        return best
