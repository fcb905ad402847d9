"""The parts of the stream writer: waits, tables, storage, SHRAM, BLOCKDEP, rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npusched.emission.events import Issue, Place, Touch
from npusched.emission.luts import LutSlots
from npusched.emission.registers import check_stripes, ifm_rows
from npusched.emission.shram import shram_registers
from npusched.emission.storage import assign
from npusched.emission.waits import Access, Queues
from npusched.errors import EmitError
from npusched.graph.types import Upscale
from npusched.hardware.target import Block
from npusched.sim.blockdep import find_early_blocks
from npusched.sim.run import open_compiled
from npusched.sim.views import Pool
from npusched.vela.stream import Register
from tests.emit.emitting_kit import ready

READ = Access(1, (0, 100), writes=False)
WRITE = Access(1, (50, 60), writes=True)
ELSEWHERE = Access(2, (50, 60), writes=True)


def test_readers_do_not_wait_for_each_other() -> None:
    queues = Queues(1)
    queues.dma([READ])
    assert queues.kernel([READ, ELSEWHERE]).dmas is None


def test_a_kernel_waits_for_the_newest_dma_in_its_way() -> None:
    queues = Queues(2)
    queues.dma([WRITE])
    queues.dma([ELSEWHERE])
    assert queues.kernel([READ]).dmas == 1
    assert queues.kernel([READ]).dmas is None, "the first has been waited for"
    assert queues.kernel([replace(ELSEWHERE, writes=False)]).dmas == 0


def test_a_dma_waits_for_kernels_in_flight_only() -> None:
    queues = Queues(1)
    queues.kernel([READ])
    queues.kernel([ELSEWHERE])
    assert queues.dma([WRITE]).kernels == 1
    queues.kernel([READ])
    queues.kernel([ELSEWHERE])
    queues.kernel([ELSEWHERE])
    assert queues.dma([WRITE]).kernels is None, "only two kernels are in flight"


def test_tables_take_the_slots_that_were_used_longest_ago() -> None:
    slots = LutSlots()
    found = [slots.need((256 * k, 256), k + 1) for k in range(8)]
    assert found == [(k, True) for k in range(8)]
    assert slots.need((0, 256), 9) == (0, False)
    assert slots.need((9000, 256), 10) == (1, True)
    assert slots.need((9999, 1024), 11) == (4, True), "aligned to its size"
    assert slots.need((9999, 2048), 12) == (0, True), "another length is another table"
    slots.forget()
    assert slots.need((0, 256), 13) == (0, True)


def issue_of(*places: Place) -> Issue:
    """All places at once, then none."""
    return Issue(
        events=((0, Touch(places=tuple(p.number for p in places))),),
        places=places,
        from_start=frozenset(),
        to_end=frozenset(),
        boundary={},
    )


def place(
    number: int,
    size: int,
    *,
    over: int | None = None,
    shift_bytes: int = 0,
    planned: int | None = None,
) -> Place:
    return Place(
        number=number,
        memory="arena",
        tensor=number,
        size_bytes=size,
        over=over,
        shift_bytes=shift_bytes,
        planned=planned,
    )


def test_places_that_take_over_share_an_address() -> None:
    found = assign(issue_of(place(0, 64), place(1, 32), place(2, 64, over=0)))
    assert found.of[0] == found.of[2]
    assert found.used == {"arena": 96}


def test_places_that_overlap_keep_their_distance() -> None:
    found = assign(issue_of(place(0, 64), place(1, 64, over=0, shift_bytes=16), place(2, 32)))
    assert found.of[0] - found.of[1] == 16
    assert found.used == {"arena": 112}


@pytest.mark.parametrize(("second", "is_taken"), [(64, True), (48, False)])
def test_planned_addresses_are_taken_where_they_fit(second: int, is_taken: bool) -> None:
    issue = issue_of(place(0, 64, planned=128), place(1, 64, planned=128 + second))
    found = assign(issue, as_planned=True)
    assert (found.of == (128, 128 + second)) == is_taken


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("resnet8", "ethos-u55-128"),
        ("ds_cnn", "ethos-u55-32"),
        ("resnet8", "ethos-u65-512"),
        ("unet", "ethos-u55-128"),
    ],
)
def test_the_shram_is_divided_as_vela_does(name: str, config: str) -> None:
    template = ready(name, config).template
    for kernel in template.kernels:
        found = shram_registers(kernel.state, kernel.state.block, template.accelerator)
        assert found == {register: kernel.registers[register] for register in found}


def test_blocks_that_do_not_fit_are_refused() -> None:
    template = ready("resnet8", "ethos-u55-128").template
    with pytest.raises(EmitError, match="does not fit"):
        shram_registers(template.kernels[0].state, Block(32, 64, 128), template.accelerator)


def test_a_single_row_needs_fewer_accumulators() -> None:
    """Blocks have at least two rows on these machines; of a stripe of one row, one is used."""
    template = ready("ds_cnn", "ethos-u65-512").template
    pointwise = next(
        k.state for k in template.kernels if k.state.window.h == 1 and k.state.ofm.h > 1
    )
    block = Block(2, 16, 128)
    start, end = Register.AB_START, Register.IFM_IB_END
    whole = shram_registers(pointwise, block, template.accelerator)
    single = shram_registers(pointwise, block, template.accelerator, 1)
    assert single[start] > whole[start]
    assert single[end] == whole[end]


def test_rows_and_padding_of_stripes() -> None:
    state = ready("resnet8", "ethos-u55-128").template.kernels[0].state
    assert ifm_rows(state, 0, 4) == (0, 5, 1, 0)
    assert ifm_rows(state, 4, 8) == (3, 9, 0, 0)
    assert ifm_rows(state, 28, 32) == (27, 32, 0, 1)


@pytest.mark.parametrize("why", ["upscales", "padded above or below only"])
def test_kernels_that_cannot_be_cut_are_refused(why: str) -> None:
    kernel = ready("resnet8", "ethos-u55-128").template.kernels[0]
    state = replace(kernel.state, upscale=Upscale.NEAREST)
    if "padded" in why:
        from msgspec.structs import replace as changed

        window = changed(kernel.state.window, pad_left=0, pad_right=0)
        state = replace(kernel.state, function=Pool.AVERAGE, window=window)
    with pytest.raises(EmitError, match=why):
        check_stripes(replace(kernel, state=state))


def test_velas_softmax_lets_a_kernel_run_past_the_one_before() -> None:
    """And ours does not (EMIT.md §5)."""
    made = ready("resnet8", "ethos-u55-128")
    (theirs,) = open_compiled(made.template.content).programs
    assert any("sub" in finding for finding in find_early_blocks(theirs))
    written, _ = made.gate(made.emit(made.planner.plan(None)))
    assert find_early_blocks(open_compiled(written).programs[0]) == ()


def test_registers_are_written_only_when_they_change() -> None:
    made = ready("resnet8", "ethos-u55-128")
    (stream,) = made.emit(made.planner.plan(None)).streams
    state: dict[int, int] = {}
    at = 0
    while at < len(stream.words):
        code, value = stream.words[at] & 0xC3FF, stream.words[at] >> 16
        if code & 0x4000:
            value = value << 32 | stream.words[at + 1]
        if code & 0x3FF >= 0x100 or code & 0x4000:
            assert state.get(code) != value, Register(code & 0xFFFC)
            state[code] = value
        at += 2 if code & 0x4000 else 1
