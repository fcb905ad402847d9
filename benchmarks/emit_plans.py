"""Random plans to emit: cascades, heights, policies, weights, placements, blocks.

Nothing is optimised: every segment, height and mode that the planner knows may be drawn, also those
that it would never choose.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from msgspec.structs import replace

from npusched.emission.shram import shram_registers
from npusched.emission.template import Template, TemplateKernel
from npusched.errors import EmitError
from npusched.graph.types import Placement
from npusched.hardware.target import AcceleratorU55, Block
from npusched.schedule import Plan, Planner, check_plan
from npusched.schedule.rows import Policy, stripe_candidates
from npusched.schedule.search import Option, Solution, Step
from npusched.schedule.segments import Detail, Segments
from npusched.schedule.types import OpRun, WeightMode

_TRIES = 20
_BLOCK_TRIES = 30


def random_plan(planner: Planner, rng: random.Random) -> Plan:
    """Return a random plan of a planner's graph that passes the independent check."""
    segments = planner.segments
    for _ in range(_TRIES):
        plan = planner._assemble(_solution(segments, rng), None)
        if not check_plan(segments.graph, segments.target, plan):
            return plan
    raise RuntimeError("no random plan passes its check")


def forced_plan(planner: Planner, cascades: Mapping[int, tuple[int, int, Policy]]) -> Plan:
    """Return a plan with these cascades: first op -> (last op, rows of a stripe, policy).

    All weights of cascades are resident; every other op runs whole, with streamed weights.
    """
    segments = planner.segments
    homes = {item: segments.lives[t].homes[0] for item, t in enumerate(segments.tensors)}
    steps = []
    at = 0
    while at < len(segments.graph.ops):
        end, rows, policy = cascades.get(at, (at, 0, Policy.ALIGNED))
        modes = tuple(segments.modes(v)[-1] for v in range(at, end + 1))
        detail = Detail(rows, policy, modes)
        if end == at:
            whole = segments.windows[at].ofm_rows
            detail = Detail(whole, policy, (WeightMode.STREAMED,))
        option = Option(sram_bytes=0, score=0.0, detail=detail)
        steps.append(Step(start=at, end=end, homes=(), option=option, sram_bytes=0))
        at = end + 1
    solution = Solution(score=0.0, steps=tuple(steps), homes=homes, peak_bytes=0, capped=False)
    plan = planner._assemble(solution, None)
    faults = check_plan(segments.graph, segments.target, plan)
    if faults:
        raise ValueError(faults[0])
    return plan


def _solution(segments: Segments, rng: random.Random) -> Solution:
    homes = {
        item: rng.choice(segments.lives[tensor].homes)
        for item, tensor in enumerate(segments.tensors)
    }
    places = {segments.tensors[item]: memory for item, memory in homes.items()}
    steps: list[Step] = []
    at = 0
    while at < len(segments.graph.ops):
        ends = list(segments.ends(at))
        end = rng.choice(ends) if rng.random() < 0.7 else ends[0]
        detail = _alone(segments, at, steps, rng)
        if end > at:
            detail = _together(segments, at, end, places, rng)
        option = Option(sram_bytes=0, score=0.0, detail=detail)
        steps.append(Step(start=at, end=end, homes=(), option=option, sram_bytes=0))
        at = end + 1
    return Solution(score=0.0, steps=tuple(steps), homes=homes, peak_bytes=0, capped=False)


def _together(
    segments: Segments, i: int, j: int, places: dict[int, str], rng: random.Random
) -> Detail:
    """Ops i to j in stripes."""
    rows = rng.choice(stripe_candidates(segments.windows[j].ofm_rows))
    policy = rng.choice(list(Policy))
    over, _, shift = segments.overwriting.found(i, j, rows, policy, places)
    modes = tuple(rng.choice(segments.modes(v)) for v in range(i, j + 1))
    return Detail(rows, policy, modes, over, None, shift)


def _alone(segments: Segments, v: int, before: list[Step], rng: random.Random) -> Detail:
    """Op v by itself, its weights streamed or staged in one of all ways."""
    rows = segments.windows[v].ofm_rows
    ways = (
        [] if segments.staged is None else segments.staged.ways(v, segments.places_of(v, v, v, {}))
    )
    last = segments.graph.ops[before[-1].end] if before else None
    may_hide = last is not None and last.placement is Placement.NPU
    known = [number for number, way in enumerate(ways) if may_hide or not way.buffering.prefetched]
    if known and rng.random() < 0.7:
        return Detail(rows, Policy.ALIGNED, (WeightMode.RESIDENT,), None, rng.choice(known))
    return Detail(rows, Policy.ALIGNED, (WeightMode.STREAMED,))


def with_random_blocks(
    plan: Plan,
    template: Template,
    kernels: dict[int, tuple[TemplateKernel, ...]],
    rng: random.Random,
    share: float = 0.5,
) -> Plan:
    """Return the plan with other legal blocks in a share of its ops of one kernel.

    ``kernels``: of each op of the plan.
    """

    def changed(run: OpRun) -> OpRun:
        own = kernels.get(run.op, ())
        if run.block is None or len(own) != 1 or rng.random() > share:
            return run
        block = _block(own[0], template.accelerator, rng)
        return replace(run, block=(block.h, block.w, block.c))

    return replace(
        plan,
        segments=tuple(
            replace(segment, runs=tuple(changed(run) for run in segment.runs))
            for segment in plan.segments
        ),
    )


def _block(kernel: TemplateKernel, accelerator: AcceleratorU55, rng: random.Random) -> Block:
    """A random legal block of a kernel, its own if none is found."""
    ublock, largest, state = accelerator.ofm_ublock, accelerator.max_ofm_block, kernel.state
    deep = -(-state.ofm.c // ublock.c) * ublock.c
    depths = [c for c in range(16, min(deep, largest.c) + 1, 16) if c % ublock.c == 0]
    depths += [deep] if deep <= largest.c else []
    for _ in range(_BLOCK_TRIES):
        block = Block(
            ublock.h * rng.randint(1, max(1, min(state.ofm.h, largest.h) // ublock.h)),
            ublock.w * rng.randint(1, max(1, min(state.ofm.w, largest.w) // ublock.w)),
            rng.choice(depths or [state.block.c]),
        )
        try:
            shram_registers(state, block, accelerator)
        except EmitError:
            continue
        return block
    return state.block
