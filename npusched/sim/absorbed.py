"""Why a tensor of a model never reaches memory: from the lowering, not from what was seen.

The scheduled graph lists the feature maps that are stored. A tensor that is none of them was
absorbed: some kernel does the work of the op that makes it and of one that reads it, or nothing
computes it at all. A tensor without such a reason should be in memory.
"""

from __future__ import annotations

from enum import StrEnum

from npusched.graph.opgraph import OpGraph, SourcePlacement
from npusched.ir import Op, OpKind, Subgraph

_K = OpKind


class Absorption(StrEnum):
    """Why a tensor of the file is not in memory."""

    ACTIVATION = "activation fused into the kernel before it"
    PAD = "padding done by the kernel that reads it"
    SLICE = "slice read in place"
    REQUANTISATION = "requantisation merged with its neighbour"
    TRANSPOSE = "transposition done by a neighbour"
    KERNEL = "one kernel does this op and its reader"
    VIEW = "view of another tensor"
    CONSTANT = "computed at compile time"
    UNREAD = "nothing depends on it"
    VARIABLE = "value of a variable"
    HOST = "between ops of the host"


_ACTIVATIONS = frozenset(
    {
        _K.RELU,
        _K.RELU6,
        _K.RELU_0_TO_1,
        _K.RELU_N1_TO_1,
        _K.LOGISTIC,
        _K.TANH,
        _K.HARD_SWISH,
        _K.LEAKY_RELU,
        _K.GELU,
        _K.ELU,
        _K.EXP,
    }
)
_PADS = frozenset({_K.PAD, _K.PADV2, _K.MIRROR_PAD})
_SLICES = frozenset({_K.SLICE, _K.STRIDED_SLICE, _K.SPLIT, _K.SPLIT_V, _K.UNPACK})
_VARIABLES = frozenset({_K.VAR_HANDLE, _K.READ_VARIABLE, _K.ASSIGN_VARIABLE})


def absorptions(graph: OpGraph, subgraph: Subgraph) -> dict[int, Absorption]:
    """Return tensor index -> reason, for the tensors made by ops that are never in memory.

    Tensors on the host have a reason if only the host makes and reads them: they are in its
    memory, but no hand-over to the NPU shows their values.
    """
    stored = {
        fm.source[1]: fm.is_constant
        for fm in graph.feature_maps.values()
        if fm.source is not None and fm.source[0] == graph.subgraph
    }
    readers: dict[int, list[Op]] = {}
    for op in subgraph.ops:
        for index in op.inputs:
            readers.setdefault(index, []).append(op)
    found = {}
    for op in subgraph.ops:
        for index in op.outputs:
            if index not in subgraph.outputs:
                reason = _reason(graph, op, index, readers, stored.get(index))
                if reason is not None:
                    found[index] = reason
    return found


def _reason(
    graph: OpGraph, op: Op, tensor: int, readers: dict[int, list[Op]], is_constant: bool | None
) -> Absorption | None:
    """``is_constant``: of the feature map that stands for the tensor, None = there is none."""
    direct = readers.get(tensor, [])
    placement = graph.sources[op.index].placement
    if all(graph.sources[each.index].placement is SourcePlacement.CPU for each in (op, *direct)):
        return Absorption.HOST
    if is_constant is not None:
        return Absorption.CONSTANT if is_constant else None
    if op.kind in _VARIABLES:
        return Absorption.VARIABLE
    mine = set(graph.sources[op.index].scheduled_ops)
    for reader in _behind_views(graph, direct, readers):
        if mine & set(graph.sources[reader.index].scheduled_ops):
            return _merged(op, reader)
    if placement is SourcePlacement.VIEW:
        return Absorption.VIEW
    return Absorption.UNREAD if placement is SourcePlacement.FOLDED and not mine else None


def _behind_views(graph: OpGraph, ops: list[Op], readers: dict[int, list[Op]]) -> list[Op]:
    """The ops, and for views also those that read them."""
    found = list(ops)
    for op in found:
        if graph.sources[op.index].placement is SourcePlacement.VIEW:
            found += [r for index in op.outputs for r in readers.get(index, []) if r not in found]
    return found


def _merged(op: Op, reader: Op) -> Absorption:
    """What it is called if one kernel does the work of an op and of a reader of its result."""
    for kinds, who, reason in (
        (_PADS, op, Absorption.PAD),
        (_SLICES, op, Absorption.SLICE),
        ({_K.QUANTIZE}, op, Absorption.REQUANTISATION),
        ({_K.QUANTIZE}, reader, Absorption.REQUANTISATION),
        (_ACTIVATIONS, reader, Absorption.ACTIVATION),
        ({_K.TRANSPOSE}, op, Absorption.TRANSPOSE),
        ({_K.TRANSPOSE}, reader, Absorption.TRANSPOSE),
    ):
        if who.kind in kinds:
            return reason
    return Absorption.KERNEL
