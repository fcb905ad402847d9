"""The catalogue is complete and agrees with the list of operators that Vela documents."""

from __future__ import annotations

import pytest

from npusched.hardware.target import Family
from npusched.ir import OpKind
from npusched.ops import SPECS, Category, CostClass, Role, input_role, spec
from npusched.ops.roles import INPUT_ROLES


def test_every_kind_has_a_spec() -> None:
    assert set(SPECS) == set(OpKind)
    assert all(SPECS[kind].kind is kind for kind in OpKind)


@pytest.mark.parametrize("kind", list(OpKind))
def test_views_are_those_that_keep_the_elements(kind: OpKind) -> None:
    views = {"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "STABLEHLO_RESHAPE"}
    assert spec(kind).is_view == (kind.value in views)


def test_cost_classes_split_into_macs_and_elements() -> None:
    per_mac = {c for c in CostClass if c.per_mac}
    assert per_mac == {
        CostClass.CONV,
        CostClass.POINTWISE_CONV,
        CostClass.DEPTHWISE,
        CostClass.FULLY_CONNECTED,
        CostClass.BATCH_MATMUL,
        CostClass.RECURRENT,
    }


def test_families_without_a_path() -> None:
    assert spec(OpKind.SVDF).limits(Family.U85) is None
    assert spec(OpKind.DIV).limits(Family.U55) is None
    assert spec(OpKind.DIV).limits(Family.U85) is not None
    assert spec(OpKind.CONV_2D).limits(Family.U55) == spec(OpKind.CONV_2D).limits(Family.U65)


@pytest.mark.parametrize("family", [Family.U55, Family.U85])
def test_kinds_are_those_that_vela_documents(family: Family) -> None:
    """``regor.tflite_operator_constraints`` lists what Vela's checks know."""
    regor = pytest.importorskip("ethosu.regor")
    architecture = {Family.U55: "EthosU55", Family.U85: "EthosU85"}[family]
    documented = {name.replace("ARGMAX", "ARG_MAX") for name in _names(regor, architecture)}
    ours = {kind.value for kind in OpKind if spec(kind).limits(family) is not None}
    assert ours == documented


def _names(regor: object, architecture: str) -> list[str]:
    constraints = getattr(regor, "tflite_operator_constraints")(architecture)  # noqa: B009
    return [str(name) for name in constraints]


def test_limits_have_ids_and_words() -> None:
    for kind in OpKind:
        for family in Family:
            for limit in spec(kind).limits(family) or ():
                assert limit.limit.replace("_", "").isalnum()
                assert limit.what
                assert limit.allowed
                assert limit.fix


def test_roles_of_inputs() -> None:
    assert input_role(OpKind.TRANSPOSE_CONV, 2) is Role.IFM
    assert input_role(OpKind.EXPAND_DIMS, 1) is Role.IFM
    assert input_role(OpKind.CONCATENATION, 7) is Role.IFM
    lstm = INPUT_ROLES[OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM]
    assert len(lstm) == 24
    assert [i for i, role in enumerate(lstm) if role is Role.STATE] == [18, 19]
    assert spec(OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM).category is Category.RECURRENT
