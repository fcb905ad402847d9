"""Hand-made models: which kernels they become, in which order, on which maps."""

from __future__ import annotations

import pytest

from npusched.hardware.target import Family
from tests.graph.graph_models import MODELS, graph_of, lines

EVERYWHERE: dict[str, list[str]] = {
    "conv": ["Conv2D+Relu6 1x9x8x3 -> 1x5x4x16 k3x3 s2x2 p1,0,1,1"],
    "conv_int16": ["Conv2D 1x8x8x16 -> 1x8x8x8 k3x3 p1,1,1,1"],
    "depthwise": ["DepthwiseConv2D+Relu 1x8x8x16 -> 1x8x8x16 k5x3 p2,1,2,1"],
    "depthwise_of_one": ["Conv2D 1x8x8x1 -> 1x8x8x8 k3x3 p1,1,1,1"],
    "dilated": ["Conv2D 1x8x8x16 -> 1x8x8x8 k3x3 d2x2 p2,2,2,2"],
    "dilated_3": ["Conv2D 1x8x8x16 -> 1x8x8x8 k7x7 p3,3,3,3"],
    "dilated_by_batches": ["Conv2D 1x8x8x16 -> 1x8x8x8 k3x3 d2x2 p2,2,2,2"],
    "far_stride": ["Conv2D 1x4x4x16@0x0x0x0 -> 1x1x1x8@0x0x0x0 k4x4 x16"],
    "batch": ["Conv2D 1x8x8x16@0x0x0x0 -> 1x8x8x8@0x0x0x0 k3x3 p1,1,1,1 x3"],
    "dense": ["FullyConnected 1x1x1x64 -> 1x1x1x10"],
    "dense_rows": ["FullyConnected 1x2x3x64 -> 1x2x3x10"],
    "max_pool": ["MaxPool 1x8x8x16 -> 1x4x4x16 k2x2 s2x2"],
    "avg_pool": ["AvgPool 1x8x8x16 -> 1x4x4x16 k3x3 s2x2 p0,0,1,1"],
    "avg_pool_far": ["AvgPool 1x4x4x16@0x0x0x0 -> 1x1x1x16@0x0x0x0 k4x4 x4"],
    "broadcast": ["Mul 1x8x8x16 1x1x1x16 -> 1x8x8x16"],
    "scalar": ["Sub 1x8x8x16 1x1x1x1k -> 1x8x8x16"],
    "relu": ["Relu 1x8x8x16 -> 1x8x8x16"],
    "requantise": ["MaxPool 1x8x8x16 -> 1x4x4x16b k2x2 s2x2", "Quantize 1x4x4x16b -> 1x4x4x16"],
    "requantise_input": ["Quantize 1x8x8x16 -> 1x8x8x16"],
    "logistic": ["Conv2D+LUT 1x8x8x16 -> 1x8x8x16"],
    "inception": [
        "Conv2D 1x8x8x16 -> 1x8x8x16b@0x0x0x0",
        "Conv2D 1x8x8x16 -> 1x8x8x16b@0x0x0x16 k3x3 p1,1,1,1",
        "MaxPool 1x8x8x16 -> 1x8x8x16b@0x0x0x32 k3x3 p1,1,1,1",
        "Conv2D 1x8x8x48b -> 1x8x8x8",
    ],
    "concat_rows": [
        "Relu 1x8x8x16 -> 1x8x8x16@0x0x0x0",
        "MaxPool 1x8x8x16 -> 1x8x8x16b",
        "MemoryCopy 1x8x8x16b -> 1x8x8x16@0x8x0x0",
    ],
    "concat_5_channels": [
        "MaxPool 1x4x4x5 -> 1x4x4x5@0x0x0x0",
        "MaxPool 1x4x4x5 -> 1x4x4x5@0x0x0x5",
    ],
    "pack": [
        "Sub 1x1x1x1k 1x1x8x16 -> 1x1x8x16b",
        "MemoryCopy 1x1x8x16b -> 1x1x8x16@0x1x0x0",
        "Abs 1x1x8x16 -> 1x1x8x16b",
        "MemoryCopy 1x1x8x16b -> 1x1x8x16@0x0x0x0",
    ],
    "unpack": [
        "Abs 1x2x8x16 -> 1x2x8x16b",
        "Add 1x1x8x16b@0x0x0x0 1x1x8x16b@0x1x0x0 -> 1x1x8x16",
    ],
    "slice": ["Conv2D 1x4x6x16@0x2x1x0 -> 1x4x6x8"],
    "slice_out": ["MemoryCopy 1x4x6x16@0x2x1x0 -> 1x4x6x16"],
    "every_second": ["Conv2D 1x8x8x16 -> 1x8x8x16", "Conv2D 1x8x8x16/2x2 -> 1x4x4x8"],
    "reshape_view": ["Relu 1x8x8x16 -> 1x8x8x16", "FullyConnected 1x1x1x1024 -> 1x1x1x4"],
    "reshape_only": ["MemoryCopy 1x8x8x16 -> 1x8x8x16"],
    "squeeze": ["Abs 1x1x1x16 -> 1x1x1x16"],
    "pad_swallowed": ["Conv2D 1x8x8x16 -> 1x4x4x8 k3x3 s2x2 p1,1,0,0"],
    "pad_filled": [
        "MemoryCopy 1x8x8x16 -> 1x8x8x16b@0x1x0x0",
        "MemoryCopy 1x11x3x16k -> 1x11x3x16b@0x0x8x0",
        "MemoryCopy 1x2x11x16k -> 1x2x11x16b@0x9x0x0",
        "MemoryCopy 1x1x11x16k -> 1x1x11x16b@0x0x0x0",
        "Abs 1x11x11x16b -> 1x11x11x16",
    ],
    "pad_value": [
        "Abs 1x8x8x16 -> 1x8x8x16@0x0x0x0",
        "MemoryCopy 1x8x8x16k -> 1x8x8x16@0x0x0x16",
    ],
    "constant_requantised": ["Add 1x8x8x16 1x1x1x1k -> 1x8x8x16"],
    "long_maximum": [
        "ReduceMax 1x1x65536x1@0x0x0x0 -> 1x1x1x1b@0x0x0x0 k1x65536",
        "ReduceMax 1x1x4464x1@0x0x65536x0 -> 1x1x1x1b@0x0x1x0 k1x4464",
        "ReduceMax 1x1x2x1b -> 1x1x1x1 k1x2",
    ],
    "with_custom": [
        "Conv2D 1x8x8x16 -> 1x8x8x8 k3x3 p1,1,1,1",
        "Cpu 1x8x8x8 -> 1x8x8x8",
        "Conv2D 1x8x8x8 -> 1x8x8x4",
    ],
}
"""What models become on every family."""

