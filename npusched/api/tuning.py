"""Our frontier and Vela's results on one basis, cached as a whole: what ``npusched tune`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from npusched.api.options import PlanOptions
from npusched.api.planning import content_of
from npusched.api.tuning_points import make_curves
from npusched.errors import InfeasibleError, NpuschedError, VelaError
from npusched.tuning.probing import DEFAULT_COMPILATIONS

if TYPE_CHECKING:
    from npusched.api.candidates import Progress
    from npusched.hardware import Target
    from npusched.ir import Shape
    from npusched.report.tune_build import Curves
    from npusched.report.tune_types import TuneReport


def tune(
    model: str | Path | bytes,
    target: str | Target,
    *,
    sram: str | int | None = None,
    max_latency_s: float | None = None,
    within_percent: float = 1.0,
    points: int = DEFAULT_COMPILATIONS,
    objective: str = "cycles",
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
) -> TuneReport:
    """Return our frontier and Vela's results, and what to choose; see ``plan`` for the arguments.

    ``sram`` and ``max_latency_s`` limit what is recommended, not the curves. ``within_percent``:
    how much slower than the fastest is near enough. ``points``: compilations by Vela.

    Raises ModelError, TargetError, or InfeasibleError if nothing keeps the limits.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return tune_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        options=PlanOptions(
            sram=sram,
            objective=objective,
            signature=signature,
            input_shapes=input_shapes,
            use_vela=use_vela,
            use_cache=use_cache,
        ),
        max_latency_s=max_latency_s,
        within_percent=within_percent,
        points=points,
        model_path=None if isinstance(model, bytes) else str(model),
    )


def tune_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions | None = None,
    max_latency_s: float | None = None,
    within_percent: float = 1.0,
    points: int = DEFAULT_COMPILATIONS,
    model_path: str | None = None,
    progress: Progress | None = None,
) -> TuneReport:
    """Like ``tune``, for bytes and a resolved target; ``model_path``: its name in commands."""
    from npusched.report.tune_build import Limits, build_tune

    options = options or PlanOptions()
    limits = Limits(
        budget_bytes=options.budget_bytes(target),
        max_latency_s=max_latency_s,
        within_percent=within_percent,
    )
    curves = curves_of(
        content, name=name, target=target, options=options, points=points, progress=progress
    )
    report = build_tune(
        curves,
        target,
        limits,
        model_path=command_path(model_path or name),
        objective=options.objective,
    )
    if not any(each.source == "npusched" for each in report.recommended):
        raise _nothing_fits(report, content, name, target, options)
    return report


def command_path(model: str) -> str:
    """What a command calls the model: its path, a demo's file as ``npusched demo`` writes it."""
    if model.startswith("demo:"):
        return model.removeprefix("demo:").replace(":", "-") + ".tflite"
    return model


def _nothing_fits(
    report: TuneReport, content: bytes, name: str, target: Target, options: PlanOptions
) -> NpuschedError:
    """The error for limits that no plan of ours keeps."""
    from npusched.api.planning import plan_report

    ours = [point for point in report.frontier if point.source == "npusched"]
    budget = report.budget_bytes
    fitting = [p for p in ours if budget is None or p.sram_bytes <= budget]
    if not fitting:
        alone = msgspec.structs.replace(options, candidates="none")
        try:
            plan_report(content, name=name, target=target, options=alone)
        except InfeasibleError as error:
            return error
    best = min(fitting or ours, key=lambda point: point.latency_s)
    return InfeasibleError(
        f"no plan of {name} is as fast as that",
        f"the fastest takes {best.latency_s * 1e6:.4g} µs in {best.sram_bytes} bytes; asked for "
        f"{(report.max_latency_s or 0) * 1e6:.4g} µs",
        "raise --max-latency or --sram, or look at a larger NPU with --configs",
        need_s=report.max_latency_s,
        have_s=best.latency_s,
    )


def curves_of(
    content: bytes,
    *,
    name: str,
    target: Target,
    options: PlanOptions,
    points: int,
    progress: Progress | None = None,
) -> Curves:
    """All points of both sources, from the cache if they were made before; errors as for ``plan``.

    The whole curve is made, whatever budget ``options`` have.
    """
    from npusched.report.tune_build import Curves
    from npusched.vela.cache import CURVES, CURVES_LIMIT_BYTES, DiskCache

    options = msgspec.structs.replace(options, sram=None, candidates="none")
    cache = DiskCache(Curves, CURVES, limit_bytes=CURVES_LIMIT_BYTES) if options.use_cache else None
    key = _key(content, name, target, options, points)
    known = None if cache is None else cache.get(key)
    if known is not None:
        return known
    made = make_curves(
        content, name=name, target=target, options=options, points=points, progress=progress
    )
    is_whole = made.vela_version is not None or target.accelerator is None or not options.use_vela
    if cache is not None and is_whole:
        cache.put(key, made)
    return made


def _key(content: bytes, name: str, target: Target, options: PlanOptions, points: int) -> str:
    """Digest of everything that a curve depends on, this package's files included."""
    import hashlib

    from npusched import __version__
    from npusched.vela.cache import cache_key
    from npusched.vela.runner import vela_version

    try:
        version = vela_version()
    except VelaError:
        version = ""
    asked = msgspec.json.encode((target, options, points, name), order="sorted").decode()
    sha256 = hashlib.sha256(content).hexdigest()
    return cache_key(sha256, asked, version, __version__, _package_stamp())


def _package_stamp() -> str:
    """Size and time of every source file: a changed planner draws another curve."""
    import os

    root = Path(__file__).resolve().parent.parent
    found = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        for file in sorted(files):
            if file.endswith((".py", ".toml")):
                status = os.stat(os.path.join(folder, file))
                found.append(f"{file} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(found)
