"""Batch norms left in a quantised graph as MUL (or DIV) and ADD (or SUB) by constants.

A converter folds them into the linear op before them; where it could not (an op in between, an
export from another framework), they run as passes over the feature map. ``find_batch_norms`` finds
them; ``fold`` in the API rewrites a model; the fusion levels count them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from npusched.ir import ActivationKind, Op, OpKind, Subgraph, Tensor
from npusched.ir.options import BinaryOptions, ConvOptions, FullyConnectedOptions

LINEAR = frozenset({OpKind.CONV_2D, OpKind.DEPTHWISE_CONV_2D, OpKind.FULLY_CONNECTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNorm:
    """``y = x * factor + offset`` per channel, in real numbers.

    ``multiply`` and ``add`` are op indices (either may be None, not both); ``linear`` is the op
    it can be folded into, or None with ``blocker`` saying why not. ``factor`` and ``offset`` have
    one entry per channel, or a single one.
    """

    multiply: int | None
    add: int | None
    linear: int | None
    blocker: str
    factor: npt.NDArray[np.float64] = field(compare=False, repr=False)
    offset: npt.NDArray[np.float64] = field(compare=False, repr=False)

    @property
    def ops(self) -> tuple[int, ...]:
        """Indices of the batch norm's own ops, in order."""
        return tuple(op for op in (self.multiply, self.add) if op is not None)


def find_batch_norms(subgraph: Subgraph) -> list[BatchNorm]:
    """Return every MUL/DIV by a constant (per channel or scalar) that is a batch norm.

    A multiplication counts if an ADD/SUB by a constant follows as its only reader, or if a linear
    op precedes it. A lone ADD is not a batch norm (it may be any bias).
    """
    producers = {t: op for op in subgraph.ops for t in op.outputs}
    readers: dict[int, list[Op]] = {}
    for op in subgraph.ops:
        for t in set(op.inputs):
            readers.setdefault(t, []).append(op)
    found = []
    for op in subgraph.ops:
        if op.kind not in (OpKind.MUL, OpKind.DIV):
            continue
        pair = _constant_operand(subgraph, op)
        if pair is None:
            continue
        data, constant = pair
        add = _following_add(subgraph, op, readers)
        linear, blocker = _linear_before(subgraph, data, producers, readers)
        if add is None and linear is None:
            continue
        factor = _real(constant)
        if op.kind is OpKind.DIV:
            if not np.all(factor):
                continue
            factor = 1.0 / factor
        offset = np.zeros(1)
        if add is not None:
            offset = _real(subgraph.tensors[_constant_index(subgraph, add)])
            if add.kind is OpKind.SUB:
                offset = -offset
        found.append(
            BatchNorm(
                multiply=op.index,
                add=None if add is None else add.index,
                linear=linear,
                blocker=blocker,
                factor=factor,
                offset=offset,
            )
        )
    return found


def _activation(op: Op) -> ActivationKind:
    if isinstance(op.options, BinaryOptions | ConvOptions | FullyConnectedOptions):
        return op.options.activation
    return ActivationKind.NONE


def _constant_operand(subgraph: Subgraph, op: Op) -> tuple[int, Tensor] | None:
    """(data tensor index, constant) if one operand is a constant per channel or scalar."""
    if len(op.inputs) != 2 or min(op.inputs) < 0:
        return None
    for data, constant in (op.inputs, op.inputs[::-1]):
        tensor = subgraph.tensors[constant]
        shape = subgraph.tensors[data].shape
        if tensor.is_constant and not subgraph.tensors[data].is_constant and shape:
            per_channel = tensor.elements == shape[-1] and tensor.shape[-1:] == shape[-1:]
            if tensor.elements == 1 or per_channel:
                # DIV by a constant divides by it; constant / x is no batch norm.
                if op.kind is OpKind.DIV and constant != op.inputs[1]:
                    return None
                return data, tensor
    return None


def _constant_index(subgraph: Subgraph, op: Op) -> int:
    return next(t for t in op.inputs if subgraph.tensors[t].is_constant)


def _following_add(subgraph: Subgraph, op: Op, readers: Mapping[int, list[Op]]) -> Op | None:
    """The ADD or SUB by a constant that is the only reader of ``op``'s result."""
    result = op.outputs[0]
    followers = readers.get(result, [])
    if len(followers) != 1 or result in subgraph.outputs:
        return None
    if _activation(op) is not ActivationKind.NONE:
        return None
    follower = followers[0]
    if follower.kind not in (OpKind.ADD, OpKind.SUB):
        return None
    pair = _constant_operand(subgraph, follower)
    if pair is None or (follower.kind is OpKind.SUB and follower.inputs[0] != result):
        return None
    return follower


def _linear_before(
    subgraph: Subgraph,
    data: int,
    producers: Mapping[int, Op],
    readers: Mapping[int, list[Op]],
) -> tuple[int | None, str]:
    """(index of the linear op that can absorb the batch norm, why it cannot)."""
    producer = producers.get(data)
    if producer is None:
        return None, "its input is a graph input"
    if producer.kind not in LINEAR:
        return None, f"{producer.kind.value} #{producer.index} before it is not linear"
    if _activation(producer) is not ActivationKind.NONE:
        activation = _activation(producer).value
        return None, f"{producer.kind.value} #{producer.index} before it has {activation}"
    if len(readers.get(data, [])) != 1 or data in subgraph.outputs:
        return None, f"the result of {producer.kind.value} #{producer.index} is also read elsewhere"
    if not subgraph.tensors[producer.inputs[1]].is_constant:
        return None, f"the weights of {producer.kind.value} #{producer.index} are not constant"
    return producer.index, ""


def _real(tensor: Tensor) -> npt.NDArray[np.float64]:
    """Real values of a constant (dequantised), flattened."""
    assert tensor.data is not None
    values = np.asarray(tensor.data, dtype=np.float64).reshape(-1)
    if tensor.quantization is not None and tensor.dtype.is_integer:
        scales = np.asarray(tensor.quantization.scales, dtype=np.float64)
        zero_points = np.asarray(tensor.quantization.zero_points, dtype=np.float64)
        values = (values - zero_points) * scales
    return values
