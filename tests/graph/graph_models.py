"""Small models by name, and scheduled ops as short lines: what the graph tests compare."""

from __future__ import annotations

from collections.abc import Callable

from npusched.graph.build import build_graph
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import NOT_STORED, Access, Layout, Placement, ScheduledOp
from npusched.hardware.target import Family
from npusched.ir import Model, OpKind
from npusched.tflite import read_model
from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref

Make = Callable[[Builder], Ref | tuple[Ref, ...]]
"""Adds ops to a builder and returns the graph outputs."""

Shape = tuple[int, ...]


def model_of(make: Make, name: str = "m") -> Model:
    """Return the model that ``make`` builds."""
    b = Builder(name)
    results = make(b)
    b.output(*(results if isinstance(results, tuple) else (results,)))
    return read_model(b.build(), name)


def graph_of(make: Make, family: Family | None) -> OpGraph:
    """Return the scheduled graph of the model that ``make`` builds."""
    return build_graph(model_of(make), family)


def lines(graph: OpGraph) -> list[str]:
    """Return one line per scheduled op (see ``line``)."""
    return [line(graph, op) for op in graph.ops]


def line(graph: OpGraph, op: ScheduledOp) -> str:
    """Kernel, members, inputs, result, window and count: ``Conv2D+Relu 1x8x8x3 -> ...``.

    A map is written as its shape, with ``b`` if it is stored in bricks, ``@`` and its place if
    only a part is touched, ``/`` and the steps if rows or columns are skipped, ``k`` if it is
    constant; members behind ``+`` are fused, those with ``*`` are chained. The window is ``k``
    size ``s`` stride ``d`` dilation ``p`` top, left, bottom, right padding, each left out where
    it is trivial; ``x`` at the end is the number of pieces.
    """
    members = "+".join([op.kind.value, *(_member(sub.kind, sub.chained) for sub in op.sub_ops)])
    reads = " ".join(_map(graph, access) for access in op.reads)
    writes = " ".join(_map(graph, access) for access in op.writes)
    count = f" x{op.count}" if op.count > 1 else ""
    return f"{members} {reads} -> {writes}{_window(op)}{count}"


def _member(kind: str, chained: bool) -> str:
    return f"{kind}*" if chained else f"{kind}"


def _map(graph: OpGraph, access: Access) -> str:
    fm = None if access.tensor == NOT_STORED else graph.feature_maps[access.tensor]
    text = _times(access.shape)
    if fm is not None and fm.layout is Layout.NHCWB16:
        text += "b"
    if fm is not None and fm.is_constant:
        text += "k"
    if access.is_slice or any(access.offset):
        text += f"@{_times(access.offset)}"
    if (access.step_h, access.step_w) != (1, 1):
        text += f"/{access.step_h}x{access.step_w}"
    return text


def _times(sizes: Shape) -> str:
    return "x".join(map(str, sizes))


def _window(op: ScheduledOp) -> str:
    if op.placement is Placement.CPU:
        return ""
    kernel = op.kernel
    text = ""
    if (kernel.h, kernel.w) != (1, 1):
        text += f" k{kernel.h}x{kernel.w}"
    if (kernel.stride_h, kernel.stride_w) != (1, 1):
        text += f" s{kernel.stride_h}x{kernel.stride_w}"
    if (kernel.dilation_h, kernel.dilation_w) != (1, 1):
        text += f" d{kernel.dilation_h}x{kernel.dilation_w}"
    pads = (kernel.pad_top, kernel.pad_left, kernel.pad_bottom, kernel.pad_right)
    return text + (f" p{','.join(map(str, pads))}" if any(pads) else "")


def on(
    shape: Shape, then: Callable[[Builder, Ref], Ref | tuple[Ref, ...]], dtype: str = "int8"
) -> Make:
    """A model with one input ``x``."""
    return lambda b: then(b, b.input("x", shape, dtype))


