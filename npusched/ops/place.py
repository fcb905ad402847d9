"""NPU or CPU, per source op: the limits of each op, then the rules that tie ops together.

Facts: LOWERING §2; Vela 5.2.0, tflite_graph_optimiser.cpp (SupportedOperatorChecks, LowerVariables,
RewriteSpaceToBatchConvBatchToSpace) and tflite_reader.cpp (UnFuseActivation).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from npusched.hardware.target import Family
from npusched.ir import ActivationKind, DataType, Model, Op, OpKind, Shape, Subgraph
from npusched.ir.options import ConvOptions, NoOptions
from npusched.ops.constraint import RULES_VERSION, Reason, broken, family_label
from npusched.ops.limits import limits_of
from npusched.ops.operands import Operands, inferred_shapes, operands_of
from npusched.ops.refusals import refused
from npusched.ops.roles import Role
from npusched.ops.uncompilable import bool_edge, uncompilable
from npusched.ops.window import Window, padded

_RESHAPES = frozenset({OpKind.RESHAPE, OpKind.SQUEEZE, OpKind.EXPAND_DIMS})
_CONVOLUTIONS = frozenset({OpKind.CONV_2D, OpKind.DEPTHWISE_CONV_2D})
_KEEPS_ACTIVATION = frozenset({OpKind.LSTM, OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM})
"""Kinds whose activation option is part of the op, not an op that follows."""

COMPILED_CODE = "ethos-u"
"""Custom code of an op that Vela has made of others: it runs on the NPU as it is."""


class DilatedConvolution(msgspec.Struct, frozen=True):
    """SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND that run as one dilated convolution.

    Fields are op indices; ``views`` are reshapes between them that move unit axes only.
    ``window`` is the dilated window over the first op's input.
    """

    space_to_batch: int
    convolution: int
    batch_to_space: int
    views: tuple[int, ...]
    window: Window

    @property
    def ops(self) -> tuple[int, ...]:
        """All ops that it stands for."""
        return (self.space_to_batch, *self.views, self.convolution, self.batch_to_space)


class _Graph(msgspec.Struct, frozen=True):
    """A subgraph with its readers and writers by tensor, and inferred shapes."""

    subgraph: Subgraph
    inferred: Mapping[int, Shape]
    readers: dict[int, list[Op]] = msgspec.field(default_factory=lambda: defaultdict(list))
    writers: dict[int, list[Op]] = msgspec.field(default_factory=lambda: defaultdict(list))

    def operands(self, op: Op) -> Operands:
        return operands_of(self.subgraph, op, self.inferred)


def _graph(subgraph: Subgraph) -> _Graph:
    graph = _Graph(subgraph, inferred_shapes(subgraph))
    for op in subgraph.ops:
        for index in (*op.inputs, *op.intermediates):
            graph.readers[index].append(op)
        for index in op.outputs:
            graph.writers[index].append(op)
    return graph


def unreachable_ops(subgraph: Subgraph) -> frozenset[int]:
    """Return the ops that no graph output depends on: they are dropped.

    Ops without results (assignments, calls) count as wanted.
    """
    writers: dict[int, list[Op]] = defaultdict(list)
    for op in subgraph.ops:
        for index in op.outputs:
            writers[index].append(op)
    pending = [op for index in subgraph.outputs for op in writers[index]]
    pending += [op for op in subgraph.ops if not op.outputs]
    wanted: set[int] = set()
    while pending:
        op = pending.pop()
        if op.index in wanted:
            continue
        wanted.add(op.index)
        for index in (*op.inputs, *op.intermediates):
            if index >= 0:
                pending += writers[index]
    return frozenset(op.index for op in subgraph.ops) - wanted


def placement(subgraph: Subgraph, op: Op, family: Family | None) -> tuple[Reason, ...]:
    """Return why ``op`` by itself cannot run on ``family``'s NPU; empty if it can.

    Looks at the op and its fused activation only; see ``place`` for what neighbours change.
    ``family`` None = there is no NPU.
    """
    if family is None:
        return (_no_npu(),)
    return _own_reasons(operands_of(subgraph, op), family)


def place(model: Model, family: Family | None, subgraph: int = 0) -> dict[int, tuple[Reason, ...]]:
    """Return for every op of a subgraph, by index, why it runs on the CPU; empty = on the NPU.

    An op on the NPU may still vanish: views, variables' handles, and ops that nothing depends on
    (``unreachable_ops``) have no reasons here.
    """
    source = model.subgraphs[subgraph]
    if family is None:
        return {op.index: (_no_npu(),) for op in source.ops}
    graph = _graph(source)
    dropped = unreachable_ops(source)
    reasons: dict[int, tuple[Reason, ...]] = {}
    for op in source.ops:
        operands = graph.operands(op)
        own = () if op.index in dropped else _own_reasons(operands, family)
        reasons[op.index] = (*_file_reasons(graph, operands, family), *own)
    for match in _dilated_convolutions(graph, family):
        reasons.update(dict.fromkeys(match.ops, ()))
    for op in source.ops:
        if op.kind is OpKind.VAR_HANDLE and _lowered(graph, op, reasons):
            reasons[op.index] = ()
    return reasons


def _file_reasons(graph: _Graph, operands: Operands, family: Family) -> tuple[Reason, ...]:
    """Return why the op makes Vela refuse the file, whatever its placement; usually nothing."""
    refusal = refused(operands)
    if refusal is not None:
        return (refusal,)
    if family is Family.U85:
        return ()
    edges = {*graph.subgraph.inputs, *graph.subgraph.outputs}
    bools = (o for o in operands.all if o.tensor.index in edges and o.tensor.dtype is DataType.BOOL)
    return tuple(bool_edge(operand, family) for operand in bools)[:1]


def dilated_convolutions(
    model: Model, family: Family, subgraph: int = 0
) -> tuple[DilatedConvolution, ...]:
    """Return the SPACE_TO_BATCH_ND, convolution, BATCH_TO_SPACE_ND groups that run as one op."""
    return _dilated_convolutions(_graph(model.subgraphs[subgraph]), family)


def _own_reasons(operands: Operands, family: Family) -> tuple[Reason, ...]:
    """Return the limits that the op breaks, else its activation, else why neither compiles."""
    if operands.op.custom_code == COMPILED_CODE:
        return ()
    limits = limits_of(operands.kind, family)
    if limits is None:
        return (_no_path(operands, family),)
    activation = _activation(operands)
    reasons = broken(limits, operands, family)
    if not reasons and activation is not None:
        reasons = _activation_reasons(operands, activation, family)
    if reasons:
        return reasons
    failures = (uncompilable(o, family) for o in (operands, activation) if o is not None)
    return tuple(failure for failure in failures if failure is not None)[:1]


def _activation(operands: Operands) -> Operands | None:
    """Return the fused activation as the op of its own that the NPU makes of it, or None."""
    kind = getattr(operands.op.options, "activation", ActivationKind.NONE)
    plain = kind in (ActivationKind.NONE, ActivationKind.SIGN_BIT)
    if plain or operands.kind in _KEEPS_ACTIVATION or not operands.outputs:
        return None
    result = operands.outputs[0]
    op = Op(
        index=operands.op.index,
        kind=OpKind(kind.value),
        inputs=(result.tensor.index,),
        outputs=(result.tensor.index,),
        options=NoOptions(),
    )
    return Operands(op, (replace(result, role=Role.IFM, slot=0),), (result,))


def _activation_reasons(
    operands: Operands, activation: Operands, family: Family
) -> tuple[Reason, ...]:
    """Return why the fused activation drags its op to the CPU."""
    title = f"{operands.kind} with fused"
    found = broken(limits_of(activation.kind, family) or (), activation, family)
    return tuple(
        Reason(limit=r.limit, value=r.value, text=f"{title} {r.text}", fix=r.fix) for r in found
    )


def _reason(limit: str, value: str, text: str, fix: str) -> Reason:
    return Reason(limit=limit, value=value, text=f"{text} (as Vela {RULES_VERSION})", fix=fix)


def _no_npu() -> Reason:
    return Reason(
        limit="no_npu", value="none", text="the target has no NPU", fix="choose a target with one"
    )


def _no_path(operands: Operands, family: Family) -> Reason:
    kind = operands.kind
    if kind is OpKind.CUSTOM:
        value = operands.op.custom_code or "custom"
        text = f"custom op '{value}': {family_label(family)} runs builtin ops only"
        fix = "build the function from builtin ops, or register its kernel on the CPU"
    else:
        value = kind.value
        text = f"{kind}: {family_label(family)} has no path for this op"
        fix = _REPLACEMENTS.get(kind, "build the function from ops that the NPU runs")
    return _reason("op_kind", value, text, fix)


_REPLACEMENTS: dict[OpKind, str] = {
    OpKind.DEQUANTIZE: "let the model end in int8 (inference_output_type) and convert on the host",
    OpKind.SQUARE: "multiply the tensor by itself (MUL)",
    OpKind.SQRT: "use RSQRT and a product, or move the root out of the model",
    OpKind.SPACE_TO_DEPTH: "use a strided convolution with constant weights",
    OpKind.DEPTH_TO_SPACE: "use a transpose convolution with constant weights",
    OpKind.LOG_SOFTMAX: "end with SOFTMAX and take the logarithm on the host",
    OpKind.SVDF: "use a depthwise and a pointwise convolution over time",
    OpKind.GATHER_ND: "use SLICE and CONCATENATION if the indices are constant",
    OpKind.SPACE_TO_BATCH_ND: "use a dilated convolution (dilation_rate)",
    OpKind.BATCH_TO_SPACE_ND: "use a dilated convolution (dilation_rate)",
}


def _lowered(graph: _Graph, handle: Op, reasons: Mapping[int, tuple[Reason, ...]]) -> bool:
    """Say if the variable becomes a plain tensor: every op that uses its handle is on the NPU."""
    users = [op for index in handle.outputs for op in graph.readers[index]]
    return bool(users) and all(not reasons[op.index] for op in users)


def _dilated_convolutions(graph: _Graph, family: Family) -> tuple[DilatedConvolution, ...]:
    found = (_dilated(graph, op, family) for op in graph.subgraph.ops if op.kind in _CONVOLUTIONS)
    return tuple(match for match in found if match is not None)


def _dilated(graph: _Graph, conv: Op, family: Family) -> DilatedConvolution | None:
    """Match the pattern around ``conv``; None if it is not there or too large for the NPU."""
    options = conv.options
    if not isinstance(options, ConvOptions) or options.activation is not ActivationKind.NONE:
        return None
    if not conv.inputs or not conv.outputs:
        return None
    ifm, ofm = conv.inputs[0], conv.outputs[0]
    if len(graph.readers[ifm]) != 1 or len(graph.readers[ofm]) != 1 or not graph.writers[ifm]:
        return None
    before, after = graph.writers[ifm][0], graph.readers[ofm][0]
    views: list[int] = []
    if before.kind in _RESHAPES and _unit_axes_only(graph, before):
        views.append(before.index)
        before = graph.writers[before.inputs[0]][0]
    if after.kind in _RESHAPES and _unit_axes_only(graph, after):
        views.append(after.index)
        after = graph.readers[after.outputs[0]][0]
    if before.kind is not OpKind.SPACE_TO_BATCH_ND or after.kind is not OpKind.BATCH_TO_SPACE_ND:
        return None
    block = graph.operands(before).params()
    source, result = graph.operands(before).inputs[:1], graph.operands(after).outputs[:1]
    operands = graph.operands(conv)
    if not block or not source or not result or operands.window is None:
        return None
    window = replace(
        operands.window,
        dilation_h=block[0],
        dilation_w=block[1] if len(block) > 1 else block[0],
    )
    shapes = [(1,) * (4 - len(o.shape)) + o.shape for o in (source[0], result[0])]
    window = padded(window, *shapes)
    fused = operands.with_ends(
        replace(source[0], shape=shapes[0]), replace(result[0], shape=shapes[1]), window
    )
    limits = limits_of(conv.kind, family)
    if limits is None or broken(limits, fused, family):
        return None
    return DilatedConvolution(before.index, conv.index, after.index, tuple(views), window)


def _unit_axes_only(graph: _Graph, view: Op) -> bool:
    """Say if the reshape moves axes of size 1 only, and its tensors have one reader and writer."""
    if not view.inputs or not view.outputs:
        return False
    operands = graph.operands(view)
    ends = (view.inputs[0], view.outputs[0])
    single = all(len(graph.readers[t]) == 1 and len(graph.writers[t]) == 1 for t in ends)
    squeezed = [
        tuple(s for s in shape if s != 1) for shape in (operands.ifm_shape(), operands.ofm_shape)
    ]
    return single and squeezed[0] == squeezed[1]
