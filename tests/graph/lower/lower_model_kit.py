"""How the models of the lowering tests are made."""

from __future__ import annotations

from collections.abc import Callable

from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref

Make = Callable[[Builder], Ref]
Then = Callable[..., Ref]
"""A builder and one or two inputs to a result (its other parameters have defaults)."""

Shape = tuple[int, ...]


def on(
    shape: Shape,
    then: Then,
    dtype: str = "int8",
    scale: float | None = None,
    zero_point: int | None = None,
) -> Make:
    """A model with one input."""
    return lambda b: then(b, b.input("x", shape, dtype, scale=scale, zero_point=zero_point))


def pair(
    first: Shape,
    second: Shape,
    then: Then,
    dtype: str = "int8",
    scales: tuple[float, float] = (0.05, 0.02),
) -> Make:
    """A model with two inputs."""
    return lambda b: then(
        b,
        b.input("x", first, dtype, scale=scales[0]),
        b.input("y", second, dtype, scale=scales[1]),
    )


def of(then: Then) -> Make:
    """A model that makes its own inputs."""
    return lambda b: then(b)
