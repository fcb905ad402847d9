"""UNIDIRECTIONAL_SEQUENCE_LSTM, unrolled over time (and over batches, unless time-major).

Per step and gate: the feature and the previous output each times their weights into int16 of
scale 2**-12, their sum, an activation; then the new cell state and output. Both states live in
persistent tensors: every write goes to a tensor of its own that shares the state's address (equal
``source``), which keeps steps apart in the graph. Source: LOWERING.md §5; Vela 5.2.0,
``compiler/lstm.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec
import numpy as np
from msgspec.structs import replace

from npusched.graph.lower import scaling
from npusched.graph.lower.activations import native_activation
from npusched.graph.lower.common import Quant, add_kernel, constant, copy, quant, use
from npusched.graph.lower.scaling import UNIT, quantize_scale
from npusched.graph.shapes import fold_batch
from npusched.graph.types import Activation, KernelKind, Rounding
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.ir import DataType, Shape
from npusched.ir.options import LstmOptions

INPUT, FORGET, CELL, OUTPUT = range(4)
INPUT_WEIGHTS, RECURRENT_WEIGHTS, BIASES = 1, 5, 12
"""Positions in the file of the first of four gates' tensors (input, forget, cell, output)."""
OUTPUT_STATE, CELL_STATE = 18, 19

Q0_15 = 2.0**-15
GATE_SUM = Quant(2.0**-12)
ACTIVATION_INPUT = Quant(quantize_scale(1.0 / 0x3000).real)
"""Unit of the sigmoid/tanh input: 1 / (3 * 4096)."""
SIGMOID_RANGE = (11, 32757)
"""What the reference's table can reach; the NPU's unit reaches further."""


class _State(msgspec.Struct):
    """The tensor that now holds a state, and how one batch of it is read."""

    tensor: WorkTensor
    how: Quant


class _Cell(msgspec.Struct, kw_only=True):
    """One LSTM being unrolled. ``rows`` batches are computed at once, ``batch`` is the first."""

    graph: WorkGraph
    op: WorkOp
    options: LstmOptions
    features: int
    units: int
    batches: int
    rows: int
    weights: dict[int, WorkTensor]
    batch: int = 0

    def shape(self, depth: int) -> Shape:
        """Shape of a temporary with one row per batch computed at once."""
        return (1, 1, self.rows, depth)

    def tensor(self, name: str, dtype: DataType = DataType.INT16) -> WorkTensor:
        """Add a temporary of one value per unit."""
        return self.graph.new_tensor(f"{self.op.name}/{name}", self.shape(self.units), dtype)

    def state_link(self, state: WorkTensor, how: Quant) -> Link:
        """Use the rows of a state that are computed now."""
        depth = state.shape[-1]
        link = use(state, how, (1, 1, prod(state.shape[:-1]), depth))
        if self.rows == self.batches:
            return link
        return replace(
            link, slice_offset=(0, 0, self.batch, 0), slice_shape=(1, 1, self.rows, depth)
        )


