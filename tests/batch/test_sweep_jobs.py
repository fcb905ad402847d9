"""What a sweep finds to do: models by content, and keys that name all a result depends on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from npusched.api import PlanOptions
from npusched.batch import jobs
from npusched.batch.jobs import plan_sweep
from npusched.batch.models import find_models
from npusched.demos import demo
from npusched.errors import ModelError, NpuschedError, TargetError
from npusched.hardware import load_target

CHAIN = demo("chain:4")


def test_files_folders_patterns_and_demos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "a.tflite").write_bytes(CHAIN)
    (tmp_path / "deep" / "er" / "b.tflite").write_bytes(demo("chain:5"))
    (tmp_path / "deep" / "same.tflite").write_bytes(CHAIN)
    (tmp_path / "deep" / "notes.txt").write_text("no model")
    monkeypatch.chdir(tmp_path)
    found = find_models(["a.tflite", "deep", "demo:chain:6", "*.tflite", "deep/**/*.tflite"])
    assert [model.name for model in found.models] == ["a.tflite", "er/b.tflite", "demo:chain:6"]
    assert found.copies == 1  # deep/same.tflite; the patterns name files that are known
    assert [model.content() for model in found.models] == [CHAIN, demo("chain:5"), demo("chain:6")]


def test_different_models_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for number, folder in enumerate(("x", "y")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.tflite").write_bytes(demo(f"chain:{number + 2}"))
    found = find_models([tmp_path / "x" / "m.tflite", tmp_path / "y" / "m.tflite"])
    assert len({model.name for model in found.models}) == 2


@pytest.mark.parametrize("name", ["absent.tflite", "absent/*.tflite", "demo:absent", "empty"])
def test_a_name_that_means_nothing_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError):
        find_models([name])


def test_a_file_that_cannot_be_read_is_a_model_with_a_fault(tmp_path: Path) -> None:
    """A link to itself is in the folder, but nobody can open it (root may read any mode)."""
    (tmp_path / "good.tflite").write_bytes(CHAIN)
    os.mkfifo(tmp_path / "pipe.tflite")
    found = find_models([tmp_path / "pipe.tflite", tmp_path])
    assert [(model.name, model.fault is None) for model in found.models] == [
        ("pipe.tflite", False),
        ("good.tflite", True),
    ]
    with pytest.raises(ModelError):
        found.models[0].content()


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(CHAIN)
    (model,) = find_models([path]).models
    path.write_bytes(demo("chain:5"))
    with pytest.raises(ModelError, match="changed while"):
        model.content()


def _keys(
    options: PlanOptions | None = None,
    models: str = "demo:chain:4",
    config: str = "ethos-u55-128",
    budgets: tuple[str | int | None, ...] = ("64KiB",),
) -> list[str]:
    return plan_sweep([models], [config], budgets, options or PlanOptions()).keys


def test_a_key_depends_on_all_that_a_result_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    base = _keys()
    assert base == _keys(budgets=(65536,))
    assert base == _keys(PlanOptions(sram="1KiB", use_cache=False, max_compilations=7))
    assert base == _keys(PlanOptions(input_shapes={}))
    assert _keys(PlanOptions(use_vela=False)) == _keys(
        PlanOptions(use_vela=False, candidates="none")
    )
    others = [
        _keys(models="demo:chain:5"),
        _keys(config="ethos-u55-256"),
        _keys(budgets=("65KiB",)),
        _keys(budgets=(None,)),
        _keys(PlanOptions(objective="energy")),
        _keys(PlanOptions(lambda_cycles_per_byte=0.2)),
        _keys(PlanOptions(max_offchip_bytes="1KiB")),
        _keys(PlanOptions(allow=("overlap",))),
        _keys(PlanOptions(signature="s")),
        _keys(PlanOptions(input_shapes={"x": (1, 2)})),
        _keys(PlanOptions(use_vela=False)),
        _keys(PlanOptions(candidates="none")),
        _keys(PlanOptions(candidates="sweep")),
        _keys(PlanOptions(candidates="sweep", max_compilations=7)),
    ]
    monkeypatch.setattr(jobs, "__version__", "0.0.0")
    others.append(_keys())
    monkeypatch.undo()
    monkeypatch.setattr(jobs, "_vela_version", lambda: "9.9")
    others.append(_keys())
    keys = [key for each in [base, *others] for key in each]
    assert len(keys) == 1 + len(others)
    assert len(set(keys)) == len(keys)


def test_every_option_is_in_the_setting_or_known_not_to_matter() -> None:
    form = json.loads(jobs.setting_text(PlanOptions(candidates="sweep")))
    left_out = set(PlanOptions.__struct_fields__) - set(form)
    assert left_out == {"sram", "use_cache"}


def test_tasks_group_the_budgets_of_a_model_on_a_target() -> None:
    target = load_target("ethos-u55-128")
    slow = replace(target, clock_hz=target.clock_hz / 2)
    plan = plan_sweep(
        ["demo:chain:4", "demo:chain:5"],
        [target, "ethos-u55-128", slow],
        ["1KiB", 1024, "2KiB"],
        PlanOptions(),
    )
    assert [len(task.jobs) for task in plan.tasks] == [2, 2, 2, 2]
    assert [task.limit_bytes for task in plan.tasks] == [2048] * 4
    assert len(set(plan.keys)) == 8


def test_nothing_to_sweep_is_an_error() -> None:
    for models, targets, kind in (
        ([], ["ethos-u55-128"], ModelError),
        (["demo:block"], [], TargetError),
    ):
        with pytest.raises(NpuschedError) as caught:
            plan_sweep(models, targets, [], PlanOptions())
        assert isinstance(caught.value, kind)
