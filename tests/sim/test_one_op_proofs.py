"""Every kind of op is exact on every accelerator, and its stream has no hazard."""

from __future__ import annotations

import pytest

from npusched.sim.check import check_executable
from npusched.sim.proof import Verdict, prove_compiled
from npusched.sim.run import open_compiled
from tests.sim.sim_models import ACCELERATORS, MODELS, accelerator, compiled

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")


@pytest.mark.parametrize("config", ACCELERATORS)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_exact_and_clean(name: str, config: str) -> None:
    original = MODELS[name]()
    made = compiled(original, config)
    proof = prove_compiled(original, made, 4, seed=1)
    assert proof.verdict is Verdict.EQUAL, proof.difference
    assert proof.outputs_equal
    assert check_executable(open_compiled(made), accelerator(config)) == ((),)


def test_at_least_sixty_models() -> None:
    assert len(MODELS) >= 60
