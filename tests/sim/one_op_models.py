"""More models with one op: types and shapes beyond ``sim_models``, and those that are no equal."""

from __future__ import annotations

from collections.abc import Callable

from npusched.ir import OpKind
from tests.sim.sim_models import SHAPE, one_op, reduced, two_operands

PADS = ((0, 0), (1, 2), (0, 1), (0, 0))

MORE: dict[str, Callable[[], bytes]] = {
    **{f"{name}_int32": two_operands(name, dtype="int32") for name in ("add", "sub", "mul")},
    "add_int32_scalar": two_operands("add", (1, 1, 1, 1), dtype="int32"),
    "sub_uint8": two_operands("sub", dtype="uint8"),
    "minimum_uint8": two_operands("minimum", dtype="uint8"),
    **{f"{name}_int16": two_operands(name, dtype="int16") for name in ("minimum", "maximum")},
    "add_broadcast_int16": two_operands("add", (1, 1, 1, 13), dtype="int16"),
    "mul_broadcast_h": two_operands("mul", (1, 9, 1, 1)),
    "add_relu_n1": two_operands("add", activation="RELU_N1_TO_1"),
    "conv_s2x1": one_op("conv2d", 8, 3, stride=(2, 1)),
    "conv_even": one_op("conv2d", 8, (4, 2), stride=2, shape=(1, 11, 9, 5)),
    "conv_int16_s2": one_op("conv2d", 9, 3, stride=2, dtype="int16"),
    "conv_uint8_dilated": one_op("conv2d", 9, 3, dilation=(1, 2), dtype="uint8"),
    "depthwise_x5_of_one": one_op("depthwise_conv2d", 3, multiplier=5, shape=(1, 8, 8, 1)),
    "depthwise_s3": one_op("depthwise_conv2d", 4, stride=3, shape=(1, 16, 13, 5)),
    "depthwise_valid": one_op("depthwise_conv2d", (3, 2), padding="VALID"),
    "tconv_s1": one_op("transpose_conv", 4, 3, stride=1),
    "tconv_uint8": one_op("transpose_conv", 4, dtype="uint8"),
    "tconv_int16": one_op("transpose_conv", 4, dtype="int16"),
    "fc_uint8": one_op("fully_connected", 10, shape=(1, 64), dtype="uint8"),
    "fc_int16": one_op("fully_connected", 10, shape=(1, 64), dtype="int16"),
    "max_pool_s3": one_op("max_pool2d", 4, stride=3, padding="SAME"),
    "avg_pool_uint8": one_op("avg_pool2d", 3, stride=1, padding="SAME", dtype="uint8"),
    "mean_uint8": one_op("mean", keep_dims=True, dtype="uint8"),
    "mean_int16": one_op("mean", keep_dims=True, dtype="int16"),
    "reduce_min": lambda: reduced(OpKind.REDUCE_MIN, 1),
    **{f"{name}_int16": one_op(name, dtype="int16") for name in ("relu", "relu6", "abs", "neg")},
    **{f"{name}_uint8": one_op(name, dtype="uint8") for name in ("relu", "gelu", "leaky_relu")},
    **{f"{name}_uint8": one_op(name, dtype="uint8") for name in ("logistic", "tanh")},
    "log": one_op("log"),
    "log_int16": one_op("log", dtype="int16"),
    "softmax_batch": one_op("softmax", shape=(6, 17)),
    "arg_max": one_op("arg_max"),
    "tile": one_op("tile", (1, 2, 1, 1)),
    "mirror_pad": one_op("mirror_pad", ((0, 0), (1, 1), (1, 1), (0, 0))),
    "pad_uint8": one_op("pad", PADS, dtype="uint8"),
    "pad_c": one_op("pad", ((0, 0), (0, 0), (0, 0), (1, 2))),
    "pad_v2": one_op("pad_v2", PADS, 5),
    "split_v": one_op("split_v", (3, 5, 5)),
    "unpack": one_op("unpack", 1, shape=(1, 4, 5, 6)),
    "resize_bilinear_int16": one_op("resize_bilinear", (18, 14), dtype="int16"),
    "resize_bilinear_align": one_op("resize_bilinear", (17, 13), align_corners=True),
    "resize_nearest_uint8": one_op("resize_nearest", (18, 14), dtype="uint8"),
    "resize_nearest_align": one_op("resize_nearest", (17, 13), align_corners=True),
    "resize_nearest_x4": one_op("resize_nearest", (36, 28)),
    "transpose_int16": one_op("transpose", (0, 2, 1, 3), dtype="int16"),
    "to_int16": one_op("quantize", "int16", scale=0.001, zero_point=0),
    "int16_to_int8": one_op("quantize", "int8", scale=0.1, zero_point=3, dtype="int16"),
    "reshape": one_op("reshape", (1, 63, 13)),
}
"""Exact on every accelerator."""

UNEQUAL: dict[str, tuple[Callable[[], bytes], str]] = {
    "sum": (one_op("sum"), "8-bit SUM"),
    "neg": (one_op("neg"), "8-bit NEG"),
    "prelu_int16": (one_op("prelu", dtype="int16"), "int16 PRELU"),
    "transpose_uint8": (one_op("transpose", (0, 2, 1, 3), dtype="uint8"), "uint8 TRANSPOSE"),
}
"""Different, with an exception that the proof names."""

REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "logistic_int16": (one_op("logistic", dtype="int16"), "the SIGMOID unit .* not published"),
    "tanh_int16": (one_op("tanh", dtype="int16"), "the TANH unit .* not published"),
    "elu": (one_op("elu"), "LiteRT cannot run the model"),
    "rsqrt": (one_op("rsqrt"), "LiteRT cannot run the model"),
    "squared_difference_int16": (
        two_operands("squared_difference", dtype="int16"),
        "LiteRT cannot run the model",
    ),
    "minimum_int32": (two_operands("minimum", dtype="int32"), "holds no NPU operator"),
    "gelu_int16": (one_op("gelu", dtype="int16"), "holds no NPU operator"),
    "batch_matmul_int16": (
        two_operands("batch_matmul", (1, 2, 7, 3), x=(1, 2, 5, 7), dtype="int16"),
        "holds no NPU operator",
    ),
    "prelu_uint8": (one_op("prelu", dtype="uint8"), "Vela cannot compile"),
    "hard_swish_int16": (one_op("hard_swish", dtype="int16"), "Vela cannot compile"),
}
"""Not comparable, and why: the error says it."""

assert SHAPE[3] == 13, "the broadcast and split sizes above belong to this shape"
