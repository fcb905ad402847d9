"""Models that move, select, compare and convert, by name."""

from __future__ import annotations

import numpy as np

from npusched.ir import DataType, OpKind
from npusched.ir.options import AxisOptions, NoOptions
from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref
from tests.graph.lower.lower_model_kit import Make, of, on, pair


def moves() -> dict[str, Make]:
    found: dict[str, Make] = {
        "tile_hw": on((1, 3, 4, 5), lambda b, x: b.tile(x, (1, 2, 3, 1))),
        "tile_none": on((1, 3, 4, 5), lambda b, x: b.tile(x, (1, 1, 1, 1))),
        "tile_c": on((3, 16), lambda b, x: b.tile(x, (1, 4))),
        "mirror_reflect": on(
            (1, 5, 6, 8), lambda b, x: b.mirror_pad(x, ((0, 0), (2, 1), (1, 3), (0, 0)))
        ),
        "mirror_symmetric": on(
            (1, 5, 6, 8),
            lambda b, x: b.mirror_pad(x, ((0, 0), (2, 0), (0, 3), (0, 0)), symmetric=True),
        ),
        "gather": on((10, 16), lambda b, x: b.gather(x, (3, 1, 4, 1, 5))),
        "double_broadcast": pair((1, 1, 6, 8), (1, 5, 1, 8), lambda b, x, y: b.add(x, y)),
        "double_broadcast_mul": pair((1, 5, 1, 1), (1, 1, 6, 8), lambda b, x, y: b.mul(x, y)),
        "div": pair((1, 5, 6, 8), (1, 5, 6, 8), lambda b, x, y: b.div(x, y)),
    }
    for axes in ((1,), (2,), (3,), (1, 2), (0,)):
        label = "".join(map(str, axes))
        found[f"reverse_{label}"] = on(
            (2 if axes == (0,) else 1, 4, 5, 16),
            lambda b, x, a=axes: b.apply(OpKind.REVERSE_V2, [x, b.const(a)], NoOptions(), like=x),
        )
    for dtype in ("int8", "int16"):
        found[f"squared_difference_{dtype}"] = pair(
            (1, 5, 6, 8), (1, 5, 6, 8), lambda b, x, y: b.squared_difference(x, y), dtype
        )
    found["squared_difference_row"] = pair(
        (1, 5, 6, 8), (1, 1, 1, 8), lambda b, x, y: b.squared_difference(x, y)
    )
    found["gather_batch"] = _pair_gather()
    found["scatter"] = on((3, 16), _scatter)
    return found


def _scatter(b: Builder, x: Ref) -> Ref:
    """SCATTER_ND of 3 rows into 10."""
    result = b.tensor("y", (10, 16), x.dtype, scale=x.scale, zero_point=x.zero_point)
    b.op(OpKind.SCATTER_ND, [b.const(((7,), (1,), (4,))), x, b.const((10, 16))], [result])
    return result


def _pair_gather() -> Make:
    def make(b: Builder) -> Ref:
        x = b.input("x", (2, 10, 16), "int8")
        i = b.const(np.array([[1, 2, 3], [4, 5, 6]]), "int32")
        return b.apply(OpKind.GATHER, [x, i], AxisOptions(axis=1, batch_dims=1), like=x)

    return make


def logic() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for kind in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
        found[kind.lower()] = pair(
            (1, 5, 6, 8), (1, 5, 6, 8), lambda b, x, y, k=kind: _bool(b, k, x, y)
        )

    def select(b: Builder) -> Ref:
        x = b.input("x", (1, 5, 6, 8), "int8", scale=0.05)
        y = b.input("y", (1, 5, 6, 8), "int8", scale=0.05)
        c = b.input("c", (1, 5, 6, 8), "bool", scale=None)
        return b.apply(OpKind.SELECT_V2, [c, x, y], like=x)

    def select16(b: Builder) -> Ref:
        x = b.input("x", (1, 5, 6, 8), "int16", scale=0.05)
        y = b.input("y", (1, 5, 6, 8), "int16", scale=0.05)
        return b.apply(OpKind.SELECT_V2, [_bool(b, "GREATER", x, y), x, y], like=x)

    found["select"] = select
    found["select16"] = select16
    found["logical_and"] = lambda b: b.apply(
        OpKind.LOGICAL_AND,
        [b.input("x", (1, 5, 8), "bool"), b.input("y", (1, 5, 8), "bool")],
        dtype="bool",
    )
    found["logical_or"] = lambda b: b.apply(
        OpKind.LOGICAL_OR,
        [b.input("x", (1, 5, 8), "bool"), b.input("y", (1, 5, 8), "bool")],
        dtype="bool",
    )
    found["logical_not"] = lambda b: b.apply(
        OpKind.LOGICAL_NOT, [b.input("x", (1, 5, 8), "bool")], dtype="bool"
    )
    for kind in ("REDUCE_ANY", "REDUCE_ALL"):
        found[kind.lower()] = of(
            lambda b, k=kind: b.reduce(OpKind(k), b.input("x", (1, 5, 6, 8), "bool"), (1,))
        )
    for source, target in (
        ("int8", "int16"),
        ("int8", "int32"),
        ("int16", "int8"),
        ("int32", "int16"),
        ("int32", "int8"),
        ("bool", "int8"),
        ("int8", "bool"),
        ("int8", "int64"),
    ):
        found[f"cast_{source}_{target}"] = _cast(source, target)
    return found


def _bool(b: Builder, kind: str, x: Ref, y: Ref) -> Ref:
    result = b.tensor(kind.lower(), x.shape, DataType.BOOL)
    b.op(OpKind(kind), [x, y], [result])
    return result


def _cast(source: str, target: str) -> Make:
    def make(b: Builder) -> Ref:
        x = b.input("x", (1, 5, 6, 8), source)
        wide = target in ("int32", "int64", "bool")
        result = b.tensor("y", x.shape, target, scale=None if wide else x.scale or 1.0)
        b.op(OpKind.CAST, [x], [result])
        return result

    return make


def variables() -> dict[str, Make]:
    def accumulate(b: Builder) -> Ref:
        x = b.input("x", (1, 8), "int8", scale=0.05)
        handle = b.var_handle("total")
        old = b.read_variable(handle, (1, 8), "int8", scale=0.05)
        new = b.add(old, x, scale=0.05, zero_point=0)
        b.assign_variable(handle, new)
        return b.relu(new)

    return {"variable": accumulate}
