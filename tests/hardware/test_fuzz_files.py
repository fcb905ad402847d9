"""Damaged files give a target or a TargetError, nothing else."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from npusched.errors import TargetError
from npusched.hardware import load_target, store, vela_ini
from npusched.hardware.target import Target

INI = """[System_Config.A]
core_clock=500e6
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=1.0
Sram_ports_used=2
OffChipFlash_clock_scale=0.125
OffChipFlash_burst_length=128
[System_Config.B]
inherit=System_Config.A
[Memory_Mode.M]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
[Memory_Mode.N]
inherit=Memory_Mode.M
arena_cache_size=262144
"""
WORDS = (
    "nan",
    "inf",
    "-1",
    "0",
    "1e999",
    "9" * 40,
    "[",
    "]",
    "=",
    "\n",
    '"',
    "inherit=",
    "{",
    "\x00",
)


def damaged(text: str, seed: int) -> str:
    """Return the text with up to four pieces cut, doubled or replaced by an awkward word."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text))
        end = min(len(text), start + chance.randint(0, 12))
        piece = chance.choice(("", text[start:end] * 2, chance.choice(WORDS)))
        text = text[:start] + piece + text[end:]
    return text


def check(target: Target) -> None:
    """A target that came out of a damaged file is one that can be used."""
    assert msgspec.json.decode(msgspec.json.encode(target), type=Target) == target
    if target.accelerator is not None:
        vela_ini(target)


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u85-256"])
def test_damaged_inis(tmp_path: Path, name: str) -> None:
    path = tmp_path / "vela.ini"
    for seed in range(400):
        path.write_text(damaged(INI, seed))
        with suppress(TargetError):
            check(load_target(name, system_config="B", memory_mode="N", vela_config=path))


@pytest.mark.parametrize("name", ["renesas-ra8p1", "cortex-m55", "ethos-u85-256"])
def test_damaged_target_files(tmp_path: Path, name: str) -> None:
    whole = (store.config_folder() / f"{name}.toml").read_text()
    path = tmp_path / "target.toml"
    for seed in range(150):
        path.write_text(damaged(whole, seed))
        with suppress(TargetError):
            check(load_target(str(path)))


def test_deep_nesting(tmp_path: Path) -> None:
    path = tmp_path / "target.toml"
    path.write_text("a = " + "[" * 100_000)
    with pytest.raises(TargetError, match="is not TOML"):
        load_target(str(path))
