"""Pairs of one-op models just inside and just outside every limit, with what is expected of each.

Expected values come from the rules of Vela 5.2.0 (LOWERING §2.1-2.4 and the supported-operator
sources that it cites) and are confirmed against Vela itself in ``test_ops_against_vela``.
"""

from __future__ import annotations

from tests.ops.boundaries_rare import lstms, oddities, scatters
from tests.ops.boundaries_shapes import movement, reductions, resizes
from tests.ops.boundaries_types import activations, comparisons, refusals, types, zero_points
from tests.ops.boundaries_windows import weights, windows
from tests.ops.boundary_case import Boundary

GROUPS = (
    windows,
    weights,
    types,
    zero_points,
    comparisons,
    refusals,
    activations,
    reductions,
    movement,
    resizes,
    lstms,
    scatters,
    oddities,
)

VELA_CRASHES = frozenset({"fully connected rank 3 (crash)", "mean computed axes (crash)"})
"""Cases on which Vela 5.2.0 dies of a signal, after it has said that the op stays on the CPU."""

READER_REFUSES = frozenset({"add uint8 zero point -1", "scale 2**31", "scale 2**32"})
"""Cases whose files our own reader takes for damaged, so that the limit is never met in a file."""


def all_boundaries() -> list[Boundary]:
    """Every case."""
    return [case for group in GROUPS for case in group()]
