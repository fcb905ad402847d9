"""Who runs what: partitions, calls of the NPU, hand-offs, and what became of every op."""

from __future__ import annotations

import networkx as nx
import pytest

from npusched.errors import ModelError
from npusched.graph.build import build_graph
from npusched.graph.opgraph import Partition, SourcePlacement
from npusched.graph.types import Placement
from npusched.hardware.target import Family
from npusched.ops import Reason
from npusched.tflite import read_model
from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref
from tests.graph.graph_models import IMAGE, MODELS, graph_of, lines, model_of, on, on_cpu

NPU, CPU = Placement.NPU, Placement.CPU


def _two_detours(b: Builder, x: Ref) -> Ref:
    """Two branches, each with a custom op in its middle."""
    y = b.conv2d(x, 8, 3)
    left = on_cpu(b, b.conv2d(y, 8, 1), "left")
    right = on_cpu(b, b.conv2d(y, 8, 3), "right")
    return b.add(b.conv2d(left, 8, 1), b.conv2d(right, 8, 1))


def test_partitions_and_hand_offs() -> None:
    graph = graph_of(MODELS["with_custom"], Family.U55)
    assert graph.partitions == (
        Partition(placement=NPU, first=0, end=1),
        Partition(placement=CPU, first=1, end=2),
        Partition(placement=NPU, first=2, end=3),
    )
    assert graph.npu_invocations == 2
    assert [(off.writer, off.reader, off.size_bytes) for off in graph.hand_offs] == [
        (NPU, CPU, 512),
        (CPU, NPU, 512),
    ]
    assert [graph.feature_maps[off.tensor].source for off in graph.hand_offs] == [(0, 3), (0, 4)]


def test_every_detour_is_a_call() -> None:
    graph = graph_of(on(IMAGE, _two_detours), Family.U85)
    assert [part.placement for part in graph.partitions] == [NPU, CPU, NPU, CPU, NPU]
    assert graph.npu_invocations == 3
    assert len(graph.hand_offs) == 4


def test_cpu_op_next_to_a_reshape_reads_the_reshaped_tensor() -> None:
    graph = graph_of(
        on(IMAGE, lambda b, x: on_cpu(b, b.reshape(b.conv2d(x, 8, 3), (1, -1)), "y")), Family.U55
    )
    assert lines(graph)[1] == "Cpu 1x1x1x512 -> 1x1x1x512"


def test_reasons_are_kept() -> None:
    graph = graph_of(MODELS["with_custom"], Family.U55)
    placements = [source.placement for source in graph.sources]
    assert placements == [SourcePlacement.NPU, SourcePlacement.CPU, SourcePlacement.NPU]
    (reason,) = graph.sources[1].cpu_reasons
    assert "Mystery" in reason.text
    assert not graph.sources[0].cpu_reasons


def test_given_placements_override_the_limits() -> None:
    model = model_of(MODELS["residual"])
    reason = Reason(limit="test", value="1", text="because", fix="do not")
    graph = build_graph(model, Family.U55, placements={1: (reason,)})
    assert [op.placement for op in graph.ops] == [NPU, CPU]
    assert graph.sources[1].cpu_reasons == (reason,)


@pytest.mark.parametrize("name", ["inception", "with_custom", "variable", "pad_filled", "batch"])
def test_host_runs_the_ops_of_the_file(name: str) -> None:
    model = model_of(MODELS[name])
    graph = build_graph(model, None)
    assert {op.placement for op in graph.ops} == {CPU}
    assert sorted(op.source_ops[0][1] for op in graph.ops) == list(
        range(len(model.subgraphs[0].ops))
    )
    assert graph.npu_invocations == 0
    assert not graph.hand_offs
    assert all(op.host_work is not None for op in graph.ops)


def test_what_became_of_ops() -> None:
    def placements(name: str) -> list[str]:
        return [source.placement.value for source in graph_of(MODELS[name], Family.U55).sources]

    assert placements("inception") == ["npu", "npu", "npu", "folded", "npu"]
    assert placements("reshape_view") == ["npu", "view", "npu"]
    assert placements("pad_swallowed") == ["folded", "npu"]
    assert placements("halves") == ["npu", "folded", "npu", "npu", "npu"]
    assert placements("dilated_by_batches") == ["folded", "npu", "folded"]


