"""Small models of one or a few ops, by name: what the lowering tests run on."""

from __future__ import annotations

import numpy as np

from npusched.ir import OpKind, Padding
from npusched.ir.options import (
    ConvOptions,
    FullyConnectedOptions,
    LeakyReluOptions,
    SoftmaxOptions,
)
from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref
from tests.graph.lower.lower_model_kit import Make, Shape, on, pair
from tests.graph.lower.lower_models_moves import logic, moves, variables


def _softmaxes() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for dtype in ("int8", "uint8", "int16"):
        for shape in (
            (1, 10),
            (1, 4, 4, 10),
            (2, 7, 12),
            (1, 1, 32, 5),
            (1, 20, 1, 6),
            (3, 2, 17, 4),
        ):
            label = "x".join(map(str, shape))
            found[f"softmax_{dtype}_{label}"] = on(shape, lambda b, x: b.softmax(x), dtype)
    found["softmax_beta"] = on((1, 12), lambda b, x: b.softmax(x, beta=0.5))
    found["softmax_int8_to_int16"] = on(
        (1, 12),
        lambda b, x: b.apply(
            OpKind.SOFTMAX,
            [x],
            SoftmaxOptions(beta=1.0),
            dtype="int16",
            scale=1 / 65536,
            zero_point=-32768,
        ),
    )
    return found


def _activations() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for dtype in ("int8", "uint8", "int16"):
        for kind in ("logistic", "tanh"):
            found[f"{kind}_{dtype}"] = on(
                (1, 5, 6, 16), lambda b, x, k=kind: getattr(b, k)(x), dtype
            )
    for dtype in ("int8", "uint8"):
        for kind in ("hard_swish", "gelu"):
            found[f"{kind}_{dtype}"] = on(
                (1, 5, 6, 16), lambda b, x, k=kind: getattr(b, k)(x), dtype
            )
    found["gelu_approximate"] = on((1, 5, 6, 3), lambda b, x: b.gelu(x, approximate=True))
    found["elu"] = on((1, 5, 6, 3), lambda b, x: b.elu(x))
    for dtype in ("int8", "int16"):
        for kind in ("exp", "log", "rsqrt"):
            found[f"{kind}_{dtype}"] = on(
                (1, 5, 6, 8),
                lambda b, x, k=kind: getattr(b, k)(x),
                dtype,
                scale=None if kind == "exp" else 0.02,
                zero_point=None if kind == "exp" else -128 if dtype == "int8" else 0,
            )
        for alpha in (0.0, 0.1, 0.5, 1.0, 1.5, -0.5, -1.0):
            found[f"leaky_{dtype}_{alpha}"] = on(
                (1, 5, 6, 16), lambda b, x, a=alpha: b.leaky_relu(x, a), dtype
            )
        found[f"leaky_same_{dtype}"] = on(
            (1, 5, 6, 16),
            lambda b, x: b.apply(OpKind.LEAKY_RELU, [x], LeakyReluOptions(alpha=0.2), like=x),
            dtype,
        )
        found[f"prelu_{dtype}"] = on((1, 5, 6, 16), lambda b, x: b.prelu(x), dtype)
        found[f"prelu_equal_{dtype}"] = on(
            (1, 5, 6, 16), lambda b, x: b.prelu(x, np.full(16, 0.25)), dtype
        )
        found[f"prelu_steep_{dtype}"] = on(
            (1, 5, 6, 16), lambda b, x: b.prelu(x, np.linspace(0.1, 2.0, 16)), dtype
        )
    found["conv_tanh_int8"] = on((1, 6, 6, 4), lambda b, x: b.conv2d(x, 8, activation="TANH"))
    found["fc_tanh_int16"] = on(
        (1, 24), lambda b, x: b.fully_connected(x, 8, activation="TANH"), "int16"
    )
    return found


