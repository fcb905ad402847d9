"""Which of the plan's buffers each tensor of the template lies in."""

from __future__ import annotations

from collections.abc import Mapping

from npusched.emission.events import ARENA, FAST
from npusched.emission.template import Template, TemplateKernel
from npusched.graph.opgraph import OpGraph
from npusched.ir import Model
from npusched.schedule.lifetimes import storage
from npusched.schedule.types import Buffer, BufferKind, Plan


def maps_of(
    template: Template,
    model: Model,
    graph: OpGraph,
    kernels: Mapping[int, tuple[TemplateKernel, ...]],
) -> dict[int, int]:
    """Feature map (id) of each tensor of the template; those inside an op have none.

    ``kernels``: of each op of ``graph``.
    """
    found: dict[int, int] = {}
    for v, own in kernels.items():
        result = own[-1].ofm.tensor
        found[result] = graph.ops[v].final_ofm.tensor
    _by_name(template, model, graph, found)
    for v, own in kernels.items():
        op = graph.ops[v]
        wanted = [a.tensor for a in op.ifms if not graph.feature_maps[a.tensor].is_constant]
        missing = [t for t in dict.fromkeys(wanted) if t not in found.values()]
        inner = {kernel.ofm.tensor for kernel in own}
        unknown = dict.fromkeys(
            use.tensor
            for kernel in own
            for role, use in kernel.uses
            if role != "ofm" and use.tensor not in found and use.tensor not in inner
        )
        if len(missing) == len(unknown) == 1:
            found[next(iter(unknown))] = missing[0]
    return found


def _by_name(template: Template, model: Model, graph: OpGraph, found: dict[int, int]) -> None:
    """Tensors that the host sees, by the name of the source tensor."""
    written = template.file.model.subgraphs[0].tensors
    sources = model.subgraphs[graph.subgraph].tensors
    named: dict[str, list[int]] = {}
    for fm in graph.feature_maps.values():
        if fm.source is not None and fm.source[0] == graph.subgraph:
            named.setdefault(sources[fm.source[1]].name, []).append(fm.id)
    for index, tensor in template.boundary.items():
        ids = named.get(written[index].name, [])
        if tensor not in found and len(ids) == 1:
            found[tensor] = ids[0]


class Homes:
    """Buffers of a plan by map, op and segment, with their addresses."""

    def __init__(self, graph: OpGraph, plan: Plan) -> None:
        self.plan = plan
        self._same = storage(graph)
        self._cache = plan.budget_memory
        self.offsets: dict[int, int] = {}
        for memory, allocation in plan.allocations:
            own = [k for k, buffer in enumerate(plan.buffers) if buffer.memory == memory]
            self.offsets.update(zip(own, allocation.offsets, strict=True))
        self._of: dict[int, list[int]] = {}
        for k, buffer in enumerate(plan.buffers):
            if buffer.kind is not BufferKind.WEIGHTS:
                self._of.setdefault(buffer.tensor, []).append(k)

    def find(self, fm: int | None, step: int, *, writes: bool) -> int | None:
        """Number of the buffer that a map is read from (copies first) or written to."""
        if fm is None:
            return None
        alive = [
            k
            for k in self._of.get(self._same.get(fm, fm), ())
            if self.plan.buffers[k].first_step <= step < self.plan.buffers[k].end_step
            and not (writes and self.plan.buffers[k].is_copy)
        ]
        return max(alive, key=lambda k: (self.plan.buffers[k].is_copy, k), default=None)

    def original(self, fm: int) -> int | None:
        """Number of the buffer of a map that is not a copy."""
        own = self._of.get(self._same.get(fm, fm), ())
        return next((k for k in own if not self.plan.buffers[k].is_copy), None)

    def weights(self, v: int, step: int) -> list[int]:
        """Numbers of the buffers of an op's weights in a segment, in order."""
        return [
            k
            for k, buffer in enumerate(self.plan.buffers)
            if buffer.kind is BufferKind.WEIGHTS
            and buffer.tensor == v
            and buffer.first_step <= step < buffer.end_step
        ]

    def memory(self, number: int | None, *, has_fast: bool) -> str:
        """Memory of a buffer: the arena, or the staging memory where there is one."""
        if number is None or not has_fast:
            return ARENA
        return FAST if self._buffer(number).memory == self._cache else ARENA

    def _buffer(self, number: int) -> Buffer:
        return self.plan.buffers[number]
