"""Triggers of the errors of compiled files and command streams: reading, running, proving them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from msgspec import structs

from npusched.api import npz_bytes
from npusched.demos import demo
from npusched.hardware import load_target
from npusched.hardware.target import Family
from npusched.ir import DataType
from npusched.sim import deviation, litert, reference
from npusched.sim.container import numpy_type, read_compiled_file, run_operator
from npusched.sim.decode import WeightDecoder
from npusched.sim.execute import run_kernel
from npusched.sim.kernel_cost import _accelerator, region_memories
from npusched.sim.memory import Region, check_span
from npusched.sim.mlw import decode_mlw
from npusched.sim.mutate import payload
from npusched.sim.program import _check_size, _Loader, load_bare, machine_of, read_dma
from npusched.sim.proof import _compare, _pairs, _translate
from npusched.sim.run import Executable, _given, check_inputs, open_compiled
from npusched.sim.weights import arrange_weights, decode_scales
from npusched.tflite import Builder, read_model
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value
from npusched.vela.stream import AddressRange, Register, StreamOp, StreamOpKind, decode_stream
from tests.errors.place import CHAIN, Place, Table, Trigger, built, compiled_chain
from tests.sim.sim_models import MODELS
from tests.sim.test_running import edited
from tests.sim.test_weight_order import LAYOUT


def _ready() -> Executable:
    return open_compiled(compiled_chain())


def _edited(register: Register, value: int) -> Trigger:
    """Load a stream in which every write of a register has another value."""
    return lambda _: edited(MODELS["conv"](), "ethos-u55-128", register, lambda _: value)


def _words(*words: int) -> Trigger:
    """Load a stream of these command words, with the memories of a compiled file."""

    def run(_: Place) -> None:
        operator = _ready().file.operators[0]
        replace(operator, stream=decode_stream(payload(operator.stream, words))).load()

    return run


def _dma(source: int, destination: int, to_address: int = 0) -> Trigger:
    """Load a stream of one DMA of 16 bytes between these regions."""
    words: list[int] = []
    for code, value in (
        (Register.DMA_SOURCE_REGION, source),
        (Register.DMA_DESTINATION_REGION, destination),
    ):
        words.append(code | value << 16)
    for code, value in (
        (Register.DMA_SOURCE, 0),
        (Register.DMA_DESTINATION, to_address),
        (Register.DMA_LENGTH, 16),
    ):
        words += [code, value]
    return _words(*words, 0x10)


_SHRAM = 1 << 8
"""Bit of a DMA's region: the address is in the NPU's own memory."""


def _with_root(**changes: Value) -> bytes:
    """The compiled file with fields of its root replaced."""
    root = decode(compiled_chain())
    return encode(Record("Model", {**root.values, **changes}))


def _short_metadata(_: Place) -> None:
    (entry,) = decode(compiled_chain()).records("metadata")
    read_compiled_file(_with_root(metadata=(Record("Metadata", {**entry.values, "buffer": 0}),)))


def _few_inputs(builder: Builder) -> None:
    x, y = builder.input("x", (1, 4)), builder.tensor("y", (1, 4), "int8")
    builder.custom("ethos-u", [x], [y])
    builder.output(y)


def _run_with(content: Callable[[], bytes]) -> Trigger:
    """``npusched run`` with a file of inputs."""
    return lambda place: place.cli(
        "run", place.compiled(), "--input", place.file("inputs.npz", content())
    )


def _text() -> bytes:
    return b"hello"


def _empty_batch() -> bytes:
    graph = _ready().graph
    tensor = graph.tensors[graph.inputs[0]]
    return npz_bytes({tensor.name: np.zeros((0, *tensor.shape), np.int8)})


def _other_type() -> bytes:
    graph = _ready().graph
    tensor = graph.tensors[graph.inputs[0]]
    return npz_bytes({tensor.name: np.zeros(tensor.shape, np.float32)})


def _other_name() -> bytes:
    return npz_bytes({"no\nbody": np.zeros(1, np.int8)})


def _unequal_batches(_: Place) -> None:
    b = Builder("two")
    b.output(b.add(b.input("x", (1, 4)), b.input("y", (1, 4))))
    graph = read_model(b.build(), "two").subgraphs[0]
    check_inputs(graph, {index: np.zeros((1 + index, 1, 4), np.int8) for index in graph.inputs})


def _no_weights(_: Place) -> None:
    state = _ready().programs[0].kernels[0].state
    WeightDecoder(1, 8).prepare(state, [], [])


def _bare(_: Place) -> None:
    program = load_bare(_ready().file.operators[0].stream)
    run_kernel(program.kernels[0], {}, {})


def _nothing_comes_back(place: Place) -> None:
    place.patch.setattr(deviation, "reference_values", lambda *_, **__: {})
    content = demo("chain:2")
    graph = read_model(content, "chain").subgraphs[0]
    deviation.compare_models(content, content, graph, 1, 0)


def _unknown_region(_: Place) -> None:
    program = _ready().programs[0]
    odd = Region(index=5, name="fifth", size_bytes=16)
    region_memories(replace(program, regions={5: odd}), load_target("ethos-u55-128"))


def _u85(_: Place) -> None:
    machine_of(structs.replace(_ready().file.operators[0].stream, family=Family.U85))


def _branch(_: Place) -> None:
    ready = _ready()
    loader = _Loader(ready.programs[0].machine, {})
    loader.command(StreamOp(StreamOpKind.BRANCH, 8, 0, 0), {})


def _beyond_shram(_: Place) -> None:
    loader = _Loader(_ready().programs[0].machine, {})
    loader.constant(AddressRange(0, 1 << 20, 16, internal=True), "kernel 0 (conv)")


def _crash(place: Place) -> None:
    """LiteRT's process ends in mid-request."""

    class Ended:
        returncode = -11

    def end(*_: object) -> object:
        raise EOFError

    worker = reference._Worker()
    place.patch.setattr(worker, "_running", Ended)
    place.patch.setattr(reference, "_exchange", end)
    worker.call(None)


