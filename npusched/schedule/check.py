"""Independent check of a plan: everything is derived again from the graph, nothing from the search.

``check_plan`` looks at structure, budget and buffers; ``replay`` runs every chain row by row
through its rolling buffers and reads version tags: a row that is missing, stale or overwritten
too early is a fault, whatever the formulas of the planner say.
"""

from __future__ import annotations

from npusched.graph.opgraph import OpGraph
from npusched.graph.reorder import reordered
from npusched.graph.types import NOT_STORED, FeatureMap, Placement
from npusched.hardware import Target
from npusched.schedule.check_order import order_faults
from npusched.schedule.check_sharing import address_faults, takeovers, weight_faults
from npusched.schedule.replay import ReplayedOp, replay_segment
from npusched.schedule.types import Buffer, BufferKind, Plan, Segment


def check_plan(graph: OpGraph, target: Target, plan: Plan) -> list[str]:
    """Return what is wrong with ``plan``, one sentence per fault; [] if it holds.

    ``graph`` is the one that was planned, in its own order. Checked: the plan's order (every map is
    written before it is read, accumulators are used at once); every op runs once, in that order;
    segments of several ops are NPU chains; every read and write finds a buffer that is alive and
    large enough; graph inputs live from the start and outputs to the end; addresses
    (``check_allocation``) and what shares them; weight buffers; the budget; rolling rows
    (``replay``).
    """
    faults = order_faults(graph, plan.order)
    graph = graph if faults else reordered(graph, plan.order)
    faults = faults or _coverage(graph, plan)
    if faults:
        return faults
    for index, segment in enumerate(plan.segments):
        faults += _segment(graph, plan, index, segment)
        if len(segment.ops) > 1:
            faults += replay(graph, plan, index, segment)
    faults += _edges(graph, plan)
    faults += takeovers(graph, plan)
    faults += weight_faults(plan)
    faults += _addresses(target, plan)
    return faults


def _coverage(graph: OpGraph, plan: Plan) -> list[str]:
    ran = [op for segment in plan.segments for op in segment.ops]
    if ran != list(range(len(graph.ops))):
        return [f"ops run as {ran[:8]}…, not each once in order ({len(graph.ops)} ops)"]
    return []


def _segment(graph: OpGraph, plan: Plan, index: int, segment: Segment) -> list[str]:
    faults = []
    made = {graph.ops[v].final_ofm.tensor for v in segment.ops[:-1]}
    inner = {t for t in made if _find(plan, BufferKind.ROLLING, t, index) is not None}
    for v in segment.ops:
        op = graph.ops[v]
        if len(segment.ops) > 1 and op.placement is not Placement.NPU:
            faults.append(f"segment {index} chains op {v}, which runs on the CPU")
        for access in (*op.reads, *op.writes, *(() if op.scratch is None else (op.scratch,))):
            fm = graph.feature_maps.get(access.tensor)
            if access.tensor == NOT_STORED or fm is None or fm.is_constant:
                continue
            kind = BufferKind.ROLLING if access.tensor in inner else BufferKind.FEATURE_MAP
            buffer = _find(plan, kind, _variable(graph, fm), index)
            if buffer is None:
                faults.append(f"op {v}: no {kind.value} buffer of {fm.name!r} in segment {index}")
                continue
            rolling = kind is BufferKind.ROLLING
            rows = buffer.rows if rolling else fm.shape[1] * fm.shape[0]
            row_bytes = fm.viewed_row_bytes(access.view) if rolling else fm.row_bytes
            if buffer.size_bytes < rows * row_bytes:
                faults.append(f"{fm.name!r}: {buffer.size_bytes} bytes for {rows} rows")
    for tensor in inner:
        readers = {r for r in graph.readers[tensor] if r not in segment.ops}
        if readers or graph.feature_maps[tensor].is_graph_output:
            faults.append(f"segment {index} drops {graph.feature_maps[tensor].name!r}, still read")
    return faults


def _variable(graph: OpGraph, fm: FeatureMap) -> int:
    """The first map of the same variable; other maps stand for themselves."""
    if not fm.is_persistent:
        return fm.id
    return min(
        other.id
        for other in graph.feature_maps.values()
        if other.is_persistent and (other.source or other.name) == (fm.source or fm.name)
    )


def _find(plan: Plan, kind: BufferKind, tensor: int, step: int) -> Buffer | None:
    for buffer in plan.buffers:
        alive = buffer.first_step <= step < buffer.end_step
        if buffer.kind is kind and buffer.tensor == tensor and alive:
            return buffer
    return None


def _edges(graph: OpGraph, plan: Plan) -> list[str]:
    """Values survive from their writer to their last reader, graph edges included."""
    faults = []
    where = {v: index for index, segment in enumerate(plan.segments) for v in segment.ops}
    for buffer in plan.buffers:
        if buffer.kind is not BufferKind.FEATURE_MAP or buffer.is_copy:
            continue
        fm = graph.feature_maps[buffer.tensor]
        users = [where[v] for v in (*graph.writers[fm.id], *graph.readers[fm.id])]
        users += [where[op.id] for op in graph.ops if op.scratch and op.scratch.tensor == fm.id]
        first = 0 if fm.is_graph_input or fm.is_persistent else min(users, default=0)
        last = (
            len(plan.segments) - 1
            if fm.is_graph_output or fm.is_persistent
            else max(users, default=0)
        )
        if buffer.first_step > first or buffer.end_step <= last:
            faults.append(
                f"{fm.name!r} is kept in [{buffer.first_step}, {buffer.end_step}), "
                f"needed in [{first}, {last}]"
            )
    return faults


def _addresses(target: Target, plan: Plan) -> list[str]:
    faults = []
    for memory, allocation in plan.allocations:
        faults += address_faults(plan.in_memory(memory), allocation)
        if memory == plan.budget_memory:
            shared = target.roles.const == target.roles.arena == target.roles.cache
            constants = plan.constant_bytes if shared else 0
            if allocation.peak_bytes + constants != plan.sram_peak_bytes:
                faults.append(f"the peak is {allocation.peak_bytes}, not {plan.sram_peak_bytes}")
    if plan.budget_bytes is not None and plan.sram_peak_bytes > plan.budget_bytes:
        faults.append(f"{plan.sram_peak_bytes} bytes used of {plan.budget_bytes}")
    return faults


def replay(graph: OpGraph, plan: Plan, index: int, segment: Segment) -> list[str]:
    """Run one segment row by row (see ``replay_segment``).

    Buffers that take each other over share their slots.
    """
    places = {graph.ops[v].final_ofm.tensor: k for k, v in enumerate(segment.ops)}
    items = []
    for v, run in zip(segment.ops, segment.runs, strict=True):
        tensor = graph.ops[v].final_ofm.tensor
        buffer = _find(plan, BufferKind.ROLLING, tensor, index)
        if buffer is not None and buffer.rows < 1:
            return [f"segment {index}: op {v} has an empty rolling buffer"]
        over = None if buffer is None else buffer.in_place_of
        items.append(
            ReplayedOp(
                op=graph.ops[v],
                height=run.stripe_rows,
                rows=None if buffer is None else buffer.rows,
                over=None if over is None else places.get(over),
                outlives=any(r not in segment.ops for r in graph.readers[tensor]),
            )
        )
    return [f"segment {index}: {fault}" for fault in replay_segment(items, segment.policy)]
