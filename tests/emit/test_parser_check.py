"""What driver and TFLM refuse is found, one fault at a time; Vela's own files have none."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npusched.emission.container import ALLOCATION, STOP, write_file
from npusched.emission.parser_check import ParserFinding, check_parser
from npusched.emission.parts import Stream
from npusched.errors import ModelError
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record, Value
from npusched.tflite.rewrite import TensorValues, replace_values
from tests.emit.emit_kit import Parts, emitted_of
from tests.sim.sim_models import accelerator, compiled, corpus_model, one_op

CONV = one_op("conv2d", 24, 3, shape=(1, 8, 8, 16))
U55, U65 = "ethos-u55-128", "ethos-u65-512"


def check(content: bytes, config: str = U55, fast: int | None = None) -> list[ParserFinding]:
    return list(check_parser(content, accelerator(config), fast))


def said(findings: list[ParserFinding]) -> list[str]:
    return [f"{found.rule}: {found.why}" for found in findings]


@pytest.mark.parametrize("config", [U55, U65, "ethos-u55-32", "ethos-u65-256"])
def test_velas_files_are_accepted(config: str) -> None:
    assert check(compiled(CONV(), config), config) == []


@pytest.mark.parametrize("name", ["coral_movenet_lightning", "tflm_audio_preprocessor_int8"])
def test_velas_files_with_cpu_ops_are_accepted(corpus_dir: Path, name: str) -> None:
    assert check(compiled(corpus_model(corpus_dir, name), U55)) == []


def edit_payload(change: Callable[[list[int]], list[int]]) -> bytes:
    """A file whose payload (as words) is changed."""
    content = compiled(CONV(), U55)
    parts = Parts(content)
    command = parts.operators[0].ints("inputs")[0]
    old = parts.data(command)
    words = change(list(struct.unpack(f"<{len(old) // 4}I", old)))
    data = struct.pack(f"<{len(words)}I", *words)
    return replace_values(content, {command: TensorValues((len(data),), data)}, {})


PAYLOADS: dict[str, tuple[Callable[[list[int]], list[int]], list[str]]] = {
    "padded": (lambda w: [*w, 0], ["payload: unknown driver action 0 at word 82"]),
    "fourcc": (
        lambda w: [0, *w[1:]],
        ["payload: it has 328 bytes and begins with b'\\x00\\x00\\x00\\x00'"],
    ),
    "macs": (
        lambda w: [*w[:2], w[2] + 1, *w[3:]],
        ["machine: it is for 256 MACs per cycle, ethos-u55-128 has 128"],
    ),
    "shram": (
        lambda w: [*w[:2], w[2] + (1 << 8), *w[3:]],
        ["machine: it is for 25 KiB of SHRAM, ethos-u55-128 has 24"],
    ),
    "product": (
        lambda w: [*w[:2], w[2] | 1 << 28, *w[3:]],
        ["machine: it is for 1 product, ethos-u55-128 has 0"],
    ),
    "architecture": (
        lambda w: [*w[:3], w[3] + (1 << 28), *w[4:]],
        ["machine: it is for 2 architecture, ethos-u55-128 has 1"],
    ),
    "no nop": (lambda w: [*w[:4], *w[5:]], ["alignment: its commands begin at byte "]),
    "truncated": (
        lambda w: w[:-1],
        ["payload: it announces 74 command words, 73 follow", "payload: its last command is not"],
    ),
    "longer": (lambda w: [*w, 5], []),
    "two streams": (
        lambda w: [*w, 5, 5, 5, 5, 5, 2 | 1 << 16, STOP],
        ["payload: it holds 2 command streams"],
    ),
    "no machine": (
        lambda w: [w[0], 5, 5, 5, *w[4:]],
        ["payload: the commands come before the machine"],
    ),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_payloads(name: str) -> None:
    """A conv on 8 x 8 x 16: 74 command words behind 8 words of driver actions."""
    change, wanted = PAYLOADS[name]
    found = said(check(edit_payload(change)))
    assert len(found) >= len(wanted)
    for text, want in zip(found, wanted, strict=False):
        assert text.startswith(want)
    assert bool(found) == bool(wanted)


def test_every_command_is_looked_at() -> None:
    """Weights at an odd address, a region that is not there, a command cut off in the middle."""
    content = compiled(CONV(), U55)
    given = emitted_of(content)
    words = given.streams[0].words

    def with_words(*extra: int) -> list[str]:
        stream = Stream((*words[:-1], *extra, STOP), 0, ())
        return said(check(write_file(replace(given, streams=(stream,)))))

    assert with_words() == []
    assert with_words(0x4020, 8)[0].startswith("alignment: weights 8")
    assert with_words(0x4093, 40)[0].startswith("alignment: length of scales of core 1 40")
    assert with_words(0x4032, 10)[0].startswith("alignment: DMA length 10")
    assert with_words(0x010F | 8 << 16) == ["machine: IFM are in region 8, of 8"]
    cut = edit_payload(lambda w: [*w[:7], w[7] + (1 << 16), *w[8:-1], 0x010F, 0x4020])
    assert said(check(cut)) == [
        "payload: its last command is not STOP",
        "payload: its last command is cut off",
    ]


def test_places_in_the_arena() -> None:
    """A result behind the arena, an input at no multiple of 16, and one without a place."""
    content = compiled(CONV(), U55)
    given = emitted_of(content)
    parts = Parts(content)
    source, result = parts.graph.ints("inputs")[0], parts.graph.ints("outputs")[0]

    def at(tensor: int, offset: int) -> list[str]:
        places = {**given.addresses, tensor: offset}
        return said(check(write_file(replace(given, addresses=places))))

    end = given.arena_bytes
    assert at(result, end)[0].startswith(f"allocation: tensor conv_2d0 at {end} is outside the")
    assert f"allocation: tensor {source} is at 8" in at(source, 8)
    assert at(source, -1)[0].startswith("allocation: tensor x at -1 is outside")


def allocation(change: Callable[[list[int]], list[int]]) -> list[str]:
    content = compiled(CONV(), U55)
    words = change(Parts(content).allocation)
    data = np.array(words, "<i4").tobytes()
    return said(check(replace_values(content, {}, {ALLOCATION: data})))


def test_the_allocation_is_complete() -> None:
    wanted = "allocation: it says [0, 1, 4] and has 32 bytes, for 1 subgraphs with 5 tensors"
    assert allocation(lambda w: [*w[:2], 4, *w[3:]])[0] == wanted
    assert allocation(lambda w: [1, *w[1:]])[0].startswith("allocation: it says [1, 1, 5]")
    assert allocation(lambda w: w[:-1])[0].startswith("allocation: it says [0, 1, 5] and has 28")


def edited(**changes: Callable[[Record], dict[str, Value]]) -> bytes:
    """The file with values of its model, graph or operator changed."""
    root = decode(compiled(CONV(), U55))
    graph = root.records("subgraphs")[0]
    op = graph.records("operators")[0]
    for name, record in (("op", op), ("graph", graph), ("root", root)):
        values = dict(record.values)
        if name == "graph":
            values["operators"] = (op,)
        if name == "root":
            values["subgraphs"] = (graph,)
        if name in changes:
            values |= changes[name](record)
        made = Record(record.table, values)
        op, graph, root = (
            made if name == "op" else op,
            made if name == "graph" else graph,
            made if name == "root" else root,
        )
    return encode(root)


def test_operators() -> None:
    assert said(check(edited(op=lambda _: {"custom_options": b"\x02"}))) == [
        "operator: custom options are 02"
    ]
    assert said(check(edited(op=lambda op: {"inputs": op.ints("inputs")[:3]}))) == [
        "operator: its inputs are [0, 1, 2]"
    ]
    assert said(check(edited(graph=lambda _: {"operators": ()}))) == [
        "operator: it has no ethos-u operator"
    ]
    assert said(check(edited(root=lambda _: {"metadata": ()})))[0] == "allocation: it is missing"


def test_the_shape_says_the_size() -> None:
    content = compiled(CONV(), U55)
    read_only = Parts(content).memories()[0]
    odd = replace_values(content, {read_only: TensorValues((1,))}, {})
    assert said(check(odd))[0].startswith("operator: the read-only tensor has shape [1] and ")


def test_fast_memory_is_as_large_as_the_application_gives() -> None:
    """U65 with DRAM and SRAM: the driver refuses a fast area that is larger than its own."""
    content = compiled(CONV(), U65)
    given = emitted_of(content)
    assert given.fast_bytes is not None
    large = write_file(replace(given, fast_bytes=4096))
    assert check(large, U65, 4096) == []
    assert said(check(large, U65, 4080)) == [
        "fast_memory: it needs 4096 bytes of fast memory, there are 4080"
    ]


def test_a_file_that_is_no_flatbuffer() -> None:
    with pytest.raises(ModelError):
        check(b"TFL3")
