"""Rows of a sweep: those of ``plan``, the same on processes and on dask, known ones not again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import npusched
from npusched.api import PlanOptions
from npusched.batch import run_sweep, show_sweep, workers_of
from npusched.batch.cluster import Cluster
from npusched.batch.jobs import Task, plan_sweep
from npusched.batch.pool import ProcessPool
from npusched.batch.sweeping import SweepProgress
from npusched.batch.task import run_task
from npusched.errors import InfeasibleError, NpuschedError
from npusched.report import PlanReport
from npusched.report.sweep_types import SweepReport, SweepRow
from tests.batch.sweep_kit import BUDGETS, TARGETS, figures, small_plan, stored


class Here:
    """Plans in this process; ``asked`` are the keys that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, tasks: Sequence[Task]) -> Iterator[SweepRow]:
        for task in tasks:
            self.asked += [job.key for job in task.jobs]
            yield from run_task(task.loaded())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[SweepReport, list[SweepRow]]:
    folder = tmp_path_factory.mktemp("expected")
    report = run_sweep(small_plan(folder), folder / "r.sqlite", Here())
    return report, stored(folder / "r.sqlite")


def _planned(row: SweepRow, *, use_vela: bool) -> PlanReport | InfeasibleError:
    try:
        return npusched.plan(row.model, row.target, sram=row.budget_bytes, use_vela=use_vela)
    except InfeasibleError as error:
        return error


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("vela", [False, True])
def test_each_row_is_the_plan_of_its_budget(target: str, vela: bool) -> None:
    if vela:
        pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    (task,) = plan_sweep(["demo:ds_cnn"], [target], BUDGETS, PlanOptions(use_vela=vela)).tasks
    for row in run_task(task.loaded()):
        plan = _planned(row, use_vela=vela)
        if isinstance(plan, InfeasibleError):
            assert (row.status, row.error_kind) == ("infeasible", "infeasible")
            assert row.smallest_feasible_bytes == plan.values["smallest_feasible_bytes"]
            assert row.error.startswith(plan.what)
            continue
        total = plan.totals
        assert (row.status, row.error, row.proof) == ("ok", "", plan.bound.proof)
        assert (row.value, row.gap) == (plan.bound.value, plan.bound.gap)
        assert (row.cycles, row.npu_cycles, row.cpu_cycles, row.latency_s, row.macs) == (
            (total.cycles, total.npu_cycles, total.cpu_cycles, total.latency_s, total.macs)
        )
        assert (row.sram_peak_bytes, row.dram_bytes, row.flash_bytes) == (
            (total.sram_peak_bytes, total.dram_bytes, total.flash_bytes)
        )
        assert row.energy_nj == total.energy_nj.typical
        assert row.plan_source == plan.candidates.shown
        assert (row.weights, row.vela_version) == (plan.provenance.weights, plan.vela_version)
        assert row.cpu_ops == sum(op.placement == "cpu" for op in plan.source_ops)
        assert row.warnings.splitlines() == list(plan.warnings)


def test_a_sweep_of_candidates_is_shared_by_the_budgets() -> None:
    """And gives each of them what ``plan`` gives it."""
    pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")
    options = PlanOptions(candidates="sweep", max_compilations=6)
    budgets = ("32KiB", "64KiB")
    (task,) = plan_sweep(["demo:chain:4"], TARGETS[:1], budgets, options).tasks
    for row, budget in zip(run_task(task.loaded()), budgets, strict=True):
        plan = npusched.plan(
            "demo:chain:4", TARGETS[0], sram=budget, candidates="sweep", max_compilations=6
        )
        assert (row.value, row.plan_source) == (plan.bound.value, plan.candidates.shown)


def test_one_bad_model_is_rows_with_its_error(
    expected: tuple[SweepReport, list[SweepRow]],
) -> None:
    report, rows = expected
    bad = [row for row in rows if row.model == "bad.tflite"]
    assert len(bad) == 6
    assert {(row.status, row.error_kind) for row in bad} == {("error", "model")}
    assert all("not a TFLite file" in row.error for row in bad)
    assert {row.status for row in rows if row not in bad} == {"ok", "infeasible"}
    assert [(group.errors, group.jobs) for group in report.targets] == [(3, 9), (3, 9)]
    assert [group.jobs for group in report.budgets] == [3] * 6


