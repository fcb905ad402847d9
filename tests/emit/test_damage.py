"""What is wrong in a stream is found before it is written: each kind of damage fails the gate."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.emit_damage import (
    swapped_stripes,
    with_block_dependency,
    without_any_wait,
    without_top_padding,
    without_waits,
)
from benchmarks.emit_plans import forced_plan
from benchmarks.plan_damage import with_rows
from npusched.emission.build import finish
from npusched.emission.constants import RebuiltConstants
from npusched.emission.events import Run
from npusched.emission.gate import CheckName
from npusched.emission.parts import Emitted
from npusched.emission.planned import plan_issue
from npusched.errors import EmitError
from npusched.schedule import Plan
from npusched.schedule.rows import Policy
from npusched.schedule.types import BufferKind
from tests.emit.emitting_kit import Ready, ready


@pytest.fixture(name="made")
def _made() -> Ready:
    return ready("resnet8", "ethos-u55-128")


@pytest.fixture(name="plan")
def _plan(made: Ready) -> Plan:
    end = max(made.planner.segments.ends(0))
    return forced_plan(made.planner, {0: (end, 2, Policy.DEMAND)})


def failed(made: Ready, emitted: Emitted) -> set[CheckName]:
    """Checks that an emitted plan fails."""
    return {check.name for check in made.gate(emitted)[1].failed}


def test_the_plan_is_fine(made: Ready, plan: Plan) -> None:
    assert failed(made, made.emit(plan)) == set()


def test_a_rolling_buffer_of_one_row_fewer(made: Ready, plan: Plan) -> None:
    rolling = [k for k, b in enumerate(plan.buffers) if b.kind is BufferKind.ROLLING]
    for number in rolling:
        try:
            emitted = made.emit(with_rows(plan, number, -1))
        except EmitError:
            continue
        assert CheckName.VERSIONS in failed(made, emitted)


def test_each_wait_is_needed(made: Ready) -> None:
    plan = made.planner.plan(None)
    damaged = list(without_waits(made.emit(plan)))
    assert damaged
    assert all(CheckName.WAITS in failed(made, each) for each in damaged[:8])


@pytest.mark.parametrize(
    ("damage", "check"),
    [
        (without_any_wait, CheckName.WAITS),
        (lambda emitted: with_block_dependency(emitted, 3), CheckName.BLOCKDEP),
        (without_top_padding, CheckName.VERSIONS),
    ],
)
def test_damaged_streams(
    made: Ready, plan: Plan, damage: Callable[[Emitted], Emitted], check: CheckName
) -> None:
    assert check in failed(made, damage(made.emit(plan)))


def test_swapped_stripes(made: Ready, plan: Plan) -> None:
    constants = RebuiltConstants(made.template)
    model, graph = made.prepared.model, made.prepared.graph
    issue = plan_issue(made.template, model, graph, plan, made.match, constants)
    pairs = list(swapped_stripes(issue))
    assert len(pairs) > 20
    for wrong in pairs[::10]:
        emitted = finish(made.template, wrong, RebuiltConstants(made.template))
        assert failed(made, emitted)


def test_exchanged_slices_of_weights(made: Ready) -> None:
    """A kernel with the weights of another slice reads constants, only not its own."""
    plan = made.planner.plan(None)
    constants = RebuiltConstants(made.template)
    model, graph = made.prepared.model, made.prepared.graph
    issue = plan_issue(made.template, model, graph, plan, made.match, constants)
    sliced = []
    for wrong in swapped_stripes(issue):
        moved = [b for a, b in zip(issue.events, wrong.events, strict=True) if a != b]
        if len({e.channels for _, e in moved if isinstance(e, Run)}) > 1:
            sliced.append(wrong)
    assert sliced
    for wrong in sliced:
        emitted = finish(made.template, wrong, RebuiltConstants(made.template))
        assert failed(made, emitted) & {CheckName.NUMERICS, CheckName.RANGES}
