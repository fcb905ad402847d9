"""Another number of channels: from the ops that make them to the ops that use them up.

``channel_groups`` finds sets of tensors that must have the same channels; ``resize`` cuts or
extends the weights on both sides. Added channels are zeros and are multiplied by zeros, so results
stay the same; removed ones are the last, and the network has to be trained again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.graph.edits.uses import BINARY, UNARY, Uses
from npusched.ir import Model, Op, OpKind, Subgraph, Tensor
from npusched.ir.options import ConcatOptions, ConvOptions, ReshapeOptions
from npusched.tflite.editor import Editor

_POOLS = frozenset({OpKind.AVERAGE_POOL_2D, OpKind.MAX_POOL_2D})
_RESIZES = frozenset({OpKind.RESIZE_BILINEAR, OpKind.RESIZE_NEAREST_NEIGHBOR})


class Cut(msgspec.Struct, frozen=True):
    """A constant whose ``axis`` has ``repeat`` runs of the group's channels."""

    tensor: int
    axis: int
    repeat: int = 1


class ShapeCut(msgspec.Struct, frozen=True):
    """A constant that states a shape: its last entry is ``repeat`` times the channels.

    ``op``: the RESHAPE whose option says the same, -1 for none.
    """

    tensor: int
    repeat: int = 1
    op: int = -1


class ChannelGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Tensors with the same channels: tensor -> how often they are repeated in its last axis.

    ``makers`` are the ops that compute them from others.
    """

    channels: int
    tensors: Mapping[int, int]
    cuts: tuple[Cut, ...]
    shapes: tuple[ShapeCut, ...]
    makers: tuple[int, ...]


class _Stuck(Exception):  # noqa: N818 - no error: the search ends
    """The channels cannot be changed."""


def channel_groups(graph: Subgraph) -> list[ChannelGroup]:
    """Every set of tensors whose channels can be changed together, in the order of the file."""
    uses, found, seen = Uses(graph), [], set[int]()
    for op in graph.ops:
        if op.kind not in (OpKind.CONV_2D, OpKind.FULLY_CONNECTED) or op.outputs[0] in seen:
            continue
        growing = _Growing(uses, uses.result(op).shape[-1])
        try:
            growing.add(op.outputs[0], 1)
        except _Stuck:
            continue
        finally:
            seen.update(growing.tensors)
        found.append(
            ChannelGroup(
                channels=growing.channels,
                tensors=growing.tensors,
                cuts=tuple(growing.cuts),
                shapes=tuple(growing.shapes),
                makers=tuple(sorted(growing.makers)),
            )
        )
    return found


class _Growing:
    """A group in the making: follows writers and readers until nothing is new."""

    def __init__(self, uses: Uses, channels: int) -> None:
        self.uses = uses
        self.channels = channels
        self.tensors: dict[int, int] = {}
        self.cuts: dict[Cut, None] = {}
        self.shapes: dict[ShapeCut, None] = {}
        self.makers: set[int] = set()

    def add(self, tensor: int, repeat: int) -> None:
        """Take a tensor into the group, and all that follows from that."""
        pending = [(tensor, repeat)]
        while pending:
            tensor, repeat = pending.pop()
            if tensor in self.tensors:
                if self.tensors[tensor] != repeat:
                    raise _Stuck
                continue
            known = self.uses.graph.tensors[tensor]
            if (
                tensor in self.uses.edges
                or known.is_variable
                or known.is_constant
                or not known.shape
                or known.shape[-1] != repeat * self.channels
            ):
                raise _Stuck
            self.tensors[tensor] = repeat
            pending += self._writer(self.uses.writer[tensor], repeat)
            for op in self.uses.readers.get(tensor, ()):
                pending += self._reader(op, tensor)

    def _writer(self, op: Op, repeat: int) -> Iterable[tuple[int, int]]:
        """What else is in the group because ``op`` writes into it."""
        if op.kind in (OpKind.CONV_2D, OpKind.FULLY_CONNECTED):
            if repeat != 1:
                raise _Stuck
            self._cut(op, 1, 0)
            self._cut(op, 2, 0)
            self._ungrouped(op)
            self.makers.add(op.index)
            return ()
        if op.kind is OpKind.TRANSPOSE_CONV:
            self._cut(op, 1, 0)
            self._cut(op, 3, 0)
            self.shapes[ShapeCut(op.inputs[0])] = None
            self.makers.add(op.index)
            return ()
        return self._through(op)

    def _reader(self, op: Op, tensor: int) -> Iterable[tuple[int, int]]:
        """What else is in the group because ``op`` reads from it."""
        if op.kind is OpKind.CONV_2D and op.inputs[0] == tensor:
            self._ungrouped(op)
            self._cut(op, 1, 3)
            return ()
        if op.kind is OpKind.TRANSPOSE_CONV and op.inputs[2] == tensor:
            self._cut(op, 1, 3)
            return ()
        if op.kind is OpKind.FULLY_CONNECTED and op.inputs[0] == tensor:
            weights = self._constant(op, 1)
            if len(weights.shape) != 2 or weights.shape[1] % self.channels:
                raise _Stuck
            if self.uses.result(op).shape[-1] != weights.shape[0]:
                raise _Stuck
            self.cuts[Cut(weights.index, 1, weights.shape[1] // self.channels)] = None
            return ()
        return self._through(op)

    def _through(self, op: Op) -> list[tuple[int, int]]:
        """The activations of an op that keeps channels apart; its constants are cut."""
        if len(op.outputs) != 1:
            raise _Stuck
        data, result = op.inputs[0], op.outputs[0]
        if op.kind is OpKind.DEPTHWISE_CONV_2D:
            options = op.options
            if not isinstance(options, ConvOptions) or options.depth_multiplier != 1:
                raise _Stuck
            self._cut(op, 1, 3)
            self._cut(op, 2, 0)
            return [(data, 1), (result, 1)]
        if op.kind in UNARY | _POOLS | _RESIZES:
            return self._same(data, result)
        if op.kind in BINARY:
            return self._binary(op)
        if op.kind in (OpKind.PAD, OpKind.MEAN):
            return self._keeps_last(op)
        if op.kind is OpKind.RESHAPE:
            return self._reshape(op)
        if op.kind is OpKind.CONCATENATION and isinstance(op.options, ConcatOptions):
            rank = len(self.uses.result(op).shape)
            if op.options.axis % rank == rank - 1:
                raise _Stuck
            return [(t, 1) for t in (*op.inputs, result)]
        raise _Stuck

    def _same(self, data: int, result: int) -> list[tuple[int, int]]:
        size = self.uses.graph.tensors[result].shape[-1]
        if size % self.channels:
            raise _Stuck
        return [(data, size // self.channels), (result, size // self.channels)]

    def _binary(self, op: Op) -> list[tuple[int, int]]:
        result = self.uses.result(op)
        repeat, found = result.shape[-1] // self.channels, [op.outputs[0]]
        for t in op.inputs:
            tensor = self.uses.graph.tensors[t]
            if not tensor.shape or tensor.shape[-1] == 1:
                continue
            if tensor.is_constant:
                if repeat != 1 or not self.uses.own(t):
                    raise _Stuck
                self.cuts[Cut(t, len(tensor.shape) - 1)] = None
            else:
                found.append(t)
        return [(t, repeat) for t in found]

    def _keeps_last(self, op: Op) -> list[tuple[int, int]]:
        values = self._constant(op, 1).data
        rank = len(self.uses.graph.tensors[op.inputs[0]].shape)
        assert values is not None
        if op.kind is OpKind.PAD and values.reshape(-1, 2)[-1].any():
            raise _Stuck
        if op.kind is OpKind.MEAN and any(int(a) % rank == rank - 1 for a in values.reshape(-1)):
            raise _Stuck
        return [(op.inputs[0], 1), (op.outputs[0], 1)]

    def _reshape(self, op: Op) -> list[tuple[int, int]]:
        """A reshape that merges whole axes in front of the channels, or takes 1s away."""
        data, result = self.uses.graph.tensors[op.inputs[0]], self.uses.result(op)
        size, channels = result.shape[-1], self.channels
        if data.shape[-1] % channels or size % channels or data.elements != result.elements:
            raise _Stuck
        stated = self.uses.tensor(op, 1)
        if stated is None or not stated.is_constant:
            raise _Stuck
        self.shapes[ShapeCut(stated.index, size // channels, op.index)] = None
        return [(data.index, data.shape[-1] // channels), (result.index, size // channels)]

    def _ungrouped(self, op: Op) -> None:
        data = self.uses.graph.tensors[op.inputs[0]]
        if op.kind is OpKind.CONV_2D and self._constant(op, 1).shape[3] != data.shape[-1]:
            raise _Stuck

    def _constant(self, op: Op, slot: int) -> Tensor:
        tensor = self.uses.tensor(op, slot)
        if tensor is None or tensor.data is None or tensor.is_sparse:
            raise _Stuck
        return tensor

    def _cut(self, op: Op, slot: int, axis: int) -> None:
        if self.uses.tensor(op, slot) is None and slot >= 2:
            return
        tensor = self._constant(op, slot)
        if not self.uses.own(tensor.index) or tensor.shape[axis] != self.channels:
            raise _Stuck
        self.cuts[Cut(tensor.index, axis)] = None


def resize(model: Model, subgraph: int, wanted: Mapping[int, int]) -> bytes:
    """Return the file with other channels: ``wanted`` is number of group -> channels.

    Groups are numbered as ``channel_groups`` lists them. Raises ModelError (see ``Editor``).
    """
    editor = Editor(model, subgraph)
    graph = model.subgraphs[subgraph]
    groups = channel_groups(graph)
    constants: dict[int, tuple[npt.NDArray[np.generic], Tensor]] = {}
    scales: dict[int, tuple[float, ...]] = {}
    zeros: dict[int, tuple[int, ...]] = {}
    for number, channels in wanted.items():
        group = groups[number]
        for cut in group.cuts:
            tensor = graph.tensors[cut.tensor]
            assert tensor.data is not None
            values = constants.get(cut.tensor, (tensor.data, tensor))[0]
            constants[cut.tensor] = (
                _resized(values, tensor, cut, group.channels, channels),
                tensor,
            )
            known = tensor.quantization
            if known is not None and known.axis == cut.axis and len(known.scales) > 1:
                scales[cut.tensor] = _fitted(known.scales, channels)
                zeros[cut.tensor] = _fitted(known.zero_points, channels)
        for stated in group.shapes:
            _restate(editor, graph, stated, channels)
        for t, repeat in group.tensors.items():
            editor.set_shape(t, (*graph.tensors[t].shape[:-1], repeat * channels))
    for index, (values, tensor) in constants.items():
        axis = tensor.quantization.axis if tensor.quantization is not None else None
        editor.set_constant(
            index,
            values,
            scales=scales.get(index),
            zero_points=zeros.get(index, ()),
            axis=axis or 0,
        )
    return editor.content()


def _fitted(values: tuple[float, ...], count: int) -> tuple:  # type: ignore[type-arg]
    return (*values, *values[-1:] * max(count - len(values), 0))[:count]


def _resized(
    values: npt.NDArray[np.generic], tensor: Tensor, cut: Cut, old: int, new: int
) -> npt.NDArray[np.generic]:
    """The constant with ``new`` channels: the first ones, then as many zeros as are missing."""
    shape = values.shape
    runs = values.reshape(*shape[: cut.axis], cut.repeat, old, *shape[cut.axis + 1 :])
    kept = np.take(runs, range(min(old, new)), axis=cut.axis + 1)
    missing = new - kept.shape[cut.axis + 1]
    if missing > 0:
        known = tensor.quantization
        zero = known.zero_points[0] if known is not None and known.zero_points else 0
        more = list(kept.shape)
        more[cut.axis + 1] = missing
        kept = np.concatenate([kept, np.full(more, zero, values.dtype)], axis=cut.axis + 1)
    return kept.reshape(*shape[: cut.axis], cut.repeat * new, *shape[cut.axis + 1 :])


def _restate(editor: Editor, graph: Subgraph, stated: ShapeCut, channels: int) -> None:
    """A constant shape (and a RESHAPE's option) with the new size in its last entry."""
    data = graph.tensors[stated.tensor].data
    assert data is not None
    values = data.copy().reshape(-1)
    if int(values[-1]) >= 0:
        values[-1] = stated.repeat * channels
    editor.set_constant(stated.tensor, values)
    if stated.op >= 0:
        options = graph.ops[stated.op].options
        if isinstance(options, ReshapeOptions) and options.new_shape:
            editor.set_options(stated.op, ReshapeOptions(new_shape=tuple(int(v) for v in values)))
