"""Quirks of Vela's figures, noted with their size where they touch the model, else not."""

from __future__ import annotations

from pathlib import Path

import pytest

from npusched import api
from npusched.report.compare_types import CompareReport
from npusched.vela.notes import Note

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")


def compared(corpus_dir: Path, model: str, target: str, sram: str | None = None) -> CompareReport:
    path = corpus_dir / "models" / f"{model}.tflite"
    return api.compare(path, target, sram=sram, use_cache=False)


def notes_of(report: CompareReport) -> dict[str, Note]:
    for note in report.notes:
        figures = [str(value) for value in note.figures.values() if isinstance(value, int)]
        assert sum(figure in note.text for figure in figures) >= min(2, len(figures)), note
    return {note.id: note for note in report.notes}


def test_a_cascading_schedule(corpus_dir: Path) -> None:
    """mlpt_vww in 48 KiB: one cascade of 4 ops (VELA_SPEC §4).

    Reported are 25344 + 18432 + 19168 + 8832 = 71776 cycles. Striped, the first op alone takes
    more than 48 x 1020 (its estimate is 48 x 1024). Scales of staged weights: the report has Scales
    cycles at the flash beside Scales bytes in SRAM. Softmax becomes 28 ops, so 57 - 28 + 1 = 30.
    """
    report = compared(corpus_dir, "mlpt_vww", "ethos-u55-128", "48KiB")
    notes = notes_of(report)
    cascades = notes["unstriped_cascades"].figures
    assert cascades["ops"] == 4
    assert cascades["reported_cycles"] == 71776
    recosted = [op.vela_recosted for op in report.ops[:4]]
    assert cascades["recosted_cycles"] == sum(side.cycles for side in recosted if side)
    assert recosted[0] is not None
    assert recosted[0].cycles > 48 * 1020
    scales = notes["scales_booked_to_constants"].figures
    assert scales["access_cycles"] == scales["bytes"], "1 byte per cycle from flash"
    assert scales["vela_cycles"] == report.totals.vela.cycles
    assert notes["decomposed_ops"].figures == {"kernels": 57, "source_ops": 30, "largest": 28}
    assert notes["kib_called_kb"].figures == {"kib": 48.0, "bytes": 49152}
    assert not notes.keys() & {"axi_width_by_name", "cpu_ops_are_free", "arena_over_budget"}


def test_a_config_without_vela_s_prefix(corpus_dir: Path) -> None:
    """RA8P1 is no Ethos_U55_...: Vela takes 16 bytes per beat where the port has 8."""
    report = compared(corpus_dir, "mlpt_vww", "renesas-ra8p1")
    note = notes_of(report)["axi_width_by_name"]
    assert note.figures["factor"] == 2.0
    assert note.figures["vela_cycles"] == report.totals.vela.cycles
    physical = note.figures["physical_cycles"]
    assert isinstance(physical, int)
    assert report.totals.vela.cycles is not None
    assert physical > report.totals.vela.cycles


def test_sparse_weights_and_staged_scales_on_u85(corpus_dir: Path) -> None:
    """Staged scales are charged to DRAM; every op here is bound by something slower."""
    report = compared(corpus_dir, "mltk_fingerprint", "ethos-u85-256")
    notes = notes_of(report)
    assert notes["sparse_macs_halved"].figures["ops"] == 1
    scales = notes["scales_booked_to_constants"].figures
    assert scales["honest_cycles"] == scales["vela_cycles"] == report.totals.vela.cycles


def test_ops_on_the_cpu_cost_vela_nothing(corpus_dir: Path) -> None:
    report = compared(corpus_dir, "tflm_audio_preprocessor_int8", "ethos-u55-128")
    note = notes_of(report)["cpu_ops_are_free"]
    assert note.figures["ops"] == 19
    assert note.figures["cpu_cycles"] == report.totals.npusched.cpu_cycles
    assert report.totals.vela.cpu_cycles == 0
    assert report.totals.vela_recosted is not None
    assert report.totals.vela_recosted.cpu_cycles == report.totals.npusched.cpu_cycles


def test_two_subgraphs(corpus_dir: Path) -> None:
    """One ADD and one MUL of 16 cycles: the totals count both, the rows are the MUL's."""
    report = compared(corpus_dir, "aieq_two_signatures_a8w8", "ethos-u55-128")
    note = notes_of(report)["rows_of_one_subgraph"]
    assert note.figures == {"total_cycles": 32, "rows_cycles": 16}
    assert report.totals.vela_recosted is None
    assert not report.vela.is_plan
    assert report.only_npusched
    assert report.only_vela
    assert any("one subgraph only" in text for text in report.vela.mismatches)
    second = api.compare(
        corpus_dir / "models" / "aieq_two_signatures_a8w8.tflite",
        "ethos-u55-128",
        signature=report_signature(corpus_dir),
        use_cache=False,
    )
    assert second.vela.is_plan
    assert second.totals.vela_recosted is not None


def report_signature(corpus_dir: Path) -> str:
    """Key of the signature that runs subgraph 1."""
    from npusched.tflite import load_model

    model = load_model(corpus_dir / "models" / "aieq_two_signatures_a8w8.tflite")
    return next(signature.key for signature in model.signatures if signature.subgraph == 1)
