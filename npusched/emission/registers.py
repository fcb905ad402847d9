"""Registers of a kernel on some of its rows and channels (EMIT.md §4).

The template's values stay, but for those that say where feature maps lie, how many rows and
channels there are, where weights are, and how the SHRAM is divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npusched.emission.events import Run
from npusched.emission.parts import CoreChunk
from npusched.emission.template import ConstantUse, TemplateKernel, Use
from npusched.errors import EmitError
from npusched.graph.types import BRICK_CHANNELS, Upscale
from npusched.sim.state import KernelState
from npusched.sim.views import Pool, View
from npusched.vela.stream import Register, StreamOpKind

_BASES = {"ifm": Register.IFM_BASE0, "ifm2": Register.IFM2_BASE0, "ofm": Register.OFM_BASE0}
_REGIONS = {"ifm": Register.IFM_REGION, "ifm2": Register.IFM2_REGION, "ofm": Register.OFM_REGION}
_HEIGHTS = {
    "ifm": Register.IFM_HEIGHT0_M1,
    "ifm2": Register.IFM2_HEIGHT0_M1,
    "ofm": Register.OFM_HEIGHT0_M1,
}


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a tensor lies: ``rows`` of a rolling buffer, 0 = all of it."""

    tensor: int
    region: int
    address: int
    rows: int = 0


def stripe_registers(kernel: TemplateKernel, run: Run, placed: dict[str, Placed]) -> dict[int, int]:
    """Return the kernel's registers for a run; weights, table and BLOCKDEP are the caller's.

    Raises EmitError for rows or channels that the kernel cannot be cut into.
    """
    registers = dict(kernel.registers)
    state = kernel.state
    a, b = run.rows
    c0, c1 = run.channels
    is_whole = run.rows == (0, kernel.rows)
    if not is_whole:
        check_stripes(kernel)
        registers[Register.OFM_HEIGHT_M1] = b - a - 1
        if state.kind is not StreamOpKind.ELEMENTWISE:
            _, _, top, bottom = ifm_rows(state, a, b)
            registers[Register.IFM_PAD_TOP], registers[Register.IFM_PAD_BOTTOM] = top, bottom
    if run.channels != (0, kernel.channels):
        _check_channels(kernel, c0)
        registers[Register.OFM_DEPTH_M1] = c1 - c0 - 1
        if state.kind is StreamOpKind.DEPTHWISE:
            registers[Register.IFM_DEPTH_M1] = c1 - c0 - 1
    for role in ("ifm", "ifm2", "ofm"):
        use, view = getattr(kernel, role), getattr(state, role)
        if use is None or view is None:
            continue
        low, high = rows_of(kernel, role, a, b)
        channel = c0 if role == "ofm" or state.kind is StreamOpKind.DEPTHWISE else 0
        _locate(registers, role, use, view, placed.get(role), (low, high, is_whole), channel)
    registers[Register.OFM_BLOCK_HEIGHT_M1] = run.block.h - 1
    registers[Register.OFM_BLOCK_WIDTH_M1] = run.block.w - 1
    registers[Register.OFM_BLOCK_DEPTH_M1] = run.block.c - 1
    return registers


def rows_of(kernel: TemplateKernel, role: str, a: int, b: int) -> tuple[int, int]:
    """Rows of a feature map that rows [a, b) of the result touch."""
    state = kernel.state
    view: View = getattr(state, role)
    if role == "ofm":
        return a, b
    if (a, b) == (0, kernel.rows):
        return 0, view.h
    if state.kind is StreamOpKind.ELEMENTWISE:
        return (0, 1) if view.h == 1 and kernel.rows > 1 else (a, b)
    low, high, _, _ = ifm_rows(state, a, b)
    return low, high


def ifm_rows(state: KernelState, a: int, b: int) -> tuple[int, int, int, int]:
    """IFM rows [low, high) and padding above and below for rows [a, b) of the result."""
    window, rows = state.window, state.ifm.h
    start = a * window.stride_h - window.pad_top
    end = (b - 1) * window.stride_h + window.dilated_h - window.pad_top
    return max(0, start), min(rows, end), max(0, -start), max(0, end - rows)


