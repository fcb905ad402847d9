"""Cases around the limits of reductions, data movement and resizing."""

from __future__ import annotations

from collections.abc import Iterator

from npusched.ir import OpKind
from npusched.ir.options import (
    AxisOptions,
    ReduceOptions,
    ResizeOptions,
    StridedSliceOptions,
)
from tests.ops.boundary_case import Boundary, one
from tests.ops.one_op import T, ints


def reductions() -> Iterator[Boundary]:
    """MEAN, SUM, maxima, ARG_MAX (LOWERING §2.4)."""

    def mean(
        name: str,
        shape: tuple[int, ...],
        axes: tuple[int, ...],
        dtype: str = "int8",
        params: T | None = None,
        **expected: str,
    ) -> Boundary:
        reduced = {a % len(shape) for a in axes}
        out = tuple(1 if i in reduced else s for i, s in enumerate(shape))
        inputs = (T(shape, dtype), params or ints(*axes))
        return one(
            name, OpKind.MEAN, inputs, T(out, dtype), ReduceOptions(keep_dims=True), **expected
        )

    yield mean("mean of h and w", (1, 8, 8, 16), (1, 2))
    yield mean("mean of negative axes", (1, 8, 8, 16), (-3, -2))
    yield mean("mean batch 2", (2, 8, 8, 16), (1, 2), both="batch")
    yield mean("mean over channels", (1, 8, 8, 16), (3,), both="depth_reduction")
    yield mean("mean over channels, w 1", (1, 8, 1, 16), (3,))
    yield mean("mean over channels, rank 2", (8, 16), (1,))
    yield mean("mean over 4096 rows", (1, 4096, 1, 2), (1,))
    yield mean("mean over 4097 rows", (1, 4097, 1, 2), (1,), both="reduced_axis")
    yield mean("mean of 65536 int16", (1, 256, 256, 1), (1, 2), "int16")
    yield mean("mean of 65792 int16", (1, 257, 256, 1), (1, 2), "int16", both="reduced_elements")
    yield mean(
        "mean computed axes (crash)",
        (1, 8, 8, 16),
        (1, 2),
        params=T((2,), "int32"),
        both="constant_parameters",
    )
    yield one(
        "mean int32",
        OpKind.MEAN,
        (T((1, 8, 8, 4), "int32", 0.5), ints(1, 2)),
        T((1, 1, 1, 4), "int32", 0.5),
        ReduceOptions(keep_dims=True),
        both="input_type",
    )
    shape = (1, 4, 4, 8)
    for kind in (OpKind.SUM, OpKind.REDUCE_MAX, OpKind.REDUCE_MIN):
        yield one(
            f"{kind} int8",
            kind,
            (T(shape), ints(3)),
            T((1, 4, 4, 1)),
            ReduceOptions(keep_dims=True),
        )
        u55 = "" if kind is OpKind.SUM else "feature_map_32bit"
        yield one(
            f"{kind} int32",
            kind,
            (T(shape, "int32"), ints(3)),
            T((1, 4, 4, 1), "int32"),
            ReduceOptions(keep_dims=True),
            u55=u55,
        )
    for depth, axis, dtype, u55, both in (
        (127, 3, "int8", "", None),
        (128, 3, "int8", "argmax_depth", None),
        (16, -1, "uint8", "", None),
        (16, 1, "int8", "argmax_axis", None),
        (16, 3, "int16", "", "input_8bit"),
    ):
        out = tuple(s for i, s in enumerate((1, 4, 4, depth)) if i != axis % 4)
        inputs = (T((1, 4, 4, depth), dtype), ints(axis))
        yield one(
            f"arg max {depth} axis {axis} {dtype}",
            OpKind.ARG_MAX,
            inputs,
            T(out, "int32"),
            u55=u55,
            both=both,
        )
    batch = (T((2, 4, 4, 8)), ints(3))
    yield one(
        "arg max batch 2", OpKind.ARG_MAX, batch, T((2, 4, 4), "int32"), u55="uncompilable_batch"
    )
    yield one("arg max int64", OpKind.ARG_MAX, (T((1, 4, 4, 8)), ints(3)), T((1, 4, 4), "int64"))
    yield one(
        "arg min", OpKind.ARG_MIN, (T((1, 4, 4, 8)), ints(3)), T((1, 4, 4), "int32"), both="op_kind"
    )


