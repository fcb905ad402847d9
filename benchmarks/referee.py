"""Compilations that evidence compares with: Vela's own schedule, uncascaded and unbuffered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.evidence import Case, corpus
from npusched.errors import NpuschedError
from npusched.hardware import Target, load_target
from npusched.ir import Model
from npusched.tflite import load_model
from npusched.vela.cache import VelaCache
from npusched.vela.options import Feature, VelaOptions
from npusched.vela.result import VelaResult
from npusched.vela.runner import compile_model

TARGETS: dict[str, tuple[str, str | None, str | None]] = {
    "u55": ("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "u65": ("ethos-u65-256", "Ethos_U65_High_End", "Dedicated_Sram_384KB"),
    "u85": ("ethos-u85-256", "Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
}
"""(target, system config, memory mode) by short name."""

UNLIMITED_BYTES = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A model, a target, and Vela's schedule with every op whole and its weights streamed."""

    model: Model
    target: Target
    result: VelaResult


def target_of(name: str) -> Target:
    """Return one of ``TARGETS``."""
    target, system, mode = TARGETS[name]
    return load_target(target, system_config=system, memory_mode=mode)


def compile_case(case: Case) -> Compared | str:
    """Read and compile a case (path, target name); a text says why that is not possible."""
    target = target_of(case[1])
    options = VelaOptions(
        disable=(Feature.CASCADING, Feature.FM_STAGING), arena_cache_size_bytes=UNLIMITED_BYTES
    )
    try:
        model = load_model(Path(corpus() / case[0]))
        result = compile_model(model.content, target, options, cache=VelaCache())
    except NpuschedError as error:
        return f"{type(error).__name__}: {error.what}"
    return Compared(model=model, target=target, result=result)
