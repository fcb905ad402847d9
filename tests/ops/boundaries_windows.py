"""Cases around the limits of windows, weights and products."""

from __future__ import annotations

from collections.abc import Iterator

from npusched.ir import OpKind
from npusched.ir.options import (
    BatchMatMulOptions,
    ConvOptions,
    FullyConnectedOptions,
)
from tests.ops.boundary_case import SAME, VALID, Boundary, conv, one, pool
from tests.ops.one_op import T, ints


def windows() -> Iterator[Boundary]:
    """Strides, kernels, dilations (LOWERING §2.4 rows 1-4)."""
    dw, tconv = OpKind.DEPTHWISE_CONV_2D, OpKind.TRANSPOSE_CONV
    avg, mx = OpKind.AVERAGE_POOL_2D, OpKind.MAX_POOL_2D
    yield conv("conv stride 3", stride=(3, 3))
    yield conv("conv stride 4 unpadded", stride=(4, 4))
    yield conv(
        "conv stride 4 same without effective padding",
        size=(8, 8),
        kernel=(4, 4),
        stride=(4, 4),
        padding=SAME,
    )
    yield conv(
        "conv stride 4 padded",
        size=(10, 10),
        kernel=(5, 5),
        stride=(4, 4),
        padding=SAME,
        u55="stride",
    )
    yield conv("conv stride 4 dilated", size=(16, 16), stride=(4, 4), dilation=(2, 2), u55="stride")
    yield conv(
        "conv stride 4 padded, one row and column out",
        size=(3, 3),
        kernel=(5, 5),
        stride=(4, 4),
        padding=SAME,
    )
    yield conv("conv stride 1x4 padded", kernel=(3, 5), stride=(1, 4), padding=SAME, u55="stride")
    yield conv("conv stride 4x1 padded, one row out", size=(3, 12), stride=(4, 1), padding=SAME)
    yield conv("conv dilation 4", dilation=(4, 4), size=(20, 20))
    yield conv("conv 80x80 kernel", size=(80, 80), kernel=(80, 80), depth=(1, 1))
    yield conv("depthwise stride 3", kind=dw, depth=(8, 8), stride=(3, 3))
    yield conv("depthwise stride 4", kind=dw, depth=(8, 8), stride=(4, 4), u55="stride")
    yield conv(
        "depthwise stride 4, one out",
        kind=dw,
        depth=(8, 8),
        size=(3, 3),
        stride=(4, 4),
        u55="stride",
    )
    yield conv("depthwise multiplier 2", kind=dw, depth=(4, 8))
    yield pool("average 8x8 padded", avg, (16, 16), (8, 8), padding=SAME)
    yield pool("average 9x8 padded", avg, (16, 16), (9, 8), padding=SAME, both="padded_kernel")
    yield pool("average 8x9 padded", avg, (16, 16), (8, 9), padding=SAME, both="padded_kernel")
    yield pool("average 9x9 same without padding", avg, (18, 18), (9, 9), (9, 9), SAME)
    yield pool("average 256 rows", avg, (257, 2), (256, 2))
    yield pool("average 257 rows", avg, (258, 2), (257, 2), both="kernel_height")
    yield pool("average 256x256", avg, (256, 257), (256, 256))
    yield pool("average 256x257", avg, (256, 258), (256, 257), both="kernel_area")
    yield pool("average 1x512", avg, (2, 513), (1, 512))
    yield pool("average stride 4 padded", avg, (10, 10), (5, 5), (4, 4), SAME, u55="stride")
    yield pool("average stride 4", avg, (12, 12), (4, 4), (4, 4))
    yield pool("max 256 rows", mx, (257, 2), (256, 2))
    yield pool("max 257 rows", mx, (258, 2), (257, 2), both="kernel_height")
    yield pool("max 256x257", mx, (256, 258), (256, 257), both="kernel_area")
    yield pool("max 9x9 padded", mx, (16, 16), (9, 9), padding=SAME)
    yield pool("max stride 4 padded", mx, (10, 10), (5, 5), (4, 4), SAME, u55="stride")
    yield pool("max int16", mx, (8, 8), (2, 2), (2, 2), dtype="int16")
    for stride, size, kernel, padding, out, u55, u85 in (
        ((1, 1), (4, 4), (3, 3), SAME, (4, 4), "", ""),
        ((2, 2), (4, 4), (3, 3), SAME, (8, 8), "", ""),
        ((2, 2), (4, 4), (3, 3), VALID, (9, 9), "", ""),
        ((2, 2), (4, 4), (1, 1), VALID, (8, 8), "", ""),
        ((2, 2), (4, 4), (3, 3), SAME, (7, 7), "result_shape", "result_shape"),
        ((2, 2), (4, 4), (3, 3), VALID, (10, 10), "result_shape", "result_shape"),
        ((3, 3), (4, 4), (3, 3), SAME, (12, 12), "stride", ""),
        ((1, 2), (1, 4), (1, 3), SAME, (1, 8), "", ""),
        ((1, 2), (4, 4), (3, 3), SAME, (4, 8), "stride", ""),
        ((1, 2), (1, 4), (3, 3), SAME, (1, 8), "stride", ""),
        ((2, 1), (4, 1), (3, 1), SAME, (8, 1), "", ""),
        ((2, 1), (4, 4), (3, 3), SAME, (8, 4), "stride", ""),
    ):
        inputs = (
            ints(1, *out, 8),
            T((8, *kernel, 4), values=1),
            T((1, *size, 4)),
            T((8,), "int32", None, values=0),
        )
        options = ConvOptions(padding=padding, stride_h=stride[0], stride_w=stride[1])
        name = f"transpose conv {size} {kernel} by {stride} to {out} {padding}"
        yield one(name, tconv, inputs, T((1, *out, 8)), options, u55=u55, u85=u85)


