"""How far two models that should compute the same are apart, by LiteRT's reference kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npusched.errors import SimError
from npusched.ir import OpKind, Subgraph
from npusched.sim.kernels.arrays import Array
from npusched.sim.reference import NO_VALUES_HINT, random_inputs, reference_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """``differing`` of ``values`` output values differ, by ``largest`` at most.

    In steps of the type for integers; as the values are, if an output ``is_float``.
    """

    largest: float
    differing: int
    values: int
    is_float: bool


def compare_models(first: bytes, second: bytes, graph: Subgraph, inputs: int, seed: int) -> Apart:
    """Run two files with the inputs and outputs of ``graph`` on the same random inputs.

    Raises SimError if LiteRT is not installed, cannot run one of them, or gives no values.
    """
    drawn = random_inputs(graph, inputs, seed)
    stateful = any(op.kind is OpKind.VAR_HANDLE for op in graph.ops)
    outputs = list(dict.fromkeys(graph.outputs))
    a, b = (
        reference_values(each, drawn, outputs, is_stateful=stateful) for each in (first, second)
    )
    missing = [graph.tensors[index].name for index in outputs if index not in a or index not in b]
    if missing:
        raise SimError("LiteRT gave no values", f"of output {missing[0]}", NO_VALUES_HINT)
    gaps = [_gaps(a[index], b[index]) for index in outputs]
    return Apart(
        largest=max((float(gap.max(initial=0.0)) for gap in gaps), default=0.0),
        differing=sum(int(np.count_nonzero(gap)) for gap in gaps),
        values=sum(gap.size for gap in gaps),
        is_float=any(values.dtype.kind == "f" for values in a.values()),
    )


def _gaps(a: Array, b: Array) -> Array:
    """Absolute differences; two that are no numbers are equal."""
    gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return np.where(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)), 0.0, gap)
