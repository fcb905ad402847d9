"""Strictness: what a target file may not say, and what the error suggests."""

from __future__ import annotations

from pathlib import Path

import pytest

from npusched.errors import TargetError
from npusched.hardware import load_target, store, vela_ini

BOARD = (store.config_folder() / "renesas-ra8p1.toml").read_text()


def refused(folder: Path, text: str) -> str:
    path = folder / "board.toml"
    path.write_text(text)
    with pytest.raises(TargetError) as caught:
        load_target(str(path))
    error = caught.value
    assert error.exit_code == 2
    assert all(len(part.splitlines()) == 1 for part in (error.what, error.why, error.hint))
    return str(error)


def test_a_copied_file_is_a_board(tmp_path: Path) -> None:
    path = tmp_path / "my-board.toml"
    path.write_text(BOARD.replace("1872KiB", "512KiB").replace("500e6", "250e6"))
    target = load_target(str(path))
    assert target.name == "my-board"
    assert target.sram_budget_bytes == 512 * 1024
    assert target.clock_hz == 250e6
    assert "core_clock=250000000" in vela_ini(target)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("read_latency_cycles", "read_latency", "did you mean 'read_latency_cycles'?"),
        ("memory_mode =", "memory_mod =", "did you mean 'memory_mode'?"),
        ('kind = "sram"', 'kind = "srma"', "'srma'"),
        ("port = 0,", "port = 2,", "`int` <= 1"),
        ("clock_scale = 0.5", "clock_scale = 0.0", "> 0"),
        ("burst_bytes = 128", "burst_bytes = 0", ">= 1"),
        ("clock_hz = 500e6", 'clock_hz = "500MHz"', "expected `float`"),
        ('energy = "mcu-22nm"', 'energy = "mcu-22mn"', "did you mean 'mcu-22nm'?"),
        ('accelerator = "ethos-u55-256"', 'accelerator = "ethos-u55-265"', "'ethos-u55-256'?"),
        ('accelerator = "ethos-u55-256"', 'accelerator = "cortex-m4"', "no [accelerator] table"),
        ('cpu = "cortex-m85"', 'cpu = "ethos-u55-64"', "has no [cpu] table"),
        ('capacity = "1MiB"', 'capacity = "1MiC"', "unknown unit"),
        ('const = "mram"', 'const = "mran"', "did you mean 'mram'?"),
        ('const = "mram"', 'const = "axi1"', "2 memories are on axi1"),
        ('vela_name = "OffChipFlash"', 'vela_name = "Sram"', "two memories are 'Sram'"),
        ('vela_name = "OffChipFlash"', 'vela_name = "Mram"', "Vela has no memory 'Mram'"),
        (
            'clock_hz = 1e9\nsource = "GROUND_TRUTH §1.1"\n',
            "clock_hz = 1e9\n",
            "missing required field `source`",
        ),
        ("[host]", "[host", "is not TOML"),
        ('memory_mode = "Shared_Sram"', 'memory_mode = "Elsewhere"', "known: Shared_Sram"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in BOARD
    assert complaint in refused(tmp_path, BOARD.replace(old, new))


def test_energies_can_be_overridden(tmp_path: Path) -> None:
    own = '[energy_override.memory_read]\nmram = { typical = 9.0, factor = 2.0, source = "lab" }\n'
    path = tmp_path / "board.toml"
    path.write_text(BOARD + own)
    energy = load_target(str(path)).energy
    assert energy.memory_read["mram"].typical == 9
    assert energy.memory_write["mram"].typical == 15
    assert "did you mean 'mram'?" in refused(tmp_path, BOARD + own.replace("mram =", "mrram ="))


@pytest.mark.parametrize(("stated", "budget"), [(65536, 65536), (1 << 30, 1872 * 1024)])
def test_the_budget_is_the_smaller_of_mode_and_memory(
    tmp_path: Path, stated: int, budget: int
) -> None:
    path = tmp_path / "board.toml"
    path.write_text(
        BOARD.replace('cache = "sram"', f'cache = "sram"\narena_cache_bytes = {stated}')
    )
    target = load_target(str(path))
    assert target.sram_budget_bytes == target.cache.capacity_bytes == budget
