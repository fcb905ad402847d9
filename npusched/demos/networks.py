"""The architectures of the built-in models; sizes are parameters, so that tests can vary them."""

from __future__ import annotations

from typing import Final

from npusched.ir import OpKind
from npusched.tflite import Builder, Ref


def mobilenet(size: int = 96, width: float = 0.25, classes: int = 2) -> bytes:
    """MobileNetV1 (Howard et al. 2017, table 1), by default as in visual wake words: 31 ops."""
    b = Builder("mobilenet", seed=1)
    x = b.input("image", (1, size, size, 3))
    x = b.conv2d(x, _scaled(32, width), 3, stride=2, activation="RELU6")
    plan = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5)
    for channels, stride in (*plan, (1024, 2), (1024, 1)):
        x = b.depthwise_conv2d(x, 3, stride=stride, activation="RELU6")
        x = b.conv2d(x, _scaled(channels, width), 1, activation="RELU6")
    return _classify(b, x, classes)


def resnet8(size: int = 32, channels: int = 16, classes: int = 10) -> bytes:
    """ResNet-8 for CIFAR-10, as in MLPerf Tiny's image classification: 16 ops."""
    b = Builder("resnet8", seed=2)
    x = b.conv2d(b.input("image", (1, size, size, 3)), channels, 3, activation="RELU")
    for stage in range(3):
        stride, width = (1 if stage == 0 else 2), channels << stage
        y = b.conv2d(x, width, 3, stride=stride, activation="RELU")
        y = b.conv2d(y, width, 3)
        skip = x if stage == 0 else b.conv2d(x, width, 1, stride=stride)
        x = b.add(skip, y, activation="RELU")
    return _classify(b, x, classes)


def ds_cnn(frames: int = 49, features: int = 10, channels: int = 64, classes: int = 12) -> bytes:
    """DS-CNN for keyword spotting (Zhang et al. 2017), as in MLPerf Tiny: 13 ops."""
    b = Builder("ds_cnn", seed=3)
    x = b.input("mfcc", (1, frames, features, 1))
    x = b.conv2d(x, channels, (10, 4), stride=2, activation="RELU")
    for _ in range(4):
        x = b.depthwise_conv2d(x, 3, activation="RELU")
        x = b.conv2d(x, channels, 1, activation="RELU")
    return _classify(b, x, classes)


def autoencoder(features: int = 640, width: int = 128, code: int = 8) -> bytes:
    """Fully connected autoencoder for anomaly detection, as in MLPerf Tiny: 10 ops."""
    b = Builder("autoencoder", seed=4)
    x = b.input("spectrogram", (1, features))
    for units in (width, width, width, width, code, width, width, width, width):
        x = b.fully_connected(x, units, activation="RELU")
    b.output(b.fully_connected(x, features, name="reconstruction"))
    return b.build()


def unet(size: int = 64, channels: int = 8, levels: int = 3) -> bytes:
    """U-Net (Ronneberger et al. 2015) with transpose convolutions; skips cross the whole network.

    Every level: two 3x3 convolutions, then a pool (down) or a transpose convolution and a
    concatenation (up). The two inputs of a concatenation share one scale, as int8 asks.
    """
    b = Builder("unet", seed=5)
    x = b.input("image", (1, size, size, 3))
    skips: list[Ref] = []
    for level in range(levels):
        x = _double_conv(b, x, channels << level)
        skips.append(x)
        x = b.max_pool2d(x)
    x = _double_conv(b, x, channels << levels)
    for level, skip in zip(reversed(range(levels)), reversed(skips), strict=True):
        up = b.transpose_conv(
            x,
            channels << level,
            2,
            stride=2,
            activation="RELU",
            scale=skip.scale,
            zero_point=skip.zero_point,
        )
        x = _double_conv(b, b.concat([skip, up]), channels << level)
    b.output(b.logistic(b.conv2d(x, 1, 1), name="mask"))
    return b.build()


