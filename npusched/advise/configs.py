"""Rules about the target: memory mode, flash, budget, accelerator, what the board lacks."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from npusched.advise.types import Case, Change, Proposal, Rule, Severity
from npusched.errors import TargetError
from npusched.hardware import Target, describe_target, load_target, target_names
from npusched.hardware.target import MemoryKind
from npusched.ir import OpKind

LEAST_GAIN = 0.02
"""Share of the objective that another target or more SRAM must gain: they cost something else."""


def _like(target: Target, name: str, mode: str | None = None) -> Target | None:
    """Another target, or another mode, with all that was asked of this one; None if there is none.

    A target that was changed by hand (derated, of a user's vela.ini) has no siblings.
    """
    try:
        same = load_target(
            target.name,
            system_config=target.system_config,
            memory_mode=target.memory_mode_name or None,
            clock_hz=target.clock_hz,
        )
        if same != target:
            return None
        return load_target(
            name,
            system_config=target.system_config,
            memory_mode=mode or target.memory_mode_name or None,
            clock_hz=target.clock_hz,
        )
    except TargetError:
        return None


def _memory_modes(case: Case) -> list[Proposal]:
    target = case.target
    if target.accelerator is None:
        return []
    try:
        modes = describe_target(target.name).memory_modes
    except TargetError:
        return []
    steps = _repeated_weights(case)
    found = []
    for mode in modes:
        other = _like(target, target.name, mode)
        if other is None or mode == target.memory_mode_name:
            continue
        where = f"constants in {other.roles.const}, feature maps in {other.roles.arena}"
        found.append(
            Proposal(
                rule="NS201",
                group="memory mode",
                what=f"{steps}memory mode {mode} ({where}) instead of {target.memory_mode_name}",
                change=Change(target=other),
                least_gain=LEAST_GAIN,
                price=f"{other.roles.cache} must hold what the plan then needs there",
            )
        )
    return found


def _repeated_weights(case: Case) -> str:
    """What to say of an LSTM whose weights are read anew in every step; empty without one."""
    counts: Counter[tuple[int, int]] = Counter()
    for kernel in case.graph.ops:
        if kernel.weights is not None and kernel.source_ops:
            counts[kernel.source_ops[0]] += 1
    for (_, index), kernels in counts.most_common():
        op = case.subgraph.ops[index]
        if op.kind is OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM:
            return f"LSTM #{index} runs as {kernels} kernels that read its weights step by step: "
    return ""


def _flash(case: Case) -> list[Proposal]:
    target = case.target
    const = target.const
    if target.accelerator is None or const.kind is MemoryKind.SRAM:
        return []
    faster = replace(
        const,
        bandwidth_bytes_per_cycle=2 * const.bandwidth_bytes_per_cycle,
        vela_bandwidth_bytes_per_cycle=2 * const.vela_bandwidth_bytes_per_cycle,
        clock_scale=2 * const.clock_scale,
    )
    other = replace(
        target, memories=tuple(faster if m.name == const.name else m for m in target.memories)
    )
    return [
        Proposal(
            rule="NS202",
            group="flash clock",
            what=f"the NPU waits for weights from {const.name}: twice its clock or width",
            change=Change(target=other),
            least_gain=LEAST_GAIN,
            price="if the board can do it",
        )
    ]


def _budget(case: Case) -> list[Proposal]:
    if case.sram_bytes is None or not case.fits:
        return []
    capacity = case.target.sram_budget_bytes
    if capacity is not None and capacity <= case.sram_bytes:
        return []
    return [
        Proposal(
            rule="NS203",
            group="budget",
            what=f"a larger --sram than {case.sram_bytes:,} bytes",
            change=Change(lifts_budget=True),
            least_gain=LEAST_GAIN,
            price="SRAM is what it costs; 'npusched tune' shows every step between",
        )
    ]


def _accelerators(case: Case) -> list[Proposal]:
    """The next larger and the next smaller accelerator with the same system config."""
    own = case.target.accelerator
    if own is None:
        return []
    siblings = []
    for name in target_names():
        if name == case.target.name:
            continue
        other = _like(case.target, name)
        accelerator = None if other is None else other.accelerator
        if other is not None and accelerator is not None and accelerator.name == name:
            siblings.append(other)
    macs = {t.name: t.accelerator.macs_per_cycle for t in siblings if t.accelerator is not None}
    larger = [t for t in siblings if macs[t.name] > own.macs_per_cycle]
    smaller = [t for t in siblings if macs[t.name] < own.macs_per_cycle]
    nearest = []
    if larger:
        nearest.append(min(larger, key=lambda t: macs[t.name]))
    if smaller:
        nearest.append(max(smaller, key=lambda t: macs[t.name]))
    return [
        Proposal(
            rule="NS204",
            group=f"accelerator {other.name}",
            what=f"{other.name} in the same system ({case.target.system_config})",
            change=Change(target=other),
            least_gain=LEAST_GAIN,
            price="another chip",
        )
        for other in nearest
    ]


def _board(case: Case) -> list[Proposal]:
    """A plan that needs more than the board has: planned again within what there is."""
    capacity, target = case.target.cache.capacity_bytes, case.target
    if case.sram_bytes is None or capacity is None or case.sram_bytes <= capacity:
        return []
    if case.plan.sram_peak_bytes <= capacity:
        return []
    return [
        Proposal(
            rule="NS206",
            group="board",
            what=f"the plan needs {case.plan.sram_peak_bytes:,} bytes of {target.cache.name}, and "
            f"{target.name} has {capacity:,}: drop --sram",
            change=Change(sram_bytes=capacity),
            severity=Severity.WARNING,
        )
    ]


RULES = (
    Rule(
        id="NS201",
        title="a better memory mode",
        when="the target knows other memory modes",
        plans="the same model in each of them (the best one is shown)",
        propose=_memory_modes,
    ),
    Rule(
        id="NS202",
        title="weights bound by flash",
        when="constants lie in flash or DRAM",
        plans="the target with twice the bandwidth of the memory that holds constants",
        propose=_flash,
    ),
    Rule(
        id="NS203",
        title="more SRAM",
        when="a budget was given that is below what the target has",
        plans="the model with what the target has",
        propose=_budget,
    ),
    Rule(
        id="NS204",
        title="another accelerator",
        when="the target is a generic one of a family with other sizes",
        plans="the next larger and the next smaller one in the same system",
        propose=_accelerators,
    ),
    Rule(
        id="NS206",
        title="a budget that the board does not have",
        when="the budget is above the memory's capacity, and so is the plan",
        plans="the model within the capacity",
        propose=_board,
    ),
)
