"""The built-in models: their ops, their bytes, and what Vela makes of them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from npusched.demos import demo, demo_names, networks
from npusched.errors import ModelError
from npusched.ir import DataType, OpKind
from npusched.tflite import read_model

# first 16 hex digits of the sha256 of the file
PINNED = {
    "mobilenet": "995684ac7042d20b",
    "resnet8": "3bf60707a2d28a8e",
    "ds_cnn": "e9cb83c988302948",
    "autoencoder": "81232ecd49d503b0",
    "unet": "f1b100e45fbf2980",
    "mobilenet_v2": "ed432a3f512cdcdc",
    "chain": "6a4aa9ed1326d3cd",
    "block": "c0924ca0702134b5",
}
# every op of the file, by kind
OPS = {
    "mobilenet": {
        "CONV_2D": 14,
        "DEPTHWISE_CONV_2D": 13,
        "AVERAGE_POOL_2D": 1,
        "RESHAPE": 1,
        "FULLY_CONNECTED": 1,
        "SOFTMAX": 1,
    },
    "resnet8": {
        "CONV_2D": 9,
        "ADD": 3,
        "AVERAGE_POOL_2D": 1,
        "RESHAPE": 1,
        "FULLY_CONNECTED": 1,
        "SOFTMAX": 1,
    },
    "ds_cnn": {
        "CONV_2D": 5,
        "DEPTHWISE_CONV_2D": 4,
        "AVERAGE_POOL_2D": 1,
        "RESHAPE": 1,
        "FULLY_CONNECTED": 1,
        "SOFTMAX": 1,
    },
    "autoencoder": {"FULLY_CONNECTED": 10},
    "unet": {
        "CONV_2D": 15,
        "MAX_POOL_2D": 3,
        "TRANSPOSE_CONV": 3,
        "CONCATENATION": 3,
        "LOGISTIC": 1,
    },
    "mobilenet_v2": {
        "CONV_2D": 35,
        "DEPTHWISE_CONV_2D": 17,
        "ADD": 10,
        "MEAN": 1,
        "FULLY_CONNECTED": 1,
        "SOFTMAX": 1,
    },
    "chain": {"DEPTHWISE_CONV_2D": 6, "CONV_2D": 6},
    "block": {"DEPTHWISE_CONV_2D": 1, "CONV_2D": 1, "MUL": 2, "ADD": 2, "RELU6": 2},
}


@pytest.mark.parametrize("name", demo_names())
def test_demo(name: str) -> None:
    """Known ops, int8 throughout, and the pinned bytes (the same on every machine)."""
    content = demo(name)
    graph = read_model(content, name).subgraphs[0]
    assert Counter(op.kind.value for op in graph.ops) == Counter(OPS[name])
    maps = {t for op in graph.ops for t in op.outputs}.union(graph.inputs)
    for index in maps:
        assert graph.tensors[index].dtype is DataType.INT8
        assert graph.tensors[index].quantization is not None
    assert hashlib.sha256(content).hexdigest()[:16] == PINNED[name]
    assert demo(name) == content


def test_every_demo_is_tested() -> None:
    assert set(demo_names()) == set(PINNED) == set(OPS)


def test_chain_of_n() -> None:
    graph = read_model(demo("chain:300"), "chain").subgraphs[0]
    assert len(graph.ops) == 300
    for before, after in zip(graph.ops, graph.ops[1:], strict=False):
        assert after.inputs[0] == before.outputs[0]
    assert len(read_model(demo("chain:1"), "c").subgraphs[0].ops) == 1


def test_block_is_the_worked_example() -> None:
    """56x56x32 = 100,352 bytes, 64 channels 200,704; each op reads and writes its feature maps.

    Four ops of 100,352 -> 100,352 (dw, MUL, ADD, RELU6), one of 100,352 -> 200,704 (pw) and three
    of 200,704 -> 200,704: 8 * 100,352 + 301,056 + 6 * 200,704 = 2,308,096.
    """
    graph = read_model(demo("block"), "block").subgraphs[0]
    total = sum(
        graph.tensors[index].size_bytes
        for op in graph.ops
        for index in (*op.inputs, *op.outputs)
        if not graph.tensors[index].is_constant
    )
    assert total == 2_308_096
    assert [op.kind.value for op in graph.ops] == [
        "DEPTHWISE_CONV_2D",
        "MUL",
        "ADD",
        "RELU6",
        "CONV_2D",
        "MUL",
        "ADD",
        "RELU6",
    ]
    for op in graph.ops:
        if op.kind is OpKind.RELU6:
            ifm, ofm = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
            assert ifm.quantization == ofm.quantization


@pytest.mark.parametrize(
    ("content", "ops", "output"),
    [
        (networks.mobilenet(size=64, width=0.5, classes=3), 31, (1, 3)),
        (networks.resnet8(size=16, channels=8), 16, (1, 10)),
        (networks.ds_cnn(frames=25, features=8, channels=16, classes=4), 13, (1, 4)),
        (networks.autoencoder(features=64, width=16, code=4), 10, (1, 64)),
        (networks.unet(size=32, channels=4, levels=2), 18, (1, 32, 32, 1)),
        (networks.mobilenet_v2(size=32, width=0.35, classes=5), 65, (1, 5)),
        (networks.chain(5, size=8, channels=8), 5, (1, 8, 8, 8)),
        (networks.block(12, 10, 8, 24, kernel=5, stride=2), 8, (1, 6, 5, 24)),
    ],
)
def test_sizes_are_parameters(content: bytes, ops: int, output: tuple[int, ...]) -> None:
    graph = read_model(content, "m").subgraphs[0]
    assert len(graph.ops) == ops
    assert graph.tensors[graph.outputs[0]].shape == output


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mobilnet", "did you mean 'mobilenet'?"),
        ("", "pick one"),
        ("zzzz", "pick one"),
        ("chain:", "chain:300"),
        ("chain:x", "chain:300"),
        ("chain:0", "chain:300"),
        ("chain:-5", "chain:300"),
        ("chain:99999999999", "chain:300"),
        ("chain:100000", "chain:300"),
        ("unet:4", "did you mean 'unet'?"),
    ],
)
def test_unknown_demo(name: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        demo(name)
    assert hint in caught.value.hint


def test_mobilenet_v2_has_93_scheduled_ops(tmp_path: Path) -> None:
    """Vela 5.2.0 on U55: 62 convolutions and additions, MEAN 2, FC 1, SOFTMAX 28 = 93."""
    path = tmp_path / "mobilenet_v2.tflite"
    path.write_bytes(demo("mobilenet_v2"))
    command = "import sys; from ethosu.vela.vela import main; sys.exit(main(sys.argv[1:]))"
    arguments = [str(path), "--accelerator-config", "ethos-u55-128", "--output-dir", str(tmp_path)]
    found = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr[-500:]
    assert "NPU operators = 93 (100.0%)" in found.stdout
