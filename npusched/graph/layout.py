"""Which feature maps are stored in bricks (NHCWB16), which row by row (NHWC).

Sources: LOWERING.md §7; Vela 5.2.0, ``compiler/scheduler.cpp`` (UpdateSchedulerTensor,
CheckLinearFormatForConcatSplit).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from npusched.graph.shapes import ceil_div, pad_axes
from npusched.graph.types import BRICK_CHANNELS, KernelKind, Layout, Reverse
from npusched.graph.work import Link, WorkOp, WorkTensor
from npusched.hardware.target import Family
from npusched.ir import DataType

_MAX_ELEMENTS = (1 << 31) - 1
_LINEAR_KINDS = frozenset({KernelKind.GATHER, KernelKind.SCATTER})


def choose_layout(tensor: WorkTensor, family: Family | None) -> Layout:
    """Return the layout of ``tensor`` from all its final readers and writers."""
    linear = (
        tensor.is_constant
        or tensor.is_persistent
        or tensor.is_graph_input
        or tensor.is_graph_output
        or family is None
        or _overflows(tensor)
        or any(op.cpu or op.kind in _LINEAR_KINDS for op in (*tensor.readers, *tensor.writers))
        or any(_forces_linear(op, tensor, family) for op in (*tensor.readers, *tensor.writers))
        or _links_disagree(tensor)
    )
    return Layout.NHWC if linear else Layout.NHCWB16


def _overflows(tensor: WorkTensor) -> bool:
    shape = pad_axes(tensor.shape, 1)
    depth = ceil_div(shape[-1], BRICK_CHANNELS) * BRICK_CHANNELS
    return prod(shape[:-1]) * depth > _MAX_ELEMENTS


def links_to(op: WorkOp, tensor: WorkTensor) -> Iterator[Link]:
    """Yield every link of ``op`` to ``tensor``."""
    for link in (*op.ifms, *op.ofms):
        if link.tensor is tensor:
            yield link


def _forces_linear(op: WorkOp, tensor: WorkTensor, family: Family) -> bool:
    """Return True if the way ``op`` uses ``tensor`` rules out bricks."""
    for link in links_to(op, tensor):
        if link.slice_offset is not None and link.slice_offset[-1] % BRICK_CHANNELS:
            return True
        if link.step_w != 1:
            return True
    if any(link.tensor is tensor for link in op.ofms) and (
        op.reverse is Reverse.C or (op.reverse is not Reverse.NONE and family is not Family.U85)
    ):
        return True
    if family is Family.U85:
        return False
    return op.kind in (KernelKind.TRANSPOSE, KernelKind.MATMUL) or (
        op.kind is KernelKind.MEMORY_COPY and op.ofm.element_type.bits > 16
    )


def _plane(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return (w, c)."""
    padded = pad_axes(shape, 2)
    return padded[-2], padded[-1]


def _links_disagree(tensor: WorkTensor) -> bool:
    """Return True if readers and writers do not all see the same (w, c).

    Readers count with what they read and with their whole view, writers with their whole view;
    without readers nothing can disagree. An int32 tensor read by a ReduceSum is linear, too.
    """
    read = {
        _plane(link.region) for op in tensor.readers for link in op.ifms if link.tensor is tensor
    }
    views = [link for op in (*tensor.writers, *tensor.readers) for link in links_to(op, tensor)]
    if read and (len(read) > 1 or any(_plane(link.shape) not in read for link in views)):
        return True
    summed = any(op.kind is KernelKind.REDUCE_SUM for op in tensor.readers)
    return summed and any(link.element_type is DataType.INT32 for link in views)
