"""Every kind of op is exact on every accelerator, and its stream has no hazard."""

from __future__ import annotations

import pytest

from npusched.errors import NpuschedError
from npusched.sim.check import check_executable
from npusched.sim.proof import Verdict, prove_compiled
from npusched.sim.run import open_compiled
from tests.sim.one_op_models import MORE, REFUSED, UNEQUAL
from tests.sim.sim_models import ACCELERATORS, MODELS, accelerator, compiled

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

NETWORKS = {"network", "tall"}
"""Of ``MODELS``, those with more than one op."""

ALL = {**MODELS, **MORE}


@pytest.mark.parametrize("config", ACCELERATORS)
@pytest.mark.parametrize("name", sorted(ALL))
def test_exact_and_clean(name: str, config: str) -> None:
    original = ALL[name]()
    made = compiled(original, config)
    proof = prove_compiled(original, made, 4, seed=1)
    assert proof.verdict is Verdict.EQUAL, proof.difference
    assert proof.outputs_equal
    assert check_executable(open_compiled(made), accelerator(config)) == ((),)


@pytest.mark.parametrize("name", sorted(UNEQUAL))
def test_known_differences_are_named(name: str) -> None:
    """If one of these becomes equal, its exception is out of date."""
    make, exception = UNEQUAL[name]
    original = make()
    proof = prove_compiled(original, compiled(original, "ethos-u55-128"), 4, seed=1)
    assert proof.verdict is Verdict.DIFFERENT
    assert [text.startswith(exception) for text in proof.exceptions] == [True]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refusals_say_why(name: str) -> None:
    make, why = REFUSED[name]
    original = make()
    with pytest.raises(NpuschedError, match=f"(?s){why}"):
        prove_compiled(original, compiled(original, "ethos-u55-128"), 4, seed=1)


def test_at_least_sixty_models() -> None:
    """Distinct files with one op each, on four accelerators."""
    files = {make() for name, make in ALL.items() if name not in NETWORKS}
    assert len(files) >= 130
    assert len(ACCELERATORS) == 4
    assert not ALL.keys() & (UNEQUAL.keys() | REFUSED.keys())
