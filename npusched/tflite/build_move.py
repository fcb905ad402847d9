"""Builder methods of the ops that move, cut and join."""

from __future__ import annotations

from collections.abc import Sequence

from npusched.ir import ActivationKind, OpKind
from npusched.ir.options import (
    AxisOptions,
    ConcatOptions,
    MirrorPadOptions,
    ReshapeOptions,
    ResizeOptions,
    SqueezeOptions,
    StridedSliceOptions,
)
from npusched.tflite.graph_builder import GraphBuilder, Ref, TypeName
from npusched.tflite.records import Record
from npusched.tflite.schema import TENSOR_TYPES


class MoveBuilder(GraphBuilder):
    """Reshapes, slices, concatenations, pads, resizes, gathers.

    Results keep the quantisation of their (first) input, as the kernels ask.
    """

    def reshape(self, x: Ref, shape: Sequence[int], *, name: str = "") -> Ref:
        """RESHAPE (one axis may be -1); the shape is both an input and an option."""
        options = ReshapeOptions(new_shape=tuple(shape))
        return self.apply(OpKind.RESHAPE, [x, self._ints(shape)], options, name=name, like=x)

    def squeeze(self, x: Ref, axes: Sequence[int] = (), *, name: str = "") -> Ref:
        """SQUEEZE."""
        options = SqueezeOptions(squeeze_dims=tuple(axes))
        return self.apply(OpKind.SQUEEZE, [x], options, name=name, like=x)

    def expand_dims(self, x: Ref, axis: int = 0, *, name: str = "") -> Ref:
        """EXPAND_DIMS."""
        return self.apply(OpKind.EXPAND_DIMS, [x, self.const(axis)], name=name, like=x)

    def transpose(self, x: Ref, order: Sequence[int], *, name: str = "") -> Ref:
        """TRANSPOSE."""
        return self.apply(OpKind.TRANSPOSE, [x, self._ints(order)], name=name, like=x)

    def concat(
        self,
        refs: Sequence[Ref],
        axis: int = -1,
        *,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """CONCATENATION. The int8 kernel asks for equal scales: give the inputs the same one."""
        options = ConcatOptions(axis=axis, activation=ActivationKind(activation))
        return self.apply(
            OpKind.CONCATENATION,
            refs,
            options,
            name=name,
            like=refs[0],
            scale=scale,
            zero_point=zero_point,
        )

    def split(self, x: Ref, count: int, axis: int = -1, *, name: str = "") -> tuple[Ref, ...]:
        """SPLIT into equal parts."""
        options = AxisOptions(count=count)
        inputs = [self.const(axis % len(x.shape)), x]
        return self.apply_all(OpKind.SPLIT, inputs, options, name=name, like=x)

    def split_v(
        self, x: Ref, sizes: Sequence[int], axis: int = -1, *, name: str = ""
    ) -> tuple[Ref, ...]:
        """SPLIT_V into parts of the given sizes."""
        inputs = [x, self._ints(sizes), self.const(axis % len(x.shape))]
        options = AxisOptions(count=len(sizes))
        return self.apply_all(OpKind.SPLIT_V, inputs, options, name=name, like=x)

    def pack(self, refs: Sequence[Ref], axis: int = 0, *, name: str = "") -> Ref:
        """PACK along a new axis."""
        options = AxisOptions(axis=axis, count=len(refs))
        return self.apply(OpKind.PACK, refs, options, name=name, like=refs[0])

    def unpack(self, x: Ref, axis: int = 0, *, name: str = "") -> tuple[Ref, ...]:
        """UNPACK."""
        options = AxisOptions(axis=axis, count=x.shape[axis])
        return self.apply_all(OpKind.UNPACK, [x], options, name=name, like=x)

    def slice(self, x: Ref, begin: Sequence[int], size: Sequence[int], *, name: str = "") -> Ref:
        """SLICE."""
        inputs = [x, self._ints(begin), self._ints(size)]
        return self.apply(OpKind.SLICE, inputs, name=name, like=x)

    def strided_slice(
        self,
        x: Ref,
        begin: Sequence[int],
        end: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        begin_mask: int = 0,
        end_mask: int = 0,
        shrink_axis_mask: int = 0,
        name: str = "",
    ) -> Ref:
        """STRIDED_SLICE."""
        steps = strides if strides is not None else [1] * len(begin)
        options = StridedSliceOptions(
            begin_mask=begin_mask, end_mask=end_mask, shrink_axis_mask=shrink_axis_mask
        )
        inputs = [x, self._ints(begin), self._ints(end), self._ints(steps)]
        return self.apply(OpKind.STRIDED_SLICE, inputs, options, name=name, like=x)

    def pad(self, x: Ref, paddings: Sequence[tuple[int, int]], *, name: str = "") -> Ref:
        """PAD with zeros."""
        return self.apply(OpKind.PAD, [x, self.const(paddings)], name=name, like=x)

    def pad_v2(
        self, x: Ref, paddings: Sequence[tuple[int, int]], value: int = 0, *, name: str = ""
    ) -> Ref:
        """PADV2 with a stored (quantised) value."""
        fill = self.const(value, x.dtype, scale=x.scale, zero_point=x.zero_point)
        return self.apply(OpKind.PADV2, [x, self.const(paddings), fill], name=name, like=x)

    def mirror_pad(
        self,
        x: Ref,
        paddings: Sequence[tuple[int, int]],
        *,
        symmetric: bool = False,
        name: str = "",
    ) -> Ref:
        """MIRROR_PAD."""
        options = MirrorPadOptions(symmetric=symmetric)
        return self.apply(OpKind.MIRROR_PAD, [x, self.const(paddings)], options, name=name, like=x)

    def tile(self, x: Ref, multiples: Sequence[int], *, name: str = "") -> Ref:
        """TILE."""
        return self.apply(OpKind.TILE, [x, self._ints(multiples)], name=name, like=x)

    def resize_bilinear(
        self,
        x: Ref,
        size: tuple[int, int],
        *,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
        name: str = "",
    ) -> Ref:
        """RESIZE_BILINEAR to (height, width)."""
        options = ResizeOptions(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
        return self.apply(OpKind.RESIZE_BILINEAR, [x, self._ints(size)], options, name=name, like=x)

    def resize_nearest(
        self,
        x: Ref,
        size: tuple[int, int],
        *,
        align_corners: bool = False,
        half_pixel_centers: bool = False,
        name: str = "",
    ) -> Ref:
        """RESIZE_NEAREST_NEIGHBOR to (height, width)."""
        options = ResizeOptions(align_corners=align_corners, half_pixel_centers=half_pixel_centers)
        return self.apply(
            OpKind.RESIZE_NEAREST_NEIGHBOR, [x, self._ints(size)], options, name=name, like=x
        )

    def gather(self, x: Ref, indices: Ref | Sequence[int], axis: int = 0, *, name: str = "") -> Ref:
        """GATHER."""
        found = indices if isinstance(indices, Ref) else self._ints(indices)
        return self.apply(OpKind.GATHER, [x, found], AxisOptions(axis=axis), name=name, like=x)

    def arg_max(self, x: Ref, axis: int = -1, *, dtype: TypeName = "int32", name: str = "") -> Ref:
        """ARG_MAX; the result is int32 or int64, not quantised."""
        place = axis % len(x.shape)
        shape = x.shape[:place] + x.shape[place + 1 :]
        found = self.tensor(name or f"arg_max{len(self.ops)}", shape, dtype)
        table = Record("ArgMaxOptions", {"output_type": TENSOR_TYPES.index(found.dtype)})
        self.op(OpKind.ARG_MAX, [x, self.const(place)], [found], table=table)
        return found

    def _ints(self, values: Sequence[int]) -> Ref:
        return self.const(tuple(values))
