"""Block choice on Ethos-U85: an independent legality check, and a slow oracle of the search."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npusched.cost.blocks_u85 import find_block
from npusched.cost.types import BlockConfig, CostFm, CostOp, CostSub, Traversal
from npusched.errors import TargetError
from npusched.graph.types import Kernel, KernelKind, Reverse
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU85, Block

K = KernelKind
SIZES = [128, 256, 512, 1024, 2048]

CONV = (K.CONV2D, K.FULLY_CONNECTED)
POOL = (K.MAX_POOL, K.AVG_POOL, K.LUT, K.QUANTIZE, K.MEMORY_COPY, K.TRANSPOSE)
MIN_MAX = (K.REDUCE_MAX, K.REDUCE_MIN)
BINARY = (K.ADD, K.MUL, K.MINIMUM)

# Who may use a micro-block, for 8, 16 and 32-bit IFMs (VELA_SPEC_2 §9): Conv, Matmul, Depthwise,
# Pool, Sum, miN and max, Argmax, Elementwise, Resize.
LEGAL = {
    (128, (1, 2, 8)): ("CMSER", "CMDPSNAER", "SNER"),
    (128, (1, 1, 16)): ("DPNAER", "CER", "ER"),
    (256, (2, 2, 8)): ("CMSER", "CMDPSNAER", "SNER"),
    (256, (1, 4, 8)): ("CMSER", "CMDPSNAER", "SNER"),
    (256, (1, 2, 16)): ("DPNAER", "CER", "ER"),
    (512, (2, 2, 16)): ("CMDPSNAER", "CMDPSNAER", "SNER"),
    (512, (1, 4, 16)): ("CMDPSNAER", "CMDPSNAER", "SNER"),
    (1024, (2, 2, 32)): ("CME", "CME", "E"),
    (1024, (1, 4, 32)): ("CME", "CME", "E"),
    (1024, (2, 4, 16)): ("CDPSNAER", "CDPSNAER", "SNER"),
    (2048, (2, 2, 64)): ("CME", "CME", "E"),
    (2048, (1, 4, 64)): ("CME", "CME", "E"),
    (2048, (4, 4, 16)): ("CDPSNAER", "CDPSNAER", "SNER"),
}

# IFM storage units (rows, columns, 128-bit words) for up to 128, up to 256, and more bits of depth.
UNITS = {
    128: ("121", "112", "112"),
    256: ("221", "122", "114"),
    512: ("221", "122", "114"),
    1024: ("241", "222", "124"),
    2048: ("441", "242", "224"),
}
FLAT_UNITS = {
    256: ("141", "122", "114"),
    512: ("141", "122", "114"),
    1024: ("241", "142", "124"),
    2048: ("441", "242", "144"),
}


@cache
def u85(macs: int) -> AcceleratorU85:
    found = load_target(f"ethos-u85-{macs}").accelerator
    assert isinstance(found, AcceleratorU85)
    return found


def letter(kind: KernelKind) -> str:
    if kind in CONV:
        return "C"
    if kind in POOL:
        return "P"
    if kind in MIN_MAX:
        return "N"
    others = {K.MATMUL: "M", K.DEPTHWISE: "D", K.REDUCE_SUM: "S", K.ARG_MAX: "A", K.RESIZE: "R"}
    return others.get(kind, "E")


@st.composite
def ops(draw: st.DrawFn, kinds: tuple[KernelKind, ...], most: int = 150) -> CostOp:
    """Kernels as lowering makes them, of all types, with odd and round sizes."""
    kind = draw(st.sampled_from(kinds))
    size = st.one_of(st.integers(1, most), st.sampled_from([1, 2, 7, 8, 14, 16, 28, 32, 56]))
    channels = st.one_of(st.integers(1, 3 * most), st.sampled_from([1, 3, 16, 32, 64, 96, 128]))
    h, w, c_in, c_out = draw(size), draw(size), draw(channels), draw(channels)
    bits = draw(st.sampled_from([8, 16, 32] if letter(kind) in "ESN" else [8, 16]))
    if kind is K.MEMORY_COPY:
        bits = draw(st.sampled_from([8, 16, 32, 64]))
    windowed = letter(kind) in "CDP" and kind not in (*POOL[2:], K.FULLY_CONNECTED)
    taps = draw(st.tuples(st.integers(1, 12), st.integers(1, 12))) if windowed else (1, 1)
    stride = draw(st.integers(1, 3)) if windowed else 1
    dilation = draw(st.integers(1, 3)) if letter(kind) in "CD" and windowed else 1
    kernel = Kernel(
        h=taps[0],
        w=taps[1],
        stride_h=stride,
        stride_w=stride,
        dilation_h=dilation,
        dilation_w=dilation,
    )
    if letter(kind) not in "CMS":
        c_out = c_in
    out = (1, h, w, 1 if letter(kind) == "S" else c_out)
    ifm = ((h - 1) * stride + 1, (w - 1) * stride + 1)
    if kind is K.RESIZE:
        ifm = (max(h // draw(st.integers(1, 8)), 1), max(w // draw(st.integers(1, 8)), 1))
    second = None
    if kind in BINARY:
        flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
        shape = [1 if flag else full for flag, full in zip(flags, (h, w, c_in), strict=True)]
        second = CostFm((1, shape[0], shape[1], shape[2]), bits, True, None)
    if kind is K.MATMUL:
        second = CostFm((1, 1, c_out, c_in), bits, True, None)
    return CostOp(
        kind,
        CostFm((1, *ifm, c_in), bits, draw(st.booleans()), None),
        CostFm(out, bits, draw(st.booleans()), None),
        second,
        kernel,
        scaled=draw(st.booleans()),
        sparse=letter(kind) == "C" and draw(st.booleans()),
    )


ALL = (*CONV, *POOL, *MIN_MAX, *BINARY, K.ABS, K.MATMUL, K.DEPTHWISE, K.REDUCE_SUM, K.ARG_MAX)


def walks_window_first(op: CostOp) -> bool:
    """Part-kernel traversal: does a walk in fives (sparse: tens) fill more of the MACs?"""
    if letter(op.kind) != "C":
        return False
    channels, taps = op.ifm.shape[3], op.kernel.h * op.kernel.w
    step, least, deep = (10, 4, 128) if op.sparse else (5, 2, 64)
    walked = taps // step * step + max(taps % step, least)
    padded, padded_deep = -(-channels // 16) * 16, -(-channels // deep) * deep
    return channels / padded * (taps / walked) >= channels / padded_deep


def fixed_depth(macs: int, op: CostOp, micro: Block) -> int:
    """Channels of the IFM block of kernels that sum over channels."""
    if walks_window_first(op):
        return 16
    if op.ifm.bits == 32 or (macs <= 256 and micro.c == 16 and not op.sparse):
        return 32
    return 128 if op.sparse and op.ifm.bits == 8 else 64


def may_use(macs: int, ublock: tuple[int, int, int], op: CostOp) -> bool:
    """Legality straight from the table; deep micro-blocks convolve 1x1 depth-first only."""
    bits = 8 if op.kind is K.MEMORY_COPY and op.ifm.bits >= 32 else op.ifm.bits
    pointwise = op.kernel.h == op.kernel.w == 1 and not walks_window_first(op)
    if macs <= 256 and ublock[2] == 16 and letter(op.kind) == "C" and not pointwise:
        return False
    return letter(op.kind) in LEGAL[macs, ublock][bits // 16]


def waste(op: CostOp, ublock: tuple[int, int, int]) -> int:
    """Elements of the OFM when each axis is rounded up to the micro-block."""
    total = 1
    for extent, step in zip(op.ofm.shape[1:], ublock, strict=True):
        total *= (extent + step - 1) // step * step
    return total


def storage_unit(macs: int, micro: Block, depth_bits: int) -> tuple[int, int, int]:
    """Rows, columns and 128-bit words in which an IFM block of that depth is stored."""
    column = 0 if depth_bits <= 128 else 1 if depth_bits <= 256 else 2
    flat = (micro.h, micro.w) == (1, 4)
    rows, columns, words = (int(d) for d in (FLAT_UNITS if flat else UNITS)[macs][column])
    return rows, columns, words


def ifm_bytes(macs: int, op: CostOp, block: BlockConfig) -> int:
    """Bytes of the input buffer that one IFM block takes, in whole storage units."""
    depth = block.ifm_block.c
    rows, columns, words = storage_unit(macs, block.ofm_ublock, depth * op.ifm.bits)
    assert block.ifm_block.h % rows == 0
    assert block.ifm_block.w % columns == 0
    if letter(op.kind) in "CMS":
        depth = min(depth, op.ifm.shape[3])
    stored = -(-depth * op.ifm.bits // (128 * words)) * 16 * words
    return block.ifm_block.h * block.ifm_block.w * stored


def accumulator_bytes(op: CostOp, block: Block) -> int:
    """Bytes of accumulators of a block, 16 deep; 64 bits for scaled 16-bit sums and wide types."""
    summing = letter(op.kind) in "CMD"
    wide = op.ifm.bits > 32 or (op.ifm.bits == 16 and summing and op.scaled)
    return block.h * block.w * -(-block.c // 16) * 16 * (8 if wide else 4)


def least_block_fits(macs: int, op: CostOp) -> bool:
    """True if a block of one micro-block fits the input buffer, for convolutions."""
    u = u85(macs)
    legal = [m for m in u.ofm_ublocks if may_use(macs, (m.h, m.w, m.c), op)]
    micro = min(legal, key=lambda m: waste(op, (m.h, m.w, m.c)))
    depth = fixed_depth(macs, op, micro)
    rows, columns, _ = storage_unit(macs, micro, depth * op.ifm.bits)
    k = op.kernel
    h = (micro.h - 1) * k.stride_h + min(k.dilated_h, 8)
    w = (micro.w - 1) * k.stride_w + min(k.dilated_w, 8)
    trial = BlockConfig(
        micro,
        Block(-(-h // rows) * rows, -(-w // columns) * columns, depth),
        micro,
        Traversal.DEPTH_FIRST,
    )
    return ifm_bytes(macs, op, trial) <= u.input_buffer_bytes


def found_block(macs: int, op: CostOp) -> BlockConfig | None:
    """Return the block, or None where the search rightly refuses: not even the least one fits."""
    try:
        return find_block(u85(macs), op)
    except TargetError:
        refused = True
    assert refused
    assert not least_block_fits(macs, op)
    return None


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SIZES), ops(ALL))
def test_every_block_is_legal_and_fits(macs: int, op: CostOp) -> None:
    """Micro-block legal and least wasteful, block a multiple of it, within limits and buffers.

    Elementwise kernels have no accumulators and stream the input, so that only limits and steps
    hold. Their width, and the height of an area fit, may exceed the OFM (as in Vela's report).
    """
    u = u85(macs)
    block = found_block(macs, op)
    if block is None:
        return
    assert (block.traversal is Traversal.PART_KERNEL) == walks_window_first(op)
    micro, ofm = block.ofm_ublock, block.ofm_block
    ublock = (micro.h, micro.w, micro.c)
    assert may_use(macs, ublock, op)
    for other in u.ofm_ublocks:
        shape = (other.h, other.w, other.c)
        assert not may_use(macs, shape, op) or waste(op, shape) >= waste(op, ublock)
    assert (ofm.h % micro.h, ofm.w % micro.w) == (0, 0)
    assert ofm.c % min(micro.c, 16) == 0
    assert ofm.c <= 1024
    area_fit = letter(op.kind) in "DPSNA" and op.kind is not K.MEMORY_COPY
    if not area_fit:
        assert ofm.h <= min(128, op.ofm.shape[1] + micro.h - 1)
    if letter(op.kind) == "E":
        assert block.ifm_block == ofm
        return
    assert ofm.w <= min(128, op.ofm.shape[2] + micro.w - 1)
    need_h = (ofm.h - 1) * op.kernel.stride_h + min(op.kernel.dilated_h, 8)
    need_w = (ofm.w - 1) * op.kernel.stride_w + min(op.kernel.dilated_w, 8)
    assert block.ifm_block.h >= need_h
    assert block.ifm_block.w >= need_w
    assert accumulator_bytes(op, ofm) <= u.accumulator_buffer_bytes
    whole_ifm = op.ifm.elements * op.ifm.bits // 8
    if not (area_fit and whole_ifm <= u.input_buffer_bytes):
        assert ifm_bytes(macs, op, block) <= u.input_buffer_bytes


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SIZES), ops((*CONV, K.DEPTHWISE, K.LUT, K.TRANSPOSE)), st.data())
def test_transposed_and_reversed_blocks_fit_or_are_refused(
    macs: int, op: CostOp, data: st.DataObject
) -> None:
    """The axis that becomes brick channels is blocked by 16, reversed channels 16 deep at most."""
    first, second, third = data.draw(st.permutations((0, 1, 2)))
    order = (first, second, third)
    reverse = data.draw(st.sampled_from([Reverse.NONE, Reverse.C, Reverse.W]))
    axes = op.ofm.shape[1:]
    stored = CostFm((1, axes[first], axes[second], axes[third]), op.ofm.bits, op.ofm.brick, None)
    follower = CostSub(K.TRANSPOSE, op.ofm.bits, stored, transpose=order, reverse=reverse)
    moved = CostOp(
        op.kind,
        op.ifm,
        op.ofm,
        kernel=op.kernel,
        scaled=op.scaled,
        sparse=op.sparse,
        subs=(follower,),
    )
    u = u85(macs)
    try:
        ofm = find_block(u, moved).ofm_block
    except TargetError:
        refused = True
    else:
        refused = False
    if refused:
        assert third != 2 or reverse is Reverse.C
        return
    extents = (ofm.h, ofm.w, ofm.c)
    if op.ofm.brick and order[2] != 2:
        assert extents[order[2]] % 16 == 0
    if reverse is Reverse.C:
        assert ofm.c <= 16
    if op.kind in CONV:
        limits = [128, 128, 1024]
        assert all(extents[order[i]] <= limits[i] for i in range(3))
    assert accumulator_bytes(op, ofm) <= u.accumulator_buffer_bytes


def slow_search(u: AcceleratorU85, op: CostOp, micro: Block) -> tuple[int, int, int] | None:
    """The search of VELA_SPEC_2 §9 as plain loops in float32, for conv, matmul and copies."""
    f = np.float32
    k, bits = op.kernel, op.ifm.bits
    _, o_h, o_w, o_c = op.ofm.shape
    source = op.ifm if op.ifm2 is None or op.ifm2.elements <= op.ifm.elements else op.ifm2
    _, i_h, i_w, i_c = source.shape
    equal, product = op.kind is K.MEMORY_COPY, op.kind is K.MATMUL
    wide = bits > 32 or (bits == 16 and not equal and op.scaled)
    fixed = fixed_depth(u.macs_per_cycle, op, micro)

    def rup(value: int, step: int) -> int:
        return (value + step - 1) // step * step

    def unit(depth: int) -> tuple[int, int, int]:
        rows, columns, words = storage_unit(u.macs_per_cycle, micro, depth * bits)
        return rows, columns, words * 128 // bits

    ends = [rup(max(min(o_h, 128), micro.h), micro.h), rup(max(min(o_w, 128), micro.w), micro.w)]
    end_c = rup(max(min(o_c, 1024), micro.c, 16), micro.c)
    for resident in (2, 1):
        best, cost_so_far, cover_so_far = None, f(np.inf), f(np.inf)
        depth = max(micro.c, min(end_c, 16))
        depth = rup(depth, 16) if depth < o_c else depth
        while depth <= end_c:
            d_ifm = depth if equal else fixed
            u_h, u_w, u_c = unit(d_ifm)
            for h in range(micro.h, ends[0] + 1, micro.h):
                for w in range(micro.w, ends[1] + 1, micro.w):
                    b_h = rup((h - 1) * k.stride_h + min(k.dilated_h, 8), u_h)
                    b_w = rup((w - 1) * k.stride_w + min(k.dilated_w, 8), u_w)
                    b_c = rup(d_ifm, u_c)
                    held = rup(depth, u_c) if equal else rup(min(b_c, i_c), u_c)
                    acc = h * w * rup(depth, 16) * (8 if wide else 4) * resident
                    if acc > u.accumulator_buffer_bytes:
                        continue
                    if b_h * b_w * held * (bits // 8) * resident > u.input_buffer_bytes:
                        continue
                    per = (f(o_w) / f(w), f(o_h) / f(h), f(o_c) / f(depth))
                    covers = (k.dilated_h, k.dilated_w) == (i_h, i_w) and o_h * o_w == 1
                    if product or (covers and not equal):
                        cost = f(op.ofm.elements) / (f(h) * f(w) * f(depth))
                    else:
                        taps = 0 if equal else k.h * k.w
                        weights = f(taps) * f(i_c) * (np.ceil(per[0]) * np.ceil(per[1]))
                        weights = weights * (per[2] * f(depth))
                        repeats = -(-k.dilated_h // 8) * -(-k.dilated_w // 8)
                        fetch = f(b_h * b_w) * f(i_c) * f(repeats) * (per[0] * per[1])
                        fetch = fetch if equal else fetch * np.ceil(per[2])
                        cost = (fetch + weights) / f(op.ofm.elements)
                    if source.elements < 2 * b_h * b_w * b_c:
                        cost = cost / f(2)
                    if cost < cost_so_far:
                        best, cost_so_far, cover_so_far = (h, w, depth), cost, f(np.inf)
                    elif cost == cost_so_far and ((h <= 4 and w <= 4) or product):
                        inside = max(min(i_h, b_h) * min(i_w, b_w), 1)
                        cover = f(i_h * i_w) / f(inside)
                        if cover <= cover_so_far:
                            best, cover_so_far = (h, w, depth), cover
            depth += micro.c
            depth = rup(depth, 16) if depth < o_c else depth
        if best is not None:
            return best
    return None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SIZES), ops((*CONV, K.MATMUL, K.MEMORY_COPY), most=40))
def test_search_equals_plain_loops(macs: int, op: CostOp) -> None:
    """The vectorised search and the loops choose the same block, ties included."""
    block = found_block(macs, op)
    if block is not None:
        ofm = block.ofm_block
        assert (ofm.h, ofm.w, ofm.c) == slow_search(u85(macs), op, block.ofm_ublock)