def _reductions() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for dtype in ("int8", "uint8", "int16"):
        for name, shape, axes, keep in (
            ("hw", (1, 7, 7, 20), (1, 2), False),
            ("hw_keep", (1, 7, 7, 20), (1, 2), True),
            ("h", (1, 7, 9, 20), (1,), False),
            ("w", (1, 7, 9, 20), (2,), True),
            ("tall", (1, 70, 12, 4), (1, 2), False),
            ("huge", (1, 190, 64, 3), (1, 2), False),
            ("huge_h", (1, 130, 5, 3), (1,), False),
            ("c", (1, 1, 9, 20), (3,), False),
            ("c_h", (1, 9, 1, 20), (3,), True),
            ("rank3", (1, 9, 16), (1,), False),
            ("rank2", (1, 19), (1,), False),
        ):
            found[f"mean_{name}_{dtype}"] = on(
                shape, lambda b, x, a=axes, k=keep: b.mean(x, a, keep_dims=k), dtype
            )
        for name, shape, axis, keep in (
            ("c", (1, 4, 5, 20), 3, True),
            ("c_drop", (1, 4, 5, 20), 3, False),
            ("c3", (4, 5, 20), 2, False),
            ("w", (1, 4, 5, 20), 2, True),
            ("h", (1, 4, 5, 20), 1, False),
        ):
            found[f"sum_{name}_{dtype}"] = on(
                shape, lambda b, x, a=axis, k=keep: b.sum(x, (a,), keep_dims=k), dtype
            )
        for kind in ("REDUCE_MAX", "REDUCE_MIN"):
            for name, axes in (("hw", (1, 2)), ("c", (3,)), ("w", (2,)), ("all", (3, 1))):
                found[f"{kind.lower()}_{name}_{dtype}"] = on(
                    (1, 4, 5, 20),
                    lambda b, x, a=axes, k=kind: b.reduce(OpKind(k), x, a),
                    dtype,
                )
    for dtype in ("int8", "uint8"):
        found[f"arg_max_{dtype}"] = on((1, 4, 5, 20), lambda b, x: b.arg_max(x), dtype)
        found[f"arg_max64_{dtype}"] = on(
            (1, 4, 5, 20), lambda b, x: b.arg_max(x, dtype="int64"), dtype
        )
    found["arg_max_h"] = on((1, 4, 5, 20), lambda b, x: b.arg_max(x, 1))
    found["arg_max_2d"] = on((1, 100), lambda b, x: b.arg_max(x))
    return found


def _convolutions() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for kernel, stride, padding, dtype in (
        (2, 2, "SAME", "int8"),
        (3, 2, "SAME", "int8"),
        (3, 2, "VALID", "int8"),
        (4, 2, "SAME", "uint8"),
        (5, 2, "VALID", "int8"),
        (3, 1, "SAME", "int8"),
        (4, 1, "VALID", "int8"),
        (5, 3, "SAME", "int8"),
        (2, 4, "SAME", "int8"),
        (3, 2, "SAME", "int16"),
    ):
        found[f"tconv_{kernel}x{kernel}s{stride}_{padding}_{dtype}"] = on(
            (1, 5, 7, 6),
            lambda b, x, k=kernel, s=stride, p=padding: b.transpose_conv(
                x, 10, k, stride=s, padding=p
            ),
            dtype,
        )
    found["tconv_1d"] = on((1, 1, 9, 6), lambda b, x: b.transpose_conv(x, 8, (1, 4), stride=(1, 2)))
    found["tconv_batch"] = on((2, 4, 4, 6), lambda b, x: b.transpose_conv(x, 8, 3))
    found["tconv_relu"] = on(
        (1, 4, 4, 6), lambda b, x: b.transpose_conv(x, 8, 3, activation="RELU")
    )
    for multiplier in (2, 3):
        found[f"dw_times_{multiplier}"] = on(
            (1, 6, 8, 5), lambda b, x, m=multiplier: b.depthwise_conv2d(x, 3, multiplier=m)
        )
    found["dw_times_4_of_1"] = on((1, 6, 8, 1), lambda b, x: b.depthwise_conv2d(x, 3, multiplier=4))
    found["dw_times_2_batch"] = on(
        (2, 6, 8, 5), lambda b, x: b.depthwise_conv2d(x, 3, multiplier=2)
    )
    found["dw_times_2_relu"] = on(
        (1, 6, 8, 16),
        lambda b, x: b.depthwise_conv2d(x, 3, multiplier=2, activation="RELU6"),
    )
    found["dw_dilated_4"] = on((1, 16, 16, 8), lambda b, x: b.depthwise_conv2d(x, 3, dilation=4))
    found["conv_dilated_3"] = on((1, 16, 16, 8), lambda b, x: b.conv2d(x, 8, 3, dilation=3))
    found["conv_grouped"] = on((1, 8, 8, 16), lambda b, x: _grouped(b, x, 32, 4))
    found["conv_grouped_relu"] = on((1, 8, 8, 8), lambda b, x: b.relu(_grouped(b, x, 8, 4)))
    found["conv_groups_of_1"] = on((1, 8, 8, 16), lambda b, x: _grouped(b, x, 16, 1))
    found["conv_groups_of_1_to_2"] = on((1, 8, 8, 4), lambda b, x: _grouped(b, x, 8, 1))
    return found