def _draw_texts(_: Place) -> None:
    b = Builder("texts")
    b.output(b.input("x\ny", (1, 4), "string"))
    graph = read_model(b.build(), "texts").subgraphs[0]
    reference.random_inputs(graph, 1, 0)


def _without_litert(place: Place) -> None:
    place.absent("ai_edge_litert.interpreter")
    litert.Reference(demo("chain:2"))


def _refused_by_litert(place: Place) -> None:
    """The interpreter's own error; its constructor stands in for a model that it cannot run."""

    def interpreter(**_: object) -> object:
        raise ValueError("Op builtin_code out of range: 4000\nsecond line")

    class Kinds:
        BUILTIN_REF = 2

    place.patch.setattr(litert, "_litert", lambda: (interpreter, Kinds))
    litert.Reference(demo("chain:2"))


def _another_model(_: Place) -> None:
    """A graph of two inputs against one of one."""
    b = Builder("two")
    b.output(b.add(b.input("x", (1, 4)), b.input("y", (1, 4))))
    first = read_model(b.build(), "two").subgraphs[0]
    second = _ready().graph
    _pairs(first.inputs, second.inputs, first, second)


def _another_shape(_: Place) -> None:
    graph = _ready().graph
    _translate(graph, graph, {graph.inputs[0]: np.zeros((1, 3, 3, 3), np.int8)})


def _no_output(_: Place) -> None:
    graph = _ready().graph
    _compare(graph, graph, {}, {})


STREAMS: Table = {
    "api.executing:_bind": _run_with(_empty_batch),
    "api.executing:_no_npz": _run_with(_text),
    "api.inspecting:inspect_trace": lambda place: place.cli(
        "inspect", place.compiled(), "-c", "ethos-u55-256", "--trace", str(place.folder / "t.json")
    ),
    "sim.arithmetic:_refuse": _edited(Register.ACTIVATION_MAX, 0xFF00),
    "sim.container:numpy_type": lambda _: numpy_type(DataType.UNKNOWN),
    "sim.container:read_compiled_file": lambda place: place.cli("run", CHAIN),
    "sim.container:planned_offsets": _short_metadata,
    "sim.container:_operator": lambda _: read_compiled_file(built(_few_inputs)),
    "sim.container:_operator.placed": lambda _: read_compiled_file(_with_root(metadata=())),
    "sim.container:run_operator": lambda _: run_operator(
        _ready().file.operators[0], _ready().programs[0], {}
    ),
    "sim.decode:WeightDecoder.prepare": _no_weights,
    "sim.deviation:compare_models": _nothing_comes_back,
    "sim.execute:run_kernel": _bare,
    "sim.kernel_cost:region_memories": _unknown_region,
    "sim.kernel_cost:_accelerator": lambda _: _accelerator(
        _ready().programs[0], load_target("cortex-m55")
    ),
    "sim.litert:_litert": _without_litert,
    "sim.litert:_cannot_run": _refused_by_litert,
    "sim.memory:check_span": lambda _: check_span(
        (8, 24), Region(index=1, name="scratch", size_bytes=16), "DMA 0 (byte 8)"
    ),
    "sim.mlw:_damaged": lambda _: decode_mlw(b""),
    "sim.program:machine_of": _u85,
    "sim.program:_check_size": lambda _: _check_size("scratch", 1 << 50),
    "sim.program:_Loader.command": _branch,
    "sim.program:_Loader.region": _edited(Register.IFM_REGION, 5),
    "sim.program:_Loader.place": _dma(0, 0),
    "sim.program:_Loader.constant": _edited(Register.ACTIVATION, 16),
    "sim.program:_Loader._outside": _beyond_shram,
    "sim.program:_Loader.dma": _dma(_SHRAM, 1),
    "sim.program:read_dma": lambda _: read_dma(StreamOp(StreamOpKind.DMA, 8, 0, 0), {}, 0),
    "sim.program:read_dma#2": _words(0x10),
    "sim.program:read_dma#3": _dma(1 << 9, 1),
    "sim.proof:_pairs": _another_model,
    "sim.proof:_translate": _another_shape,
    "sim.proof:_compare": _no_output,
    "sim.reader:Reader.refuse": _edited(Register.ACTIVATION, 3),
    "sim.reference:_Worker._crashed": _crash,
    "sim.reference:_draw": _draw_texts,
    "sim.run:_given": lambda _: _given(_ready().file.operators[0], {}),
    "sim.run:bind_inputs": _run_with(_other_name),
    "sim.run:check_inputs": _run_with(_other_type),
    "sim.run:check_inputs#2": _unequal_batches,
    "sim.weights:_misfit": lambda _: arrange_weights(np.zeros(255, np.int16), LAYOUT),
    "sim.weights:decode_scales": lambda _: decode_scales(bytes(9), 1),
    "sim.weights:decode_scales#2": lambda _: decode_scales(b"\xff" * 10, 1),
}
