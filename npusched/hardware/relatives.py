"""Targets beside a target: the next larger accelerator, and other memory modes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from npusched.errors import TargetError
from npusched.hardware.describe import describe_target
from npusched.hardware.load import load_target, target_names
from npusched.hardware.store import read_target_file
from npusched.hardware.target import Accelerator, AcceleratorU55, AcceleratorU85, Target


def larger_accelerator(accelerator: Accelerator) -> Accelerator | None:
    """The accelerator of the same family with twice the MACs; None if there is none."""
    for name in target_names():
        found = read_target_file(name).accelerator
        if (
            isinstance(found, AcceleratorU55 | AcceleratorU85)
            and found.family is accelerator.family
            and found.macs_per_cycle == 2 * accelerator.macs_per_cycle
        ):
            return found
    return None


def memory_mode_targets(
    target: Target,
    name: str,
    *,
    system_config: str | None = None,
    vela_config: Path | None = None,
    clock_hz: float | None = None,
    derate: Mapping[str, float] | None = None,
) -> list[Target]:
    """The target in every memory mode that it can do, its own first.

    ``name`` and the rest are what ``target`` was loaded from.
    """
    own = target.memory_mode_name or target.memory_mode.value
    found = [target]
    for mode in describe_target(name).memory_modes:
        if mode == own:
            continue
        try:
            other = load_target(
                name,
                system_config=system_config,
                memory_mode=mode,
                vela_config=vela_config,
                clock_hz=clock_hz,
                derate=derate,
            )
        except TargetError:
            continue  # a mode that the system config or the vela.ini does not have
        found.append(other)
    return found
