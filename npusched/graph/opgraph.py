"""The scheduled graph of one subgraph: what runs, where, in which order, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from npusched.graph.chains import Chain, Stop, chains_of
from npusched.graph.types import Access, FeatureMap, Placement, ScheduledOp, SourceRef
from npusched.hardware.target import Family
from npusched.ir import OpKind
from npusched.ops import Reason

if TYPE_CHECKING:
    import networkx as nx


class SourcePlacement(StrEnum):
    """What became of a source op.

    VIEW: nothing runs, its result is another tensor's storage. FOLDED: its work is done by the
    kernels of its neighbours, or it was dropped because nothing depends on it.
    """

    NPU = "npu"
    CPU = "cpu"
    VIEW = "view"
    FOLDED = "folded"


class SourceOp(msgspec.Struct, frozen=True, kw_only=True):
    """One op of the file: where it runs, why on the CPU, and which scheduled ops do its work.

    ``scheduled_ops`` also lists kernels that took the op over (a pad, a slice, an activation).
    """

    ref: SourceRef
    kind: OpKind
    placement: SourcePlacement
    cpu_reasons: tuple[Reason, ...] = ()
    scheduled_ops: tuple[int, ...] = ()


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A maximal run of scheduled ops on one processor: ops [first, end). One NPU call each."""

    placement: Placement
    first: int
    end: int


class HandOff(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that one processor writes and the other reads (bytes as stored)."""

    tensor: int
    size_bytes: int
    writer: Placement
    reader: Placement


@dataclass(frozen=True, kw_only=True)
class OpGraph:
    """Scheduled ops in execution order, with the feature maps that they use.

    ``family`` is None where everything runs on the host. ``inputs`` and ``outputs`` are feature
    map ids in the order of the file. ``sources`` has one entry per op of the subgraph, in file
    order. An ``Access`` whose tensor is ``NOT_STORED`` never reaches memory.
    """

    family: Family | None
    subgraph: int
    ops: tuple[ScheduledOp, ...]
    feature_maps: dict[int, FeatureMap]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sources: tuple[SourceOp, ...]

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """Maximal runs of ops on one processor, in order."""
        found: list[Partition] = []
        for op in self.ops:
            if found and found[-1].placement is op.placement:
                last = found.pop()
                found.append(Partition(placement=op.placement, first=last.first, end=op.id + 1))
            else:
                found.append(Partition(placement=op.placement, first=op.id, end=op.id + 1))
        return tuple(found)

    @property
    def npu_invocations(self) -> int:
        """Number of NPU calls: each run of NPU ops becomes one ``ethos-u`` op."""
        return sum(1 for part in self.partitions if part.placement is Placement.NPU)

    @cached_property
    def hand_offs(self) -> tuple[HandOff, ...]:
        """Tensors that cross between the NPU and the CPU, each direction once."""
        found: dict[tuple[int, Placement, Placement], HandOff] = {}
        written: dict[int, set[Placement]] = {}
        for op in self.ops:
            for access in op.reads:
                for writer in sorted(written.get(access.tensor, set())):
                    key = (access.tensor, writer, op.placement)
                    if writer is not op.placement and key not in found:
                        stored = self.feature_maps[access.tensor].stored_bytes
                        found[key] = HandOff(
                            tensor=access.tensor,
                            size_bytes=stored,
                            writer=writer,
                            reader=op.placement,
                        )
            for access in op.writes:
                written.setdefault(access.tensor, set()).add(op.placement)
        return tuple(found.values())

    @cached_property
    def writers(self) -> dict[int, tuple[int, ...]]:
        """Ids of the ops that write each feature map."""
        return self._users(lambda op: op.writes)

    @cached_property
    def readers(self) -> dict[int, tuple[int, ...]]:
        """Ids of the ops that read each feature map."""
        return self._users(lambda op: op.reads)

    def _users(
        self, accesses: Callable[[ScheduledOp], tuple[Access, ...]]
    ) -> dict[int, tuple[int, ...]]:
        users: dict[int, list[int]] = {number: [] for number in self.feature_maps}
        for op in self.ops:
            for number in dict.fromkeys(access.tensor for access in accesses(op)):
                users[number].append(op.id)
        return {number: tuple(ids) for number, ids in users.items()}

    @cached_property
    def stops(self) -> tuple[Stop | None, ...]:
        """Per op, why it cannot be cascaded with the op before it; None = it can."""
        return chains_of(self)[0]

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """Maximal runs of ops that may execute stripe by stripe in SRAM (fusion level L3)."""
        return chains_of(self)[1]

    @cached_property
    def digraph(self) -> nx.DiGraph:
        """The ops as a networkx graph: nodes are op ids, edges carry the ``tensor`` id."""
        import networkx as nx

        graph = nx.DiGraph()
        for op in self.ops:
            graph.add_node(op.id, op=op)
        for tensor, readers in self.readers.items():
            for writer in self.writers[tensor]:
                for reader in readers:
                    if writer < reader:
                        graph.add_edge(writer, reader, tensor=tensor)
        return graph

    def scheduled_for(self, ref: SourceRef) -> tuple[ScheduledOp, ...]:
        """Return the scheduled ops that do (a part of) the work of a source op."""
        return tuple(self.ops[number] for number in self.sources[ref[1]].scheduled_ops)
