"""Properties of every scheduled graph: of the corpus, of small models, on every family and host."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from pathlib import Path

import pytest

from npusched.graph.build import build_graph
from npusched.graph.opgraph import OpGraph, SourcePlacement
from npusched.graph.types import NOT_STORED, Access, Layout, Placement, ScheduledOp, Shape4
from npusched.hardware.target import Family
from npusched.ir import Model
from npusched.tflite import is_vela_compiled, load_model
from tests.conftest import corpus_models
from tests.graph.graph_models import MODELS, model_of
from tests.graph.random_models import random_model

FAMILIES = (*Family, None)
CORPUS = corpus_models()


def _graphs(model: Model) -> list[OpGraph]:
    return [
        build_graph(model, family, subgraph=subgraph.index)
        for family in FAMILIES
        for subgraph in model.subgraphs
    ]


@pytest.fixture(params=MODELS)
def small(request: pytest.FixtureRequest) -> Model:
    """Each small model in turn."""
    return model_of(MODELS[request.param], request.param)


@pytest.fixture(params=CORPUS, ids=[path.stem for path in CORPUS])
def large(request: pytest.FixtureRequest) -> Model:
    """Each corpus model in turn."""
    path: Path = request.param
    return load_model(path)


def test_small_models(small: Model) -> None:
    for graph in _graphs(small):
        check_graph(graph, small)


def test_corpus_models(large: Model) -> None:
    if is_vela_compiled(large):
        pytest.skip("its scratch tensors have no writer")
    for graph in _graphs(large):
        check_graph(graph, large)


@pytest.mark.parametrize("seed", range(100))
def test_random_models(seed: int) -> None:
    model = random_model(seed)
    if model is not None:
        for graph in _graphs(model):
            check_graph(graph, model)


def check_graph(graph: OpGraph, model: Model) -> None:
    """Assert everything that holds for any graph."""
    _check_order(graph)
    _check_accesses(graph)
    _check_sources(graph, model)
    _check_partitions(graph)
    _check_kernels(graph)


def _check_order(graph: OpGraph) -> None:
    assert [op.id for op in graph.ops] == list(range(len(graph.ops)))
    known = {
        fm.id
        for fm in graph.feature_maps.values()
        if fm.is_graph_input or fm.is_constant or fm.is_persistent
    }
    for op in graph.ops:
        for access in op.reads:
            assert access.tensor in known, f"op {op.id} reads {access.tensor} before it is written"
        known.update(access.tensor for access in op.writes)
    assert set(graph.outputs) <= known


def _check_accesses(graph: OpGraph) -> None:
    used = {*graph.inputs, *graph.outputs}
    for op in graph.ops:
        for access in (*op.reads, *op.writes):
            used.add(access.tensor)
            fm = graph.feature_maps[access.tensor]
            seen, stored = prod(access.view) * access.dtype.bits, prod(fm.shape) * fm.dtype.bits
            assert seen == stored or (fm.is_constant and seen < stored), "fills share a constant"
            _check_inside(access, (0, 0, 0, 0))
        if op.scratch is not None:
            used.add(op.scratch.tensor)
        if op.pieces is not None:
            last = tuple(size - 1 for size in op.pieces.grid)
            moved = [*zip(op.ifms, op.pieces.ifm_steps, strict=True), (op.ofm, op.pieces.ofm_step)]
            for access, step in moved:
                n, h, w, c = (a * b for a, b in zip(last, step, strict=True))
                _check_inside(access, (n, h, w, c))
        assert all((access.tensor == NOT_STORED) == bool(op.sub_ops) for access in op.ofms), (
            "only the result of the last member is stored"
        )
    assert set(graph.feature_maps) == used
    for fm in graph.feature_maps.values():
        if fm.is_graph_input or fm.is_graph_output or fm.is_constant or graph.family is None:
            assert fm.layout is Layout.NHWC
        assert fm.is_constant == (fm.data is not None)


def _check_inside(access: Access, moved: Shape4) -> None:
    steps = (1, access.step_h, access.step_w, 1)
    leading = prod(access.view[:1])
    for axis, (at, by, size, step, limit) in enumerate(
        zip(access.offset, moved, access.shape, steps, access.view, strict=True)
    ):
        room = leading if axis == 0 else limit
        covered = size if step > 1 else at + by + size
        assert covered <= room, f"{access} leaves its view"


def _check_sources(graph: OpGraph, model: Model) -> None:
    source = model.subgraphs[graph.subgraph]
    assert [found.ref for found in graph.sources] == [
        (graph.subgraph, op.index) for op in source.ops
    ]
    named: dict[int, list[int]] = {op.index: [] for op in source.ops}
    for op in graph.ops:
        assert op.source_ops
        refs = [*op.source_ops, *(ref for sub in op.sub_ops for ref in sub.source_ops)]
        for subgraph, index in dict.fromkeys(refs):
            assert subgraph == graph.subgraph
            named[index].append(op.id)
    for found in graph.sources:
        assert list(found.scheduled_ops) == named[found.ref[1]]
        placements = {graph.ops[number].placement for number in found.scheduled_ops}
        match found.placement:
            case SourcePlacement.NPU:
                assert placements == {Placement.NPU}
            case SourcePlacement.CPU:
                assert Placement.CPU in placements
            case SourcePlacement.VIEW:
                assert not found.cpu_reasons


def _check_partitions(graph: OpGraph) -> None:
    numbers = [n for part in graph.partitions for n in range(part.first, part.end)]
    assert numbers == list(range(len(graph.ops)))
    for before, after in pairwise(graph.partitions):
        assert before.placement is not after.placement
    for off in graph.hand_offs:
        assert off.writer is not off.reader
        assert graph.feature_maps[off.tensor].layout is Layout.NHWC
    assert [n for chain in graph.chains for n in chain.ops] == list(range(len(graph.ops)))


def _check_kernels(graph: OpGraph) -> None:
    before: ScheduledOp | None = None
    for op in graph.ops:
        linked = before is not None and not before.write_ofm
        assert op.keep_accumulators == linked
        before = op
        if op.placement is Placement.CPU:
            assert op.host_work is not None
            continue
        assert len(op.ofms) == 1
        assert op.count >= 1
        if op.weights is not None:
            assert op.weights.values is None or op.weights.values.shape == op.weights.shape
            for rescale in (op.ofm_rescale,):
                if rescale is not None and len(rescale.multipliers) > 1:
                    assert len(rescale.multipliers) == op.weights.shape[0]
        for rescale in (op.ofm_rescale, *op.ifm_rescales):
            if rescale is not None:
                assert len(rescale.multipliers) == len(rescale.shifts)
