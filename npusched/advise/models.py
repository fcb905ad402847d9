"""Rules about the model: channels, norms, transposes, floats, pools, softmax, sparsity."""

from __future__ import annotations

from npusched.advise.configs import LEAST_GAIN
from npusched.advise.types import Case, Change, Confidence, Proposal, Rule, Severity
from npusched.graph.edits import (
    activations,
    channels,
    floats,
    norms,
    pools,
    prune,
    softmax,
    transposes,
)
from npusched.graph.edits.folding import fold_model
from npusched.graph.edits.uses import label, shortened
from npusched.ir import OpKind

MAX_PLACES = 6
"""Most places in a model that one rule tries, the largest first."""

MAX_CUT = 1 / 8
"""Largest share of a layer's channels that padding is worth: more would be another network."""

SPARSITY = 0.5
"""Share of zeros that pruning during training reaches with little loss."""

PIECES = (2, 4)
"""Parts that a SOFTMAX is tried in."""

FEW_WEIGHTS = 256
"""Ops with fewer weights are not pruned."""

_TRAIN = "the network has to be trained again"
_CALIBRATE = "ranges have to be calibrated, and accuracy looked at"


def _on_npu(case: Case) -> bool:
    return case.target.accelerator is not None


def _edited(case: Case, content: bytes | None) -> Change | None:
    return None if content is None or content == case.model.content else Change(content=content)


def _floats(case: Case, rule: str) -> list[Proposal]:
    """NS001, NS002, NS003: what is computed in float, in int8 instead."""
    if not _on_npu(case):
        return []
    found = []
    for number, part in enumerate(floats.float_parts(case.subgraph)[: 4 * MAX_PLACES]):
        if _FLOAT_RULES[part.kind] != rule:
            continue
        change = _edited(case, floats.quantised(case.model, case.graph.subgraph, part))
        if change is None:
            continue
        what, price = _float_words(case, part)
        found.append(
            Proposal(
                rule=rule,
                group=f"float part {number}",
                what=what,
                change=change,
                severity=Severity.WARNING if rule == "NS001" else Severity.INFO,
                confidence=Confidence.MEDIUM if part.ops else Confidence.HIGH,
                price=price,
            )
        )
    return found


_FLOAT_RULES = {
    floats.PartKind.MODEL: "NS001",
    floats.PartKind.ISLAND: "NS002",
    floats.PartKind.INPUT: "NS003",
    floats.PartKind.OUTPUT: "NS003",
}


def _float_words(case: Case, part: floats.FloatPart) -> tuple[str, str]:
    """(what to change, what comes with it)."""
    if part.kind is floats.PartKind.MODEL:
        what = "the model is in floating point, which the NPU does not run: quantise it to int8"
        return f"{what} (post-training, with a representative data set)", _CALIBRATE
    if part.kind is floats.PartKind.ISLAND:
        names = ", ".join(label(case.subgraph.ops[op]) for op in part.ops[:2])
        more = f" and {len(part.ops) - 2} more" if len(part.ops) > 2 else ""
        return f"{names}{more} compute in float: quantise them, too", _CALIBRATE
    edge = "takes" if part.kind is floats.PartKind.INPUT else "gives"
    name = shortened(case.subgraph.tensors[part.tensors[0]].name)
    what = f"the model {edge} '{name}' in float and converts it on the CPU: export it with int8"
    return what, "the application converts, if it has to"


