"""Shape inference: what an op makes of the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping

from npusched.errors import ModelError
from npusched.ir import Shape, Subgraph


def propagate(graph: Subgraph, inputs: Mapping[int, Shape]) -> Subgraph:
    """Return the graph with its inputs reshaped and every shape that follows from them."""
    if all(graph.tensors[index].shape == shape for index, shape in inputs.items()):
        return graph
    raise ModelError(f"cannot change the input shapes of {graph.name!r} yet")
