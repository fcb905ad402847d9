"""The release gate: what is broken is found and named, and a file that fails is not returned."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest

from npusched.emission.container import unplaced_bytes, write_file
from npusched.emission.gate import MEANINGS, CheckName, check_file, used_bytes
from npusched.emission.matching import match_kernels
from npusched.emission.parts import Emitted, KernelRecord, Stream
from npusched.emission.planned import emit_plan
from npusched.emission.safe_rolling import with_safe_rolling
from npusched.emission.serial import with_serial_kernels
from npusched.emission.tags import find_tag_faults
from npusched.emission.template import make_template
from npusched.errors import ReleaseError
from npusched.hardware import load_target
from npusched.schedule import BufferKind
from npusched.sim.run import open_compiled
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model
from npusched.vela.stream import Register
from tests.emit.emit_kit import Parts, emitted_of, planned_chain
from tests.sim.sim_models import compiled, corpus_model

TARGET = "ethos-u55-128"


@lru_cache
def emitted() -> Emitted:
    """A chain of convolutions in stripes through rolling buffers."""
    content, planned = planned_chain(TARGET)
    template = make_template(content, load_target(TARGET))
    model, graph = planned.ready[:2]
    plan = planned.plan
    assert any(buffer.kind is BufferKind.ROLLING for buffer in plan.buffers)
    return emit_plan(template, model, graph, plan, match=match_kernels(template, model, graph))


def failed(changed: Emitted, limit: int | None = None) -> dict[CheckName, str]:
    """The checks that fail, with the first finding of each."""
    gate = check_file(write_file(changed), changed, load_target(TARGET), limit)
    return {check.name: check.findings[0] for check in gate.failed}


def with_words(change: dict[int, int], given: Emitted) -> Emitted:
    """The stream with words replaced."""
    words = list(given.streams[0].words)
    for at, word in change.items():
        words[at] = word
    return replace(given, streams=(replace(given.streams[0], words=tuple(words)),))


def places_of(register: int, given: Emitted) -> list[int]:
    """Where a one-word register is written."""
    words, at, found = given.streams[0].words, 0, []
    while at < len(words):
        if words[at] & 0xC3FF == register:
            found.append(at)
        at += 2 if words[at] & 0x4000 else 1
    return found


def with_records(records: list[KernelRecord], given: Emitted) -> Emitted:
    stream = Stream(given.streams[0].words, 0, tuple(records))
    return replace(given, streams=(stream,))


def test_a_good_file_passes() -> None:
    given = emitted()
    content = write_file(given)
    gate = check_file(content, given, load_target(TARGET), given.arena_bytes)
    assert not gate.failed
    assert [check.name for check in gate.checks] == list(CheckName) == list(MEANINGS)
    assert gate.require().content == content


def test_other_readers_take_a_planned_file() -> None:
    """LiteRT opens it up to the op that it does not have; Vela passes the op on as one of the host;
    inputs and outputs are the model's.
    """
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    content = write_file(emitted())
    opened = interpreter.Interpreter(model_content=content)
    shapes = [tuple(each["shape"]) for each in opened.get_input_details()]
    assert shapes == [(1, 32, 32, 8)]
    with pytest.raises(RuntimeError, match="ethos-u"):
        opened.allocate_tensors()
    result = compile_model(content, load_target(TARGET), VelaOptions(), cache=None)
    assert (result.report.cpu_ops, result.report.npu_ops) == (1, 0)
    ours, theirs = Parts(content), Parts(result.compiled)
    for position in (0, 1):
        mine = ours.data(ours.operators[0].ints("inputs")[position])
        assert mine == theirs.data(theirs.operators[0].ints("inputs")[position])
        assert content.find(mine) % 16 == 0


def test_memory_is_limited() -> None:
    used = used_bytes(emitted(), load_target(TARGET))
    assert failed(emitted(), used) == {}
    text = f"it uses {used} bytes of SRAM, {used - 16} are allowed"
    assert failed(emitted(), used - 16) == {CheckName.MEMORY: text}


def test_constants_count_where_they_share_the_memory() -> None:
    given = emitted()
    shared, only = load_target(TARGET), load_target(TARGET, memory_mode="Sram_Only")
    assert used_bytes(given, shared) == given.arena_bytes
    assert used_bytes(given, only) == given.arena_bytes + len(given.read_only)
    assert used_bytes(replace(given, fast_bytes=64), shared) == 64


def test_tensors_without_a_place_count(corpus_dir: Path) -> None:
    """TFLM places them itself: states of the SVDF ops that stay on the host."""
    content = compiled(corpus_model(corpus_dir, "tflm_keyword_scrambled_8bit"), TARGET)
    given = emitted_of(content)
    places = given.addresses
    states = [
        tensor.size_bytes
        for tensor in open_compiled(content).graph.tensors
        if tensor.is_variable and places[tensor.index] < 0
    ]
    assert sum(states) == unplaced_bytes(content) > 0
    assert used_bytes(given, load_target(TARGET)) == given.arena_bytes + sum(states)


def test_an_address_outside_is_refused_before_anything_runs() -> None:
    """Half the arena: the first kernel that leaves it is named."""
    small = replace(emitted(), arena_bytes=emitted().arena_bytes // 2 // 16 * 16)
    found = failed(small)
    assert CheckName.RANGES in found
    assert "leaves its memory" in found[CheckName.RANGES]
    gate = check_file(write_file(small), small, load_target(TARGET))
    assert gate.executable is None
    with pytest.raises(ReleaseError, match="fails the check 'ranges'"):
        gate.require()


def test_a_dropped_wait_is_a_hazard() -> None:
    """Of all waits left out, none goes unnoticed."""
    waits = [*places_of(0x11, emitted()), *places_of(0x12, emitted())]
    assert waits
    for at in waits:
        # PMU_MASK 0 stands in for the wait: it does nothing.
        assert failed(with_words({at: 0x0013}, emitted())).keys() == {CheckName.WAITS}


def test_blocks_that_overtake() -> None:
    given = emitted()
    forced = dict.fromkeys(places_of(0x12F, given), Register.BLOCK_DEPENDENCY | 3 << 16)
    assert CheckName.BLOCKDEP in failed(with_words(forced, given))


def test_a_block_that_does_not_fit() -> None:
    given = emitted()
    first = places_of(Register.OFM_BLOCK_HEIGHT_M1, given)[0]
    found = failed(with_words({first: Register.OFM_BLOCK_HEIGHT_M1 | 63 << 16}, given))
    assert CheckName.SHRAM in found


def test_a_kernel_that_reads_other_rows() -> None:
    """The records say one thing, the registers another: whichever is wrong, it is found."""
    given = emitted()
    records = list(given.streams[0].kernels)
    at = next(
        k
        for k, r in enumerate(records)
        if any(u.capacity_rows for u in r.buffers if u.role != "ofm")
    )
    uses = tuple(
        replace(use, first_row=use.first_row + 1) if use.role == "ifm" else use
        for use in records[at].buffers
    )
    changed = with_records(
        [*records[:at], replace(records[at], buffers=uses), *records[at + 1 :]], given
    )
    found = failed(changed)
    assert found.keys() == {CheckName.VERSIONS}
    assert "its ifm begins at " in found[CheckName.VERSIONS]


def test_records_that_do_not_fit_the_stream() -> None:
    given = emitted()
    records = list(given.streams[0].kernels)
    executable = open_compiled(write_file(given))
    faults = find_tag_faults(executable, with_records(records[:-1], given))
    assert faults[0] == f"operator 0 has {len(records)} kernels, {len(records) - 1} records"
    first = records[0]
    longer = tuple(replace(use, rows=use.rows + 1) for use in first.buffers)
    faults = find_tag_faults(
        executable, with_records([replace(first, buffers=longer), *records[1:]], given)
    )
    assert f"its ifm has {first.buffers[0].rows} rows, its record" in faults[0]
    nothing = with_records([replace(first, buffers=()), *records[1:]], given)
    assert "its record says no" in find_tag_faults(executable, nothing)[0]


def test_swapped_kernels_read_what_is_not_there_yet() -> None:
    """Stripes in the wrong order, in records and stream alike: every read is of another row."""
    given = emitted()
    records = list(given.streams[0].kernels)
    executable = open_compiled(write_file(given))
    rolled = [
        k
        for k, r in enumerate(records)
        if any(u.capacity_rows for u in r.buffers if u.role == "ofm")
    ]
    first, second = next(
        (a, b)
        for a, b in pairwise(rolled)
        if records[a].template == records[b].template and records[a].rows != records[b].rows
    )
    swapped = list(records)
    swapped[first], swapped[second] = records[second], records[first]
    assert find_tag_faults(executable, with_records(swapped, given))


def test_serial_kernels_never_overlap() -> None:
    """BLOCKDEP 0 in every kernel, and nothing else changes."""
    serial = with_serial_kernels(emitted())
    assert failed(serial) == {}
    before = open_compiled(write_file(emitted())).programs[0].kernels
    after = open_compiled(write_file(serial)).programs[0].kernels
    assert any(kernel.state.block_dependency for kernel in before)
    assert [replace(kernel.state, block_dependency=0) for kernel in before] == [
        kernel.state for kernel in after
    ]


def test_safe_rolling_keeps_at_least_as_many_rows() -> None:
    """And never fewer than one stripe made beside one that is read (VELA_SPEC), or all."""
    content, planned = planned_chain(TARGET)
    model, graph = planned.ready[:2]
    plan = with_safe_rolling(graph, planned.plan)
    grown = 0
    for before, after in zip(planned.plan.buffers, plan.buffers, strict=True):
        assert after.rows >= before.rows
        assert after.size_bytes * before.rows == before.size_bytes * after.rows or not before.rows
        grown += after.rows > before.rows
    assert grown
    template = make_template(content, load_target(TARGET))
    safe = emit_plan(template, model, graph, plan)
    assert safe.arena_bytes > emitted().arena_bytes
    assert failed(safe) == {}
