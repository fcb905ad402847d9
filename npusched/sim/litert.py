"""LiteRT's interpreter with the reference kernels: runs in a process of its own (``worker``).

``BUILTIN_REF`` is the resolver whose results the NPU reproduces (SIM.md §4). LiteRT's reference
kernels crash on some models, so nothing but the worker may import this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npusched.errors import SimError
from npusched.sim.kernels.arrays import Array


class Reference:
    """One model in LiteRT's interpreter.

    ``keeps_all``: values of all tensors stay readable, not only those of the outputs. ``shapes``:
    of inputs, by tensor index, where they may differ from the file's. Raises SimError if LiteRT is
    not installed or cannot run the model.
    """

    def __init__(
        self,
        content: bytes,
        *,
        keeps_all: bool = False,
        shapes: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        interpreter, resolvers = _litert()
        try:
            self._interpreter = interpreter(
                model_content=content,
                experimental_op_resolver_type=resolvers.BUILTIN_REF,
                experimental_preserve_all_tensors=keeps_all,
                num_threads=1,
            )
            for given in self._interpreter.get_input_details():
                wanted = (shapes or {}).get(given["index"], tuple(given["shape"]))
                if wanted != tuple(given["shape"]):
                    self._interpreter.resize_tensor_input(given["index"], wanted)
            self._interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise _cannot_run(error) from None

    def run(self, inputs: Mapping[int, Array]) -> None:
        """Run once on inputs by tensor index (without batch axis). Raises SimError if it fails."""
        try:
            self._interpreter.reset_all_variables()
            for index, values in inputs.items():
                self._interpreter.set_tensor(index, values)
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
            missing="ai_edge_litert",
        ) from None
    return Interpreter, OpResolverType


def _cannot_run(error: Exception) -> SimError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return SimError(
        "LiteRT cannot run the model",
        lines[0] if lines else type(error).__name__,
        "the message is LiteRT's own; a model that it cannot run cannot be compared",
    )


def run_reference(
    content: bytes,
    inputs: Mapping[int, Array],
    wanted: Sequence[int],
    *,
    keeps_all: bool,
    is_stateful: bool,
) -> dict[int, Array]:
    """Run a model on each input of a batch (see ``reference.reference_values``)."""
    reference: Reference | None = None
    count = max((len(values) for values in inputs.values()), default=1)
    shapes = {index: values.shape[1:] for index, values in inputs.items()}
    found: dict[int, list[Array]] = {index: [] for index in wanted}
    for number in range(count):
        if reference is None or is_stateful:
            reference = Reference(content, keeps_all=keeps_all, shapes=shapes)
        reference.run({index: values[number % len(values)] for index, values in inputs.items()})
        for index in wanted:
            value = reference.value(index)
            if value is not None:
                found[index].append(value)
    return {index: np.stack(values) for index, values in found.items() if len(values) == count}