def weights() -> Iterator[Boundary]:
    """Weights and biases (LOWERING §2.2)."""
    limit = 127 * 65536
    side = 256
    for name, value, last, u85 in (
        ("at the limit", 127, 127, ""),
        ("above the limit", 127, 128, "weight_sum"),
    ):
        total = limit // 127
        row = [value] * (total - 1) + [last if last < 128 else -128]
        w = T((1, side, side, 1), values=row)
        yield conv(
            f"weight sum {name}",
            size=(side, side),
            kernel=(side, side),
            depth=(1, 1),
            weights=w,
            u55=u85,
            u85=u85,
        )
        w16 = T((1, side, side, 1), values=row)
        yield conv(
            f"weight sum int16 {name}",
            size=(side, side),
            kernel=(side, side),
            depth=(1, 1),
            dtype="int16",
            weights=w16,
            u55=u85,
        )
    yield conv("int4 weights", weights=T((8, 3, 3, 4), "int16", 0.5, values=1), both="weight_type")
    yield conv(
        "float weights", weights=T((8, 3, 3, 4), "float32", 0.5, values=1), both="weight_type"
    )
    yield conv(
        "unquantised weights", weights=T((8, 3, 3, 4), scale=None, values=1), both="quantisation"
    )
    yield conv("per-channel weights", weights=T((8, 3, 3, 4), scale=(0.5,) * 8, values=1))
    yield conv("int64 bias with int16", dtype="int16", bias=T((8,), "int64", None, values=1))
    yield conv("int16 bias", bias=T((8,), "int16", 0.5, values=1), both="bias_type")
    yield conv("bias 2**40 - 1", dtype="int16", bias=T((8,), "int64", None, values=(1 << 40) - 1))
    yield conv(
        "bias 2**40", dtype="int16", bias=T((8,), "int64", None, values=1 << 40), u55="bias_range"
    )
    yield conv(
        "bias 2**48", dtype="int16", bias=T((8,), "int64", None, values=1 << 48), both="bias_range"
    )
    yield conv("bias -2**41", dtype="int16", bias=T((8,), "int64", None, values=-(1 << 39)))
    yield conv("computed bias", bias=T((8,), "int32", None), both="bias_constant")
    yield conv("bias shape", bias=T((8, 1), "int32", None, values=0), both="bias_shape")
    x = T((1, 16))
    no_bias = None
    for name, w, both in (
        ("matrix", T((4, 16), values=1), ""),
        ("rank 4", T((4, 1, 1, 16), values=1), ""),
        ("rank 3 (crash)", T((4, 2, 8), values=1), "weight_shape"),
    ):
        yield one(
            f"fully connected {name}",
            OpKind.FULLY_CONNECTED,
            (x, w, no_bias),
            T((1, 4)),
            FullyConnectedOptions(),
            both=both,
        )
    dynamic = T((4, 16))
    yield one(
        "fully connected computed int8 weights",
        OpKind.FULLY_CONNECTED,
        (x, dynamic, None),
        T((1, 4)),
        FullyConnectedOptions(),
    )
    yield one(
        "fully connected computed weights, int16",
        OpKind.FULLY_CONNECTED,
        (T((1, 16), "int16"), dynamic, None),
        T((1, 4), "int16"),
        FullyConnectedOptions(),
        u55="product_type",
    )
    a, b = T((1, 4, 16)), T((1, 16, 8))
    yield one("matmul", OpKind.BATCH_MATMUL, (a, b), T((1, 4, 8)), BatchMatMulOptions())
    yield one(
        "matmul int16",
        OpKind.BATCH_MATMUL,
        (T((1, 4, 16), "int16"), T((1, 16, 8), "int16")),
        T((1, 4, 8), "int16"),
        BatchMatMulOptions(),
        u55="product_type",
    )
    yield one(
        "matmul adj_y",
        OpKind.BATCH_MATMUL,
        (a, T((1, 8, 16))),
        T((1, 4, 8)),
        BatchMatMulOptions(adj_y=True),
    )
    yield one(
        "matmul leading axes differ",
        OpKind.BATCH_MATMUL,
        (T((2, 4, 16)), T((3, 16, 8))),
        T((3, 4, 8)),
        BatchMatMulOptions(),
        both="matrix_shapes",
    )
