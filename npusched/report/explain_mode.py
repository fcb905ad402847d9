"""What each memory mode would give: the model planned in every one that the target can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from npusched.errors import InfeasibleError
from npusched.hardware.target import Target
from npusched.report.build import totals
from npusched.report.explain_inputs import Explained
from npusched.report.explain_types import BoundShare, ModeFacts


def build_modes(
    tried: Sequence[tuple[Target, Explained | InfeasibleError]], chosen: Target
) -> tuple[ModeFacts, ...]:
    """Return a row per mode; an error says why nothing fits."""
    return tuple(_mode(target, found, chosen) for target, found in tried)


def mode_name(target: Target) -> str:
    """Name of a target's memory mode as users write it."""
    return target.memory_mode_name or target.memory_mode.value


def _mode(target: Target, found: Explained | InfeasibleError, chosen: Target) -> ModeFacts:
    roles = target.roles
    counts = "arena"
    if roles.cache != roles.arena:
        counts = "staging cache"
    elif roles.const == roles.arena:
        counts = "arena and constants"
    failed = found if isinstance(found, InfeasibleError) else None
    sums = None
    constants = reads = None
    shares: tuple[BoundShare, ...] = ()
    if isinstance(found, Explained):
        sums = totals(found.subgraph, found.graph, target, found.plan)
        constants = sums.constant_bytes
        read = found.plan.amounts.read_from(roles.const)
        apart = roles.const not in (roles.arena, roles.cache)
        reads = read / constants if constants and apart else 0.0
        shares = _shares(found)
    return ModeFacts(
        memory_mode=mode_name(target),
        is_chosen=mode_name(target) == mode_name(chosen),
        constants_in=roles.const,
        arena_in=roles.arena,
        counts=counts,
        sram_peak_bytes=None if sums is None else sums.sram_peak_bytes,
        cycles=None if sums is None else sums.cycles,
        latency_s=None if sums is None else sums.latency_s,
        energy_nj=None if sums is None else sums.energy_nj,
        dram_bytes=None if sums is None else sums.dram_bytes,
        flash_bytes=None if sums is None else sums.flash_bytes,
        constant_bytes=constants,
        weight_reads=reads,
        bound_by=shares,
        why_not="" if failed is None else f"{failed.what}: {failed.why}",
    )


def _shares(about: Explained) -> tuple[BoundShare, ...]:
    cycles: Counter[str] = Counter()
    for run in about.runs.values():
        cycles[run.bound_by] += run.amounts.npu_cycles
    total = sum(cycles.values())
    return tuple(
        BoundShare(bound_by=name, cycles=count, share=count / total)
        for name, count in cycles.most_common()
        if count
    )
