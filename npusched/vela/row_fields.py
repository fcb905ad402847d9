"""Cells of the debug database as typed values (VELA_SPEC §6)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from npusched.cost.types import BlockConfig, CostFm, Traversal
from npusched.errors import VelaError
from npusched.graph.types import Kernel, KernelKind, Reverse, Shape4
from npusched.hardware.target import Block, Target

Row = Mapping[str, str]
"""One row of a table: column name to cell."""

TRANSPOSES = {
    "NWHC": (1, 0, 2),
    "NHCW": (0, 2, 1),
    "NWCH": (1, 2, 0),
    "NCHW": (2, 0, 1),
    "NCWH": (2, 1, 0),
}
"""Vela's names of transposes of (h, w, c): each letter names the axis it is taken from."""

_REVERSES = {"H": Reverse.H, "W": Reverse.W, "C": Reverse.C}
_BITS = re.compile(r"\d+$")


def kind_of(operator: str) -> KernelKind:
    """Return the kernel kind of an operator name; raises VelaError for one that we do not know."""
    try:
        return KernelKind(operator)
    except ValueError:
        raise VelaError(
            f"Vela's database names an unknown operator {operator!r}",
            "it is not among the kernels of Vela 5.2",
            "check the installed version of ethos-u-vela",
        ) from None


def bits_of(dtype: str) -> int:
    """Return the width in bits of a type name such as Int8 (0 for none)."""
    found = _BITS.search(dtype)
    return int(found[0]) if found else 0


def shape_of(row: Row, prefix: str) -> Shape4 | None:
    """Return (n, h, w, c) of columns ``prefix``_n … _c, None if all zero."""
    n, h, w, c = (int(row[f"{prefix}_{axis}"] or 0) for axis in "nhwc")
    return (n, h, w, c) if n or h or w or c else None


def map_of(row: Row, target: Target, name: str, *, stripe: bool = False) -> CostFm | None:
    """Return the feature map ``name`` (ifm, ifm2, ofm) of a perf_debug row.

    A slice counts as its own shape; ``stripe`` selects the stripe's shape instead. A feature map
    that is not allocated has no memory.
    """
    whole = shape_of(row, f"{name}_slice") or shape_of(row, f"{name}_shape")
    shape = (shape_of(row, f"{name}_stripe") or whole) if stripe else whole
    if shape is None:
        return None
    return CostFm(
        shape=shape,
        bits=bits_of(row[f"{name}_dtype"]),
        brick=row[f"{name}_format"] == "NHCWB16",
        memory=memory_of(target, row[f"{name}_memory"]),
    )


def memory_of(target: Target, vela_name: str) -> str | None:
    """Return the target's name of a memory that Vela names; None for "" and internal ones."""
    for memory in target.memories:
        if memory.vela_name == vela_name:
            return memory.name
    return None


def memory_names(target: Target) -> dict[str, str]:
    """The target's names of the memories that Vela names; the first of several alike."""
    return {memory.vela_name: memory.name for memory in reversed(target.memories)}


def transpose_of(row: Row) -> tuple[int, int, int] | None:
    """Return the fused transpose of a row, None if there is none."""
    return TRANSPOSES.get(row["transpose_type"])


def reverse_of(row: Row) -> Reverse:
    """Return the axis that a row writes backwards."""
    return _REVERSES.get(row["reverse_type"], Reverse.NONE)


def kernel_of(row: Row) -> Kernel:
    """Return the window of a perf_debug row."""

    def cell(name: str) -> int:
        return int(row[f"kernel_{name}"] or 0)

    return Kernel(
        h=cell("size_y"),
        w=cell("size_x"),
        stride_h=cell("stride_y"),
        stride_w=cell("stride_x"),
        dilation_h=cell("dilation_y"),
        dilation_w=cell("dilation_x"),
        pad_top=cell("padding_T"),
        pad_left=cell("padding_L"),
        pad_bottom=cell("padding_B"),
        pad_right=cell("padding_R"),
    )


def block_of(main: Row | None, default_ublock: Block) -> BlockConfig | None:
    """Return the block of a perf_debug_main row, None if the op has none."""
    if main is None:
        return None
    shapes = {name: _block(main, name) for name in ("ifm_block", "ofm_block", "ofm_ublock")}
    ifm_block, ofm_block = shapes["ifm_block"], shapes["ofm_block"]
    if ifm_block is None or ofm_block is None:
        return None
    return BlockConfig(
        ofm_block=ofm_block,
        ifm_block=ifm_block,
        ofm_ublock=shapes["ofm_ublock"] or default_ublock,
        traversal=Traversal(main["traversal"]),
    )


def _block(main: Row, prefix: str) -> Block | None:
    cells = [int(main.get(f"{prefix}_{axis}") or 0) for axis in "hwc"]
    return Block(*cells) if all(cells) else None
