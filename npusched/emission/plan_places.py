"""Places of a plan's buffers: tensors whole or in rolling buffers, weights, taken over or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npusched.emission.build import Placing
from npusched.emission.constants import RebuiltConstants
from npusched.emission.events import ARENA, FAST
from npusched.emission.homes import Homes, maps_of
from npusched.emission.parts import align_up
from npusched.emission.template_types import Template, TemplateKernel
from npusched.errors import EmitError
from npusched.graph.opgraph import OpGraph
from npusched.hardware.target import MemoryMode
from npusched.ir import Model
from npusched.schedule.types import BufferKind, Plan


def has_fast(template: Template) -> bool:
    """True if the staging memory is apart from the arena."""
    return template.target.memory_mode is MemoryMode.DEDICATED_SRAM


def refuse(what: str, why: str) -> EmitError:
    """The error for a plan that cannot be emitted."""
    return EmitError(
        f"cannot emit the plan: {what}",
        why,
        "plan with more SRAM or without --allow; docs/emit.md lists what can be emitted",
    )


class PlanPlaces:
    """Makes the places of a plan as they are needed.

    ``kernels``: of each op of ``graph``, which is in the plan's order.
    """

    def __init__(
        self,
        template: Template,
        model: Model,
        graph: OpGraph,
        plan: Plan,
        kernels: Mapping[int, tuple[TemplateKernel, ...]],
        constants: RebuiltConstants,
    ) -> None:
        self.template, self.plan = template, plan
        self.kernels, self.constants = kernels, constants
        self.homes = Homes(graph, plan)
        self.maps = maps_of(template, model, graph, kernels)
        self.placing = Placing(template)
        self.places: dict[tuple[int, int | None], int] = {}
        self.weight_places: dict[tuple[int, int], int] = {}
        self.has_fast = has_fast(template)

    def weights(
        self, number: int, kernel: TemplateKernel, depth: int, slices: Sequence[tuple[int, int]]
    ) -> int:
        """The place of a weight buffer, as large as the slices of channels that it holds.

        ``depth``: OFM block depth that they are encoded for.
        """
        key = (number, kernel.index)
        known = self.weight_places.get(key)
        if known is None:
            sizes = [len(self.constants.encode(kernel, depth, a, b).data) for a, b in slices]
            known = self.weight_places[key] = self.placing.add(
                memory=FAST if self.has_fast else ARENA,
                tensor=-1,
                size_bytes=align_up(max(sizes)),
                planned=self.homes.offsets[number],
                name=self.plan.buffers[number].name,
            )
        return known

    def copy_of(self, fm: int, step: int) -> tuple[int, int]:
        """Places of a graph input and of its copy in the staging memory."""
        found = [tensor for tensor, known in self.maps.items() if known == fm]
        if len(found) != 1:
            raise refuse(f"map {fm} is copied", f"it is {len(found)} tensors of the template")
        copy = self.homes.find(fm, step, writes=False)
        source = self.place(found[0], None, step, writes=True)
        key = (found[0], copy)
        if key not in self.places:
            self.places[key] = self._new_place(found[0], fm, copy)
        return source, self.places[key]

    def place(self, tensor: int, kernel: TemplateKernel | None, step: int, *, writes: bool) -> int:
        """The place of a tensor of the template for a kernel of a segment (None: the host)."""
        fm = self.maps.get(tensor)
        if kernel is None:
            number = None if fm is None else self.homes.original(fm)
        else:
            number = self.homes.find(fm, step, writes=writes)
        key = (tensor, number)
        known = self.places.get(key)
        if known is None:
            known = self.places[key] = self._new_place(tensor, fm, number)
        return known

    def _new_place(self, tensor: int, fm: int | None, number: int | None) -> int:
        size, name = self.template.tensors[tensor].size_bytes, ""
        rows = shift = 0
        over = planned = None
        if number is not None:
            buffer = self.plan.buffers[number]
            name = buffer.name
            planned = self.homes.offsets[number]
            if buffer.kind is BufferKind.ROLLING:
                rows = buffer.rows
                size = align_up(rows * self._pitch(tensor))
            if buffer.in_place_of is not None:
                shift = buffer.shift_bytes
                over = self._taken_over(buffer.in_place_of, buffer.first_step)
        return self.placing.add(
            memory=self.homes.memory(number, has_fast=self.has_fast),
            tensor=tensor,
            size_bytes=size,
            rows=rows,
            over=over,
            shift_bytes=shift,
            planned=planned,
            name=name or (f"map {fm}" if fm is not None else ""),
        )

    def _taken_over(self, fm: int, step: int) -> int:
        """The place that a result takes over."""
        number = self.homes.find(fm, step, writes=False)
        found = [
            place
            for (tensor, known), place in self.places.items()
            if known == number and self.maps.get(tensor) == fm
        ]
        if len(found) != 1:
            raise refuse(f"a result takes over map {fm}", f"which has {len(found)} places")
        return found[0]

    def _pitch(self, tensor: int) -> int:
        """Row pitch of a tensor that is kept in rows; all its views must agree on it."""
        pitches: set[tuple[int, int]] = set()
        for own in self.kernels.values():
            for kernel in own:
                for role, use in kernel.uses:
                    if use.tensor == tensor:
                        view = getattr(kernel.state, role)
                        pitches.add((view.stride_y, use.delta_bytes))
        if len(pitches) != 1 or next(iter(pitches))[1]:
            raise refuse(
                f"tensor {tensor} lies in a rolling buffer", f"but is seen with rows {pitches}"
            )
        return next(iter(pitches))[0]
