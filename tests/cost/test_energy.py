"""Energy sums by hand, and their intervals."""

from __future__ import annotations

import msgspec
import pytest

from npusched.cost.energy import add_energies, energy_of
from npusched.hardware import load_target
from npusched.hardware.target import EnergyTable, Target, Uncertain


@pytest.fixture(scope="module")
def target() -> Target:
    """U55-128 at 500 MHz with round energies and a CPU at 250 MHz."""
    base = load_target("ethos-u55-128")
    names = [memory.name for memory in base.memories]
    table = EnergyTable(
        mac=Uncertain(typical=0.5, factor=2.0),
        shram_byte=Uncertain(typical=1.0, factor=2.0),
        memory_read=dict.fromkeys(names, Uncertain(typical=5.0, factor=2.5)),
        memory_write=dict.fromkeys(names, Uncertain(typical=10.0, factor=2.5)),
        npu_cycle=Uncertain(typical=40.0, factor=2.0),
        cpu_active_cycle=Uncertain(typical=100.0, factor=4.0),
        cpu_wait_cycle=Uncertain(typical=20.0, factor=2.0),
        static_mw=Uncertain(typical=2.0, factor=4.0),
    )
    cpu = msgspec.structs.replace(base.cpu, clock_hz=250e6)
    return msgspec.structs.replace(base, energy=table, cpu=cpu, clock_hz=500e6)


def test_by_hand(target: Target) -> None:
    """1 M MACs 500 nJ; 10 kB read 50 nJ, 2 kB written 20 nJ; SHRAM 2 * 12 kB = 24 nJ.

    100 k NPU cycles (0.2 ms) 4000 nJ, in which the CPU waits 50 k cycles: 1000 nJ; 25 k CPU cycles
    (0.1 ms) 2500 nJ; 0.3 ms at 2 mW = 600 nJ. Sum 8694 nJ. Low: 250 + 20 + 8 + 12 + 2000 + 500 +
    625 + 150 = 3565; high: 1000 + 125 + 50 + 48 + 8000 + 2000 + 10000 + 2400 = 23623.
    """
    sram = target.roles.arena
    energy = energy_of(
        target,
        macs=1_000_000,
        npu_cycles=100_000,
        cpu_cycles=25_000,
        bytes_read={sram: 10_000},
        bytes_written={sram: 2_000},
    )
    assert energy.typical == pytest.approx(8694)
    assert energy.low == pytest.approx(3565)
    assert energy.high == pytest.approx(23623)
    assert {part.name: round(part.typical_nj, 6) for part in energy.parts}["static"] == 600


def test_energies_add(target: Target) -> None:
    """The energy of two halves is the energy of the whole, part by part."""
    half = energy_of(target, macs=10, npu_cycles=20, cpu_cycles=0, bytes_read={}, bytes_written={})
    whole = energy_of(target, macs=20, npu_cycles=40, cpu_cycles=0, bytes_read={}, bytes_written={})
    both = add_energies((half, half))
    assert both.typical == pytest.approx(whole.typical)
    assert both.low == pytest.approx(whole.low)
    assert both.high == pytest.approx(whole.high)
    assert [part.name for part in both.parts] == [part.name for part in whole.parts]


def test_nothing_costs_nothing(target: Target) -> None:
    energy = energy_of(target, macs=0, npu_cycles=0, cpu_cycles=0, bytes_read={}, bytes_written={})
    assert (energy.low, energy.typical, energy.high, energy.parts) == (0, 0, 0, ())


def test_unknown_memory(target: Target) -> None:
    with pytest.raises(KeyError):
        energy_of(
            target, macs=0, npu_cycles=0, cpu_cycles=0, bytes_read={"tape": 1}, bytes_written={}
        )
