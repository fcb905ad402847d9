"""GATHER, SCATTER_ND and variables (U85).

Source: LOWERING.md §5; Vela 5.2.0, ``compiler/tflite_graph_optimiser.cpp`` (ConvertGather,
ConvertScatter, LowerVariables), ``compiler/graphir_optimiser.cpp`` (LowerVariables).
"""

from __future__ import annotations

from math import prod

import numpy as np

from npusched.graph.lower.cast import copy_to_int32
from npusched.graph.lower.common import NO_SCALE, add_kernel, constant, copy, quant, use
from npusched.graph.lower.scaling import UNIT
from npusched.graph.lower.tile import constant_values
from npusched.graph.types import KernelKind, Rounding
from npusched.graph.work import WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType, Shape
from npusched.ir.options import AxisOptions, VarHandleOptions


def lower_gather(graph: WorkGraph, op: WorkOp) -> None:
    """GATHER: values (1, n, k, c) at indices (1, 1, n, w) give (1, n, w, c), by DMA, as stored."""
    options = op.options
    values, indices = op.ifms
    axis = options.axis % len(values.shape) if isinstance(options, AxisOptions) else 0
    batch = options.batch_dims if isinstance(options, AxisOptions) else 0
    n = prod(values.shape[:batch])
    w = prod(indices.shape[batch:])
    k, c = values.shape[axis], prod(values.shape[axis + 1 :])
    index_tensor = indices.tensor
    if index_tensor.dtype is DataType.INT16:
        index_tensor = copy_to_int32(graph, op, indices, 0)
    add_kernel(
        graph,
        op,
        KernelKind.GATHER,
        [
            use(values.tensor, NO_SCALE, (1, n, k, c)),
            use(index_tensor, NO_SCALE, (1, 1, n, w)),
        ],
        use(op.ofm.tensor, NO_SCALE, (1, n, w, c)),
        ofm_scale=UNIT,
    )
    graph.remove(op)


def lower_scatter(graph: WorkGraph, op: WorkOp) -> None:
    """SCATTER_ND with one index axis: rows of zeros, some overwritten, by DMA, as stored."""
    indices, updates = op.ifms
    shape = constant_values(op.params[2])
    k, c = shape[0], prod(shape[1:])
    w = prod(indices.shape[:-1])
    dtype = op.ofm.tensor.dtype
    zeros = constant(graph, f"{op.name}/zeros", np.zeros((1, 1, k, c)), dtype)
    add_kernel(
        graph,
        op,
        KernelKind.SCATTER,
        [
            use(zeros),
            use(indices.tensor, NO_SCALE, (1, 1, 1, w)),
            use(updates.tensor, NO_SCALE, (1, 1, w, c)),
        ],
        use(op.ofm.tensor, NO_SCALE, (1, 1, k, c)),
        rounding=Rounding.NATURAL,
        ofm_scale=UNIT,
    )
    graph.remove(op)


# --- variables -----------------------------------------------------------------------------


def lower_read_variable(graph: WorkGraph, op: WorkOp) -> None:
    """READ_VARIABLE: a copy from the persistent tensor of the variable.

    Each use gets a tensor of its own with the variable's name; they share one address.
    """
    ofm = op.ofm
    variable = _variable(graph, op, ofm.shape, ofm.tensor.dtype)
    variable.scales, variable.zero_points = ofm.tensor.scales, ofm.tensor.zero_points
    copy(graph, op, use(variable, quant(ofm)), ofm, Rounding.DOUBLE)
    graph.remove(op)


def lower_assign_variable(graph: WorkGraph, op: WorkOp) -> None:
    """ASSIGN_VARIABLE: a copy to the persistent tensor, which becomes an output of the graph."""
    ifm = op.ifm
    variable = _variable(graph, op, ifm.shape, ifm.tensor.dtype)
    variable.scales, variable.zero_points = ifm.tensor.scales, ifm.tensor.zero_points
    copy(graph, op, ifm, use(variable, quant(ifm)), Rounding.DOUBLE)
    placeholder = op.ofms[0].tensor if op.ofms else None
    graph.remove(op)
    graph.outputs = [tensor for tensor in graph.outputs if tensor is not placeholder]
    variable.is_graph_output = True
    graph.outputs.append(variable)


def _variable(graph: WorkGraph, op: WorkOp, shape: Shape, dtype: DataType) -> WorkTensor:
    """Add a persistent tensor that stands for the variable behind handle 0 of ``op``."""
    tensor = graph.new_tensor(variable_identity(op.params[0]), shape, dtype)
    tensor.is_persistent = True
    return tensor


def variable_identity(handle: WorkTensor) -> str:
    """Return what uses of one variable have in common: its container and shared name."""
    for writer in handle.writers:
        if isinstance(writer.options, VarHandleOptions):
            container = writer.options.container
            return f"{len(container)}:{container}{writer.options.shared_name}"
    return handle.name


def lower_var_handle(graph: WorkGraph, op: WorkOp) -> None:
    """VAR_HANDLE: nothing; its readers name the variable themselves."""
    graph.remove(op)