def _channels(case: Case) -> list[Proposal]:
    """NS101: a few channels less than a multiple of 16 ask for a whole brick more."""
    if not _on_npu(case):
        return []
    groups = channels.channel_groups(case.subgraph)
    wasteful: list[tuple[int, int, channels.ChannelGroup, int]] = []
    for number, group in enumerate(groups):
        below = group.channels // 16 * 16
        if 0 < group.channels - below <= MAX_CUT * group.channels:
            tensors = [case.subgraph.tensors[t] for t in group.tensors]
            rows = max(t.elements // group.channels for t in tensors)
            wasteful.append((-rows * (below + 16 - group.channels), number, group, below))
    wasteful.sort(key=lambda each: each[:2])
    chosen = [{number: below} for _, number, _, below in wasteful[:MAX_PLACES]]
    if len(wasteful) > 1:
        chosen.append({number: below for _, number, _, below in wasteful})
    found = []
    for wanted in chosen:
        named = "; ".join(
            f"{label(case.subgraph.ops[groups[n].makers[0]])} from {groups[n].channels} channels, "
            f"stored as {below + 16}, to {below}"
            for n, below in list(wanted.items())[:3]
        )
        more = f" (and {len(wanted) - 3} layers more)" if len(wanted) > 3 else ""
        model, subgraph = case.model, case.graph.subgraph
        up = channels.resize(model, subgraph, {n: below + 16 for n, below in wanted.items()})
        found.append(
            Proposal(
                rule="NS101",
                group="channels",
                what=f"{named}{more}",
                change=Change(content=channels.resize(model, subgraph, wanted)),
                confidence=Confidence.MEDIUM,
                price=_TRAIN,
                free=("as many as are stored would cost no more", Change(content=up)),
            )
        )
    return found


def _folds(case: Case) -> list[Proposal]:
    """NS102: batch norms behind a linear op."""
    content, count, _ = fold_model(case.model)
    if not count:
        return []
    many = f"{count} batch norm{' is' if count == 1 else 's are'} left as MUL+ADD"
    return [
        Proposal(
            rule="NS102",
            group="fold",
            what=f"{many}: 'npusched fold' puts {'it' if count == 1 else 'them'} into the weights",
            change=Change(content=content),
            severity=Severity.WARNING,
            price="results may move by some steps",
        )
    ]


def _folds_forward(case: Case) -> list[Proposal]:
    """NS104: batch norms before a linear op without padding."""
    found = []
    for each in norms.forward_norms(case.subgraph)[:MAX_PLACES]:
        names = " and ".join(label(case.subgraph.ops[op]) for op in each.norm.ops)
        reader = label(case.subgraph.ops[each.linear])
        content = norms.folded_forward(case.model, case.graph.subgraph, each)
        found.append(
            Proposal(
                rule="NS104",
                group=f"norm {each.norm.ops[0]}",
                what=f"{names} are a batch norm that {reader} could take into its weights",
                change=Change(content=content),
                price="its weights are quantised again: results may move by some steps",
            )
        )
    return found


def _transposes(case: Case) -> list[Proposal]:
    """NS105: islands in another order of axes."""
    found = []
    for island in transposes.transpose_islands(case.subgraph)[:MAX_PLACES]:
        count = len(island.into) + len(island.out_of)
        first = label(case.subgraph.ops[island.into[0]])
        content = transposes.without_transposes(case.model, case.graph.subgraph, island)
        found.append(
            Proposal(
                rule="NS105",
                group=f"island {island.into[0]}",
                what=f"{count} TRANSPOSE ops around {first} cancel: take them out (the converter "
                "left them; results stay the same)",
                change=Change(content=content),
                severity=Severity.WARNING,
            )
        )
    return found


def _edges(case: Case) -> list[Proposal]:
    """NS106: an input or result that is only turned."""
    return [
        Proposal(
            rule="NS106",
            group=f"edge {op}",
            what=f"{label(case.subgraph.ops[op])} only turns an input or a result of the model: "
            "export the model in the NPU's order (NHWC)",
            change=Change(content=transposes.turned_edge(case.model, case.graph.subgraph, op)),
            price="the application hands over the other order",
        )
        for op in transposes.edge_transposes(case.subgraph)[:MAX_PLACES]
    ]


def _last_softmaxes(case: Case) -> list[Proposal]:
    """NS109: SOFTMAX left to the host."""
    return [
        Proposal(
            rule="NS109",
            group=f"softmax {op}",
            what=f"{label(case.subgraph.ops[op])} ends the model: leave it out, the largest logit "
            "is the largest probability",
            change=Change(
                content=softmax.without_final_softmax(case.model, case.graph.subgraph, op)
            ),
            price="the host computes probabilities where it needs them",
        )
        for op in softmax.final_softmaxes(case.subgraph)[:MAX_PLACES]
        if _on_npu(case)
    ]


def _spread_softmaxes(case: Case) -> list[Proposal]:
    """NS110: SOFTMAX in pieces."""
    found = []
    spread = [
        op.index
        for op in case.subgraph.ops
        if op.kind is OpKind.SOFTMAX and len(case.graph.sources[op.index].scheduled_ops) > 1
    ]
    for op in spread[:MAX_PLACES]:
        kernels = len(case.graph.sources[op].scheduled_ops)
        for pieces in PIECES:
            content = softmax.softmax_in_pieces(case.model, case.graph.subgraph, op, pieces)
            if content is not None:
                found.append(
                    Proposal(
                        rule="NS110",
                        group=f"softmax in pieces {op}",
                        what=f"{label(case.subgraph.ops[op])} runs as {kernels} kernels with "
                        f"32-bit temporaries: {pieces} parts, one after the other",
                        change=Change(content=content),
                        price="results stay the same",
                    )
                )
    return found


def _means(case: Case) -> list[Proposal]:
    """NS111: a global MEAN as an average pool."""
    found: list[Proposal] = []
    for op in case.subgraph.ops:
        source = case.graph.sources[op.index]
        if op.kind is not OpKind.MEAN or source.cpu_reasons or not _on_npu(case):
            continue
        content = pools.mean_as_pool(case.model, case.graph.subgraph, op.index)
        if content is not None and len(found) < MAX_PLACES:
            found.append(
                Proposal(
                    rule="NS111",
                    group=f"mean {op.index}",
                    what=f"{label(op)} runs as {len(source.scheduled_ops)} kernels: a global "
                    "AVERAGE_POOL_2D does the same",
                    change=Change(content=content),
                    confidence=Confidence.HIGH,
                    price="results may move by a step",
                )
            )
    return found


def _silus(case: Case) -> list[Proposal]:
    """NS112: SiLU as two ops, whose three tensors live at once."""
    found = activations.silus(case.subgraph)
    if not found or not _on_npu(case):
        return []
    many = f"{len(found)} SiLU{'' if len(found) == 1 else 's'}"
    first = label(case.subgraph.ops[found[0].sigmoid])
    return [
        Proposal(
            rule="NS112",
            group="silu",
            what=f"{many} (first {first}) run as LOGISTIC and MUL: HARD_SWISH is one op, nearly "
            "the same function",
            change=Change(
                content=activations.as_hard_swish(case.model, case.graph.subgraph, found)
            ),
            confidence=Confidence.MEDIUM,
            price="train with it",
        )
    ]


def _sparsity(case: Case) -> list[Proposal]:
    """NS205: half of the weights zero."""
    if not _on_npu(case):
        return []
    ops = sorted(
        {
            ref[1]
            for op in case.graph.ops
            if op.weights is not None and op.weights.elements >= FEW_WEIGHTS
            for ref in op.source_ops
        }
    )
    change = _edited(case, prune.pruned(case.model, case.graph.subgraph, ops, SPARSITY))
    if change is None:
        return []
    many = f"{len(ops)} op{'' if len(ops) == 1 else 's'}"
    return [
        Proposal(
            rule="NS205",
            group="sparsity",
            what=f"prune half of the weights of {many} to zero (encoded as Vela does it)",
            change=change,
            confidence=Confidence.LOW,
            least_gain=LEAST_GAIN,
            price="training has to keep the accuracy",
        )
    ]


RULES = (
    Rule(
        id="NS001",
        title="a model in floating point",
        when="all that is computed is float",
        plans="the model with int8 tensors and weights (stand-in ranges)",
        propose=lambda case: _floats(case, "NS001"),
    ),
    Rule(
        id="NS002",
        title="float islands",
        when="ops between DEQUANTIZE and QUANTIZE (or at an edge) compute in float",
        plans="the model with these in int8, and without the conversions",
        propose=lambda case: _floats(case, "NS002"),
    ),
    Rule(
        id="NS003",
        title="float inputs and results",
        when="the model only converts an input from, or a result to float",
        plans="the model without the conversion",
        propose=lambda case: _floats(case, "NS003"),
    ),
    Rule(
        id="NS101",
        title="channel padding",
        when="a layer has up to an eighth more channels than a multiple of 16",
        plans="the model with that multiple, each layer alone and all together; and, to say "
        "whether that is free, with the next one",
        propose=_channels,
    ),
    Rule(
        id="NS102",
        title="batch norms left unfolded",
        when="MUL+ADD by constants follow a linear op",
        plans="what 'npusched fold' writes",
        propose=_folds,
    ),
    Rule(
        id="NS104",
        title="batch norms that the next op can take",
        when="MUL+ADD by constants stand before a linear op that does not pad",
        plans="the model with them in that op's weights and bias",
        propose=_folds_forward,
    ),
    Rule(
        id="NS105",
        title="transposes that cancel",
        when="TRANSPOSEs and their inverses enclose ops that do not mind the order of axes",
        plans="the model with the ops between them in the outer order",
        propose=_transposes,
    ),
    Rule(
        id="NS106",
        title="transposed inputs and results",
        when="a TRANSPOSE is all that reads an input or writes a result",
        plans="the model without it",
        propose=_edges,
    ),
    Rule(
        id="NS109",
        title="a SOFTMAX at the end",
        when="a SOFTMAX is the last op of a result",
        plans="the model without it",
        propose=_last_softmaxes,
    ),
    Rule(
        id="NS110",
        title="SOFTMAX explosion",
        when="a SOFTMAX becomes several kernels with 32-bit temporaries",
        plans="the SOFTMAX in 2 and in 4 parts along an outer axis",
        propose=_spread_softmaxes,
    ),
    Rule(
        id="NS111",
        title="MEAN explosion",
        when="a MEAN over height and width runs on the NPU",
        plans="an average pool in its place",
        propose=_means,
    ),
    Rule(
        id="NS112",
        title="SiLU in two ops",
        when="a LOGISTIC's input is multiplied by its result",
        plans="HARD_SWISH in place of all of them",
        propose=_silus,
    ),
    Rule(
        id="NS205",
        title="weight sparsity",
        when="the model has weights",
        plans="the model with the smaller half of the weights zero, encoded by Vela",
        propose=_sparsity,
    ),
)