def check_stripes(kernel: TemplateKernel) -> None:
    """Raise EmitError if a kernel cannot run on some of its rows."""
    state, window = kernel.state, kernel.state.window
    why = ""
    if state.upscale is not Upscale.NONE:
        why = "it upscales its input"
    elif any(view.stride_y <= 0 for view in state.views):
        why = "it walks a feature map backwards"
    elif (
        state.function is Pool.AVERAGE
        and (window.pad_top or window.pad_bottom)
        and not (window.pad_left or window.pad_right)
    ):
        why = "an average pool is padded above or below only: inner stripes would scale"
    if why:
        raise EmitError(
            f"cannot emit the plan: {state.label} cannot run in stripes",
            why,
            "plan with more SRAM, or report the model",
        )


def _check_channels(kernel: TemplateKernel, c0: int) -> None:
    state = kernel.state
    if state.kind not in (StreamOpKind.CONV, StreamOpKind.DEPTHWISE) or c0 % BRICK_CHANNELS:
        raise EmitError(
            f"cannot emit the plan: {state.label} cannot run on some of its channels",
            f"slices of weights begin at channel {c0}",
            "report the model",
        )


def _locate(
    registers: dict[int, int],
    role: str,
    use: Use | ConstantUse,
    view: View,
    placed: Placed | None,
    rows: tuple[int, int, bool],
    channel: int,
) -> None:
    """Write region, bases and heights of one feature map."""
    low, high, is_whole = rows
    assert placed is not None
    count = high - low
    offset = use.delta_bytes + channel_bytes(view, channel)
    base = _BASES[role]
    registers[_REGIONS[role]] = placed.region
    second, height0 = 0, count
    first_row = low
    if placed.rows and (placed.rows < high or not is_whole):
        if count > placed.rows:
            raise EmitError(
                "cannot emit the plan: a rolling buffer is too small",
                f"{count} rows at once through {placed.rows}",
                "this is a fault in npusched: report it with the model, target and options",
            )
        first_row = low % placed.rows
        height0 = min(placed.rows - first_row, count)
        if count > height0:
            second = placed.address + offset
    registers[base] = placed.address + offset + first_row * view.stride_y
    for tile in (1, 2, 3):
        registers[base + tile] = 0
    registers[base + 2] = second
    if not is_whole or placed.rows:
        registers[_HEIGHTS[role]] = registers[_HEIGHTS[role] + 1] = height0 - 1


def channel_bytes(view: View, channel: int) -> int:
    """Distance of a channel from channel 0."""
    size = view.dtype.itemsize
    if view.is_brick:
        whole, rest = divmod(channel, BRICK_CHANNELS)
        return whole * view.stride_c + rest * size
    return channel * size


def relevant(kernel: TemplateKernel, registers: Mapping[int, int]) -> tuple[int, ...]:
    """Those of ``registers`` that matter to a kernel, in the order in which Vela writes them."""
    state = kernel.state
    if state.kind is not StreamOpKind.ELEMENTWISE:
        weighted = state.kind in (StreamOpKind.CONV, StreamOpKind.DEPTHWISE)
        middle: tuple[int, ...] = _WEIGHTS if weighted else ()
        if state.has_global_scale or not weighted:
            middle = (*middle, Register.OFM_SCALE)
        order: tuple[int, ...] = (*_START, *_IFM, *_PADS, *_OFM, *_KERNEL, *middle, *_ACTIVATION)
    else:
        scales: tuple[int, ...] = (Register.OFM_SCALE,)
        if kernel.op.parameter in (1, 2):
            scales = (Register.OPA_SCALE, Register.OPB_SCALE, Register.OFM_SCALE)
        elif kernel.op.parameter in (7, 9):
            scales = ()
        second: tuple[int, ...] = ()
        if state.is_binary:
            second = _IFM2_SCALAR if state.scalar is not None else _IFM2
        order = (*_START, *scales, *_IFM, *_OFM, *_ACTIVATION, *second)
    shram: tuple[int, ...] = (Register.IFM_IB_END, Register.AB_START)
    if state.is_binary:
        shram = (*shram, Register.IFM2_IB_START)
    order = (*order, *_BLOCK, *shram, Register.ACC_FORMAT, Register.BLOCK_DEPENDENCY)
    return tuple(register for register in order if register in registers)


