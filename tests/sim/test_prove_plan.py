"""Proofs of plans: CPU ops between NPU ops, broken plans, differences by place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.plan_damage import moved, offset_of, with_rows
from npusched.api.options import PlanOptions
from npusched.api.planning import graph_of, make_plan, read
from npusched.demos import demo
from npusched.errors import SimError
from npusched.graph.reorder import reordered
from npusched.graph.types import Placement, Weights
from npusched.hardware import load_target
from npusched.schedule import Objective, Plan
from npusched.schedule.types import BufferKind
from npusched.sim import prove_plan as proving
from npusched.sim.execute_plan import PlanExecutor
from npusched.sim.host_ops import HostOps
from npusched.sim.interpret import Interpreter
from npusched.sim.proof import Verdict
from npusched.sim.prove_plan import PlanProof, prove_plan
from npusched.sim.reference import random_inputs
from npusched.tflite import Builder
from npusched.vela.candidates import candidates_of
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model
from tests.sim.plan_kit import plans_for
from tests.sim.sim_models import corpus_model
from tests.sim.test_execute_plan import pyramid

pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")

TARGET = "ethos-u55-128"
ALONE = PlanOptions(use_vela=False)


def mixed() -> bytes:
    """NPU, CPU, NPU, CPU: floats between quantised halves, and a second output of the first."""
    b = Builder("mixed", seed=5)
    x = b.conv2d(b.input("x", (1, 9, 8, 3)), 8, (3, 3), activation="RELU")
    y = b.quantize(b.dequantize(b.depthwise_conv2d(x, 3)))
    z = b.add(b.conv2d(y, 8, (3, 3)), x)
    b.output(b.dequantize(z), b.max_pool2d(x))
    return b.build()


def proved(content: bytes, plan: Plan | None = None, *, config: str = TARGET) -> PlanProof:
    target = load_target(config)
    planned = make_plan(content, name="m", target=target, options=ALONE)
    model, plan = planned.ready.model, plan or planned.plan
    graph = reordered(planned.ready.graph, plan.order)
    inputs = random_inputs(model.subgraphs[0], 3, seed=1)
    return prove_plan(model, graph, plan, inputs)


@pytest.mark.parametrize("config", [TARGET, "ethos-u65-512", "cortex-m55"])
def test_host_ops_between_npu_ops(config: str) -> None:
    """Everything the plan stores equals LiteRT, floats too."""
    proof = proved(mixed(), config=config)
    assert proof.verdict is Verdict.EQUAL
    assert proof.interpreter_equal
    assert proof.compared == proof.equal >= 7
    assert [output.differing for output in proof.outputs] == [0, 0]
    kinds = {op.placement for op in graph_of(read(mixed(), "m"), load_target(config)).ops}
    assert kinds == ({Placement.CPU} if config == "cortex-m55" else set(Placement))


def test_all_three_budgets() -> None:
    content = mixed()
    for plan in plans_for(content, TARGET):
        assert proved(content, plan).verdict is Verdict.EQUAL


@pytest.mark.parametrize("name", ["tinyengine_vww", "mww_okay_nabu_v2"])
def test_corpus_models_with_host_ops(corpus_dir: Path, name: str) -> None:
    """Quantisation and means on the host; variables that every run starts afresh."""
    proof = proved(corpus_model(corpus_dir, name))
    assert proof.verdict is Verdict.EQUAL
    assert proof.compared == proof.equal > 25


def test_inputs_that_do_not_fit_together_come_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = proved(mixed())
    monkeypatch.setattr(proving, "BATCH_BYTES", 1)
    assert proved(mixed()) == whole


def test_a_host_op_reads_what_the_plan_holds() -> None:
    """Its input in the place of another map that is needed: refused, and wrong if unchecked."""
    content = mixed()
    planned = make_plan(content, name="m", target=load_target(TARGET), options=ALONE)
    graph, plan = planned.ready.graph, planned.plan
    cpu = next(op for op in graph.ops if op.placement is Placement.CPU)
    buffers = {b.tensor: k for k, b in enumerate(plan.buffers) if b.kind is BufferKind.FEATURE_MAP}
    mine = buffers[cpu.ifms[0].tensor]
    other = next(
        k
        for tensor, k in buffers.items()
        if k != mine
        and plan.buffers[k].first_step < plan.buffers[mine].first_step
        and plan.buffers[k].end_step > plan.buffers[mine].end_step
    )
    broken = moved(plan, mine, offset_of(plan, other))
    proof = proved(content, broken)
    assert proof.verdict is Verdict.DIFFERENT
    assert "addresses" in proof.fault
    model = planned.ready.model
    executor = PlanExecutor(graph, broken, is_checked=False, host=HostOps(model, graph))
    interpreter = Interpreter(graph, host=HostOps(model, graph))
    inputs = [values[0] for values in random_inputs(model.subgraphs[0], 1, 0).values()]
    a, b = executor.run(inputs).outputs, interpreter.run(inputs).outputs
    assert any((x != y).any() for x, y in zip(a, b, strict=True))


def test_a_row_fewer_is_a_fault() -> None:
    content = pyramid()
    plan = plans_for(content, TARGET)[2]
    rolling = [k for k, b in enumerate(plan.buffers) if b.kind is BufferKind.ROLLING]
    assert rolling
    assert proved(content, plan).rolled == len(rolling)
    proof = proved(content, with_rows(plan, rolling[0], -1))
    assert proof.verdict is Verdict.DIFFERENT
    assert plan.buffers[rolling[0]].name in proof.fault


def test_the_first_difference_has_a_place() -> None:
    """One weight of the second layer changed behind LiteRT's back: op, place and values."""
    b = Builder("two", seed=1)
    x = b.conv2d(b.input("x", (1, 6, 5, 4)), 6, (3, 3))
    b.output(b.conv2d(b.conv2d(x, 5, (1, 1)), 4, (1, 1)))
    content = b.build()
    planned = make_plan(content, name="m", target=load_target(TARGET), options=ALONE)
    graph, model = planned.ready.graph, planned.ready.model
    weights = graph.ops[1].weights
    assert isinstance(weights, Weights)
    assert weights.values is not None
    changed = weights.values.copy()
    changed[3, 0, 0, 2] = 127 if changed[3, 0, 0, 2] < 0 else -127
    object.__setattr__(weights, "values", changed)
    inputs = random_inputs(model.subgraphs[0], 2, 0)
    proof = prove_plan(model, graph, planned.plan, inputs)
    found = proof.difference
    assert found is not None
    assert (found.op, found.source_op, found.kind, found.against) == (1, 1, "CONV_2D", "LiteRT")
    assert found.channel == 3
    assert found.got != found.expected
    assert 0 < found.differing <= found.total == 2 * 6 * 5 * 5
    assert proof.verdict is Verdict.DIFFERENT
    assert proof.interpreter_equal


