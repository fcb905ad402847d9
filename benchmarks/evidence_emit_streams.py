"""Emitted streams: Vela's own schedule word for word, random plans exact, damage always found.

Every model of the corpus on six accelerators. First Vela's uncascaded schedule is emitted again and
compared with Vela's stream command by command. Then random plans (cascades, heights, policies,
resident and sliced weights, prefetches, placements, blocks) are emitted, pass the release gate, and
are executed: outputs and intermediates against LiteRT's reference kernels at tolerance 0. Every
stream is then broken on purpose in several ways; each must fail the gate.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.emit_damage import (
    swapped_stripes,
    with_block_dependency,
    without_any_wait,
    without_top_padding,
)
from benchmarks.emit_plans import random_plan, with_random_blocks
from benchmarks.evidence import (
    Case,
    Evidence,
    Row,
    case_of,
    corpus,
    corpus_files,
    counts_of,
    hw_configs,
    not_done,
    refusal,
)
from benchmarks.plan_damage import with_rows
from npusched.api.options import PlanOptions
from npusched.api.planning import Prepared, prepare
from npusched.emission.build import finish
from npusched.emission.constants import RebuiltConstants
from npusched.emission.container import write_file
from npusched.emission.gate import check_file
from npusched.emission.identity import compare_streams, emit_identity
from npusched.emission.matching import KernelMatch, match_kernels
from npusched.emission.parts import Emitted
from npusched.emission.planned import emit_plan, plan_issue
from npusched.emission.template import Template, make_template
from npusched.errors import EmitError, NpuschedError, SimError
from npusched.hardware import Target, load_target
from npusched.schedule import Plan
from npusched.schedule.types import BufferKind
from npusched.sim.container import read_compiled_file, run_operator
from npusched.sim.proof import Verdict, prove_compiled
from npusched.vela.cache import VelaCache

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ACCELERATORS = (
    "ethos-u55-32",
    "ethos-u55-64",
    "ethos-u55-128",
    "ethos-u55-256",
    "ethos-u65-256",
    "ethos-u65-512",
)

PLANS = 2
"""Random plans per model and accelerator; every second one with random blocks, too."""

INPUTS = 2
FUZZED_BYTES = 150_000
"""Random plans for files up to this size."""

FUZZED_KERNELS = 300
FUZZED_ARENA_BYTES = 1_000_000
"""Larger ones take minutes to execute."""

SWAPS = 3
HEAVY_BYTES = 150_000
"""CI measures no models again whose file is larger than this."""


UNROLLED = "models/coral_deeplabv3_mnv2_dm05_uint8.tflite"
"""65,866 kernels: on the first accelerator only."""


def cases() -> list[Case]:
    """(model, accelerator)."""
    return [
        (path, config)
        for path in corpus_files()
        for config in (ACCELERATORS[:1] if path == UNROLLED else ACCELERATORS)
    ]


def measure(case: Case) -> Row:
    """Emit one model on one accelerator in all ways."""
    path, config = case
    target = load_target(config)
    try:
        content = (corpus() / path).read_bytes()
        template = make_template(content, target, cache=VelaCache())
    except NpuschedError as error:
        return {"status": refusal(error)}
    row: Row = {"status": "emitted", **_identity(template, target)}
    arena = template.partitions[0].regions[1].size_bytes
    is_small = len(content) <= FUZZED_BYTES and arena <= FUZZED_ARENA_BYTES
    if is_small and len(template.kernels) <= FUZZED_KERNELS:
        try:
            row["plans"] = _fuzz(content, path, target, template)
        except NpuschedError as error:
            row["plans_refused"] = refusal(error)
    return row


def _identity(template: Template, target: Target) -> Row:
    emitted = emit_identity(template)
    found = compare_streams(template, emitted)
    gate = check_file(write_file(emitted), emitted, target)
    vela = template.partitions[0].regions[1].size_bytes
    return {
        "operators": len(template.partitions),
        "kernels": len(template.kernels),
        "lower_blockdep": len(found.block_dependencies),
        "higher_blockdep": sum(ours > theirs for _, _, ours, theirs in found.block_dependencies),
        "other_differences": len(found.others) + abs(found.words),
        "same_constants": emitted.read_only == template.read_only,
        "arena_below_vela": vela - emitted.arena_bytes,
        "failed": [check.name for check in gate.failed],
    }


def _fuzz(content: bytes, path: str, target: Target, template: Template) -> list[Row]:
    allow = ("staged-input",) if target.roles.arena != target.roles.cache else ()
    options = PlanOptions(candidates="none", allow=allow)
    ready = prepare(content, name=Path(path).stem, target=target, options=options)
    planner = options.planner(ready.graph, target, ready.sizes.of).given
    match = match_kernels(template, ready.model, ready.graph)
    rows = []
    for seed in range(PLANS):
        rng = random.Random(f"{path} {target.name} {seed}")
        plan = random_plan(planner, rng)
        if seed % 2:
            plan = with_random_blocks(plan, template, dict(match.kernels), rng)
        rows.append(_plan_row(content, ready, template, match, plan, rng))
    return rows


def _plan_row(
    content: bytes,
    ready: Prepared,
    template: Template,
    match: KernelMatch,
    plan: Plan,
    rng: random.Random,
) -> Row:
    try:
        emitted = emit_plan(template, ready.model, ready.graph, plan, match=match)
    except EmitError as error:
        return {"refused": refusal(error)}
    written = write_file(emitted)
    gate = check_file(written, emitted, template.target)
    try:
        proof = prove_compiled(content, written, INPUTS)
        verdict, missing = str(proof.verdict), len(proof.intermediates.missing)
    except SimError:
        verdict, missing = _like_vela(template, written), 0
    tried: Counter[str] = Counter()
    harmless: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for name, damaged in _damaged(ready, template, match, plan, emitted, rng):
        tried[name] += 1
        if damaged is None:
            continue
        broken = write_file(damaged)
        if not check_file(broken, damaged, template.target).failed:
            counts = harmless if _is_harmless(name, content, broken) else missed
            counts[name] += 1
    return {
        "kernels": sum(len(stream.kernels) for stream in emitted.streams),
        "cascades": sum(len(segment.ops) > 1 for segment in plan.segments),
        "failed": [check.name for check in gate.failed],
        "verdict": verdict,
        "missing": missing,
        "damaged": dict(sorted(tried.items())),
        "harmless": dict(sorted(harmless.items())),
        "missed": dict(sorted(missed.items())),
    }


def _like_vela(template: Template, written: bytes) -> str:
    """Run the NPU operators of our file and of Vela's, where LiteRT cannot run the model."""
    for ours, theirs in zip(
        read_compiled_file(written).operators, template.partitions, strict=True
    ):
        rng = np.random.default_rng(0)
        inputs = {
            placed.tensor.index: rng.integers(0, 256, (INPUTS, placed.tensor.size_bytes), np.uint8)
            .view(placed.numpy_type)
            .reshape(INPUTS, *placed.tensor.shape)
            for placed in theirs.inputs
        }
        got = run_operator(ours, ours.load(), inputs)
        wanted = run_operator(theirs, theirs.load(), inputs)
        if any(not np.array_equal(got[index], wanted[index]) for index in wanted):
            return "different"
    return "equal to Vela's operators"


