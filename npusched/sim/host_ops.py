"""The CPU ops of a scheduled graph: each one run by LiteRT, on values that others made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from npusched.errors import SimError
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, ScheduledOp
from npusched.ir import Model
from npusched.sim.container import numpy_type
from npusched.sim.host import HostGroup, check_variables, host_group, run_host
from npusched.sim.kernels.arrays import Array
from npusched.tflite.decode import decode


class HostOps:
    """Runs the CPU ops of a graph one by one, as LiteRT's reference kernels do.

    ``model`` is the one that the graph was made from. Raises SimError if a CPU op sets a variable
    that a later one reads: every op is run as a model of its own.
    """

    def __init__(self, model: Model, graph: OpGraph) -> None:
        self._subgraph = model.subgraphs[graph.subgraph]
        self._content = model.content
        self._ops = [op for op in graph.ops if op.placement is Placement.CPU]
        if len(self._groups) > 1:
            check_variables(self._subgraph, list(self._groups.values()))

    @cached_property
    def _groups(self) -> dict[int, HostGroup]:
        """Per scheduled op a model of it alone."""
        if not self._ops:
            return {}
        root = decode(self._content)
        return {
            op.id: host_group(root, self._subgraph, [self._subgraph.ops[op.source_ops[0][1]]])
            for op in self._ops
        }

    def reads(self, op: ScheduledOp) -> tuple[int, ...]:
        """Positions among the op's inputs of the values that it needs from others."""
        group = self._groups[op.id]
        return tuple(k for k, index in enumerate(self._inputs(op)) if index in group.inputs)

    def run(self, op: ScheduledOp, inputs: Sequence[dict[int, Array]]) -> list[dict[int, Array]]:
        """Results of one op on a batch: per element position of the OFM -> values, flat.

        ``inputs``: per element position of the IFM (see ``reads``) -> values. Results that nobody
        needs are left out. Raises SimError if LiteRT is missing or fails, or gives a result of
        another size than the file says.
        """
        group = self._groups[op.id]
        if not group.outputs:
            return [{} for _ in inputs]
        tensors = self._subgraph.tensors
        given = {}
        for position, index in enumerate(self._inputs(op)):
            if index in group.inputs:
                tensor = tensors[index]
                kind = numpy_type(tensor.dtype)
                given[index] = np.stack(
                    [each[position].astype(kind).reshape(tensor.shape) for each in inputs]
                )
        found = run_host(group, given)
        results: list[dict[int, Array]] = [{} for _ in inputs]
        for position, index in enumerate(self._outputs(op)):
            if index not in found:
                continue
            wanted = int(np.prod(op.ofms[position].shape))
            if found[index][0].size != wanted:
                raise SimError(
                    f"the size of {tensors[index].name!r} depends on the values",
                    f"{wanted} elements in the plan, {found[index][0].size} in this run",
                    "a model with such an op can be planned, but its plan cannot be proved",
                )
            batch = np.broadcast_to(found[index], (len(inputs), *found[index].shape[1:]))
            for number, values in enumerate(batch):
                results[number][position] = values.reshape(-1)
        return results

    def _inputs(self, op: ScheduledOp) -> list[int]:
        """Tensors that the op's IFMs are, in order."""
        return [i for i in self._subgraph.ops[op.source_ops[0][1]].inputs if i >= 0]

    def _outputs(self, op: ScheduledOp) -> list[int]:
        return [i for i in self._subgraph.ops[op.source_ops[0][1]].outputs if i >= 0]
