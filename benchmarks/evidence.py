"""``python -m benchmarks.evidence NAME``: measure over the corpus and write ``reports/NAME.*``.

A piece of evidence is a function from one case to one row of figures. The report holds all rows
(JSON) and a readable page (Markdown), the hash of everything that the rows depend on apart from
our code, and the versions and date. CI checks the hash and measures a seeded sample of the rows
again (``tests/test_evidence.py``).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import importlib
import json
import os
import platform
import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from npusched.errors import NpuschedError

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
SAMPLE_SHARE = 0.05

Row: TypeAlias = "dict[str, object]"
Case: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One report: its cases, how a case is measured, and how all rows read as Markdown.

    A case is a tuple of texts; the first is a path below the corpus. ``inputs`` are further files
    that the rows depend on. ``sample_size``: cases that CI measures again (default: 5 %).
    ``heavy``: cases that take too long to be among them.
    """

    name: str
    title: str
    cases: Callable[[], Sequence[Case]]
    measure: Callable[[Case], Row]
    render: Callable[[Sequence[Row]], str]
    inputs: Callable[[], Sequence[Path]]
    sample_size: int | None = None
    heavy: Callable[[Case], bool] = lambda _: False


NAMES = (
    "placement",
    "lowering",
    "cost",
    "buffering",
    "crosscheck",
    "sweep",
    "ground_truth",
    "mutations",
    "executed",
    "silicon",
    "advice",
    "frontier",
    "plans",
    "weights",
    "hazards",
    "proofs",
    "tune",
    "emit",
    "emit_streams",
)


def load(name: str) -> Evidence:
    """Return the evidence of that name (module ``benchmarks.evidence_NAME``)."""
    found = importlib.import_module(f"benchmarks.evidence_{name}").EVIDENCE
    assert isinstance(found, Evidence)
    return found


def corpus() -> Path:
    """The corpus folder (``NPUSCHED_CORPUS``, or ``shared`` beside the repository)."""
    named = os.environ.get("NPUSCHED_CORPUS")
    return Path(named) if named else ROOT.parent / "shared"


def corpus_files() -> list[str]:
    """Every model of the corpus as a path below it."""
    return [
        f"{folder}/{path.name}"
        for folder in ("models", "cases")
        for path in sorted((corpus() / folder).glob("*.tflite"))
    ]


def hw_configs() -> list[Path]:
    """The target files of Arm's accelerators and what they share (no boards)."""
    return sorted((ROOT / "hw_configs").glob("[e_]*.toml"))


def refusal(error: NpuschedError) -> str:
    """What an error says, as a row's status; not how a process crashed, which varies."""
    if "crashed" in error.what:
        return f"{type(error).__name__}: {error.what}"
    return f"{type(error).__name__}: {error.what}; {error.why}"[:200]


def input_hash(evidence: Evidence) -> str:
    """SHA-256 over the cases, their models, the further inputs and Vela's version."""
    digest = hashlib.sha256()
    models = {}
    for case in evidence.cases():
        digest.update(repr(case).encode())
        models[case[0]] = corpus() / case[0]
    for name in sorted(models):
        digest.update(hashlib.sha256(models[name].read_bytes()).digest())
    for path in evidence.inputs():
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    digest.update(version("ethos-u-vela").encode())
    return digest.hexdigest()


def measure_all(evidence: Evidence, cases: Sequence[Case], workers: int) -> list[Row]:
    """Measure cases in processes of their own, in order."""
    rows = []
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        jobs = [pool.submit(_measure, evidence.name, case) for case in cases]
        for number, job in enumerate(jobs, 1):
            rows.append(job.result())
            if number % 20 == 0 or number == len(jobs):
                sys.stderr.write(f"{evidence.name}: {number}/{len(jobs)}\n")
    return rows


def case_of(row: Row) -> tuple[str, ...]:
    """The case that a row is about."""
    found = row["case"]
    assert isinstance(found, list)
    return tuple(str(part) for part in found)


def not_done(rows: Sequence[Row], done: str = "compared") -> list[str]:
    """Lines of the cases with another status: once for each model and reason, numbers aside."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["status"] != done:
            alike = re.sub(r"[0-9]+", "#", str(row["status"]))
            groups.setdefault((case_of(row)[0], alike), []).append(row)
    return [
        f"- {model}: {same[0]['status']} ({', '.join(' '.join(case_of(row)[1:]) for row in same)})"
        for (model, _), same in groups.items()
    ] or ["- none"]


def counts_of(row: Row, key: str) -> dict[str, int]:
    """Counts by name in a row."""
    found = row[key]
    assert isinstance(found, dict)
    return found


def _measure(name: str, case: Case) -> Row:
    return {"case": list(case), **load(name).measure(case)}


def sample(evidence: Evidence, seed: int = 0) -> list[Case]:
    """The cases that CI measures again: 5 %, at least three, or as many as the evidence says."""
    cases = [case for case in evidence.cases() if not evidence.heavy(case)]
    count = evidence.sample_size or max(3, round(len(cases) * SAMPLE_SHARE))
    return sorted(random.Random(seed).sample(cases, min(len(cases), count)))


def write(evidence: Evidence, rows: Sequence[Row]) -> None:
    """Write ``reports/NAME.json`` and ``reports/NAME.md``."""
    facts = {
        "name": evidence.name,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "npusched": version("npusched"),
            "ethos-u-vela": version("ethos-u-vela"),
            "numpy": version("numpy"),
            "python": platform.python_version(),
        },
        "command": f"python -m benchmarks.evidence {evidence.name}",
        "input_sha256": input_hash(evidence),
    }
    REPORTS.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
    head = json.dumps(facts, indent=1)[:-2]
    (REPORTS / f"{evidence.name}.json").write_text(f'{head},\n "rows": [\n{lines}\n]}}\n')
    versions = ", ".join(f"{k} {v}" for k, v in sorted(_texts(facts["versions"]).items()))
    page = (
        f"# {evidence.title}\n\n{evidence.render(rows)}\n\n"
        f"Written by `{facts['command']}` on {facts['date']} ({versions}); "
        f"rows in `{evidence.name}.json`.\n"
    )
    (REPORTS / f"{evidence.name}.md").write_text(page)


def _texts(value: object) -> dict[str, str]:
    assert isinstance(value, dict)
    return value


def stored(name: str) -> dict[str, object]:
    """Return the committed report."""
    found = json.loads((REPORTS / f"{name}.json").read_text())
    assert isinstance(found, dict)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help=f"one of {', '.join(NAMES)}, or a new one")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    evidence = load(arguments.name)
    write(evidence, measure_all(evidence, evidence.cases(), arguments.workers))


if __name__ == "__main__":
    # Not this module's own copy: the evidence modules import ``benchmarks.evidence``.
    importlib.import_module("benchmarks.evidence").main()
