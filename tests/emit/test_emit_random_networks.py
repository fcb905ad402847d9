"""Random networks: Vela's schedule again word for word, and a random plan exact and clean."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.emit_plans import random_plan, with_random_blocks
from npusched.emission.identity import compare_streams, emit_identity
from npusched.errors import EmitError, VelaError
from npusched.sim.proof import Verdict, prove_compiled
from tests.emit.emitting_kit import ready_from
from tests.sim.network_strategies import WINDOWED, networks

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

CONFIGS = st.sampled_from(("ethos-u55-32", "ethos-u55-128", "ethos-u65-256", "ethos-u65-512"))

BOUNDED = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@BOUNDED
@given(networks(steps=WINDOWED, count=(2, 4), height=(8, 32)), CONFIGS, st.integers(0, 999))
def test_identity_and_a_random_plan(content: bytes, config: str, seed: int) -> None:
    try:
        made = ready_from(content, config)
    except (EmitError, VelaError):
        assume(False)  # nothing for the NPU, or not even Vela compiles it
    emitted = emit_identity(made.template)
    found = compare_streams(made.template, emitted)
    assert (found.others, found.words) == ((), 0)
    assert all(ours < theirs for _, _, ours, theirs in found.block_dependencies)
    assert not made.gate(emitted)[1].failed

    rng = random.Random(seed)
    plan = random_plan(made.planner, rng)
    if seed % 2:
        plan = with_random_blocks(plan, made.template, dict(made.match.kernels), rng)
    written, gate = made.gate(made.emit(plan))
    assert not gate.failed
    assert prove_compiled(content, written, 1).verdict is Verdict.EQUAL
