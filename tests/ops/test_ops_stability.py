"""Nothing in ``ops`` raises on ops that no converter would write."""

from __future__ import annotations

import string

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.hardware.target import Family
from npusched.ir import (
    ActivationKind,
    DataType,
    Model,
    Op,
    OpKind,
    Options,
    Padding,
    Quantization,
    Subgraph,
    Tensor,
)
from npusched.ir import options as ir
from npusched.ops import (
    CostClass,
    dilated_convolutions,
    host_work,
    place,
    placement,
    source_macs,
    unreachable_ops,
)

_SMALL = st.integers(0, 9)
_STEP = st.integers(1, 9)
_AXIS = st.integers(-7, 7)
_ACTIVATION = st.sampled_from(ActivationKind)
_PADDING = st.sampled_from(Padding)
_TYPES = {
    DataType.INT8: np.int8,
    DataType.UINT8: np.uint8,
    DataType.INT16: np.int16,
    DataType.INT32: np.int32,
    DataType.INT64: np.int64,
    DataType.FLOAT32: np.float32,
    DataType.BOOL: np.bool_,
}


def _options() -> st.SearchStrategy[Options]:
    return st.one_of(
        st.just(ir.NoOptions()),
        st.builds(
            ir.ConvOptions,
            padding=_PADDING,
            stride_h=_STEP,
            stride_w=_STEP,
            dilation_h=_STEP,
            dilation_w=_STEP,
            depth_multiplier=_SMALL,
            activation=_ACTIVATION,
        ),
        st.builds(
            ir.PoolOptions,
            padding=_PADDING,
            stride_h=_STEP,
            stride_w=_STEP,
            filter_h=_SMALL,
            filter_w=_SMALL,
            activation=_ACTIVATION,
        ),
        st.builds(ir.FullyConnectedOptions, activation=_ACTIVATION, keep_num_dims=st.booleans()),
        st.builds(ir.BinaryOptions, activation=_ACTIVATION),
        st.builds(ir.ConcatOptions, axis=_AXIS, activation=_ACTIVATION),
        st.builds(ir.AxisOptions, axis=_AXIS, count=_SMALL, batch_dims=_AXIS),
        st.builds(ir.SoftmaxOptions, beta=st.floats(-2, 2)),
        st.builds(
            ir.StridedSliceOptions,
            begin_mask=st.integers(0, 63),
            end_mask=st.integers(0, 63),
            ellipsis_mask=st.integers(0, 63),
            new_axis_mask=st.integers(0, 63),
            shrink_axis_mask=st.integers(0, 63),
        ),
        st.builds(ir.ResizeOptions, align_corners=st.booleans(), half_pixel_centers=st.booleans()),
        st.builds(ir.BatchMatMulOptions, adj_x=st.booleans(), adj_y=st.booleans()),
        st.builds(ir.LstmOptions, activation=_ACTIVATION),
    )


@st.composite
def _tensors(draw: st.DrawFn, index: int) -> Tensor:
    shape = tuple(draw(st.lists(_SMALL, max_size=6)))
    dtype = draw(st.sampled_from(list(DataType)))
    data: npt.NDArray[np.generic] | None = None
    if dtype in _TYPES and draw(st.booleans()):
        values = draw(st.integers(-9 if dtype.is_signed else 0, 9))
        data = np.full(shape, values).astype(_TYPES[dtype])
    count = draw(st.sampled_from((0, 1, 1, 1, 3)))
    scale = st.floats(width=32, allow_nan=True)
    quantization = Quantization(
        scales=tuple(draw(st.lists(scale, min_size=count, max_size=count))),
        zero_points=tuple(draw(st.lists(st.integers(-300, 300), min_size=count, max_size=count))),
        axis=draw(st.none() | _SMALL) if count > 1 else None,
    )
    return Tensor(
        index=index,
        name=draw(st.text(string.printable, max_size=8)),
        shape=shape,
        dtype=dtype,
        quantization=draw(st.none() | st.just(quantization)),
        data=data,
        dynamic_axes=tuple(a for a in (0, 1) if a < len(shape) and draw(st.booleans())),
    )


@st.composite
def _models(draw: st.DrawFn) -> Model:
    count = draw(st.integers(1, 8))
    tensors = tuple(draw(_tensors(i)) for i in range(count))
    index = st.integers(-1, count - 1)
    made = st.integers(0, count - 1)
    kinds = [OpKind.SPACE_TO_BATCH_ND, OpKind.CONV_2D, OpKind.BATCH_TO_SPACE_ND]
    ops = tuple(
        Op(
            index=i,
            kind=draw(st.sampled_from(list(OpKind)) | st.sampled_from(kinds)),
            inputs=tuple(draw(st.lists(index, max_size=5))),
            outputs=tuple(draw(st.lists(made, max_size=2))),
            options=draw(_options()),
        )
        for i in range(draw(st.integers(1, 4)))
    )
    graph = Subgraph(
        index=0,
        name="",
        tensors=tensors,
        ops=ops,
        inputs=tuple(draw(st.lists(made, max_size=2))),
        outputs=tuple(draw(st.lists(made, max_size=2))),
    )
    return Model(name="", sha256="", size_bytes=0, subgraphs=(graph,))


@settings(max_examples=400, deadline=None)
@given(_models())
def test_any_op_gets_an_answer(model: Model) -> None:
    graph = model.subgraphs[0]
    for family in Family:
        reasons = place(model, family)
        assert set(reasons) == {op.index for op in graph.ops}
        for found in reasons.values():
            assert all(r.limit and r.text and r.fix for r in found)
            assert all("\n" not in r.text for r in found)
        for match in dilated_convolutions(model, family):
            assert all(not reasons[index] for index in match.ops)
    for op in graph.ops:
        assert placement(graph, op, Family.U55) == placement(graph, op, Family.U55)
        assert source_macs(graph, op) >= 0
        work = host_work(graph, op)
        assert work.elements >= 0
        assert work.cost_class in CostClass
    assert unreachable_ops(graph) <= {op.index for op in graph.ops}