_R = Register
_START = (_R.PARALLEL_MODE,)
_IFM = (
    _R.IFM_REGION,
    *range(_R.IFM_BASE0, _R.IFM_BASE0 + 4),
    _R.IFM_HEIGHT0_M1,
    _R.IFM_HEIGHT1_M1,
    _R.IFM_WIDTH0_M1,
    _R.IFM_DEPTH_M1,
    _R.IFM_STRIDE_Y,
    _R.IFM_STRIDE_X,
    _R.IFM_STRIDE_C,
    _R.IFM_ZERO_POINT,
    _R.IFM_PRECISION,
    _R.IFM_UPSCALE,
)
_PADS = (_R.IFM_PAD_TOP, _R.IFM_PAD_LEFT, _R.IFM_PAD_BOTTOM, _R.IFM_PAD_RIGHT)
_OFM = (
    _R.OFM_REGION,
    *range(_R.OFM_BASE0, _R.OFM_BASE0 + 4),
    _R.OFM_HEIGHT_M1,
    _R.OFM_WIDTH_M1,
    _R.OFM_HEIGHT0_M1,
    _R.OFM_HEIGHT1_M1,
    _R.OFM_WIDTH0_M1,
    _R.OFM_DEPTH_M1,
    _R.OFM_STRIDE_Y,
    _R.OFM_STRIDE_X,
    _R.OFM_STRIDE_C,
    _R.OFM_ZERO_POINT,
    _R.OFM_PRECISION,
)
_KERNEL = (_R.KERNEL_HEIGHT_M1, _R.KERNEL_WIDTH_M1, _R.KERNEL_STRIDE)
_WEIGHTS = (
    _R.WEIGHT_REGION,
    _R.WEIGHT_BASE,
    _R.WEIGHT_LENGTH,
    _R.WEIGHT1_BASE,
    _R.WEIGHT1_LENGTH,
    _R.SCALE_REGION,
    _R.SCALE_BASE,
    _R.SCALE_LENGTH,
    _R.SCALE1_BASE,
    _R.SCALE1_LENGTH,
)
_ACTIVATION = (_R.ACTIVATION, _R.ACTIVATION_MIN, _R.ACTIVATION_MAX)
_IFM2 = (
    _R.IFM2_REGION,
    *range(_R.IFM2_BASE0, _R.IFM2_BASE0 + 4),
    _R.IFM2_HEIGHT0_M1,
    _R.IFM2_HEIGHT1_M1,
    _R.IFM2_WIDTH0_M1,
    _R.IFM2_STRIDE_Y,
    _R.IFM2_STRIDE_X,
    _R.IFM2_STRIDE_C,
    _R.IFM2_ZERO_POINT,
    _R.IFM2_PRECISION,
    _R.IFM2_BROADCAST,
)
_IFM2_SCALAR = (
    _R.IFM2_SCALAR,
    _R.IFM2_ZERO_POINT,
    _R.IFM2_PRECISION,
    _R.IFM2_BROADCAST,
)
_BLOCK = (_R.OFM_BLOCK_HEIGHT_M1, _R.OFM_BLOCK_WIDTH_M1, _R.OFM_BLOCK_DEPTH_M1)

_CORES = (
    (_R.WEIGHT_BASE, _R.SCALE_BASE),
    (_R.WEIGHT1_BASE, _R.SCALE1_BASE),
)


def weight_registers(
    registers: dict[int, int],
    region: int,
    address: int,
    cores: Sequence[CoreChunk],
    machine_cores: int,
) -> None:
    """Write where the weights of a chunk at an address lie; cores without any have length 0."""
    registers[_R.WEIGHT_REGION] = registers[_R.SCALE_REGION] = region
    for core, (weight, scale) in enumerate(_CORES):
        if core < len(cores):
            chunk = cores[core]
            registers[weight] = address + chunk.weights.offset_bytes
            registers[weight + 1] = chunk.weights.length_bytes
            registers[scale] = address + chunk.scales.offset_bytes
            registers[scale + 1] = chunk.scales.length_bytes
        elif core < machine_cores:
            registers[weight + 1] = registers[scale + 1] = 0
