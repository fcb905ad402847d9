"""From a solved path to a plan: what runs, which buffers live when, and at which addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from npusched.cost.types import BlockConfig
from npusched.graph.types import Placement
from npusched.memory import Allocation, LiveRange, Tied, align_up, allocate, allocate_tied
from npusched.schedule.kernels import Kernels, Places, Sizes
from npusched.schedule.search import Solution, Step
from npusched.schedule.segments import Detail, Segments
from npusched.schedule.staging import Way
from npusched.schedule.stripes import window_of
from npusched.schedule.types import (
    Amounts,
    Bound,
    Buffer,
    BufferKind,
    Copy,
    OpRun,
    Plan,
    Proof,
    Segment,
    WeightMode,
    add_amounts,
)


def assemble(
    segments: Segments,
    solution: Solution,
    budget_bytes: int | None,
    constants: int,
    shared_bytes: int,
) -> Plan:
    """Build the plan of a solution and allocate it. ``shared_bytes`` constants share the budget.

    The plan's bound is a placeholder; the caller knows the proof.
    """
    homes = _homes(segments, solution)
    parts = _segments(segments, solution)
    staged = segments.staged_inputs(homes)
    buffers = _feature_maps(segments, solution, homes)
    buffers += _copies(segments, buffers, staged)
    for index, step in enumerate(solution.steps):
        buffers.extend(_own_buffers(segments, step, index, homes))
    roles = segments.target.roles
    memory = roles.cache
    limit = None if budget_bytes is None else budget_bytes - shared_bytes
    allocations = _allocate(buffers, memory, limit)
    own = dict(allocations).get(memory, Allocation(offsets=(), peak_bytes=0, bound_bytes=0))
    return Plan(
        segments=tuple(parts),
        homes=tuple(sorted({**homes, **dict.fromkeys(staged, roles.arena)}.items())),
        buffers=tuple(buffers),
        allocations=allocations,
        amounts=add_amounts([part.amounts for part in parts]),
        objective=solution.score,
        bound=Bound(objective=solution.score, gap=0.0, proof=Proof.FEASIBLE, scope=""),
        budget_memory=memory,
        budget_bytes=budget_bytes,
        sram_peak_bytes=own.peak_bytes + shared_bytes,
        sram_bound_bytes=own.bound_bytes + shared_bytes,
        constant_bytes=constants,
    )


def amounts_of(segments: Segments, solution: Solution) -> Amounts:
    """What a solution costs; nothing is allocated."""
    return add_amounts([part.amounts for part in _segments(segments, solution)])


def _homes(segments: Segments, solution: Solution) -> dict[int, str]:
    return {segments.tensors[item]: memory for item, memory in solution.homes.items()}


def _segments(segments: Segments, solution: Solution) -> list[Segment]:
    """All segments with their costs; the first one brings staged inputs along."""
    homes = _homes(segments, solution)
    before = [None, *solution.steps[:-1]]
    parts = [
        _segment(segments, step, homes, 0.0 if previous is None else previous.option.cycles)
        for previous, step in zip(before, solution.steps, strict=False)
    ]
    staged = segments.staged_inputs(homes)
    if staged:
        parts[0] = _with_copies(segments, parts[0], staged)
    return parts


def constant_bytes(kernels: Kernels, segments: Segments) -> int:
    """Bytes of all constants in their memory: encoded weights, tables, constant feature maps.

    Weights are counted once per key, encoded for the whole op's block.
    """
    seen: dict[str, int] = {}
    for v, op in enumerate(kernels.graph.ops):
        if op.placement is Placement.CPU:
            continue
        places = segments.places_of(v, v, v, {})
        if op.weights is not None:
            rows = window_of(op).ofm_rows
            seen[op.weights.key] = align_up(kernels.weights(v, rows, places).total)
        lut_bytes = kernels.cost_op(v, places).lut_bytes
        if lut_bytes:
            seen[f"lut of {v}"] = lut_bytes
    for fm in kernels.graph.feature_maps.values():
        if fm.is_constant:
            seen[f"map {fm.id}"] = align_up(fm.stored_bytes)
    return sum(seen.values())


def sizes_of(segments: Segments, step: Step, v: int) -> tuple[int, Sizes]:
    """(nominal stripe rows, distinct sizes) of op v in a chosen segment."""
    if step.start == step.end and not _detail(step).shift:
        rows = segments.windows[v].ofm_rows
        return rows, ((0, rows, 1),)
    detail = _detail(step)
    return segments.sizes(v, step.end, detail.stripe_rows, detail.policy)


def _shape(block: BlockConfig) -> tuple[int, int, int]:
    return block.ofm_block.h, block.ofm_block.w, block.ofm_block.c


def _detail(step: Step) -> Detail:
    assert isinstance(step.option.detail, Detail)
    return step.option.detail


def _segment(
    segments: Segments, step: Step, homes: Mapping[int, str], slack_cycles: float
) -> Segment:
    detail = _detail(step)
    ops = range(step.start, step.end + 1)
    runs = [run_of(segments, step, v, homes, slack_cycles) for v in ops]
    last = segments.graph.ops[step.end]
    rows = segments.windows[step.end].ofm_rows
    return Segment(
        ops=tuple(range(step.start, step.end + 1)),
        placement=last.placement,
        stripe_rows=detail.stripe_rows,
        stripes=max(1, -(-rows // max(detail.stripe_rows, 1))),
        policy=detail.policy,
        runs=tuple(runs),
        amounts=add_amounts([run.amounts for run in runs]),
        sram_bytes=step.sram_bytes,
    )


def run_of(
    segments: Segments, step: Step, v: int, homes: Mapping[int, str], slack_cycles: float
) -> OpRun:
    """How op v of a chosen segment runs; ``slack_cycles``: what the segment before lends.

    ``segments`` may be those of the same graph on another target: then its cost there.
    """
    places = segments.places_of(v, step.start, step.end, homes)
    return _op_run(segments, step, v, places, slack_cycles)


def _op_run(segments: Segments, step: Step, v: int, places: Places, slack_cycles: float) -> OpRun:
    rows, sizes = sizes_of(segments, step, v)
    mode, way = _detail(step).modes[v - step.start], _way(segments, step, places)
    if way is None:
        cost = segments.kernels.run(v, rows, sizes, places, mode)
    else:
        assert segments.staged is not None
        slack = slack_cycles if way.buffering.prefetched else 0.0
        cost = segments.staged.cost(v, places, _detail(step).way or 0, slack)
    op = segments.graph.ops[v]
    on_cpu = op.placement is Placement.CPU
    return OpRun(
        op=v,
        placement=op.placement,
        stripe_rows=rows,
        runs=sum(count for _, _, count in sizes)
        * op.count
        * (1 if way is None else way.buffering.slices),
        weight_mode=None if op.weights is None or on_cpu else mode,
        weight_bytes=cost.weights.total,
        weights_exact=cost.weights.exact,
        block=None if cost.block is None else _shape(cost.block),
        memory_cycles=tuple(sorted(cost.busy.items())),
        bound_by="cpu" if on_cpu else segments.kernels.bound_by(v, places, cost),
        amounts=segments.kernels.amounts(cost),
        buffering=None if way is None or way.is_plain else way.buffering,
    )


def _way(segments: Segments, step: Step, places: Places) -> Way | None:
    """How the weights of a single op are staged, None if in no such way."""
    detail = _detail(step)
    if detail.way is None or segments.staged is None:
        return None
    return segments.staged.ways(step.start, places)[detail.way]


def _feature_maps(segments: Segments, solution: Solution, homes: Mapping[int, str]) -> list[Buffer]:
    """Buffers of the feature maps that cross segments, alive from producer to last reader."""
    segment_of = {}
    for index, step in enumerate(solution.steps):
        for v in range(step.start, step.end + 1):
            segment_of[v] = index
    count = len(solution.steps)
    buffers: list[Buffer] = []
    if not solution.steps:
        return buffers  # nothing runs
    over = {
        segments.graph.ops[step.end].final_ofm.tensor: (detail.over, detail.shift)
        for step in solution.steps
        for detail in (_detail(step),)
        if detail.over is not None
    }
    for tensor in segments.tensors:
        life = segments.lives[tensor]
        first = 0 if life.first < 0 else segment_of.get(life.first, 0)
        end = count if life.last >= len(segments.graph.ops) else segment_of.get(life.last, 0) + 1
        step = solution.steps[first]
        inside = segments.internal(tensor, step.start, step.end)
        if inside and step.end > step.start:
            continue  # rows of it live in a rolling buffer
        fm = segments.graph.feature_maps[tensor]
        memory = life.homes[0] if inside or fm.is_graph_input else homes[tensor]
        buffers.append(
            Buffer(
                kind=BufferKind.FEATURE_MAP,
                name=fm.name,
                tensor=tensor,
                memory=memory,
                rows=fm.shape[1],
                size_bytes=life.size_bytes,
                first_step=first,
                end_step=max(end, first + 1),
                in_place_of=over[tensor][0] if tensor in over else None,
                shift_bytes=over[tensor][1] if tensor in over else 0,
            )
        )
    return buffers


def _with_copies(segments: Segments, first: Segment, staged: Sequence[int]) -> Segment:
    """The first segment, with copies of graph inputs to the staging memory before its ops."""
    roles = segments.target.roles
    copies = tuple(
        Copy(
            tensor=tensor,
            source=roles.arena,
            destination=roles.cache,
            size_bytes=segments.lives[tensor].size_bytes,
            amounts=segments.kernels.amounts(
                segments.kernels.copy(segments.lives[tensor].size_bytes)
            ),
        )
        for tensor in staged
    )
    amounts = add_amounts([first.amounts, *(copy.amounts for copy in copies)])
    return replace(first, copies=copies, amounts=amounts)


def _copies(segments: Segments, buffers: Sequence[Buffer], staged: Sequence[int]) -> list[Buffer]:
    """Buffers of the copies of graph inputs, alive as long as the inputs."""
    return [
        replace(buffer, memory=segments.target.roles.cache, is_copy=True)
        for buffer in buffers
        if buffer.tensor in staged
    ]


def _own_buffers(
    segments: Segments, step: Step, index: int, homes: Mapping[int, str]
) -> list[Buffer]:
    """Rolling buffers and resident weights of one segment."""
    detail, cache = _detail(step), segments.target.roles.cache
    buffers = []
    for v in range(step.start, step.end + 1):
        op = segments.graph.ops[v]
        fm = segments.graph.feature_maps[op.final_ofm.tensor] if v < step.end else None
        if fm is not None and segments.internal(fm.id, step.start, step.end):
            run = segments.fusing.run(v, step.end, detail.stripe_rows, detail.policy)
            kept = run.kept_rows
            buffers.append(
                Buffer(
                    kind=BufferKind.ROLLING,
                    name=fm.name,
                    tensor=fm.id,
                    memory=cache,
                    rows=kept,
                    size_bytes=align_up(kept * fm.row_bytes),
                    first_step=index,
                    end_step=index + 1,
                )
            )
        if detail.modes[v - step.start] is WeightMode.RESIDENT:
            buffers += _weight_buffers(segments, step, index, v, homes)
    return buffers


def _weight_buffers(
    segments: Segments, step: Step, index: int, v: int, homes: Mapping[int, str]
) -> list[Buffer]:
    """Buffers of resident weights; what is prefetched is there in the segment before, too."""
    places = segments.places_of(v, step.start, step.end, homes)
    way = _way(segments, step, places)
    if way is None:
        rows, _ = sizes_of(segments, step, v)
        sizes: tuple[int, ...] = (align_up(segments.kernels.weights(v, rows, places).total),)
    else:
        sizes = way.buffer_bytes
    early = way is not None and way.buffering.prefetched
    return [
        Buffer(
            kind=BufferKind.WEIGHTS,
            name=f"weights of {segments.graph.ops[v].name or v}",
            tensor=v,
            memory=segments.target.roles.cache,
            rows=0,
            size_bytes=size,
            first_step=index - 1 if early and number == 0 else index,
            end_step=index + 1,
        )
        for number, size in enumerate(sizes)
    ]


def _allocate(
    buffers: list[Buffer], budget_memory: str, limit: int | None
) -> tuple[tuple[str, Allocation], ...]:
    result = []
    for memory in sorted({buffer.memory for buffer in buffers}):
        own = [buffer for buffer in buffers if buffer.memory == memory]
        if any(buffer.shift_bytes for buffer in own):
            within = limit if memory == budget_memory else None
            result.append((memory, _allocate_tied(own, within)))
            continue
        groups = _same_place(own)
        ranges = []
        for group in groups:
            members = [own[k] for k in group]
            ranges.append(
                LiveRange(
                    key=members[0].name,
                    size_bytes=max(buffer.size_bytes for buffer in members),
                    first_step=min(buffer.first_step for buffer in members),
                    end_step=max(buffer.end_step for buffer in members),
                )
            )
        placed = allocate(ranges, limit_bytes=limit if memory == budget_memory else None)
        offsets = [0] * len(own)
        for group, offset in zip(groups, placed.offsets, strict=True):
            for k in group:
                offsets[k] = offset
        tied = Allocation(
            offsets=tuple(offsets), peak_bytes=placed.peak_bytes, bound_bytes=placed.bound_bytes
        )
        result.append((memory, tied))
    return tuple(result)


def _allocate_tied(buffers: Sequence[Buffer], limit: int | None) -> Allocation:
    """Addresses where some results start a fixed way below the input that they grow over."""
    groups = []
    for group in _same_place(buffers):
        below: dict[int, int] = {}
        by_tensor: dict[int, int] = {}
        for k in group:  # in order of first steps: what is taken over comes first
            buffer = buffers[k]
            old = None if buffer.in_place_of is None else by_tensor.get(buffer.in_place_of)
            below[k] = (0 if old is None else below[old]) + buffer.shift_bytes
            by_tensor[buffer.tensor] = k
        deepest = max(below.values())
        groups.append(Tied(members=tuple((k, deepest - down) for k, down in below.items())))
    return allocate_tied([buffer.live for buffer in buffers], groups, limit_bytes=limit)


def _same_place(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Indices of buffers that take each other's place, one list per place."""
    group_of: dict[int, list[int]] = {}
    by_tensor = {
        buffer.tensor: k
        for k, buffer in enumerate(buffers)
        if buffer.kind is BufferKind.FEATURE_MAP
    }
    groups: list[list[int]] = []
    taken_last = sorted(
        enumerate(buffers), key=lambda pair: (pair[1].first_step, pair[1].in_place_of is not None)
    )
    for k, buffer in taken_last:
        before = None if buffer.in_place_of is None else by_tensor.get(buffer.in_place_of)
        if before is None:
            groups.append([k])
        else:
            group_of[before].append(k)
        group_of[k] = groups[-1] if before is None else group_of[before]
    return groups
