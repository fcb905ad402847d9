"""Vela's schedules costed from facts alone: what it reports is no input, and comes out equal."""

from __future__ import annotations

import random
import re
from pathlib import Path

import msgspec
import pytest

from benchmarks.crosscheck import check, network_cause, slices_of
from npusched.cost.types import OpCost
from npusched.hardware import load_target
from npusched.hardware.target import Target
from npusched.ir import Model
from npusched.tflite import read_model
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.protocol import Columns
from npusched.vela.recost import compatible_costs
from npusched.vela.result import VelaResult
from npusched.vela.rows import read_rows
from npusched.vela.runner import compile_model

pytest.importorskip("ethosu.regor", reason="needs ethos-u-vela")

COST_COLUMN = re.compile(r".*_ac|est_.*|.*_read|.*_write|.*cycles.*|mac_count|staging_usage")
"""Columns in which Vela reports costs: access, estimates, bytes, transfer and other cycles."""

MODELS = ("mlpt_vww", "mlpt_resnet8", "mlpt_kws", "seeed_fomo_mnv2", "mlpt_resnet_large")


def compiled(target: Target, path: Path, options: VelaOptions) -> tuple[VelaResult, Model]:
    """Vela's result and the model that was compiled."""
    content = path.read_bytes()
    return compile_model(content, target, options, cache=None), read_model(content, path.stem)


def scrambled(result: VelaResult, seed: int) -> tuple[VelaResult, int]:
    """The result with every cost column of the database drawn anew, and how many there were."""
    dice = random.Random(seed)
    tables: Columns = {}
    changed = 0
    for name, table in result.columns.items():
        tables[name] = {}
        for column, cells in table.items():
            tables[name][column] = cells
            if COST_COLUMN.fullmatch(column):
                count = len(msgspec.msgpack.decode(cells))
                drawn = [str(dice.randrange(1, 10**6)) for _ in range(count)]
                tables[name][column] = msgspec.Raw(msgspec.msgpack.encode(drawn))
                changed += 1
    return msgspec.structs.replace(result, columns=tables), changed


def costs(target: Target, result: VelaResult, model: Model) -> dict[int, OpCost]:
    """Our vela-compatible cost of every row."""
    rows = read_rows(result.database, target)
    return compatible_costs(target, rows, slices_of(target, result, model, rows))


@pytest.mark.parametrize(
    ("name", "mode", "arena_bytes"),
    [
        ("ethos-u55-128", "Shared_Sram", 20_000),
        ("ethos-u65-512", "Dedicated_Sram_384KB", 12_000),
        ("ethos-u85-256", "Dedicated_Sram_384KB", 12_000),
    ],
)
def test_reported_costs_are_no_input(
    name: str, mode: str, arena_bytes: int, corpus_dir: Path
) -> None:
    """Random numbers in all cost columns change no cost; rows are cascaded, staged and sliced."""
    target = load_target(name, memory_mode=mode)
    kinds: set[str] = set()
    for model_name in MODELS[:3]:
        path = corpus_dir / "models" / f"{model_name}.tflite"
        options = VelaOptions(arena_cache_size_bytes=arena_bytes)
        result, model = compiled(target, path, options)
        noise, changed = scrambled(result, seed=5)
        assert changed > 30
        before, after = costs(target, result, model), costs(target, noise, model)
        assert before == after
        assert sum(cost.cycles for cost in before.values()) == result.report.total_cycles
        for row in read_rows(result.database, target):
            kinds |= {"cascaded"} if row.cascade else set()
            kinds |= {"staged"} if row.staged else set()
            kinds |= {"sliced"} if row.staged and row.slices > 1 else set()
    assert "sliced" in kinds
    assert kinds >= ({"cascaded", "staged"} if "u85" not in name else {"staged"})


def test_scrambling_is_seen_by_who_reads_costs(corpus_dir: Path) -> None:
    """The control: the figures that we only compare with do change."""
    target = load_target("ethos-u55-128", memory_mode="Shared_Sram")
    path = corpus_dir / "models" / "mlpt_kws.tflite"
    result, _ = compiled(target, path, VelaOptions())
    noise, _ = scrambled(result, seed=5)
    theirs = read_rows(result.database, target)
    drawn = read_rows(noise.database, target)
    assert all(a.npu_cycles != b.npu_cycles for a, b in zip(theirs, drawn, strict=True))


UNSEEN = [
    ("ethos-u55-64", "Ethos_U55_Deep_Embedded", "Shared_Sram", 21_328, Optimise.PERFORMANCE),
    ("ethos-u65-256", "Ethos_U65_Client_Server", "Dedicated_Sram", 9_872, Optimise.SIZE),
    ("ethos-u85-512", "Ethos_U85_SYS_Flash_High", "Shared_Sram", 27_552, Optimise.PERFORMANCE),
    ("ethos-u85-2048", "Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram", 14_352, Optimise.SIZE),
]
"""Accelerators, modes and arena sizes that no other test uses together."""


@pytest.mark.parametrize("setup", UNSEEN, ids=lambda setup: setup[0])
def test_unseen_set_ups_are_predicted(
    setup: tuple[str, str, str, int, Optimise], corpus_dir: Path
) -> None:
    """Every row, its bytes and its striped estimate; and the network's total."""
    name, system, mode, arena_bytes, optimise = setup
    target = load_target(name, system_config=system, memory_mode=mode)
    rows = 0
    for model_name in MODELS:
        path = corpus_dir / "models" / f"{model_name}.tflite"
        options = VelaOptions(optimise=optimise, arena_cache_size_bytes=arena_bytes)
        result, model = compiled(target, path, options)
        found = check(target, result, model)
        assert found.errors == []
        assert found.exact == found.rows
        assert network_cause(model, found) == ""
        assert found.ours == found.theirs == result.report.total_cycles
        assert found.equal_estimates == found.estimates
        rows += found.rows
    assert rows > 100
