"""From two plans to what differs: totals, settings, and ops matched by index or name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from npusched import __version__
from npusched.report.diff_types import (
    DIFF_SCHEMA_VERSION,
    ChangedPart,
    DiffReport,
    DiffSide,
    OpChange,
    OpSide,
    SettingChange,
    TotalChange,
)
from npusched.report.figures import FIGURES, Number
from npusched.report.types import OpFacts, PlanReport

_SETTINGS: Final = (
    "npusched_version",
    "vela_version",
    "target",
    "budget_memory",
    "budget_bytes",
    "objective",
    "lambda_cycles_per_byte",
    "max_offchip_bytes",
    "allowed",
)
"""Fields of a plan that say how it was made. Beside them: the candidates' mode and the subgraph."""

_CHOSEN: Final = (
    "target.name",
    "target.clock_hz",
    "target.system_config",
    "target.memory_mode_name",
    "target.memory_mode",
)
"""Settings of a target that say the most."""

_MOST_SHOWN: Final = 200
"""Characters of a setting's value that are kept."""


def build_diff(
    before: PlanReport, after: PlanReport, *, before_file: str, after_file: str
) -> DiffReport:
    """Return what changed from plan ``before`` to plan ``after``."""
    same_model = _model_key(before) == _model_key(after)
    changes, unchanged = _op_changes(before, after, same_model=same_model)
    return DiffReport(
        schema_version=DIFF_SCHEMA_VERSION,
        npusched_version=__version__,
        before=_side(before, before_file),
        after=_side(after, after_file),
        same_model=same_model,
        totals=tuple(
            _total(name, figure.of(before), figure.of(after)) for name, figure in FIGURES.items()
        ),
        settings=setting_changes(before, after),
        ops=tuple(sorted(changes, key=_rank)),
        unchanged_ops=unchanged,
    )


def relative_change(before: Number, after: Number) -> float | None:
    """Change as a share of ``before``; None if that is 0 and ``after`` is not."""
    if before == after:
        return 0.0
    return (after - before) / before if before else None


def setting_changes(before: PlanReport, after: PlanReport) -> tuple[SettingChange, ...]:
    """Every setting that differs: versions, budget, options, then the target's."""
    a, b = _settings(before), _settings(after)
    differing = [name for name in dict.fromkeys((*a, *b)) if a.get(name) != b.get(name)]
    return tuple(
        SettingChange(setting=name, before=_shown(a.get(name)), after=_shown(b.get(name)))
        for name in sorted(differing, key=_setting_rank)
    )


def _setting_rank(name: str) -> tuple[int, int]:
    """Options first, then the target's name, clock and mode, then its other figures."""
    if name in _CHOSEN:
        return 1, _CHOSEN.index(name)
    return (2 if name.startswith("target.") else 0), 0


def target_changes(before: PlanReport, after: PlanReport) -> tuple[SettingChange, ...]:
    """Those of ``setting_changes`` that describe the target."""
    return tuple(
        change for change in setting_changes(before, after) if change.setting.startswith("target.")
    )


def _settings(report: PlanReport) -> dict[str, Any]:
    form: dict[str, Any] = {name: getattr(report, name) for name in _SETTINGS}
    form["candidates.mode"] = report.candidates.mode
    form["model.subgraph"] = report.model.subgraph
    return dict(_leaves(msgspec.to_builtins(form), ""))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that is no object; named lists go by the names in them."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and value and all(_name(part) for part in value):
        for part in value:
            yield from _leaves(part, f"{path}.{_name(part)}")
    else:
        yield path, value


def _name(part: Any) -> str:
    return str(part.get("name", "")) if isinstance(part, dict) else ""


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _model_key(report: PlanReport) -> tuple[str, int]:
    return report.model.sha256, report.model.subgraph


def _side(report: PlanReport, file: str) -> DiffSide:
    return DiffSide(
        file=file,
        model=report.model.name,
        sha256=report.model.sha256,
        target=report.target.name,
        npusched_version=report.npusched_version,
        vela_version=report.vela_version,
        op_count=report.model.op_count,
    )


def _total(metric: str, before: Number, after: Number) -> TotalChange:
    return TotalChange(
        metric=metric,
        unit=FIGURES[metric].unit,
        before=before,
        after=after,
        change=after - before,
        relative=relative_change(before, after),
    )