def lower_lstm(graph: WorkGraph, op: WorkOp) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM: all its steps."""
    options = op.options
    assert isinstance(options, LstmOptions)
    batch_axis, time_axis = (1, 0) if options.time_major else (0, 1)
    batches, times = op.ifm.shape[batch_axis], op.ifm.shape[time_axis]
    cell = _Cell(
        graph=graph,
        op=op,
        options=options,
        features=op.ifm.shape[-1],
        units=op.params[CELL_STATE].shape[-1],
        batches=batches,
        rows=batches if options.time_major else 1,
        weights={
            position: _matrix(graph, op.params[position])
            for position in (*range(1, 5), *range(5, 9))
        },
    )
    for batch in range(0, batches, cell.rows):
        cell.batch = batch
        output = _initial_state(cell, OUTPUT_STATE)
        memory = _initial_state(cell, CELL_STATE)
        for time in range(times):
            feature = _feature(cell, time)
            output, memory = _step(cell, feature, output, memory)
            _write_output(cell, output, time)
    graph.remove(op)


def _matrix(graph: WorkGraph, tensor: WorkTensor) -> WorkTensor:
    """Return weights as (outputs, 1, 1, inputs)."""
    assert tensor.data is not None
    shape = (tensor.shape[0], 1, 1, tensor.shape[-1])
    matrix = replace(tensor, shape=shape, data=tensor.data.reshape(shape), readers=[], writers=[])
    graph.tensors.append(matrix)
    return matrix


def _tensor_quant(tensor: WorkTensor) -> Quant:
    zero_point = tensor.zero_points[0] if tensor.zero_points else 0
    return Quant(tensor.scales[0] if tensor.scales else None, zero_point)


def _alias(cell: _Cell, position: int) -> WorkTensor:
    """Add a tensor that shares the address of a state."""
    state = cell.op.params[position]
    alias = replace(
        state, is_persistent=True, is_graph_input=False, data=None, readers=[], writers=[]
    )
    cell.graph.tensors.append(alias)
    return alias


def _initial_state(cell: _Cell, position: int) -> _State:
    """Return a state before the first step; batch by batch, a copy onto itself orders the steps."""
    state = cell.op.params[position]
    how = _tensor_quant(state)
    if cell.options.time_major:
        return _State(state, how)
    alias = _alias(cell, position)
    copy(
        cell.graph,
        cell.op,
        _row(state, how, cell.batch),
        _row(alias, how, cell.batch),
        Rounding.DOUBLE,
    )
    return _State(alias, how)


def _row(state: WorkTensor, how: Quant, batch: int) -> Link:
    depth = state.shape[-1]
    link = use(state, how, (1, 1, prod(state.shape[:-1]), depth))
    return replace(link, slice_offset=(0, 0, batch, 0), slice_shape=(1, 1, 1, depth))


def _feature(cell: _Cell, time: int) -> Link:
    """Cut the input of one step; data movement lets the products read it in place."""
    ifm = cell.op.ifm
    feature = cell.graph.new_tensor(
        f"{cell.op.name}/feature", cell.shape(cell.features), ifm.tensor.dtype
    )
    offset, size = (cell.batch, time, 0), (1, 1, cell.features)
    if cell.options.time_major:
        offset, size = (time, 0, 0), (1, cell.batches, cell.features)
    source = replace(ifm, slice_offset=offset, slice_shape=size)
    copy(cell.graph, cell.op, source, use(feature, quant(ifm)))
    return use(feature, quant(ifm))


def _step(cell: _Cell, feature: Link, output: _State, memory: _State) -> tuple[_State, _State]:
    """Add one time step; return both new states."""
    gates = [
        _gate(cell, gate, feature, output, KernelKind.TANH if gate == CELL else KernelKind.SIGMOID)
        for gate in (INPUT, FORGET, CELL)
    ]
    memory = _new_memory(cell, memory, gates)
    last = _gate(cell, OUTPUT, feature, output, KernelKind.SIGMOID)
    return _new_output(cell, last, memory), memory


def _gate(
    cell: _Cell, gate: int, feature: Link, output: _State, activation: KernelKind
) -> WorkTensor:
    """Activation(W * feature + bias + R * output)."""
    bias = cell.op.params.get(BIASES + gate)
    forward = _product(cell, feature, cell.weights[INPUT_WEIGHTS + gate], bias)
    state = cell.state_link(output.tensor, output.how)
    backward = _product(cell, state, cell.weights[RECURRENT_WEIGHTS + gate], None)
    total = cell.tensor("gate_sum")
    add_kernel(
        cell.graph,
        cell.op,
        KernelKind.ADD,
        [use(forward, GATE_SUM), use(backward, GATE_SUM)],
        use(total, ACTIVATION_INPUT),
    )
    result = cell.tensor("gate")
    add_kernel(
        cell.graph,
        cell.op,
        activation,
        [use(total)],
        use(result),
        ofm_scale=UNIT,
        activation=native_activation(cell.graph, activation),
    )
    if activation is KernelKind.SIGMOID:
        _clamp(cell, use(result), *SIGMOID_RANGE)
    return result


def _clamp(cell: _Cell, link: Link, low: int, high: int) -> None:
    """Clamp a tensor in place (it gets a second writer)."""
    bounds = Activation(minimum=low, maximum=high, function="clamp")
    add_kernel(
        cell.graph, cell.op, KernelKind.CLAMP, [link], link, ofm_scale=UNIT, activation=bounds
    )


def _product(cell: _Cell, ifm: Link, weights: WorkTensor, bias: WorkTensor | None) -> WorkTensor:
    """Add a fully connected kernel into int16 of scale 2**-12."""
    if bias is None:
        sixteen = ifm.tensor.dtype is DataType.INT16
        dtype = DataType.INT64 if sixteen else DataType.INT32
        bias = constant(cell.graph, "lstm_no_bias", np.zeros(1), dtype)
    result = cell.tensor("product")
    rows = fold_batch(cell.rows)
    read, written = (1, *rows, ifm.shape[-1]), (1, *rows, cell.units)
    if ifm.slice_shape is None:
        ifm = replace(ifm, shape=read)
    added = add_kernel(
        cell.graph,
        cell.op,
        KernelKind.FULLY_CONNECTED,
        [ifm],
        use(result, GATE_SUM, written),
        weights=cell.graph.link(weights),
        bias=use(bias),
    )
    added.name = f"{cell.op.name}/gate"
    return result


def _new_memory(cell: _Cell, memory: _State, gates: Sequence[WorkTensor]) -> _State:
    """Cell state * forget gate + cell gate * input gate, clipped if the file says so."""
    scale = memory.how.scale or 1.0
    kept = cell.tensor("kept")
    keep = Quant(_as_scale(scale, Q0_15, scale))
    old = replace(cell.state_link(memory.tensor, keep), zero_point=0)
    add_kernel(
        cell.graph, cell.op, KernelKind.MUL, [old, use(gates[FORGET], keep)], use(kept, keep)
    )
    fresh = cell.tensor("fresh")
    gain = Quant(_as_scale(Q0_15, Q0_15, scale))
    add_kernel(
        cell.graph,
        cell.op,
        KernelKind.MUL,
        [use(gates[CELL], gain), use(gates[INPUT], gain)],
        use(fresh, gain),
    )
    new = _alias(cell, CELL_STATE)
    target = cell.state_link(new, memory.how)
    add_kernel(
        cell.graph,
        cell.op,
        KernelKind.ADD,
        [use(kept, memory.how), use(fresh, memory.how)],
        target,
    )
    clip = cell.options.cell_clip
    if clip:
        high = scaling.quantize_value(clip, scale, memory.how.zero_point)
        low = scaling.quantize_value(-clip, scale, memory.how.zero_point)
        _clamp(cell, target, max(-32767, low), min(32767, high))
    return _State(new, memory.how)


def _as_scale(first: float, second: float, result: float) -> float:
    """Return a product's scale as the float that the graph carries."""
    return scaling.mul_scale(first, second, result).real


