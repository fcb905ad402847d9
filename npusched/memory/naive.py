"""The memory a model needs if nothing is clever: what the file's own tensors add up to."""

from __future__ import annotations

from npusched.ir import Subgraph


def naive_peak(subgraph: Subgraph) -> tuple[int, int | None]:
    """Return (bytes, op index) of the largest sum of tensors alive while an op runs.

    Tensors are unpadded, constants left out, nothing is in place or shared. Graph inputs live
    from the start to their last reader, other tensors from their writer to their last reader,
    graph outputs to the end. (0, None) for a subgraph without ops.
    """
    count = len(subgraph.ops)
    first: dict[int, int] = {
        t: 0 for t in subgraph.inputs if t >= 0 and not subgraph.tensors[t].is_constant
    }
    last: dict[int, int] = dict(first)
    for op in subgraph.ops:
        for t in (*op.inputs, *op.outputs):
            if t >= 0 and not subgraph.tensors[t].is_constant:
                first.setdefault(t, op.index)
                last[t] = op.index
    for t in subgraph.outputs:
        if t in first:
            last[t] = count - 1
    change = [0] * (count + 1)
    for t, begin in first.items():
        change[begin] += subgraph.tensors[t].size_bytes
        change[last[t] + 1] -= subgraph.tensors[t].size_bytes
    best, where, alive = 0, None, 0
    for index in range(count):
        alive += change[index]
        if where is None or alive > best:
            best, where = alive, index
    return best, where
