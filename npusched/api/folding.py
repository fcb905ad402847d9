"""``npusched fold``: write the model with its batch norms folded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from npusched.errors import ModelError, SimError
from npusched.graph.edits.folding import fold_model
from npusched.ir import Model
from npusched.ops import source_macs
from npusched.tflite import read_model

if TYPE_CHECKING:
    from npusched.ir import Shape


MAX_INPUTS: Final = 20
"""Random inputs that a deviation is measured on."""

MEASURED_MACS: Final = 2_000_000_000
"""MACs that a measurement may take in each file: large models are measured on fewer inputs."""


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """How far the outputs of the folded model are from those of the original, measured.

    ``largest``: the largest difference, in steps of the output's type (floats: as it is).
    ``differing`` of ``values`` differ, in ``inputs`` random inputs, all outputs.
    """

    largest: float
    differing: int
    values: int
    inputs: int
    is_float: bool

    def __str__(self) -> str:
        basis = f"{_count(self.inputs, 'random input')}, measured"
        if not self.differing:
            return f"outputs are equal in all {self.values:,} values ({basis})"
        by = f"{self.largest:g}" if self.is_float else _count(int(self.largest), "step")
        share = 100 * self.differing / self.values
        return (
            f"outputs differ by at most {by} in {share:.2g} % of {self.values:,} values ({basis})"
        )


class FoldResult(msgspec.Struct, frozen=True, kw_only=True):
    """The rewritten file, how many batch norms it lost, and why others stay.

    ``deviation`` is what folding changes, None if it was not measured; ``not_measured`` says why.
    """

    content: bytes
    folded: int
    left: tuple[str, ...]
    deviation: Deviation | None = None
    not_measured: str = ""

    @property
    def summary(self) -> str:
        """What was done, the deviation, one line per batch norm that stays."""
        measured = f"deviation not measured: {self.not_measured}"
        if self.deviation is not None:
            measured = str(self.deviation)
        head = f"folded {_count(self.folded, 'batch norm')}; {measured}"
        return "\n".join([head, *(f"  not folded: {reason}" for reason in self.left)])


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def fold(
    content: bytes, *, name: str = "model", inputs: int = MAX_INPUTS, seed: int = 0
) -> FoldResult:
    """Fold every batch norm (MUL/DIV and ADD/SUB by constants) into the linear op before it.

    All subgraphs are covered. Both files are then run by LiteRT's reference kernels on as many
    random ``inputs`` (fewer for models above ``MEASURED_MACS``; 0: none), if it is installed and
    can run them. Raises ModelError if the file cannot be read or nothing folds.
    """
    model = read_model(content, name)
    result, folded, left = fold_model(model)
    if not folded:
        raise ModelError(
            f"{name} has no batch norm that can be folded",
            left[0] if left else "no MUL or DIV by a constant follows a linear op",
            "nothing to do: plan the model as it is",
        )
    found = "no inputs were asked for" if not inputs else _deviation(model, result, inputs, seed)
    return FoldResult(
        content=result,
        folded=folded,
        left=left,
        deviation=None if isinstance(found, str) else found,
        not_measured=found if isinstance(found, str) else "",
    )


def _deviation(model: Model, folded: bytes, inputs: int, seed: int) -> Deviation | str:
    """Run both files on random inputs; why that is not possible, if it is not."""
    from npusched.sim.deviation import compare_models

    graph = model.subgraphs[0]
    macs = sum(source_macs(graph, op) for op in graph.ops)
    count = max(1, min(inputs, MEASURED_MACS // max(macs, 1)))
    try:
        found = compare_models(model.content, folded, graph, count, seed)
    except SimError as error:
        if "missing" in error.values:
            return "pip install 'npusched[prove]'"
        return f"{error.what}: {error.why}" if error.why else error.what
    return Deviation(
        largest=found.largest,
        differing=found.differing,
        values=found.values,
        inputs=count,
        is_float=found.is_float,
    )


def folded_model(model: Model, input_shapes: Mapping[str, Shape] | None = None) -> Model | None:
    """Return the model with its batch norms folded, None if there are none to fold."""
    content, count, _ = fold_model(model)
    return read_model(content, model.name, input_shapes=input_shapes) if count else None
