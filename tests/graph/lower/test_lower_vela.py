"""Kernels of small models, one by one, against the debug database of Vela 5.2 (regor).

Compared per scheduled op, in order: operator, shapes of all inputs and of the result, window,
element types, transpose and reverse, and whether the op is fused into the one before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from npusched.errors import VelaError
from npusched.graph.build import build_graph
from npusched.graph.types import Access, Kernel, Placement, Reverse, ScheduledOp, SubOp
from npusched.hardware import load_target
from npusched.hardware.target import Family
from npusched.ir import DataType
from npusched.tflite.reader import read_model
from npusched.vela.options import Feature, VelaOptions
from npusched.vela.row_fields import kernel_of, reverse_of, shape_of, transpose_of
from npusched.vela.runner import compile_model
from tests.graph.lower.lower_model_kit import Make
from tests.graph.lower.lower_models import build, families

TARGETS = {Family.U55: "ethos-u55-128", Family.U85: "ethos-u85-256"}
OPTIONS = VelaOptions(disable=(Feature.CASCADING, Feature.FM_STAGING))
TYPES = {
    DataType.INT8: "Int8",
    DataType.UINT8: "UInt8",
    DataType.INT16: "Int16",
    DataType.INT32: "Int32",
    DataType.INT64: "Int64",
    DataType.BOOL: "Bool8",
}
VELA_CANNOT = {
    "ethos-u55": (
        *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "select"),
        *("logical_and", "logical_or", "logical_not", "reduce_any", "reduce_all"),
        *("cast_bool_int8", "cast_int8_bool"),
        *(
            f"resize_{kind}_batch_{t}"
            for kind in ("bilinear", "nearest")
            for t in ("int8", "int16")
        ),
    )
}
"""Models for which Vela 5.2 stops with an error (LOWERING §2.1, and batches of resizes)."""

VELA_MISSHAPES = ("reduce_max_", "reduce_min_", "sum_c3_")
"""Without keep_dims Vela gives the last reduction the file's result shape, which has lost an axis:
its kernel then reads past its input. Our kernel keeps the axis as 1."""

FILLED_BY_PADDING = "tconv_2x2s4_SAME_int8"
"""Its first kernel has 1x1 weights of zero on an input smaller than the result: we state the
padding that this needs, Vela states none."""

MODELS = {
    f"{family}/{name}": make for family, makes in families().items() for name, make in makes.items()
}

Row = dict[str, object]


def _vela_rows(content: bytes, family: Family) -> list[Row]:
    result = compile_model(content, load_target(TARGETS[family]), OPTIONS, cache=None)
    tables = result.database
    operators = {row["id"]: row["operator"] for row in tables.table("perf").rows()}
    fused = set(tables.table("group").column("id")) if len(tables.table("group")) else set()
    rows: list[Row] = []
    for row in tables.table("perf_debug").rows():
        if operators[row["id"]] == "Passthrough":
            continue
        rows.append(
            {
                "operator": operators[row["id"]],
                "shapes": tuple(_shape(row, name) for name in ("ifm", "ifm2", "ofm")),
                "kernel": kernel_of(row),
                "types": (row["ifm_dtype"], row["ifm2_dtype"], row["ofm_dtype"]),
                "moves": (transpose_of(row), reverse_of(row)),
                "fused": row["id"] in fused,
            }
        )
    return rows


def _shape(row: dict[str, str], name: str) -> tuple[int, ...] | None:
    sliced = shape_of(row, f"{name}_slice")
    return sliced if sliced is not None and any(sliced) else shape_of(row, f"{name}_shape")


def _our_rows(content: bytes, family: Family) -> list[Row]:
    graph = build_graph(read_model(content, "m"), family)
    return [
        row
        for op in graph.ops
        if op.placement is Placement.NPU
        for _ in range(op.count)
        for row in _rows_of(op)
    ]


def _rows_of(op: ScheduledOp) -> Iterator[Row]:
    """Yield the row of a kernel and those of the ops fused into it or chained to it.

    Vela shows the result of a kernel as it is behind what is fused into it.
    """
    ofm, moves = _behind(op, op.sub_ops)
    yield _row(str(op.kind), op.ifms, ofm, op.kernel, moves, fused=False)
    for number, sub in enumerate(op.sub_ops):
        ofm, moves = sub.ofm, (sub.transpose, sub.reverse)
        if sub.chained:
            ofm, moves = _behind(sub, op.sub_ops[number + 1 :])
        yield _row(str(sub.kind), (), ofm, None, moves, fused=True)


Moves = tuple[tuple[int, int, int] | None, Reverse]


def _behind(op: ScheduledOp | SubOp, followers: tuple[SubOp, ...]) -> tuple[Access, Moves]:
    """Return the result of ``op`` and its rearrangement, what is fused into it included."""
    ofm, transpose, reverse = op.ofm, op.transpose, op.reverse
    for sub in itertools.takewhile(lambda sub: not sub.chained, followers):
        ofm = sub.ofm
        transpose = transpose if sub.transpose is None else sub.transpose
        reverse = reverse if sub.reverse is Reverse.NONE else sub.reverse
    return ofm, (transpose, reverse)


def _row(
    operator: str,
    ifms: tuple[Access, ...],
    ofm: Access,
    kernel: Kernel | None,
    moves: Moves,
    *,
    fused: bool,
) -> Row:
    links = [*ifms[:2], None, None][:2]
    return {
        "operator": operator,
        "shapes": (*(None if x is None else x.shape for x in links), ofm.shape),
        "kernel": kernel,
        "types": (*("" if x is None else TYPES[x.dtype] for x in links), TYPES[ofm.dtype]),
        "moves": moves,
        "fused": fused,
    }


def _comparable(vela: Row, ours: Row) -> Row:
    """Drop from Vela's row what a fused op of ours does not say (what it reads inside)."""
    if ours["kernel"] is not None:
        return vela
    shapes, types = vela["shapes"], vela["types"]
    assert isinstance(shapes, tuple)
    assert isinstance(types, tuple)
    return {**vela, "shapes": (None, None, shapes[2]), "types": ("", "", types[2]), "kernel": None}


@pytest.mark.parametrize("family", TARGETS, ids=lambda family: family.value)
@pytest.mark.parametrize("name", MODELS)
def test_kernels_equal_velas(name: str, family: Family) -> None:
    make: Make = MODELS[name]
    short = name.split("/")[1]
    content = build(make)
    if short in VELA_CANNOT.get(family.value, ()):
        with pytest.raises(VelaError):
            _vela_rows(content, family)
        return
    vela, ours = _vela_rows(content, family), _our_rows(content, family)
    assert [row["operator"] for row in ours] == [row["operator"] for row in vela]
    if short.startswith(VELA_MISSHAPES) and "_hw_" not in short:
        return
    if short == FILLED_BY_PADDING:
        vela, ours = vela[1:], ours[1:]
    assert ours == [_comparable(*pair) for pair in zip(vela, ours, strict=True)]
