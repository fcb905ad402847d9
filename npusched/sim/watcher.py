"""Looks for what kernels write among the tensors of the reference, and says which are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npusched.graph.build import build_graph
from npusched.ir import Model, Subgraph
from npusched.sim.absorbed import Absorption, absorptions
from npusched.sim.flow import readers
from npusched.sim.kernels.arrays import Array
from npusched.sim.matching import Matcher, Near
from npusched.sim.program import LoadedKernel, Program

MAX_SUSPECTS = 200
"""Kernels without counterpart that are looked at closely: it is the first wrong one that counts."""

MANY_KERNELS = 5000
"""Of programs with more kernels, so many are looked for, each in one tensor only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first kernel whose output differs from the tensor that it should be.

    ``op`` is the source op that makes the tensor, -1 unknown; ``row``, ``column``, ``channel``
    place the first differing value in the tensor.
    """

    operator: int
    kernel: str
    offset_bytes: int
    tensor: str
    op: int
    kind: str
    row: int
    column: int
    channel: int
    got: int
    expected: int
    differing: int
    total: int

    def __str__(self) -> str:
        return (
            f"{self.kernel} (byte {self.offset_bytes}) differs from {self.tensor} "
            f"(op {self.op} {self.kind}) at row {self.row}, column {self.column}, channel "
            f"{self.channel}: {self.got} instead of {self.expected}; "
            f"{self.differing} of {self.total} values"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Intermediates:
    """Kernels and tensors compared inside the network.

    ``kernels`` of 8 and 16 bits were looked for, ``equal`` of them found; ``temporaries`` have no
    counterpart in the file (by label). ``tensors`` are those that ops of the file make and that
    should be in memory, ``covered`` of them were found whole, ``missing`` were not (by name).
    ``absorbed`` never reach memory (name, reason; see ``sim.absorbed``).
    ``different`` tensors between NPU operators and host ops are not as the reference made them.
    ``skipped`` kernels were not looked for, because there are very many.
    """

    kernels: int
    equal: int
    temporaries: tuple[str, ...]
    tensors: int
    covered: int
    missing: tuple[str, ...]
    absorbed: tuple[tuple[str, Absorption], ...]
    different: tuple[str, ...] = ()
    skipped: int = 0

    @property
    def coverage(self) -> float:
        """Share of tensors that should be in memory and were found whole."""
        return self.covered / self.tensors if self.tensors else 1.0

    @property
    def reasons(self) -> dict[str, int]:
        """How many tensors were absorbed, by reason."""
        return dict(sorted(Counter(str(reason) for _, reason in self.absorbed).items()))


class Watcher:
    """Looks every kernel's output up among the reference tensors."""

    def __init__(self, graph: Subgraph, expected: Mapping[int, Array], *, is_quick: bool) -> None:
        self._graph = graph
        self._matcher = Matcher(
            {
                index: (graph.tensors[index].name, values)
                for index, values in expected.items()
                if values.dtype.kind in "iu" and values[0].size
            },
            is_quick=is_quick,
        )
        self._batch = max((len(values) for values in expected.values()), default=1)
        self._is_quick = is_quick
        self._kernels = self._equal = self._skipped = 0
        self._temporaries: list[str] = []
        self._near: list[tuple[int, LoadedKernel, Near]] = []
        self._different: list[str] = []
        self._found: set[tuple[int, int]] = set()
        self._readers: dict[int, tuple[frozenset[int], ...]] = {}

    def __call__(self, operator: int, kernel: LoadedKernel, written: Array) -> None:
        """Look at one kernel."""
        if len(written) != self._batch:
            written = np.broadcast_to(written, (self._batch, *written.shape[1:]))
        if written.dtype.itemsize > 2:
            if not self._is_quick:
                self._matcher.find(kernel.ofm.view, written)
            return
        if self._is_quick and self._kernels >= MANY_KERNELS:
            self._skipped += 1
            return
        self._kernels += 1
        if self._matcher.find(kernel.ofm.view, written):
            self._equal += 1
            self._found.add((operator, kernel.state.index))
            return
        self._temporaries.append(f"{operator}: {kernel.state.label}")
        if len(self._temporaries) > MAX_SUSPECTS:
            return
        near = self._matcher.nearest(kernel.ofm.view, written)
        if near is not None:
            self._near.append((operator, kernel, near))

    def boundaries(self, compiled: Subgraph, values: Mapping[int, Array]) -> None:
        """Compare the tensors between NPU operators and host ops, by name."""
        names: dict[str, list[int]] = {}
        for target in self._matcher.targets:
            names.setdefault(target.name, []).append(target.index)
        for index, array in values.items():
            name = compiled.tensors[index].name
            same = names.get(name, [])
            if len(same) == 1 and not self._matcher.check_whole(same[0], array):
                self._different.append(name)

    def finish(
        self, model: Model, programs: Sequence[Program], inputs: Iterable[Array]
    ) -> tuple[Intermediates, Difference | None]:
        """Return the figures, and the first kernel that differs from the tensor it should be."""
        self._matcher.spread(inputs)
        targets = self._matcher.targets
        unseen = [target for target in targets if not target.is_covered]
        reasons = self._reasons(model, programs) if unseen else {}
        missing = [target for target in unseen if target.index not in reasons]
        wrong = next((each for each in self._near if self._is_wrong(each, programs)), None)
        figures = Intermediates(
            kernels=self._kernels,
            equal=self._equal,
            temporaries=tuple(self._temporaries),
            tensors=len(targets) - len(unseen) + len(missing),
            covered=len(targets) - len(unseen),
            missing=tuple(target.name for target in missing),
            absorbed=tuple(
                (target.name, reasons[target.index]) for target in unseen if target.index in reasons
            ),
            different=tuple(self._different),
            skipped=self._skipped,
        )
        return figures, None if wrong is None else self._difference(*wrong)

    def _reasons(self, model: Model, programs: Sequence[Program]) -> dict[int, Absorption]:
        """Why tensors are not in memory, by index: from our own lowering for this family."""
        if not programs:
            return {}
        family = programs[0].machine.family
        return absorptions(build_graph(model, family, subgraph=self._graph.index), self._graph)

    def _is_wrong(
        self, suspect: tuple[int, LoadedKernel, Near], programs: Sequence[Program]
    ) -> bool:
        """Tell a wrong result from a temporary that resembles a tensor.

        Temporaries lead to results that are found among the tensors; a wrong result spoils all
        that depends on it, up to the end of the operator.
        """
        operator, kernel, near = suspect
        if bool(near.block.target.covered[near.block.places].all()):
            return False
        if operator not in self._readers:
            self._readers[operator] = readers(programs[operator])
        pending, seen = [kernel.state.index], {kernel.state.index}
        while pending:
            for reader in self._readers[operator][pending.pop()]:
                if (operator, reader) in self._found:
                    return False
                if reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
        return True

    def _difference(self, operator: int, kernel: LoadedKernel, near: Near) -> Difference:
        tensor = near.block.target.index
        op = next((op for op in self._graph.ops if tensor in op.outputs), None)
        row, column, channel = near.place
        return Difference(
            operator=operator,
            kernel=kernel.state.label,
            offset_bytes=kernel.state.offset_bytes,
            tensor=near.block.target.name,
            op=-1 if op is None else op.index,
            kind="" if op is None else str(op.kind),
            row=row,
            column=column,
            channel=channel,
            got=near.got,
            expected=near.expected,
            differing=near.differing,
            total=near.total,
        )
