"""A check for machines that watch builds: GitHub annotations, SARIF 2.1.0, JUnit XML, JSON."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape, quoteattr

import msgspec

from npusched.report.annotations import (
    MOST_CHARACTERS,
    github_command,
    sarif_location,
    sarif_log,
)
from npusched.report.check_text import failed_gates, summary
from npusched.report.check_types import CheckReport, Gate
from npusched.report.units import human_frequency, plain_text

RULES: Final = {
    "sram": "No plan fits the SRAM budget",
    "max-sram": "SRAM peak above the limit",
    "max-latency": "Latency above the limit",
    "max-flash": "Constants in flash above the limit",
    "max-dram-bytes": "DRAM traffic above the limit",
    "max-cpu-ops": "More ops on the CPU than allowed",
    "max-energy": "Energy above the limit",
    "max-offchip-bytes": "No plan keeps the limit on off-chip bytes",
    "max-regression-cycles": "More NPU cycles than the baseline",
    "max-regression-latency": "More latency than the baseline",
    "max-regression-sram": "More SRAM than the baseline",
    "max-regression-flash": "More constants in flash than the baseline",
    "max-regression-energy": "More energy than the baseline",
}
"""Gate id -> what it means if it fails."""


def render_check_json(report: CheckReport) -> str:
    """Return the check as indented JSON with exact figures."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def render_check_github(report: CheckReport, *, path: str = "") -> str:
    """Return workflow commands: an error per failed gate, or a notice that all passed.

    ``path``: of the model in the repository, "" if it has none.
    """
    where = f"{plain_text(report.model, 100)} on {plain_text(report.target, 60)}"
    if report.verdict == "pass":
        return github_command("notice", path, f"npusched: {where}", summary(report))
    return "\n".join(
        github_command("error", path, f"npusched: {RULES[gate.id]}", f"{where}: {message(gate)}")
        for gate in failed_gates(report)
    )


def message(gate: Gate) -> str:
    """What a failed gate says, on one line, without anything that is not printable."""
    parts = [gate.text, f"hint: {gate.help}"] if gate.help else [gate.text]
    return plain_text(". ".join(parts), MOST_CHARACTERS)


def render_check_sarif(report: CheckReport, *, path: str = "") -> str:
    """Return a SARIF 2.1.0 log: one run, a rule per gate, a result per failed gate.

    ``path``: of the model, relative to the repository where the log is uploaded from there. SARIF
    wants a place in a text; a model has none, so results are on its first line.
    """
    gates = list({gate.id: gate for gate in report.gates}.values())
    results = [
        {
            "ruleId": gate.id,
            "ruleIndex": gates.index(gate),
            "kind": "fail",
            "level": "error",
            "message": {"text": message(gate)},
            "locations": [sarif_location(path or report.model or "model")],
            "partialFingerprints": {
                "npusched/v1": f"{plain_text(report.target, 60)}/{gate.id}",
            },
            "properties": {
                "metric": gate.metric,
                "unit": gate.unit,
                "value": gate.value,
                "limit": gate.limit,
                "excess": gate.excess,
            },
        }
        for gate in gates
        if not gate.passed
    ]
    rules = [(gate.id, RULES[gate.id]) for gate in gates]
    return sarif_log(report.npusched_version, rules, results)


def render_check_junit(report: CheckReport) -> str:
    """Return JUnit XML: a suite per check, a test case per gate."""
    failed = failed_gates(report)
    where = f"{plain_text(report.model, 100)} on {plain_text(report.target, 60)}"
    clock = human_frequency(report.clock_hz)
    counts = f'tests="{len(report.gates)}" failures="{len(failed)}" errors="0" skipped="0"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="npusched check" {counts}>',
        f"  <testsuite name={quoteattr(where)} {counts}>",
        "    <properties>",
        *(
            f"      <property name={quoteattr(name)} value={quoteattr(plain_text(value, 100))}/>"
            for name, value in (
                ("npusched", report.npusched_version),
                ("vela", report.vela_version or "not asked"),
                ("clock", clock),
                ("memory_mode", report.memory_mode),
                ("sha256", report.sha256),
            )
        ),
        "    </properties>",
    ]
    for gate in report.gates:
        head = f"    <testcase classname={quoteattr(f'npusched.{where}')} name={quoteattr(gate.id)}"
        if gate.passed:
            lines.append(f"{head}/>")
            continue
        said = message(gate)
        lines += [
            f"{head}>",
            f'      <failure type="{gate.kind}" message={quoteattr(RULES[gate.id])}>'
            f"{escape(said)}</failure>",
            "    </testcase>",
        ]
    lines += ["  </testsuite>", "</testsuites>"]
    return "\n".join(lines) + "\n"
