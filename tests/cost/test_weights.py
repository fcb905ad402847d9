"""Encoded weight sizes: formula of scales, exact lookup, lengths of coded streams."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.cost.rice_slices import RUN_CODES, WEIGHT_CODES, RiceCode, search_slices
from npusched.cost.types import BlockConfig, Traversal, WeightBytes
from npusched.cost.weight_coding import encoded_bytes, make_palette
from npusched.cost.weight_format import WeightFormat, fast_bytes
from npusched.cost.weight_stream import core_streams
from npusched.cost.weight_values import is_sparse
from npusched.cost.weights import (
    EncodedKey,
    scale_bytes,
    uses_sparse_weights,
    weight_bytes,
    weight_format,
)
from npusched.graph.types import (
    Access,
    Kernel,
    KernelKind,
    Placement,
    ScheduledOp,
    Weights,
)
from npusched.hardware import load_target
from npusched.hardware.target import Accelerator, Block, Target
from npusched.ir import DataType


def accelerator(name: str) -> Accelerator:
    found = load_target(name).accelerator
    assert found is not None
    return found


def test_scale_bytes() -> None:
    """10 bytes per channel. U55: 9 channels are 90, padded to 96. U65-512: 5 and 4: 64 + 48.

    U85-256: 9 channels count as 16 (160 bytes). A micro-block of 64 channels: 640.
    """
    assert scale_bytes(accelerator("ethos-u55-128"), 9, 8) == 96
    assert scale_bytes(accelerator("ethos-u65-512"), 9, 8) == 64 + 48
    assert scale_bytes(accelerator("ethos-u65-512"), 1, 8) == 16
    assert scale_bytes(accelerator("ethos-u85-256"), 9, 8) == 160
    assert scale_bytes(accelerator("ethos-u85-2048"), 9, 64) == 640


def conv(values: npt.NDArray[np.int8], *, kernel: Kernel | None = None) -> ScheduledOp:
    """A convolution with these weights (O, H, W, I)."""
    out, k_h, k_w, channels = values.shape

    def access(tensor: int, c: int) -> Access:
        shape = (1, 8, 8, c)
        return Access(tensor=tensor, shape=shape, view=shape, dtype=DataType.INT8)

    return ScheduledOp(
        id=0,
        kind=KernelKind.CONV2D,
        placement=Placement.NPU,
        source_ops=((0, 0),),
        ifms=(access(0, channels),),
        ofms=(access(1, out),),
        kernel=kernel or Kernel(h=k_h, w=k_w),
        weights=Weights(
            key="w",
            shape=(out, k_h, k_w, channels),
            dtype=DataType.INT8,
            zero_points=(0,),
            values=values,
        ),
        has_scales=True,
    )


DEPTH_FIRST = BlockConfig(Block(8, 8, 16), Block(8, 8, 32), Block(1, 2, 8), Traversal.DEPTH_FIRST)


def test_known_sizes_are_exact_and_complete_or_not_used() -> None:
    """Two cores: both streams must be known for the same depth and traversal."""
    u65 = load_target("ethos-u65-512")
    op = conv(np.ones((32, 1, 1, 32), dtype=np.int8))
    both = {EncodedKey("w", 16, Traversal.DEPTH_FIRST, 0, core): 100 for core in (0, 1)}
    found = weight_bytes(u65, op, DEPTH_FIRST, both)
    assert found == WeightBytes(200, 320, exact=True)
    one = {EncodedKey("w", 16, Traversal.DEPTH_FIRST, 0, 0): 100}
    assert not weight_bytes(u65, op, DEPTH_FIRST, one).exact
    other = {EncodedKey("w", 32, Traversal.DEPTH_FIRST, 0, core): 100 for core in (0, 1)}
    assert not weight_bytes(u65, op, DEPTH_FIRST, other).exact


def test_slices_add_up() -> None:
    """Two slices of 16 channels have two paddings of scales: 2 * 160 (U55); weights two streams."""
    u55 = load_target("ethos-u55-128")
    values = np.arange(-64, 64, dtype=np.int8).reshape(32, 1, 1, 4).repeat(8, axis=3)
    op = conv(values)
    sliced = weight_bytes(u55, op, DEPTH_FIRST, borders=(0, 16, 32))
    halves = [weight_bytes(u55, conv(values[a : a + 16]), DEPTH_FIRST) for a in (0, 16)]
    assert sliced.weights == sum(half.weights for half in halves)
    assert sliced.scales == 320


def test_stream_of_a_small_convolution(u55: Target) -> None:
    """8 output and 3 input channels, 1x1, depth-first: one tap, 32 input channels, 8 of output.

    The micro-block order is 8 input channels of each of 8 output channels; channels 3.. are zeros.
    """
    values = np.arange(1, 25, dtype=np.int16).reshape(8, 1, 1, 3)
    assert u55.accelerator is not None
    (stream,) = core_streams(u55.accelerator, values, Kernel(), DEPTH_FIRST, 8)
    assert len(stream) == 8 * 32
    assert stream[:16].tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0]
    assert not stream[64:].any()


def test_part_kernel_pads_taps_to_four(u55: Target) -> None:
    """A 3x3 kernel has 9 taps, padded to 12; 3 input channels are padded to 8: 8 * 12 * 8."""
    values = np.ones((8, 3, 3, 3), dtype=np.int16)
    block = BlockConfig(Block(8, 8, 16), Block(8, 8, 8), Block(1, 2, 8), Traversal.PART_KERNEL)
    assert u55.accelerator is not None
    (stream,) = core_streams(u55.accelerator, values, Kernel(h=3, w=3), block, 8)
    assert len(stream) == 8 * 12 * 8
    assert int(stream.sum()) == 8 * 27


@pytest.fixture(scope="module")
def u55() -> Target:
    return load_target("ethos-u55-128")


def test_length_of_a_constant_stream() -> None:
    """256 equal values: a palette of two 4-bit entries, each value in one bit.

    Header 23 + palette 13 + 2 * 4 bits; 256 unary symbols in 22 chunks of 12 = 264; end marker 3:
    311 bits = 39 bytes -> 48.
    """
    assert encoded_bytes(np.full(256, 7, dtype=np.int16)) == 48


def test_length_of_zeros() -> None:
    """1000 zeros: one is coded as a weight, the other 999 are a run.

    Header 23 + palette 13; the weight is index 1 (zero without a palette): one chunk of 12 symbols
    and one bit. Runs are 0 and 999: the search decides by the values before, so it stays with
    divisor 0: 1 + 1000 symbols in 84 chunks of 12. End 3: 36 + 13 + 1008 + 3 = 1060 bits = 133
    bytes -> 144.
    """
    assert encoded_bytes(np.zeros(1000, dtype=np.int16)) == 144


def test_palette_is_by_frequency() -> None:
    """Values 5 (three times), -2 (twice), 9 (once) get the indices 0, 1, 2."""
    counts = np.zeros(512, dtype=np.int64)
    for value, times in ((5, 3), (-2, 2), (9, 1)):
        counts[value + 256] = times
    palette = make_palette(counts, zero_runs=False)
    assert [int(palette.index_of[v + 256]) for v in (5, -2, 9)] == [0, 1, 2]
    assert palette.size == 3
    assert palette.entry_bits == 5  # 9 is code 18
    assert palette.uncompressed_bits == 2


def plain_search(
    values: list[int], codes: tuple[RiceCode, ...], uncompressed_bits: int
) -> list[tuple[int, int]]:
    """The greedy search, one value at a time: (code, end) of each slice."""
    n = len(codes)
    bits, reset, coded = [0] * n, [0] * n, [False] * n
    active, active_bits = -1, 0
    found: list[tuple[int, int]] = []
    for i, value in enumerate(values):
        for j, code in enumerate(codes):
            quotient = value >> code.divisor
            price = (min(quotient + 1, 2) if code.truncated else quotient + 1) + code.divisor
            fits = not code.limited or quotient <= (2 if code.truncated else 31)
            if code.uncompressed:
                price, fits = uncompressed_bits or 100, True
            if fits:
                bits[j] = (bits[j] if coded[j] else active_bits) + price
            else:
                reset[j] = i + 1
                bits[j] += 40
            coded[j] = fits
        best = min((j for j in range(n) if coded[j]), key=lambda j: (bits[j], j))
        if active < 0 or not coded[active] or bits[best] + 40 < active_bits:
            better = bits[best] < bits[active] and reset[best] <= reset[active]
            if active >= 0 and not better:
                found.append((active, i))
            active = best
        active_bits = bits[active]
    if not found or found[-1][0] != active:
        found.append((active, len(values)))
    else:
        found[-1] = (active, len(values))
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 900), st.sampled_from([1, 4, 30, 90]))
def test_slices_equal_the_plain_search(seed: int, count: int, spread: int) -> None:
    """Windows and vectors change nothing: same codes, same borders."""
    random = np.random.default_rng(seed)
    values = np.minimum(np.abs(random.laplace(0, spread, count)).astype(np.int64), 510)
    values[(np.arange(count) // 24) % 3 == 2] = int(random.integers(0, 3))
    for codes, plain in ((WEIGHT_CODES, int(random.choice([0, 6, 9]))), (RUN_CODES, 0)):
        fast = search_slices(values, codes, uncompressed_bits=plain)
        slow = plain_search(values.tolist(), codes, plain)
        assert [(codes.index(s.code), s.end) for s in fast] == slow


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40), st.integers(1, 4))
def test_streams_hold_every_weight_once(seed: int, out: int, channels: int, k: int) -> None:
    """Padding adds zeros only, on every family: the streams' sums of squares are the tensor's."""
    random = np.random.default_rng(seed)
    values = random.integers(-127, 128, (out, k, k, channels)).astype(np.int16)
    kernel = Kernel(h=k, w=k, stride_h=2, stride_w=1)
    blocks = {
        "ethos-u55-256": DEPTH_FIRST,
        "ethos-u65-512": DEPTH_FIRST,
        "ethos-u85-512": BlockConfig(
            Block(8, 8, 32), Block(8, 8, 64), Block(2, 2, 16), Traversal.DEPTH_FIRST
        ),
        "ethos-u85-1024": BlockConfig(
            Block(8, 8, 32), Block(8, 8, 16), Block(2, 2, 32), Traversal.PART_KERNEL
        ),
    }
    for name, block in blocks.items():
        streams = core_streams(accelerator(name), values, kernel, block, 8)
        squares = sum(int((s.astype(np.int64) ** 2).sum()) for s in streams)
        assert squares == int((values.astype(np.int64) ** 2).sum())
        assert all(len(s) >= values.size // max(len(streams), 1) for s in streams)


def test_two_of_four_sparsity() -> None:
    dense = np.ones((4, 1, 1, 8), dtype=np.int8)
    sparse = dense.copy()
    sparse[..., ::2] = 0
    found = conv(sparse).weights
    assert found is not None
    assert is_sparse(found)
    full = conv(dense).weights
    assert full is not None
    assert not is_sparse(full)


def test_fast_format_sizes() -> None:
    """Header 32; 100 values: 4 distinct take 2 bits (25 bytes), 5 take 4 (50), 17 take 8 (100)."""

    def size(distinct: int, *, sparse: bool = False) -> int:
        return fast_bytes([(np.arange(100) % distinct).astype(np.int16)], sparse=sparse)

    assert size(4) == 64
    assert size(5) == 96
    assert size(17) == 160
    assert size(4, sparse=True) == 160


def test_only_the_u85_has_formats() -> None:
    op = conv(np.zeros((16, 1, 1, 16), dtype=np.int8))
    assert weight_format(load_target("ethos-u55-128"), op) == WeightFormat()
    assert uses_sparse_weights(load_target("ethos-u85-256"), op)
    assert not uses_sparse_weights(load_target("ethos-u65-256"), op)
