"""Builder methods of the elementwise ops, activations and conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from npusched.ir import ActivationKind, DataType, OpKind
from npusched.ir.options import (
    BinaryOptions,
    GeluOptions,
    LeakyReluOptions,
    NoOptions,
    Options,
    SoftmaxOptions,
)
from npusched.tflite.graph_builder import GraphBuilder, Ref, TypeName, type_of
from npusched.tflite.quantize import Spread, normal, quantization_of
from npusched.tflite.records import Record
from npusched.tflite.schema import TENSOR_TYPES

Operand = Ref | float | int | npt.NDArray[np.float64]

_FIXED_SCALES: Final = {
    (OpKind.LOGISTIC, DataType.INT8): (1 / 256, -128),
    (OpKind.LOGISTIC, DataType.UINT8): (1 / 256, 0),
    (OpKind.LOGISTIC, DataType.INT16): (1 / 32768, 0),
    (OpKind.SOFTMAX, DataType.INT8): (1 / 256, -128),
    (OpKind.SOFTMAX, DataType.UINT8): (1 / 256, 0),
    (OpKind.SOFTMAX, DataType.INT16): (1 / 32768, 0),
    (OpKind.TANH, DataType.INT8): (1 / 128, 0),
    (OpKind.TANH, DataType.UINT8): (1 / 128, 128),
    (OpKind.TANH, DataType.INT16): (1 / 32768, 0),
}
"""Result quantisation that the TFLite kernels ask for (TFLite quantisation specification)."""

_FUNCTIONS: Final[dict[OpKind, Callable[[float], float]]] = {
    OpKind.RELU: lambda v: max(v, 0.0),
    OpKind.RELU6: lambda v: min(max(v, 0.0), 6.0),
    OpKind.RELU_N1_TO_1: lambda v: min(max(v, -1.0), 1.0),
    OpKind.RELU_0_TO_1: lambda v: min(max(v, 0.0), 1.0),
    OpKind.LOGISTIC: lambda v: 1 / (1 + math.exp(-v)),
    OpKind.TANH: math.tanh,
    OpKind.HARD_SWISH: lambda v: v * min(max(v + 3, 0.0), 6.0) / 6,
    OpKind.GELU: lambda v: 0.5 * v * math.erfc(-v / math.sqrt(2)),
    OpKind.ELU: lambda v: v if v > 0 else math.expm1(v),
    OpKind.EXP: math.exp,
    OpKind.ABS: abs,
    OpKind.NEG: lambda v: -v,
    OpKind.SQUARE: lambda v: v * v,
    OpKind.LOG: lambda v: math.log(max(v, 0.05)),
    OpKind.SQRT: lambda v: math.sqrt(max(v, 0.0)),
    OpKind.RSQRT: lambda v: max(v, 0.05) ** -0.5,
    OpKind.SIN: math.sin,
    OpKind.COS: math.cos,
}


class PointwiseBuilder(GraphBuilder):
    """Elementwise ops, activations, quantise and dequantise, softmax."""

    def unary(
        self,
        kind: OpKind,
        x: Ref,
        options: Options | None = None,
        *,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
        function: Callable[[float], float] | None = None,
    ) -> Ref:
        """Any op of one operand; ``function`` tells its range where it is not built in."""
        value = function or _FUNCTIONS.get(kind)
        fixed_scale, fixed_zero = _FIXED_SCALES.get((kind, x.dtype), (None, None))
        return self.apply(
            kind,
            [x],
            options,
            name=name,
            spread=x.spread.through(value) if value else x.spread,
            scale=fixed_scale if scale is None else scale,
            zero_point=fixed_zero if zero_point is None else zero_point,
        )

    def relu(self, x: Ref, *, name: str = "") -> Ref:
        """RELU."""
        return self.unary(OpKind.RELU, x, name=name)

    def relu6(self, x: Ref, *, name: str = "") -> Ref:
        """RELU6."""
        return self.unary(OpKind.RELU6, x, name=name)

    def logistic(self, x: Ref, *, name: str = "") -> Ref:
        """LOGISTIC."""
        return self.unary(OpKind.LOGISTIC, x, name=name)

    def tanh(self, x: Ref, *, name: str = "") -> Ref:
        """TANH."""
        return self.unary(OpKind.TANH, x, name=name)

    def hard_swish(self, x: Ref, *, name: str = "") -> Ref:
        """HARD_SWISH."""
        return self.unary(OpKind.HARD_SWISH, x, name=name)

    def exp(self, x: Ref, *, name: str = "") -> Ref:
        """EXP."""
        return self.unary(OpKind.EXP, x, name=name)

    def abs(self, x: Ref, *, name: str = "") -> Ref:
        """ABS."""
        return self.unary(OpKind.ABS, x, name=name)

    def neg(self, x: Ref, *, name: str = "") -> Ref:
        """NEG."""
        return self.unary(OpKind.NEG, x, name=name)

    def log(self, x: Ref, *, name: str = "") -> Ref:
        """LOG."""
        return self.unary(OpKind.LOG, x, name=name)

    def rsqrt(self, x: Ref, *, name: str = "") -> Ref:
        """RSQRT."""
        return self.unary(OpKind.RSQRT, x, name=name)

    def elu(self, x: Ref, *, name: str = "") -> Ref:
        """ELU."""
        return self.unary(OpKind.ELU, x, name=name)

    def gelu(self, x: Ref, *, approximate: bool = False, name: str = "") -> Ref:
        """GELU."""
        return self.unary(OpKind.GELU, x, GeluOptions(approximate=approximate), name=name)

    def leaky_relu(self, x: Ref, alpha: float = 0.1, *, name: str = "") -> Ref:
        """LEAKY_RELU."""
        options = LeakyReluOptions(alpha=float(np.float32(alpha)))
        return self.unary(
            OpKind.LEAKY_RELU, x, options, name=name, function=lambda v: v if v > 0 else alpha * v
        )

    def prelu(self, x: Ref, alpha: npt.ArrayLike | None = None, *, name: str = "") -> Ref:
        """PRELU with constant slopes per channel (real numbers; random in 0 to 0.5 if None)."""
        shape = (1,) * (len(x.shape) - 2) + x.shape[-1:]
        if alpha is None:
            random = normal(self.file.seed, self.file.next_salt(), shape)
            slopes = np.abs(random) / 7
        else:
            slopes = np.asarray(alpha, np.float64).reshape(shape)
        label = name or f"prelu{len(self.ops)}"
        slope = float(slopes.mean())
        return self.apply(
            OpKind.PRELU,
            [x, self.real_const(slopes, x.dtype, name=f"{label}/alpha")],
            name=label,
            spread=x.spread.through(lambda v: v if v > 0 else slope * v),
        )

    def softmax(self, x: Ref, beta: float = 1.0, *, name: str = "") -> Ref:
        """SOFTMAX over the last axis."""
        ones = x.shape[-1]
        return self.unary(
            OpKind.SOFTMAX,
            x,
            SoftmaxOptions(beta=beta),
            name=name,
            function=lambda v: min(math.exp(min(v, 99.0)) / ones, 1.0),
        )

    def binary(
        self,
        kind: OpKind,
        x: Ref,
        y: Operand,
        options: Options | None = None,
        *,
        name: str = "",
        dtype: TypeName | None = None,
        like: Ref | None = None,
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """Any op of two operands; ``y`` may be real numbers (a constant)."""
        label = name or f"{kind.lower()}{len(self.ops)}"
        other = y if isinstance(y, Ref) else self.real_const(y, x.dtype, name=f"{label}/y")
        chosen = options if options is not None else NoOptions()
        activation = chosen.activation if isinstance(chosen, BinaryOptions) else ActivationKind.NONE
        return self.apply(
            kind,
            [x, other],
            chosen,
            name=label,
            dtype=dtype,
            like=like,
            spread=_combined(kind, x.spread, other.spread),
            activation=activation,
            scale=scale,
            zero_point=zero_point,
        )

    def add(
        self,
        x: Ref,
        y: Operand,
        *,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """ADD."""
        options = BinaryOptions(activation=ActivationKind(activation))
        return self.binary(OpKind.ADD, x, y, options, name=name, scale=scale, zero_point=zero_point)

    def sub(
        self,
        x: Ref,
        y: Operand,
        *,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """SUB."""
        options = BinaryOptions(activation=ActivationKind(activation))
        return self.binary(OpKind.SUB, x, y, options, name=name, scale=scale, zero_point=zero_point)

    def mul(
        self,
        x: Ref,
        y: Operand,
        *,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """MUL."""
        options = BinaryOptions(activation=ActivationKind(activation))
        return self.binary(OpKind.MUL, x, y, options, name=name, scale=scale, zero_point=zero_point)

    def div(
        self,
        x: Ref,
        y: Operand,
        *,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """DIV."""
        options = BinaryOptions(activation=ActivationKind(activation))
        return self.binary(OpKind.DIV, x, y, options, name=name, scale=scale, zero_point=zero_point)

    def minimum(self, x: Ref, y: Operand, *, name: str = "") -> Ref:
        """MINIMUM (a constant ``y`` and the result take the quantisation of ``x``)."""
        return self.binary(OpKind.MINIMUM, x, self._like(x, y, name), name=name, like=x)

    def maximum(self, x: Ref, y: Operand, *, name: str = "") -> Ref:
        """MAXIMUM (a constant ``y`` and the result take the quantisation of ``x``)."""
        return self.binary(OpKind.MAXIMUM, x, self._like(x, y, name), name=name, like=x)

    def squared_difference(self, x: Ref, y: Operand, *, name: str = "") -> Ref:
        """SQUARED_DIFFERENCE."""
        return self.binary(OpKind.SQUARED_DIFFERENCE, x, y, name=name)

    def batch_norm(
        self,
        x: Ref,
        *,
        factor: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
    ) -> Ref:
        """A batch norm that was left unfolded: MUL by and ADD of constants per channel."""
        channels, label = x.shape[-1], name or f"bn{len(self.ops)}"
        seed, shape = self.file.seed, (1,) * (len(x.shape) - 1) + (x.shape[-1],)
        if factor is None:
            factor = 1.0 + 0.1 * normal(seed, self.file.next_salt(), (channels,))
        if offset is None:
            offset = 0.1 * normal(seed, self.file.next_salt(), (channels,))
        scaled = self.mul(x, np.asarray(factor, np.float64).reshape(shape), name=f"{label}/mul")
        shift = np.asarray(offset, np.float64).reshape(shape)
        return self.add(scaled, shift, activation=activation, name=f"{label}/add")

    def quantize(
        self,
        x: Ref,
        dtype: TypeName = "int8",
        *,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """QUANTIZE a float tensor, or requantise."""
        found, zero = quantization_of(x.spread, type_of(dtype))
        return self.apply(
            OpKind.QUANTIZE,
            [x],
            name=name,
            dtype=dtype,
            scale=found if scale is None else scale,
            zero_point=zero if zero_point is None else zero_point,
        )

    def dequantize(self, x: Ref, *, name: str = "") -> Ref:
        """DEQUANTIZE to float32."""
        return self.apply(OpKind.DEQUANTIZE, [x], name=name, dtype="float32")

    def cast(self, x: Ref, dtype: TypeName, *, name: str = "") -> Ref:
        """CAST (the result is not quantised)."""
        shape, label = x.shape, name or f"cast{len(self.ops)}"
        found = self.tensor(label, shape, dtype, spread=x.spread)
        types = {
            "in_data_type": TENSOR_TYPES.index(x.dtype),
            "out_data_type": TENSOR_TYPES.index(found.dtype),
        }
        self.op(OpKind.CAST, [x], [found], table=Record("CastOptions", types))
        return found

    def _like(self, x: Ref, y: Operand, name: str) -> Ref:
        if isinstance(y, Ref):
            return y
        real = np.asarray(y, np.float64)
        stored = real if x.scale is None else np.rint(real / x.scale) + x.zero_point
        limits = {DataType.INT8: (-128, 127), DataType.UINT8: (0, 255)}
        stored = np.clip(stored, *limits.get(x.dtype, (-32768, 32767)))
        label = f"{name or 'limit'}{len(self.ops)}/y"
        return self.const(stored, x.dtype, name=label, scale=x.scale, zero_point=x.zero_point)


def _combined(kind: OpKind, a: Spread, b: Spread) -> Spread:
    """Rough spread of an elementwise result of independent operands."""
    deviation, (a_low, a_high), (b_low, b_high) = math.hypot(a.std, b.std), a.limits, b.limits
    if kind is OpKind.ADD:
        return Spread(a.mean + b.mean, deviation).within(a_low + b_low, a_high + b_high)
    if kind is OpKind.SUB:
        return Spread(a.mean - b.mean, deviation).within(a_low - b_high, a_high - b_low)
    if kind is OpKind.MUL:
        mean, corners = a.mean * b.mean, [x * y for x in a.limits for y in b.limits]
        product = Spread(mean, math.sqrt(max(a.power * b.power - mean * mean, 1e-12)))
        return product.within(min(corners), max(corners))
    if kind is OpKind.DIV:
        size = max(math.sqrt(b.power), 1e-3)
        return Spread(a.mean / size, a.std / size)
    if kind is OpKind.SQUARED_DIFFERENCE:
        return Spread(a.mean - b.mean, deviation).through(lambda v: v * v)
    return a
