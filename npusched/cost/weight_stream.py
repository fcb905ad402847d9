"""The order in which an NPU wants its weights, padding included, as arrays.

An encoded stream holds the weights of one core, block by block, with zeros where a micro-block or
a rounded kernel reaches beyond the tensor; the zeros are what makes small layers expensive.
The U85 walks the IFM forth and back, and a kernel by its stride's phases and in serpentines.
Sources: VELA_SPEC §5; Vela 5.2.0, ``EthosUWeightOrdering`` (U55, U65), ``EthosU85WeightOrdering``.
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
    accelerator: Accelerator,
    values: Values,
    kernel: Kernel,
    block: BlockConfig,
    ifm_bits: int,
    *,
    sparse: bool = False,
) -> list[Values]:
    """Return each core's stream of ``values`` (O, H, W, I; depthwise: I = 1).

    ``sparse``: in the order of 2:4 sparse weights (U85).
    """
    if isinstance(accelerator, AcceleratorU55):
        cores = min(accelerator.cores, values.shape[0])
        return [
            np.concatenate(
                list(_u55(accelerator, values[core::cores], kernel, block, ifm_bits, core))
            )
            for core in range(cores)
        ]
    parts = list(_u85(accelerator, values, kernel, block, ifm_bits, sparse))
    return [np.concatenate([part[core] for part in parts]) for core in range(accelerator.cores)]


def _padded(values: Values, sizes: tuple[int, int, int]) -> Values:
    """Fill an (O, taps, I) array up to ``sizes`` with zeros."""
    grow = [(0, size - have) for size, have in zip(sizes, values.shape, strict=True)]
    return np.pad(values, grow) if any(more for _, more in grow) else values


def _cuts(size: int, dilation: int) -> range:
    """First row (or column) of each sub-kernel."""
    return range(0, size, max(_SUBKERNEL // dilation, 1))


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
    for part in _parts_u55(values, kernel, depth, ifm_depth):
        rows, taps = round_up(part.shape[0], micro), round_up(part.shape[1], rounding)
        if traversal is Traversal.DEPTHWISE:
            full = _padded(part, (rows, taps, 1)).reshape(-1, micro, taps)
            yield full.transpose(0, 2, 1).ravel()
            continue
        whole = round_up(part.shape[2], inner) if traversal is Traversal.PART_KERNEL else ifm_depth
        full = _padded(part, (rows, taps, whole)).reshape(-1, micro, taps, whole // inner, inner)
        if traversal is Traversal.PART_KERNEL:
            yield full.transpose(3, 0, 2, 1, 4).ravel()
        else:
            yield full.transpose(0, 2, 3, 1, 4).ravel()


def _parts_u55(values: Values, kernel: Kernel, depth: int, ifm_depth: int) -> Iterator[Values]:
    """Cut (O, H, W, I) into OFM block x IFM block x sub-kernel: (O, taps, I)."""
    count, k_h, k_w, channels = values.shape
    rows, columns = _cuts(k_h, kernel.dilation_h), _cuts(k_w, kernel.dilation_w)
    for o in range(0, count, depth):
        for i in range(0, channels, ifm_depth):
            for y in rows:
                for x in columns:
                    taps = values[
                        o : o + depth, y : y + rows.step, x : x + columns.step, i : i + ifm_depth
                    ]
                    yield taps.reshape(taps.shape[0], -1, taps.shape[3])


def _parts_u85(
    values: Values, kernel: Kernel, depth: int, ifm_depth: int, *, phases: tuple[int, int]
) -> Iterator[Values]:
    """Like ``_parts_u55``, in the U85's order: IFM blocks forth and back, columns first."""
    count, k_h, k_w, channels = values.shape
    rows, columns = _cuts(k_h, kernel.dilation_h), _cuts(k_w, kernel.dilation_w)
    ifm_blocks = list(range(0, channels, ifm_depth))
    for o in range(0, count, depth):
        for i in ifm_blocks:
            for x in columns:
                for y in rows:
                    taps = values[
                        o : o + depth, y : y + rows.step, x : x + columns.step, i : i + ifm_depth
                    ]
                    order = _tap_order(taps.shape[1], taps.shape[2], phases)
                    yield taps.reshape(taps.shape[0], -1, taps.shape[3])[:, order]
        ifm_blocks.reverse()


def _tap_order(k_h: int, k_w: int, phases: tuple[int, int]) -> list[int]:
    """Taps (row by row numbers) by the phase of the stride, each phase in serpentines."""
    order = []
    for phase_y in range(phases[0]):
        for phase_x in range(phases[1]):
            columns = range(phase_x, k_w, phases[1])
            for turn, y in enumerate(range(phase_y, k_h, phases[0])):
                order += [y * k_w + x for x in (columns if turn % 2 == 0 else columns[::-1])]
    return order


def _u85(
    accelerator: AcceleratorU85,
    values: Values,
    kernel: Kernel,
    block: BlockConfig,
    ifm_bits: int,
    sparse: bool,
) -> Iterator[list[Values]]:
    """Streams of all cores, part by part; channels are dealt to the cores in groups of four."""
    micro, cores, traversal = block.ofm_ublock.c, accelerator.cores, block.traversal
    wide = ifm_bits == 16
    if traversal is Traversal.DEPTHWISE:
        yield from _u85_depthwise(accelerator, values, kernel, block, wide)
        return
    part_kernel = traversal is Traversal.PART_KERNEL
    rounding = (10 if wide or sparse else 5) if part_kernel else 1
    unit = 8 if part_kernel and wide and not sparse else block.ifm_block.c
    inner = min(unit, 16 if sparse else 8)
    phases = (kernel.stride_h, kernel.stride_w) if part_kernel else (1, 1)
    ofm_depth, ifm_depth = block.ofm_block.c, block.ifm_block.c
    for part in _parts_u85(values, kernel, ofm_depth, ifm_depth, phases=phases):
        rows, taps = round_up(part.shape[0], micro), round_up(part.shape[1], rounding)
        depth = round_up(part.shape[2], unit)
        full = _padded(part, (rows, taps, depth)).reshape(
            rows // micro, micro // (_INTERLEAVE * cores), cores, _INTERLEAVE,
            taps, depth // unit, ceil_div(unit, inner), inner,
        )  # fmt: skip
        ordered = full.transpose(2, 5, 0, 4, 6, 1, 3, 7)
        yield [ordered[core].ravel() for core in range(cores)]


def _u85_depthwise(
    accelerator: AcceleratorU85, values: Values, kernel: Kernel, block: BlockConfig, wide: bool
) -> Iterator[list[Values]]:
    """Taps in groups of ten, each followed by padding on the larger configurations."""
    micro, cores, macs = block.ofm_ublock.c, accelerator.cores, accelerator.macs_per_cycle
    padding = 0 if not wide and macs <= 256 else 2 if macs <= 512 else 6
    phases = (kernel.stride_h, kernel.stride_w)
    for part in _parts_u85(values, kernel, block.ofm_block.c, 1, phases=phases):
        rows, taps = round_up(part.shape[0], micro), round_up(part.shape[1], 10)
        full = _padded(part, (rows, taps, 1)).reshape(
            rows // micro, micro // (_INTERLEAVE * cores), cores, _INTERLEAVE, taps // 10, 10
        )
        full = np.pad(full, [(0, 0)] * 5 + [(0, padding)]) if padding else full
        ordered = full.transpose(2, 0, 4, 5, 1, 3)
        yield [ordered[core].ravel() for core in range(cores)]
