"""Dialects of vela.ini: inheritance, defaults, ill-formed files. All files are made up here."""

from __future__ import annotations

from pathlib import Path

import pytest

from npusched.errors import TargetError
from npusched.hardware import load_target, vela_ini
from npusched.hardware.target import MemoryMode, Target

SYSTEM = """
[System_Config.Board]
core_clock=400e6
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=0.5
Sram_burst_length=32
Sram_read_latency=16
Sram_write_latency=12
OffChipFlash_clock_scale=0.125
OffChipFlash_burst_length=64
OffChipFlash_read_latency=48
OffChipFlash_write_latency=0
"""
MODES = """
[Memory_Mode.Shared]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
"""


@pytest.fixture
def ini(tmp_path: Path) -> Path:
    return tmp_path / "my_vela.ini"


def load(path: Path, text: str, name: str = "ethos-u55-128", **options: str) -> Target:
    path.write_text(text)
    return load_target(name, vela_config=path, **options)  # type: ignore[arg-type]


def refused(path: Path, text: str, name: str = "ethos-u55-128", **options: str) -> str:
    with pytest.raises(TargetError) as caught:
        load(path, text, name, **options)
    error = caught.value
    assert all(len(part.splitlines()) == 1 for part in (error.what, error.why, error.hint))
    return str(error)


def test_a_plain_file(ini: Path) -> None:
    """0.5 x 8 = 4 bytes per cycle physically; the name gives Vela 0.5 x 16 = 8."""
    target = load(ini, SYSTEM + MODES)
    sram, flash = target.memories
    assert (target.system_config, target.memory_mode_name) == ("Board", "Shared")
    assert target.memory_mode is MemoryMode.SHARED_SRAM
    assert target.clock_hz == 400e6
    assert (sram.bandwidth_bytes_per_cycle, sram.vela_bandwidth_bytes_per_cycle) == (4, 8)
    assert (flash.bandwidth_bytes_per_cycle, flash.vela_bandwidth_bytes_per_cycle) == (1, 2)
    assert (sram.read_latency_cycles, sram.write_latency_cycles, sram.burst_bytes) == (16, 12, 32)
    assert (flash.read_latency_cycles, flash.write_latency_cycles, flash.burst_bytes) == (48, 0, 64)
    assert (sram.max_reads, sram.max_writes, sram.ports) == (1, 1, 1)


@pytest.mark.parametrize("parent_first", [True, False])
def test_inheritance_in_any_order(ini: Path, parent_first: bool) -> None:
    """The child's keys win over the parent's, the parent's over the grandparent's."""
    chain = [
        SYSTEM,
        "[System_Config.Fast]\ninherit=System_Config.Board\ncore_clock=500e6\nSram_read_latency=1\n",
        "[System_Config.Faster]\ninherit=System_Config.Fast\ncore_clock=600e6\n",
    ]
    text = "".join(chain if parent_first else reversed(chain)) + MODES
    target = load(ini, text, system_config="Faster")
    assert target.clock_hz == 600e6
    assert target.arena.read_latency_cycles == 1
    assert target.arena.write_latency_cycles == 12


def test_a_mode_inherits_and_states_its_size(ini: Path) -> None:
    text = (
        SYSTEM + MODES + "[Memory_Mode.Small]\ninherit=Memory_Mode.Shared\narena_cache_size=98304\n"
    )
    target = load(ini, text, memory_mode="Small")
    assert target.sram_budget_bytes == target.arena_cache_bytes == 98304


@pytest.mark.parametrize(
    "text",
    [
        "[System_Config.A]\ninherit=System_Config.A\n",
        "[System_Config.A]\ninherit=System_Config.B\n[System_Config.B]\ninherit=System_Config.A\n",
    ],
)
def test_circles_are_found(ini: Path, text: str) -> None:
    assert "runs in a circle: System_Config.A >" in refused(ini, text + MODES, system_config="A")


def test_an_unknown_parent(ini: Path) -> None:
    text = SYSTEM + "[System_Config.X]\ninherit=System_Config.Bord\n" + MODES
    assert "did you mean 'System_Config.Board'?" in refused(ini, text, system_config="X")


