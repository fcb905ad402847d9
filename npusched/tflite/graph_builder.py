"""The core of the model builder: tensors, constants, ops and subgraphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.ir import ActivationKind, DataType, OpKind, Options, Padding, Shape
from npusched.ir.options import CustomOptions, NoOptions
from npusched.tflite.constants import NUMPY_TYPES
from npusched.tflite.quantize import Spread, activated, quantization_of, rounded
from npusched.tflite.records import Record, Value
from npusched.tflite.rules import Operand
from npusched.tflite.schema import OPERATORS, TENSOR_TYPES, UNIONS
from npusched.tflite.shapes import infer
from npusched.tflite.write_options import write_options

Array: TypeAlias = npt.NDArray[np.generic]
TypeName: TypeAlias = DataType | str
Pair: TypeAlias = int | tuple[int, int]

_LABELS = {dtype.label: dtype for dtype in DataType}
_VERSIONS = {OpKind.CONV_2D: 3, OpKind.DEPTHWISE_CONV_2D: 3, OpKind.FULLY_CONNECTED: 4}
_PLACEHOLDER_CODE = 127


def type_of(dtype: TypeName) -> DataType:
    """Return a data type by its value or its name (``"int8"``)."""
    return dtype if isinstance(dtype, DataType) else _LABELS[dtype]


def pair(value: Pair) -> tuple[int, int]:
    """Return (h, w); one number counts for both."""
    return (value, value) if isinstance(value, int) else value


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor under construction. ``scale`` None: not quantised (or per channel)."""

    index: int
    name: str
    shape: Shape
    dtype: DataType
    scale: float | None = None
    zero_point: int = 0
    spread: Spread = field(default_factory=Spread)
    values: Array | None = field(default=None, compare=False, repr=False)


class FileState(msgspec.Struct):
    """What the subgraphs of one file share."""

    seed: int
    buffers: list[Record] = msgspec.field(default_factory=lambda: [Record("Buffer", {})])
    codes: dict[tuple[OpKind, str, int], int] = msgspec.field(default_factory=dict)
    salt: int = 0

    def buffer(self, raw: bytes) -> int:
        """Add constant bytes; return the index of their buffer."""
        self.buffers.append(Record("Buffer", {"data": raw}))
        return len(self.buffers) - 1

    def code(self, kind: OpKind, custom_code: str, version: int) -> int:
        """Return the index of an operator code."""
        return self.codes.setdefault((kind, custom_code, version), len(self.codes))

    def code_records(self) -> tuple[Record, ...]:
        """All operator codes as the file has them."""
        found = []
        for kind, custom_code, version in self.codes:
            code = OPERATORS.index(kind)
            values: dict[str, Value] = {
                "deprecated_builtin_code": min(code, _PLACEHOLDER_CODE),
                "builtin_code": code,
                "version": version,
            }
            if custom_code:
                values["custom_code"] = custom_code
            found.append(Record("OperatorCode", values))
        return tuple(found)

    def next_salt(self) -> int:
        """A fresh number for each random constant."""
        self.salt += 1
        return self.salt