def dilated_by_batches(b: Builder, x: Ref) -> Ref:
    """A convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: one of dilation 2."""
    block = b.const([2, 2])
    apart = b.apply(OpKind.SPACE_TO_BATCH_ND, [x, block, b.const([(2, 2), (2, 2)])], like=x)
    y = b.conv2d(apart, 8, 3, padding="VALID")
    return b.apply(OpKind.BATCH_TO_SPACE_ND, [y, block, b.const([(0, 0), (0, 0)])], like=y)


def inception(b: Builder, x: Ref) -> Ref:
    """Three branches, concatenated by channels."""
    scale, zero_point = x.scale, x.zero_point
    one = b.conv2d(x, 16, 1, scale=scale, zero_point=zero_point)
    three = b.conv2d(x, 16, 3, scale=scale, zero_point=zero_point)
    pooled = b.max_pool2d(x, 3, stride=1, padding="SAME")
    return b.conv2d(b.concat([one, three, pooled]), 8, 1)


def halves(b: Builder, x: Ref) -> Ref:
    """Two halves of the channels go separate ways."""
    left, right = b.split(b.conv2d(x, 32, 1), 2)
    return b.add(b.conv2d(left, 8, 3), b.conv2d(right, 8, 1))


def recurrent(b: Builder, x: Ref) -> Ref:
    """A variable is read, added to, and assigned."""
    handle = b.var_handle("state")
    before = b.read_variable(handle, x.shape, scale=x.scale, zero_point=x.zero_point or 0)
    after = b.add(b.conv2d(x, x.shape[3], 1), before, scale=x.scale, zero_point=x.zero_point)
    b.assign_variable(handle, after)
    return b.relu(after)


def on_cpu(b: Builder, x: Ref, name: str) -> Ref:
    """A custom op, which only the CPU can run."""
    out = b.tensor(name, x.shape, "int8", scale=x.scale, zero_point=x.zero_point)
    b.custom("Mystery", [x], [out])
    return out


IMAGE = (1, 8, 8, 16)

