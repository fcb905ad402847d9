"""Finding kernel outputs among reference tensors, and who depends on whom."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npusched.errors import SimError
from npusched.sim.check import check_bare
from npusched.sim.connected import connected_kernels
from npusched.sim.execute import execute, new_memories
from npusched.sim.figures import count_figures
from npusched.sim.flow import readers
from npusched.sim.kernels.arrays import Array
from npusched.sim.matching import Matcher
from npusched.sim.program import load_bare
from npusched.sim.views import View
from npusched.tflite.reader import read_model
from npusched.vela.stream import decode_stream
from tests.sim.sim_models import MODELS, accelerator, executable, tall_network


def view(h: int, w: int, c: int, *, stride_y: int, stride_x: int, brick: bool = False) -> View:
    """An int8 OFM with these strides."""
    return View(
        region=1, bases=(0, 0, 0, 0), height0=h, height1=h, width0=w, stride_y=stride_y,
        stride_x=stride_x, stride_c=16 * w, dtype=np.dtype(np.int8), is_brick=brick,
        zero_point=0, h=h, w=w, c=c,
    )  # fmt: skip


@pytest.fixture
def tensor() -> Array:
    """Two inputs of a tensor of 6 x 5 x 8."""
    return np.random.default_rng(0).integers(-128, 128, (2, 1, 6, 5, 8)).astype(np.int8)


def test_stripes_slices_and_steps_are_found(tensor: Array) -> None:
    """Rows 2 to 3; channels 4 to 7; every second row; every second column; transposed rows."""
    matcher = Matcher({7: ("t", tensor)})
    target = matcher.targets[0]
    cases = [
        (tensor[:, 0, 2:4], view(2, 5, 8, stride_y=40, stride_x=8), (2, 0, 0)),
        (tensor[:, 0, :, :, 4:], view(6, 5, 4, stride_y=40, stride_x=8), (0, 0, 4)),
        (tensor[:, 0, 1::2], view(3, 5, 8, stride_y=80, stride_x=8), (1, 0, 0)),
        (tensor[:, 0, :, ::2], view(6, 3, 8, stride_y=40, stride_x=16), (0, 0, 0)),
        (tensor[:, 0].swapaxes(1, 2), view(5, 6, 8, stride_y=8, stride_x=40), (0, 0, 0)),
        (tensor[:, 0, 3:5], view(2, 5, 8, stride_y=80, stride_x=0, brick=True), (3, 0, 0)),
    ]
    for written, ofm, first in cases:
        target.covered[:] = False
        found = matcher.find(ofm, np.ascontiguousarray(written))
        assert [block.first for block in found] == [first]
        assert target.covered.sum() == written[0].size


def test_constant_blocks_are_found_beside_other_constants() -> None:
    """A strip of padding in a tensor that is nearly constant."""
    values = np.full((2, 1, 30, 30, 4), -128, np.int8)
    values[:, 0, 3, 4, 2] = 5
    matcher = Matcher({0: ("t", values)})
    strip = np.full((2, 30, 1, 4), -128, np.int8)
    assert matcher.find(view(30, 1, 4, stride_y=120, stride_x=4), strip)


def test_a_near_miss_is_described(tensor: Array) -> None:
    matcher = Matcher({7: ("t", tensor)})
    wrong = tensor[:, 0, 2:4].copy()
    wrong[1, 1, 3, 6] ^= 0x40
    ofm = view(2, 5, 8, stride_y=40, stride_x=8)
    assert matcher.find(ofm, wrong) == []
    near = matcher.nearest(ofm, wrong)
    assert near is not None
    assert (near.differing, near.total, near.place) == (1, 160, (3, 3, 6))
    assert near.got == int(wrong[1, 1, 3, 6])
    assert near.expected == int(tensor[1, 0, 3, 3, 6])
    noise = np.random.default_rng(9).integers(-128, 128, wrong.shape).astype(np.int8)
    assert matcher.nearest(ofm, noise) is None


def test_views_count_as_covered(tensor: Array) -> None:
    other = tensor.reshape(2, 240)
    matcher = Matcher({0: ("a", tensor), 1: ("b", other), 2: ("c", other ^ 1)})
    assert matcher.check_whole(0, tensor)
    assert not matcher.check_whole(2, tensor)
    matcher.spread(())
    assert [target.is_covered for target in matcher.targets] == [True, True, False]


def test_readers_follow_the_chain() -> None:
    """Every kernel of a chain is read by the next; the last by none."""
    program = executable(tall_network(), "ethos-u55-128").programs[0]
    found = readers(program)
    assert found == tuple(
        frozenset({number + 1} if number + 1 < len(program.kernels) else ())
        for number in range(len(program.kernels))
    )


def test_a_convolution_is_no_fully_connected_layer() -> None:
    """Both are 1x1 kernels; only the layer's weights are in the model's FULLY_CONNECTED op."""
    for name, count in (("conv_1x1", 0), ("fc", 1), ("network", 1)):
        content = MODELS[name]()
        program = executable(content, "ethos-u55-128").programs[0]
        assert len(connected_kernels(read_model(content, name), program)) == count


def test_bare_streams_are_checked_and_counted(corpus_dir: Path) -> None:
    """A stream that a vendor compiled, without its weights: no findings, and it cannot run."""
    content = (corpus_dir / "silicon" / "resnet8_renesas.command_stream.bin").read_bytes()
    program = load_bare(decode_stream(content))
    assert check_bare(program, accelerator("ethos-u55-256")) == ()
    assert check_bare(program, accelerator("ethos-u55-32"))
    figures = count_figures(program)
    assert figures.kernel_count == len(program.kernels) > 40
    assert figures.macs > 10_000_000
    with pytest.raises(SimError, match="bare command stream"):
        execute(program, new_memories(program, 1))