TIMED = "blockdep_3"
"""Damage that shows in time only, not in the values of a simulator that runs kernel by kernel."""


def _is_harmless(name: str, content: bytes, broken: bytes) -> bool:
    """True if nothing speaks against a broken stream that passes the gate.

    Stripes of a kernel may be exchanged where all that they read is there. Values cannot tell
    whether a BLOCKDEP is too large: the report counts such streams as undecided.
    """
    if name == TIMED:
        return True
    try:
        return prove_compiled(content, broken, INPUTS).verdict is Verdict.EQUAL
    except SimError:
        return False


def _damaged(
    ready: Prepared,
    template: Template,
    match: KernelMatch,
    plan: Plan,
    emitted: Emitted,
    rng: random.Random,
) -> Iterator[tuple[str, Emitted | None]]:
    """(kind, broken streams) of those that differ from the right ones; None: refused at once."""
    rolling = [k for k, b in enumerate(plan.buffers) if b.kind is BufferKind.ROLLING]
    for number in rng.sample(rolling, min(2, len(rolling))):
        try:
            shorter = with_rows(plan, number, -1)
            yield (
                "short_buffer",
                emit_plan(template, ready.model, ready.graph, shorter, match=match),
            )
        except EmitError:
            yield "short_buffer", None
    changed = {
        "no_waits": without_any_wait(emitted),
        "blockdep_3": with_block_dependency(emitted, 3),
        "no_top_padding": without_top_padding(emitted),
    }
    for name, damaged in changed.items():
        if damaged.streams != emitted.streams:
            yield name, damaged
    issue = plan_issue(template, ready.model, ready.graph, plan, match, RebuiltConstants(template))
    swaps = list(swapped_stripes(issue))
    for wrong in rng.sample(swaps, min(SWAPS, len(swaps))):
        yield "swapped_stripes", finish(template, wrong, RebuiltConstants(template))


