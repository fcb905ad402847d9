"""Which encoded weights of a compilation belong to which op of our graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from npusched.graph.opgraph import OpGraph
from npusched.graph.types import SourceRef
from npusched.vela.encoded import EncodedOp


def match_encoded(graph: OpGraph, encoded: Sequence[EncodedOp]) -> dict[int, EncodedOp]:
    """Return the encoded weights by the id of the scheduled op that uses them.

    Both sides are matched by source op and by order among its ops with weights. Ops that Vela
    files under no source op (those of ARG_MAX, LOWERING §10) go, in order, to our ops whose source
    op has none. Where the counts differ, a pair of unequal depth is no match.
    """
    known = {(op.source_ref, op.order): op for op in encoded}
    theirs = Counter(op.source_ref for op in encoded)
    refs = {
        op.id: op.source_ops[0] if op.source_ops and op.source_ops[0] in theirs else None
        for op in graph.ops
        if op.weights is not None
    }
    ours = Counter(refs.values())
    seen: Counter[SourceRef | None] = Counter()
    found = {}
    for number, ref in refs.items():
        match = known.get((ref, seen[ref]))
        seen[ref] += 1
        weights = graph.ops[number].weights
        if match is None or weights is None:
            continue
        if ours[ref] == theirs[ref] or channels_of(match) == weights.shape[0]:
            found[number] = match
    return found


def channels_of(op: EncodedOp) -> int:
    """Output channels of all slices."""
    return sum(part.channels for part in op.parts if part.core == 0)
