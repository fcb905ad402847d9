"""QUANTIZE ops whose rescale a neighbour can do: they are removed.

Sources: LOWERING.md §6 (Quantize fusing); Vela 5.2.0, ``compiler/graphir_optimiser.cpp``
(FuseRescale, CanBeFused), ``architecture/ethosu55|85/*_constraints.cpp`` (SupportsQuantization).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from npusched.graph.kinds import ACTIVATIONS, CONVOLUTIONS, REARRANGING, is_binary, is_elementwise
from npusched.graph.lower.scaling import UNIT, Scale, dtype_range, without_trailing_zeros
from npusched.graph.moves import merged_sources
from npusched.graph.types import Activation, KernelKind, Rescale, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp
from npusched.hardware.target import Family
from npusched.ir import DataType, OpKind

_K = KernelKind
_DATA_LAYOUT = REARRANGING | {OpKind.RESHAPE, OpKind.PAD, _K.MEMORY_COPY}
_UNIT_RESULT_U55 = frozenset({_K.MINIMUM, _K.MAXIMUM, _K.ASR, _K.SHL, _K.CLZ, _K.LEAKY_RELU})
_UNIT_RESULT_U85 = frozenset({_K.SHL, _K.ASR, _K.DIV})
_WITHOUT_ZERO_POINTS = frozenset({_K.AVG_POOL, _K.RESIZE, _K.CLZ, _K.SHL, _K.DIV, _K.ARG_MAX})
_DMA = frozenset({_K.GATHER, _K.SCATTER})
_MAX_RESIZE_SHIFT = 48
_INT32_SHIFT_LIMIT = 31


class _Side(msgspec.Struct, frozen=True):
    """What one input or the result of an op would be."""

    scale: Scale
    zero_point: int
    dtype: DataType


def fuse_requantisation(graph: WorkGraph, op: WorkOp) -> WorkOp:
    """Move the rescale of a QUANTIZE into its only reader, else into its only writer.

    Returns the op that took it over, or ``op`` itself. Also takes the QUANTIZE behind the reader
    along where only both together are possible.
    """
    if op.kind is not KernelKind.QUANTIZE or op.cpu or graph.family is None:
        return op
    family = graph.family
    if _can_leave(op, into_reader=True):
        reader = op.ofm.tensor.readers[0]
        moved = _into_reader(graph, op, reader, family)
        if moved is not None:
            return moved
    if _can_leave(op, into_reader=False):
        writer = op.ifm.tensor.writers[0]
        if _writer_takes(writer, op, family):
            _give_to_writer(graph, writer, op)
            return writer
    return op


# --- may the QUANTIZE go at all ------------------------------------------------------------


def _scale_of(op: WorkOp) -> Scale:
    rescale = op.ofm_rescale
    return UNIT if rescale is None else Scale(rescale.multipliers[0], rescale.shifts[0])


def _can_leave(op: WorkOp, *, into_reader: bool) -> bool:
    """Return True if the tensor that would vanish is private, without zero point, unclipped."""
    link = op.ofm if into_reader else op.ifm
    tensor = link.tensor
    if not tensor.is_single_path or tensor.is_graph_input or tensor.is_graph_output:
        return False
    if not tensor.zero_points or link.zero_point != 0 or tensor.readers[0].cpu:
        return False
    if tensor.writers[0].cpu or tensor.writers[0].count > 1 or tensor.readers[0].count > 1:
        return False
    if not into_reader:
        return not op.ifm.is_sliced
    low, high = dtype_range(op.ifm.element_type)
    zero_point = op.ifm.zero_point
    scale = _scale_of(op)
    extreme = (high if zero_point < 0 else low) - zero_point
    floor, ceiling = dtype_range(op.ofm.element_type)
    return floor <= (extreme * scale.multiplier) >> scale.shift <= ceiling


def _reduced(op: WorkOp) -> Scale:
    """Return the op's scale with common powers of two cancelled, where rounding allows it."""
    scale = _scale_of(op)
    double = op.rounding in (None, Rounding.DOUBLE)
    if double and scale.shift > _INT32_SHIFT_LIMIT:
        return scale
    return without_trailing_zeros(scale)


# --- into the reader -----------------------------------------------------------------------


def _input_side(op: WorkOp, position: int) -> _Side:
    link = op.ifms[position]
    rescale = op.ifm_rescales[position] if position < len(op.ifm_rescales) else None
    scale = UNIT if rescale is None else Scale(rescale.multipliers[0], rescale.shifts[0])
    return _Side(scale, link.zero_point, link.element_type)


def _result_side(op: WorkOp) -> _Side:
    return _Side(_scale_of(op), op.ofm.zero_point, op.ofm.element_type)


def _is_unit(op: WorkOp, link: Link, side: _Side) -> bool:
    """Return True for unit scale and a stated zero point of 0.

    Links that apply no quantisation, and kernels whose zero points are dropped, state none.
    """
    stated = link.scale is not None and op.kind not in _WITHOUT_ZERO_POINTS
    return stated and side.scale == UNIT and side.zero_point == 0