# --- the page -------------------------------------------------------------------------------


def render(rows: Sequence[Row]) -> str:
    """Totals, and every stream that is not as it should be by name."""
    done = [row for row in rows if row["status"] == "emitted"]
    lines = [
        "Vela's uncascaded schedule emitted again (`npusched emit --identity`) and compared with",
        "Vela's stream, and random plans emitted, checked, executed and broken on purpose. Damage",
        "that is refused while a stream is made counts as found.",
        "",
        f"{len(done)} of {len(rows)} cases are emitted; the others are refused by name (below).",
        "",
        "| accelerator | models | kernels | BLOCKDEP lower | higher | other differences | gate |",
        "|---|---|---|---|---|---|---|",
    ]
    for config in ACCELERATORS:
        own = [row for row in done if case_of(row)[1] == config]
        lines.append(
            f"| {config} | {len(own)} | {_sum(own, 'kernels')} | {_sum(own, 'lower_blockdep')} "
            f"| {_sum(own, 'higher_blockdep')} | {_sum(own, 'other_differences')} "
            f"| {sum(not row['failed'] for row in own)} pass |"
        )
    plans = [plan for row in done for plan in _plans(row)]
    made = [plan for plan in plans if "refused" not in plan]
    verdicts = Counter(str(plan["verdict"]) for plan in made)
    tried: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    harmless: Counter[str] = Counter()
    for plan in made:
        harmless.update(counts_of(plan, "harmless"))
        tried.update(counts_of(plan, "damaged"))
        missed.update(counts_of(plan, "missed"))
    lines += [
        "",
        f"Random plans: {len(made)} streams with {_sum(made, 'kernels')} kernels and "
        f"{_sum(made, 'cascades')} cascades; {len(plans) - len(made)} refused; "
        f"{sum(not p['failed'] for p in made)} pass the gate.",
        "",
        *(f"- {count} {verdict}" for verdict, count in sorted(verdicts.items())),
        "",
        "Harmless: executed, with the same values (stripes that do not depend on each other).",
        "Undecided: the gate reports nothing, and executing cannot tell. Whether a BLOCKDEP is too",
        "large is a matter of time, which the simulator does not have: for it there is the gate's",
        "rule alone, and no independent judge.",
        "",
        "| damage | streams | found | harmless | undecided | missed |",
        "|---|---|---|---|---|---|",
        *(
            _damage_row(name, count, harmless[name], missed[name])
            for name, count in sorted(tried.items())
        ),
        "",
        "Not as they should be, or refused:",
        "",
        *_exceptions(done),
        *not_done(rows, "emitted"),
    ]
    return "\n".join(lines) + "\n"


def _damage_row(name: str, count: int, passed: int, missed: int) -> str:
    """What became of one kind of damage; ``passed``: the gate, and nothing speaks against it."""
    found = count - passed - missed
    if name == TIMED:
        return f"| {name} | {count} | {found} | - | {passed} | - |"
    return f"| {name} | {count} | {found} | {passed} | 0 | {missed} |"


def _exceptions(done: Sequence[Row]) -> Iterator[str]:
    for row in done:
        case = " ".join(case_of(row))
        if row["failed"] or row["other_differences"] or row["higher_blockdep"]:
            yield f"- {case}: identity differs or fails {row['failed']}"
        if "plans_refused" in row:
            yield f"- {case}: no random plans: {row['plans_refused']}"
        for plan in _plans(row):
            if "refused" in plan:
                yield f"- {case}: a random plan is refused: {plan['refused']}"
            elif plan["failed"] or plan["verdict"] == "different" or plan["missed"]:
                yield (
                    f"- {case}: {plan['verdict']}, fails {plan['failed']}, missed {plan['missed']}"
                )


def _plans(row: Row) -> list[Row]:
    plans = row.get("plans", [])
    assert isinstance(plans, list)
    return plans


def _sum(rows: Sequence[Row], key: str) -> int:
    total = 0
    for row in rows:
        value = row[key]
        assert isinstance(value, int)
        total += value
    return total


EVIDENCE = Evidence(
    name="emit_streams",
    title="Emitted streams",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=3,
    heavy=lambda case: (
        "keyword_scrambled" in case[0]  # LiteRT crashes on it, or loops for ever
        or case[0] == UNROLLED
        or (corpus() / case[0]).stat().st_size > HEAVY_BYTES
    ),
)
