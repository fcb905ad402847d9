"""The accelerator tables, written down a second time from VELA_SPEC §1.1 and §1.2."""

from __future__ import annotations

import pytest

from npusched.hardware import load_target, target_names, vela_accelerator
from npusched.hardware.target import AcceleratorU55, AcceleratorU85, BankGranules, ReadBuffers

# macs: OFM ublock, IFM ublock, SHRAM KiB, reserved at the end, granules, out, act
U55 = {
    "ethos-u55-32": (32, 1, "1 1 4", "1 1 8", 16, 0, "2 2 2 2 4 4 4 4", "2 3 3 3 4 6 1 2", "1 1 0"),
    "ethos-u55-64": (
        64, 1, "1 1 8", "1 1 8", 16, 0, "2 2 2 2 4 4 4 8", "1 1.5 1.5 1.5 2 3 .5 1", "1 1 0",
    ),
    "ethos-u55-128": (
        128, 1, "1 2 8", "1 2 8", 24, 2, "4 4 4 4 8 4 8 12",
        ".75 1.25 .75 .75 1 1.5 .25 .5", "1 .5 0",
    ),
    "ethos-u55-256": (
        256, 1, "2 2 8", "2 2 8", 48, 2, "8 8 8 8 16 8 16 20",
        ".625 1.125 .5 .375 .5 .75 .125 .25", "1 .25 0",
    ),
    "ethos-u65-256": (
        256, 1, "2 2 8", "2 2 8", 48, 2, "8 8 8 8 16 8 16 20",
        ".625 1.125 .5 .375 .5 .75 .125 .25", "1 .25 0",
    ),
    "ethos-u65-512": (
        512, 2, "2 2 8", "2 2 8", 48, 2, "8 8 8 8 16 8 16 20",
        ".3125 .5625 .25 .1875 .25 .375 .0625 .125", ".5 .125 0",
    ),
}  # fmt: skip

# macs: decoders, OFM ublocks, IFM ublock, IB AB OB CB, out, act, resize low / high, read buffers
U85 = {
    128: (
        1, "1 2 8; 1 1 16", "1 2 8", "8192 8192 2048 768", ".5 .5 .5 1 1 1", ".5 1",
        ".5 1", ".5 1", "64 64 128 128 104 16",
    ),
    256: (
        1, "1 2 16; 1 4 8; 2 2 8", "2 2 8", "16384 16384 2048 1536", ".25 .25 .25 .5 .5 .5",
        ".25 .5", ".25 .5", ".25 .5", "104 104 128 128 128 16",
    ),
    512: (
        2, "2 2 16; 1 4 16", "2 2 16", "16384 32768 4096 3072", ".125 .125 .25 .5 .25 .25",
        ".125 .25", ".125 .25", ".125 .25", "128 128 256 256 128 16",
    ),
    1024: (
        4, "2 2 32; 1 4 32; 2 4 16", "4 2 16", "16384 65536 4096 6144",
        ".0625 .125 .25 .5 .125 .25", ".0625 .125", ".125 .125", ".0625 .125",
        "256 256 416 208 256 16",
    ),
    2048: (
        4, "2 2 64; 1 4 64; 4 4 16", "4 4 16", "32768 131072 8192 12288",
        ".03125 .0625 .125 .25 .0625 .125", ".03125 .0625", ".0625 .0625", ".03125 .0625",
        "256 256 512 256 256 16",
    ),
}  # fmt: skip


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split())


def test_no_accelerator_is_missing_here() -> None:
    named = {name for name in target_names() if name.startswith("ethos-")}
    assert named == {*U55, *(f"ethos-u85-{macs}" for macs in U85)}


