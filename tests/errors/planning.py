"""Triggers of the errors of planning: models, demos, targets without NPU, budgets, plan files."""

from __future__ import annotations

import json
from threading import Event

import msgspec

from npusched import api
from npusched.api.options import PlanOptions
from npusched.api.tuning_points import _probe
from npusched.cost.blocks_u55 import find_block
from npusched.cost.blocks_u85 import find_block as find_block_u85
from npusched.cost.types import CostOp
from npusched.demos import demo
from npusched.errors import internal_error
from npusched.graph.build import build_graph
from npusched.graph.types import KernelKind
from npusched.hardware import load_target
from npusched.hardware.target import AcceleratorU55
from npusched.tflite import Builder, read_model
from npusched.tuning.probing import probe
from npusched.vela.options import VelaOptions
from npusched.vela.result import VelaResult
from tests.cost.test_blocks_u85 import fm, u85
from tests.errors.place import CHAIN, PLAIN, U55, Place, Table, Trigger, built, cli


def _compiled_model(builder: Builder) -> None:
    x = builder.input("x", (1, 8, 8, 4))
    y = builder.tensor("y", (1, 8, 8, 4), "int8", scale=0.1)
    builder.custom("ethos-u", [x], [y])
    builder.output(y)


def _float_model(builder: Builder) -> None:
    builder.output(builder.relu(builder.input("x", (1, 8, 8, 4), "float32")))


def _baseline_of_another_target(place: Place) -> None:
    form = place.cli("plan", CHAIN, *PLAIN, "-f", "json")
    place.cli(
        "check", CHAIN, "-c", "ethos-u55-256", "--no-vela", "--baseline", place.file("p.json", form)
    )


def _negative_regression(_: Place) -> None:
    plan = api.plan(CHAIN, "ethos-u55-128", use_vela=False, candidates="none")
    api.check(CHAIN, "ethos-u55-128", baseline=plan, max_regression=-0.5, use_vela=False)


def _plan_file(model: str = CHAIN, target: tuple[str, ...] = U55, **changes: str) -> Trigger:
    """Prove the plan of a file, of which root fields are changed, for a model and target."""

    def run(place: Place) -> None:
        form = json.loads(place.cli("plan", CHAIN, *PLAIN, "-f", "json")) | changes
        file = place.file("plan\x1b.json", json.dumps(form))
        place.cli("prove", model, *target, "--plan-file", file)

    return run


def _edited_plan(place: Place) -> None:
    form = json.loads(place.cli("plan", CHAIN, *PLAIN, "-f", "json"))
    form["totals"]["cycles"] += 1
    place.cli("prove", CHAIN, *U55, "--plan-file", place.file("plan.json", json.dumps(form)))


def _no_block(_: Place) -> None:
    accelerator = load_target("ethos-u55-128").accelerator
    assert isinstance(accelerator, AcceleratorU55)
    small = msgspec.structs.replace(accelerator, shram_banks=6)
    find_block(small, CostOp(KernelKind.CONV2D, fm(8, 8, 64), fm(8, 8, 64)))


def _reversed_channels(_: Place) -> None:
    wide = CostOp(KernelKind.CONV2D, fm(8, 8, 16, bits=32), fm(8, 8, 16, bits=32))
    find_block_u85(u85(512), wide)


def _nobody_waits(_: Place) -> None:
    stop = Event()
    stop.set()
    model = read_model(demo("chain:2"), "chain")
    _probe(model, load_target("ethos-u55-128"), PlanOptions(use_cache=False), 4, stop, None)


def _never(_: VelaOptions) -> VelaResult:
    raise AssertionError


def _fault_of_ours(_: Place) -> None:
    try:
        raise ZeroDivisionError("a \x1b[2J fault\nof two lines")
    except ZeroDivisionError as error:
        raise internal_error(error) from error


PLANNING: Table = {
    "api.checking:limits_of": lambda _: api.limits_of(max_cpu_ops=-1),
    "api.checking:_baseline": _negative_regression,
    "api.checking:check_report": cli("check", CHAIN, *PLAIN),
    "api.checking:_check_target": _baseline_of_another_target,
    "api.comparing:compare_report": cli("compare", CHAIN, "-c", "cortex-m55"),
    "api.folding:fold": cli("fold", CHAIN, "-o", "/absent/folded.tflite"),
    "api.options:PlanOptions.allowed": lambda _: PlanOptions(allow=("every\nthing",)).allowed,
    "api.plan_files:_refused": lambda place: place.cli(
        "prove", CHAIN, *U55, "--plan-file", place.file("plan.json", "{}")
    ),
    "api.planning:read": lambda place: place.cli(
        "plan", place.file("m\n.tflite", built(_compiled_model)), *PLAIN
    ),
    "api.planning:subgraph_of": cli("plan", CHAIN, *PLAIN, "--signature", "ser\x1bve"),
    "api.plan_files:given_plan": _plan_file(npusched_version="0.0.1"),
    "api.plan_files:given_plan#2": _plan_file("demo:chain:3"),
    "api.plan_files:given_plan#3": _plan_file(target=("-c", "ethos-u55-256")),
    "api.plan_files:check_same": _edited_plan,
    "api.tuning:_nothing_fits": cli("tune", CHAIN, *PLAIN, "--max-latency", "1ns", "--points", "4"),
    "api.tuning_points:_probe.compile_": _nobody_waits,
    "tuning.probing:probe": lambda _: probe(_never, load_target("ethos-u55-128"), compilations=0),
    "cost.blocks_u55:_search": _no_block,
    "cost.blocks_u85:_impossible": _reversed_channels,
    "demos.__init__:demo": cli("plan", "demo:mobilnet", *PLAIN),
    "demos.__init__:demo#2": cli("plan", "demo:chain:lo\nng", *PLAIN),
    "demos.__init__:demo#3": cli("plan", "demo:chain:0", *PLAIN),
    "errors:internal_error": _fault_of_ours,
    "graph.build:build_graph": lambda _: build_graph(
        read_model(demo("chain:2"), "chain"), None, subgraph=5
    ),
    "schedule.infeasible:infeasible": cli("plan", CHAIN, *PLAIN, "--sram", "1000"),
    "schedule.offchip_limit:OffchipLimit.infeasible": cli(
        "plan", CHAIN, *PLAIN, "--max-offchip-bytes", "1"
    ),
    "api.executing:_check_family": cli("prove", CHAIN, "-c", "cortex-m55"),
    "api.executing:_check_family#2": cli("prove", CHAIN, "-c", "ethos-u85-256"),
    "api.executing:_compile": lambda place: place.cli(
        "prove", place.file("float.tflite", built(_float_model)), *U55, "--no-cache"
    ),
}
