"""Resolved targets: figures, roles, budgets, and what is refused or noted."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from npusched.errors import TargetError
from npusched.hardware import load_target
from npusched.hardware.target import MemoryKind, MemoryMode


def test_u55_high_end_memories() -> None:
    """Physical bytes per cycle: SRAM 1.0 x 8 x 1 = 8, flash 0.125 x 8 x 1 = 1 (VELA_SPEC §1.3)."""
    target = load_target("ethos-u55-128")
    sram, flash = target.memories
    assert target.system_config == "Ethos_U55_High_End_Embedded"
    assert (target.memory_mode, target.memory_mode_name) == ("Shared_Sram", "Shared_Sram")
    assert target.clock_hz == 500e6
    assert (sram.bandwidth_bytes_per_cycle, flash.bandwidth_bytes_per_cycle) == (8, 1)
    assert (sram.read_latency_cycles, sram.write_latency_cycles, sram.burst_bytes) == (32, 32, 32)
    assert (flash.read_latency_cycles, flash.write_latency_cycles) == (64, 0)
    assert flash.burst_bytes == 128
    assert (flash.kind, flash.vela_name) == (MemoryKind.OFF_CHIP_FLASH, "OffChipFlash")
    assert (target.const, target.arena, target.cache) == (flash, sram, sram)
    assert target.sram_budget_bytes is None
    assert target.notes == ()


@pytest.mark.parametrize(
    ("name", "config", "sram", "other"),
    [
        ("ethos-u55-256", "Deep_Embedded", 8.0, 0.5),  # 0.0625 x 8
        ("ethos-u65-256", "Embedded", 16.0, 1.0),  # 0.0625 x 16
        ("ethos-u65-256", "Mid_End", 16.0, 7.5),  # 0.46875 x 16
        ("ethos-u65-512", "High_End", 16.0, 3.75),  # 0.234375 x 16
        ("ethos-u65-512", "Client_Server", 16.0, 12.0),  # 0.75 x 16
        ("ethos-u85-128", "SYS_Flash_Low", 32.0, 1.0),  # 1 x 16 x 2 ports; 0.0625 x 16
        ("ethos-u85-256", "SYS_DRAM_Low", 32.0, 7.5),  # 0.46875 x 16
        ("ethos-u85-256", "SYS_DRAM_Mid", 32.0, 12.0),  # 0.75 x 16
        ("ethos-u85-2048", "SYS_DRAM_High", 64.0, 24.0),  # 4 ports; 0.75 x 16 x 2 ports
    ],
)
def test_bandwidths(name: str, config: str, sram: float, other: float) -> None:
    """Both bandwidths agree where the name says the right family."""
    memories = load_target(name, system_config=config).memories
    assert [memory.bandwidth_bytes_per_cycle for memory in memories] == [sram, other]
    assert [memory.vela_bandwidth_bytes_per_cycle for memory in memories] == [sram, other]


@pytest.mark.parametrize(
    ("mode", "kind", "roles", "budget"),
    [
        ("Sram_Only", "Sram_Only", ("sram", "sram", "sram"), None),
        ("Shared_Sram", "Shared_Sram", ("dram", "sram", "sram"), None),
        ("Dedicated_Sram", "Dedicated_Sram", ("dram", "dram", "sram"), None),
        ("Dedicated_Sram_256KB", "Dedicated_Sram", ("dram", "dram", "sram"), 262144),
        ("Dedicated_Sram_384KB", "Dedicated_Sram", ("dram", "dram", "sram"), 393216),
        ("Dedicated_Sram_512KB", "Dedicated_Sram", ("dram", "dram", "sram"), 524288),
    ],
)
def test_memory_modes(mode: str, kind: str, roles: tuple[str, ...], budget: int | None) -> None:
    target = load_target("ethos-u85-256", memory_mode=mode)
    assert target.memory_mode == MemoryMode(kind)
    assert (target.roles.const, target.roles.arena, target.roles.cache) == roles
    assert target.arena_cache_bytes == budget
    assert target.sram_budget_bytes == budget
    assert target.cache.capacity_bytes == budget


def test_the_board() -> None:
    """RA8P1: Vela, by the name, 0.5 x 16 = 8 bytes per cycle (VELA_SPEC §8.2).

    MRAM has 0.5 x 8 = 4; SRAM the full 8 of the port, fitted to a measurement.
    """
    target = load_target("renesas-ra8p1")
    assert (target.clock_hz, target.cpu.clock_hz, target.cpu.name) == (500e6, 1e9, "cortex-m85")
    assert (target.const.name, target.arena.name) == ("mram", "sram")
    assert (target.const.kind, target.const.vela_name) == (
        MemoryKind.ON_CHIP_FLASH,
        "OffChipFlash",
    )
    for memory in (target.const, target.arena):
        assert memory.bandwidth_bytes_per_cycle == (4 if memory is target.const else 8)
        assert memory.vela_bandwidth_bytes_per_cycle == 8
        assert (memory.read_latency_cycles, memory.write_latency_cycles) == (8, 8)
        assert memory.burst_bytes == 128
    assert target.sram_budget_bytes == 1872 * 1024
    assert any("'RA8P1'" in note for note in target.notes)


def test_constants_may_lie_elsewhere_than_vela_believes() -> None:
    target = load_target("renesas-ra8p1", memory_mode="Sram_Only_Mram")
    assert target.memory_mode is MemoryMode.SRAM_ONLY
    assert (target.roles.const, target.roles.arena) == ("mram", "sram")
    assert any("constants lie in mram" in note for note in target.notes)
    external = load_target("renesas-ra8p1", memory_mode="External")
    assert external.arena.axi_port == load_target("renesas-ra8p1").arena.axi_port
    assert external.arena.kind is MemoryKind.DRAM


def test_host_only() -> None:
    target = load_target("cortex-m7", clock_hz=480e6)
    assert target.accelerator is None
    assert (target.clock_hz, target.cpu.clock_hz) == (480e6, 480e6)
    assert target.energy.mac.typical == target.energy.npu_cycle.typical == 0
    assert target.energy.cpu_active_cycle.typical == 439
    assert set(target.energy.memory_read.values()) == {target.energy.static_mw}
    with pytest.raises(TargetError, match="has no NPU"):
        load_target("cortex-m7", vela_config=Path("vela.ini"))


def test_clock_keeps_figures_per_cycle() -> None:
    plain, fast = load_target("ethos-u55-128"), load_target("ethos-u55-128", clock_hz=1e9)
    assert fast.clock_hz == 1e9
    assert fast.memories == plain.memories
    assert "1000 MHz instead of 500 MHz" in fast.notes[0]
    assert load_target("ethos-u55-128", clock_hz=500e6) == plain


def test_derating() -> None:
    """Half of 8 bytes per cycle is 4, for Vela too; the flash keeps its 1."""
    target = load_target("ethos-u55-128", derate={"sram": 0.5, "flash": 1.0})
    sram, flash = target.memories
    assert sram.bandwidth_bytes_per_cycle == sram.vela_bandwidth_bytes_per_cycle == 4
    assert sram.clock_scale == 0.5
    assert flash.bandwidth_bytes_per_cycle == 1
    assert target.notes == ("sram is derated to 0.5 of its bandwidth",)


def test_too_many_ports_are_noted() -> None:
    """A U85-256 has 2 SRAM ports and 1 external; SYS_DRAM_High uses 4 and 2, as a U85-2048 has."""
    notes = load_target("ethos-u85-256", system_config="SYS_DRAM_High").notes
    assert len(notes) == 2
    assert "4 ports for sram" in notes[0]
    assert load_target("ethos-u85-2048", system_config="SYS_DRAM_High").notes == ()


@pytest.mark.parametrize(
    ("name", "short", "full"),
    [
        ("ethos-u55-128", "High_End", "Ethos_U55_High_End_Embedded"),
        ("ethos-u55-128", "High_End_Embedded", "Ethos_U55_High_End_Embedded"),
        ("ethos-u55-128", "Deep", "Ethos_U55_Deep_Embedded"),
        ("ethos-u65-256", "High_End", "Ethos_U65_High_End"),
        ("ethos-u65-256", "embedded", "Ethos_U65_Embedded"),
        ("ethos-u85-256", "SYS_DRAM_Mid", "Ethos_U85_SYS_DRAM_Mid"),
        ("ethos-u85-256", "DRAM_Mid", "Ethos_U85_SYS_DRAM_Mid"),
        ("ethos-u85-256", "Ethos_U85_SYS_Flash_High", "Ethos_U85_SYS_Flash_High"),
    ],
)
def test_short_names(name: str, short: str, full: str) -> None:
    assert load_target(name, system_config=short).system_config == full


@pytest.mark.parametrize("name", ["u55-128", "U55-128", "ethos_u55_128", "Ethos-U55-128"])
def test_target_spellings(name: str) -> None:
    assert load_target(name).name == "ethos-u55-128"


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("ethos-u55-128", "Ethos_U65_High_End"),
        ("ethos-u55-128", "SYS_DRAM_Mid"),
        ("ethos-u55-128", "Client_Server"),
        ("ethos-u65-256", "Ethos_U55_High_End_Embedded"),
        ("ethos-u65-256", "ethos_u85_sys_dram_mid"),
        ("ethos-u85-256", "Mid_End"),
    ],
)
def test_other_families_are_refused(name: str, config: str) -> None:
    with pytest.raises(TargetError, match="does not fit") as caught:
        load_target(name, system_config=config)
    known = caught.value.values["known"]
    assert isinstance(known, tuple)
    assert known
    for fitting in known:
        load_target(name, system_config=str(fitting))


@pytest.mark.parametrize("mode", ["Dedicated_Sram", "Dedicated_Sram_384KB", "dedicated_sram"])
def test_a_u55_cannot_keep_its_arena_outside(mode: str) -> None:
    with pytest.raises(TargetError, match="does not fit ethos-u55-64") as caught:
        load_target("ethos-u55-64", memory_mode=mode)
    assert caught.value.values["known"] == ("Sram_Only", "Shared_Sram")


def message(**options: object) -> str:
    name = str(options.pop("name", "ethos-u85-256"))
    with pytest.raises(TargetError) as caught:
        load_target(name, **options)  # type: ignore[arg-type]
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.exit_code == 2
    assert all(len(text.splitlines()) == 1 for text in (error.what, error.why, error.hint))
    return str(error)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"name": "ethos-u55-100"}, "did you mean 'ethos-u55-128'?"),
        ({"name": "renesas-ra8p2"}, "did you mean 'renesas-ra8p1'?"),
        ({"system_config": "SYS_DRAM_Mdi"}, "did you mean 'Ethos_U85_SYS_DRAM_Mid'?"),
        ({"name": "ethos-u65-256", "system_config": "Hihg_End"}, "'Ethos_U65_High_End'?"),
        ({"memory_mode": "Shard_Sram"}, "did you mean 'Shared_Sram'?"),
        ({"memory_mode": "zzz"}, "choose one of these"),
        ({"derate": {"sran": 0.5}}, "did you mean 'sram'?"),
        ({"derate": {"sram": 0.0}}, "above 0, at most 1"),
        ({"derate": {"sram": 1.01}}, "above 0, at most 1"),
        ({"derate": {"sram": float("nan")}}, "above 0, at most 1"),
        ({"clock_hz": 0.0}, "above 0 Hz"),
        ({"clock_hz": -1.0}, "above 0 Hz"),
        ({"clock_hz": float("inf")}, "above 0 Hz"),
        ({"name": "missing/board.toml"}, "No such file"),
        ({"name": "renesas-ra8p1", "system_config": "High_End"}, "known: RA8P1"),
        ({"name": "cortex-m4", "system_config": "High_End"}, "known: Flash_and_Sram"),
    ],
)
def test_errors_help(options: dict[str, object], hint: str) -> None:
    assert hint in message(**options)


def test_ambiguous_short_name() -> None:
    from npusched.hardware.names import resolve_name

    with pytest.raises(TargetError, match="ambiguous"):
        resolve_name("system config", "High", ("Ethos_U55_High_A", "Ethos_U55_High_B"))
