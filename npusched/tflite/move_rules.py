"""Shape rules, part 2: the ops that move, cut and join (reshape, slice, concat, pad, ...)."""

from __future__ import annotations

from math import prod
from typing import Final

from npusched.ir import Options, Shape
from npusched.ir.options import (
    AxisOptions,
    ConcatOptions,
    ReshapeOptions,
    SqueezeOptions,
    StridedSliceOptions,
)
from npusched.tflite.rules import (
    NeedsValues,
    Operands,
    axis_of,
    broadcast,
    fail,
    need,
    optional,
)

_MAX_PARTS: Final = 1 << 16


def reshape(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """RESHAPE: the shape is input 1, else an option; one axis may be -1."""
    assert isinstance(options, ReshapeOptions)
    ifm, wanted = need(operands, 0), optional(operands, 1)
    if wanted is not None:
        target = wanted.ints()
    elif options.new_shape:
        target = options.new_shape
    else:
        raise NeedsValues
    if target == (0,) and ifm.elements == 1:
        return ((),)  # old converters write [0] for a scalar
    known = prod(size for size in target if size != -1)
    if target.count(-1) > 1 or any(size < -1 for size in target):
        fail(f"the new shape {list(target)} is impossible")
    if -1 in target:
        if known == 0 or ifm.elements % known:
            fail(f"{ifm.elements} elements do not fill {list(target)}")
        return (tuple(ifm.elements // known if s == -1 else s for s in target),)
    if known != ifm.elements:
        fail(f"{ifm.elements} elements do not fill {list(target)}")
    return (target,)


def squeeze(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """SQUEEZE: the named axes (all unit axes if none is named)."""
    assert isinstance(options, SqueezeOptions)
    ifm = need(operands, 0)
    named = {axis_of(axis, ifm.rank) for axis in options.squeeze_dims}
    gone = named or {i for i, size in enumerate(ifm.shape) if size == 1}
    if any(ifm.shape[axis] != 1 for axis in gone):
        fail(f"axes {sorted(gone)} of {list(ifm.shape)} are not all 1")
    return (tuple(size for i, size in enumerate(ifm.shape) if i not in gone),)


def expand_dims(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """EXPAND_DIMS: the axis is input 1."""
    ifm = need(operands, 0)
    (axis,) = need(operands, 1).ints()[:1] or (0,)
    place = axis_of(axis, ifm.rank + 1)
    return ((*ifm.shape[:place], 1, *ifm.shape[place:]),)


def transpose(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """TRANSPOSE: the permutation is input 1."""
    ifm, order = need(operands, 0), need(operands, 1).ints()
    order = tuple(axis_of(axis, ifm.rank) for axis in order)
    if sorted(order) != list(range(ifm.rank)):
        fail(f"permutation {list(order)} of {ifm.rank} axes")
    return (tuple(ifm.shape[axis] for axis in order),)


def concat(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """CONCATENATION."""
    assert isinstance(options, ConcatOptions)
    shapes = [need(operands, i).shape for i in range(len(operands))]
    axis = axis_of(options.axis, len(shapes[0]))
    rest = {(len(s), s[:axis], s[axis + 1 :]) for s in shapes}
    if len(rest) != 1:
        fail(f"shapes {[list(s) for s in shapes[:4]]} do not join along axis {axis}")
    return ((*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]),)


def pack(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """PACK: a new axis over equal shapes."""
    assert isinstance(options, AxisOptions)
    shapes = {need(operands, i).shape for i in range(len(operands))}
    if len(shapes) != 1:
        fail(f"shapes {[list(s) for s in sorted(shapes)[:4]]} differ")
    (shape,) = shapes
    place = axis_of(options.axis, len(shape) + 1)
    return ((*shape[:place], len(operands), *shape[place:]),)


def unpack(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """UNPACK: one output per index of the axis."""
    assert isinstance(options, AxisOptions)
    ifm = need(operands, 0)
    axis = axis_of(options.axis, ifm.rank)
    if ifm.shape[axis] != options.count or options.count > _MAX_PARTS:
        fail(f"{options.count} outputs from an axis of {ifm.shape[axis]}")
    return (ifm.shape[:axis] + ifm.shape[axis + 1 :],) * options.count


def split(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """SPLIT: input 0 is the axis."""
    assert isinstance(options, AxisOptions)
    ifm = need(operands, 1)
    axis = axis_of(need(operands, 0).ints()[0], ifm.rank)
    if not 1 <= options.count <= _MAX_PARTS or ifm.shape[axis] % options.count:
        fail(f"an axis of {ifm.shape[axis]} does not split into {options.count}")
    part = (*ifm.shape[:axis], ifm.shape[axis] // options.count, *ifm.shape[axis + 1 :])
    return (part,) * options.count


def split_v(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """SPLIT_V: input 1 holds the sizes (one may be -1), input 2 the axis."""
    ifm, sizes = need(operands, 0), need(operands, 1).ints()
    axis = axis_of(need(operands, 2).ints()[0], ifm.rank)
    if sizes.count(-1) == 1:
        left = ifm.shape[axis] - sum(size for size in sizes if size != -1)
        sizes = tuple(left if size == -1 else size for size in sizes)
    if min(sizes, default=0) < 0 or sum(sizes) != ifm.shape[axis]:
        fail(f"sizes {list(sizes)} do not add up to an axis of {ifm.shape[axis]}")
    return tuple((*ifm.shape[:axis], size, *ifm.shape[axis + 1 :]) for size in sizes)


def cut(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """SLICE: begin and size are inputs 1 and 2; size -1 = to the end."""
    ifm, begin, size = need(operands, 0), need(operands, 1).ints(), need(operands, 2).ints()
    if not len(begin) == len(size) == ifm.rank:
        fail(f"begin {list(begin)} and size {list(size)} for {ifm.rank} axes")
    found = []
    for whole, start, count in zip(ifm.shape, begin, size, strict=True):
        length = whole - start if count == -1 else count
        if start < 0 or length < 0 or start + length > whole:
            fail(f"begin {start} and size {count} leave an axis of {whole}")
        found.append(length)
    return (tuple(found),)


def strided_slice(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """STRIDED_SLICE: begin, end and strides are inputs 1 to 3."""
    assert isinstance(options, StridedSliceOptions)
    ifm = need(operands, 0)
    begin, end, strides = (need(operands, i).ints() for i in (1, 2, 3))
    if not len(begin) == len(end) == len(strides):
        fail(f"begin {list(begin)}, end {list(end)} and strides {list(strides)} differ in length")
    if options.ellipsis_mask or options.new_axis_mask:
        raise NeedsValues
    if len(begin) > ifm.rank:
        fail(f"{len(begin)} ranges for {ifm.rank} axes")
    found: list[int] = []
    for axis, (start, stop, step) in enumerate(zip(begin, end, strides, strict=True)):
        if step == 0:
            fail("a stride is 0")
        if options.offset:
            stop += start
        if options.shrink_axis_mask >> axis & 1:
            axis_of(start, ifm.shape[axis])
            continue
        first = None if options.begin_mask >> axis & 1 else start
        last = None if options.end_mask >> axis & 1 else stop
        found.append(len(range(*slice(first, last, step).indices(ifm.shape[axis]))))
    return ((*found, *ifm.shape[len(begin) :]),)


def pad(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """PAD, PADV2, MIRROR_PAD: input 1 holds (before, after) per axis."""
    ifm, pads = need(operands, 0), need(operands, 1).ints()
    if len(pads) != 2 * ifm.rank or min(pads, default=0) < 0:
        fail(f"paddings {list(pads)} for {ifm.rank} axes")
    sizes = zip(ifm.shape, pads[::2], pads[1::2], strict=True)
    return (tuple(size + before + after for size, before, after in sizes),)


def tile(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """TILE: input 1 holds the multiples."""
    ifm, multiples = need(operands, 0), need(operands, 1).ints()
    if len(multiples) != ifm.rank or min(multiples, default=1) < 0:
        fail(f"multiples {list(multiples)} for {ifm.rank} axes")
    return (tuple(size * m for size, m in zip(ifm.shape, multiples, strict=True)),)


def resize(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """RESIZE_*: input 1 holds height and width."""
    n, _h, _w, c = need(operands, 0, 4).shape
    size = need(operands, 1).ints()
    if len(size) != 2 or min(size) < 1:
        fail(f"size {list(size)} is not a height and a width")
    return ((n, size[0], size[1], c),)


def gather(options: Options, operands: Operands) -> tuple[Shape, ...]:
    """GATHER: indices replace one axis; the first ``batch_dims`` axes are shared."""
    assert isinstance(options, AxisOptions)
    ifm, indices = need(operands, 0), need(operands, 1)
    axis = axis_of(options.axis, ifm.rank)
    shared = options.batch_dims + (indices.rank if options.batch_dims < 0 else 0)
    if not 0 <= shared <= min(axis, indices.rank):
        fail(f"{options.batch_dims} batch axes for axis {axis} and indices {list(indices.shape)}")
    return ((*ifm.shape[:axis], *indices.shape[shared:], *ifm.shape[axis + 1 :]),)


def space_to_batch(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """SPACE_TO_BATCH_ND: block sizes and paddings are inputs 1 and 2."""
    ifm, blocks, pads = need(operands, 0), need(operands, 1).ints(), need(operands, 2).ints()
    if len(pads) != 2 * len(blocks) or len(blocks) >= ifm.rank or min(blocks, default=0) < 1:
        fail(f"blocks {list(blocks)} and paddings {list(pads)} for {list(ifm.shape)}")
    sizes = [
        size + before + after
        for size, before, after in zip(ifm.shape[1:], pads[::2], pads[1::2], strict=False)
    ]
    if any(size % block for size, block in zip(sizes, blocks, strict=True)):
        fail(f"padded axes {sizes} are no multiples of blocks {list(blocks)}")
    inner = (size // block for size, block in zip(sizes, blocks, strict=True))
    return ((ifm.shape[0] * prod(blocks), *inner, *ifm.shape[1 + len(blocks) :]),)


def batch_to_space(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """BATCH_TO_SPACE_ND: block sizes and crops are inputs 1 and 2."""
    ifm, blocks, crops = need(operands, 0), need(operands, 1).ints(), need(operands, 2).ints()
    if len(crops) != 2 * len(blocks) or len(blocks) >= ifm.rank or min(blocks, default=0) < 1:
        fail(f"blocks {list(blocks)} and crops {list(crops)} for {list(ifm.shape)}")
    if ifm.shape[0] % prod(blocks):
        fail(f"a batch of {ifm.shape[0]} is no multiple of blocks {list(blocks)}")
    inner = [
        size * block - before - after
        for size, block, before, after in zip(
            ifm.shape[1:], blocks, crops[::2], crops[1::2], strict=False
        )
    ]
    if min(inner, default=1) < 1:
        fail(f"crops {list(crops)} leave nothing of {list(ifm.shape)}")
    return ((ifm.shape[0] // prod(blocks), *inner, *ifm.shape[1 + len(blocks) :]),)


def shape_of(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """SHAPE."""
    return ((need(operands, 0).rank,),)


def rank_of(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """RANK."""
    need(operands, 0)
    return ((),)


def fill(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """FILL: input 0 holds the shape."""
    return (need(operands, 0).ints(),)


def broadcast_to(_: Options, operands: Operands) -> tuple[Shape, ...]:
    """BROADCAST_TO: input 1 holds the shape."""
    target = need(operands, 1).ints()
    if broadcast(need(operands, 0).shape, target) != target:
        fail(f"{list(need(operands, 0).shape)} does not broadcast to {list(target)}")
    return (target,)
