"""A network whose only NPU work is a DMA: Vela writes a command stream without kernels."""

from __future__ import annotations

from npusched.hardware import load_target
from npusched.tflite.builder import Builder
from npusched.tflite.reader import read_model
from npusched.vela.encoded import encoded_weights, stream_kernels
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model


def test_gather_alone_has_no_kernels_and_no_weights() -> None:
    net = Builder(seed=1)
    net.output(net.gather(net.input("x", (9, 112), "int8"), [3, 1], 0))
    content = net.build()
    result = compile_model(content, load_target("ethos-u85-256"), VelaOptions(), cache=None)
    assert result.report.npu_ops == 1
    assert stream_kernels(result) == {}
    assert encoded_weights(result, read_model(content, "gather")) == ()
