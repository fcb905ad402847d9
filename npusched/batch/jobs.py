"""What a sweep has to do: jobs with their keys, and tasks, which plan one model on one target."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from npusched import __version__
from npusched.batch.models import ModelSource, find_models
from npusched.errors import ModelError, TargetError, VelaError
from npusched.hardware import Target
from npusched.vela.cache import cache_key

if TYPE_CHECKING:
    from npusched.api import PlanOptions

KEY_FORMAT = "npusched-sweep-1"
"""First part of every key; another one makes all results of old stores unknown."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One budget (bytes; None: the target's capacity) and the key of its result."""

    key: str
    budget_bytes: int | None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one model on one target; ``content`` is there when it is shipped.

    ``limit_bytes``: the largest budget of the sweep (None: unlimited), whatever of it is left.
    The versions are those that the keys name.
    """

    model: ModelSource
    target: Target
    target_sha256: str
    options: PlanOptions
    setting_sha256: str
    jobs: tuple[Job, ...]
    limit_bytes: int | None
    npusched_version: str
    vela_version: str | None
    content: bytes = b""

    def loaded(self) -> Task:
        """The task with its model's bytes. Raises ModelError if they cannot be read (any more)."""
        return replace(self, content=self.model.content())

    def only(self, keys: Collection[str]) -> Task:
        """The task with those of its jobs."""
        return replace(self, jobs=tuple(job for job in self.jobs if job.key in keys))


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Every job of a sweep, grouped. ``setting``: the planning options as JSON."""

    tasks: tuple[Task, ...]
    setting: str
    copies: int

    @property
    def keys(self) -> list[str]:
        """Keys of all jobs: by model, target, budget."""
        return [job.key for task in self.tasks for job in task.jobs]


def plan_sweep(
    models: Iterable[str | Path],
    targets: Sequence[str | Target],
    budgets: Sequence[str | int | None],
    options: PlanOptions,
) -> SweepPlan:
    """Resolve what was asked for.

    ``models``: see ``find_models``. ``targets``: names, .toml files or ``Target`` values.
    ``budgets``: sizes ("64KiB", bytes) or None for the target's capacity; of ``options``,
    ``sram`` is not looked at. Raises ModelError or TargetError for a name that means nothing.
    """
    found = find_models(models)
    if not found.models:
        raise ModelError(
            "no models to sweep", "none were named", "name files, folders, patterns or demo:NAME"
        )
    resolved = _distinct_targets(targets)
    sizes = _distinct_budgets(budgets)
    setting = setting_text(options)
    version = _vela_version() if options.use_vela else None
    tasks = []
    for model in found.models:
        for sha256, target in resolved:
            own_version = None if target.accelerator is None else version
            parts = (KEY_FORMAT, model.sha256, sha256, setting, __version__, own_version or "none")
            tasks.append(
                Task(
                    model=model,
                    target=target,
                    target_sha256=sha256,
                    options=options,
                    setting_sha256=_sha256(setting),
                    jobs=tuple(
                        Job(key=cache_key(*parts, str(size)), budget_bytes=size) for size in sizes
                    ),
                    limit_bytes=_limit(sizes, target),
                    npusched_version=__version__,
                    vela_version=own_version,
                )
            )
    return SweepPlan(tasks=tuple(tasks), setting=setting, copies=found.copies)


def setting_text(options: PlanOptions) -> str:
    """The planning options that a result depends on, as JSON with sorted keys.

    Different ways to say the same are one text.
    """
    form = msgspec.to_builtins(options)
    del form["sram"], form["use_cache"]
    form["allow"] = [switch.value for switch in options.allowed]
    form["max_offchip_bytes"] = options.limit_bytes
    form["input_shapes"] = form["input_shapes"] or None
    if not options.use_vela:
        form["candidates"] = "none"
    if form["candidates"] != "sweep":
        del form["max_compilations"]
    return msgspec.json.encode(form, order="sorted").decode()


def target_text(target: Target) -> str:
    """The resolved target as JSON."""
    return msgspec.json.encode(target).decode()


def _distinct_targets(targets: Sequence[str | Target]) -> list[tuple[str, Target]]:
    """(hash, target) of each target once. Raises TargetError."""
    from npusched.hardware import load_target

    if not targets:
        raise TargetError(
            "no targets to sweep", "none were named", "name some of 'npusched configs'"
        )
    found: dict[str, Target] = {}
    for each in targets:
        target = load_target(each) if isinstance(each, str) else each
        found.setdefault(_sha256(target_text(target)), target)
    return list(found.items())


def _distinct_budgets(budgets: Sequence[str | int | None]) -> list[int | None]:
    """Each budget once, in bytes. Raises TargetError."""
    from npusched.hardware import parse_size

    sizes = [parse_size(each) if isinstance(each, str) else each for each in budgets]
    return list(dict.fromkeys(sizes)) or [None]


def _limit(sizes: Sequence[int | None], target: Target) -> int | None:
    """The largest budget on a target; None: one is unlimited."""
    largest = 0
    for size in sizes:
        budget = target.sram_budget_bytes if size is None else size
        if budget is None:
            return None
        largest = max(largest, budget)
    return largest


def _vela_version() -> str | None:
    from npusched.vela.runner import vela_version

    try:
        return vela_version()
    except VelaError:
        return None  # plans are made without it, and say so


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