def _grouped(b: Builder, x: Ref, outputs: int, depth: int) -> Ref:
    """CONV_2D of 3x3 whose weights have fewer input channels than ``x``."""
    stored = np.rint(_random((outputs, 3, 3, depth)) * 300).clip(-127, 127)
    scales = list(np.linspace(0.002, 0.004, outputs))
    weights = b.const(stored, "int8", name="w", scale=scales, zero_point=[0] * outputs)
    bias_scales = [scale * (x.scale or 1.0) for scale in scales]
    bias = b.const(
        np.arange(outputs) * 50, "int32", name="b", scale=bias_scales, zero_point=[0] * outputs
    )
    result = b.tensor("y", (*x.shape[:3], outputs), x.dtype, scale=0.05, zero_point=3)
    b.op(OpKind.CONV_2D, [x, weights, bias], [result], ConvOptions(padding=Padding.SAME))
    return result


def _random(shape: Shape) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.random.default_rng(7).normal(0.0, 0.2, shape)


def _matrices() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for dtype in ("int8", "int16"):
        for name, first, second, adj_x, adj_y in (
            ("plain", (1, 12, 20), (1, 20, 16), False, False),
            ("adj_y", (1, 12, 20), (1, 16, 20), False, True),
            ("adj_x", (1, 20, 12), (1, 20, 16), True, False),
            ("heads", (1, 3, 12, 20), (1, 3, 20, 16), False, False),
            ("broadcast", (1, 3, 12, 20), (1, 1, 20, 16), False, False),
        ):
            found[f"matmul_{name}_{dtype}"] = pair(
                first,
                second,
                lambda b, x, y, ax=adj_x, ay=adj_y: b.batch_matmul(x, y, adj_x=ax, adj_y=ay),
                dtype,
            )
    found["fc_computed_weights"] = pair(
        (4, 20),
        (12, 20),
        lambda b, x, w: b.apply(
            OpKind.FULLY_CONNECTED, [x, w, None], FullyConnectedOptions(), scale=0.2, zero_point=1
        ),
    )
    found["matmul_square_self"] = on((1, 16, 16), lambda b, x: b.batch_matmul(x, x, adj_y=True))
    return found