def test_sram_only_and_dedicated(ini: Path) -> None:
    text = SYSTEM.replace("OffChipFlash", "Dram") + (
        "[Memory_Mode.One]\nconst_mem_area=Axi0\narena_mem_area=Axi0\ncache_mem_area=Axi0\n"
        "[Memory_Mode.Two]\nconst_mem_area=Axi1\narena_mem_area=Axi1\ncache_mem_area=Axi0\n"
    )
    one = load(ini, text, "ethos-u65-256", memory_mode="One")
    assert one.memory_mode is MemoryMode.SRAM_ONLY
    two = load(ini, text, "ethos-u65-256", memory_mode="Two")
    assert two.memory_mode is MemoryMode.DEDICATED_SRAM
    assert (two.const.name, two.arena.name, two.cache.name) == ("dram", "dram", "sram")
    assert "does not fit ethos-u55-128" in refused(ini, text, memory_mode="Two")


def test_ports_may_be_swapped(ini: Path) -> None:
    """Vela's ports are virtual: what counts is which memory an area names."""
    text = SYSTEM.replace("axi0_port=Sram", "axi0_port=OffChipFlash").replace(
        "axi1_port=OffChipFlash", "axi1_port=Sram"
    )
    modes = "[Memory_Mode.M]\nconst_mem_area=Axi0\narena_mem_area=Axi1\ncache_mem_area=Axi1\n"
    target = load(ini, text + modes)
    assert (target.const.name, target.arena.name) == ("flash", "sram")
    assert (target.const.axi_port, target.arena.axi_port) == (0, 1)


def test_both_ports_on_one_memory(ini: Path) -> None:
    text = SYSTEM.replace("axi1_port=OffChipFlash", "axi1_port=Sram")
    mode = "[Memory_Mode.M]\nconst_mem_area=Axi1\narena_mem_area=Axi1\ncache_mem_area=Axi1\n"
    target = load(ini, text + mode)
    assert [memory.name for memory in target.memories] == ["sram"]
    assert target.const == target.arena == target.cache
    assert "const_mem_area is SRAM" in refused(ini, text + MODES)


def test_what_is_missing_takes_the_values_of_the_core(ini: Path) -> None:
    """Vela 5.2.0, regor.cpp: scale 1, latencies 1, burst 64, 1 port, 1 outstanding."""
    text = "[System_Config.Bare]\ncore_clock=1e6\naxi0_port=Sram\naxi1_port=OffChipFlash\n"
    target = load(ini, text + MODES)
    sram = target.arena
    assert sram.clock_scale == 1
    assert (sram.read_latency_cycles, sram.write_latency_cycles, sram.burst_bytes) == (1, 1, 64)
    assert (sram.max_reads, sram.max_writes, sram.ports) == (1, 1, 1)
    assert sum("lacks" in note for note in target.notes) == 2
    assert not any("max_reads" in note for note in target.notes)
    u85 = load_target("ethos-u85-256", vela_config=ini)
    assert any("Sram_max_reads=1" in note for note in u85.notes)


def test_more_than_a_port_can_carry_is_noted(ini: Path) -> None:
    notes = load(ini, SYSTEM.replace("Sram_clock_scale=0.5", "Sram_clock_scale=2") + MODES).notes
    assert any("sram has clock_scale 2" in note for note in notes)


def test_u85_ports_and_outstanding_transactions(ini: Path) -> None:
    """1.0 x 16 x 2 ports = 32 bytes per cycle."""
    extra = "Sram_ports_used=2\nSram_max_reads=8\nSram_max_writes=4\n"
    text = SYSTEM.replace("Sram_clock_scale=0.5\n", "Sram_clock_scale=1.0\n" + extra) + MODES
    sram = load(ini, text, "ethos-u85-256").arena
    assert (sram.bandwidth_bytes_per_cycle, sram.ports) == (32, 2)
    assert (sram.max_reads, sram.max_writes) == (8, 4)


def test_unknown_keys_are_noted_as_vela_ignores_them(ini: Path) -> None:
    text = SYSTEM.replace("Sram_read_latency", "Sram_read_latencies") + MODES
    notes = load(ini, text).notes
    assert any("did you mean sram_read_latency?" in note for note in notes)


def test_comments_bom_case_and_spaces(ini: Path) -> None:
    """As Python's configparser reads: '#' and ';' lines, ' = ', keys in any case."""
    text = SYSTEM.replace("core_clock=400e6", "# a comment\n; another\nCORE_CLOCK = 400e6")
    ini.write_bytes(b"\xef\xbb\xbf" + (text + MODES).replace("\n", "\r\n").encode())
    assert load_target("ethos-u55-128", vela_config=ini).clock_hz == 400e6


