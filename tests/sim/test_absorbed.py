"""Why tensors never reach memory, and that those which should be there count as missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from npusched.graph.build import build_graph
from npusched.hardware.target import Family
from npusched.ir import Model
from npusched.sim.absorbed import Absorption, absorptions
from npusched.tflite import Builder, read_model


def found(build: Callable[[Builder], None]) -> dict[str, Absorption]:
    """Name of each absorbed tensor -> reason."""
    builder = Builder("model", seed=1)
    build(builder)
    model = read_model(builder.build(), "model")
    return reasons(model)


def reasons(model: Model) -> dict[str, Absorption]:
    """Same for a model, on U55."""
    subgraph = model.subgraphs[0]
    absorbed = absorptions(build_graph(model, Family.U55), subgraph)
    return {subgraph.tensors[index].name: reason for index, reason in absorbed.items()}


def test_fused_activation() -> None:
    def build(b: Builder) -> None:
        x = b.conv2d(b.input("x", (1, 8, 8, 8)), 8, name="conv")
        b.output(b.conv2d(b.logistic(x, name="table"), 8, name="last"))

    assert found(build) == {"conv": Absorption.ACTIVATION}


def test_an_activation_behind_a_view_is_still_fused() -> None:
    def build(b: Builder) -> None:
        x = b.fully_connected(b.input("x", (1, 64)), 16, name="fc")
        b.output(b.logistic(b.reshape(x, (1, 1, 16), name="view"), name="last"))

    assert found(build)["fc"] is Absorption.ACTIVATION


def test_an_activation_of_two_readers_is_not_fused() -> None:
    """Both readers need the values: they are in memory."""

    def build(b: Builder) -> None:
        x = b.conv2d(b.input("x", (1, 8, 8, 8)), 8, name="conv")
        b.output(b.logistic(x, name="table"), b.depthwise_conv2d(x, 3, name="other"))

    assert found(build) == {}


def test_pad_in_the_kernel() -> None:
    def build(b: Builder) -> None:
        x = b.pad(b.input("x", (1, 8, 8, 8)), ((0, 0), (1, 1), (1, 1), (0, 0)), name="pad")
        b.output(b.conv2d(x, 8, 3, padding="VALID", name="last"))

    assert found(build) == {"pad": Absorption.PAD}


def test_slice_in_place() -> None:
    def build(b: Builder) -> None:
        x = b.slice(b.input("x", (1, 8, 8, 8)), (0, 2, 0, 0), (1, 4, 8, 8), name="slice")
        b.output(b.conv2d(x, 8, name="last"))

    assert found(build) == {"slice": Absorption.SLICE}


def test_what_nobody_needs() -> None:
    def build(b: Builder) -> None:
        x = b.conv2d(b.input("x", (1, 8, 8, 8)), 8, name="used")
        b.conv2d(x, 4, name="unread")
        b.output(x)

    assert found(build) == {"unread": Absorption.UNREAD}


def test_tensors_in_memory_have_no_reason() -> None:
    def build(b: Builder) -> None:
        x = b.conv2d(b.input("x", (1, 8, 8, 8)), 8, name="first")
        y = b.depthwise_conv2d(x, 3, name="branch")
        b.output(b.softmax(b.fully_connected(b.mean(b.add(x, y, name="sum")), 10)))

    assert found(build) == {}


def test_a_damaged_tensor_is_missing_not_absorbed() -> None:
    """Nothing of the first layer is where it should be; the second follows from it."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    from npusched.sim.proof import Verdict, prove_compiled
    from tests.sim.sim_models import compiled
    from tests.sim.test_proof import damaged

    b = Builder("two", seed=3)
    x = b.conv2d(b.input("x", (1, 8, 8, 8)), 8, name="first", activation="RELU")
    b.output(b.conv2d(x, 4, 3, name="second"))
    original = b.build()
    made = compiled(original, "ethos-u55-128")
    good = prove_compiled(original, made, 2).intermediates
    assert (good.covered, good.tensors, good.missing, good.reasons) == (2, 2, (), {})
    proof = prove_compiled(original, damaged(made, 0), 2)
    assert proof.verdict is Verdict.DIFFERENT
    assert proof.intermediates.missing == ("first", "second")
    assert proof.intermediates.coverage == 0.0
