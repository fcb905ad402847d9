"""Events to streams: addresses, words, and the values that the container needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npusched.emission.constants import Constants
from npusched.emission.events import ARENA, FAST, Event, Issue, Place
from npusched.emission.parts import Emitted
from npusched.emission.storage import assign
from npusched.emission.stream import Located, write_streams
from npusched.emission.template import Template
from npusched.hardware.target import MemoryMode


class Placing:
    """Collects places."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self.places: list[Place] = []

    def add(
        self,
        *,
        memory: str,
        tensor: int,
        size_bytes: int,
        rows: int = 0,
        over: int | None = None,
        shift_bytes: int = 0,
        planned: int | None = None,
        name: str = "",
    ) -> int:
        """Add a place; return its number."""
        number = len(self.places)
        self.places.append(
            Place(
                number=number,
                memory=memory,
                tensor=tensor,
                size_bytes=size_bytes,
                rows=rows,
                over=over,
                shift_bytes=shift_bytes,
                planned=planned,
                name=name or (f"tensor {tensor}" if tensor >= 0 else f"weights {number}"),
            )
        )
        return number

    def issue(self, events: Sequence[tuple[int, Event]], boundary: dict[int, int]) -> Issue:
        """All events; graph inputs are there from the start, results are kept to the end."""
        graph = self._template.file.model.subgraphs[0]
        return Issue(
            events=tuple(events),
            places=tuple(self.places),
            from_start=frozenset(
                place
                for i, place in boundary.items()
                if i in graph.inputs or graph.tensors[i].is_constant
            ),
            to_end=frozenset(boundary[i] for i in graph.outputs if i in boundary),
            boundary=boundary,
        )


def finish(
    template: Template,
    issue: Issue,
    constants: Constants,
    *,
    limits: dict[str, int] | None = None,
    as_planned: bool = False,
    source_ops: Mapping[int, tuple[int, ...]] | None = None,
    notes: tuple[str, ...] = (),
) -> Emitted:
    """Assign addresses, write the streams, and collect what the container needs."""
    addresses = assign(issue, limits, as_planned=as_planned)
    located = Located(
        template=template,
        issue=issue,
        addresses=addresses,
        constants=constants,
        source_ops=source_ops or {},
    )
    streams = write_streams(located)
    return Emitted(
        template=template.content,
        streams=streams,
        read_only=constants.content(),
        arena_bytes=addresses.used.get(ARENA, 0),
        fast_bytes=_fast_bytes(template, addresses.used.get(FAST, 0)),
        addresses=boundary_addresses(template, issue, addresses.of),
        notes=notes,
    )


def _fast_bytes(template: Template, used: int) -> int | None:
    dedicated = template.target.memory_mode is MemoryMode.DEDICATED_SRAM
    return used if dedicated else None


def boundary_addresses(template: Template, issue: Issue, of: Sequence[int]) -> dict[int, int]:
    """Arena address of every planned tensor of the flatbuffer, by index."""
    found = dict(template.fixed)
    for index, number in issue.boundary.items():
        tensor = template.tensors[issue.places[number].tensor]
        found[index] = of[number] + template.planned[index] - tensor.base
    return found
