"""What is issued, in order, and the places that it needs: the form between plan and stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from npusched.hardware.target import Block

ARENA, FAST = "arena", "fast"
"""Memories: the arena (scratch), and in Dedicated_Sram the staging memory (scratch_fast)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Bytes of a memory: of a tensor, of the live rows of one, or of weights.

    ``tensor``: of the template, -1 for weights. ``rows``: of a rolling buffer, 0 = all rows.
    ``over``: number of the place that it takes over; it starts ``shift_bytes`` below that one (0 =
    at the same address). ``planned``: address in the plan, None = none.
    """

    number: int
    memory: str
    tensor: int
    size_bytes: int
    rows: int = 0
    over: int | None = None
    shift_bytes: int = 0
    planned: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A kernel of the template on some rows and channels of its result (ends not included).

    ``places``: (role, place) of its feature maps in memory. ``weights``: place that holds its
    weights, None = the read-only tensor. ``op``: our op that it belongs to, -1 = none.
    """

    kernel: int
    rows: tuple[int, int]
    channels: tuple[int, int]
    block: Block
    places: tuple[tuple[str, int], ...]
    weights: int | None = None
    op: int = -1

    @property
    def touched(self) -> tuple[int, ...]:
        """Places that it reads or writes."""
        own = tuple(place for _, place in self.places)
        return own if self.weights is None else (*own, self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWeights:
    """Weights of some channels of a kernel, copied from the read-only tensor to a place."""

    kernel: int
    block_depth: int
    channels: tuple[int, int]
    place: int

    @property
    def touched(self) -> tuple[int, ...]:
        """The place that is filled."""
        return (self.place,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTensor:
    """A whole tensor copied from one place to another."""

    source: int
    destination: int

    @property
    def touched(self) -> tuple[int, ...]:
        """Both places."""
        return (self.source, self.destination)


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """Places that must be there at this point: reserved ones, or those that the host uses."""

    places: tuple[int, ...]

    @property
    def touched(self) -> tuple[int, ...]:
        """The places."""
        return self.places


Event: TypeAlias = Run | CopyWeights | CopyTensor | Touch


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """All events in order, each with its NPU operator (-1: between operators).

    ``kept``: places that are needed from the beginning (graph inputs), and to the end (results).
    ``boundary``: place of each planned tensor of the flatbuffer, by index.
    """

    events: tuple[tuple[int, Event], ...]
    places: tuple[Place, ...]
    from_start: frozenset[int]
    to_end: frozenset[int]
    boundary: dict[int, int]

    def lives(self) -> list[tuple[int, int]]:
        """Half-open interval of events in which each place is needed."""
        first = [len(self.events)] * len(self.places)
        end = [0] * len(self.places)

        def touch(places: Iterable[int], at: int) -> None:
            for place in places:
                first[place] = min(first[place], at)
                end[place] = max(end[place], at + 1)

        for at, (_, event) in enumerate(self.events):
            touch(event.touched, at)
        touch(self.from_start, 0)
        touch(self.to_end, max(len(self.events) - 1, 0))
        return list(zip(first, end, strict=True))
