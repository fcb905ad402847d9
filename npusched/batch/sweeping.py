"""A sweep from what was asked for to its report: only what the store does not know is planned."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from npusched.batch.jobs import SweepPlan, Task, plan_sweep
from npusched.batch.store import reading, rows_of, waiting_tasks, writing
from npusched.errors import NpuschedError
from npusched.report.sweep_build import build_sweep
from npusched.report.sweep_types import SweepReport, SweepRow

if TYPE_CHECKING:
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.types import CandidateMode

DEFAULT_STORE = "results.sqlite"


class SweepProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a sweep is. ``known``: jobs whose result was in the store before.

    ``seconds`` since this run started; ``eta_s``: seconds that the rest will take if it goes on
    like that, None while nothing is finished.
    """

    jobs: int
    known: int
    done: int
    errors: int
    seconds: float

    @property
    def eta_s(self) -> float | None:
        """Seconds left."""
        left = self.jobs - self.known - self.done
        if not left:
            return 0.0
        return self.seconds / self.done * left if self.done else None


Progress = Callable[[SweepProgress], None]


class Workers(Protocol):
    """Who plans: a ``ProcessPool`` or a ``Cluster``."""

    def run(self, tasks: Sequence[Task]) -> Iterator[SweepRow]:
        """Yield one row per job of the tasks, in any order."""


def sweep(
    models: str | Path | Sequence[str | Path],
    targets: str | Target | Sequence[str | Target],
    *,
    sram: Sequence[str | int | None] = (),
    store: str | Path = DEFAULT_STORE,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_errors: bool = False,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    max_offchip_bytes: str | int | None = None,
    allow: Collection[str] = (),
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
    candidates: CandidateMode = "asked",
    max_compilations: int | None = None,
    progress: Progress | None = None,
) -> SweepReport:
    """Plan every model on every target within every budget; results are kept in ``store``.

    ``models``: files, folders (all .tflite files below), patterns, ``demo:NAME``. ``sram``:
    budgets ("64KiB", bytes; None, or no budget at all: the target's capacity). Jobs that the store
    has a result of are not planned again (errors are, with ``retry_errors``). ``workers``:
    processes, by default one per CPU; or ``scheduler``: "local:N" or "tcp://HOST:PORT" of
    dask.distributed. The other arguments are those of ``plan``. ``progress`` is called after every
    job.

    A model that cannot be planned is a row with an error. Raises ModelError or TargetError for a
    name that means nothing, NpuschedError for a store or scheduler that cannot be used.
    """
    from npusched.api import PlanOptions
    from npusched.api.options import DEFAULT_MAX_COMPILATIONS

    options = PlanOptions(
        objective=objective,
        lambda_cycles_per_byte=lambda_cycles_per_byte,
        max_offchip_bytes=max_offchip_bytes,
        allow=tuple(allow),
        signature=signature,
        input_shapes=input_shapes,
        use_vela=use_vela,
        use_cache=use_cache,
        candidates=candidates,
        max_compilations=max_compilations or DEFAULT_MAX_COMPILATIONS,
    )
    return run_sweep(
        plan_sweep(
            [models] if isinstance(models, (str, Path)) else models,
            targets
            if isinstance(targets, Sequence) and not isinstance(targets, str)
            else [targets],
            sram,
            options,
        ),
        Path(store),
        workers_of(workers, scheduler),
        retry_errors=retry_errors,
        progress=progress,
    )


def workers_of(workers: int | None = None, scheduler: str | None = None) -> Workers:
    """Processes of this machine (default: one per CPU), or those of a dask scheduler."""
    if scheduler is not None:
        if workers is not None:
            raise NpuschedError(
                "both workers and a scheduler were given",
                f"{workers} processes, or those of {scheduler}",
                "say how many local ones with --scheduler local:N",
            )
        from npusched.batch.cluster import Cluster

        return Cluster(scheduler)
    from npusched.batch.pool import ProcessPool

    return ProcessPool(workers or _cpus())


def _cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_sweep(
    plan: SweepPlan,
    store: Path,
    workers: Workers,
    *,
    retry_errors: bool = False,
    progress: Progress | None = None,
) -> SweepReport:
    """Do what the store does not know yet, keep each row when it is there; return the report."""
    keys = plan.keys
    with writing(store) as results:
        results.register(plan)
        known = results.keys(with_errors=not retry_errors).intersection(keys)
        start = time.monotonic()
        errors = 0
        for done, row in enumerate(workers.run(waiting_tasks(plan.tasks, known)), 1):
            results.write(row)
            errors += row.status == "error"
            if progress is not None:
                progress(
                    SweepProgress(
                        jobs=len(keys),
                        known=len(known),
                        done=done,
                        errors=errors,
                        seconds=time.monotonic() - start,
                    )
                )
        return build_sweep(
            rows_of(results, keys),
            store=store.name,
            settings={task.setting_sha256: plan.setting for task in plan.tasks},
            copies=plan.copies,
            known_before=len(known),
        )


def show_sweep(store: str | Path) -> SweepReport:
    """Return the report of all that a store has. Raises NpuschedError if it is none."""
    with reading(Path(store)) as results:
        return build_sweep(
            list(results.rows()), store=Path(store).name, settings=results.settings()
        )