def test_host_ops_need_a_host() -> None:
    content = mixed()
    planned = make_plan(content, name="m", target=load_target(TARGET), options=ALONE)
    with pytest.raises(SimError, match="it runs on the CPU"):
        PlanExecutor(planned.ready.graph, planned.plan)


def test_signatures_and_input_shapes(corpus_dir: Path) -> None:
    """The subgraph of a signature is compared with LiteRT's run of it; dynamic inputs resized."""
    content = corpus_model(corpus_dir, "aieq_two_signatures_a8w8")
    target = load_target(TARGET)
    keys = [each.key for each in read(content, "m").signatures]
    subgraphs = set()
    for key in keys:
        planned = make_plan(content, name="m", target=target, options=replace(ALONE, signature=key))
        model, graph = planned.ready.model, planned.ready.graph
        subgraphs.add(graph.subgraph)
        inputs = random_inputs(model.subgraphs[graph.subgraph], 2, 0)
        proof = prove_plan(model, graph, planned.plan, inputs)
        assert proof.verdict is Verdict.EQUAL
        assert proof.compared == proof.equal > 0
    assert len(subgraphs) == len(keys) == 2


def test_a_dynamic_batch(corpus_dir: Path) -> None:
    content = (corpus_dir / "cases" / "dynamic_batch.tflite").read_bytes()
    graph = read(content, "m").subgraphs[0]
    shape = graph.tensors[graph.inputs[0]].shape
    name = graph.tensors[graph.inputs[0]].name
    planned = make_plan(
        content,
        name="m",
        target=load_target(TARGET),
        options=replace(ALONE, input_shapes={name: (3, *shape[1:])}),
    )
    model = planned.ready.model
    inputs = random_inputs(model.subgraphs[0], 2, 0)
    assert next(iter(inputs.values())).shape[:2] == (2, 3)
    proof = prove_plan(model, planned.ready.graph, planned.plan, inputs)
    assert proof.verdict is Verdict.EQUAL
    assert np.prod([output.values for output in proof.outputs]) > 0


@pytest.mark.parametrize("config", [TARGET, "ethos-u65-256"])
@pytest.mark.parametrize("arena_bytes", [None, 16384])
def test_vela_schedules_run_through_their_buffers(config: str, arena_bytes: int | None) -> None:
    """Vela's own schedules compete with ours: they are plans, and executed like ours."""
    target = load_target(config)
    model = read(demo("mobilenet"), "m")
    graph = graph_of(model, target)
    options = VelaOptions(arena_cache_size_bytes=arena_bytes)
    result = compile_model(model.content, target, options, cache=None)
    (candidate,) = candidates_of([result], model, graph, target, Objective()).found
    assert any(len(segment.ops) > 1 for segment in candidate.plan.segments) == bool(arena_bytes)
    proof = prove_plan(model, graph, candidate.plan, random_inputs(model.subgraphs[0], 2, seed=3))
    assert proof.verdict is Verdict.EQUAL
    for number, buffer in enumerate(candidate.plan.buffers):
        if buffer.kind is BufferKind.ROLLING and buffer.rows < 3:
            broken = with_rows(candidate.plan, number, -1)
            proof = prove_plan(model, graph, broken, random_inputs(model.subgraphs[0], 1, seed=3))
            assert proof.verdict is Verdict.DIFFERENT