def _into_reader(graph: WorkGraph, op: WorkOp, reader: WorkOp, family: Family) -> WorkOp | None:
    position = next((i for i, x in enumerate(reader.ifms) if x.tensor is op.ofm.tensor), None)
    if position is None or not isinstance(reader.kind, KernelKind) or reader.kind in _DATA_LAYOUT:
        return None
    if not _is_unit(reader, reader.ifms[position], _input_side(reader, position)):
        return None
    taken = _Side(_reduced(op), op.ifm.zero_point, op.ifm.element_type)
    behind = _quantize_behind(reader)
    if behind is not None and _is_unit(reader, reader.ofm, _result_side(reader)):
        result = _Side(_reduced(behind), behind.ofm.zero_point, behind.ofm.element_type)
        if _supports(reader, family, {position: taken}, result):
            _give_to_writer(graph, reader, behind)
            _give_to_reader(graph, reader, position, op)
            return reader
    if _supports(reader, family, {position: taken}, _result_side(reader)):
        _give_to_reader(graph, reader, position, op)
        return reader
    return _both_inputs(graph, op, reader, position, family) if is_binary(reader.kind) else None


def _quantize_behind(reader: WorkOp) -> WorkOp | None:
    """Return a QUANTIZE that is the only reader of the reader's result and may leave."""
    readers = reader.ofm.tensor.readers
    if len(readers) != 1 or readers[0].kind is not KernelKind.QUANTIZE or readers[0].cpu:
        return None
    return readers[0] if _can_leave(readers[0], into_reader=False) else None


def _both_inputs(
    graph: WorkGraph, op: WorkOp, reader: WorkOp, position: int, family: Family
) -> WorkOp | None:
    """Fuse the QUANTIZE ops of both inputs of a binary op together."""
    other = reader.ifms[1 - position].tensor
    if len(other.writers) != 1 or other.writers[0].kind is not KernelKind.QUANTIZE:
        return None
    second = other.writers[0]
    if second.cpu or not _can_leave(second, into_reader=True):
        return None
    link = reader.ifms[1 - position]
    if not _is_unit(reader, link, _input_side(reader, 1 - position)):
        return None
    sides = {
        position: _Side(_reduced(op), op.ifm.zero_point, op.ifm.element_type),
        1 - position: _Side(_reduced(second), second.ifm.zero_point, second.ifm.element_type),
    }
    if not _supports(reader, family, sides, _result_side(reader)):
        return None
    _give_to_reader(graph, reader, position, op)
    _give_to_reader(graph, reader, 1 - position, second)
    return reader


def _give_to_reader(graph: WorkGraph, reader: WorkOp, position: int, op: WorkOp) -> None:
    """Remove ``op``; ``reader`` reads its input and rescales it."""
    old = reader.ifms[position]
    link = replace(op.ifm, shape=old.shape)
    if old.slice_offset is not None:
        link = replace(link, slice_offset=old.slice_offset, slice_shape=old.slice_shape)
    scale = _reduced(op)
    unit = Rescale(multipliers=(1,), shifts=(0,), rounding=op.rounding or Rounding.DOUBLE)
    rescales = [*reader.ifm_rescales] or [unit] * len(reader.ifms)
    rescales[position] = scale.rescale(op.rounding or Rounding.DOUBLE)
    sources = op.source_ops
    graph.replace_ifm(reader, position, link)
    graph.remove(op)
    if any((r.multipliers, r.shifts) != ((1,), (0,)) for r in rescales):
        reader.ifm_rescales = tuple(rescales)
    reader.source_ops = merged_sources(reader.source_ops, sources)


# --- into the writer -----------------------------------------------------------------------


def _writer_takes(writer: WorkOp, op: WorkOp, family: Family) -> bool:
    if not isinstance(writer.kind, KernelKind) or writer.kind in _DATA_LAYOUT:
        return False
    own = _result_side(writer)
    taken = _Side(_reduced(op), op.ofm.zero_point, op.ofm.element_type)
    if _is_unit(writer, writer.ofm, own):
        return _supports(writer, family, {}, taken)
    if taken.scale != UNIT or own.zero_point != 0:
        return False
    return _supports(writer, family, {}, replace(taken, scale=own.scale))


def _give_to_writer(graph: WorkGraph, writer: WorkOp, op: WorkOp) -> None:
    """Remove ``op``; ``writer`` writes its result, clamped to the range that came in before."""
    old, new = writer.ofm, op.ofm
    link = replace(new, shape=old.shape)
    if old.slice_offset is not None:
        link = replace(link, slice_offset=old.slice_offset, slice_shape=old.slice_shape)
    scale = _reduced(op)
    if scale != UNIT:
        writer.ofm_rescale = scale.rescale(op.rounding or Rounding.DOUBLE)
        writer.rounding = op.rounding
    low, high = dtype_range(op.ifm.element_type)
    floor, ceiling = dtype_range(new.element_type)
    if floor < low or ceiling > high:
        writer.activation = Activation(
            minimum=low if floor < low else None, maximum=high if ceiling > high else None
        )
    sources = op.source_ops
    graph.remove(op)
    graph.replace_ofm(writer, link)
    writer.source_ops = merged_sources(writer.source_ops, sources)


