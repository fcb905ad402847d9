"""Our copy of Arm's figures against the vela.ini that Vela installs, both ways."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from npusched.hardware import load_target, target_names
from npusched.hardware.store import arm_tables
from npusched.hardware.vela_read import VelaIni, memory_mode, read_vela_ini, system_config


@pytest.fixture(scope="module")
def installed() -> VelaIni:
    spec = find_spec("ethosu")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("ethos-u-vela is not installed")
    folder = Path(next(iter(spec.submodule_search_locations)))
    return read_vela_ini(folder / "config_files" / "Arm" / "vela.ini")


def test_the_same_names(installed: VelaIni) -> None:
    assert tuple(arm_tables().system_configs) == installed.system_configs
    assert tuple(arm_tables().memory_modes) == installed.memory_modes
    assert installed.notes == ()


def test_the_same_system_configs(installed: VelaIni) -> None:
    for name, ours in arm_tables().system_configs.items():
        theirs, ports, notes = system_config(installed, name, outstanding_matters=True)
        assert notes == []
        assert ours.clock_hz == theirs.clock_hz
        assert list(ours.memories) == list(theirs.memories) == list(ports)
        for memory, entry in ours.memories.items():
            other = theirs.memories[memory]
            for key in entry.__struct_fields__:
                if key not in ("vela_name", "source"):
                    assert getattr(entry, key) == getattr(other, key), (name, memory, key)


def test_the_same_memory_modes(installed: VelaIni) -> None:
    system, ports, _ = system_config(installed, "Ethos_U65_High_End", outstanding_matters=False)
    on_port = {"axi0": ports[0], "axi1": ports[1]}
    for name, ours in arm_tables().memory_modes.items():
        theirs = memory_mode(installed, name, ports, system)
        assert ours.mode is theirs.mode
        assert ours.arena_cache_bytes == theirs.arena_cache_bytes
        roles = [on_port[where] for where in (ours.const, ours.arena, ours.cache)]
        assert roles == [theirs.const, theirs.arena, theirs.cache]


def test_arm_targets_are_the_same_through_vela_config(installed: VelaIni) -> None:
    for name in target_names():
        plain = load_target(name)
        if plain.system_config in installed.system_configs:
            through = load_target(
                name,
                system_config=plain.system_config,
                memory_mode=plain.memory_mode_name,
                vela_config=installed.path,
            )
            assert through == plain


def test_no_figure_of_the_file_is_unread(installed: VelaIni) -> None:
    """Every key of every system config: 3 general ones, and 6 or 7 per memory of a port."""
    for name in installed.system_configs:
        keys = installed.sections[f"System_Config.{name}"]
        areas = {keys["axi0_port"].lower(), keys["axi1_port"].lower()}
        rest = set(keys) - {"core_clock", "axi0_port", "axi1_port"}
        assert {key.split("_")[0] for key in rest} == areas
