"""Energy tables by hand, and host CPU tables against measured models (GROUND_TRUTH §4 and §5)."""

from __future__ import annotations

import pytest

from npusched.hardware import load_target
from npusched.hardware.target import CpuCostClass, HostCpu


@pytest.mark.parametrize(
    ("name", "npu_cycle", "mac", "sram", "outside"),
    [
        ("ethos-u55-128", 40.48, 0.5, 5, 150),  # 20 + 0.16 x 128; OSPI NOR
        ("ethos-u55-256", 60.96, 0.5, 5, 150),  # 20 + 0.16 x 256
        ("renesas-ra8p1", 60.96, 0.5, 5, 15),  # MRAM is on the chip
        ("ethos-u65-512", 81.44, 0.3, 4, 80),  # 20 + 0.12 x 512; LPDDR4 64 + PHY 16
        ("ethos-u85-2048", 265.76, 0.3, 4, 80),  # 20 + 0.12 x 2048
    ],
)
def test_energies(name: str, npu_cycle: float, mac: float, sram: float, outside: float) -> None:
    target = load_target(name)
    energy = target.energy
    assert energy.npu_cycle.typical == pytest.approx(npu_cycle)
    assert energy.mac.typical == mac
    assert energy.memory_read["sram"].typical == sram
    assert energy.memory_read[target.const.name].typical == outside


def test_intervals() -> None:
    """SRAM 5 pJ within 2.5: from 2 to 12.5."""
    sram = load_target("ethos-u55-128").energy.memory_read["sram"]
    assert (sram.low, sram.high) == (2, 12.5)


def cycles(cpu: HostCpu, kind: CpuCostClass, macs: float, elements: float) -> float:
    """The form of the cost that ``HostCpu`` states, dispatch apart."""
    per_mac = cpu.cycles_per_mac.get(kind, 0.0)
    return per_mac * macs + cpu.cycles_per_element.get(kind, 0.0) * elements


@pytest.mark.parametrize(
    ("macs", "outputs", "measured"),
    [
        (6.42e6, 16 * 112**2, 4_915_937),
        (19.27e6, 96 * 112**2, 24_249_462),
        (7.23e6, 24 * 56**2, 2_791_555),
        (10.84e6, 144 * 56**2, 10_329_014),
    ],
)
def test_m55_pointwise(macs: float, outputs: int, measured: int) -> None:
    """GROUND_TRUTH §5.1. E.g. K = 16: 0.2 x 19.27 M + 17 x 1.204 M = 24.3 M of 24.2 M measured."""
    cpu = load_target("cortex-m55").cpu
    assert cycles(cpu, CpuCostClass.POINTWISE_CONV, macs, outputs) == pytest.approx(
        measured, rel=0.08
    )


def test_m55_stem() -> None:
    """GROUND_TRUTH §5.1, 3x3 on 3 channels: 0.2 x 10.84 M + 29 x 401,408 = 13.81 M of 13.75 M."""
    cpu = load_target("cortex-m55").cpu
    assert cycles(cpu, CpuCostClass.CONV, 10.84e6, 32 * 112**2) == pytest.approx(13.75e6, rel=0.01)


@pytest.mark.parametrize(
    ("macs", "measured"),
    [(3.61e6, 13_715_766), (2.71e6, 10_286_711), (4.06e6, 15_319_785)],
)
def test_m55_depthwise(macs: float, measured: int) -> None:
    cpu = load_target("cortex-m55").cpu
    assert cycles(cpu, CpuCostClass.DEPTHWISE, macs, macs / 9) == pytest.approx(measured, rel=0.02)


def test_m55_quantize() -> None:
    cpu = load_target("cortex-m55").cpu
    assert cycles(cpu, CpuCostClass.QUANTIZE, 0, 150_528) == pytest.approx(1_365_831, rel=0.02)


# Work of the MLPerf Tiny models: class -> MACs, elements (counted from the files of the corpus).
MODELS = {
    "ad": {CpuCostClass.FULLY_CONNECTED: (264_192, 1672)},
    "ic": {
        CpuCostClass.CONV: (12_500_992, 86_016),
        CpuCostClass.ELEMENTWISE: (0, 28_672),
        CpuCostClass.POOL: (0, 4096),
    },
    "kws": {
        CpuCostClass.CONV: (2_368_000, 40_000),
        CpuCostClass.DEPTHWISE: (288_000, 32_000),
        CpuCostClass.POOL: (0, 8000),
    },
    "vww": {
        CpuCostClass.CONV: (6_690_816, 142_848),
        CpuCostClass.DEPTHWISE: (798_336, 88_704),
        CpuCostClass.POOL: (0, 2304),
    },
}


@pytest.mark.parametrize(
    ("host", "measured", "within"),
    [
        # MLPerf Tiny v1.2, EK-RA8D1, 480 MHz, TFLM and CMSIS-NN: latency in ms x 480,000.
        ("cortex-m85", {"ad": 254_736, "ic": 4_069_584, "kws": 1_663_152, "vww": 6_428_736}, 0.15),
        # MLPerf Tiny v0.7, EK-RA6M4, 200 MHz (Cortex-M33), TFLM and CMSIS-NN.
        ("cortex-m4", {"ad": 910_880, "ic": 49_321_820, "kws": 10_160_020, "vww": 32_056_420}, 0.1),
        # MLPerf Tiny v1.1, STM32H7A3, 280 MHz, X-CUBE-AI (quicker than TFLM: up to 27 % on vww).
        ("cortex-m7", {"ad": 507_724, "ic": 14_510_776, "kws": 4_282_012, "vww": 8_268_372}, 0.27),
    ],
)
def test_whole_models(host: str, measured: dict[str, int], within: float) -> None:
    cpu = load_target(host).cpu
    for model, truth in measured.items():
        told = sum(cycles(cpu, kind, *work) for kind, work in MODELS[model].items())
        assert told == pytest.approx(truth, rel=within), model