def test_a_file_without_memory_modes_uses_arms(ini: Path) -> None:
    target = load(ini, SYSTEM)
    assert target.memory_mode_name == "Shared_Sram"
    assert any("has no memory modes" in note for note in target.notes)
    assert load(ini, SYSTEM, memory_mode="Sram_Only").memory_mode is MemoryMode.SRAM_ONLY
    assert "does not fit" in refused(ini, SYSTEM, memory_mode="Dedicated_Sram")


def test_names_may_be_left_out_only_if_clear(ini: Path) -> None:
    two = SYSTEM + SYSTEM.replace("Board", "Second") + MODES
    assert "has 2 system configs" in refused(ini, two)
    default = MODES + MODES.replace("Shared", "Shared_Sram")
    assert load(ini, SYSTEM + default).memory_mode_name == "Shared_Sram"
    others = MODES + MODES.replace("Shared", "Other")
    assert "choose one with --memory-mode" in refused(ini, SYSTEM + others)
    assert "has no system configs" in refused(ini, MODES)


def test_a_name_of_another_family_is_refused(ini: Path) -> None:
    text = SYSTEM.replace("Board", "Ethos_U65_Board") + MODES
    assert "does not fit ethos-u55-128" in refused(ini, text)
    assert load(ini, text, "ethos-u65-256").system_config == "Ethos_U65_Board"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("core_clock=400e6\n", ""), "core_clock is missing"),
        (("core_clock=400e6", "core_clock=fast"), "core_clock is 'fast', not a number"),
        (("core_clock=400e6", "core_clock=400e6 ; slow"), "not a number"),
        (("core_clock=400e6", "core_clock=0"), "core_clock is 0, out of range"),
        (("core_clock=400e6", "core_clock=nan"), "out of range"),
        (("axi0_port=Sram\n", ""), "axi0_port is missing"),
        (("axi0_port=Sram", "axi0_port=Psram"), "axi0_port is 'Psram', not one of"),
        (("axi0_port=Sram", "axi0_port=OnChipFlash"), "axi1_port is a second flash"),
        (("axi0_port=Sram", "axi0_port=Dram"), "cache_mem_area is dram, not SRAM"),
        (("Sram_clock_scale=0.5", "Sram_clock_scale=0"), "has no bandwidth"),
        (("Sram_burst_length=32", "Sram_burst_length=-1"), "out of range"),
        (("Sram_read_latency=16", "Sram_read_latency=16.5"), "not a whole number"),
        (("const_mem_area=Axi1\n", ""), "const_mem_area is missing"),
        (("const_mem_area=Axi1", "const_mem_area=Axi2"), "is 'Axi2', not Axi0 or Axi1"),
        (("arena_mem_area=Axi0", "arena_mem_area=Axi1"), "arena_mem_area is off_chip_flash"),
        (("cache_mem_area=Axi0", "cache_mem_area=Axi0\narena_cache_size=0.5"), "arena_cache_size"),
        (("[System_Config.Board]", "[Board]"), "has no system configs"),
        (("[System_Config.Board]\n", ""), "cannot be parsed"),
        (("core_clock=400e6", "core_clock=1\ncore_clock=2"), "cannot be parsed"),
    ],
)
def test_ill_formed_files(ini: Path, change: tuple[str, str], complaint: str) -> None:
    assert complaint in refused(ini, (SYSTEM + MODES).replace(*change))


def test_files_that_are_no_ini(ini: Path) -> None:
    ini.write_bytes(b"\xff\xfe\x00[")
    with pytest.raises(TargetError, match="not text"):
        load_target("ethos-u55-128", vela_config=ini)
    ini.write_text("")
    with pytest.raises(TargetError, match="no sections that Vela knows"):
        load_target("ethos-u55-128", vela_config=ini)
    with pytest.raises(TargetError, match="cannot read"):
        load_target("ethos-u55-128", vela_config=ini.parent)


def test_renesas_own_ini(corpus_dir: Path) -> None:
    """The board's file has the figures of Renesas' ini; only names and capacities are its own."""
    path = corpus_dir / "specs" / "vela_ini" / "ra8p1.ini"
    if not path.is_file():
        pytest.skip("the corpus does not hold ra8p1.ini")
    theirs = load_target("ethos-u55-256", vela_config=path, memory_mode="Shared_Sram")
    ours = load_target("renesas-ra8p1")
    assert (theirs.system_config, theirs.clock_hz) == (ours.system_config, ours.clock_hz)
    assert vela_ini(theirs).splitlines()[1:] == vela_ini(ours).splitlines()[1:]
