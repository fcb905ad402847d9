"""The planning problem as a constraint program (CP-SAT), stated apart from the search.

No states and no paths: which segments run is an exact cover of the ops, a segment's options exclude
each other and demand the homes that they were costed for, and what a prefetch waits is a variable
that the segment before bounds from below.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ortools.sat.python import cp_model

from npusched.schedule.search import NO_PREFETCH, Homes, Problem

GRAIN = 1000
"""Scores are whole numbers of 1/1000 in the program: each is off by at most half of that."""


class Oracle:
    """The program of one problem; ``least`` and ``smallest`` solve it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        self.in_sram = {
            t: self.model.new_bool_var(f"home {t}")
            for t, item in enumerate(problem.items)
            if len(item.homes) > 1
        }
        self.runs: dict[tuple[int, int], cp_model.IntVar] = {}
        self.loads: list[tuple[cp_model.IntVar, cp_model.LinearExprT]] = []
        self.score: list[cp_model.LinearExprT] = []
        self.rounded = 0
        self._early = {
            (k, p): self.model.new_bool_var(f"prefetch {p} of {k}")
            for k in range(1, problem.op_count)
            for p in range(len(problem.prefetches(k)))
        }
        for k in range(1, problem.op_count):
            self.model.add_at_most_one(v for (op, _), v in self._early.items() if op == k)
        self._by_cycles: dict[tuple[int, float], list[cp_model.IntVar]] = defaultdict(list)
        self._by_homes: dict[tuple[int, int, Homes], list[cp_model.IntVar]] = defaultdict(list)
        for i in range(problem.op_count):
            for j in problem.ends(i):
                self._segment(i, j)
        for op in range(problem.op_count):
            covering = [v for (i, j), v in self.runs.items() if i <= op <= j]
            self.model.add_exactly_one(covering)
        self._waits()

    def least(self, budget: int) -> float | None:
        """Least score within the budget, to ``rounded`` / 2 / GRAIN; None if nothing fits."""
        model = self.model.clone()
        for run, load in self.loads:
            model.add(load <= budget).only_enforce_if(run)
        model.minimize(cp_model.LinearExpr.sum(self.score))
        found = _solve(model)
        return None if found is None else found / GRAIN

    def smallest(self) -> int:
        """The least budget that has a plan."""
        model = self.model.clone()
        peak = model.new_int_var(0, 1 << 40, "peak")
        for run, load in self.loads:
            model.add(load <= peak).only_enforce_if(run)
        model.minimize(peak)
        found = _solve(model)
        assert found is not None
        return round(found)

    def _segment(self, i: int, j: int) -> None:
        """Segment [i..j]: what it may be, and its load of the budget memory."""
        problem, model = self.problem, self.model
        run = self.runs[i, j] = model.new_bool_var(f"run {i}..{j}")
        touched = [t for t in problem.touched(i, j) if t in self.in_sram]
        load: list[cp_model.LinearExprT] = []
        ways: list[cp_model.IntVar] = []
        starts = range(len(problem.prefetches(i))) if i == j and i else ()
        for homes in _choices(problem, problem.touched(i, j)):
            place = dict(homes)
            for p in (NO_PREFETCH, *starts):
                for option in problem.options(i, j, homes, p):
                    way = model.new_bool_var("")
                    ways.append(way)
                    for t in touched:
                        literal = self.in_sram[t]
                        fast = place[t] == problem.budget_memory
                        model.add_implication(way, literal if fast else ~literal)
                    early = [v for (op, q), v in self._early.items() if op == i and q != p]
                    for other in early:
                        model.add_implication(way, ~other)
                    if p != NO_PREFETCH:
                        model.add_implication(way, self._early[i, p])
                        self._by_homes[i, p, homes].append(way)
                    self._by_cycles[j, option.cycles].append(way)
                    self.score.append(round(option.score * GRAIN) * way)
                    self.rounded += 1
                    load.append(option.sram_bytes * way)
        if not ways:
            model.add(run == 0)
            return
        model.add(sum(ways) == run)
        for t, item in enumerate(problem.items):
            inside = i <= item.first and item.last <= j
            if item.first <= j and item.last >= i and not inside:
                if t in self.in_sram:
                    load.append(item.size_bytes * self.in_sram[t])
                elif item.homes[0] == problem.budget_memory:
                    load.append(item.size_bytes)
        for p, prefetch in enumerate(problem.prefetches(j + 1) if j + 1 < problem.op_count else ()):
            load.append(prefetch.size_bytes * self._early[j + 1, p])
        self.loads.append((run, cp_model.LinearExpr.sum(load)))

    def _waits(self) -> None:
        """The wait of a prefetched op: by where its maps lie and how long the one before runs."""
        for (k, p, homes), ways in self._by_homes.items():
            penalty = self.problem.prefetches(k)[p].penalty
            late = [
                (cycles, round(penalty(homes, cycles) * GRAIN), befores)
                for (end, cycles), befores in self._by_cycles.items()
                if end == k - 1
            ]
            worst = max(wait for _, wait, _ in late)
            if worst == 0:
                continue
            chosen = self.model.new_bool_var("")
            self.model.add(sum(ways) == chosen)
            wait = self.model.new_int_var(0, worst, f"wait {k} {p}")
            for _, least, befores in late:
                if least:
                    self.model.add(wait >= least * sum(befores)).only_enforce_if(chosen)
            self.score.append(wait)
            self.rounded += 1


def _choices(problem: Problem, touched: Sequence[int]) -> list[Homes]:
    """Every way to place the items of a segment."""
    found: list[Homes] = [()]
    for t in touched:
        found = [(*homes, (t, home)) for homes in found for home in problem.items[t].homes]
    return found


def _solve(model: cp_model.CpModel) -> float | None:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL, solver.status_name(status)
    return solver.objective_value