def movement() -> Iterator[Boundary]:
    """Slices, pads, transposes, splits, reversals, gathers (LOWERING §2.4)."""

    def strided(
        name: str,
        begin: tuple[int, ...],
        end: tuple[int, ...],
        step: tuple[int, ...],
        out: tuple[int, ...],
        masks: StridedSliceOptions | None = None,
        params: T | None = None,
        **expected: str,
    ) -> Boundary:
        inputs = (T((1, 8, 8, 16)), params or ints(*begin), ints(*end), ints(*step))
        return one(
            name, OpKind.STRIDED_SLICE, inputs, T(out), masks or StridedSliceOptions(), **expected
        )

    yield strided("slice", (0, 2, 2, 0), (1, 6, 6, 16), (1, 1, 1, 1), (1, 4, 4, 16))
    yield strided("slice h and w by 2", (0, 0, 0, 0), (1, 8, 8, 16), (1, 2, 2, 1), (1, 4, 4, 16))
    yield strided(
        "slice channels by 2",
        (0, 0, 0, 0),
        (1, 8, 8, 16),
        (1, 1, 1, 2),
        (1, 8, 8, 8),
        both="slice_stride_axis",
    )
    yield strided(
        "slice backwards",
        (0, 7, 0, 0),
        (1, -9, 8, 16),
        (1, -1, 1, 1),
        (1, 8, 8, 16),
        both="slice_stride_sign",
    )
    yield strided(
        "slice shrinks h",
        (0, 3, 0, 0),
        (1, 4, 8, 16),
        (1, 1, 1, 1),
        (1, 8, 16),
        StridedSliceOptions(shrink_axis_mask=2),
    )
    yield strided(
        "slice with masks",
        (0, 3, 0, 0),
        (0, 0, 0, 0),
        (1, 1, 1, 1),
        (1, 5, 8, 16),
        StridedSliceOptions(begin_mask=13, end_mask=15),
    )
    yield strided(
        "slice computed begin",
        (0, 0, 0, 0),
        (1, 8, 8, 16),
        (1, 1, 1, 1),
        (1, 8, 8, 16),
        params=T((4,), "int32"),
        both="constant_parameters",
    )
    yield one(
        "slice op",
        OpKind.SLICE,
        (T((1, 8, 8, 16)), ints(0, 2, 2, 0), ints(1, 4, 4, 16)),
        T((1, 4, 4, 16)),
    )
    yield one(
        "slice op computed",
        OpKind.SLICE,
        (T((1, 8, 8, 16)), T((4,), "int32"), ints(1, 4, 4, 16)),
        T((1, 4, 4, 16)),
        both="constant_parameters",
    )
    pads = T((4, 2), "int32", None, values=(0, 0, 1, 1, 1, 1, 0, 0))
    pads64 = T((4, 2), "int64", None, values=(0, 0, 1, 1, 1, 1, 0, 0))
    x = T((1, 4, 4, 8))
    yield one("pad", OpKind.PAD, (x, pads), T((1, 6, 6, 8)))
    yield one("pad int64", OpKind.PAD, (x, pads64), T((1, 6, 6, 8)))
    yield one("pad wrong result", OpKind.PAD, (x, pads), T((1, 6, 7, 8)), both="pad_shape")
    yield one("padv2", OpKind.PADV2, (x, pads, T((1,), values=3)), T((1, 6, 6, 8)))
    yield one(
        "padv2 computed value",
        OpKind.PADV2,
        (x, pads, T((1,))),
        T((1, 6, 6, 8)),
        both="constant_parameters",
    )
    yield one(
        "pad int32 map",
        OpKind.PAD,
        (T((1, 4, 4, 8), "int32"), pads),
        T((1, 6, 6, 8), "int32"),
        u55="feature_map_32bit",
    )
    yield one("mirror pad", OpKind.MIRROR_PAD, (x, pads), T((1, 6, 6, 8)))
    yield one(
        "reverse nothing", OpKind.REVERSE_V2, (x, ints(2)), T((1, 4, 4, 8)), u55="reverse_axes"
    )
    yield one("tile", OpKind.TILE, (x, ints(1, 2, 1, 1)), T((1, 8, 4, 8)))
    yield one(
        "pack", OpKind.PACK, (T((4, 8)), T((4, 8))), T((2, 4, 8)), AxisOptions(axis=0, count=2)
    )
    yield one(
        "pack int32",
        OpKind.PACK,
        (T((4, 8), "int32"), T((4, 8), "int32")),
        T((2, 4, 8), "int32"),
        AxisOptions(axis=0, count=2),
        u55="feature_map_32bit",
    )
    yield one(
        "unpack",
        OpKind.UNPACK,
        (T((2, 4, 8)),),
        (T((4, 8)), T((4, 8))),
        AxisOptions(axis=0, count=2),
    )
    yield one(
        "split",
        OpKind.SPLIT,
        (ints(3), T((1, 4, 4, 8))),
        (T((1, 4, 4, 4)), T((1, 4, 4, 4))),
        AxisOptions(count=2),
    )
    yield one(
        "split int32",
        OpKind.SPLIT,
        (ints(3), T((1, 4, 4, 8), "int32")),
        (T((1, 4, 4, 4), "int32"), T((1, 4, 4, 4), "int32")),
        AxisOptions(count=2),
        u55="feature_map_32bit",
    )
    yield one(
        "split_v",
        OpKind.SPLIT_V,
        (T((1, 4, 4, 8)), ints(2, 6), ints(3)),
        (T((1, 4, 4, 2)), T((1, 4, 4, 6))),
        AxisOptions(count=2),
    )
    for dtype in ("int8", "int32"):
        y, out = T((1, 4, 4, 8), dtype), T((4, 32), dtype)
        yield one(f"reshape {dtype}", OpKind.RESHAPE, (y, ints(4, 32)), out)
        yield one(f"squeeze {dtype}", OpKind.SQUEEZE, (y,), T((4, 4, 8), dtype))
        yield one(
            f"expand {dtype}",
            OpKind.EXPAND_DIMS,
            (T((4, 4, 8), dtype), ints(0)),
            T((1, 4, 4, 8), dtype),
        )
    yield one(
        "expand int64 axis",
        OpKind.EXPAND_DIMS,
        (T((4, 4, 8)), ints(0, dtype="int64")),
        T((1, 4, 4, 8)),
        u55="feature_map_64bit",
    )
    yield one(
        "reshape changes scale",
        OpKind.RESHAPE,
        (x, ints(4, 32)),
        T((4, 32), scale=0.25),
        both="reshape_scale",
    )
    yield one(
        "reshape loses elements",
        OpKind.RESHAPE,
        (x, ints(4, 16)),
        T((4, 16)),
        both="reshape_elements",
    )
    for name, shape, order, dtype, u55 in (
        ("NHWC", (1, 4, 6, 8), (0, 1, 2, 3), "int8", ""),
        ("NWHC", (1, 4, 6, 8), (0, 2, 1, 3), "int8", ""),
        ("NHCW", (1, 4, 6, 8), (0, 1, 3, 2), "int16", ""),
        ("batch", (2, 4, 6, 8), (3, 2, 0, 1), "int8", ""),
        ("int32 NHCW", (1, 4, 6, 8), (0, 1, 3, 2), "int32", ""),
        ("int32 NWHC", (1, 4, 6, 8), (0, 2, 1, 3), "int32", ""),
        ("int32 NCHW", (1, 4, 6, 8), (0, 3, 1, 2), "int32", "transpose_int32"),
        ("int32 NHWC", (1, 4, 6, 8), (0, 1, 2, 3), "int32", ""),
        ("int32 deep NWHC", (1, 2, 2, 16384), (0, 2, 1, 3), "int32", ""),
        ("int32 too deep NWHC", (1, 2, 2, 16385), (0, 2, 1, 3), "int32", "transpose_int32"),
        ("int32 rank 5", (1, 1, 4, 6, 8), (0, 1, 2, 4, 3), "int32", "transpose_int32"),
        ("65536 rows", (65536, 2, 2), (1, 0, 2), "int8", ""),
        ("65537 rows", (65537, 2, 2), (1, 0, 2), "int8", "transpose_shape"),
        ("batch of 65536", (2, 256, 256, 2), (1, 0, 2, 3), "int8", ""),
        ("batch of 65792", (2, 257, 256, 2), (1, 0, 2, 3), "int8", "transpose_shape"),
    ):
        result = T(tuple(shape[i] for i in order), dtype)
        yield one(
            f"transpose {name}",
            OpKind.TRANSPOSE,
            (T(shape, dtype), ints(*order)),
            result,
            u55=u55,
        )
    yield one(
        "transpose int64 order",
        OpKind.TRANSPOSE,
        (T((4, 8)), ints(1, 0, dtype="int64")),
        T((8, 4)),
        both="permutation_type",
    )
    yield one(
        "gather axis 0",
        OpKind.GATHER,
        (T((8, 16)), T((4,), "int32")),
        T((4, 16)),
        AxisOptions(axis=0),
        u55="op_kind",
    )
    yield one(
        "gather axis 1",
        OpKind.GATHER,
        (T((8, 16)), T((4,), "int32")),
        T((8, 4)),
        AxisOptions(axis=1),
        u55="op_kind",
        u85="gather_axis",
    )
    yield one(
        "gather nd", OpKind.GATHER_ND, (T((8, 16)), T((4, 1), "int32")), T((4, 16)), both="op_kind"
    )


