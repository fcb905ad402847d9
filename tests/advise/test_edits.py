"""Edits that promise equal results keep them, as LiteRT's reference kernels see it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npusched.advise.fallbacks import REMEDIES
from npusched.errors import ModelError
from npusched.graph.edits import (
    activations,
    channels,
    floats,
    legal,
    norms,
    pools,
    prune,
    softmax,
    subpixel,
    transposes,
)
from npusched.hardware.target import Family
from npusched.ir import Model, OpKind
from npusched.ops import place
from npusched.tflite import Builder, Ref, read_model
from npusched.tflite.decode import decode
from npusched.tflite.editor import Editor
from npusched.tflite.records import Record
from tests.advise import networks as nets

Make = Callable[[Builder, Ref], Ref]
Edit = Callable[[Model], bytes | None]


def model_of(content: bytes) -> Model:
    return read_model(content, "net")


def net(make: Make, shape: tuple[int, ...] = (1, 9, 11, 6)) -> Model:
    return model_of(nets.built(make, shape))


def first(kind: OpKind, model: Model) -> int:
    return next(op.index for op in model.subgraphs[0].ops if op.kind is kind)


def on_cpu(content: bytes) -> int:
    """Ops that the CPU runs on a U55."""
    return sum(1 for reasons in place(model_of(content), Family.U55).values() if reasons)


def distance(model: Model, content: bytes | None, inputs: int = 2) -> float:
    """Largest difference of the results of both files, in steps."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    from npusched.sim.deviation import compare_models

    assert content is not None
    return compare_models(model.content, content, model.subgraphs[0], inputs, 0).largest


