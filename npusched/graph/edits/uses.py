"""Who writes and reads the tensors of a subgraph."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import msgspec

from npusched.ir import Op, OpKind, Subgraph, Tensor

UNARY = frozenset(
    {
        OpKind.RELU,
        OpKind.RELU6,
        OpKind.RELU_N1_TO_1,
        OpKind.RELU_0_TO_1,
        OpKind.LOGISTIC,
        OpKind.TANH,
        OpKind.HARD_SWISH,
        OpKind.LEAKY_RELU,
        OpKind.ELU,
        OpKind.GELU,
        OpKind.QUANTIZE,
        OpKind.ABS,
        OpKind.NEG,
        OpKind.EXP,
        OpKind.LOG,
        OpKind.SQRT,
        OpKind.RSQRT,
        OpKind.SQUARE,
    }
)
"""Kinds whose result has the shape of their one input, element by element."""

BINARY = frozenset(
    {
        OpKind.ADD,
        OpKind.SUB,
        OpKind.MUL,
        OpKind.DIV,
        OpKind.MINIMUM,
        OpKind.MAXIMUM,
        OpKind.SQUARED_DIFFERENCE,
    }
)
"""Kinds that combine two inputs element by element."""


LONGEST_NAME = 60
"""Most characters of a name in a message."""


class Uses(msgspec.Struct, frozen=True, dict=True):
    """A subgraph with the writer and the readers of every tensor."""

    graph: Subgraph

    @cached_property
    def writer(self) -> dict[int, Op]:
        """The op that writes each computed tensor."""
        return {t: op for op in self.graph.ops for t in op.outputs if t >= 0}

    @cached_property
    def readers(self) -> dict[int, list[Op]]:
        """The ops that read each tensor, each op once; none for tensors that nothing reads."""
        found: dict[int, list[Op]] = defaultdict(list)
        for op in self.graph.ops:
            for t in dict.fromkeys((*op.inputs, *op.intermediates)):
                if t >= 0:
                    found[t].append(op)
        return found

    @cached_property
    def edges(self) -> frozenset[int]:
        """Graph inputs and outputs."""
        return frozenset((*self.graph.inputs, *self.graph.outputs))

    def tensor(self, op: Op, slot: int) -> Tensor | None:
        """Input ``slot`` of an op; None if it is absent."""
        if slot >= len(op.inputs) or op.inputs[slot] < 0:
            return None
        return self.graph.tensors[op.inputs[slot]]

    def result(self, op: Op) -> Tensor:
        """First result of an op."""
        return self.graph.tensors[op.outputs[0]]

    def own(self, tensor: int) -> bool:
        """True if a single op reads the tensor, and it is no edge of the graph."""
        return len(self.readers.get(tensor, ())) == 1 and tensor not in self.edges

    def next_index(self, op: Op) -> int:
        """Where something is inserted to stand right behind ``op``."""
        return op.index + 1


def shortened(name: str) -> str:
    """A name from a file, cut to what a message can bear."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def label(op: Op) -> str:
    """How messages name an op of the file: kind (or custom code) and number."""
    return f"{shortened(op.custom_code) or op.kind.value} #{op.index}"
