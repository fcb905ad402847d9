"""Vela's own uncascaded schedule, emitted again: every kernel whole, in Vela's order.

At Vela's addresses, so that the result differs from Vela's file in a few values of BLOCKDEP only
(EMIT.md §5): the test of every register, wait and byte that we write.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from npusched.emission.build import Placing, finish
from npusched.emission.constants import OriginalConstants
from npusched.emission.events import ARENA, Event, Issue, Run, Touch
from npusched.emission.parts import Emitted
from npusched.emission.template import HostStep, Template
from npusched.vela.stream import TWO_WORDS, Register, decode_ops


def emit_identity(template: Template) -> Emitted:
    """Return Vela's schedule as streams of ours. Raises EmitError, SimError."""
    return finish(template, identity_issue(template), OriginalConstants(template), as_planned=True)


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
            events += [
                (-1, Touch(places=tuple(template.boundary[i] for i in planned)))
                for planned in step.touched
            ]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDifferences:
    """How our streams differ from Vela's.

    ``block_dependencies``: (operator, kernel, ours, Vela's) of BLOCKDEP; ``others``: (operator,
    byte of ours, register, ours, Vela's) of everything else that a command sees; ``words``: words
    more than Vela's, those that set BLOCKDEP left out.
    """

    block_dependencies: tuple[tuple[int, int, int, int], ...]
    others: tuple[tuple[int, int, int, int, int], ...]
    words: int


def compare_streams(template: Template, emitted: Emitted) -> StreamDifferences:
    """Compare command by command; the order of registers between two commands is free."""
    dependencies, others, words = [], [], 0
    for number, operator in enumerate(template.partitions):
        ours = replace(operator.stream, words=emitted.streams[number].words)
        ours = replace(ours, ops=tuple(decode_ops(ours.words, ours.family)))
        words += _plain_words(ours.words) - _plain_words(operator.stream.words)
        kernel = -1
        if len(ours.ops) != len(operator.stream.ops):
            others.append((number, 0, -1, len(ours.ops), len(operator.stream.ops)))
            continue
        for (mine, mine_sees), (theirs, theirs_sees) in zip(
            ours.walk(), operator.stream.walk(), strict=True
        ):
            kernel += mine.is_kernel
            if (mine.kind, mine.parameter) != (theirs.kind, theirs.parameter):
                others.append((number, mine.offset_bytes, -1, mine.parameter, theirs.parameter))
            for register in mine_sees.keys() | theirs_sees.keys():
                a, b = mine_sees.get(register, -1), theirs_sees.get(register, -1)
                if a == b:
                    continue
                if register != Register.BLOCK_DEPENDENCY:
                    others.append((number, mine.offset_bytes, register, a, b))
                elif mine.is_kernel:
                    dependencies.append((number, kernel, a, b))
    return StreamDifferences(
        block_dependencies=tuple(dependencies), others=tuple(others), words=words
    )


def _plain_words(words: tuple[int, ...]) -> int:
    """Words but for those that set BLOCKDEP (one word each)."""
    count = at = 0
    while at < len(words):
        length = 2 if words[at] & TWO_WORDS else 1
        count += length if words[at] & 0xFFFF != Register.BLOCK_DEPENDENCY else 0
        at += length
    return count