# --- what the hardware can do --------------------------------------------------------------


def _supports(op: WorkOp, family: Family, changed: dict[int, _Side], result: _Side) -> bool:
    """Return True if ``op`` can run with these sides (SupportsQuantization of the family)."""
    if op.kind in _DMA or not isinstance(op.kind, KernelKind):
        return False
    inputs = [changed.get(i, _input_side(op, i)) for i in range(min(len(op.ifms), 2))]
    if family is Family.U85:
        legal = _inputs_u85(op.kind, inputs) and _result_u85(op.kind, inputs[0], result)
    else:
        legal = _inputs_u55(op.kind, inputs, result) and _result_u55(op.kind, inputs[0], result)
    per_channel = op.ofm_rescale is not None and len(op.ofm_rescale.multipliers) > 1
    if per_channel and op.kind not in CONVOLUTIONS | {_K.FULLY_CONNECTED}:
        return False
    return legal and _types(op.kind, family, inputs, result)


def _inputs_u55(kind: KernelKind, inputs: Sequence[_Side], result: _Side) -> bool:
    scales = [side.scale for side in inputs]
    if kind not in (_K.ADD, _K.SUB):
        return all(scale == UNIT for scale in scales)
    if result.dtype.bits > 16 and any(scale != UNIT for scale in scales):
        return False
    if all(s.shift == 0 and -(1 << 15) <= s.multiplier < 1 << 15 for s in scales):
        return True
    bits = inputs[0].dtype.bits
    first, second = (without_trailing_zeros(scale) for scale in scales)
    if bits not in (8, 16) or first == second:
        return False
    return max(first.real, second.real) == float(1 << (19 if bits == 8 else 14))


def _result_u55(kind: KernelKind, ifm: _Side, result: _Side) -> bool:
    unit = result.scale == UNIT
    if kind in ACTIVATIONS:
        return False
    if is_elementwise(kind):
        if kind in _UNIT_RESULT_U55:
            return unit
        narrow = ifm.dtype.bits < 32 and result.dtype.bits < 32
        return narrow or result.scale.multiplier == 1
    if kind in (_K.AVG_POOL, _K.MAX_POOL, _K.REDUCE_MAX, _K.TRANSPOSE):
        return unit
    return True


def _inputs_u85(kind: KernelKind, inputs: Sequence[_Side]) -> bool:
    unit = all(side.scale == UNIT for side in inputs)
    if not is_elementwise(kind) or kind in (_K.DIV, _K.MUL):
        return unit
    return unit or inputs[0].dtype.bits == 8 or inputs[0].dtype is DataType.INT16


def _result_u85(kind: KernelKind, ifm: _Side, result: _Side) -> bool:
    unit = result.scale == UNIT
    if kind in ACTIVATIONS:
        return False
    if kind is _K.RESIZE:
        scale = without_trailing_zeros(result.scale)
        return scale.multiplier == 1 and scale.shift < _MAX_RESIZE_SHIFT
    if is_elementwise(kind):
        if kind is _K.MUL and ifm.dtype is DataType.INT32:
            return result.scale.multiplier == 1
        return unit or kind not in _UNIT_RESULT_U85
    if kind in (
        _K.AVG_POOL,
        _K.REDUCE_MIN,
        _K.REDUCE_MAX,
        _K.REDUCE_ANY,
        _K.REDUCE_ALL,
        _K.ARG_MAX,
    ):
        return unit
    return True


def _types(kind: KernelKind, family: Family, inputs: Sequence[_Side], result: _Side) -> bool:
    """Return True if the types and zero points of all sides are legal together."""
    ifm = inputs[0]
    if len(inputs) > 1 and is_binary(kind) and inputs[1].dtype is not ifm.dtype:
        return False
    if family is Family.U85:
        return all(_zero_point_u85(side) for side in inputs) and _result_zero_point_u85(result)
    pool = kind in (_K.AVG_POOL, _K.MAX_POOL, _K.REDUCE_MAX)
    if pool and result.dtype is not ifm.dtype:
        return False
    if kind in CONVOLUTIONS | {_K.FULLY_CONNECTED} and ifm.dtype.bits > 16:
        return False
    return all(side.dtype.bits < 32 or side.zero_point == 0 for side in (*inputs, result))


def _zero_point_u85(side: _Side) -> bool:
    low, high = dtype_range(side.dtype)
    return side.zero_point == 0 or (side.dtype.bits == 8 and low <= side.zero_point <= high)


def _result_zero_point_u85(side: _Side) -> bool:
    if side.dtype.is_signed:
        return -128 <= side.zero_point <= 127
    return side.zero_point == 32768 or 0 <= side.zero_point <= 255
