"""The planning problem as a mixed-integer program for HiGHS (extra ``exact``).

For graphs with so many live maps that the search must drop states (``search.STATE_CAP``): it then
has a plan, but no proof. The program is that of PLANNER §1: one binary per segment, homes of what
it touches, option, and prefetch for the segment after it; flow through (position, prefetch, homes
of the op that it is for); binaries for homes; one row per op for the budget. Its relaxation bounds
what any plan can score, and what branch and bound finds may be better than the plan at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import product

import msgspec
import numpy as np
from msgspec.structs import replace

from npusched.schedule.search import NO_PREFETCH, Homes, Option, Problem, Solution, Step

TIME_LIMIT_S = 30.0
"""Longest that HiGHS runs on one problem."""

CLOSED = 1e-9
"""Relative gap that is rounding: scores are sums of floats."""

COLUMN_CAP = 60_000
"""Most binaries that are given to HiGHS; a larger program is not built."""


class Exact(msgspec.Struct, frozen=True, kw_only=True):
    """What HiGHS knows: no plan scores less than ``bound``; ``solution``: the best that it has."""

    bound: float
    solution: Solution | None


class _Column(msgspec.Struct, frozen=True):
    """One way to run a segment: see ``Step``; ``following``: homes of the op prefetched for."""

    start: int
    end: int
    homes: Homes
    prefetch: int
    option: Option
    carries: int
    following: Homes
    size_bytes: int
    wait: float


def settled(problem: Problem, budget_bytes: float | None, found: Solution) -> Solution:
    """The better of a solution that is not proven and of what HiGHS finds, with HiGHS's bound.

    Unchanged if HiGHS is not installed or has nothing to say about the problem.
    """
    if not is_available():
        return found
    limit = float("inf") if budget_bytes is None else float(budget_bytes)
    exact = solve_exactly(problem, limit)
    if exact is None:
        return found
    best = found
    if exact.solution is not None and exact.solution.score < found.score:
        best = exact.solution
    least = min(exact.bound, best.score)
    if best.score - least <= CLOSED * best.score:
        return replace(best, capped=False, least=None)
    return replace(best, capped=True, least=least)


def is_available() -> bool:
    """True if ``highspy`` is installed (extra ``exact``)."""
    return find_spec("highspy") is not None


def solve_exactly(
    problem: Problem, budget_bytes: float, *, limit_s: float = TIME_LIMIT_S
) -> Exact | None:
    """Return a bound on the score of every plan within the budget, and the best plan found.

    None if the program is too large (``COLUMN_CAP``) or HiGHS finds no bound in ``limit_s``
    seconds. The problem must have a plan.
    """
    columns: list[_Column] = []
    for column in _columns(problem):
        if len(columns) == COLUMN_CAP:
            return None
        columns.append(column)
    return _Program(problem, columns, budget_bytes).solve(limit_s)


def _columns(problem: Problem) -> Iterator[_Column]:
    for i in range(problem.op_count):
        for j in problem.ends(i):
            starts: Sequence[int] = (NO_PREFETCH,)
            if i == j and i:
                starts = (NO_PREFETCH, *range(len(problem.prefetches(i))))
            carried = list(_carried(problem, j + 1))
            for homes in _placements(problem, problem.touched(i, j)):
                for prefetch in starts:
                    for option in problem.options(i, j, homes, prefetch):
                        yield _Column(i, j, homes, prefetch, option, NO_PREFETCH, (), 0, 0.0)
                        for index, following in carried:
                            if _agree(homes, following):
                                copy = problem.prefetches(j + 1)[index]
                                yield _Column(
                                    i,
                                    j,
                                    homes,
                                    prefetch,
                                    option,
                                    index,
                                    following,
                                    copy.size_bytes,
                                    copy.penalty(following, option.cycles),
                                )


def _carried(problem: Problem, k: int) -> Iterator[tuple[int, Homes]]:
    """(prefetch, homes of what op k touches) for all prefetches of op k."""
    if k < problem.op_count:
        for index in range(len(problem.prefetches(k))):
            for homes in _placements(problem, problem.touched(k, k)):
                yield index, homes


def _placements(problem: Problem, items: Sequence[int]) -> Iterator[Homes]:
    for choice in product(*(problem.items[t].homes for t in items)):
        yield tuple(zip(items, choice, strict=True))


def _agree(one: Homes, other: Homes) -> bool:
    known = dict(one)
    return all(known.get(t, home) == home for t, home in other)


_Row = dict[int, float]


class _Program:
    """Rows and bounds of the program; columns first, then one home variable per free item."""

    def __init__(self, problem: Problem, columns: Sequence[_Column], budget: float) -> None:
        self.problem, self.columns, self.budget = problem, columns, budget
        free = [t for t, item in enumerate(problem.items) if len(item.homes) > 1]
        self.home = {t: len(columns) + k for k, t in enumerate(free)}
        self.rows: list[tuple[float, float, _Row]] = []
        self._flow()
        self._homes()
        self._budgets()

    def solve(self, limit_s: float) -> Exact | None:
        """Run HiGHS."""
        import highspy

        options = highspy.HighsOptions()
        options.output_flag = False
        options.threads = 1
        options.time_limit = limit_s
        options.mip_rel_gap = 0.0
        solver = (
            highspy.highs._Highs()
        )  # the class around it greets on stdout whatever the options say
        solver.passOptions(options)
        solver.passModel(self._model())
        solver.run()
        info = solver.getInfo()
        if not np.isfinite(info.mip_dual_bound) or info.mip_dual_bound <= 0:
            return None
        values = solver.getSolution().col_value
        chosen = [c for c, value in zip(self.columns, values, strict=False) if value > 0.5]
        solution = None
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            solution = self._solution(sorted(chosen, key=_start), values)
        return Exact(bound=info.mip_dual_bound, solution=solution)

    def _model(self) -> object:
        import highspy

        count = len(self.columns) + len(self.home)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = count, len(self.rows)
        costs = [c.option.score + c.wait for c in self.columns]
        lp.col_cost_ = np.array(costs + [0.0] * len(self.home))
        lp.col_lower_, lp.col_upper_ = np.zeros(count), np.ones(count)
        lp.row_lower_ = np.array([low for low, _, _ in self.rows])
        lp.row_upper_ = np.array([high for _, high, _ in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        starts = np.cumsum([0, *(len(row) for _, _, row in self.rows)])
        lp.a_matrix_.start_ = starts.astype(np.int32)
        indices = [k for _, _, row in self.rows for k in row]
        lp.a_matrix_.index_ = np.array(indices, dtype=np.int32)
        lp.a_matrix_.value_ = np.array([v for _, _, row in self.rows for v in row.values()])
        lp.integrality_ = [highspy.HighsVarType.kInteger] * count
        return lp

    def _flow(self) -> None:
        """One path: what ends before an op with a prefetch is what starts there with it."""
        n = self.problem.op_count
        nodes: dict[tuple[int, int, Homes], _Row] = defaultdict(dict)
        for k, c in enumerate(self.columns):
            early = c.homes if c.prefetch != NO_PREFETCH else ()
            nodes[c.start, c.prefetch, early][k] = -1.0
            nodes[c.end + 1, c.carries, c.following][k] = 1.0
        for (position, _, _), row in nodes.items():
            balance = -1.0 if position == 0 else float(position == n)
            self.rows.append((balance, balance, row))

    def _homes(self) -> None:
        """Whatever runs over an op and names an item's home agrees with the item's variable."""
        fast: dict[tuple[int, int], _Row] = defaultdict(dict)
        slow: dict[tuple[int, int], _Row] = defaultdict(dict)
        for k, c in enumerate(self.columns):
            for t, home in c.homes:
                if t in self.home:
                    is_fast = home == self.problem.budget_memory
                    for op in {c.start, c.end}:
                        (fast if is_fast else slow)[t, op][k] = 1.0
        for (t, _), row in fast.items():
            self.rows.append((-np.inf, 0.0, {**row, self.home[t]: -1.0}))
        for (t, _), row in slow.items():
            self.rows.append((-np.inf, 1.0, {**row, self.home[t]: 1.0}))

    def _budgets(self) -> None:
        """The load while each op runs: maps alive then, and what its segment needs besides."""
        problem, memory = self.problem, self.problem.budget_memory
        for op in range(problem.op_count):
            row: _Row = {
                variable: float(problem.items[t].size_bytes)
                for t, variable in self.home.items()
                if problem.items[t].first <= op <= problem.items[t].last
            }
            for k, c in enumerate(self.columns):
                if c.start <= op <= c.end:
                    row[k] = float(c.option.sram_bytes + c.size_bytes + self._held(c, op, memory))
            self.rows.append((-np.inf, self.budget, {k: v for k, v in row.items() if v}))

    def _held(self, c: _Column, op: int, memory: str) -> int:
        """Bytes that segment c keeps and that op's own live maps do not count."""
        items = self.problem.items
        held = sum(
            items[t].size_bytes
            for t, home in c.homes
            if home == memory and t in self.home and not items[t].first <= op <= items[t].last
        )
        return held + sum(
            item.size_bytes
            for item in items
            if item.homes == (memory,)
            and item.first <= c.end
            and item.last >= c.start
            and not (c.start <= item.first and item.last <= c.end)
        )

    def _solution(self, path: Sequence[_Column], values: Sequence[float]) -> Solution:
        items, memory = self.problem.items, self.problem.budget_memory
        homes = {t: item.homes[0] for t, item in enumerate(items)}
        for t, variable in self.home.items():
            fast = values[variable] > 0.5
            others = [home for home in items[t].homes if home != memory]
            homes[t] = memory if fast else others[0]
        steps = []
        for c in path:
            through = sum(
                item.size_bytes
                for t, item in enumerate(items)
                if homes[t] == memory
                and item.first <= c.end
                and item.last >= c.start
                and not (c.start <= item.first and item.last <= c.end)
            )
            live = through + c.option.sram_bytes + c.size_bytes
            step = Step(c.start, c.end, c.homes, c.option, live, c.prefetch, c.carries, c.wait)
            steps.append(step)
        return Solution(
            score=sum(c.option.score + c.wait for c in path),
            steps=tuple(steps),
            homes=homes,
            peak_bytes=max((step.sram_bytes for step in steps), default=0),
            capped=False,
        )


def _start(column: _Column) -> int:
    return column.start
