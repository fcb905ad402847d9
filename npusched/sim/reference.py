"""LiteRT's reference kernels (extra ``prove``): what a model computes, tensor by tensor.

``BUILTIN_REF`` is the resolver whose results the NPU reproduces (SIM.md §4); the default one
differs. Inputs are drawn by seed. Nothing here imports LiteRT before it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from npusched.errors import SimError
from npusched.ir import DataType, Subgraph, Tensor
from npusched.sim.kernels.arrays import Array

_NOISE = 0.06
"""Spread of low-contrast inputs, as a share of the type's range."""

_SMALL_INDEX = 4
"""32- and 64-bit inputs are indices or counts as a rule: they are drawn below this."""

_FLOAT_SPREAD = 1.0


class Reference:
    """One model in LiteRT's interpreter.

    ``keeps_all``: values of all tensors stay readable, not only those of the outputs. Raises
    SimError if LiteRT is not installed or cannot run the model.
    """

    def __init__(self, content: bytes, *, keeps_all: bool = False, optimised: bool = False) -> None:
        interpreter, resolvers = _litert()
        resolver = resolvers.BUILTIN if optimised else resolvers.BUILTIN_REF
        self._content = content
        try:
            with _quiet():
                self._interpreter = interpreter(
                    model_content=content,
                    experimental_op_resolver_type=resolver,
                    experimental_preserve_all_tensors=keeps_all,
                    num_threads=1,
                )
                self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise _cannot_run(error) from None
        self._inputs = {each["name"]: each for each in self._interpreter.get_input_details()}

    def run(self, inputs: Mapping[int, Array]) -> None:
        """Run once on inputs by tensor index (without batch axis). Raises SimError if it fails."""
        try:
            self._interpreter.reset_all_variables()
            for index, values in inputs.items():
                self._interpreter.set_tensor(index, values)
            with _quiet():
                self._interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise _cannot_run(error) from None

    def value(self, index: int) -> Array | None:
        """Return a copy of a tensor of the main subgraph, None if it holds no values.

        Never ask for strings, resources or variants: LiteRT crashes.
        """
        try:
            found: Array = self._interpreter.get_tensor(index)
        except ValueError:
            return None
        return np.array(found)


def _litert() -> tuple[Any, Any]:
    try:
        from ai_edge_litert.interpreter import (
            Interpreter,
            OpResolverType,
        )
    except ImportError:
        raise SimError(
            "the reference kernels are not installed",
            "no module ai_edge_litert in this Python environment",
            'install them: pip install "npusched[prove]"',
        ) from None
    return Interpreter, OpResolverType


def _cannot_run(error: Exception) -> SimError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return SimError(
        "LiteRT cannot run the model",
        lines[0] if lines else type(error).__name__,
        "see the message above; ops of other runtimes cannot be compared",
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Send what LiteRT's C++ code prints to nowhere."""
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def random_inputs(graph: Subgraph, count: int, seed: int) -> dict[int, Array]:
    """Return ``count`` inputs per graph input: tensor index -> (count, *shape).

    Even ones are uniform over the type's range, odd ones are low-contrast noise around a random
    level (uniform data saturate many networks). Floats are normal. Deterministic in ``seed``.
    """
    generator = np.random.default_rng(seed)
    return {index: _draw(graph.tensors[index], count, generator) for index in graph.inputs}


def _draw(tensor: Tensor, count: int, generator: np.random.Generator) -> Array:
    shape = (count, *tensor.shape)
    dtype = tensor.dtype
    if dtype.is_float:
        return generator.normal(0.0, _FLOAT_SPREAD, shape).astype(dtype.label)
    if dtype is DataType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if not dtype.is_integer:
        raise SimError(f"cannot draw {dtype.label} inputs", f"tensor {tensor.name}")
    if dtype.bits > 16:
        return generator.integers(0, _SMALL_INDEX, shape).astype(dtype.label)
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    span = 1 << dtype.bits
    values = generator.integers(low, low + span, shape)
    level = generator.integers(low, low + span, (count, *(1 for _ in tensor.shape)))
    noise = np.rint(generator.normal(0.0, _NOISE * span, shape)).astype(np.int64)
    soft = np.clip(level + noise, low, low + span - 1)
    values[1::2] = soft[1::2]
    return values.astype(dtype.label)


def reference_values(
    content: bytes,
    inputs: Mapping[int, Array],
    wanted: Sequence[int],
    *,
    keeps_all: bool = False,
    is_stateful: bool = False,
) -> dict[int, Array]:
    """Run a model on each input of a batch; return tensor index -> (batch, *shape).

    ``is_stateful``: the model has variables (resources), so each input gets a new interpreter.
    Tensors that LiteRT gives no values for are left out. Raises SimError as ``Reference``.
    """
    reference: Reference | None = None
    count = max((len(values) for values in inputs.values()), default=1)
    found: dict[int, list[Array]] = {index: [] for index in wanted}
    for number in range(count):
        if reference is None or is_stateful:
            reference = Reference(content, keeps_all=keeps_all)
        reference.run({index: values[number] for index, values in inputs.items()})
        for index in wanted:
            value = reference.value(index)
            if value is not None:
                found[index].append(value)
    return {index: np.stack(values) for index, values in found.items() if len(values) == count}