class GraphBuilder:
    """Builds one subgraph, op by op."""

    def __init__(self, name: str, file: FileState, index: int = 0) -> None:
        self.name = name
        self.file = file
        self.index = index
        self.tensors: list[Record] = []
        self.ops: list[Record] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def tensor(
        self,
        name: str,
        shape: Shape,
        dtype: TypeName,
        *,
        scale: float | Sequence[float] | None = None,
        zero_point: int | Sequence[int] = 0,
        axis: int = 0,
        spread: Spread | None = None,
        data: bytes | None = None,
        values: Array | None = None,
        is_variable: bool = False,
        shape_signature: Shape | None = None,
        sparsity: Record | None = None,
    ) -> Ref:
        """Add a tensor. ``data``: the raw bytes of a constant; several scales: per ``axis``."""
        kind = type_of(dtype)
        record: dict[str, Value] = {
            "shape": tuple(shape),
            "type": TENSOR_TYPES.index(kind),
            "name": name or f"t{len(self.tensors)}",
            "is_variable": is_variable,
            "has_rank": True,
        }
        if data is not None:
            record["buffer"] = self.file.buffer(data)
        if shape_signature is not None:
            record["shape_signature"] = tuple(shape_signature)
        if sparsity is not None:
            record["sparsity"] = sparsity
        scales = _tuple(scale)
        if scales:
            zeros = (zero_point,) * len(scales) if isinstance(zero_point, int) else zero_point
            record["quantization"] = Record(
                "QuantizationParameters",
                {"scale": scales, "zero_point": tuple(zeros), "quantized_dimension": axis},
            )
        self.tensors.append(Record("Tensor", record))
        single = len(scales) == 1
        return Ref(
            index=len(self.tensors) - 1,
            name=str(record["name"]),
            shape=tuple(shape),
            dtype=kind,
            scale=float(np.float32(scales[0])) if single else None,
            zero_point=(zero_point if isinstance(zero_point, int) else zero_point[0])
            if single
            else 0,
            spread=spread or Spread(),
            values=values,
        )

    def const(
        self,
        values: npt.ArrayLike,
        dtype: TypeName = "int32",
        *,
        name: str = "",
        scale: float | Sequence[float] | None = None,
        zero_point: int | Sequence[int] = 0,
        axis: int = 0,
    ) -> Ref:
        """Add a constant of stored (already quantised) values. INT4 is packed, low nibble first."""
        kind = type_of(dtype)
        array = np.ascontiguousarray(np.asarray(values).astype(NUMPY_TYPES[kind]))
        shape = np.shape(values)
        data = pack_int4(array) if kind is DataType.INT4 else array.tobytes()
        return self.tensor(
            name or f"const{len(self.tensors)}",
            shape,
            kind,
            scale=scale,
            zero_point=zero_point,
            axis=axis,
            data=data,
            values=array.reshape(shape),
        )

    def real_const(
        self,
        values: npt.ArrayLike,
        dtype: TypeName,
        *,
        name: str = "",
        spread: Spread | None = None,
    ) -> Ref:
        """Add a constant given in real numbers, quantised per tensor for ``dtype``."""
        kind, real = type_of(dtype), np.asarray(values, np.float64)
        low, high = float(real.min(initial=0.0)), float(real.max(initial=0.0))
        known = spread or Spread(rounded(float(real.mean())), rounded(float(real.std())), low, high)
        full = Spread(0.0, max(-low, high, 1e-6), low, high)
        scale, zero_point = quantization_of(full, kind)
        stored = real if scale is None else np.rint(real / scale) + zero_point
        ref = self.const(stored, kind, name=name, scale=scale, zero_point=zero_point)
        return Ref(
            ref.index, ref.name, ref.shape, ref.dtype, ref.scale, ref.zero_point, known, ref.values
        )

    def input(
        self,
        name: str,
        shape: Shape,
        dtype: TypeName = "int8",
        *,
        scale: float | None = None,
        zero_point: int | None = None,
        spread: Spread | None = None,
        shape_signature: Shape | None = None,
    ) -> Ref:
        """Add a graph input; without ``scale`` it is quantised for values of mean 0 and std 1."""
        known = spread or Spread()
        found, zero = quantization_of(known, type_of(dtype))
        ref = self.tensor(
            name,
            shape,
            dtype,
            scale=found if scale is None else scale,
            zero_point=zero if zero_point is None else zero_point,
            spread=known,
            shape_signature=shape_signature,
        )
        self.inputs.append(ref.index)
        return ref

    def output(self, *refs: Ref) -> None:
        """Make tensors graph outputs, in order."""
        self.outputs += [ref.index for ref in refs]

    def variable(
        self,
        name: str,
        shape: Shape,
        dtype: TypeName = "int8",
        *,
        scale: float | None = None,
        zero_point: int = 0,
    ) -> Ref:
        """Add a state tensor (``is_variable``)."""
        return self.tensor(name, shape, dtype, scale=scale, zero_point=zero_point, is_variable=True)

    def op(
        self,
        kind: OpKind,
        inputs: Sequence[Ref | None],
        outputs: Sequence[Ref | None],
        options: Options | None = None,
        *,
        version: int | None = None,
        intermediates: Sequence[Ref] = (),
        table: Record | None = None,
    ) -> None:
        """Add any op as it is; None stands for an absent tensor. Nothing is inferred.

        ``table`` replaces the option table that ``options`` give (for options that ``ir`` lacks).
        """
        chosen = options if options is not None else NoOptions()
        custom = chosen if isinstance(chosen, CustomOptions) else CustomOptions(code="")
        release = version if version is not None else _VERSIONS.get(kind, 1)
        values: dict[str, Value] = {
            "opcode_index": self.file.code(kind, custom.code, release),
            "inputs": tuple(-1 if ref is None else ref.index for ref in inputs),
            "outputs": tuple(-1 if ref is None else ref.index for ref in outputs),
        }
        written = table if table is not None else write_options(kind, chosen)
        if written is not None:
            second = written.table in UNIONS["BuiltinOptions2"]
            values["builtin_options_2" if second else "builtin_options"] = written
        if custom.data:
            values["custom_options"] = custom.data
        if intermediates:
            values["intermediates"] = tuple(ref.index for ref in intermediates)
        self.ops.append(Record("Operator", values))

    def custom(
        self, code: str, inputs: Sequence[Ref | None], outputs: Sequence[Ref], data: bytes = b""
    ) -> None:
        """Add a custom op with raw option bytes."""
        self.op(OpKind.CUSTOM, inputs, outputs, CustomOptions(code=code, data=data))

    def apply(
        self,
        kind: OpKind,
        inputs: Sequence[Ref | None],
        options: Options | None = None,
        *,
        name: str = "",
        dtype: TypeName | None = None,
        like: Ref | None = None,
        spread: Spread | None = None,
        activation: ActivationKind = ActivationKind.NONE,
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """Add an op with one result, whose shape is inferred, and return the result.

        Quantisation: ``scale``/``zero_point`` if given, else that of ``like``, else what suits
        ``spread`` behind ``activation``. Raises ValueError if the shape cannot be inferred.
        """
        (found,) = self.apply_all(
            kind,
            inputs,
            options,
            name=name,
            dtype=dtype,
            like=like,
            spread=spread,
            activation=activation,
            scale=scale,
            zero_point=zero_point,
        )
        return found

    def apply_all(
        self,
        kind: OpKind,
        inputs: Sequence[Ref | None],
        options: Options | None = None,
        *,
        name: str = "",
        dtype: TypeName | None = None,
        like: Ref | None = None,
        spread: Spread | None = None,
        activation: ActivationKind = ActivationKind.NONE,
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> tuple[Ref, ...]:
        """Add an op with as many results as its shape rule says. See ``apply``."""
        operands = [None if r is None else Operand(r.shape, r.values) for r in inputs]
        shapes = infer(kind, options if options is not None else NoOptions(), operands)
        if shapes is None:
            raise ValueError(f"{kind} has no shape rule for these inputs: use op()")
        first = like if like is not None else next(r for r in inputs if r is not None)
        out = type_of(dtype) if dtype is not None else first.dtype
        known = activated(spread if spread is not None else first.spread, activation)
        if like is not None and out is like.dtype:
            found, zero = like.scale, like.zero_point
        else:
            found, zero = quantization_of(known, out)
        label = name or f"{kind.lower()}{len(self.ops)}"
        refs = tuple(
            self.tensor(
                label if len(shapes) == 1 else f"{label}:{i}",
                shape,
                out,
                scale=found if scale is None else scale,
                zero_point=zero if zero_point is None else zero_point,
                spread=known,
            )
            for i, shape in enumerate(shapes)
        )
        self.op(kind, inputs, refs, options)
        return refs

    def record(self) -> Record:
        """The subgraph as the file has it."""
        return Record(
            "SubGraph",
            {
                "tensors": tuple(self.tensors),
                "inputs": tuple(self.inputs),
                "outputs": tuple(self.outputs),
                "operators": tuple(self.ops),
                "name": self.name,
            },
        )


def pack_int4(values: Array) -> bytes:
    """Two elements per byte, low nibble first; an odd last one is padded with 0."""
    flat = values.reshape(-1).astype(np.uint8) & 0xF
    if flat.size % 2:
        flat = np.append(flat, np.uint8(0))
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8).tobytes()


def padding_of(padding: Padding | str) -> Padding:
    """Return a padding by its value or name."""
    return Padding(padding)


def _tuple(scale: float | Sequence[float] | None) -> tuple[float, ...]:
    if scale is None:
        return ()
    return (float(scale),) if isinstance(scale, float | int) else tuple(float(s) for s in scale)
