"""Our placement beside Vela's, read from the file that it compiled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from npusched.errors import VelaError
from npusched.hardware import Target, load_target
from npusched.hardware.target import Family
from npusched.ir import Model
from npusched.ops import place
from npusched.vela.compiled import VelaPlacement, read_placement
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model

TARGETS = {
    Family.U55: ("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram"),
    Family.U65: ("ethos-u65-256", "Ethos_U65_High_End", "Dedicated_Sram_384KB"),
    Family.U85: ("ethos-u85-256", "Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ops compared (all that Vela kept) and those placed elsewhere; ``failure``: no file came.

    ``refused``: we said that no file would come.
    """

    ops: int
    exceptions: tuple[str, ...]
    refused: bool
    failure: str = ""


@cache
def target_of(family: Family) -> Target:
    """Return the target on which a family is compared."""
    name, system_config, memory_mode = TARGETS[family]
    return load_target(name, system_config=system_config, memory_mode=memory_mode)


def compare(model: Model, family: Family, *, limit_s: float = 30.0) -> Comparison:
    """Compile ``model`` for a family and compare every op's place."""
    ours = {g.index: place(model, family, g.index) for g in model.subgraphs}
    refused = any(
        "refuses the whole file" in reason.text
        for reasons in ours.values()
        for found in reasons.values()
        for reason in found
    )
    try:
        result = compile_model(
            model.content, target_of(family), VelaOptions(), cache=None, limit_s=limit_s
        )
    except VelaError as error:
        return Comparison(0, (), refused, f"{error.what}: {error.why}")
    reading = read_placement(result, model)
    exceptions = [f"compiled file has unknown op {ref}" for ref in reading.unmatched]
    counted = 0
    for graph in model.subgraphs:
        for op in graph.ops:
            theirs = reading.ops[(graph.index, op.index)]
            if theirs is VelaPlacement.DROPPED:
                continue
            counted += 1
            is_cpu = bool(ours[graph.index][op.index])
            if is_cpu != (theirs is VelaPlacement.CPU):
                reasons = [r.limit for r in ours[graph.index][op.index]]
                exceptions.append(f"{graph.index}:{op.index} {op.kind} {theirs} {reasons}")
    return Comparison(counted, tuple(exceptions), refused)
