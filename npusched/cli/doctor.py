"""What ``npusched doctor`` looks at: everything that a plan needs, tried rather than assumed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from npusched.errors import NpuschedError

State: TypeAlias = Literal["ok", "warning", "failed"]

OLDEST_PYTHON: Final = (3, 11)
VELA_SERIES: Final = "5.2"
"""The Vela releases whose output is understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding. A warning costs something (``hint`` says how to get it), a failure all."""

    name: str
    state: State
    detail: str
    hint: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return the JSON form."""
        return asdict(self)


def examine() -> list[Check]:
    """Run all checks. Never raises for what it looks for."""
    looks: list[Callable[[], Check]] = [
        _python,
        _package,
        _targets,
        _vela,
        _vela_run,
        _cache,
        lambda: _extra("litert", "ai_edge_litert", "reference kernels", "prove"),
        lambda: _extra("highs", "highspy", "settles plans that the search had to cut", "exact"),
        lambda: _extra("distributed", "distributed", "sweeps on dask.distributed", "distributed"),
        _browser,
    ]
    return [look() for look in looks]


def render_checks(checks: list[Check]) -> str:
    """Return the findings as text, one line each, hints below."""
    marks = {"ok": "ok  ", "warning": "warn", "failed": "FAIL"}
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{marks[check.state]}  {check.name:<{width}}  {check.detail}")
        if check.hint:
            lines.append(f"      {'':<{width}}  hint: {check.hint}")
    return "\n".join(lines)


def _python() -> Check:
    good = sys.version_info[:2] >= OLDEST_PYTHON
    wanted = ".".join(str(part) for part in OLDEST_PYTHON)
    return Check(
        name="python",
        state="ok" if good else "failed",
        detail=f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        hint="" if good else f"use Python {wanted} or newer",
    )


def _package() -> Check:
    from npusched import __version__

    return Check(
        name="npusched",
        state="ok",
        detail=f"{__version__} in {Path(__file__).resolve().parents[1]}",
    )


def _targets() -> Check:
    from npusched.hardware import load_target, target_names

    try:
        names = target_names()
        for name in names:
            load_target(name)
    except NpuschedError as error:
        return Check(
            name="targets", state="failed", detail=f"{error.what}: {error.why}", hint=error.hint
        )
    if not names:
        return Check(
            name="targets", state="failed", detail="no target found", hint="install npusched again"
        )
    return Check(name="targets", state="ok", detail=f"{len(names)} targets, all of them load")


def _vela() -> Check:
    from npusched.vela.runner import vela_version

    hint = f"pip install 'ethos-u-vela>={VELA_SERIES},<5.3'; without it weight sizes are estimated"
    try:
        version = vela_version()
    except NpuschedError as error:
        return Check(name="vela", state="warning", detail=error.what, hint=hint)
    fits = version == VELA_SERIES or version.startswith(f"{VELA_SERIES}.")
    return Check(
        name="vela",
        state="ok" if fits else "warning",
        detail=version if fits else f"{version}: releases {VELA_SERIES}.x are understood",
        hint="" if fits else hint,
    )


def _vela_run() -> Check:
    """Compile a model of two ops, without the cache."""
    from npusched.demos import demo
    from npusched.hardware import load_target
    from npusched.vela.options import VelaOptions
    from npusched.vela.runner import compile_model

    try:
        result = compile_model(
            demo("chain:2"), load_target("ethos-u55-128"), VelaOptions(), cache=None, limit_s=30.0
        )
    except NpuschedError as error:
        why = f": {error.why}" if error.why else ""
        hint = "plans work all the same, with estimated weight sizes"
        return Check(name="vela run", state="warning", detail=error.what + why, hint=hint)
    return Check(
        name="vela run",
        state="ok",
        detail=f"compiled a small model to {len(result.compiled)} bytes",
    )


def _cache() -> Check:
    from npusched.report.units import human_bytes, plural
    from npusched.vela.cache import cache_info

    info = cache_info()
    detail = (
        f"{plural(info.entries, 'Vela result')}, {human_bytes(info.size_bytes)} of at most "
        f"{human_bytes(info.limit_bytes)}, in {info.folder}"
    )
    place = info.folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if os.access(place, os.W_OK | os.X_OK):
        return Check(name="cache", state="ok", detail=detail)
    return Check(
        name="cache",
        state="warning",
        detail=f"{place} cannot be written to: Vela runs anew for every plan",
        hint="set NPUSCHED_CACHE_DIR to a folder of yours",
    )


def _extra(name: str, module: str, purpose: str, extra: str) -> Check:
    """An optional package: fine with and without."""
    from importlib.util import find_spec

    if find_spec(module) is not None:
        return Check(name=name, state="ok", detail=f"installed: {purpose}")
    return Check(
        name=name,
        state="ok",
        detail=f"not installed (optional: {purpose}, pip install 'npusched[{extra}]')",
    )


def _browser() -> Check:
    from npusched.cli.png import find_browser

    try:
        return Check(name="browser", state="ok", detail=find_browser())
    except NpuschedError as error:
        detail = f"none (optional: PNG of 'npusched plot'; {error.hint})"
        return Check(name="browser", state="ok", detail=detail)
