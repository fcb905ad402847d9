"""What a plan has to say about a model, for machines that watch builds: GitHub and SARIF.

Findings are the advice, the ops that fall to the CPU (one per limit that they break), and the
warnings of the plan.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec

from npusched.report.annotations import (
    MOST_CHARACTERS,
    github_command,
    sarif_location,
    sarif_log,
)
from npusched.report.text_tables import fallbacks
from npusched.report.types import PlanReport
from npusched.report.units import human_bytes, human_seconds, plain_text

CPU_RULE: Final = "NS-CPU"
WARNING_RULE: Final = "NS-WARNING"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to say: ``rule`` names its kind, ``text`` is one line."""

    rule: str
    level: Literal["warning", "notice"]
    title: str
    text: str


def findings(report: PlanReport) -> list[Finding]:
    """Advice first, then the ops on the CPU, then warnings."""
    found = [
        Finding(
            rule=plain_text(item.id, 40),
            level="warning" if item.severity == "warning" else "notice",
            title=f"advice {plain_text(item.id, 40)}",
            text=plain_text(item.message, MOST_CHARACTERS),
        )
        for item in report.advice
    ]
    for group in fallbacks(report):
        fix = f". Fix: {group.reason.fix}" if group.reason.fix else ""
        found.append(
            Finding(
                rule=CPU_RULE,
                level="warning",
                title="on the CPU",
                text=plain_text(f"{group.which}: {group.why}{fix}", MOST_CHARACTERS),
            )
        )
    found += [
        Finding(
            rule=WARNING_RULE,
            level="notice",
            title="warning",
            text=plain_text(text, MOST_CHARACTERS),
        )
        for text in report.warnings
    ]
    return found


def render_plan_github(report: PlanReport, *, path: str = "") -> str:
    """Return workflow commands: the plan in one notice, then one command per finding.

    ``path``: of the model in the repository, "" if it has none.
    """
    where = f"{plain_text(report.model.name, 100)} on {plain_text(report.target.name, 60)}"
    totals = report.totals
    summary = (
        f"{human_seconds(totals.latency_s)}, {human_bytes(totals.sram_peak_bytes)} SRAM, "
        f"{human_bytes(totals.constant_bytes)} constants (predicted)"
    )
    return "\n".join(
        [
            github_command("notice", path, f"npusched: {where}", summary),
            *(
                github_command(item.level, path, f"npusched: {item.title}", f"{where}: {item.text}")
                for item in findings(report)
            ),
        ]
    )


def render_plan_sarif(report: PlanReport, *, path: str = "") -> str:
    """Return a SARIF 2.1.0 log with one result per finding; none if there is nothing to say."""
    found = findings(report)
    rules = list(dict.fromkeys(item.rule for item in found))
    meanings = {CPU_RULE: "Ops run on the CPU", WARNING_RULE: "The plan rests on an assumption"}
    results: list[dict[str, object]] = [
        {
            "ruleId": item.rule,
            "ruleIndex": rules.index(item.rule),
            "kind": "fail",
            "level": "warning" if item.level == "warning" else "note",
            "message": {"text": item.text},
            "locations": [sarif_location(path or report.model.name or "model")],
            "partialFingerprints": {"npusched/v1": _fingerprint(report, item)},
        }
        for item in found
    ]
    texts = [(rule, meanings.get(rule, f"Advice {rule} applies to the model")) for rule in rules]
    return sarif_log(report.npusched_version, texts, results)


def _fingerprint(report: PlanReport, item: Finding) -> str:
    """The same for the same finding on the same target, whatever its figures are."""
    words = "".join(c for c in item.text if not c.isdigit())
    digest = hashlib.sha256(f"{report.target.name}/{item.rule}/{words}".encode()).hexdigest()
    return digest[:16]
