"""The order of the stages, written once: bytes -> model -> graph -> plan -> report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from npusched.errors import ModelError

if TYPE_CHECKING:
    from npusched.api.weights import WeightTable
    from npusched.graph.opgraph import OpGraph
    from npusched.hardware import Target
    from npusched.ir import Model, Shape
    from npusched.report import PlanReport
    from npusched.schedule import Objective, Planner


def plan(
    model: str | Path | bytes,
    target: str | Target,
    *,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
) -> PlanReport:
    """Plan a model on a target and return the report.

    ``model``: a path, ``demo:NAME``, or the bytes of a .tflite file. ``target``: a name of
    ``npusched configs``, a .toml file, or a ``Target``. ``sram``: a budget ("64KiB", bytes), or
    None for what the target has. Raises ModelError, TargetError or InfeasibleError.
    """
    from npusched.hardware import load_target

    content, name = content_of(model)
    return plan_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        sram=sram,
        objective=objective,
        lambda_cycles_per_byte=lambda_cycles_per_byte,
        signature=signature,
        input_shapes=input_shapes,
        use_vela=use_vela,
        use_cache=use_cache,
    )


def plan_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    sram: str | int | None = None,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
) -> PlanReport:
    """Like ``plan``, for bytes and a resolved target."""
    from npusched.advise import Situation, advise
    from npusched.graph.reorder import reordered
    from npusched.report import PlanInputs, build_report
    from npusched.schedule import OrderedPlanner, check_plan, fusion_levels, whole_cost

    model, graph, sizes, goal, warnings = prepare(
        content,
        name=name,
        target=target,
        objective=objective,
        lambda_cycles_per_byte=lambda_cycles_per_byte,
        signature=signature,
        input_shapes=input_shapes,
        use_vela=use_vela,
        use_cache=use_cache,
    )
    budget = budget_bytes(target, sram)
    planner = OrderedPlanner(graph, target, sizes.of, objective=goal, limit_bytes=budget)
    found = planner.plan(budget, is_capacity=sram is None)
    faults = check_plan(graph, target, found)
    if faults:
        raise RuntimeError(f"the plan fails its own check: {faults[0]}")
    segments, graph = planner.segments_of(found), reordered(graph, found.order)
    folded = _folded_planner(model, graph, target, sizes, goal, input_shapes)
    subgraph = model.subgraphs[graph.subgraph]
    advice = advise(
        Situation(
            subgraph=subgraph,
            graph=graph,
            target=target,
            plan=found,
            foldable=0 if folded is None else folded[1],
            folded=None if folded is None else lambda: folded[0].plan(found.budget_bytes),
        )
    )
    return build_report(
        PlanInputs(
            model=model,
            graph=graph,
            target=target,
            plan=found,
            levels=fusion_levels(
                subgraph, segments, segments if folded is None else folded[0].segments, found
            ),
            unfused=[whole_cost(segments, v) for v in range(len(graph.ops))],
            objective=objective,
            vela_version=sizes.vela_version,
            warnings=warnings,
            has_budget=sram is not None,
            advice=advice,
        )
    )


class Prepared(NamedTuple):
    """A model on a target, ready to be planned."""

    model: Model
    graph: OpGraph
    sizes: WeightTable
    objective: Objective
    warnings: list[str]


def prepare(
    content: bytes,
    *,
    name: str,
    target: Target,
    objective: str = "cycles",
    lambda_cycles_per_byte: float = 0.1,
    signature: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    use_vela: bool = True,
    use_cache: bool = True,
) -> Prepared:
    """Read and lower a model and find its weights' encoded sizes. Raises ModelError."""
    from npusched.api.weights import ask_vela, weight_table
    from npusched.schedule import Goal, Objective

    model = read(content, name, input_shapes)
    has_npu = target.accelerator is not None
    asked = ask_vela(model, target, use_cache=use_cache) if use_vela and has_npu else None
    graph = graph_of(model, target, signature)
    warnings: list[str] = []
    sizes = weight_table(graph, target, asked, warnings)
    goal = Objective(goal=Goal(objective), lambda_cycles_per_byte=lambda_cycles_per_byte)
    return Prepared(model, graph, sizes, goal, warnings)


def _folded_planner(
    model: Model,
    graph: OpGraph,
    target: Target,
    sizes: WeightTable,
    objective: Objective,
    input_shapes: Mapping[str, Shape] | None,
) -> tuple[Planner, int] | None:
    """(planner of the model with batch norms folded, how many); None if there is none to fold.

    Fusion level L3 and the advice to fold are about that model.
    """
    from npusched.graph.fold import fold_batch_norms
    from npusched.schedule import Planner

    folded, _ = fold_batch_norms(model.subgraphs[graph.subgraph])
    if not folded:
        return None
    from npusched.api.folding import folded_model

    after = folded_model(model, input_shapes)
    if after is None:
        return None
    removed = sorted(op for item in folded for op in item.removed)
    lowered = _lower(after, target, graph.subgraph)
    table = sizes.renumbered(lowered, removed)
    return Planner.of(lowered, target, table.of, objective=objective), len(folded)


def read(content: bytes, name: str, input_shapes: Mapping[str, Shape] | None = None) -> Model:
    """Read a model and refuse what cannot be planned. Raises ModelError."""
    from npusched.tflite import is_vela_compiled, read_model

    model = read_model(content, name, input_shapes=input_shapes)
    if is_vela_compiled(model):
        raise ModelError(
            f"{name} was already compiled by Vela",
            "it holds the custom op 'ethos-u', whose command stream hides the original ops",
            "pass the .tflite file that was given to Vela",
            compiled=True,
        )
    return model


def graph_of(model: Model, target: Target, signature: str | None = None) -> OpGraph:
    """Lower the subgraph of a signature (default: subgraph 0). Raises ModelError."""
    return _lower(model, target, subgraph_of(model, signature))


def _lower(model: Model, target: Target, subgraph: int) -> OpGraph:
    from npusched.cost.pieces import block_finder
    from npusched.graph.build import build_graph

    if target.accelerator is None:
        return build_graph(model, None, subgraph=subgraph)
    blocks = block_finder(target.accelerator)
    return build_graph(model, target.accelerator.family, subgraph=subgraph, block_of=blocks)


def subgraph_of(model: Model, signature: str | None) -> int:
    """Index of the subgraph that a signature runs. Raises ModelError for an unknown one."""
    if signature is None:
        return 0
    for known in model.signatures:
        if known.key == signature:
            return known.subgraph
    import difflib

    keys = [known.key for known in model.signatures]
    close = difflib.get_close_matches(signature, keys, 1)
    raise ModelError(
        f"the model has no signature '{signature}'",
        f"it has: {', '.join(keys) or 'none'}",
        f"did you mean '{close[0]}'?" if close else "leave --signature out for subgraph 0",
    )


def budget_bytes(target: Target, sram: str | int | None) -> int | None:
    """The budget in bytes: what was asked for, else the capacity of the budget memory."""
    from npusched.hardware import parse_size

    if sram is None:
        return target.sram_budget_bytes
    return sram if isinstance(sram, int) else parse_size(sram)


def content_of(model: str | Path | bytes) -> tuple[bytes, str]:
    """Bytes and name of a model given as a path, ``demo:NAME`` or bytes. Raises ModelError."""
    if isinstance(model, bytes):
        return model, "model"
    text = str(model)
    if text.startswith("demo:"):
        from npusched.demos import demo

        return demo(text.removeprefix("demo:")), text
    from npusched.tflite.container import read_file

    return read_file(Path(model)), Path(model).name
