"""The same graph with its ops in another order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from msgspec.structs import replace

from npusched.graph.opgraph import OpGraph


def reordered(graph: OpGraph, order: Sequence[int]) -> OpGraph:
    """Return the graph whose op k is the given graph's op ``order[k]``, with ids to match.

    ``order`` must be a permutation of the op ids; whether the ops may run so is the caller's
    business (``schedule.orders``). The given graph itself if nothing moves or ``order`` is empty.
    """
    if not order or tuple(order) == tuple(range(len(graph.ops))):
        return graph
    place = {op: k for k, op in enumerate(order)}
    return dataclasses.replace(
        graph,
        ops=tuple(replace(graph.ops[op], id=k) for k, op in enumerate(order)),
        sources=tuple(
            replace(source, scheduled_ops=tuple(sorted(place[op] for op in source.scheduled_ops)))
            for source in graph.sources
        ),
    )
