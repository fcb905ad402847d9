"""From a subgraph of the model to the work graph: links by role, activations as own ops.

Sources: LOWERING.md §1; Vela 5.2.0, ``tflite/tflite_reader.cpp``, ``tflite/tflite_mapping.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from npusched.graph.shapes import pad_axes
from npusched.graph.types import Kernel, SourceRef
from npusched.graph.work import WorkGraph, WorkOp, WorkTensor
from npusched.hardware.target import Family
from npusched.ir import ActivationKind, DataType, Model, Op, OpKind, Subgraph, Tensor
from npusched.ops import DilatedConvolution, Role, unreachable_ops
from npusched.ops.roles import INPUT_ROLES

CONV_LIKE = frozenset(
    {
        OpKind.CONV_2D,
        OpKind.DEPTHWISE_CONV_2D,
        OpKind.FULLY_CONNECTED,
        OpKind.TRANSPOSE_CONV,
    }
)
"""Kinds whose weights and bias get links of their own; others keep theirs in ``params``."""

ACTIVATION_OPS: dict[ActivationKind, OpKind] = {
    ActivationKind.RELU: OpKind.RELU,
    ActivationKind.RELU6: OpKind.RELU6,
    ActivationKind.RELU_N1_TO_1: OpKind.RELU_N1_TO_1,
    ActivationKind.TANH: OpKind.TANH,
}
"""Ops that fused activations become."""

KEEPS_ACTIVATION = frozenset({OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM, OpKind.SVDF, OpKind.LSTM})
"""Ops whose activation is part of their own arithmetic."""


def fused_activation(op: Op) -> ActivationKind:
    """Return the activation that the file fused into ``op``."""
    if op.kind in KEEPS_ACTIVATION:
        return ActivationKind.NONE
    found = getattr(op.options, "activation", ActivationKind.NONE)
    return found if isinstance(found, ActivationKind) else ActivationKind.NONE


def make_work_graph(
    model: Model,
    family: Family | None,
    subgraph: int,
    *,
    on_cpu: Callable[[Op], bool],
    dilated: Collection[DilatedConvolution] = (),
) -> WorkGraph:
    """Return the work graph of one subgraph, without the ops that no output depends on.

    Ops for which ``on_cpu`` holds stay whole, with every input as a feature map; the activation
    of the others becomes an op of its own. Each of ``dilated`` becomes one convolution with its
    window set. Ops without a result end in a placeholder output, so
    that they are reached from the outputs (they run first, as in regor).
    """
    source = model.subgraphs[subgraph]
    live = {op.index for op in source.ops} - unreachable_ops(source)
    graph = WorkGraph(family=family, subgraph=subgraph)
    used = _used_tensors(source, live)
    tensors = {
        tensor.index: _work_tensor(graph, subgraph, tensor)
        for tensor in source.tensors
        if tensor.index in used
    }
    graph.inputs = [tensors[index] for index in source.inputs]
    graph.outputs = [tensors[index] for index in source.outputs]
    for tensor in graph.inputs:
        tensor.is_graph_input = True
    for tensor in graph.outputs:
        tensor.is_graph_output = True
    for op in source.ops:
        if op.index in live:
            _add_op(graph, op, tensors, cpu=on_cpu(op))
    for match in dilated:
        _fold_dilated(graph, match)
    return graph


def _fold_dilated(graph: WorkGraph, match: DilatedConvolution) -> None:
    """Replace SPACE_TO_BATCH_ND, convolution and BATCH_TO_SPACE_ND by a dilated convolution."""
    ops = {op.source_ops[0][1]: op for op in graph.ops}
    conv = ops[match.convolution]
    first, last = ops[match.space_to_batch].ifm.copy(), ops[match.batch_to_space].ofm.copy()
    for index in match.ops:
        if index != match.convolution:
            graph.remove(ops[index])
    first.shape, last.shape = pad_axes(first.shape, 4), pad_axes(last.shape, 4)
    graph.replace_ifm(conv, 0, first)
    graph.replace_ofm(conv, last)
    window = match.window
    conv.kernel = Kernel(
        h=window.h,
        w=window.w,
        stride_h=window.stride_h,
        stride_w=window.stride_w,
        dilation_h=window.dilation_h,
        dilation_w=window.dilation_w,
        pad_top=window.pad_top,
        pad_left=window.pad_left,
        pad_bottom=window.pad_bottom,
        pad_right=window.pad_right,
    )
    folded = (ops[index].source_ops[0] for index in match.ops if index != match.convolution)
    conv.source_ops = (*conv.source_ops, *folded)


def _used_tensors(source: Subgraph, live: Collection[int]) -> set[int]:
    used = {*source.inputs, *source.outputs}
    for op in source.ops:
        if op.index in live:
            used.update(op.inputs, op.outputs, op.intermediates)
    return used


def _work_tensor(graph: WorkGraph, subgraph: int, tensor: Tensor) -> WorkTensor:
    quantization = tensor.quantization
    work = WorkTensor(
        name=tensor.name,
        shape=tensor.shape if tensor.shape or tensor.data is None else (1,),
        dtype=tensor.dtype,
        scales=() if quantization is None else quantization.scales,
        zero_points=() if quantization is None else quantization.zero_points,
        quant_axis=None if quantization is None else quantization.axis,
        data=tensor.data,
        source=(subgraph, tensor.index),
        is_persistent=tensor.is_variable,
    )
    graph.tensors.append(work)
    return work


def _add_op(graph: WorkGraph, op: Op, tensors: dict[int, WorkTensor], *, cpu: bool) -> None:
    """Register ``op`` and, for NPU ops, its activation."""
    source: tuple[SourceRef, ...] = ((graph.subgraph, op.index),)
    work = WorkOp(kind=op.kind, source_ops=source, options=op.options, cpu=cpu)
    roles = () if cpu else INPUT_ROLES.get(op.kind, ())
    for position, index in enumerate(op.inputs):
        if index < 0:
            continue
        tensor = tensors[index]
        role = roles[position] if position < len(roles) else Role.IFM
        if role is Role.IFM:
            work.ifms.append(graph.link(tensor))
        elif role is Role.WEIGHTS and op.kind in CONV_LIKE:
            work.weights = graph.link(tensor)
        elif role is Role.BIAS and op.kind in CONV_LIKE:
            work.bias = graph.link(tensor)
        else:
            work.params[position] = tensor
    for position, index in enumerate(op.intermediates):
        work.params[len(op.inputs) + position] = tensors[index]
    work.ofms = [graph.link(tensors[index]) for index in op.outputs if index >= 0]
    if not work.ofms:
        placeholder = graph.new_tensor("no result", (), DataType.UNKNOWN)
        placeholder.is_graph_output = True
        graph.outputs.append(placeholder)
        work.ofms = [graph.link(placeholder)]
    work.name = work.ofm.tensor.name
    activation = ACTIVATION_OPS.get(fused_activation(op))
    if activation is None or cpu:
        graph.add(work)
        return
    graph.add(_unfused_activation(graph, work, activation))
    graph.add(work)


def _unfused_activation(graph: WorkGraph, work: WorkOp, kind: OpKind) -> WorkOp:
    """Let ``work`` write a new tensor and return the op from there to its old result."""
    result = work.ofm
    between = replace(
        result.tensor,
        name=f"{result.tensor.name}_act",
        source=None,
        is_graph_output=False,
        is_graph_input=False,
        readers=[],
        writers=[],
    )
    graph.tensors.append(between)
    activation = WorkOp(
        kind=kind,
        source_ops=work.source_ops,
        ifms=[replace(result, tensor=between)],
        ofms=[result],
        name=work.name,
    )
    work.ofms = [replace(result, tensor=between)]
    return activation
