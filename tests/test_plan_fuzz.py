"""Damaged models end in a plan, or in an error for the user: never in a traceback or a hang."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from npusched.demos import demo
from tests.conftest import corpus_models
from tests.fuzzing import mutations

FILES = 2000
LARGEST_BYTES = 100_000
SECONDS = 5.0
PEAK_KIB = 1 << 20
SHARDS = (("ethos-u55-128", 0), ("ethos-u85-256", 1), ("ethos-u65-256", 2), ("cortex-m55", 3))


def _sources() -> list[bytes]:
    """Built-in models, and the small models of the corpus where it is at hand."""
    sources = [demo(name) for name in ("block", "ds_cnn", "autoencoder", "chain:12")]
    small = [p for p in corpus_models() if p.stat().st_size < LARGEST_BYTES]
    return sources + [path.read_bytes() for path in small]


@pytest.mark.parametrize(("config", "shard"), SHARDS)
def test_damaged_files(config: str, shard: int, tmp_path: Path) -> None:
    """A quarter of 2,000 seeded mutants per target: none takes much longer than intact files."""
    sources = _sources()
    each = FILES // len(SHARDS) // len(sources) + 1
    paths: list[Path] = []
    for number, content in enumerate(sources):
        for label, mutant in mutations(content, 1000 * shard + number, each):
            path = tmp_path / f"{number}-{len(paths)}-{label.split()[0]}.tflite"
            path.write_bytes(mutant)
            paths.append(path)
    paths = paths[: FILES // len(SHARDS)]
    intact = [tmp_path / f"intact-{number}.tflite" for number in range(len(sources))]
    for path, content in zip(intact, sources, strict=True):
        path.write_bytes(content)
    result = subprocess.run(
        [sys.executable, "-m", "tests.plan_many", config],
        input="\n".join(map(str, [*intact, *paths])),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parent.parent,
    )
    rows = [line.split(maxsplit=4) for line in result.stdout.splitlines()]
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(rows) == len(intact) + len(paths)
    bad = [row for row in rows if row[0] not in ("0", "1", "2") or row[3] == "1"]
    assert not bad, f"{bad[:3]}\n{result.stderr[-3000:]}"
    slowest = max(float(row[1]) for row in rows[: len(intact)])
    assert max(float(row[1]) for row in rows[len(intact) :]) < max(SECONDS, 2 * slowest)
    assert max(int(row[2]) for row in rows) < PEAK_KIB
    assert {"0", "2"} <= {row[0] for row in rows}, "the mutants no longer test both ends"
