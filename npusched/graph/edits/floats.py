"""Floating point in a model: what it would be in int8.

``float_parts`` finds the connected float parts; ``quantised`` gives their tensors int8 types with
stand-in ranges, and takes away the conversions at their borders. The ranges have to be calibrated
(and the weights perhaps trained) before such a model is right: the file is there to be planned.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.graph.edits.uses import Uses
from npusched.ir import DataType, Model, Op, OpKind, Subgraph
from npusched.tflite.editor import Editor
from npusched.tflite.quantize import quantize_weights

_LINEAR = {
    OpKind.CONV_2D: (1, 2),
    OpKind.DEPTHWISE_CONV_2D: (1, 2),
    OpKind.FULLY_CONNECTED: (1, 2),
    OpKind.TRANSPOSE_CONV: (1, 3),
}
"""Kinds with weights -> slots of weights and bias."""

_FIXED = {
    OpKind.SOFTMAX: (1 / 256, -128),
    OpKind.LOGISTIC: (1 / 256, -128),
    OpKind.TANH: (1 / 128, 0),
}
"""(scale, zero point) that the int8 kernels ask for."""

_SCALE = 1 / 16
_UNPACKING = frozenset({OpKind.DEQUANTIZE, OpKind.DENSIFY})
_NOT_TRANSLATED = frozenset(
    {
        OpKind.LSTM,
        OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM,
        OpKind.SVDF,
        OpKind.CUSTOM,
        OpKind.WHILE,
        OpKind.IF,
        OpKind.CALL,
        OpKind.STABLEHLO_COMPOSITE,
    }
)
"""Kinds whose int8 form has other tensors than the float one, or is not known."""


class PartKind(StrEnum):
    """MODEL: all that is computed is float. INPUT, OUTPUT: a conversion at an edge. ISLAND."""

    MODEL = "model"
    ISLAND = "island"
    INPUT = "input"
    OUTPUT = "output"


class FloatPart(msgspec.Struct, frozen=True, kw_only=True):
    """Connected float tensors, and the ops that compute in float (conversions left out)."""

    kind: PartKind
    tensors: tuple[int, ...]
    ops: tuple[int, ...]


def float_parts(graph: Subgraph) -> list[FloatPart]:
    """Every connected part of float tensors that are computed or handed in."""
    uses = Uses(graph)
    constant = _constants(graph)
    floats = {
        t
        for t in {*graph.inputs, *(t for op in graph.ops for t in op.outputs if t >= 0)}
        if graph.tensors[t].dtype.is_float and t not in constant
    }
    parts, left = [], set(floats)
    computing = sum(1 for op in graph.ops if op.kind not in _UNPACKING | {OpKind.QUANTIZE})
    while left:
        tensors, pending = set[int](), [min(left)]
        ops = set[int]()
        while pending:
            t = pending.pop()
            if t in tensors:
                continue
            tensors.add(t)
            around = list(uses.readers.get(t, ()))
            if t in uses.writer:
                around.append(uses.writer[t])
            for op in around:
                members = [x for x in (*op.inputs, *op.outputs) if x in floats]
                if op.kind not in (OpKind.QUANTIZE, OpKind.DEQUANTIZE):
                    ops.add(op.index)
                pending += members
        left -= tensors
        parts.append(
            FloatPart(
                kind=_kind(graph, tensors, ops, computing),
                tensors=tuple(sorted(tensors)),
                ops=tuple(sorted(ops)),
            )
        )
    return parts


def _kind(graph: Subgraph, tensors: set[int], ops: set[int], computing: int) -> PartKind:
    if ops:
        return PartKind.MODEL if len(ops) >= computing else PartKind.ISLAND
    return PartKind.INPUT if tensors & set(graph.inputs) else PartKind.OUTPUT


def _constants(graph: Subgraph) -> dict[int, npt.NDArray[np.float64]]:
    """Real values of constants, and of those that an op of the file only unpacks."""
    found: dict[int, npt.NDArray[np.float64]] = {}
    for tensor in graph.tensors:
        if tensor.data is not None and tensor.data.dtype.kind in "iuf":
            values = tensor.data.astype(np.float64)
            known = tensor.quantization
            if known is not None and tensor.dtype.is_integer and known.scales:
                shape = [1] * values.ndim
                if len(known.scales) > 1 and known.axis is not None:
                    shape[known.axis] = -1
                values = values - np.reshape(known.zero_points, shape)
                values = values * np.reshape(known.scales, shape)
            found[tensor.index] = values
    for op in graph.ops:
        if op.kind in _UNPACKING and op.inputs[0] in found:
            found[op.outputs[0]] = found[op.inputs[0]]
    return found


def quantised(model: Model, subgraph: int, part: FloatPart) -> bytes | None:
    """Return the file with a part in int8; None if an op of it is not translated."""
    graph = model.subgraphs[subgraph]
    if any(graph.ops[op].kind in _NOT_TRANSLATED for op in part.ops):
        return None
    if any(
        graph.tensors[t].dtype not in (DataType.FLOAT32, DataType.FLOAT16) for t in part.tensors
    ):
        return None
    return _Quantiser(model, subgraph, set(part.tensors), part.ops).content()


class _Quantiser:
    def __init__(
        self, model: Model, subgraph: int, tensors: set[int], ops: Collection[int]
    ) -> None:
        self.graph = model.subgraphs[subgraph]
        self.uses = Uses(self.graph)
        self.editor = Editor(model, subgraph)
        self.tensors = tensors
        self.ops = [self.graph.ops[op] for op in ops]
        self.values = _constants(self.graph)
        self.scales: dict[int, float] = {}

    def content(self) -> bytes:
        for t in sorted(self.tensors):
            writer = self.uses.writer.get(t)
            fixed = (_SCALE, 0) if writer is None else _FIXED.get(writer.kind, (_SCALE, 0))
            self._give(t, DataType.INT8, *fixed)
        self._borders()
        for op in self.ops:
            if op.kind in _LINEAR:
                self._linear(op)
            else:
                self._operands(op)
        return self.editor.content()

    def _give(self, t: int, dtype: DataType, scale: float, zero_point: int) -> None:
        self.scales[t] = scale
        self.editor.set_type(t, dtype, (scale,), (zero_point,))

    def _borders(self) -> None:
        """Conversions from and to the part go away: their other side's quantisation holds."""
        for op in self.graph.ops:
            data, result = (*op.inputs, -1)[0], (*op.outputs, -1)[0]
            if op.kind is OpKind.QUANTIZE and data in self.tensors:
                self._taken(op, keep=result, gone=data)
            elif op.kind is OpKind.DEQUANTIZE and result in self.tensors:
                self._taken(op, keep=data, gone=result)

    def _taken(self, op: Op, *, keep: int, gone: int) -> None:
        known = self.graph.tensors[keep].quantization
        if known is None or len(known.scales) != 1:
            return
        only = op.kind is OpKind.DEQUANTIZE or len(self.uses.readers[gone]) == 1
        if not only or (op.kind is OpKind.DEQUANTIZE and keep in self.graph.inputs):
            return  # it becomes a QUANTIZE from int8 to int8
        if op.kind is OpKind.DEQUANTIZE:
            self.editor.rewire(gone, keep)
            self.scales[gone] = known.scales[0]
        elif keep in self.graph.outputs:
            return
        else:
            dtype = self.graph.tensors[keep].dtype
            self._give(gone, dtype, known.scales[0], known.zero_points[0])
            self.editor.rewire(keep, gone)
        self.editor.remove(op.index)

    def _linear(self, op: Op) -> None:
        weights_slot, bias_slot = _LINEAR[op.kind]
        data = op.inputs[2 if op.kind is OpKind.TRANSPOSE_CONV else 0]
        inputs, weights = list(op.inputs), op.inputs[weights_slot]
        if weights not in self.values:
            return
        axis = 3 if op.kind is OpKind.DEPTHWISE_CONV_2D else 0
        per_channel = None if op.kind is OpKind.FULLY_CONNECTED else axis
        stored, scales, zeros = quantize_weights(self.values[weights], DataType.INT8, per_channel)
        with self.editor.before(op.index):
            inputs[weights_slot] = self.editor.const(
                stored,
                "int8",
                name=f"weights_{op.index}",
                scale=scales,
                zero_point=zeros,
                axis=per_channel or 0,
            ).index
            if bias_slot < len(inputs) and inputs[bias_slot] in self.values:
                bias_scales = np.asarray(scales) * self.scales.get(data, _SCALE)
                real = self.values[inputs[bias_slot]].reshape(-1)
                inputs[bias_slot] = self.editor.const(
                    np.clip(np.rint(real / bias_scales), -(2**30), 2**30),
                    "int32",
                    name=f"bias_{op.index}",
                    scale=tuple(float(s) for s in bias_scales),
                ).index
        self.editor.set_inputs(op.index, self._renamed(op, inputs))

    def _operands(self, op: Op) -> None:
        """Constant operands in float become int8 over their own range."""
        inputs = list(op.inputs)
        for slot, t in enumerate(op.inputs):
            if t in self.values and self.graph.tensors[t].dtype.is_float:
                with self.editor.before(op.index):
                    inputs[slot] = self.editor.real_const(
                        self.values[t], "int8", name=f"operand_{op.index}_{slot}"
                    ).index
        self.editor.set_inputs(op.index, self._renamed(op, inputs))

    def _renamed(self, op: Op, inputs: list[int]) -> list[int]:
        """``inputs`` where they were changed, else what the op reads by now."""
        now = self.editor.ops[op.index].ints("inputs")
        return [
            current if new == old else new
            for new, old, current in zip(inputs, op.inputs, now, strict=True)
        ]