def test_processes_give_the_same_rows(
    tmp_path: Path, expected: tuple[SweepReport, list[SweepRow]]
) -> None:
    seen: list[SweepProgress] = []
    report = run_sweep(
        small_plan(tmp_path), tmp_path / "r.sqlite", ProcessPool(2), progress=seen.append
    )
    assert figures(stored(tmp_path / "r.sqlite")) == figures(expected[1])
    assert figures(report.rows) == figures(expected[1])
    assert [progress.done for progress in seen] == list(range(1, 19))
    assert (seen[-1].errors, seen[-1].eta_s) == (6, 0.0)


def test_dask_gives_the_same_rows(
    tmp_path: Path, expected: tuple[SweepReport, list[SweepRow]]
) -> None:
    run_sweep(small_plan(tmp_path), tmp_path / "r.sqlite", Cluster("local:2"))
    assert figures(stored(tmp_path / "r.sqlite")) == figures(expected[1])


def test_a_scheduler_elsewhere_gives_the_same_rows(
    tmp_path: Path, expected: tuple[SweepReport, list[SweepRow]]
) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tcp://127.0.0.1:")
        run_sweep(small_plan(tmp_path), tmp_path / "r.sqlite", Cluster(address))
    assert figures(stored(tmp_path / "r.sqlite")) == figures(expected[1])


def test_what_the_store_knows_is_not_planned_again(tmp_path: Path) -> None:
    path, plan = tmp_path / "r.sqlite", small_plan(tmp_path)
    first, second, third, wider = Here(), Here(), Here(), Here()
    half = replace(plan, tasks=plan.tasks[:3])
    run_sweep(half, path, first)
    report = run_sweep(plan, path, second)
    assert sorted(first.asked + second.asked) == sorted(plan.keys)
    assert (report.known_before, len(report.rows)) == (len(first.asked), len(plan.keys))
    run_sweep(plan, path, third, retry_errors=True)
    errors = [row.key for row in report.rows if row.status == "error"]
    assert sorted(third.asked) == sorted(errors)
    more = small_plan(tmp_path, "demo:chain:5")
    run_sweep(more, path, wider)
    assert sorted(wider.asked) == sorted(set(more.keys) - set(plan.keys))
    assert len(stored(path)) == len(show_sweep(path).rows) == len(more.keys)


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    task = replace(plan.tasks[-1], npusched_version="0.0.0").loaded()
    rows = list(run_task(task))
    assert [row.status for row in rows] == ["error"] * len(task.jobs)
    assert rows[0].error_kind == "worker"
    assert "the sweep is of 0.0.0" in rows[0].error


def test_a_fault_of_ours_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Iterator[object]:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("npusched.api.many_budgets.plan_budgets", fail)
    rows = list(run_task(small_plan(tmp_path).tasks[-1].loaded()))
    assert {(row.status, row.error_kind) for row in rows} == {("error", "internal")}
    assert "ZeroDivisionError" in rows[0].error


def test_the_function_of_the_package(tmp_path: Path) -> None:
    report = npusched.sweep(
        "demo:chain:4",
        TARGETS[0],
        sram=["32KiB"],
        store=tmp_path / "r.sqlite",
        workers=1,
        use_vela=False,
    )
    assert [row.status for row in report.rows] == ["ok"]
    with pytest.raises(NpuschedError, match="both workers and a scheduler"):
        workers_of(2, "local:2")
    for wrong in ("local:0", "local:x", "here", "http://a"):
        with pytest.raises(NpuschedError, match="cannot use scheduler"):
            workers_of(None, wrong)


def test_no_scheduler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npusched.batch.cluster.CONNECT_S", 0.5)
    with pytest.raises(NpuschedError, match="no scheduler at"):
        run_sweep(small_plan(tmp_path), tmp_path / "r.sqlite", Cluster("tcp://127.0.0.1:1"))