def all_channels(model: Model, multiple: int = 16) -> bytes:
    groups = channels.channel_groups(model.subgraphs[0])
    wanted = {n: -(-g.channels // multiple) * multiple for n, g in enumerate(groups)}
    return channels.resize(model, 0, wanted)


def mixed(b: Builder, x: Ref) -> Ref:
    """Channels through nearly everything that keeps them apart."""
    y = b.conv2d(x, 17, activation="RELU")
    y = b.depthwise_conv2d(y, 3)
    y = b.add(y, b.conv2d(x, 17))
    y = b.mul(b.batch_norm(y), b.logistic(y))
    y = b.pad(b.max_pool2d(y, 2), [(0, 0), (1, 0), (0, 1), (0, 0)])
    y = b.concat([y, y], 1, scale=y.scale, zero_point=y.zero_point)
    z = b.fully_connected(b.reshape(y, (1, -1)), 21)
    return b.fully_connected(z, 16)


def test_added_channels_change_nothing() -> None:
    model = net(mixed)
    groups = channels.channel_groups(model.subgraphs[0])
    assert [group.channels for group in groups] == [17, 21]
    after = model_of(all_channels(model))
    assert {t.shape[-1] for t in after.subgraphs[0].tensors if len(t.shape) == 4} >= {32}
    assert distance(model, all_channels(model)) == 0


def test_uint8_weights_and_transpose_convolutions_can_be_widened() -> None:
    def make(b: Builder, x: Ref) -> Ref:
        y = b.transpose_conv(b.conv2d(x, 5), 7)
        return b.conv2d(y, 3)

    b = Builder("net")
    b.output(make(b, b.input("x", (1, 6, 6, 4), "int8")))
    model = model_of(b.build())
    assert distance(model, all_channels(model)) == 0


def test_removed_channels_are_the_last() -> None:
    model = model_of(nets.stack(17))
    after = model_of(channels.resize(model, 0, {0: 16})).subgraphs[0]
    before = model.subgraphs[0]
    first_op, second = after.ops
    kept, old = (g.tensors[first_op.inputs[1]].data for g in (after, before))
    assert kept is not None
    assert old is not None
    assert np.array_equal(kept, old[:16])
    read, was = (g.tensors[second.inputs[1]].data for g in (after, before))
    assert read is not None
    assert was is not None
    assert np.array_equal(read, was[..., :16])


@pytest.mark.parametrize(
    "make",
    [
        lambda b, x: b.conv2d(x, 17),  # a graph output
        lambda b, x: b.conv2d(b.softmax(b.conv2d(x, 17)), 16),
        lambda b, x: b.conv2d(b.concat([b.conv2d(x, 17), x], 3), 16),
        lambda b, x: b.conv2d(b.mean(b.conv2d(x, 17), (3,), keep_dims=True), 16),
        lambda b, x: b.reshape(b.conv2d(x, 17), (1, 17, 99)),
    ],
)
def test_channels_that_others_rely_on_stay(make: Make) -> None:
    groups = channels.channel_groups(net(make).subgraphs[0])
    assert 17 not in [group.channels for group in groups]


EQUAL: list[tuple[str, Make, tuple[int, ...], Edit, bool]] = [
    (
        "padding of its own",
        lambda b, x: b.conv2d(x, 8, 5, stride=4),
        (1, 33, 30, 6),
        lambda m: legal.padded_apart(m, 0, 0),
        True,
    ),
    (
        "a stride in two",
        lambda b, x: b.depthwise_conv2d(x, 5, stride=4),
        (1, 33, 30, 6),
        lambda m: legal.strided_in_two(m, 0, 0),
        True,
    ),
    (
        "a stride in two, of 6 and 3",
        lambda b, x: b.conv2d(x, 4, 3, stride=(6, 3), padding="VALID"),
        (1, 33, 30, 6),
        lambda m: legal.strided_in_two(m, 0, 0),
        False,
    ),
    (
        "a padded maximum",
        lambda b, x: b.max_pool2d(x, 5, stride=5, padding="SAME"),
        (1, 33, 33, 6),
        lambda m: legal.padded_pool_apart(m, 0, 0),
        True,
    ),
    (
        "a stride of 3 by phases",
        lambda b, x: b.transpose_conv(x, 6, 5, stride=3),
        (1, 5, 7, 4),
        lambda m: subpixel.subpixel_transpose_conv(m, 0, 0),
        True,
    ),
    (
        "a stride of 4 by phases",
        lambda b, x: b.transpose_conv(x, 6, 7, stride=4),
        (1, 5, 7, 4),
        lambda m: subpixel.subpixel_transpose_conv(m, 0, 0),
        True,
    ),
    (
        "slices backwards",
        lambda b, x: b.strided_slice(
            x, (0, 8, 0, 0), (1, 0, 11, 6), (1, -2, 3, 1), begin_mask=2, end_mask=2
        ),
        (1, 9, 11, 6),
        lambda m: legal.slices_of_reversed(m, 0, 0),
        True,
    ),
    (
        "a mean before a transpose",
        lambda b, x: b.mean(b.transpose(x, (0, 3, 1, 2)), (2, 3)),
        (1, 9, 11, 6),
        lambda m: legal.mean_before_transpose(m, 0, 1),
        False,
    ),
    (
        "a maximum in a chain",
        lambda b, x: b.max_pool2d(x, (300, 1), stride=(2, 1)),
        (1, 600, 2, 6),
        lambda m: pools.pools_in_two(m, 0, 0)[0][1],
        True,
    ),
    (
        "a softmax in parts",
        lambda b, x: b.softmax(x),
        (1, 9, 11, 6),
        lambda m: softmax.softmax_in_pieces(m, 0, 0, 4),
        False,
    ),
    (
        "an island",
        lambda b, x: b.transpose(
            b.concat(
                [
                    b.pad(
                        b.add(
                            b.transpose(x, (0, 3, 1, 2)),
                            np.arange(6.0).reshape(1, 6, 1, 1) / 6,
                        ),
                        [(0, 0), (0, 0), (2, 1), (0, 3)],
                    )
                ]
                * 2,
                2,
            ),
            (0, 2, 3, 1),
        ),
        (1, 9, 11, 6),
        lambda m: transposes.without_transposes(
            m, 0, transposes.transpose_islands(m.subgraphs[0])[0]
        ),
        False,
    ),
]


@pytest.mark.parametrize(
    ("make", "shape", "edit", "moves"), [case[1:] for case in EQUAL], ids=[c[0] for c in EQUAL]
)
def test_results_stay_the_same(make: Make, shape: tuple[int, ...], edit: Edit, moves: bool) -> None:
    model = net(make, shape)
    content = edit(model)
    assert content is not None
    if moves:
        assert on_cpu(model.content) == 1
        assert on_cpu(content) == 0
    assert distance(model, content) == 0


def test_an_island_is_left_where_someone_else_reads_it() -> None:
    def make(b: Builder, x: Ref) -> Ref:
        turned = b.relu(b.transpose(x, (0, 3, 1, 2)))
        b.output(turned)
        return b.transpose(turned, (0, 2, 3, 1))

    assert transposes.transpose_islands(net(make).subgraphs[0]) == []


def test_an_average_in_two_steps_moves_by_a_step_at_most() -> None:
    model = net(lambda b, x: b.avg_pool2d(x, (512, 4), stride=(512, 4)), (1, 512, 4, 6))
    found = pools.pools_in_two(model, 0, 0)
    assert len(found) == 3
    for _, content in found:
        assert on_cpu(content) == 0
        assert distance(model, content) <= 1


@pytest.mark.parametrize("batch", [1, 2])
def test_a_mean_as_a_pool_moves_by_steps(batch: int) -> None:
    model = net(lambda b, x: b.mean(x), (batch, 16, 16, 8))
    content = pools.mean_as_pool(model, 0, 0)
    assert content is not None
    assert on_cpu(content) == 0
    assert distance(model, content) <= 2


def test_two_means_behind_a_transpose_are_one_before_it() -> None:
    def make(b: Builder, x: Ref) -> Ref:
        y = b.transpose(x, (0, 3, 1, 2))
        for axis in (3, 2):
            y = b.reduce(OpKind.MEAN, y, (axis,), scale=x.scale, zero_point=x.zero_point)
        return y

    model = net(make, (1, 3, 3, 16))
    content = legal.mean_before_transpose(model, 0, 1)
    assert content is not None
    assert len(model_of(content).subgraphs[0].ops) == 1
    assert on_cpu(model.content) == 1
    assert on_cpu(content) == 0
    assert distance(model, content) <= 2


def test_edits_look_at_the_kind_first() -> None:
    """Ops without inputs and outputs, and those of other kinds, are no place for an edit."""
    b = Builder("net")
    handle = b.var_handle("state")
    b.assign_variable(handle, b.const([1], "int8", scale=0.1))
    x = b.input("x", (1, 4, 4, 8))
    b.output(b.relu(x))
    model = model_of(b.build())
    for op in model.subgraphs[0].ops:
        assert pools.pools_in_two(model, 0, op.index) == []
        for _, edit, _ in REMEDIES:
            assert edit(model, 0, op.index) is None


def test_a_global_pool_as_a_mean() -> None:
    model = net(lambda b, x: b.avg_pool2d(x, (9, 11)))
    assert distance(model, pools.pool_as_mean(model, 0, 0)) <= 1


def test_operands_of_a_maximum_are_requantised() -> None:
    def make(b: Builder, x: Ref) -> Ref:
        return b.apply(
            OpKind.MAXIMUM, [b.relu(x), b.conv2d(x, 6, scale=0.1)], scale=0.05, zero_point=3
        )

    model = net(make)
    at = first(OpKind.MAXIMUM, model)
    content = legal.requantised_operands(model, 0, at)
    assert content is not None
    assert on_cpu(model.content) == 1
    assert on_cpu(content) == 0


def test_a_norm_before_a_convolution_goes_into_it() -> None:
    """Within the noise of a quantised intermediate result, on inputs that do not saturate it."""
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    from npusched.sim.litert import Reference

    model = model_of(nets.norm_before(folded=False))
    (found,) = norms.forward_norms(model.subgraphs[0])
    after = norms.folded_forward(model, 0, found)
    x = np.clip(np.random.default_rng(0).normal(0, 20, (1, nets.SIZE, nets.SIZE, 16)), -128, 127)
    results = []
    for content in (model.content, after):
        reference = Reference(content)
        reference.run({0: x.astype(np.int8)})
        value = reference.value(model.subgraphs[0].outputs[0])
        assert value is not None
        results.append(value.astype(int))
    apart = np.abs(results[0] - results[1])
    assert apart.max() <= 4
    assert apart.mean() < 0.6


def test_a_norm_before_padding_stays() -> None:
    model = net(lambda b, x: b.conv2d(b.batch_norm(b.max_pool2d(x, 2)), 8, 3))
    assert norms.forward_norms(model.subgraphs[0]) == []


def test_the_logits_keep_their_order() -> None:
    model = model_of(nets.classifier(softmax=True))
    (op,) = softmax.final_softmaxes(model.subgraphs[0])
    graph = model_of(softmax.without_final_softmax(model, 0, op)).subgraphs[0]
    assert OpKind.SOFTMAX not in [o.kind for o in graph.ops]
    assert graph.outputs == (graph.ops[-1].outputs[0],)


def test_float_parts_are_told_apart() -> None:
    def kinds(content: bytes) -> list[str]:
        return [part.kind.value for part in floats.float_parts(model_of(content).subgraphs[0])]

    assert kinds(nets.float_network("float32")) == ["model"]
    assert kinds(nets.float_network("int8")) == []
    assert kinds(nets.float_middle(in_float=True)) == ["island"]
    assert kinds(nets.float_input(in_float=True)) == ["input"]
    out = net(lambda b, x: b.dequantize(b.conv2d(x, 8)))
    assert kinds(out.content) == ["output"]
    (part,) = floats.float_parts(out.subgraphs[0])
    content = floats.quantised(out, 0, part)
    assert content is not None
    assert on_cpu(content) == 0


def test_a_float_lstm_is_not_translated() -> None:
    model = net(lambda b, x: b.quantize(b.dequantize(x)))
    part = floats.FloatPart(kind=floats.PartKind.MODEL, tensors=(1,), ops=(0,))
    assert floats.quantised(model, 0, part) is not None
    b = Builder("net")
    x = b.input("x", (1, 4, 4, 4), "float32")
    y = b.tensor("y", (1, 4, 4, 4), "float32")
    b.custom("Mine", [x], [y])
    b.output(y)
    custom = model_of(b.build())
    (part,) = floats.float_parts(custom.subgraphs[0])
    assert floats.quantised(custom, 0, part) is None


def test_a_sigmoid_that_others_read_is_no_silu() -> None:
    def make(b: Builder, x: Ref) -> Ref:
        gate = b.logistic(x)
        b.output(gate)
        return b.mul(x, gate)

    assert activations.silus(net(make).subgraphs[0]) == []
    other = net(lambda b, x: b.mul(x, b.logistic(b.relu(x))))
    assert activations.silus(other.subgraphs[0]) == []
    assert len(activations.silus(model_of(nets.silu(hard=False)).subgraphs[0])) == 1


def test_pruning_takes_the_smaller_half() -> None:
    model = model_of(nets.heavy_weights(sparse=False))
    content = prune.pruned(model, 0, [0], 0.5)
    assert content is not None
    old, new = (
        m.subgraphs[0].tensors[m.subgraphs[0].ops[0].inputs[1]].data
        for m in (model, model_of(content))
    )
    assert old is not None
    assert new is not None
    assert (new == 0).sum() >= new.size // 2
    assert np.abs(old[new == 0].astype(int)).max() <= np.abs(old[new != 0].astype(int)).min()
    assert prune.pruned(model_of(content), 0, [0], 0.5) is None


def test_an_editor_that_changes_nothing_writes_the_same_graph() -> None:
    """Signatures, other subgraphs and metadata included: everything is read back as it was."""
    b = Builder("net")
    x = b.input("x", (1, 4, 4, 4))
    y = b.conv2d(x, 8)
    b.output(y)
    other = b.subgraph("other")
    other.output(other.relu(other.input("z", (1, 2))))
    b.signature("main", {"x": x}, {"y": y})
    model = model_of(b.build([("note", b"text")]))
    for index in (0, 1):
        again = model_of(Editor(model, index).content())
        assert again.subgraphs == model.subgraphs
        assert again.signatures == model.signatures


def test_options_that_we_do_not_know_stay() -> None:
    """The type of the bias of an int16 convolution is an option that ``ir`` lacks."""
    b = Builder("net")
    x = b.input("x", (1, 9, 9, 4), "int16")
    y = b.conv2d(x, 8, 3, stride=4)
    record = b.ops[0].record("builtin_options")
    assert record is not None
    table = Record(record.table, {**record.values, "quantized_bias_type": 4})
    b.ops[0] = Record("Operator", {**b.ops[0].values, "builtin_options": table})
    b.output(y)
    model = model_of(b.build())
    content = legal.padded_apart(model, 0, 0)
    assert content is not None
    ops = decode(content).records("subgraphs")[0].records("operators")
    options = ops[1].record("builtin_options")
    assert options is not None
    assert options.integer("quantized_bias_type") == 4
    assert options.integer("padding") == 1


def test_what_an_edit_leaves_over_is_not_stored() -> None:
    model = model_of(nets.stack(32))
    after = model_of(channels.resize(model, 0, {0: 16}))
    assert after.size_bytes < model.size_bytes
    assert after.const_bytes < model.const_bytes


def test_data_behind_the_flatbuffer_cannot_be_edited() -> None:
    from npusched.tflite.encode import encode

    model = model_of(nets.healthy())
    root = decode(model.content)
    buffers = [*root.records("buffers")]
    buffers[-1] = Record("Buffer", {"offset": 4096, "size": 4})
    content = encode(Record("Model", {**root.values, "buffers": tuple(buffers)}))
    from dataclasses import replace

    with pytest.raises(ModelError, match="cannot rewrite"):
        Editor(replace(model, content=content), 0)
