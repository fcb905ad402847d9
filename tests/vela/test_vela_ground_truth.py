"""Measured latencies of a board against Vela's schedule at our cost (GROUND_TRUTH §1.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.evidence_ground_truth import AD, KWS, VWW, cases, measure

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")


@pytest.fixture(scope="module")
def predicted(corpus_dir: Path) -> dict[tuple[str, str], tuple[float, float]]:
    """(predicted, measured) microseconds on the RA8P1 by model and placement."""
    if not (corpus_dir / "specs" / "measured.csv").is_file():
        pytest.skip("the corpus does not hold measured.csv")
    found = {}
    for case in cases():
        if case[1] == "Renesas RA8P1":
            row = measure(case)
            ours, theirs = row["predicted"], row["measured"]
            assert isinstance(ours, float)
            assert isinstance(theirs, float)
            found[case[0], case[2]] = (ours, theirs)
    return found


@pytest.mark.parametrize(
    ("model", "memory", "low", "high"),
    [
        (KWS, "MRAM weights", 0.8, 1.2),
        (KWS, "SRAM only", 0.8, 1.2),
        (VWW, "MRAM weights", 0.8, 1.2),
        (VWW, "SRAM only", 0.8, 1.2),
        (AD, "MRAM weights", 0.55, 1.4),
    ],
)
def test_the_board_within_its_bars(
    predicted: dict[tuple[str, str], tuple[float, float]],
    model: str,
    memory: str,
    low: float,
    high: float,
) -> None:
    ours, measured = predicted[model, memory]
    assert low <= ours / measured <= high


def test_latencies_rank_as_measured(
    predicted: dict[tuple[str, str], tuple[float, float]],
) -> None:
    """Both placements of KWS and VWW: 108 < 141 < 364 < 406 microseconds."""
    pairs = [pair for (model, _), pair in predicted.items() if model != AD]
    ours = [a for a, _ in sorted(pairs, key=lambda pair: pair[1])]
    assert len(ours) == 4
    assert ours == sorted(ours)
    assert len(set(ours)) == 4
