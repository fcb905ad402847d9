"""The text form: short, narrow, complete, and harmless whatever a model calls its tensors."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import npusched
from npusched.report import types
from npusched.report.layout import cell_width
from npusched.report.text import MAX_LINES
from npusched.report.types import Advice, Delta, PlanReport
from npusched.tflite import Builder

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = "\x1b[31mred\x1b[0m\n[bold]\u202e\u2066evil" + "x" * 10_000


def hostile_model() -> bytes:
    """Two convolutions, an op for the CPU, and names that no terminal should see."""
    b = Builder("hostile")
    x = b.input(HOSTILE, (1, 16, 16, 8))
    x = b.conv2d(x, 8, 3, name=HOSTILE + "a")
    x = b.conv2d(x, 8, 3, name=HOSTILE + "b")
    y = b.tensor("y", (1, 16, 16, 8), "int8", scale=0.1)
    b.custom("\x1b[2J\u202ecustom", [x], [y])
    b.output(y)
    return b.build()


@pytest.fixture(scope="module")
def mixed() -> PlanReport:
    """A plan with chains (a tight budget), CPU ops, and everything else."""
    return npusched.plan(
        hostile_model(), "ethos-u65-256", sram="4KiB", use_vela=False, objective="sram"
    )


@lru_cache
def plan(model: str, target: str, sram: str | None = None) -> PlanReport:
    return npusched.plan(model, target, sram=sram, use_vela=False)


def crowded(report: PlanReport) -> PlanReport:
    """The same report with all lists full: 12 chains, 12 reasons, 5 pieces of advice."""
    segment = next((s for s in report.segments if len(s.ops) > 1), report.segments[0])
    ops = (segment.ops * 2)[:2]
    chains = [msgspec.structs.replace(segment, index=k, ops=ops) for k in range(12)]
    fallen = [
        msgspec.structs.replace(
            report.source_ops[0],
            index=k,
            placement="cpu",
            cpu_reasons=(
                types.Reason(
                    limit="l", value="v", text=f"{k} " + "long reason " * 30, fix="fix " * 40
                ),
            ),
        )
        for k in range(12)
    ]
    advice = [
        Advice(
            id=f"NS{k}",
            severity="info",
            message="change this " * 20,
            delta=Delta(),
            confidence="low",
        )
        for k in range(5)
    ]
    return msgspec.structs.replace(
        report,
        segments=(*report.segments, *chains),
        source_ops=(*report.source_ops, *fallen),
        advice=tuple(advice),
    )


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    ("model", "target", "sram"),
    [
        ("demo:mobilenet", "ethos-u55-128", "64KiB"),
        ("demo:unet", "ethos-u65-256", "64KiB"),
        ("demo:resnet8", "ethos-u85-256", None),
        ("demo:ds_cnn", "cortex-m55", None),
        ("demo:chain:30", "ethos-u55-32", None),
    ],
)
def test_forty_lines_at_most(model: str, target: str, sram: str | None, width: int) -> None:
    report = plan(model, target, sram)
    for shown in (report, crowded(report)):
        lines = npusched.render_text(shown, width=width).splitlines()
        assert len(lines) <= MAX_LINES
        assert max(cell_width(text) for text in lines) <= width


@pytest.mark.parametrize("width", [1, 40, 60])
def test_narrow_terminals_get_fewer_columns(width: int, mixed: PlanReport) -> None:
    lines = npusched.render_text(crowded(mixed), width=width).splitlines()
    assert max(cell_width(text) for text in lines) <= max(width, 40)
    assert any(text.lstrip().startswith("latency") for text in lines)


def poisoned(report: PlanReport) -> PlanReport:
    """The same report with hostile names wherever a file or a user has a say."""

    def bad(item: msgspec.Struct, *fields: str) -> Any:
        return msgspec.structs.replace(item, **dict.fromkeys(fields, HOSTILE))

    sources = [
        msgspec.structs.replace(
            bad(op, "name", "kind"),
            cpu_reasons=tuple(bad(r, "text", "value", "fix") for r in op.cpu_reasons),
        )
        for op in report.source_ops
    ]
    return msgspec.structs.replace(
        report,
        model=bad(report.model, "name"),
        target=bad(report.target, "name", "system_config", "memory_mode_name"),
        source_ops=tuple(sources),
        ops=tuple(bad(op, "name", "kind", "bound_by") for op in report.ops),
        allocation=tuple(bad(item, "tensor") for item in report.allocation),
        advice=tuple(bad(item, "message") for item in crowded(report).advice),
    )


def test_hostile_names_are_inert(mixed: PlanReport) -> None:
    """Neither control nor format characters come through; rich-like markup is just text."""
    for report in (mixed, poisoned(mixed)):
        text = npusched.render_text(report)
        assert not [c for c in text.replace("\n", "") if unicodedata.category(c)[0] == "C"]
        assert max(len(line) for line in text.splitlines()) <= 100
    assert "\\x1b[31mred" in text
    assert "[bold]" in text


def test_hostile_names_stay_apart_in_json(mixed: PlanReport) -> None:
    """The reader replaces control characters; nothing is cut, and JSON escapes the rest."""
    form = json.loads(npusched.render_json(mixed))
    names = [op["name"] for op in form["source_ops"]]
    assert len(set(names)) == 3
    assert names[0].endswith("evil" + "x" * 10_000 + "a")
    poison = json.loads(npusched.render_json(poisoned(mixed)))
    assert poison["source_ops"][0]["name"] == HOSTILE


def test_colour_only_adds_codes(mixed: PlanReport) -> None:
    plain = npusched.render_text(mixed, colour=False)
    coloured = npusched.render_text(mixed, colour=True)
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [s.rstrip() for s in stripped.splitlines()] == plain.splitlines()


def facts(text: str) -> dict[str, str]:
    """The rows of the verdict by their first word."""
    rows = re.findall(r"^  (\S+) +(.*)$", text, re.MULTILINE)
    return dict(reversed(rows))


def test_notebooks_show_names_escaped(mixed: PlanReport) -> None:
    report = msgspec.structs.replace(
        mixed, model=msgspec.structs.replace(mixed.model, name="<script>&")
    )
    page = report._repr_html_()
    assert "<h4>&lt;script&gt;&amp; on ethos-u65-256</h4>" in page
    assert "<script" not in page


def test_the_verdict_has_the_figures_of_the_report() -> None:
    report = plan("demo:mobilenet", "ethos-u55-128", "64KiB")
    text = npusched.render_text(report)
    rows = facts(text)
    assert f"{report.totals.cycles:,} NPU cycles".replace(",", " ") in rows["latency"]
    assert "% of 64.0 KiB: fits · arena" in rows["SRAM"]
    assert "sram " in rows["traffic"]
    assert "flash " in rows["traffic"]
    assert "30 on the NPU in 1 call" in rows["ops"]
    assert "int8 ·" in text.splitlines()[0]
    assert "int32" not in text.splitlines()[0]


def test_what_the_sram_figure_counts() -> None:
    """DESIGN, Planning: the arena; with the constants (Sram_Only); the cache (Dedicated_Sram)."""
    shared = plan("demo:ds_cnn", "ethos-u55-128")
    only = npusched.plan(
        "demo:ds_cnn",
        npusched.load_target("ethos-u55-128", memory_mode="Sram_Only"),
        use_vela=False,
    )
    dedicated = plan("demo:ds_cnn", "ethos-u65-256")
    assert "  arena · no --sram given, capacity not known" in npusched.render_text(shared)
    constants = only.totals.constant_bytes
    assert f"arena + {constants / 1024:.1f} KiB constants" in npusched.render_text(only)
    assert only.totals.sram_peak_bytes > constants
    assert "of 384 KiB there is · cache; arena in dram" in npusched.render_text(dedicated)


def test_host_only_targets_have_no_npu_figures() -> None:
    text = npusched.render_text(plan("demo:ds_cnn", "cortex-m4"))
    assert "NPU cycles" not in text
    assert "on the NPU" not in text
    assert "13 on the CPU" in text
    assert "Shared_Sram" not in text


def test_ops_of_one_source_op_are_one_row() -> None:
    """A softmax is many kernels on the NPU but one row here."""
    text = npusched.render_text(plan("demo:mobilenet", "ethos-u55-128"), top=100)
    rows = [row for row in text.splitlines() if row.startswith("  #30 ")]
    assert len(rows) == 1
    assert re.match(r"  #30 SOFTMAX ×\d+ ", rows[0])


def test_top_zero_lists_no_op() -> None:
    text = npusched.render_text(plan("demo:ds_cnn", "ethos-u55-128"), top=0)
    assert "MACs busy " not in text.split("fusion")[1]


def test_fallbacks_are_grouped_and_have_a_fix(mixed: PlanReport) -> None:
    text = npusched.render_text(mixed)
    assert "on the CPU: 1 of 3 ops" in text
    assert "fix: " in text


def test_golden_text(golden: Callable[[Path, str], None]) -> None:
    """`npusched plan demo:unet -c ethos-u65-256 --sram 100KiB` with Vela's weight sizes."""
    report = npusched.plan("demo:unet", "ethos-u65-256", sram="100KiB", use_cache=False)
    assert report.vela_version is not None
    golden(GOLDEN / "unet_u65_100KiB.txt", npusched.render_text(report))