ON_U55: dict[str, list[str]] = {
    "slice_of_pixel_enlarged": [
        "MemoryCopy 1x1x1x8@0x1x2x0 -> 1x1x1x8b",
        "Add 1x1x1x8b 1x2x2x8k -> 1x2x2x8",
    ],
    "long_transpose": ["Cpu 1x2x70000x3 1x1x1x4k -> 1x70000x3x2"],
    "residual": [
        "Conv2D 1x8x8x16 -> 1x8x8x16b k3x3 p1,1,1,1",
        "Add+Relu 1x8x8x16b 1x8x8x16 -> 1x8x8x16",
    ],
    "minimum": ["MaxPool 1x8x8x16 -> 1x8x8x16b", "Minimum 1x8x8x16 1x8x8x16b -> 1x8x8x16"],
    "chain": [
        "Add 1x8x8x16 1x8x8x16 -> 1x8x8x16b",
        "Mul 1x8x8x16b 1x8x8x16 -> 1x8x8x16b",
        "Sub 1x8x8x16b 1x8x8x16 -> 1x8x8x16",
    ],
    "halves": [
        "Conv2D 1x8x8x16 -> 1x8x8x32",
        "Conv2D 1x8x8x16@0x0x0x16 -> 1x8x8x8b",
        "Conv2D 1x8x8x16@0x0x0x0 -> 1x8x8x8b k3x3 p1,1,1,1",
        "Add 1x8x8x8b 1x8x8x8b -> 1x8x8x8",
    ],
    "variable": [
        "Cpu  -> 1x1x1x1",
        "Cpu 1x1x1x1 -> 1x8x8x16",
        "Conv2D 1x8x8x16 -> 1x8x8x16b",
        "Add 1x8x8x16b 1x8x8x16 -> 1x8x8x16",
        "Relu 1x8x8x16 -> 1x8x8x16",
        "Cpu 1x1x1x1 1x8x8x16 -> 1x1x1x1",
    ],
}
"""Where U55 and U65 differ from U85: nothing is chained, and variables are the host's."""

ON_U85: dict[str, list[str]] = {
    "slice_of_pixel_enlarged": [
        "MemoryCopy 1x1x1x8@0x1x2x0 -> 1x1x1x8b",
        "Resize 1x1x1x8b -> 1x2x2x8",
    ],
    "long_transpose": [
        "Transpose 1x2x65536x3@0x0x0x0 -> 1x65536x3x2@0x0x0x0",
        "Transpose 1x2x4464x3@0x0x65536x0 -> 1x4464x3x2@0x65536x0x0",
    ],
    "residual": ["Conv2D+Add*+Relu 1x8x8x16 1x8x8x16 -> 1x8x8x16 k3x3 p1,1,1,1"],
    "minimum": ["MaxPool+Minimum* 1x8x8x16 1x8x8x16 -> 1x8x8x16"],
    "chain": [
        "Add+Mul* 1x8x8x16 1x8x8x16 1x8x8x16 -> 1x8x8x16b",
        "Sub 1x8x8x16b 1x8x8x16 -> 1x8x8x16",
    ],
    "halves": [
        "Conv2D 1x8x8x16 -> 1x8x8x32",
        "Conv2D 1x8x8x16@0x0x0x16 -> 1x8x8x8b",
        "Conv2D+Add* 1x8x8x16@0x0x0x0 1x8x8x8b -> 1x8x8x8 k3x3 p1,1,1,1",
    ],
    "variable": [
        "MemoryCopy 1x8x8x16 -> 1x8x8x16b",
        "Conv2D+Add* 1x8x8x16 1x8x8x16b -> 1x8x8x16b",
        "MemoryCopy 1x8x8x16b -> 1x8x8x16",
        "Relu 1x8x8x16b -> 1x8x8x16",
    ],
}

CASES = [
    *((name, family, found) for name, found in EVERYWHERE.items() for family in Family),
    *((name, Family.U55, found) for name, found in ON_U55.items()),
    *((name, Family.U65, found) for name, found in ON_U55.items()),
    *((name, Family.U85, found) for name, found in ON_U85.items()),
]


@pytest.mark.parametrize(
    ("name", "family", "expected"), CASES, ids=[f"{name}-{family}" for name, family, _ in CASES]
)
def test_becomes_these_kernels(name: str, family: Family, expected: list[str]) -> None:
    assert lines(graph_of(MODELS[name], family)) == expected


def test_every_model_is_expected() -> None:
    assert {name for name, _, _ in CASES} | {"wide"} == set(MODELS)