def _transposes() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for shape, order in (
        ((1, 4, 6, 8), (0, 2, 1, 3)),
        ((1, 4, 6, 8), (0, 1, 3, 2)),
        ((1, 4, 6, 8), (0, 3, 2, 1)),
        ((1, 4, 6, 8), (0, 3, 1, 2)),
        ((1, 4, 6, 8), (0, 2, 3, 1)),
        ((3, 4, 6, 8), (3, 0, 2, 1)),
        ((3, 4, 6, 8), (1, 0, 2, 3)),
        ((3, 4, 6, 8), (0, 1, 3, 2)),
        ((3, 4, 6, 8), (2, 3, 0, 1)),
        ((4, 6), (1, 0)),
        ((4, 6, 8), (2, 0, 1)),
        ((2, 3, 4, 5, 6), (0, 3, 1, 4, 2)),
        ((1, 1, 4, 6), (0, 2, 1, 3)),
        ((1, 4, 1, 6), (0, 3, 2, 1)),
    ):
        label = "x".join(map(str, shape)) + "_" + "".join(map(str, order))
        for dtype in ("int8", "int16", "int32"):
            found[f"transpose_{label}_{dtype}"] = on(
                shape, lambda b, x, o=order: b.transpose(x, o), dtype
            )
    found["transpose_twice"] = on(
        (1, 4, 6, 8), lambda b, x: b.transpose(b.transpose(x, (0, 2, 3, 1)), (0, 2, 1, 3))
    )
    found["transpose_back"] = on(
        (1, 4, 6, 8),
        lambda b, x: b.relu(b.transpose(b.transpose(b.relu(x), (0, 2, 3, 1)), (0, 3, 1, 2))),
    )
    return found


def _resizes() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for name, shape, size, align, half in (
        ("x2", (1, 5, 6, 8), (10, 12), False, False),
        ("x4", (1, 5, 6, 8), (20, 24), False, False),
        ("x8", (1, 3, 3, 8), (24, 24), False, False),
        ("x2_align", (1, 5, 6, 8), (9, 11), True, False),
        ("x4_align", (1, 5, 6, 8), (17, 21), True, False),
        ("x2_half", (1, 5, 6, 8), (10, 12), False, True),
        ("same", (1, 5, 6, 8), (5, 6), False, False),
        ("one_pixel", (1, 1, 1, 8), (6, 7), False, False),
        ("x3", (1, 5, 6, 8), (15, 18), False, False),
        ("row", (1, 1, 6, 8), (1, 12), False, False),
        ("batch", (2, 5, 6, 8), (10, 12), False, False),
    ):
        for kind in ("bilinear", "nearest"):
            for dtype in ("int8", "int16"):
                found[f"resize_{kind}_{name}_{dtype}"] = on(
                    shape,
                    lambda b, x, k=kind, s=size, a=align, h=half: getattr(b, f"resize_{k}")(
                        x, s, align_corners=a, half_pixel_centers=h
                    ),
                    dtype,
                )
    return found


def _lstms() -> dict[str, Make]:
    return {
        "lstm_1": on((1, 3, 6), lambda b, x: b.lstm(x, 5)),
        "lstm_clip": on((1, 2, 6), lambda b, x: b.lstm(x, 5, cell_clip=2.0)),
        "lstm_batch": on((3, 2, 6), lambda b, x: b.lstm(x, 5)),
        "lstm_time_major": on((2, 3, 6), lambda b, x: b.lstm(x, 5, time_major=True)),
        "lstm_time_major_4": on((2, 4, 6), lambda b, x: b.lstm(x, 8, time_major=True)),
    }


def families() -> dict[str, dict[str, Make]]:
    """Return the makers of all models, by family of lowerings and name."""
    return {
        "softmax": _softmaxes(),
        "activations": _activations(),
        "reduce": _reductions(),
        "conv": _convolutions(),
        "matmul": _matrices(),
        "transpose": _transposes(),
        "resize": _resizes(),
        "lstm": _lstms(),
        "moves": moves(),
        "logic": logic(),
        "variables": variables(),
    }


def build(make: Make) -> bytes:
    """Return the file of one model."""
    b = Builder("m")
    b.output(make(b))
    return b.build()