_V2_BLOCKS: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(size: int = 224, width: float = 1.0, classes: int = 1000) -> bytes:
    """MobileNetV2 (Sandler et al. 2018, table 2): 65 ops, of which Vela 5.2.0 makes 93 on U55.

    1 convolution, 17 bottlenecks (one of 2 and 16 of 3 convolutions, 10 additions), the last
    convolution, MEAN (2 scheduled ops), FULLY_CONNECTED and SOFTMAX (28 scheduled ops).
    """
    b = Builder("mobilenet_v2", seed=6)
    x = b.input("image", (1, size, size, 3))
    x = b.conv2d(x, _scaled(32, width), 3, stride=2, activation="RELU6")
    for expansion, channels, repeats, first_stride in _V2_BLOCKS:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            x = _bottleneck(b, x, expansion, _scaled(channels, width), stride)
    x = b.conv2d(x, _scaled(1280, max(width, 1.0)), 1, activation="RELU6")
    x = b.fully_connected(b.mean(x), classes, gain=3.0)
    b.output(b.softmax(x, name="probabilities"))
    return b.build()


def chain(ops: int = 12, size: int = 32, channels: int = 16) -> bytes:
    """A straight line of ``ops`` ops: 3x3 depthwise and 1x1 convolutions by turns, stride 1."""
    b = Builder(f"chain_{ops}", seed=7)
    x = b.input("x", (1, size, size, channels))
    for index in range(ops):
        if index % 2 == 0:
            x = b.depthwise_conv2d(x, 3, activation="RELU6")
        else:
            x = b.conv2d(x, channels, 1, activation="RELU6")
    b.output(x)
    return b.build()


def block(
    height: int = 56,
    width: int = 56,
    channels: int = 32,
    out_channels: int = 64,
    kernel: int = 3,
    stride: int = 1,
) -> bytes:
    """A separable block as a converter leaves it when nothing is folded: 8 ops.

    Depthwise ``kernel`` x ``kernel``, batch norm as MUL and ADD, RELU6, then pointwise, batch norm
    as MUL and ADD, RELU6. Every RELU6 keeps the quantisation of its input: it only clamps.
    """
    b = Builder("block", seed=8)
    x = b.input("x", (1, height, width, channels))
    x = b.depthwise_conv2d(x, kernel, stride=stride, name="depthwise")
    x = _clamp(b, b.batch_norm(x, name="bn1"), "relu1")
    x = b.conv2d(x, out_channels, 1, name="pointwise")
    b.output(_clamp(b, b.batch_norm(x, name="bn2"), "relu2"))
    return b.build()


def _scaled(channels: int, width: float) -> int:
    """Channels times the width multiplier, to a multiple of 8 (at least 8, at most 10 % less)."""
    exact = channels * width
    rounded = max(8, int(exact + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * exact else rounded


def _clamp(b: Builder, x: Ref, name: str) -> Ref:
    return b.unary(OpKind.RELU6, x, scale=x.scale, zero_point=x.zero_point, name=name)


def _double_conv(b: Builder, x: Ref, channels: int) -> Ref:
    return b.conv2d(b.conv2d(x, channels, 3, activation="RELU"), channels, 3, activation="RELU")


def _bottleneck(b: Builder, x: Ref, expansion: int, channels: int, stride: int) -> Ref:
    y = x
    if expansion > 1:
        y = b.conv2d(y, x.shape[3] * expansion, 1, activation="RELU6")
    y = b.depthwise_conv2d(y, 3, stride=stride, activation="RELU6")
    y = b.conv2d(y, channels, 1)
    return b.add(x, y) if stride == 1 and x.shape == y.shape else y


def _classify(b: Builder, x: Ref, classes: int) -> bytes:
    """Global average pool, reshape, fully connected, softmax."""
    x = b.avg_pool2d(x, (x.shape[1], x.shape[2]))
    x = b.fully_connected(b.reshape(x, (1, x.shape[3])), classes, gain=3.0)
    b.output(b.softmax(x, name="probabilities"))
    return b.build()
