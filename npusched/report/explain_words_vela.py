"""What Vela does with a limit, in words."""

from __future__ import annotations

from npusched.report.explain_vela_types import VelaExplanation, VelaRun
from npusched.report.explain_words import ops_label
from npusched.report.units import (
    group_digits,
    human_bytes,
    log_text,
    percent_change,
    plural,
)

_CHAINS = 4


def vela_sentences(facts: VelaExplanation) -> list[str]:
    """Return what the runs show, and why Vela divides our chains as it does."""
    runs = facts.runs
    asked = runs[facts.asked]
    found = [_asked(facts, asked)]
    free = next((run for run in runs if run.asked_bytes is None and run is not asked), None)
    if asked.asked_bytes is not None and free is not None:
        found.append(
            f"Without a limit it uses {human_bytes(free.used_bytes)} and reports "
            f"{group_digits(free.reported_cycles)} cycles."
        )
    over = [run for run in runs if run.is_over]
    if over:
        worst = max(over, key=lambda run: run.used_bytes - (run.asked_bytes or 0))
        found.append(
            f"{plural(len(over), 'limit')} of {sum(r.asked_bytes is not None for r in runs)} tried "
            f"{'is' if len(over) == 1 else 'are'} exceeded, without an error: asked for "
            f"{group_digits(worst.asked_bytes or 0)} bytes it uses "
            f"{group_digits(worst.used_bytes)}."
        )
    found += _backfires(runs)
    found.append(_ours(facts, asked))
    across = [chain for chain in facts.chains if len(chain.source_ops) > 1]
    for chain in across[:_CHAINS]:
        groups = " + ".join(str(count) for count in chain.vela_groups)
        found.append(
            f"{ops_label(chain.source_ops, ())}, a chain of ours of {chain.ops}: "
            f"{group_digits(chain.cycles)} cycles in {human_bytes(chain.sram_bytes)}; Vela runs "
            f"them as {groups}: {group_digits(chain.vela_cycles)} cycles in "
            f"{human_bytes(chain.vela_sram_bytes)}. {log_text(chain.why, 240)}."
        )
    if len(facts.chains) > len(across[:_CHAINS]):
        rest = len(facts.chains) - len(across[:_CHAINS])
        found.append(f"{plural(rest, 'more chain')}, or inside one op of the file: --format json.")
    if facts.unmatched:
        found.append(f"Its schedule is no plan over our ops: {log_text(facts.unmatched, 200)}.")
    return found


def _asked(facts: VelaExplanation, run: VelaRun) -> str:
    limit = "no limit" if run.asked_bytes is None else f"{group_digits(run.asked_bytes)} bytes"
    within = ""
    if run.asked_bytes is not None:
        more = run.used_bytes - run.asked_bytes
        within = f", {group_digits(more)} more than that" if run.is_over else ", within the limit"
    return (
        f"Asked for {limit}, Vela {log_text(facts.version, 20)} uses "
        f"{human_bytes(run.used_bytes)} ({group_digits(run.used_bytes)} bytes{within}) and "
        f"reports {group_digits(run.reported_cycles)} cycles, {plural(run.kernels, 'kernel')} "
        f"({plural(run.operations, 'NPU op')} with what is fused), "
        f"{plural(run.cpu_ops, 'CPU op')}, {plural(run.cascades, 'cascade')}."
    )


def _backfires(runs: tuple[VelaRun, ...]) -> list[str]:
    """Limits that give more SRAM or more cycles than another request, and no less of either."""
    worse = [run for run in runs if run.worse_than is not None and run.asked_bytes is not None]
    if not worse:
        return []
    run = max(worse, key=lambda each: _excess(runs, each))
    assert run.worse_than is not None
    assert run.asked_bytes is not None
    better = runs[run.worse_than]
    limit = (
        "no limit" if better.asked_bytes is None else f"{group_digits(better.asked_bytes)} bytes"
    )
    return [
        f"A limit can make it worse: with {group_digits(run.asked_bytes)} bytes it uses "
        f"{human_bytes(run.used_bytes)} and {group_digits(run.reported_cycles)} cycles, with "
        f"{limit} ({better.options}) {human_bytes(better.used_bytes)} and "
        f"{group_digits(better.reported_cycles)}."
    ]


def _excess(runs: tuple[VelaRun, ...], run: VelaRun) -> tuple[int, int]:
    """Cycles and SRAM that a run takes beyond the one that betters it."""
    better = runs[run.worse_than or 0]
    return run.reported_cycles - better.reported_cycles, run.used_bytes - better.used_bytes


def _ours(facts: VelaExplanation, asked: VelaRun) -> str:
    if asked.ours_cycles is None or asked.ours_sram_bytes is None:
        return (
            "No plan of ours fits this limit; the least is "
            f"{group_digits(facts.smallest_feasible_bytes)} bytes."
        )
    text = (
        f"Our plan for the same limit: {group_digits(asked.ours_cycles)} cycles in "
        f"{human_bytes(asked.ours_sram_bytes)}"
    )
    if asked.striped_cycles is not None:
        change = percent_change(asked.ours_cycles, asked.striped_cycles)
        text += f" ({change} against Vela's schedule, costed alike)"
    return f"{text}; our least is {human_bytes(facts.smallest_feasible_bytes)}."