class _Ops:
    """The source ops of a plan with their kernels; a kernel counts for its first source op."""

    def __init__(self, report: PlanReport) -> None:
        self.report = report
        self.sources = report.source_ops
        self.by_ref = {(op.subgraph, op.index): k for k, op in enumerate(self.sources)}
        self.kernels: dict[int, list[OpFacts]] = {}
        self.members: dict[int, set[int]] = {}
        for op in report.ops:
            own = [self.by_ref[ref] for ref in op.source_ops if ref in self.by_ref]
            if own:
                self.kernels.setdefault(own[0], []).append(op)
            self.members.setdefault(op.segment, set()).update(own)

    def shape(self, k: int) -> tuple[int, ...]:
        """Shape of what op ``k`` makes; () if it has no kernel."""
        kernels = self.kernels.get(k, ())
        return kernels[-1].ofm_shape if kernels else ()

    def chain(self, k: int) -> frozenset[int]:
        """Ops in the segments of op ``k``, itself included."""
        segments = {op.segment for op in self.kernels.get(k, ())}
        return frozenset(member for s in segments for member in self.members[s])

    def side(self, k: int) -> OpSide:
        """Op ``k`` as it runs in this plan."""
        source, kernels, target = self.sources[k], self.kernels.get(k, []), self.report.target
        cycles = sum(op.cycles for op in kernels)
        cpu_cycles = sum(op.cpu_cycles for op in kernels)
        last = None
        if kernels and 0 <= kernels[-1].segment < len(self.report.segments):
            last = self.report.segments[kernels[-1].segment]
        return OpSide(
            index=source.index,
            kind=source.kind,
            placement=source.placement,
            kernels=len(kernels),
            cycles=cycles,
            cpu_cycles=cpu_cycles,
            time_s=cycles / target.clock_hz + cpu_cycles / target.cpu.clock_hz,
            chain_ops=len(self.chain(k)),
            stripe_rows=0 if last is None else last.stripe_rows,
            stripes=0 if last is None else last.stripes,
        )


Pairs = dict[int, tuple[int, Literal["index", "name", "order"]]]
"""Op of the first plan -> the same op of the second, and how it was found."""


def _op_changes(
    before: PlanReport, after: PlanReport, *, same_model: bool
) -> tuple[list[OpChange], int]:
    """Ops that differ, and how many do not."""
    a, b = _Ops(before), _Ops(after)
    pairs = _by_index(a, b) if same_model else _by_name(a, b)
    partner = {k: j for k, (j, _) in pairs.items()}
    changes, unchanged = [], 0
    for k, (j, how) in pairs.items():
        sides = a.side(k), b.side(j)
        chains = {partner.get(member, -1) for member in a.chain(k)}, set(b.chain(j))
        changed = _changed(*sides, same_chain=chains[0] == chains[1])
        unchanged += not changed
        if changed:
            changes.append(
                OpChange(
                    state="changed",
                    name=b.sources[j].name,
                    matched_by=how,
                    changed=changed,
                    change_s=sides[1].time_s - sides[0].time_s,
                    before=sides[0],
                    after=sides[1],
                )
            )
    taken = set(partner.values())
    removed = (k for k in range(len(a.sources)) if k not in pairs)
    added = (j for j in range(len(b.sources)) if j not in taken)
    changes += [_one_sided(a, k, "removed") for k in removed]
    changes += [_one_sided(b, j, "added") for j in added]
    return changes, unchanged


def _one_sided(ops: _Ops, k: int, state: Literal["added", "removed"]) -> OpChange:
    side, is_new = ops.side(k), state == "added"
    return OpChange(
        state=state,
        name=ops.sources[k].name,
        matched_by="",
        changed=(),
        change_s=side.time_s if is_new else -side.time_s,
        before=None if is_new else side,
        after=side if is_new else None,
    )


def _changed(before: OpSide, after: OpSide, *, same_chain: bool) -> tuple[ChangedPart, ...]:
    found: list[ChangedPart] = []
    if before.kind != after.kind:
        found.append("kind")
    if before.placement != after.placement:
        found.append("placement")
    if before.time_s != after.time_s:
        found.append("time")
    if not same_chain and (before.chain_ops > 1 or after.chain_ops > 1):
        found.append("chain")
    runs = (before.stripe_rows, before.stripes), (after.stripe_rows, after.stripes)
    if runs[0] != runs[1] and max(before.stripes, after.stripes) > 1:
        found.append("stripes")
    return tuple(found)


def _by_index(a: _Ops, b: _Ops) -> Pairs:
    return {
        k: (b.by_ref[(op.subgraph, op.index)], "index")
        for k, op in enumerate(a.sources)
        if (op.subgraph, op.index) in b.by_ref
    }


def _by_name(a: _Ops, b: _Ops) -> Pairs:
    """Match by kind and name, then by name, then by kind and shape in order, then by kind in order.

    Each pass looks at what the passes before left over, and takes equal keys in file order, so a
    file of n ops needs n steps.
    """
    pairs: Pairs = {}
    passes: Sequence[tuple[Literal["name", "order"], Callable[[_Ops, int], Hashable]]] = (
        ("name", lambda ops, k: ops.sources[k].name and (ops.sources[k].kind, ops.sources[k].name)),
        ("name", lambda ops, k: ops.sources[k].name),
        ("order", lambda ops, k: (ops.sources[k].kind, ops.shape(k))),
        ("order", lambda ops, k: ops.sources[k].kind),
    )
    taken: set[int] = set()
    for how, key_of in passes:
        waiting: dict[Hashable, list[int]] = {}
        for j in reversed(range(len(b.sources))):
            if j not in taken and (key := key_of(b, j)):
                waiting.setdefault(key, []).append(j)
        for k in range(len(a.sources)):
            found = waiting.get(key_of(a, k)) if k not in pairs else None
            if found:
                j = found.pop()
                taken.add(j)
                pairs[k] = (j, how)
    return pairs


def _rank(change: OpChange) -> tuple[float, int, int]:
    side = change.after or change.before
    return (-abs(change.change_s), change.state == "changed", 0 if side is None else side.index)
