"""A sweep summed up from its rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import exp, fsum, log
from typing import TypeVar

from npusched import __version__
from npusched.report.sweep_types import (
    SWEEP_SCHEMA_VERSION,
    SweepGroup,
    SweepReport,
    SweepRow,
)

K = TypeVar("K", bound=Hashable)


def build_sweep(
    rows: Sequence[SweepRow],
    *,
    store: str,
    settings: Mapping[str, str],
    copies: int = 0,
    known_before: int = 0,
) -> SweepReport:
    """Return the report of rows; groups are in the order in which the rows first name them."""
    least = _least_latencies(rows)
    by_target = _grouped(rows, lambda row: row.target_sha256)
    by_budget = _grouped(rows, lambda row: (row.target_sha256, row.budget_bytes))
    return SweepReport(
        schema_version=SWEEP_SCHEMA_VERSION,
        npusched_version=__version__,
        store=store,
        models=len({row.model_sha256 for row in rows}),
        copies=copies,
        known_before=known_before,
        targets=tuple(_group(group, None, least) for group in by_target.values()),
        budgets=tuple(_group(group, budget, least) for (_, budget), group in by_budget.items()),
        settings=dict(settings),
        rows=tuple(rows),
    )


def _grouped(rows: Iterable[SweepRow], key: Callable[[SweepRow], K]) -> dict[K, list[SweepRow]]:
    groups: dict[K, list[SweepRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _least_latencies(rows: Iterable[SweepRow]) -> dict[tuple[str, str], float]:
    """Least latency of each model on each target."""
    least: dict[tuple[str, str], float] = {}
    for row in rows:
        if row.latency_s is not None:
            key = row.model_sha256, row.target_sha256
            least[key] = min(row.latency_s, least.get(key, row.latency_s))
    return least


def _group(
    rows: Sequence[SweepRow], budget_bytes: int | None, least: Mapping[tuple[str, str], float]
) -> SweepGroup:
    latencies = [row.latency_s for row in rows if row.latency_s]
    ratios = [
        row.latency_s / least[row.model_sha256, row.target_sha256] for row in rows if row.latency_s
    ]
    return SweepGroup(
        target=rows[0].target,
        target_sha256=rows[0].target_sha256,
        budget_bytes=budget_bytes,
        models=len({row.model_sha256 for row in rows}),
        jobs=len(rows),
        ok=sum(row.status == "ok" for row in rows),
        infeasible=sum(row.status == "infeasible" for row in rows),
        errors=sum(row.status == "error" for row in rows),
        optimal=sum(row.proof == "optimal" for row in rows),
        vela_plans=sum(row.plan_source == "vela" for row in rows),
        geomean_latency_s=geometric_mean(latencies),
        slowdown=geometric_mean(ratios),
    )


def geometric_mean(values: Sequence[float]) -> float | None:
    """Geometric mean of positive values; None if there are none."""
    return exp(fsum(map(log, values)) / len(values)) if values else None
