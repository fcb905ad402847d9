"""Tables, biases and per-channel scales, byte for byte as Vela 5.2 stores them in its output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from npusched.graph.build import build_graph
from npusched.graph.types import Activation, KernelKind, ScheduledOp
from npusched.hardware import load_target
from npusched.hardware.target import Family
from npusched.tflite.reader import read_model
from npusched.vela.runner import compile_model
from tests.graph.lower.lower_models import build, families
from tests.graph.lower.test_lower_vela import OPTIONS, TARGETS, VELA_CANNOT

KINDS = ("softmax", "activations", "reduce", "conv", "resize", "lstm")
MODELS = {
    name: make
    for kind, makes in families().items()
    if kind in KINDS
    for name, make in makes.items()
}


def _tables(ops: tuple[ScheduledOp, ...]) -> Iterator[Activation]:
    for op in ops:
        for activation in (op.activation, *(sub.activation for sub in op.sub_ops)):
            if activation is not None and activation.lut is not None:
                yield activation


def _packed_table(activation: Activation) -> bytes:
    """512 words or 256 entries of the table's type, little endian."""
    table = np.array(activation.lut, np.int64)
    if len(table) == 512:
        return (table & 0xFFFFFFFF).astype("<u4").tobytes()
    assert activation.lut_dtype is not None
    width = activation.lut_dtype.bits // 8
    return (table & ((1 << activation.lut_dtype.bits) - 1)).astype(f"<u{width}").tobytes()


def _packed_scales(op: ScheduledOp, family: Family) -> bytes:
    """10 bytes per channel: bias, multiplier, shift (and on U85 a zero).

    U55/U65: 5, 4 and 1 bytes (SIM.md §3). U85: 4, 4, 1, or 6, 2, 1 with 48-bit accumulators (Vela
    5.2.0, ``ethos_u85_weight_encoder.cpp``).
    """
    weights, rescale = op.weights, op.ofm_rescale
    assert weights is not None
    wide = op.ifms[0].dtype.bits == 16 and op.accumulator_scaled
    sizes = (5, 4) if family is Family.U55 else (6, 2) if wide else (4, 4)
    bias = weights.bias or (0,)
    multipliers, shifts = ((1,), (0,)) if rescale is None else (rescale.multipliers, rescale.shifts)
    found = bytearray()
    for channel in range(weights.shape[0]):
        for values, size in zip((bias, multipliers), sizes, strict=True):
            found += (_at(values, channel) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        found += bytes([_at(shifts, channel) & 63])
        found += bytes(9 - sum(sizes))
    return bytes(found)


def _at(values: tuple[int, ...], index: int) -> int:
    return values[index] if len(values) > 1 else values[0]


@pytest.mark.parametrize("family", TARGETS, ids=lambda family: family.value)
@pytest.mark.parametrize("name", MODELS)
def test_constants_are_in_velas_output(name: str, family: Family) -> None:
    if name in VELA_CANNOT.get(family.value, ()):
        return
    content = build(MODELS[name])
    graph = build_graph(read_model(content, name), family)
    target = load_target(TARGETS[family])
    compiled = compile_model(content, target, OPTIONS, cache=None).compiled
    for activation in _tables(graph.ops):
        assert _packed_table(activation) in compiled, activation.function
    for op in graph.ops:
        if op.weights is not None and op.kind is not KernelKind.CPU:
            assert _packed_scales(op, family) in compiled, op.name
