"""Graphs, plans and inputs for the tests that execute them."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from functools import lru_cache

from npusched.api.planning import graph_of, read
from npusched.cost.types import BlockConfig, WeightBytes
from npusched.graph.opgraph import OpGraph
from npusched.graph.types import Placement, ScheduledOp
from npusched.hardware import load_target
from npusched.schedule import Plan, Planner
from npusched.sim.interpret import Interpreter, Values
from npusched.sim.kernels.arrays import Array
from npusched.sim.reference import random_inputs


@lru_cache(maxsize=64)
def graph_for(content: bytes, config: str) -> OpGraph:
    """The scheduled graph of a model."""
    return graph_of(read(content, "model"), load_target(config))


def runs_on_npu(graph: OpGraph) -> bool:
    """True if no op runs on the CPU."""
    return all(op.placement is Placement.NPU for op in graph.ops)


def planner_for(content: bytes, config: str) -> Planner:
    """A planner with rough weight sizes (no compilation by Vela)."""
    return Planner.of(graph_for(content, config), load_target(config), sizes)


@lru_cache(maxsize=64)
def plans_for(content: bytes, config: str) -> tuple[Plan, Plan, Plan]:
    """Plans without a budget, for the smallest one, and half-way between their peaks."""
    planner = planner_for(content, config)
    largest, smallest = planner.plan(None), planner.smallest_budget_bytes()
    middle = planner.plan((largest.sram_peak_bytes + smallest) // 2)
    return largest, middle, planner.plan(smallest)


def sizes(op: ScheduledOp, block: BlockConfig) -> WeightBytes:
    """Any sizes do."""
    assert op.weights is not None
    assert block.ofm_block.c > 0
    return WeightBytes(weights=op.weights.elements // 16 * 16, scales=10 * op.weights.shape[0])


def inputs_for(content: bytes, seed: int, count: int = 2) -> list[list[Array]]:
    """Random inputs, one list per run, in the order of the file."""
    subgraph = read(content, "model").subgraphs[0]
    drawn = random_inputs(subgraph, count, seed)
    return [[drawn[index][k] for index in subgraph.inputs] for k in range(count)]


@lru_cache(maxsize=64)
def interpreted(content: bytes, config: str, seed: int = 0) -> tuple[list[Array], Values]:
    """One input, and what the interpreter makes of it."""
    (inputs,) = inputs_for(content, seed, 1)
    return inputs, Interpreter(graph_for(content, config)).run(inputs)
