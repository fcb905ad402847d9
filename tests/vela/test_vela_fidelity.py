"""Vela's schedules costed from facts alone: what it reports is no input, and comes out equal."""

from __future__ import annotations

import random
import re
from pathlib import Path

import msgspec
import pytest

from benchmarks.crosscheck import check, network_cause, slices_of
from npusched.cost.types import OpCost
from npusched.errors import VelaError
from npusched.hardware import load_target
from npusched.hardware.target import Target
from npusched.ir import Model
from npusched.tflite import Builder, read_model
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


def random_network(seed: int) -> bytes:
    """Two to six convolutions, sums and transposed results, 8 or 16 bits wide."""
    dice = random.Random(seed)
    net = Builder(seed=seed)
    shape = (1, dice.choice((4, 7, 12, 24)), dice.choice((4, 8, 13, 24)), dice.choice((3, 40, 96)))
    x = net.input("x", shape, dice.choice(("int8", "int16")))
    for _ in range(dice.randint(2, 6)):
        kind = dice.choice(("conv", "conv", "depthwise", "add", "transpose"))
        channels = dice.choice((16, 64, 130, 320))
        if kind == "conv":
            kernel, stride = dice.choice((1, 3, (1, 3))), dice.choice((1, 1, 2))
            x = net.conv2d(x, channels, kernel, stride=stride, activation=dice.choice(FUSED))
        elif kind == "depthwise":
            x = net.depthwise_conv2d(x, 3)
        elif kind == "add":
            x = net.add(x, x)
        else:
            x = net.transpose(net.conv2d(x, channels, 1), (0, 2, 1, 3))
    net.output(x)
    return net.build()


FUSED = ("NONE", "RELU", "RELU6")
HARD_LIMITS = [
    ("ethos-u65-256", "Dedicated_Sram_384KB"),
    ("ethos-u65-512", "Dedicated_Sram_384KB"),
    ("ethos-u85-128", "Dedicated_Sram_384KB"),
    ("ethos-u85-512", "Dedicated_Sram_384KB"),
    ("ethos-u55-256", "Shared_Sram"),
]
"""Where tensors, weights and graph inputs are staged most variously."""


@pytest.mark.parametrize(("name", "mode"), HARD_LIMITS)
def test_random_networks_are_exact(name: str, mode: str) -> None:
    """Rows, bytes, blocks, estimates and totals of networks that nobody chose."""
    target = load_target(name, memory_mode=mode)
    rows = sliced = 0
    for seed in range(12):
        content = random_network(seed)
        for arena_bytes in (1 << 15, 1 << 20):
            options = VelaOptions(arena_cache_size_bytes=arena_bytes)
            try:
                result = compile_model(content, target, options, cache=None)
            except VelaError:
                continue  # Vela itself sometimes finds no place for what it staged
            found = check(target, result, read_model(content, f"random{seed}"))
            assert found.errors == [], (seed, arena_bytes)
            assert found.ours == found.theirs
            assert found.equal_estimates == found.estimates
            rows += found.rows
            sliced += found.sliced
    assert rows > 60
    assert sliced > 3


def test_an_input_with_a_step_is_exact() -> None:
    """A strided slice before a convolution and before a transpose convolution.

    The step widens the stride where the last slice's cycles are estimated (U65), and hides x2
    upscaling in the shapes (U55): 5x8 read as 3x4 gives 7x9 like 5x8 would not.
    """
    for name in ("ethos-u55-128", "ethos-u65-256"):
        target = load_target(name)
        net = Builder(seed=2)
        x = net.input("x", (1, 13, 8, 17))
        every_other = net.strided_slice(x, (0, 0, 0, 0), (1, 13, 8, 17), (1, 2, 1, 1))
        net.output(net.conv2d(every_other, 8, (2, 3), stride=3, padding="VALID"))
        y = net.input("y", (1, 5, 8, 17))
        sparse = net.strided_slice(y, (0, 0, 0, 0), (1, 5, 8, 17), (1, 2, 2, 1))
        net.output(net.transpose_conv(sparse, 8, 3, stride=2, padding="VALID"))
        content = net.build()
        for arena_bytes in (1 << 10, 1 << 20):
            options = VelaOptions(arena_cache_size_bytes=arena_bytes)
            result = compile_model(content, target, options, cache=None)
            found = check(target, result, read_model(content, "steps"))
            assert found.rows >= 2
            assert found.errors == []
            assert found.ours == found.theirs


def test_reader_of_an_input_copy_lends_what_it_took_before() -> None:
    """U85-512 copies the graph input to SRAM; the op after its reader prefetches its weights.

    The reader's cycles, under which they hide, are those with the input still in DRAM.
    """
    target = load_target(
        "ethos-u85-512", system_config="Ethos_U85_SYS_DRAM_Low", memory_mode="Dedicated_Sram_384KB"
    )
    net = Builder(seed=358)
    x = net.input("x", (1, 7, 8, 96), "int16")
    turned = net.transpose(net.conv2d(x, 32, 1), (0, 2, 1, 3))
    net.output(net.conv2d(net.conv2d(turned, 320, 1), 40, (1, 3)))
    content = net.build()
    result = compile_model(content, target, VelaOptions(arena_cache_size_bytes=1 << 20), cache=None)
    copy, reader, user = read_rows(result.database, target)[:3]
    assert copy.name.startswith("input_buffer_")
    assert reader.ifm_staged
    assert user.pre_buffered
    assert check(target, result, read_model(content, "copied")).errors == []
