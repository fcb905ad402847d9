"""The order in which an NPU wants its weights, padding included, as arrays.

An encoded stream holds the weights of one core, block by block, with zeros where a micro-block or
a rounded kernel reaches beyond the tensor; the zeros are what makes small layers expensive.
Sources: VELA_SPEC §5; Vela 5.2.0, ``EthosUWeightOrdering`` (U55, U65) and
``EthosU85WeightOrdering``. The U85 also reverses every other pass over the IFM and walks strided
kernels by phase, which changes the order but not the padding; those two are left out, so zero runs
may differ slightly there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from npusched.cost.arith import ceil_div, round_up
from npusched.cost.types import BlockConfig, Traversal
from npusched.graph.types import Kernel
from npusched.hardware.target import Accelerator, AcceleratorU55, AcceleratorU85

Values = npt.NDArray[np.int16]
"""Weights minus their zero point: -255 .. 255."""

_SUBKERNEL = 8
_INTERLEAVE = 4


def core_streams(
    accelerator: Accelerator, values: Values, kernel: Kernel, block: BlockConfig, ifm_bits: int
) -> list[Values]:
    """Return each core's stream of ``values`` (O, H, W, I; depthwise: I = 1)."""
    if isinstance(accelerator, AcceleratorU55):
        cores = min(accelerator.cores, values.shape[0])
        return [
            np.concatenate(
                list(_u55(accelerator, values[core::cores], kernel, block, ifm_bits, core))
            )
            for core in range(cores)
        ]
    parts = list(_u85(accelerator, values, kernel, block, ifm_bits))
    return [np.concatenate([part[core] for part in parts]) for core in range(accelerator.cores)]


def _padded(values: Values, sizes: tuple[int, int, int]) -> Values:
    """Fill an (O, taps, I) array up to ``sizes`` with zeros."""
    grow = [(0, size - have) for size, have in zip(sizes, values.shape, strict=True)]
    return np.pad(values, grow) if any(more for _, more in grow) else values


def _parts(
    values: Values, kernel: Kernel, depth: int, ifm_depth: int
) -> Iterator[tuple[Values, int]]:
    """Cut (O, H, W, I) into OFM block x IFM block x sub-kernel: (O, taps, I) and its I."""
    _, k_h, k_w, channels = values.shape
    step_h, step_w = _SUBKERNEL // kernel.dilation_h, _SUBKERNEL // kernel.dilation_w
    step_h, step_w = max(step_h, 1), max(step_w, 1)
    for o in range(0, values.shape[0], depth):
        for i in range(0, channels, ifm_depth):
            for y in range(0, k_h, step_h):
                for x in range(0, k_w, step_w):
                    part = values[o : o + depth, y : y + step_h, x : x + step_w, i : i + ifm_depth]
                    yield part.reshape(part.shape[0], -1, part.shape[3]), part.shape[3]


def _u55(
    accelerator: AcceleratorU55,
    values: Values,
    kernel: Kernel,
    block: BlockConfig,
    ifm_bits: int,
    core: int,
) -> Iterator[Values]:
    micro, inner = accelerator.ofm_ublock.c, accelerator.ifm_ublock.c
    depth = max((block.ofm_block.c + accelerator.cores - 1 - core) // accelerator.cores, 1)
    traversal = block.traversal
    ifm_depth = 16 if traversal is Traversal.PART_KERNEL or ifm_bits == 16 else 32
    rounding = {
        Traversal.DEPTHWISE: 4,
        Traversal.PART_KERNEL: 2 if ifm_bits == 16 else 4,
        Traversal.DEPTH_FIRST: 1,
    }[traversal]
    for part, real in _parts(values, kernel, depth, ifm_depth):
        rows, taps = round_up(part.shape[0], micro), round_up(part.shape[1], rounding)
        if traversal is Traversal.DEPTHWISE:
            full = _padded(part, (rows, taps, 1)).reshape(-1, micro, taps)
            yield full.transpose(0, 2, 1).ravel()
            continue
        whole = round_up(real, inner) if traversal is Traversal.PART_KERNEL else ifm_depth
        full = _padded(part, (rows, taps, whole)).reshape(-1, micro, taps, whole // inner, inner)
        if traversal is Traversal.PART_KERNEL:
            yield full.transpose(3, 0, 2, 1, 4).ravel()
        else:
            yield full.transpose(0, 2, 3, 1, 4).ravel()


def _u85(
    accelerator: AcceleratorU85, values: Values, kernel: Kernel, block: BlockConfig, ifm_bits: int
) -> Iterator[list[Values]]:
    """Streams of all cores, part by part; channels are dealt to the cores in groups of four."""
    micro, cores, traversal = block.ofm_ublock.c, accelerator.cores, block.traversal
    wide = ifm_bits == 16
    if traversal is Traversal.DEPTHWISE:
        yield from _u85_depthwise(accelerator, values, kernel, block, wide)
        return
    part_kernel = traversal is Traversal.PART_KERNEL
    rounding = (10 if wide else 5) if part_kernel else 1
    unit = 8 if part_kernel and wide else block.ifm_block.c
    for part, real in _parts(values, kernel, block.ofm_block.c, block.ifm_block.c):
        rows, taps = round_up(part.shape[0], micro), round_up(part.shape[1], rounding)
        depth = round_up(real, unit)
        full = _padded(part, (rows, taps, depth)).reshape(
            rows // micro, micro // (_INTERLEAVE * cores), cores, _INTERLEAVE,
            taps, depth // unit, ceil_div(unit, 8), min(unit, 8),
        )  # fmt: skip
        ordered = full.transpose(2, 5, 0, 4, 6, 1, 3, 7)
        yield [ordered[core].ravel() for core in range(cores)]


def _u85_depthwise(
    accelerator: AcceleratorU85, values: Values, kernel: Kernel, block: BlockConfig, wide: bool
) -> Iterator[list[Values]]:
    """Taps in groups of ten, each followed by padding on the larger configurations."""
    micro, cores, macs = block.ofm_ublock.c, accelerator.cores, accelerator.macs_per_cycle
    padding = 0 if not wide and macs <= 256 else 2 if macs <= 512 else 6
    for part, _ in _parts(values, kernel, block.ofm_block.c, 1):
        rows, taps = round_up(part.shape[0], micro), round_up(part.shape[1], 10)
        full = _padded(part, (rows, taps, 1)).reshape(
            rows // micro, micro // (_INTERLEAVE * cores), cores, _INTERLEAVE, taps // 10, 10
        )
        full = np.pad(full, [(0, 0)] * 5 + [(0, padding)]) if padding else full
        ordered = full.transpose(2, 0, 4, 5, 1, 3)
        yield [ordered[core].ravel() for core in range(cores)]