MODELS: dict[str, Make] = {
    "conv": on((1, 9, 8, 3), lambda b, x: b.conv2d(x, 16, 3, stride=2, activation="RELU6")),
    "conv_int16": on(IMAGE, lambda b, x: b.conv2d(x, 8, 3), dtype="int16"),
    "depthwise": on(IMAGE, lambda b, x: b.depthwise_conv2d(x, (5, 3), activation="RELU")),
    "depthwise_of_one": on((1, 8, 8, 1), lambda b, x: b.depthwise_conv2d(x, 3, multiplier=8)),
    "dilated": on(IMAGE, lambda b, x: b.conv2d(x, 8, 3, dilation=2)),
    "dilated_3": on(IMAGE, lambda b, x: b.conv2d(x, 8, 3, dilation=3)),
    "dilated_by_batches": on(IMAGE, dilated_by_batches),
    "far_stride": on((1, 16, 16, 16), lambda b, x: b.conv2d(x, 8, 4, stride=4, padding="VALID")),
    "batch": on((3, 8, 8, 16), lambda b, x: b.conv2d(x, 8, 3)),
    "wide": on((1, 2, 70000, 4), lambda b, x: b.conv2d(x, 4, 1)),
    "dense": on((1, 64), lambda b, x: b.fully_connected(x, 10)),
    "dense_rows": on((6, 64), lambda b, x: b.fully_connected(x, 10)),
    "max_pool": on(IMAGE, lambda b, x: b.max_pool2d(x, 2)),
    "avg_pool": on(IMAGE, lambda b, x: b.avg_pool2d(x, 3, stride=2, padding="SAME")),
    "avg_pool_far": on(IMAGE, lambda b, x: b.avg_pool2d(x, 4)),
    "residual": on(IMAGE, lambda b, x: b.add(b.conv2d(x, 16, 3), x, activation="RELU")),
    "broadcast": on(IMAGE, lambda b, x: b.mul(x, b.input("y", (1, 1, 1, 16)))),
    "scalar": on(IMAGE, lambda b, x: b.sub(x, b.const([[[[5]]]], "int8", scale=0.1))),
    "minimum": on(IMAGE, lambda b, x: b.minimum(x, b.max_pool2d(x, 1))),
    "relu": on(IMAGE, lambda b, x: b.relu(x)),
    "requantise": on(IMAGE, lambda b, x: b.quantize(b.max_pool2d(x, 2), scale=0.7)),
    "requantise_input": on(IMAGE, lambda b, x: b.quantize(x, "uint8", scale=0.7)),
    "logistic": on(IMAGE, lambda b, x: b.logistic(b.conv2d(x, 16, 1))),
    "chain": on(IMAGE, lambda b, x: b.sub(b.mul(b.add(x, x), b.input("y", IMAGE)), x)),
    "inception": on(IMAGE, inception),
    "concat_rows": on(IMAGE, lambda b, x: b.concat([b.relu(x), b.max_pool2d(x, 1)], 1)),
    "concat_5_channels": on(
        (1, 4, 4, 5), lambda b, x: b.concat([b.max_pool2d(x, 1), b.max_pool2d(x, 1)])
    ),
    "pack": on((1, 8, 16), lambda b, x: b.pack([b.abs(x), b.neg(x)], 1)),
    "unpack": on((1, 2, 8, 16), lambda b, x: b.add(*b.unpack(b.abs(x), 1))),
    "halves": on(IMAGE, halves),
    "slice": on(IMAGE, lambda b, x: b.conv2d(b.slice(x, (0, 2, 1, 0), (1, 4, 6, 16)), 8, 1)),
    "slice_out": on(IMAGE, lambda b, x: b.slice(x, (0, 2, 1, 0), (1, 4, 6, 16))),
    "every_second": on(
        IMAGE,
        lambda b, x: b.conv2d(
            b.strided_slice(b.conv2d(x, 16, 1), (0, 0, 0, 0), (1, 8, 8, 16), (1, 2, 2, 1)), 8, 1
        ),
    ),
    "reshape_view": on(IMAGE, lambda b, x: b.fully_connected(b.reshape(b.relu(x), (1, -1)), 4)),
    "reshape_only": on(IMAGE, lambda b, x: b.reshape(x, (1, 64, 16))),
    "squeeze": on((1, 1, 1, 16), lambda b, x: b.expand_dims(b.squeeze(b.abs(x), (1, 2)), 0)),
    "pad_swallowed": on(
        IMAGE,
        lambda b, x: b.conv2d(
            b.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), 8, 3, stride=2, padding="VALID"
        ),
    ),
    "pad_filled": on(IMAGE, lambda b, x: b.abs(b.pad(x, ((0, 0), (1, 2), (0, 3), (0, 0))))),
    "pad_value": on(IMAGE, lambda b, x: b.pad_v2(b.abs(x), ((0, 0), (0, 0), (0, 0), (0, 16)), 9)),
    "constant_requantised": on(
        IMAGE,
        lambda b, x: b.add(x, b.quantize(b.const([[[[7]]]], "int8", scale=0.1), scale=0.2)),
    ),
    "slice_of_pixel_enlarged": on(
        IMAGE, lambda b, x: b.resize_nearest(b.slice(x, (0, 1, 2, 0), (1, 1, 1, 8)), (2, 2))
    ),
    "long_transpose": on((1, 2, 70000, 3), lambda b, x: b.transpose(x, (0, 2, 3, 1))),
    "long_maximum": on(
        (1, 1, 1, 70000), lambda b, x: b.reduce(OpKind.REDUCE_MAX, x, (3,), keep_dims=True)
    ),
    "with_custom": on(IMAGE, lambda b, x: b.conv2d(on_cpu(b, b.conv2d(x, 8, 3), "y"), 4, 1)),
    "variable": on(IMAGE, recurrent),
}
