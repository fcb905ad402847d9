"""Plans broken on purpose: one row fewer in a rolling buffer, two buffers at one address."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

from msgspec.structs import replace

from benchmarks.plan_compare import unequal
from npusched.errors import PlanError
from npusched.graph.opgraph import OpGraph
from npusched.schedule import Plan
from npusched.schedule.types import BufferKind
from npusched.sim.execute_plan import Executed, PlanExecutor, check_addresses
from npusched.sim.host_ops import HostOps
from npusched.sim.interpret import Values
from npusched.sim.kernels.arrays import Array

MOST_RUNS = 1000
RUN_PAIRS = 6
"""Most broken plans that are run per plan: with fewer rows, and with overlapping pairs (besides the
check of addresses, which sees them all)."""


def with_rows(plan: Plan, number: int, change: int) -> Plan:
    """The plan with ``change`` more rows in one rolling buffer (its bytes stay as they are)."""
    buffers = list(plan.buffers)
    buffers[number] = replace(buffers[number], rows=buffers[number].rows + change)
    return replace(plan, buffers=tuple(buffers))


def moved(plan: Plan, number: int, offset_bytes: int) -> Plan:
    """The plan with one buffer at another address of its memory."""
    memory, place = _place(plan, number)
    allocations = []
    for name, allocation in plan.allocations:
        offsets = list(allocation.offsets)
        if name == memory:
            offsets[place] = offset_bytes
        allocations.append((name, replace(allocation, offsets=tuple(offsets))))
    return replace(plan, allocations=tuple(allocations))


def offset_of(plan: Plan, number: int) -> int:
    """Address of a buffer in its memory."""
    memory, place = _place(plan, number)
    return dict(plan.allocations)[memory].offsets[place]


def _place(plan: Plan, number: int) -> tuple[str, int]:
    """A buffer's memory, and which of that memory's buffers it is."""
    memory = plan.buffers[number].memory
    return memory, sum(buffer.memory == memory for buffer in plan.buffers[:number])


def differing(executed: Executed, values: Values) -> list[int]:
    """Ids of the maps whose values differ (rows that were never made left out); -1: an output."""
    found = [
        tensor
        for tensor, array in executed.tensors.items()
        if tensor in values.tensors and unequal(array, values.tensors[tensor]).any()
    ]
    for tensor, array in executed.rolled.items():
        made = executed.rolled_rows[tensor]
        wanted = values.tensors[tensor].reshape(array.shape)
        if unequal(array[:, :made], wanted[:, :made]).any():
            found.append(tensor)
    if any(unequal(a, b).any() for a, b in zip(executed.outputs, values.outputs, strict=True)):
        found.append(-1)
    return found


def fewer_rows(
    graph: OpGraph,
    plan: Plan,
    inputs: Sequence[Array],
    values: Values,
    host: HostOps | None = None,
    *,
    most_runs: int = MOST_RUNS,
) -> dict[str, int]:
    """Take one row from each rolling buffer in turn.

    Counts how many were ``tried`` and ``refused``; those that keep a row run without checks too
    (``ran``, at most ``most_runs``), and may then give wrong values (``wrong``).
    """

    def execute(broken: Plan) -> Callable[[], object]:
        return lambda: PlanExecutor(graph, broken, host=host).run(inputs)

    counts = dict.fromkeys(("tried", "refused", "ran", "wrong"), 0)
    for number, buffer in enumerate(plan.buffers):
        if buffer.kind is not BufferKind.ROLLING:
            continue
        broken = with_rows(plan, number, -1)
        counts["tried"] += 1
        counts["refused"] += _is_refused(execute(broken))
        if buffer.rows > 1 and counts["ran"] < most_runs:
            found = PlanExecutor(graph, broken, is_checked=False, host=host).run(inputs)
            counts["ran"] += 1
            counts["wrong"] += bool(differing(found, values))
    return counts


def overlaps(
    graph: OpGraph,
    plan: Plan,
    inputs: Sequence[Array],
    values: Values,
    host: HostOps | None = None,
    *,
    most_runs: int = RUN_PAIRS,
) -> dict[str, int]:
    """Move one buffer over another that is needed at the same time, for all such pairs.

    Counts how many were ``tried`` and ``refused`` for their addresses. Some are run all the same
    (``ran``, at most ``most_runs``): the executor notices it by what it reads (``noticed``), or
    all values are right (``harmless``: what was overwritten had been read).
    """
    executor = PlanExecutor(graph, plan, host=host)
    offsets = tuple(executor.offsets)
    pairs = list(together(plan, offsets))
    counts = dict.fromkeys(("tried", "refused", "ran", "noticed", "harmless"), 0)
    for first, second in pairs:
        counts["tried"] += 1
        broken = moved(plan, second, offsets[first])
        counts["refused"] += _is_refused(partial(check_addresses, broken))
    for first, second in random.Random(0).sample(pairs, min(len(pairs), most_runs)):
        executor.offsets = [*offsets[:second], offsets[first], *offsets[second + 1 :]]
        counts["ran"] += 1
        try:
            counts["harmless"] += not differing(executor.run(inputs), values)
        except PlanError:
            counts["noticed"] += 1
    return counts


def together(plan: Plan, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of buffers of one memory that need places of their own at the same time."""
    spans = [
        (2 * buffer.first_step + buffer.late_start, 2 * buffer.end_step - buffer.early_end)
        for buffer in plan.buffers
    ]
    for first, second in combinations(range(len(plan.buffers)), 2):
        a, b = plan.buffers[first], plan.buffers[second]
        if a.memory != b.memory or not (a.size_bytes and b.size_bytes):
            continue
        if max(spans[first][0], spans[second][0]) >= min(spans[first][1], spans[second][1]):
            continue
        is_takeover = a.in_place_of == b.tensor or b.in_place_of == a.tensor
        if not is_takeover and offsets[first] != offsets[second]:
            yield first, second


def _is_refused(run: Callable[[], object]) -> bool:
    try:
        run()
    except PlanError:
        return True
    return False
