"""One task from a model's bytes to finished rows: what runs in a worker, wherever that is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from npusched import __version__
from npusched.batch.jobs import Job, Task
from npusched.errors import InfeasibleError, NpuschedError, internal_error
from npusched.report.sweep_types import SweepRow, SweepStatus

if TYPE_CHECKING:
    from npusched.api.planning import Planned


RETRY_HINT = "run the same sweep again with --retry-errors; planning the model alone shows more"


class WorkerError(NpuschedError):
    """The process of a worker died, or is not fit for the job."""

    kind: ClassVar[str] = "worker"
    exit_code: ClassVar[int] = 3


def run_task(task: Task) -> Iterator[SweepRow]:
    """Yield the row of each job of a loaded task, in order. Whatever fails is a row."""
    waiting = list(task.jobs)
    start = time.perf_counter()
    try:
        _check_versions(task)
        for found in _plans(task):
            now = time.perf_counter()
            yield _row(task, waiting.pop(0), found, now - start)
            start = now
    except NpuschedError as error:
        yield from error_rows(task, waiting, error, time.perf_counter() - start)
    except Exception as error:  # noqa: BLE001 - a fault of ours in one job must not end the others
        yield from error_rows(task, waiting, internal_error(error), time.perf_counter() - start)


def error_rows(
    task: Task, jobs: Iterable[Job], error: NpuschedError, seconds: float = 0.0
) -> Iterator[SweepRow]:
    """Rows that say why there is no result; all but the first took no time of their own."""
    for job in jobs:
        yield _failed(task, job, error, "error", seconds)
        seconds = 0.0


def _plans(task: Task) -> Iterator[Planned | InfeasibleError]:
    from npusched.api.many_budgets import plan_budgets

    return plan_budgets(
        task.content,
        name=task.model.name,
        target=task.target,
        budgets=[job.budget_bytes for job in task.jobs],
        options=task.options,
        limit_bytes=task.limit_bytes,
    )


def _check_versions(task: Task) -> None:
    """Raise WorkerError if this process has other versions than the keys of the jobs name."""
    from npusched.vela.runner import vela_version

    own = [("npusched", __version__, task.npusched_version)]
    if task.vela_version is not None:
        own.append(("Vela", vela_version(), task.vela_version))
    for what, have, need in own:
        if have != need:
            raise WorkerError(
                f"the worker has another version of {what}",
                f"it has {have}, the sweep is of {need}",
                "install the same versions on every worker",
            )


def _row(task: Task, job: Job, found: Planned | InfeasibleError, seconds: float) -> SweepRow:
    if isinstance(found, InfeasibleError):
        return _failed(task, job, found, "infeasible", seconds)
    from npusched.graph.opgraph import SourcePlacement
    from npusched.graph.reorder import reordered
    from npusched.report.build import totals, weights_provenance

    plan, ready = found.plan, found.ready
    graph = reordered(ready.graph, plan.order)
    total = totals(ready.model.subgraphs[graph.subgraph], graph, task.target, plan)
    return SweepRow(
        key=job.key,
        model=task.model.name,
        model_sha256=task.model.sha256,
        target=task.target.name,
        target_sha256=task.target_sha256,
        setting_sha256=task.setting_sha256,
        budget_bytes=job.budget_bytes,
        status="ok",
        cycles=total.cycles,
        npu_cycles=total.npu_cycles,
        cpu_cycles=total.cpu_cycles,
        latency_s=total.latency_s,
        sram_peak_bytes=total.sram_peak_bytes,
        dram_bytes=total.dram_bytes,
        flash_bytes=total.flash_bytes,
        energy_low_nj=total.energy_nj.low,
        energy_nj=total.energy_nj.typical,
        energy_high_nj=total.energy_nj.high,
        macs=total.macs,
        source_ops=len(graph.sources),
        cpu_ops=sum(source.placement is SourcePlacement.CPU for source in graph.sources),
        npu_invocations=total.npu_invocations,
        value=plan.objective,
        gap=plan.bound.gap,
        proof=plan.bound.proof.value,
        plan_source=found.candidates.shown,
        weights=weights_provenance(plan),
        warnings="\n".join((*ready.model.notes, *ready.warnings, *plan.notes)),
        npusched_version=task.npusched_version,
        vela_version=task.vela_version,
        finished_at=_now(),
        seconds=seconds,
    )


def _failed(
    task: Task, job: Job, error: NpuschedError, status: SweepStatus, seconds: float
) -> SweepRow:
    smallest = error.values.get("smallest_feasible_bytes")
    return SweepRow(
        key=job.key,
        model=task.model.name,
        model_sha256=task.model.sha256,
        target=task.target.name,
        target_sha256=task.target_sha256,
        setting_sha256=task.setting_sha256,
        budget_bytes=job.budget_bytes,
        status=status,
        smallest_feasible_bytes=smallest if isinstance(smallest, int) else None,
        error_kind=error.kind,
        error=f"{error.what} ({error.why})" if error.why else error.what,
        npusched_version=task.npusched_version,
        vela_version=task.vela_version,
        finished_at=_now(),
        seconds=seconds,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
