"""Triggers of the errors of ``npusched emit``: options, templates, plans, containers, the gate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

from msgspec import structs

from npusched import api
from npusched.api import emitting
from npusched.api.options import PlanOptions
from npusched.api.planning import prepare
from npusched.demos import demo
from npusched.emission.container import npu_operators, write_file, write_payload
from npusched.emission.fitting import fit
from npusched.emission.gate import CheckName, check_file
from npusched.emission.matching import _rows, match_kernels
from npusched.emission.planned import emit_plan
from npusched.emission.registers import _check_channels, _locate, check_stripes
from npusched.emission.shram import shram_registers
from npusched.emission.template import make_template
from npusched.emission.weights import _scale_rows
from npusched.graph.types import Upscale
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU55, Block
from npusched.tflite.rewrite import replace_values
from tests.emit.emitting_kit import Ready, ready
from tests.errors.place import CHAIN, U55, Place, Table, cli

CONFIG = "ethos-u55-128"


@cache
def _chain() -> Ready:
    """A small model, ready to be emitted."""
    return ready("chain:2", CONFIG)


def _of_another_vela(place: Place) -> None:
    place.patch.setattr("npusched.vela.runner.vela_version", lambda: "4.9.0")
    place.cli("emit", CHAIN, *U55, "-o", str(place.folder / "out.tflite"))


def _differs(place: Place) -> None:
    """The proof finds a difference; it stands in for LiteRT."""
    found = SimpleNamespace(
        verdict=None, outputs=[SimpleNamespace(name="y\n", differing=3)], difference=None,
        exceptions=(),
    )  # fmt: skip
    place.patch.setattr(emitting, "prove", lambda *_, **__: found)
    model = _chain().prepared.model
    emitting._prove(model, None, api.EmitSettings(prove=1))  # type: ignore[arg-type]


def _no_kernel(_: Place) -> None:
    """The graph of a longer model against the template of a shorter one."""
    longer = prepare(
        demo("chain:3"),
        name="chain",
        target=load_target(CONFIG),
        options=PlanOptions(candidates="none", use_cache=False),
    )
    match_kernels(_chain().template, longer.model, longer.graph)


def _no_rows(_: Place) -> None:
    known = _chain()
    _rows(replace(known.template, result=structs.replace(known.template.result, columns={})))


def _stray(_: Place) -> None:
    known = _chain()
    kernel = known.template.by_partition[0][0]
    emit_plan(
        known.template,
        known.prepared.model,
        known.prepared.graph,
        known.planner.plan(None),
        match=replace(known.match, strays=(kernel,)),
    )


def _payload() -> bytes:
    """The command stream's tensor in Vela's file."""
    from tests.emit.emit_kit import Parts

    parts = Parts(_chain().template.result.compiled)
    (operator,) = npu_operators(parts.root)
    return parts.data(operator.ints("inputs")[0])


def _too_large_block(_: Place) -> None:
    accelerator = load_target(CONFIG).accelerator
    assert isinstance(accelerator, AcceleratorU55)
    state = _chain().template.by_partition[0][0].state
    shram_registers(state, Block(64, 64, 128), accelerator)


def _upscaled(_: Place) -> None:
    kernel = _chain().template.by_partition[0][0]
    check_stripes(replace(kernel, state=replace(kernel.state, upscale=Upscale.NEAREST)))


def _small_ring(_: Place) -> None:
    known = _chain()
    kernel = known.template.by_partition[0][0]
    use = kernel.ofm
    placed = SimpleNamespace(region=1, address=0, rows=2)
    _locate({}, "ofm", use, kernel.state.ofm, placed, (0, 3, False), 0)  # type: ignore[arg-type]


def _fails_its_gate(_: Place) -> None:
    known = _chain()
    emitted = known.emit(known.planner.plan(None))
    small = replace(emitted, arena_bytes=emitted.arena_bytes // 2 // 16 * 16)
    gate = check_file(write_file(small), small, known.target)
    assert any(check.name is CheckName.RANGES for check in gate.failed)
    gate.require()


def _several_subgraphs(_: Place) -> None:
    """Two subgraphs, each with a convolution for the NPU."""
    from npusched.tflite import Builder

    b = Builder("two")
    other = b.subgraph("other")
    other.output(other.conv2d(other.input("y", (1, 8, 8, 4)), 4))
    b.output(b.conv2d(b.input("x", (1, 8, 8, 4)), 4))
    make_template(b.build(), load_target(CONFIG))


def _float_model(place: Place) -> None:
    from npusched.tflite import Builder

    b = Builder("float")
    b.output(b.relu(b.input("x", (1, 8, 8, 4), "float32")))
    make_template(b.build(), load_target(CONFIG))
    assert place


def _over_budget(_: Place) -> None:
    """Whatever is planned, the file is larger than the budget."""
    known = _chain()
    plan = known.planner.plan(None)
    emitted = emit_plan(
        known.template, known.prepared.model, known.prepared.graph, plan, match=known.match
    )
    target = load_target(CONFIG)
    fit(lambda _: plan, lambda _: emitted, target, 1024, may_plan_again=False)


def _bad_metadata(_: Place) -> None:
    replace_values(_chain().template.result.compiled, {}, {"No\nthing": b""})


EMITTING: Table = {
    "api.emitting:_template": _of_another_vela,
    "emission.fitting:fit": _over_budget,
    "api.emitting:_prove": _differs,
    "cli.emitting:_check_options": cli(
        "emit", CHAIN, *U55, "-o", "out.tflite", "--identity", "--sram", "8KiB"
    ),
    "cli.emitting:_check_output": cli("emit", CHAIN, *U55, "-o", "out.json"),
    "cli.emitting:_check_output#2": cli("emit", "m.tflite", *U55, "-o", "m.tflite"),
    "emission.container:write_payload": lambda _: write_payload(_payload(), (0x0107,) * (1 << 24)),
    "emission.container:_unfit": lambda _: write_payload(b"COP2" + _payload()[4:], (0xFFFF0000,)),
    "emission.gate:Gate.require": _fails_its_gate,
    "emission.matching:_unmatched": _no_kernel,
    "emission.matching:_rows": _no_rows,
    "emission.plan_places:refuse": _stray,
    "emission.registers:check_stripes": _upscaled,
    "emission.registers:_check_channels": lambda _: _check_channels(
        _chain().template.by_partition[0][0], 3
    ),
    "emission.registers:_locate": _small_ring,
    "emission.shram:_too_large": _too_large_block,
    "emission.template:make_template": lambda _: make_template(
        demo("chain:2"), load_target("ethos-u85-256")
    ),
    "emission.template:make_template#2": _float_model,
    "emission.template:_refuse": _several_subgraphs,
    "emission.weights:_scale_rows": lambda _: _scale_rows(bytes(9), 1),
    "tflite.rewrite:_no_buffer": _bad_metadata,
}
