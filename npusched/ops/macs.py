"""Multiply-accumulates and host work of a source op, from the file alone.

MACs are counted as the model's author would: kernel elements times input channels times results,
with padding counted as data. Only convolutions, fully connected, matrix products, LSTM and SVDF
have any (DESIGN, public contract); everything else costs per element.
"""

from __future__ import annotations

from math import prod

import msgspec

from npusched.ir import Op, OpKind, Subgraph
from npusched.ir.options import BatchMatMulOptions
from npusched.ops.catalogue import CostClass, spec
from npusched.ops.operands import Operands, operands_of
from npusched.ops.roles import Role
from npusched.ops.window import axis


class HostWork(msgspec.Struct, frozen=True, kw_only=True):
    """What one op costs on a host CPU: MACs, or elements where there are none, of a cost class."""

    cost_class: CostClass
    macs: int
    elements: int


def source_macs(subgraph: Subgraph, op: Op) -> int:
    """Return the MACs of ``op``, 0 for kinds that have none or lack the tensors to tell."""
    return _macs(operands_of(subgraph, op))


def host_work(subgraph: Subgraph, op: Op) -> HostWork:
    """Return the cost class and the amount of work of ``op`` on a host CPU.

    ``elements``: results, times the window for pools; inputs for reductions and sorting.
    """
    operands = operands_of(subgraph, op)
    macs = _macs(operands)
    entry = spec(op.kind)
    elements = sum(o.tensor.elements for o in operands.outputs)
    if entry.counts_inputs:
        elements = sum(o.tensor.elements for o in operands.inputs if o.role is Role.IFM)
    if operands.window is not None and macs == 0:
        elements *= operands.window.h * operands.window.w
    cost_class = entry.cost_class
    if cost_class is CostClass.CONV and _is_pointwise(operands):
        cost_class = CostClass.POINTWISE_CONV
    return HostWork(cost_class=cost_class, macs=macs, elements=elements)


def _is_pointwise(operands: Operands) -> bool:
    window = operands.window
    return operands.kind is OpKind.CONV_2D and window is not None and (window.h, window.w) == (1, 1)


def _macs(operands: Operands) -> int:
    match operands.kind:
        case OpKind.CONV_2D | OpKind.CONV_3D:
            return _convolution(operands)
        case OpKind.DEPTHWISE_CONV_2D:
            return _depthwise(operands)
        case OpKind.TRANSPOSE_CONV | OpKind.CONV_3D_TRANSPOSE:
            return _transpose_convolution(operands)
        case OpKind.FULLY_CONNECTED:
            return _fully_connected(operands)
        case OpKind.BATCH_MATMUL:
            return _matrix_product(operands)
        case OpKind.LSTM | OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM | OpKind.BIDIRECTIONAL_SEQUENCE_LSTM:
            return _lstm(operands)
        case OpKind.SVDF:
            return _svdf(operands)
        case _:
            return 0


def _results(operands: Operands) -> int:
    return operands.outputs[0].tensor.elements if operands.outputs else 0


def _weight_shape(operands: Operands) -> tuple[int, ...]:
    return operands.weights.shape if operands.weights is not None else ()


def _convolution(operands: Operands) -> int:
    """Results x window x input channels per group (weights are OHWI, or DHWIO for 3-D)."""
    shape = _weight_shape(operands)
    if not shape:
        return 0
    per_result = shape[:-1] if operands.kind is OpKind.CONV_3D else shape[1:]
    return _results(operands) * prod(per_result)


def _depthwise(operands: Operands) -> int:
    """Results x window."""
    shape = _weight_shape(operands)
    return _results(operands) * axis(shape, 2) * axis(shape, 1) if shape else 0


def _transpose_convolution(operands: Operands) -> int:
    """Inputs x window x output channels: each input pixel is spread over one window."""
    shape = _weight_shape(operands)
    ifm = operands.get(Role.IFM)
    if not shape or ifm is None:
        return 0
    channels = max(axis(ifm.shape, 0), 1)
    return ifm.tensor.elements // channels * prod(shape)


def _fully_connected(operands: Operands) -> int:
    """Results x inputs per result."""
    shape = _weight_shape(operands)
    return _results(operands) * shape[-1] if shape else 0


def _matrix_product(operands: Operands) -> int:
    """Results x reduced axis."""
    options = operands.op.options
    swapped = isinstance(options, BatchMatMulOptions) and options.adj_x
    return _results(operands) * axis(operands.ifm_shape(), 1 if swapped else 0)


def _lstm(operands: Operands) -> int:
    """Time steps x batch x elements of every matrix (gates, recurrent gates, projection).

    Peephole weights are vectors and count one MAC per element too.
    """
    ifm = operands.get(Role.IFM)
    if ifm is None:
        return 0
    steps = prod(ifm.shape[:-1])
    if operands.kind is OpKind.BIDIRECTIONAL_SEQUENCE_LSTM:
        matrices = [o for o in operands.inputs[1:] if len(o.shape) == 2 and o.tensor.is_constant]
    else:
        matrices = [o for o in operands.inputs if o.role is Role.WEIGHTS]
    return steps * sum(o.tensor.elements for o in matrices)


def _svdf(operands: Operands) -> int:
    """Batch x (feature weights + time weights): one step of both filters."""
    features, time = operands.get(Role.WEIGHTS), operands.get(Role.WEIGHTS, 1)
    if features is None or time is None:
        return 0
    batch = prod(operands.ifm_shape()[:-1])
    return batch * (features.tensor.elements + time.tensor.elements)
