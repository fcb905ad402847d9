"""Scheduled ops carry what they compute: weights, scalings, clamps, padding, pieces."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from npusched.graph.types import KernelKind, Rescale, ScheduledOp
from npusched.hardware.target import Family
from npusched.ir import DataType
from tests.graph.graph_models import IMAGE, MODELS, Make, graph_of, model_of, on


def _factors(rescale: Rescale | None) -> list[float]:
    assert rescale is not None
    return [m * 2.0**-s for m, s in zip(rescale.multipliers, rescale.shifts, strict=True)]


def _only(make: Make, family: Family = Family.U55) -> ScheduledOp:
    (op,) = graph_of(make, family).ops
    return op


def _written(op: ScheduledOp) -> Counter[tuple[int, ...]]:
    """Where the pieces of an op write, element by element."""
    assert op.pieces is not None
    found: Counter[tuple[int, ...]] = Counter()
    for place in itertools.product(*map(range, op.pieces.grid)):
        axes = [
            range(at + step * index, at + step * index + size)
            for at, step, index, size in zip(
                op.ofm.offset, op.pieces.ofm_step, place, op.ofm.shape, strict=True
            )
        ]
        found.update(itertools.product(*axes))
    return found


@pytest.mark.parametrize("family", list(Family))
def test_convolutions_scale_per_channel(family: Family) -> None:
    model = model_of(MODELS["conv_int16"])
    (op,) = graph_of(MODELS["conv_int16"], family).ops
    tensors = model.subgraphs[0].tensors
    x, w, _, y = (
        tensors[i].quantization
        for i in (*model.subgraphs[0].ops[0].inputs, *model.subgraphs[0].outputs)
    )
    assert x is not None
    assert w is not None
    assert y is not None
    expected = [x.scales[0] * scale / y.scales[0] for scale in w.scales]
    assert _factors(op.ofm_rescale) == pytest.approx(expected, rel=1e-4)
    assert not op.ifm_rescales


def test_weights_are_those_of_the_file() -> None:
    model = model_of(MODELS["conv"])
    op = _only(MODELS["conv"])
    weights = model.subgraphs[0].tensors[model.subgraphs[0].ops[0].inputs[1]]
    assert op.weights is not None
    assert op.weights.values is not None
    assert op.weights.source == (0, model.subgraphs[0].ops[0].inputs[1])
    np.testing.assert_array_equal(op.weights.values, weights.data)
    assert op.weights.bias is not None
    assert len(op.weights.bias) == op.weights.shape[0] == 16
    assert op.has_scales


def test_far_dilation_becomes_zero_taps() -> None:
    model = model_of(MODELS["dilated_3"])
    op = _only(MODELS["dilated_3"])
    data = model.subgraphs[0].tensors[model.subgraphs[0].ops[0].inputs[1]].data
    assert op.weights is not None
    assert op.weights.values is not None
    assert data is not None
    assert op.weights.shape == (8, 7, 7, 16)
    np.testing.assert_array_equal(op.weights.values[:, ::3, ::3], data)
    assert np.count_nonzero(op.weights.values) == np.count_nonzero(data)


def test_dense_rows_become_pixels_without_changing_weights() -> None:
    one, rows = _only(MODELS["dense"]), _only(MODELS["dense_rows"])
    assert one.weights is not None
    assert rows.weights is not None
    assert one.weights.shape == rows.weights.shape == (10, 1, 1, 64)


def test_clamps_are_in_units_of_the_result() -> None:
    op = _only(MODELS["conv"])
    activation = op.sub_ops[0].activation
    assert activation is not None
    ofm = op.final_ofm
    assert ofm.scale is not None
    assert activation.minimum == ofm.zero_point
    assert activation.maximum == round(6 / ofm.scale) + ofm.zero_point


def test_tables_have_an_entry_per_value() -> None:
    op = _only(MODELS["logistic"])
    activation = op.sub_ops[0].activation
    assert activation is not None
    assert activation.lut is not None
    assert len(activation.lut) == 256
    assert list(activation.lut) == sorted(activation.lut)


def test_additions_bring_inputs_to_one_scale() -> None:
    graph = graph_of(MODELS["residual"], Family.U55)
    add = graph.ops[1]
    a, b = (access.scale for access in add.ifms)
    assert a is not None
    assert b is not None
    assert add.final_ofm.scale is not None
    left, right = (_factors(r)[0] for r in add.ifm_rescales)
    (out,) = _factors(add.ofm_rescale)
    assert left * out == pytest.approx(a / add.final_ofm.scale, rel=1e-3)
    assert right * out == pytest.approx(b / add.final_ofm.scale, rel=1e-3)


def test_pools_do_not_apply_zero_points() -> None:
    op = _only(MODELS["avg_pool"])
    assert (op.ifms[0].zero_point, op.ofm.zero_point) == (0, 0)
    assert op.ofm_rescale is None


def test_fills_hold_the_value_that_stands_for_zero() -> None:
    graph = graph_of(MODELS["pad_filled"], Family.U55)
    fills = [graph.feature_maps[op.ifms[0].tensor] for op in graph.ops[1:4]]
    source = graph.feature_maps[graph.inputs[0]].quantization
    assert source is not None
    for fill in fills:
        assert fill.data is not None
        assert set(fill.data.reshape(-1).tolist()) == {source.zero_points[0]}
    value = graph_of(MODELS["pad_value"], Family.U55)
    data = value.feature_maps[value.ops[1].ifms[0].tensor].data
    assert data is not None
    assert set(data.reshape(-1).tolist()) == {9}


def test_constant_scalars_are_held_as_maps() -> None:
    graph = graph_of(MODELS["scalar"], Family.U55)
    constant = graph.feature_maps[graph.ops[0].ifms[1].tensor]
    assert constant.is_constant
    assert constant.data is not None
    assert constant.data.reshape(-1).tolist() == [5]


@pytest.mark.parametrize("name", ["far_stride", "batch", "avg_pool_far", "wide"])
@pytest.mark.parametrize("family", list(Family))
def test_pieces_write_every_element_once(name: str, family: Family) -> None:
    op = _only(MODELS[name], family)
    if name == "wide":
        assert op.count * op.ofm.elements == 2 * 70000 * 4
        return
    written = _written(op)
    assert set(written.values()) == {1}
    assert len(written) == np.prod(op.ofm.view)


def test_far_strides_run_from_the_end() -> None:
    pieces = _only(MODELS["far_stride"]).pieces
    assert pieces is not None
    assert pieces.backwards
    assert pieces.grid == (1, 4, 4, 1)
    assert pieces.ifm_steps == ((1, 4, 4, 0),)
    assert pieces.ofm_step == (1, 1, 1, 0)


def test_swallowed_pads_are_padding() -> None:
    kernel = _only(MODELS["pad_swallowed"]).kernel
    assert (kernel.pad_top, kernel.pad_left, kernel.pad_bottom, kernel.pad_right) == (1, 1, 0, 0)


def test_windows_and_padding_make_the_result() -> None:
    for name in ("conv", "depthwise", "dilated", "max_pool", "avg_pool", "pad_swallowed"):
        op = _only(MODELS[name])
        kernel, (_, h, w, _), (_, out_h, out_w, _) = op.kernel, op.ifms[0].shape, op.ofm.shape
        need_h = (out_h - 1) * kernel.stride_h + kernel.dilated_h
        need_w = (out_w - 1) * kernel.stride_w + kernel.dilated_w
        assert need_h <= h + kernel.pad_top + kernel.pad_bottom < need_h + kernel.stride_h
        assert need_w <= w + kernel.pad_left + kernel.pad_right < need_w + kernel.stride_w


def test_negation_is_a_subtraction_from_zero() -> None:
    graph = graph_of(on(IMAGE, lambda b, x: b.neg(x)), Family.U55)
    (op,) = graph.ops
    assert op.kind is KernelKind.SUB
    constant = graph.feature_maps[op.ifms[0].tensor]
    assert constant.data is not None
    assert int(constant.data.reshape(-1)[0]) == op.ifms[0].zero_point


def test_constants_are_requantised_beforehand() -> None:
    model = model_of(MODELS["constant_requantised"])
    after, before = (
        next(t for t in model.subgraphs[0].tensors if t.index == index)
        for index in (model.subgraphs[0].ops[0].outputs[0], model.subgraphs[0].ops[0].inputs[0])
    )
    graph = graph_of(MODELS["constant_requantised"], Family.U85)
    (constant,) = (fm for fm in graph.feature_maps.values() if fm.is_constant)
    assert constant.data is not None
    assert before.quantization is not None
    assert after.quantization is not None
    value = (7 - before.quantization.zero_points[0]) * 0.1 / 0.2
    assert constant.data.reshape(-1)[0] == round(value + 0.25) + after.quantization.zero_points[0]


def test_element_types() -> None:
    op = _only(MODELS["requantise_input"])
    assert (op.ifms[0].dtype, op.ofm.dtype) == (DataType.INT8, DataType.UINT8)
    assert op.kind is KernelKind.QUANTIZE
