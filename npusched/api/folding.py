"""``npusched fold``: write the model with its batch norms folded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from npusched.errors import ModelError
from npusched.graph.fold import FoldedConstant, FoldedOp, fold_batch_norms
from npusched.ir import Model
from npusched.tflite import read_model
from npusched.tflite.rewrite import NewConstant, OpEdit, rewrite

if TYPE_CHECKING:
    from npusched.ir import Shape


class FoldResult(msgspec.Struct, frozen=True, kw_only=True):
    """The rewritten file, how many batch norms it lost, and why others stay."""

    content: bytes
    folded: int
    left: tuple[str, ...]

    @property
    def summary(self) -> str:
        """What was done, one line per batch norm that stays."""
        head = f"folded {self.folded} batch norm{'' if self.folded == 1 else 's'}"
        return "\n".join([head, *(f"  not folded: {reason}" for reason in self.left)])


def fold(content: bytes, *, name: str = "model") -> FoldResult:
    """Fold every batch norm (MUL/DIV and ADD/SUB by constants) into the linear op before it.

    All subgraphs are covered. Raises ModelError if the file cannot be read or nothing folds.
    """
    model = read_model(content, name)
    result, folded, left = fold_model(model)
    if not folded:
        raise ModelError(
            f"{name} has no batch norm that can be folded",
            left[0] if left else "no MUL or DIV by a constant follows a linear op",
            "nothing to do: plan the model as it is",
        )
    return FoldResult(content=result, folded=folded, left=left)


def fold_model(model: Model) -> tuple[bytes, int, tuple[str, ...]]:
    """Return (rewritten bytes, batch norms folded, reasons for those that stay)."""
    content, count, reasons = model.content, 0, []
    for subgraph in model.subgraphs:
        folded, left = fold_batch_norms(subgraph)
        reasons += [f"ops {list(norm.ops)}: {why}" for norm, why in left]
        count += len(folded)
        if folded:
            removed = [op for item in folded for op in item.removed]
            content = rewrite(content, subgraph.index, [_edit(item) for item in folded], removed)
    return content, count, tuple(reasons)


def folded_model(model: Model, input_shapes: Mapping[str, Shape] | None = None) -> Model | None:
    """Return the model with its batch norms folded, None if there are none to fold."""
    content, count, _ = fold_model(model)
    return read_model(content, model.name, input_shapes=input_shapes) if count else None


def _edit(item: FoldedOp) -> OpEdit:
    return OpEdit(
        op=item.op,
        weights=_constant(f"folded_weights_{item.op}", item.weights),
        bias=_constant(f"folded_bias_{item.op}", item.bias),
        output=item.output,
        activation=item.activation,
    )


def _constant(name: str, constant: FoldedConstant) -> NewConstant:
    return NewConstant(
        name=name,
        dtype=constant.dtype,
        values=constant.values,
        scales=constant.scales,
        zero_points=constant.zero_points,
        axis=constant.axis,
    )
