"""Compile a model with Vela: cached, isolated, typed.

``compile_model`` takes one of our targets; ``compile_config`` any text of a vela.ini. Vela's C++
core only ever runs in a worker process (``process``): its crash is a ``VelaError``, not ours.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from functools import cache as memoise

import msgspec

from npusched.errors import VelaError
from npusched.hardware.target import MemoryMode, Target
from npusched.vela.cache import VelaCache, cache_key
from npusched.vela.options import (
    OutputFormat,
    VelaConfig,
    VelaOptions,
    address_space_bytes,
    compiler_text,
    system_text,
)
from npusched.vela.process import VelaWorker, not_installed
from npusched.vela.protocol import Request
from npusched.vela.result import VelaResult

DEFAULT_LIMIT_S = 120.0
"""Wall-clock limit of one compilation. The slowest corpus model takes about 20 s."""

_DISTRIBUTION = "ethos_u_vela-"
_SUFFIX = ".dist-info"
_WORKER = VelaWorker()


@memoise
def vela_version() -> str:
    """Return the installed version of ethos-u-vela without importing it.

    Raises VelaError if it is not installed.
    """
    return _version_on_path() or _version_by_metadata()


def _version_on_path() -> str:
    """Look for the distribution's folder on the import path ("" if it is not plainly there).

    Takes 0.2 ms, where importing importlib.metadata takes 20.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(_DISTRIBUTION) and name.endswith(_SUFFIX):
                return name[len(_DISTRIBUTION) : -len(_SUFFIX)]
    return ""


def _version_by_metadata() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ethos-u-vela")
    except PackageNotFoundError:
        raise not_installed("no distribution ethos-u-vela in this Python environment") from None


def config_of(target: Target) -> VelaConfig:
    """Describe ``target`` to Vela. Raises TargetError for a host-only target."""
    from npusched.hardware import vela_accelerator, vela_ini

    architecture, macs, cores = vela_accelerator(target)
    return VelaConfig(
        architecture=architecture,
        macs=macs,
        cores=cores,
        ini=vela_ini(target),
        system_config=target.system_config,
        memory_mode=target.memory_mode_name,
    )


def default_arena_limit_bytes(target: Target) -> int | None:
    """Return the arena limit that ``vela`` would use for this target; None = no limit.

    That is ``arena_cache_size`` of the memory mode. Where a Dedicated_Sram mode states none, it
    is the staging memory's capacity, because there the limit is hard; in the other modes it is
    only a soft aim (VELA_SPEC §4), so none is set unasked.
    """
    if target.arena_cache_bytes is not None or target.memory_mode is not MemoryMode.DEDICATED_SRAM:
        return target.arena_cache_bytes
    return target.cache.capacity_bytes


def compile_model(
    content: bytes,
    target: Target,
    options: VelaOptions | None = None,
    *,
    cache: VelaCache | None,
    worker: VelaWorker | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
) -> VelaResult:
    """Compile the bytes of a .tflite file for ``target``.

    ``cache`` None = neither read nor written. ``options.arena_cache_size_bytes`` None = the
    target's staging capacity (``default_arena_limit_bytes``), else the whole address space, as the
    vela command does. Raises VelaError if Vela fails, crashes, takes longer than ``limit_s`` or is
    not installed; TargetError for a target without NPU.
    """
    options = options or VelaOptions()
    if options.arena_cache_size_bytes is None:
        options = msgspec.structs.replace(
            options, arena_cache_size_bytes=default_arena_limit_bytes(target)
        )
    return compile_config(
        content, config_of(target), options, cache=cache, worker=worker, limit_s=limit_s
    )


def compile_config(
    content: bytes,
    config: VelaConfig,
    options: VelaOptions | None = None,
    *,
    cache: VelaCache | None,
    worker: VelaWorker | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
) -> VelaResult:
    """Compile for a configuration given as the text of a vela.ini; else like ``compile_model``."""
    options = (options or VelaOptions()).canonical()
    limit = options.arena_cache_size_bytes
    arena_limit = address_space_bytes(config.architecture) if limit is None else limit
    version = vela_version()
    sha256 = hashlib.sha256(content).hexdigest()
    request = Request(
        architecture=config.architecture,
        system=system_text(config),
        options=compiler_text(options, arena_limit),
        model=content,
        limit_s=limit_s,
    )
    key = cache_key(sha256, request.architecture, request.system, request.options, version)
    if cache is not None and (known := cache.get(key)) is not None:
        return known
    reply, printed = (worker or _WORKER).run(request)
    result = VelaResult(
        vela_version=version,
        model_sha256=sha256,
        config=config,
        options=options,
        arena_limit_bytes=arena_limit,
        compiled=reply.model,
        raw=reply.raw,
        report=reply.report,
        columns=reply.columns,
        printed=printed,
        seconds=reply.seconds,
    )
    if options.output_format is OutputFormat.TFLITE and not result.compiled:
        raise VelaError(
            "Vela returned no file",
            "the compiled model is empty",
            "run the vela command on the same model to see whether it fails, too",
            reason="empty",
        )
    if cache is not None:
        cache.put(key, result)
    return result


def warm_up() -> None:
    """Start the shared worker in the background, to save its start-up (about 50 ms) later.

    Does nothing if Vela is not installed or the process cannot be started: whoever needs it will
    be told then.
    """
    with suppress(VelaError):
        vela_version()
        _WORKER.start()


def close_worker() -> None:
    """Stop the shared worker process (it starts again when needed)."""
    _WORKER.close()
