"""Vela's own uncascaded schedule, emitted again: every kernel whole, in Vela's order.

At Vela's addresses, so that the result differs from Vela's file in a few values of BLOCKDEP only
(EMIT.md §5): the test of every register, wait and byte that we write.
"""

from __future__ import annotations

from npusched.emit.build import Placing, finish
from npusched.emit.constants import OriginalConstants
from npusched.emit.events import ARENA, Event, Issue, Run, Touch
from npusched.emit.parts import Emitted
from npusched.emit.template import HostStep, Template


def emit_identity(template: Template) -> Emitted:
    """Return Vela's schedule as streams of ours. Raises EmitError, SimError."""
    return finish(
        template, identity_issue(template), OriginalConstants(template), as_planned=True
    )


def identity_issue(template: Template) -> Issue:
    """Every kernel whole, every tensor where Vela has it."""
    placing = Placing(template)
    events: list[tuple[int, Event]] = []
    over = in_place(template)
    for tensor in template.tensors:
        placing.add(
            memory=ARENA,
            tensor=tensor.number,
            size_bytes=tensor.size_bytes,
            over=over.get(tensor.number),
            planned=tensor.base,
        )
    for step in template.steps:
        if isinstance(step, HostStep):
            planned = (*step.reads, *step.writes)
            events.append((-1, Touch(places=tuple(template.boundary[i] for i in planned))))
            continue
        for kernel in template.by_partition[step]:
            run = Run(
                kernel=kernel.index,
                rows=(0, kernel.rows),
                channels=(0, kernel.channels),
                block=kernel.state.block,
                places=tuple((role, use.tensor) for role, use in kernel.uses),
            )
            events.append((step, run))
    return placing.issue(events, dict(template.boundary))


def in_place(template: Template) -> dict[int, int]:
    """Tensors that Vela stores over one of their kernel's inputs: tensor -> that input."""
    found: dict[int, int] = {}
    written: set[int] = set()
    for kernel in template.kernels:
        result = kernel.ofm.tensor
        if result not in written:
            written.add(result)
            base = template.tensors[result].base
            for role, use in kernel.uses:
                same = role != "ofm" and use.tensor != result
                if same and template.tensors[use.tensor].base == base:
                    found[result] = use.tensor
    return found