def resizes() -> Iterator[Boundary]:
    """RESIZE_* (LOWERING §2.4)."""
    bilinear, nearest = OpKind.RESIZE_BILINEAR, OpKind.RESIZE_NEAREST_NEIGHBOR
    for kind, source, out, align, half, u55, u85 in (
        (bilinear, (4, 4), (8, 8), False, False, "", ""),
        (bilinear, (4, 4), (32, 32), False, False, "", ""),
        (bilinear, (4, 4), (64, 64), False, False, "resize_factor", ""),
        (bilinear, (4, 4), (12, 12), False, False, "resize_factor", "resize_power_of_two"),
        (bilinear, (4, 4), (8, 16), False, False, "resize_factor", ""),
        (bilinear, (4, 4), (7, 7), True, False, "", ""),
        (bilinear, (4, 4), (8, 8), True, False, "resize_factor", "resize_power_of_two"),
        (bilinear, (4, 4), (8, 8), False, True, "", ""),
        (bilinear, (4, 4), (16, 16), False, True, "resize_factor", ""),
        (bilinear, (4, 4), (4, 4), False, False, "", ""),
        (bilinear, (4, 4), (4, 4), False, True, "resize_factor", ""),
        (bilinear, (4, 4), (2, 2), False, False, "resize_factor", "resize_power_of_two"),
        (bilinear, (1, 1), (7, 5), False, False, "", ""),
        (bilinear, (4, 4), (8, 8), True, True, "resize_factor", "resize_flags"),
        (nearest, (4, 4), (8, 8), False, False, "", ""),
        (nearest, (4, 4), (8, 8), False, True, "", ""),
        (nearest, (4, 4), (12, 12), False, False, "resize_factor", ""),
        (nearest, (4, 4), (7, 7), True, False, "", ""),
        (nearest, (4, 4), (7, 7), True, True, "", "resize_flags"),
        (nearest, (4, 4), (2, 2), False, False, "resize_factor", ""),
        (nearest, (1, 1), (7, 5), False, False, "", ""),
    ):
        flags = f"{'align ' if align else ''}{'half' if half else ''}"
        inputs = (T((1, *source, 8)), ints(*out))
        options = ResizeOptions(align_corners=align, half_pixel_centers=half)
        yield one(
            f"{kind} {source} to {out} {flags}",
            kind,
            inputs,
            T((1, *out, 8)),
            options,
            u55=u55,
            u85=u85,
        )
