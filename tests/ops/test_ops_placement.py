"""Where every boundary case is placed, and how its reasons read. No Vela needed."""

from __future__ import annotations

import pytest

from npusched.hardware.target import Family
from npusched.ops import SPECS, place, placement
from tests.ops.boundaries import all_boundaries
from tests.ops.boundary_case import Boundary
from tests.ops.graph_cases import GraphCase, graph_cases

BOUNDARIES = all_boundaries()
GRAPHS = list(graph_cases())


def _first(case: Boundary, family: Family) -> str:
    reasons = place(case.model, family)[0]
    return reasons[0].limit if reasons else ""


@pytest.mark.parametrize("case", BOUNDARIES, ids=lambda case: case.name)
def test_boundary(case: Boundary) -> None:
    assert _first(case, Family.U55) == case.u55
    assert _first(case, Family.U65) == case.u55
    assert _first(case, Family.U85) == case.u85


def test_boundary_names_are_unique() -> None:
    names = [case.name for case in BOUNDARIES]
    assert len(names) == len(set(names))


def test_every_limit_of_every_family_is_met_from_both_sides() -> None:
    """Each limit that the tables declare breaks in some case, so no limit is untested."""
    declared = {
        limit.limit
        for spec in SPECS.values()
        for family in (Family.U55, Family.U85)
        for limit in spec.limits(family) or ()
    }
    broken = {
        reason.limit
        for case in BOUNDARIES
        for family in (Family.U55, Family.U85)
        for reason in place(case.model, family)[0]
    }
    refused_by_the_reader = {"kernel", "input", "output"}
    in_a_graph_case = {"known_shape"}
    assert declared - broken == refused_by_the_reader | in_a_graph_case


@pytest.mark.parametrize("case", BOUNDARIES, ids=lambda case: case.name)
def test_reasons_carry_the_failing_value(case: Boundary) -> None:
    for family in (Family.U55, Family.U85):
        for reason in place(case.model, family)[0]:
            assert reason.value in reason.text
            assert "Vela 5.2" in reason.text
            assert reason.fix
            assert "\n" not in reason.text + reason.fix


def test_text_is_made_from_the_limit() -> None:
    case = next(c for c in BOUNDARIES if c.name == "conv stride 4 padded")
    (reason,) = place(case.model, Family.U55)[0]
    assert reason.limit == "stride"
    assert reason.value == "4x4 with padding"
    assert reason.text == (
        "CONV_2D stride 4x4 with padding: Ethos-U55 runs strides up to 3x3, larger ones without "
        "padding and dilation, or along an axis whose result has size 1 (as Vela 5.2)"
    )


@pytest.mark.parametrize("case", GRAPHS, ids=lambda case: case.name)
def test_graph(case: GraphCase) -> None:
    for family, expected in ((Family.U55, case.u55), (Family.U85, case.u85)):
        reasons = place(case.model, family)
        assert {index for index, why in reasons.items() if why} == expected
        assert set(reasons) == {op.index for op in case.model.subgraphs[0].ops}


def test_without_npu_everything_runs_on_the_cpu() -> None:
    model = BOUNDARIES[0].model
    assert [r.limit for r in place(model, None)[0]] == ["no_npu"]
    assert [r.limit for r in placement(model.subgraphs[0], model.subgraphs[0].ops[0], None)] == [
        "no_npu"
    ]
