"""The part of an explanation that is about Vela: what it makes of limits, and of our chains."""

from __future__ import annotations

from npusched.report.types import Published
from npusched.vela.notes import Note


class VelaRun(Published, frozen=True, kw_only=True):
    """What Vela made of a request. ``asked_bytes`` null: no limit.

    ``operations``: NPU ops as Vela counts them, kernels and what is fused into them.
    ``memory_cycles``: busy cycles by memory, as reported.
    ``striped_cycles``: our cost of its schedule (null: no plan over our ops). ``worse_than``: index
    of another run that needs no more SRAM and reports no more cycles, and less of one. Ours: our
    plan for the same limit, null if none fits it.
    """

    index: int
    options: str
    asked_bytes: int | None
    used_bytes: int
    is_over: bool
    reported_cycles: int
    npu_cycles: int
    memory_cycles: dict[str, int]
    striped_cycles: int | None
    cascades: int
    cascaded_ops: int
    kernels: int
    operations: int
    cpu_ops: int
    macs: int
    flash_bytes: int
    constant_bytes: int
    worse_than: int | None
    ours_sram_bytes: int | None
    ours_cycles: int | None


class VelaChain(Published, frozen=True, kw_only=True):
    """A chain of ours, and what Vela does with its ops: how it divides them, at what cost.

    ``vela_groups``: kernels of each of its segments (1: alone). Cycles on one basis (striped).
    """

    segment: int
    source_ops: tuple[tuple[int, int], ...]
    ops: int
    cycles: int
    sram_bytes: int
    vela_groups: tuple[int, ...]
    vela_cycles: int
    vela_sram_bytes: int
    why: str


class VelaExplanation(Published, frozen=True, kw_only=True):
    """What a limit does with Vela for this model. ``asked``: index of the run as asked for.

    ``unmatched``: why its schedule is no plan over our ops; empty if it is one.
    ``smallest_feasible_bytes``: the least SRAM of any plan of ours.
    """

    version: str
    asked: int
    runs: tuple[VelaRun, ...]
    smallest_feasible_bytes: int
    chains: tuple[VelaChain, ...]
    unmatched: str
    notes: tuple[Note, ...]
    messages: tuple[str, ...]
