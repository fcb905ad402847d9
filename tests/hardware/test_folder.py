"""Every file in hw_configs/: a new accelerator or board is checked by being there."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import msgspec
import pytest

from npusched.errors import InternalError
from npusched.hardware import describe_target, load_target, store, target_names, vela_ini
from npusched.hardware.target import CPU_MAC_CLASSES, CpuCostClass, MemoryMode, Target
from npusched.ops.catalogue import CostClass

NAMES = target_names()


def combinations() -> list[tuple[str, str, str]]:
    rows = []
    for name in NAMES:
        known = describe_target(name)
        rows += [(name, *pair) for pair in product(known.system_configs, known.memory_modes)]
    return rows


def test_the_expected_targets_are_there() -> None:
    assert NAMES == (
        "ethos-u55-32",
        "ethos-u55-64",
        "ethos-u55-128",
        "ethos-u55-256",
        "ethos-u65-256",
        "ethos-u65-512",
        "ethos-u85-128",
        "ethos-u85-256",
        "ethos-u85-512",
        "ethos-u85-1024",
        "ethos-u85-2048",
        "cortex-m4",
        "cortex-m7",
        "cortex-m55",
        "cortex-m85",
        "renesas-ra8p1",
    )


def test_the_number_of_combinations() -> None:
    """U55: 4 sizes x 2 system configs x 2 modes; U65: 2 x 4 x 6; U85: 5 x 5 x 6; 4 and 4."""
    assert len(combinations()) == 4 * 2 * 2 + 2 * 4 * 6 + 5 * 5 * 6 + 4 + 4


@pytest.mark.parametrize(("name", "system_config", "memory_mode"), combinations())
def test_each_combination_loads(name: str, system_config: str, memory_mode: str) -> None:
    target = load_target(name, system_config=system_config, memory_mode=memory_mode)
    assert (target.system_config, target.memory_mode_name) == (system_config, memory_mode)
    names = [memory.name for memory in target.memories]
    assert len(set(names)) == len(names)
    for memory in target.memories:
        assert memory.bandwidth_bytes_per_cycle > 0
        assert memory.vela_bandwidth_bytes_per_cycle > 0
        assert memory.max_reads >= 1
        assert memory.max_writes >= 1
    assert {target.const.name, target.arena.name, target.cache.name} <= set(names)
    assert (target.arena != target.cache) == (target.memory_mode is MemoryMode.DEDICATED_SRAM)
    assert msgspec.json.decode(msgspec.json.encode(target), type=Target) == target
    if target.accelerator is not None:
        assert target.system_config in vela_ini(target)


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_a_source(name: str) -> None:
    known = describe_target(name)
    target = known.target
    assert all(config.source for config in known.system_configs.values())
    assert all(mode.source for mode in known.memory_modes.values())
    assert target.cpu.source
    assert target.accelerator is None or target.accelerator.source
    energy = target.energy
    singles = [
        energy.mac,
        energy.shram_byte,
        energy.npu_cycle,
        energy.cpu_active_cycle,
        energy.cpu_wait_cycle,
        energy.static_mw,
    ]
    for each in (*singles, *energy.memory_read.values(), *energy.memory_write.values()):
        assert each.source
        assert each.factor >= 1
        assert 0 <= each.low <= each.typical <= each.high
        assert math.isclose(each.low * each.high, each.typical**2)
    said = dict(known.sources)
    assert any(what.startswith("host") for what in said)
    assert all(said.values())
    json.loads(msgspec.json.encode(known))


@pytest.mark.parametrize("name", NAMES)
def test_energies_and_cpu_classes_are_complete(name: str) -> None:
    target = load_target(name)
    memories = {memory.name for memory in target.memories}
    assert set(target.energy.memory_read) == memories
    assert set(target.energy.memory_write) == memories
    assert set(target.cpu.cycles_per_element) == set(CpuCostClass)
    assert set(target.cpu.cycles_per_mac) == CPU_MAC_CLASSES
    assert all(value > 0 for value in target.cpu.cycles_per_mac.values())
    assert all(value >= 0 for value in target.cpu.cycles_per_element.values())
    assert target.cpu.clock_hz > 0


def test_cost_classes_are_those_of_ops() -> None:
    assert {str(kind) for kind in CpuCostClass} == {str(kind) for kind in CostClass}
    per_mac = {str(kind) for kind in CostClass if kind.per_mac}
    assert per_mac == {str(kind) for kind in CPU_MAC_CLASSES}


def test_files_stay_short_enough_to_copy() -> None:
    for path in store.config_folder().glob("*.toml"):
        if not path.name.startswith(("_", "cortex-")):
            assert len(path.read_text().splitlines()) < 60, path.name


def test_an_installed_package_finds_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel holds npusched/hw_configs; it wins over a folder next to the package."""
    package = tmp_path / "site-packages" / "npusched"
    (package / "hardware").mkdir(parents=True)
    monkeypatch.setattr(store, "__file__", str(package / "hardware" / "store.py"))
    with pytest.raises(InternalError, match="hardware descriptions are missing"):
        store.config_folder()
    for folder in (package.parent / "hw_configs", package / "hw_configs"):
        folder.mkdir()
        (folder / "_arm.toml").touch()
        assert store.config_folder() == folder