def test_folded_ops_name_the_kernels_that_took_over() -> None:
    graph = graph_of(MODELS["inception"], Family.U55)
    assert graph.sources[3].scheduled_ops == (0, 1, 2)
    assert [op.id for op in graph.scheduled_for((0, 3))] == [0, 1, 2]
    padded = graph_of(MODELS["pad_swallowed"], Family.U55)
    assert padded.ops[0].source_ops == ((0, 1), (0, 0))


def test_fused_members_keep_their_own_source() -> None:
    graph = graph_of(MODELS["residual"], Family.U85)
    (op,) = graph.ops
    assert op.source_ops[0] == (0, 0)
    assert [sub.source_ops[0] for sub in op.sub_ops] == [(0, 1), (0, 1)]
    assert [source.scheduled_ops for source in graph.sources] == [(0,), (0,)]


def test_unread_ops_are_dropped() -> None:
    def make(b: Builder, x: Ref) -> Ref:
        b.conv2d(x, 8, 3)
        return b.abs(x)

    graph = graph_of(on(IMAGE, make), Family.U55)
    assert lines(graph) == ["Abs 1x8x8x16 -> 1x8x8x16"]
    assert graph.sources[0].placement is SourcePlacement.FOLDED
    assert graph.sources[0].scheduled_ops == ()


def test_graph_inputs_and_outputs_are_in_the_order_of_the_file() -> None:
    def make(b: Builder) -> tuple[Ref, Ref]:
        x, y = b.input("x", IMAGE), b.input("y", IMAGE)
        return b.abs(y), b.neg(x)

    graph = graph_of(make, Family.U85)
    assert [graph.feature_maps[number].name for number in graph.inputs] == ["x", "y"]
    assert [graph.feature_maps[number].source for number in graph.outputs] == [(0, 2), (0, 3)]
    assert all(graph.feature_maps[number].is_graph_output for number in graph.outputs)


def test_other_subgraphs_can_be_built() -> None:
    b = Builder("two")
    x = b.input("x", IMAGE)
    b.output(b.abs(x))
    inner = b.subgraph("inner")
    z = inner.input("z", IMAGE)
    inner.output(inner.conv2d(z, 8, 3))
    model = read_model(b.build(), "two")
    graph = build_graph(model, Family.U55, subgraph=1)
    assert graph.subgraph == 1
    assert [op.source_ops for op in graph.ops] == [((1, 0),)]
    with pytest.raises(ModelError, match="no subgraph 2"):
        build_graph(model, Family.U55, subgraph=2)


def test_digraph_has_the_ops_and_their_tensors() -> None:
    graph = graph_of(on(IMAGE, _two_detours), Family.U55)
    digraph = graph.digraph
    assert set(digraph.nodes) == set(range(len(graph.ops)))
    assert nx.is_directed_acyclic_graph(digraph)
    for before, after, data in digraph.edges(data=True):
        assert before in graph.writers[data["tensor"]]
        assert after in graph.readers[data["tensor"]]
    assert digraph.nodes[0]["op"] is graph.ops[0]


def test_a_variable_is_one_map() -> None:
    graph = graph_of(MODELS["variable"], Family.U85)
    (state,) = (fm for fm in graph.feature_maps.values() if fm.is_persistent)
    assert graph.readers[state.id] == (0,)
    assert graph.writers[state.id] == (2,)


def test_lstm_states_are_one_map_each() -> None:
    graph = graph_of(on((1, 3, 8), lambda b, x: b.lstm(x, 4)), Family.U55)
    states = [fm for fm in graph.feature_maps.values() if fm.is_persistent]
    assert len(states) == 2
    assert all(len(graph.writers[state.id]) >= 3 for state in states)


def test_matrix_products_have_their_working_memory() -> None:
    make = on((1, 2, 30, 17), lambda b, x: b.batch_matmul(x, b.input("y", (1, 2, 17, 40))))
    product = next(op for op in graph_of(make, Family.U55).ops if op.kind == "MatMul")
    assert product.scratch is not None
    assert product.scratch.shape == (1, 2, 30, 18)
    assert product.scratch.dtype.bits == 32
    assert all(op.scratch is None for op in graph_of(make, Family.U85).ops)
