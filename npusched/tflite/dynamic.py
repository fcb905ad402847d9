"""Shapes that the file leaves open: given by the user, taken as 1 (batch), or refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npusched.errors import ModelError
from npusched.ir import Model, Shape, Subgraph, Tensor
from npusched.tflite.checks import check_size
from npusched.tflite.shapes import propagate


def resolve_shapes(model: Model, input_shapes: Mapping[str, Shape]) -> Model:
    """Return the model with the shapes of ``input_shapes`` applied and what is left open settled.

    An unknown first axis is the batch: it counts as the file's own ``shape`` says (1, as
    converters write) and one note says so. Any other unknown axis of a graph input must be
    given. Raises ModelError with the ``--input-shape`` to pass.
    """
    wanted = _by_tensor(model, input_shapes)
    for subgraph, shapes in wanted.items():
        for index, shape in shapes.items():
            tensor = model.subgraphs[subgraph].tensors[index]
            check_size(shape, tensor.dtype, f"graph input {tensor.name!r}")
    graphs = tuple(
        propagate(graph, wanted[graph.index]) if graph.index in wanted else graph
        for graph in model.subgraphs
    )
    for index in wanted:
        for tensor in graphs[index].tensors:
            check_size(tensor.shape, tensor.dtype, f"tensor {tensor.index} of the given shapes")
    entries = {0, *(signature.subgraph for signature in model.signatures)}
    notes: list[str] = []
    for index in sorted(entries):
        given = wanted.get(index, {})
        _settle(graphs[index], set(given), notes)
    return replace(model, subgraphs=graphs, notes=(*model.notes, *dict.fromkeys(notes)))


def _by_tensor(model: Model, shapes: Mapping[str, Shape]) -> dict[int, dict[int, Shape]]:
    """Return shapes by subgraph and tensor index; names are those of tensors or signatures."""
    known: dict[str, tuple[int, int]] = {}
    for signature in reversed(model.signatures):
        known.update({name: (signature.subgraph, index) for name, index in signature.inputs})
    for graph in reversed(model.subgraphs):
        known.update({graph.tensors[i].name: (graph.index, i) for i in graph.inputs})
    found: dict[int, dict[int, Shape]] = {}
    for name, shape in shapes.items():
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1, 0.4)
            hint = f"did you mean {near[0]!r}?" if near else "use the name of a graph input"
            names = ", ".join(repr(n) for n in list(known)[:6])
            raise ModelError(f"no graph input is called {name!r}", f"inputs: {names}", hint)
        subgraph, index = known[name]
        rank = len(model.subgraphs[subgraph].tensors[index].shape)
        if len(shape) != rank or min(shape, default=1) < 1:
            raise ModelError(
                f"shape {list(shape)} does not suit graph input {name!r}",
                f"it has {rank} axes, each of at least 1",
                f"pass --input-shape {name}={_example(model.subgraphs[subgraph].tensors[index])}",
            )
        found.setdefault(subgraph, {})[index] = tuple(shape)
    return found


def _settle(graph: Subgraph, given: set[int], notes: list[str]) -> None:
    for index in graph.inputs:
        tensor = graph.tensors[index]
        if index in given or not tensor.dynamic_axes:
            continue
        open_axes = [axis for axis in tensor.dynamic_axes if axis > 0 and tensor.shape[axis] <= 1]
        if open_axes:
            stated = [-1 if a in tensor.dynamic_axes else s for a, s in enumerate(tensor.shape)]
            raise ModelError(
                f"graph input {tensor.name!r} has a dynamic shape",
                f"{stated}: axes {open_axes} are not known before the model runs",
                f"give it: --input-shape {tensor.name}={_example(tensor)}",
                input=tensor.name,
                axes=list(tensor.dynamic_axes),
            )
        if 0 in tensor.dynamic_axes:
            notes.append(f"the batch is dynamic: taken as {tensor.shape[0]}")
        if any(axis > 0 for axis in tensor.dynamic_axes):
            notes.append(f"input {tensor.name} is dynamic: taken as {list(tensor.shape)}")


def _example(tensor: Tensor) -> str:
    """A shape to pass: the known axes, 1 for the batch and 96 for what else is open."""
    sizes = [
        (1 if axis == 0 else 96) if axis in tensor.dynamic_axes and size <= 1 else size
        for axis, size in enumerate(tensor.shape)
    ]
    return ",".join(str(size) for size in sizes)
