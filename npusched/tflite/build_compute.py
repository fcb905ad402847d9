"""Builder methods of the ops with weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from npusched.ir import ActivationKind, DataType, OpKind, Padding
from npusched.ir.options import (
    ConvOptions,
    FullyConnectedOptions,
)
from npusched.tflite.graph_builder import GraphBuilder, Pair, Ref, TypeName, pair, type_of
from npusched.tflite.quantize import Spread, normal, quantize_weights

_WEIGHT_TYPES = {
    DataType.UINT8: DataType.UINT8,
    DataType.FLOAT32: DataType.FLOAT32,
    DataType.FLOAT16: DataType.FLOAT32,
}


class ComputeBuilder(GraphBuilder):
    """Convolutions and fully connected layers."""

    def weights(
        self,
        shape: tuple[int, ...],
        ifm: Ref,
        *,
        fan_in: int,
        axis: int,
        per_channel: bool,
        dtype: TypeName | None = None,
        values: npt.ArrayLike | None = None,
        gain: float = 1.0,
        name: str = "",
    ) -> tuple[Ref, tuple[float, ...]]:
        """Add weights (given in real numbers, or random) and return them with their scales.

        ``axis`` is that of the output channels. Random weights make results of about std
        ``gain`` from ``fan_in`` products with ``ifm``; those of one channel add up to 0, so that
        results follow the input and not its mean. uint8 weights have one scale, whatever
        ``per_channel`` says.
        """
        kind = type_of(dtype) if dtype is not None else _WEIGHT_TYPES.get(ifm.dtype, DataType.INT8)
        if values is not None:
            real = np.asarray(values, np.float64).reshape(shape)
        else:
            summed = tuple(i for i in range(len(shape)) if i != axis) if fan_in > 1 else ()
            real = normal(self.file.seed, self.file.next_salt(), shape, centred=summed)
            real *= gain * float(fan_in * max(ifm.spread.std, 1e-3) ** 2) ** -0.5
        split = axis if per_channel and kind is not DataType.UINT8 else None
        stored, scales, zeros = quantize_weights(real, kind, split)
        ref = self.const(
            stored, kind, name=name, scale=scales or None, zero_point=zeros or 0, axis=split or 0
        )
        return ref, scales

    def bias(
        self,
        channels: int,
        ifm: Ref,
        weight_scales: tuple[float, ...],
        *,
        values: npt.ArrayLike | None = None,
        name: str = "",
    ) -> Ref:
        """Add a bias in real numbers (random, std 0.1): int32, int64 for int16 ifms, or float32."""
        if values is None:
            real = 0.1 * normal(self.file.seed, self.file.next_salt(), (channels,))
        else:
            real = np.asarray(values, np.float64).reshape(channels)
        if ifm.scale is None or not weight_scales:
            return self.const(real, "float32", name=name)
        scales = [float(np.float32(ifm.scale * s)) for s in weight_scales]
        stored = np.rint(real / (np.asarray(scales) if len(scales) > 1 else scales[0]))
        kind = "int64" if ifm.dtype is DataType.INT16 else "int32"
        return self.const(stored, kind, name=name, scale=scales, zero_point=0)

    def conv2d(
        self,
        x: Ref,
        out_channels: int,
        kernel: Pair = 3,
        *,
        stride: Pair = 1,
        padding: Padding | str = Padding.SAME,
        dilation: Pair = 1,
        groups: int = 1,
        activation: ActivationKind | str = ActivationKind.NONE,
        bias: bool = True,
        per_channel: bool = True,
        weights: npt.ArrayLike | None = None,
        bias_values: npt.ArrayLike | None = None,
        weights_dtype: TypeName | None = None,
        name: str = "",
        dtype: TypeName | None = None,
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """CONV_2D; ``weights`` are real numbers in OHWI order."""
        kernel_h, kernel_w = pair(kernel)
        depth = x.shape[3] // groups
        label = name or f"conv_2d{len(self.ops)}"
        w, scales = self.weights(
            (out_channels, kernel_h, kernel_w, depth),
            x,
            fan_in=kernel_h * kernel_w * depth,
            axis=0,
            per_channel=per_channel,
            dtype=weights_dtype,
            values=weights,
            name=f"{label}/weights",
        )
        has_bias = bias or bias_values is not None
        b = (
            self.bias(out_channels, x, scales, values=bias_values, name=f"{label}/bias")
            if has_bias
            else None
        )
        options = ConvOptions(
            padding=Padding(padding),
            stride_h=pair(stride)[0],
            stride_w=pair(stride)[1],
            dilation_h=pair(dilation)[0],
            dilation_w=pair(dilation)[1],
            activation=ActivationKind(activation),
        )
        return self.apply(
            OpKind.CONV_2D,
            [x, w, b],
            options,
            name=label,
            dtype=dtype,
            spread=Spread(),
            activation=options.activation,
            scale=scale,
            zero_point=zero_point,
        )

    def depthwise_conv2d(
        self,
        x: Ref,
        kernel: Pair = 3,
        *,
        multiplier: int = 1,
        stride: Pair = 1,
        padding: Padding | str = Padding.SAME,
        dilation: Pair = 1,
        activation: ActivationKind | str = ActivationKind.NONE,
        bias: bool = True,
        per_channel: bool = True,
        weights: npt.ArrayLike | None = None,
        bias_values: npt.ArrayLike | None = None,
        weights_dtype: TypeName | None = None,
        name: str = "",
        dtype: TypeName | None = None,
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """DEPTHWISE_CONV_2D; ``weights`` are real numbers of shape 1, h, w, channels."""
        kernel_h, kernel_w = pair(kernel)
        channels = x.shape[3] * multiplier
        label = name or f"depthwise_conv_2d{len(self.ops)}"
        w, scales = self.weights(
            (1, kernel_h, kernel_w, channels),
            x,
            fan_in=kernel_h * kernel_w,
            axis=3,
            per_channel=per_channel,
            dtype=weights_dtype,
            values=weights,
            name=f"{label}/weights",
        )
        has_bias = bias or bias_values is not None
        b = (
            self.bias(channels, x, scales, values=bias_values, name=f"{label}/bias")
            if has_bias
            else None
        )
        options = ConvOptions(
            padding=Padding(padding),
            stride_h=pair(stride)[0],
            stride_w=pair(stride)[1],
            dilation_h=pair(dilation)[0],
            dilation_w=pair(dilation)[1],
            depth_multiplier=multiplier,
            activation=ActivationKind(activation),
        )
        return self.apply(
            OpKind.DEPTHWISE_CONV_2D,
            [x, w, b],
            options,
            name=label,
            dtype=dtype,
            spread=Spread(),
            activation=options.activation,
            scale=scale,
            zero_point=zero_point,
        )

    def transpose_conv(
        self,
        x: Ref,
        out_channels: int,
        kernel: Pair = 3,
        *,
        stride: Pair = 2,
        padding: Padding | str = Padding.SAME,
        activation: ActivationKind | str = ActivationKind.NONE,
        bias: bool = True,
        per_channel: bool = True,
        output_hw: tuple[int, int] | None = None,
        weights: npt.ArrayLike | None = None,
        name: str = "",
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """TRANSPOSE_CONV to ``output_hw`` (ifm * stride, plus kernel - stride if VALID)."""
        (kernel_h, kernel_w), (stride_h, stride_w) = pair(kernel), pair(stride)
        n, h, w_in, depth = x.shape
        label = name or f"transpose_conv{len(self.ops)}"
        grow = Padding(padding) is Padding.VALID
        out_h, out_w = output_hw or (
            h * stride_h + grow * max(kernel_h - stride_h, 0),
            w_in * stride_w + grow * max(kernel_w - stride_w, 0),
        )
        w, scales = self.weights(
            (out_channels, kernel_h, kernel_w, depth),
            x,
            fan_in=max(kernel_h * kernel_w * depth // (stride_h * stride_w), 1),
            axis=0,
            per_channel=per_channel,
            values=weights,
            name=f"{label}/weights",
        )
        inputs = [self.const((n, out_h, out_w, out_channels), name=f"{label}/shape"), w, x]
        if bias:
            inputs.append(self.bias(out_channels, x, scales, name=f"{label}/bias"))
        options = ConvOptions(
            padding=Padding(padding),
            stride_h=stride_h,
            stride_w=stride_w,
            activation=ActivationKind(activation),
        )
        return self.apply(
            OpKind.TRANSPOSE_CONV,
            inputs,
            options,
            name=label,
            dtype=x.dtype,
            spread=Spread(),
            activation=options.activation,
            scale=scale,
            zero_point=zero_point,
        )

    def fully_connected(
        self,
        x: Ref,
        units: int,
        *,
        activation: ActivationKind | str = ActivationKind.NONE,
        bias: bool = True,
        per_channel: bool = False,
        keep_num_dims: bool = False,
        weights: Ref | npt.ArrayLike | None = None,
        weights_dtype: TypeName | None = None,
        gain: float = 1.0,
        name: str = "",
        dtype: TypeName | None = None,
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Ref:
        """FULLY_CONNECTED over the last axis; ``weights``: real numbers OI, or a tensor.

        ``gain``: standard deviation of the results that random weights aim at.
        """
        depth = x.shape[-1]
        label = name or f"fully_connected{len(self.ops)}"
        scales: tuple[float, ...]
        if isinstance(weights, Ref):
            w, scales = weights, (weights.scale,) if weights.scale is not None else ()
        else:
            w, scales = self.weights(
                (units, depth),
                x,
                fan_in=depth,
                axis=0,
                per_channel=per_channel,
                dtype=weights_dtype,
                values=weights,
                gain=gain,
                name=f"{label}/weights",
            )
        inputs: list[Ref | None] = [x, w]
        if bias:
            inputs.append(self.bias(units, x, scales, name=f"{label}/bias"))
        options = FullyConnectedOptions(
            activation=ActivationKind(activation), keep_num_dims=keep_num_dims
        )
        return self.apply(
            OpKind.FULLY_CONNECTED,
            inputs,
            options,
            name=label,
            dtype=dtype,
            spread=Spread(std=gain),
            activation=options.activation,
            scale=scale,
            zero_point=zero_point,
        )
