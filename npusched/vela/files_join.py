"""Rows of a per-layer CSV joined with our plan, where there is no schedule to match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from npusched.graph.opgraph import OpGraph
from npusched.hardware.target import Target
from npusched.schedule.types import Plan
from npusched.vela.files import VelaLayer
from npusched.vela.join import SHOWN_STRAYS, Joined, JoinedOp, OneSided, Side, plan_sides

_AREAS = {
    "Sram": "sram",
    "Dram": "dram",
    "OnChipFlash": "on_chip_flash",
    "OffChipFlash": "off_chip_flash",
}


def join_layers(
    graph: OpGraph,
    target: Target,
    plan: Plan,
    layers: Sequence[VelaLayer],
    names: Sequence[str],
) -> tuple[Joined, int, int]:
    """Join by the name of an op's result; also return the layers' total and NPU cycles.

    A layer named after a tensor of the file, or after one with a suffix (Vela's names of
    intermediate results), counts for the op that makes that tensor; the longest such name wins.
    """
    owners = _Owners(graph, names)
    found: dict[int, list[VelaLayer]] = defaultdict(list)
    strays = []
    for layer in layers:
        if not _does_work(layer):
            continue
        index = owners.of(layer)
        if index is None:
            strays.append(layer)
        else:
            found[index].append(layer)
    ours = plan_sides(graph, plan)
    rows = []
    for position, (source, name) in enumerate(zip(graph.sources, names, strict=True)):
        mine = ours.get(source.ref)
        his = _side(target, found[position]) if position in found else None
        rows.append(
            JoinedOp(
                subgraph=source.ref[0],
                index=source.ref[1],
                kind=source.kind.value,
                name=name,
                npusched=mine,
                vela=his,
                vela_compatible=None,
                vela_recosted=None,
                reason=_reason(mine, his),
            )
        )
    only = tuple(
        OneSided(
            source_op=None,
            kind=layer.operator,
            name=layer.name,
            cycles=round(layer.op_cycles),
            reason="no op of the file makes a tensor of this name",
        )
        for layer in strays[:SHOWN_STRAYS]
    )
    joined = Joined(ops=tuple(rows), only_npusched=(), only_vela=only)
    return (
        joined,
        round(sum(layer.op_cycles for layer in layers)),
        round(sum(layer.npu_cycles for layer in layers)),
    )


class _Owners:
    """Finds the source op of a layer by its name and the operator that it came from."""

    def __init__(self, graph: OpGraph, names: Sequence[str]) -> None:
        self._by_name = {name: index for index, name in enumerate(names) if name}
        self._kinds = [_plain(source.kind.value) for source in graph.sources]

    def of(self, layer: VelaLayer) -> int | None:
        """Index of the op; names are cut at underscores until one is known.

        A decomposed op's first results are named after its input: then it is the next op of the
        layer's own operator.
        """
        name = layer.name
        known = self._by_name.get(name)
        while known is None and "_" in name:
            name = name.rpartition("_")[0]
            known = self._by_name.get(name)
        kind = _plain(layer.source_operator)
        if known is None or self._kinds[known] == kind:
            return known
        later = (index for index in range(known, len(self._kinds)) if self._kinds[index] == kind)
        return next(later, known)


def _plain(kind: str) -> str:
    """CONV_2D and Conv2D alike."""
    return "".join(character for character in kind.lower() if character.isalnum())


def _does_work(layer: VelaLayer) -> bool:
    """False for rows of fused ops, which are all zero."""
    return layer.placement == "CPU" or bool(layer.op_cycles or layer.npu_cycles or layer.mac_count)


def _side(target: Target, layers: Sequence[VelaLayer]) -> Side:
    busy = {
        memory.name: round(sum(layer.memory_cycles[_AREAS[memory.vela_name]] for layer in layers))
        for memory in target.memories
        if memory.vela_name in _AREAS
    }
    on_cpu = all(layer.placement == "CPU" for layer in layers)
    return Side(
        placement="cpu" if on_cpu else "npu",
        kernels=len(layers),
        cycles=round(sum(layer.op_cycles for layer in layers)),
        npu_cycles=round(sum(layer.npu_cycles for layer in layers)),
        cpu_cycles=0,
        memory_cycles={name: cycles for name, cycles in busy.items() if cycles},
        bytes_read={},
        bytes_written={},
        weights="",
        weight_bytes=0,
        cascades=(),
        stripe_rows=0,
        stripes=0,
    )


def _reason(mine: Side | None, his: Side | None) -> str:
    if mine is not None and his is None:
        return "the per-layer CSV has no row named after its result"
    if mine is None and his is not None:
        return "our graph lets its neighbours' kernels do its work"
    return "" if mine is not None else "neither side has a kernel of its own for it"