@pytest.mark.parametrize("name", U55)
def test_u55_and_u65(name: str) -> None:
    """VELA_SPEC §1.1. Outstanding kernels 2; DMA 1 (U55) or 2 (U65); 4 GiB or 1 TiB."""
    macs, cores, ofm, ifm, banks, end, granules, out, act = U55[name]
    accelerator = load_target(name).accelerator
    assert isinstance(accelerator, AcceleratorU55)
    is_u65 = name.startswith("ethos-u65")
    assert accelerator.name == name
    assert accelerator.family == name[:9]
    assert (accelerator.macs_per_cycle, accelerator.cores) == (macs, cores)
    assert blocks(accelerator.ofm_ublock) == numbers(ofm)
    assert blocks(accelerator.ifm_ublock) == numbers(ifm)
    assert blocks(accelerator.max_ofm_block) == (32, 64, 128)
    assert accelerator.shram_banks == banks
    assert accelerator.shram_reserved_output_banks == 2
    assert accelerator.shram_reserved_end_banks == end
    keys = BankGranules.__struct_fields__
    assert tuple(getattr(accelerator.bank_granules, key) for key in keys) == numbers(granules)
    assert accelerator.output_cycles_per_element == numbers(out)
    assert accelerator.activation_cycles_per_element == numbers(act)
    assert accelerator.max_block_dependency == 3
    assert accelerator.max_outstanding_kernels == 2
    assert accelerator.max_outstanding_dma == (2 if is_u65 else 1)
    assert accelerator.address_bits == (40 if is_u65 else 32)
    assert accelerator.axi_bytes == (16 if is_u65 else 8)


@pytest.mark.parametrize("macs", U85)
def test_u85(macs: int) -> None:
    """VELA_SPEC §1.2. Block dependency 7, DMA 4, kernels 2; ports from ethos_u85.cpp."""
    decoders, ofms, ifm, buffers, out, act, low, high, reads = U85[macs]
    accelerator = load_target(f"ethos-u85-{macs}").accelerator
    assert isinstance(accelerator, AcceleratorU85)
    assert (accelerator.macs_per_cycle, accelerator.cores) == (macs, decoders)
    expected = tuple(numbers(each) for each in ofms.split(";"))
    assert tuple(blocks(each) for each in accelerator.ofm_ublocks) == expected
    assert blocks(accelerator.ifm_ublock) == numbers(ifm)
    assert blocks(accelerator.max_ofm_block) == (128, 128, 1024)
    assert (
        accelerator.input_buffer_bytes,
        accelerator.accumulator_buffer_bytes,
        accelerator.output_buffer_bytes,
        accelerator.chain_buffer_bytes,
    ) == numbers(buffers)
    assert accelerator.output_cycles_per_element == numbers(out)
    assert accelerator.activation_cycles_per_element == numbers(act)
    assert accelerator.resize_low_cycles_per_element == numbers(low)
    assert accelerator.resize_high_cycles_per_element == numbers(high)
    keys = ReadBuffers.__struct_fields__
    assert tuple(getattr(accelerator.read_buffers, key) for key in keys) == numbers(reads)
    assert accelerator.max_block_dependency == 7
    assert accelerator.max_outstanding_dma == 4
    assert accelerator.max_outstanding_kernels == 2
    assert (accelerator.address_bits, accelerator.axi_bytes) == (40, 16)
    assert accelerator.sram_ports == (4 if macs == 2048 else 2)
    assert accelerator.external_ports == (2 if macs >= 1024 else 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ethos-u55-32", ("EthosU55", 32, 1)),
        ("ethos-u55-128", ("EthosU55", 128, 1)),
        ("ethos-u65-256", ("EthosU65", 256, 1)),
        ("ethos-u65-512", ("EthosU65", 256, 2)),
        ("ethos-u85-512", ("EthosU85", 512, 1)),
        ("ethos-u85-2048", ("EthosU85", 2048, 1)),
        ("renesas-ra8p1", ("EthosU55", 256, 1)),
    ],
)
def test_what_vela_calls_it(name: str, expected: tuple[str, int, int]) -> None:
    """VELA_SPEC §6: u65-512 is 2 cores of 256, a U85 is one core."""
    assert vela_accelerator(load_target(name)) == expected


def blocks(block: object) -> tuple[float, ...]:
    return tuple(float(getattr(block, axis)) for axis in "hwc")
