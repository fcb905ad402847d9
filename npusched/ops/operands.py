"""An op together with its tensors by role: what every limit and every count is written against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from npusched.ir import Op, OpKind, Shape, Subgraph, Tensor
from npusched.ir.options import ConvOptions, PoolOptions
from npusched.ops.roles import Role, input_role
from npusched.ops.window import Window, conv_window, pool_window

_SHAPE_FROM_INPUTS = frozenset(
    {
        OpKind.ABS,
        OpKind.GELU,
        OpKind.ELU,
        OpKind.LEAKY_RELU,
        OpKind.LOGICAL_NOT,
        OpKind.NEG,
        OpKind.QUANTIZE,
        OpKind.ADD,
        OpKind.SUB,
        OpKind.MUL,
        OpKind.DIV,
        OpKind.MINIMUM,
        OpKind.MAXIMUM,
        OpKind.LOGICAL_AND,
        OpKind.LOGICAL_OR,
        OpKind.EQUAL,
        OpKind.NOT_EQUAL,
        OpKind.GREATER,
        OpKind.GREATER_EQUAL,
    }
)
"""Kinds whose result's missing shape Vela 5.2.0 takes from the inputs (tflite_reader.cpp)."""


class Operand(msgspec.Struct, frozen=True):
    """One tensor of an op. ``slot`` counts within the role; ``known``: it has a shape."""

    role: Role
    slot: int
    tensor: Tensor
    shape: Shape
    known: bool

    @property
    def values(self) -> tuple[int, ...] | None:
        """The constant's values in order as integers, or None if it is not an integer constant."""
        data = self.tensor.data
        if data is None or data.dtype.kind not in "iub":
            return None
        return tuple(int(v) for v in data.reshape(-1))


class Operands(msgspec.Struct, frozen=True):
    """An op, its operands in file order, and its window (None for ops without one)."""

    op: Op
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    window: Window | None = None

    @property
    def kind(self) -> OpKind:
        """The op's kind."""
        return self.op.kind

    def get(self, role: Role, slot: int = 0) -> Operand | None:
        """Return the operand of that role and slot, None if the op has none."""
        source = self.outputs if role is Role.OFM else self.inputs
        return next((o for o in source if o.role is role and o.slot == slot), None)

    @property
    def all(self) -> tuple[Operand, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    def feature_maps(self) -> Iterator[Operand]:
        """Yield the feature maps: inputs of role IFM, then outputs."""
        yield from (o for o in self.all if o.role in (Role.IFM, Role.OFM))

    def ifm_shape(self, slot: int = 0) -> Shape:
        """Return the shape of a feature-map input, () where absent."""
        operand = self.get(Role.IFM, slot)
        return operand.shape if operand is not None else ()

    @property
    def ofm_shape(self) -> Shape:
        """Shape of the first result, () where absent."""
        return self.outputs[0].shape if self.outputs else ()

    @property
    def weights(self) -> Operand | None:
        """The (first) weights."""
        return self.get(Role.WEIGHTS)

    @property
    def bias(self) -> Operand | None:
        """The (first) bias."""
        return self.get(Role.BIAS)

    def params(self, slot: int = 0) -> tuple[int, ...] | None:
        """Return the integer values of a constant parameter, None if absent or not constant."""
        operand = self.get(Role.PARAMS, slot)
        return operand.values if operand is not None else None

    def with_ends(self, ifm: Operand, ofm: Operand, window: Window) -> Operands:
        """Return the same op reading ``ifm`` and writing ``ofm`` through ``window``."""
        inputs = tuple(
            replace(ifm, role=Role.IFM, slot=0) if o.role is Role.IFM and o.slot == 0 else o
            for o in self.inputs
        )
        return Operands(
            self.op, inputs, (replace(ofm, role=Role.OFM, slot=0), *self.outputs[1:]), window
        )


def inferred_shapes(subgraph: Subgraph) -> dict[int, Shape]:
    """Return shapes of tensors that the file stores without one, as far as they can be known.

    A constant without a shape is a vector of its elements; the result of an elementwise op has the
    (larger) shape of its inputs. Others have no known shape and are absent here.
    """
    shapes: dict[int, Shape] = {}
    for tensor in subgraph.tensors:
        if tensor.shape == () and tensor.data is not None:
            shapes[tensor.index] = (int(tensor.data.size),)
    for op in subgraph.ops:
        if op.kind not in _SHAPE_FROM_INPUTS:
            continue
        found = [_shape(subgraph, i, shapes) for i in op.inputs if i >= 0]
        if not found or any(shape is None for shape in found):
            continue
        rank = max(len(shape or ()) for shape in found)
        aligned = [(1,) * (rank - len(shape or ())) + (shape or ()) for shape in found]
        for index in op.outputs:
            if index >= 0 and subgraph.tensors[index].shape == () and index not in shapes:
                shapes[index] = tuple(max(sizes) for sizes in zip(*aligned, strict=True))
    return shapes


def _shape(subgraph: Subgraph, index: int, inferred: Mapping[int, Shape]) -> Shape | None:
    stored = subgraph.tensors[index].shape
    return inferred.get(index) if stored == () else stored


def operands_of(
    subgraph: Subgraph, op: Op, inferred: Mapping[int, Shape] | None = None
) -> Operands:
    """Return ``op`` with its tensors by role; ``inferred`` as ``inferred_shapes`` makes it."""
    known = inferred_shapes(subgraph) if inferred is None else inferred
    slots: dict[Role, int] = {}
    inputs: list[Operand] = []

    def add(role: Role, index: int) -> None:
        slot = slots.get(role, 0)
        slots[role] = slot + 1
        if 0 <= index < len(subgraph.tensors):
            inputs.append(_operand(subgraph, role, slot, index, known))

    for position, index in enumerate(op.inputs):
        add(input_role(op.kind, position), index)
    for index in op.intermediates:
        add(Role.SCRATCH, index)
    outputs = tuple(
        _operand(subgraph, Role.OFM, slot, index, known)
        for slot, index in enumerate(op.outputs)
        if 0 <= index < len(subgraph.tensors)
    )
    result = Operands(op, tuple(inputs), outputs)
    return replace(result, window=_window(result))


def _operand(
    subgraph: Subgraph, role: Role, slot: int, index: int, inferred: Mapping[int, Shape]
) -> Operand:
    shape = _shape(subgraph, index, inferred)
    return Operand(role, slot, subgraph.tensors[index], shape or (), shape is not None)


def _window(operands: Operands) -> Window | None:
    options = operands.op.options
    if isinstance(options, PoolOptions):
        return pool_window(options, operands.ifm_shape())
    if isinstance(options, ConvOptions) and operands.weights is not None:
        transposed = operands.kind is OpKind.TRANSPOSE_CONV
        return conv_window(
            options, operands.ifm_shape(), operands.weights.shape, transposed=transposed
        )
    return None
