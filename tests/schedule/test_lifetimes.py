"""Lifetimes that are not plain: LSTM states, scratch, and what the host touches."""

from __future__ import annotations

from npusched.graph.build import build_graph
from npusched.graph.opgraph import OpGraph
from npusched.hardware import load_target
from npusched.hardware.target import Family
from npusched.schedule.lifetimes import lifetimes, storage
from npusched.tflite import Builder, read_model

DEDICATED = load_target("ethos-u65-256", memory_mode="Dedicated_Sram_384KB")
SHARED = load_target("ethos-u55-128", memory_mode="Shared_Sram")


def _graph(builder: Builder, family: Family = Family.U65) -> OpGraph:
    return build_graph(read_model(builder.build(), "m"), family)


def test_lstm_states_are_stored_once() -> None:
    """Output and cell state of 6 cells: 6 B int8 and 12 B int16, kept from start to end."""
    builder = Builder("lstm")
    x = builder.input("x", (1, 5, 4), "int8")
    builder.output(builder.lstm(x, 6))
    graph = _graph(builder)
    lives = lifetimes(graph, DEDICATED)
    states = [lives[t] for t in lives if graph.feature_maps[t].is_persistent]
    persistent = [fm for fm in graph.feature_maps.values() if fm.is_persistent]
    assert len(states) == len(persistent) == 2
    assert {(s.first, s.last, s.homes) for s in states} == {(-1, len(graph.ops), ("dram",))}
    assert not storage(graph)


def test_scratch_lives_while_its_op_runs() -> None:
    builder = Builder("matmul")
    x = builder.input("x", (1, 1, 8, 16), "int8")
    y = builder.input("y", (1, 1, 16, 8), "int8")
    builder.output(builder.batch_matmul(x, y))
    graph = _graph(builder, Family.U55)
    lives = lifetimes(graph, SHARED)
    (owner,) = [op for op in graph.ops if op.scratch is not None]
    assert owner.scratch is not None
    life = lives[owner.scratch.tensor]
    assert (life.first, life.last) == (owner.id, owner.id)


def test_host_keeps_tensors_out_of_the_staging_memory() -> None:
    """conv, MEAN on the CPU (batch 2), FC: what the MEAN reads and writes stays in DRAM."""
    builder = Builder("host")
    x = builder.input("x", (2, 8, 8, 16), "int8")
    a = builder.conv2d(x, 16, kernel=(1, 1))
    b = builder.conv2d(a, 16, kernel=(1, 1))
    builder.output(builder.fully_connected(builder.mean(b, (1, 2)), 4))
    graph = _graph(builder)
    lives = lifetimes(graph, DEDICATED)
    by_name = {graph.feature_maps[t].name: life for t, life in lives.items()}
    free = [name for name, life in by_name.items() if life.homes == ("dram", "sram")]
    assert free, "the tensor between the two convolutions may lie in either memory"
    cpu = next(op for op in graph.ops if op.placement.value == "cpu")
    for access in (*cpu.reads, *cpu.writes):
        if not graph.feature_maps[access.tensor].is_constant:
            assert lives[access.tensor].homes == ("dram",)