def _new_output(cell: _Cell, gate: WorkTensor, memory: _State) -> _State:
    """tanh(cell state) * output gate, in the quantisation of the output state."""
    bent = cell.tensor("bent")
    add_kernel(
        cell.graph,
        cell.op,
        KernelKind.TANH,
        [cell.state_link(memory.tensor, memory.how)],
        use(bent),
        ofm_scale=scaling.lstm_cell_scale(memory.how.scale or 1.0),
        activation=native_activation(cell.graph, KernelKind.TANH),
    )
    new = _alias(cell, OUTPUT_STATE)
    how = _tensor_quant(new)
    half = Quant(Q0_15)
    add_kernel(
        cell.graph,
        cell.op,
        KernelKind.MUL,
        [use(bent, half), use(gate, half)],
        cell.state_link(new, how),
    )
    return _State(new, how)


def _write_output(cell: _Cell, output: _State, time: int) -> None:
    """Copy the output state to its place in the result."""
    ofm = cell.op.ofm
    source = cell.state_link(output.tensor, quant(ofm))
    shape = (1, *ofm.shape)
    if cell.options.time_major:
        offset, size = (0, time, 0, 0), (1, 1, cell.rows, cell.units)
    else:
        offset, size = (0, cell.batch, time, 0), (1, 1, 1, cell.units)
    target = replace(ofm, shape=shape, slice_offset=offset, slice_shape=size)
    copy(cell.graph, cell.op, source, target)
