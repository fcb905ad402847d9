"""What one command of a stream costs: registers as the striped cost sees them (PLANNER §1).

A kernel is costed as the stripe that its registers describe: its own shapes, window, block and
encoded weights, each feature map in the memory that its region stands for in the target. A clamp
costs nothing and a table its activation column, as for our plans; the table of a plain copy is the
kernel's own and free of it (VELA_SPEC_2 §3, §5). Tables and copies are loaded by the stream's own
DMAs, so no kernel waits for them here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from npusched.cost.bursts import dma_cycles, lut_dma_cycles
from npusched.cost.op_cost import op_cost
from npusched.cost.types import (
    Basis,
    BlockConfig,
    CostFm,
    CostOp,
    CostSub,
    OpCost,
    Traversal,
    WeightBytes,
)
from npusched.errors import SimError
from npusched.graph.types import KernelKind
from npusched.hardware.target import AcceleratorU55, Target
from npusched.sim.container import READ_ONLY, SCRATCH, SCRATCH_FAST
from npusched.sim.kernels import Binary, Unary
from npusched.sim.program import LoadedDma, Program
from npusched.sim.shram import ifm_block
from npusched.sim.state import KernelState
from npusched.sim.views import Pool, View
from npusched.vela.stream import StreamOpKind

_MODES: dict[Pool | Binary | Unary, KernelKind] = {
    Pool.MAX: KernelKind.MAX_POOL,
    Pool.AVERAGE: KernelKind.AVG_POOL,
    Pool.REDUCE_SUM: KernelKind.REDUCE_SUM,
    Binary.MUL: KernelKind.MUL,
    Binary.ADD: KernelKind.ADD,
    Binary.SUB: KernelKind.SUB,
    Binary.MIN: KernelKind.MINIMUM,
    Binary.MAX: KernelKind.MAXIMUM,
    Binary.SHR: KernelKind.ASR,
    Binary.SHL: KernelKind.SHL,
    Unary.LEAKY_RELU: KernelKind.LEAKY_RELU,
    Unary.ABS: KernelKind.ABS,
    Unary.CLZ: KernelKind.CLZ,
}

_WIDE_ACCUMULATOR = 1
"""ACC_FORMAT of 40 bits (VELA_SPEC §1.1)."""


@dataclass(frozen=True, slots=True)
class DmaCycles:
    """A DMA: cycles until its first bytes arrive, and cycles of the transfer itself."""

    latency: int
    transfer: int


class CommandCosts:
    """Costs of the commands of a program on a target (U55, U65).

    Raises SimError if the target is not of the architecture and size that the stream was made
    for, or if the stream uses a region that no role of the target stands for.
    """

    def __init__(self, program: Program, target: Target, *, basis: Basis = Basis.PHYSICAL) -> None:
        self._target = target
        self._basis = basis
        self._accelerator = _accelerator(program, target)
        self._memories = region_memories(program, target)

    def kernel(self, state: KernelState) -> OpCost:
        """Cost of a kernel: NPU and memory cycles, bytes moved."""
        weights = WeightBytes(
            sum(part.length_bytes for part in state.weights),
            sum(part.length_bytes for part in state.scales),
            exact=True,
        )
        return _op_cost(
            self._target,
            self.cost_op(state),
            weights,
            self.block(state),
            self._memories[state.weights[0].region] if state.weights else None,
            self._memories[state.scales[0].region] if state.scales else None,
            self._basis,
        )

    def dma(self, dma: LoadedDma) -> DmaCycles:
        """Cycles of a DMA, by the memories that it reads and writes."""
        source = self._target.memory(self._memories[dma.source.region])
        if dma.destination.internal:
            latency = source.read_latency_cycles
            whole = lut_dma_cycles(self._target, dma.total_bytes, source=source, basis=self._basis)
            return DmaCycles(min(latency, whole), max(whole - latency, 0))
        destination = self._target.memory(self._memories[dma.destination.region])
        latency, whole = (
            dma_cycles(
                self._target, size, source=source, destination=destination, basis=self._basis
            )
            for size in (0, dma.total_bytes)
        )
        return DmaCycles(latency, whole - latency)

    def cost_op(self, state: KernelState) -> CostOp:
        """Describe a kernel to the cost functions."""
        ofm = self._map(state.ofm)
        ifm, ifm2 = self._operands(state)
        kind = _kind(state)
        own_table = kind is KernelKind.LUT
        has_table = state.table is not None
        follows = has_table and not own_table
        follower = CostSub(kind=KernelKind.LUT, ifm_bits=ofm.bits, ofm=ofm)
        return CostOp(
            kind=kind,
            ifm=ifm,
            ofm=ofm,
            ifm2=ifm2,
            kernel=state.window,
            upscale=state.upscale,
            scaled=state.accumulator == _WIDE_ACCUMULATOR,
            has_scales=bool(state.scales),
            subs=(follower,) if follows else (),
        )

    def block(self, state: KernelState) -> BlockConfig:
        """The block that the registers name, and the IFM block that feeds it."""
        if state.kind is StreamOpKind.DEPTHWISE:
            traversal = Traversal.DEPTHWISE
        elif state.kind is StreamOpKind.CONV and state.is_part_kernel:
            traversal = Traversal.PART_KERNEL
        else:
            traversal = Traversal.DEPTH_FIRST
        return BlockConfig(
            ofm_block=state.block,
            ifm_block=ifm_block(state, self._accelerator),
            ofm_ublock=self._accelerator.ofm_ublock,
            traversal=traversal,
        )

    def _map(self, view: View) -> CostFm:
        memory = self._memories[view.region]
        shape = (1, view.h, view.w, view.c)
        return CostFm(shape, 8 * view.dtype.itemsize, view.is_brick, memory)

    def _operands(self, state: KernelState) -> tuple[CostFm, CostFm | None]:
        """Both operands, the first one first; a scalar in a register costs no more than one."""
        ifm = self._map(state.ifm)
        is_first = state.broadcast is not None and state.broadcast.is_first
        if state.ifm2 is not None:
            second = self._map(state.ifm2)
        elif state.scalar is None:
            return ifm, None
        else:
            second = CostFm((1, 1, 1, 1), ifm.bits if is_first else 8, False, ifm.memory)
        return (second, ifm) if is_first else (ifm, second)


@lru_cache(maxsize=1 << 16)
def _op_cost(
    target: Target,
    op: CostOp,
    weights: WeightBytes,
    block: BlockConfig,
    weights_memory: str | None,
    scales_memory: str | None,
    basis: Basis,
) -> OpCost:
    return op_cost(
        target,
        op,
        weights,
        basis=basis,
        block=block,
        weights_memory=weights_memory,
        scales_memory=scales_memory,
    )


def region_memories(program: Program, target: Target) -> dict[int, str]:
    """Name of the target's memory that each region of a program stands for.

    Region 0 holds constants, 1 the arena, 2 the staging memory if it is one apart (VELA_SPEC §6).
    Raises SimError for other regions.
    """
    roles = {
        READ_ONLY: target.roles.const,
        SCRATCH: target.roles.arena,
        SCRATCH_FAST: target.roles.cache,
    }
    unknown = sorted({region.key for region in program.regions.values()} - set(roles))
    if unknown:
        raise SimError(
            "cannot time the stream",
            f"it uses region {unknown[0]}, which no memory of {target.name} stands for",
            "compile it again: only regions 0 to 2 are known (constants, arena, staging memory)",
        )
    return {index: roles[region.key] for index, region in program.regions.items()}


def _accelerator(program: Program, target: Target) -> AcceleratorU55:
    """Return the target's accelerator. Raises SimError if the stream was made for another one."""
    machine, own = program.machine, target.accelerator
    made_for = f"{machine.family}-{machine.macs_per_cycle}"
    if not isinstance(own, AcceleratorU55) or own.name != made_for:
        raise SimError(
            f"cannot time the stream on {target.name}",
            f"it was made for {made_for}, the target has {'no NPU' if own is None else own.name}",
            f"name a target with an {made_for}",
        )
    return own


def _kind(state: KernelState) -> KernelKind:
    """Kind of a kernel; a plain copy through a table counts as the table."""
    if state.function is None:
        is_conv = state.kind is StreamOpKind.CONV
        return KernelKind.CONV2D if is_conv else KernelKind.DEPTHWISE
    window = state.window
    is_copy = state.function is Pool.AVERAGE and window.h == window.w == 1
    if is_copy and state.table is not None:
        return KernelKind.LUT
    return _MODES[state.function]
