"""Builder methods of pools, reductions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npusched.ir import ActivationKind, OpKind, Padding
from npusched.ir.options import BatchMatMulOptions, PoolOptions, ReduceOptions
from npusched.tflite.graph_builder import GraphBuilder, Pair, Ref, pair
from npusched.tflite.quantize import Spread


class ReduceBuilder(GraphBuilder):
    """Pools, reductions, matrix products: ops without weights that sum or compare."""

    def pool(
        self,
        kind: OpKind,
        x: Ref,
        filter_size: Pair = 2,
        *,
        stride: Pair | None = None,
        padding: Padding | str = Padding.VALID,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """A pool of any kind; it keeps the quantisation of ``x`` unless told otherwise."""
        size, step = pair(filter_size), pair(stride if stride is not None else filter_size)
        options = PoolOptions(
            padding=Padding(padding),
            stride_h=step[0],
            stride_w=step[1],
            filter_h=size[0],
            filter_w=size[1],
            activation=ActivationKind(activation),
        )
        spread = x.spread
        if kind is OpKind.AVERAGE_POOL_2D:
            deviation = spread.std * max(prod(size) ** -0.5, 0.5)
            spread = Spread(spread.mean, deviation).within(*spread.limits)
        return self.apply(
            kind, [x], options, name=name, like=x, spread=spread, scale=scale, zero_point=zero_point
        )

    def max_pool2d(
        self,
        x: Ref,
        filter_size: Pair = 2,
        *,
        stride: Pair | None = None,
        padding: Padding | str = Padding.VALID,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
    ) -> Ref:
        """MAX_POOL_2D."""
        return self.pool(
            OpKind.MAX_POOL_2D,
            x,
            filter_size,
            stride=stride,
            padding=padding,
            activation=activation,
            name=name,
        )

    def avg_pool2d(
        self,
        x: Ref,
        filter_size: Pair = 2,
        *,
        stride: Pair | None = None,
        padding: Padding | str = Padding.VALID,
        activation: ActivationKind | str = ActivationKind.NONE,
        name: str = "",
    ) -> Ref:
        """AVERAGE_POOL_2D."""
        return self.pool(
            OpKind.AVERAGE_POOL_2D,
            x,
            filter_size,
            stride=stride,
            padding=padding,
            activation=activation,
            name=name,
        )

    def reduce(
        self,
        kind: OpKind,
        x: Ref,
        axes: Sequence[int],
        *,
        keep_dims: bool = False,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """MEAN, SUM, REDUCE_MAX, REDUCE_MIN, ... over ``axes``."""
        count = prod(x.shape[axis] for axis in axes)
        spread, like = x.spread, None
        if kind is OpKind.MEAN:
            deviation = x.spread.std * max(count**-0.5, 0.5)
            spread = Spread(x.spread.mean, deviation).within(*x.spread.limits)
        elif kind is OpKind.SUM:
            spread = Spread(x.spread.mean * count, x.spread.std * count**0.5)
        else:
            like = x
        return self.apply(
            kind,
            [x, self.const(tuple(axes), name=f"{name or kind.lower()}{len(self.ops)}/axes")],
            ReduceOptions(keep_dims=keep_dims),
            name=name,
            like=like,
            dtype=x.dtype,
            spread=spread,
            scale=scale,
            zero_point=zero_point,
        )

    def mean(
        self, x: Ref, axes: Sequence[int] = (1, 2), *, keep_dims: bool = False, name: str = ""
    ) -> Ref:
        """MEAN."""
        return self.reduce(OpKind.MEAN, x, axes, keep_dims=keep_dims, name=name)

    def sum(
        self, x: Ref, axes: Sequence[int] = (3,), *, keep_dims: bool = False, name: str = ""
    ) -> Ref:
        """SUM."""
        return self.reduce(OpKind.SUM, x, axes, keep_dims=keep_dims, name=name)

    def batch_matmul(
        self,
        x: Ref,
        y: Ref,
        *,
        adj_x: bool = False,
        adj_y: bool = False,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """BATCH_MATMUL of two tensors."""
        depth = x.shape[-2] if adj_x else x.shape[-1]
        deviation = (depth * x.spread.power * y.spread.power) ** 0.5
        return self.apply(
            OpKind.BATCH_MATMUL,
            [x, y],
            BatchMatMulOptions(adj_x=adj_x, adj_y=adj_y),
            name=name,
            spread=Spread(0.0, deviation),
            scale=scale,
            zero_point=zero_point,
        )
