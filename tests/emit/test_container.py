"""The written file: Vela's own again from its own values, replaced values, other readers."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from npusched.emission.container import ALLOCATION, STOP, write_file, write_payload
from npusched.emission.parts import Stream
from npusched.errors import EmitError, ModelError
from npusched.hardware import load_target
from npusched.sim.run import open_compiled
from npusched.tflite import Builder
from npusched.tflite.decode import decode
from npusched.tflite.encode import encode
from npusched.tflite.records import Record
from npusched.tflite.rewrite import TensorValues, replace_values
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model
from npusched.vela.stream import decode_stream
from tests.emit.emit_kit import Parts, differences, emitted_of, fields
from tests.sim.sim_models import compiled, corpus_model, one_op

POOL = one_op("max_pool2d", 2, shape=(1, 8, 8, 16))
CONV = one_op("conv2d", 24, 3, shape=(1, 8, 8, 16))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("mlpt_kws", "ethos-u55-128"),
        ("mlpt_vww", "ethos-u65-512"),
        ("coral_movenet_lightning", "ethos-u55-128"),
        ("tflm_audio_preprocessor_int8", "ethos-u65-512"),
        ("mlzoo_rnnoise_int8", "ethos-u55-128"),
    ],
)
def test_velas_file_from_its_own_values(corpus_dir: Path, name: str, config: str) -> None:
    """All fields are equal: one and several NPU operators, CPU ops, custom ops, signatures."""
    content = compiled(corpus_model(corpus_dir, name), config)
    again = write_file(emitted_of(content))
    assert differences(fields(content), fields(again)) == []


@pytest.mark.parametrize("config", ["ethos-u55-128", "ethos-u65-512"])
@pytest.mark.parametrize("model", [POOL, CONV], ids=["without constants", "with constants"])
def test_small_files_from_their_own_values(model: object, config: str) -> None:
    content = compiled(model(), config)  # type: ignore[operator]
    again = write_file(emitted_of(content))
    assert differences(fields(content), fields(again)) == []


def test_replaced_values_are_in_the_file() -> None:
    """Another stream, other constants, sizes and addresses: each where it belongs, all else equal.

    The stream gets two more words, the constants 48 more bytes, the arena 1024 more, everything
    that has an address moves by 512.
    """
    content = compiled(CONV(), "ethos-u65-512")
    given = emitted_of(content)
    words = (0x0107, 0x0107, *given.streams[0].words)
    moved = {tensor: at + 512 if at >= 0 else at for tensor, at in given.addresses.items()}
    changed = replace(
        given,
        streams=(Stream(words, 0, ()),),
        read_only=given.read_only + bytes(range(48)),
        arena_bytes=given.arena_bytes + 1024,
        fast_bytes=4096,
        addresses=moved,
    )
    before, after = Parts(content), Parts(write_file(changed))
    command = after.operators[0].ints("inputs")[0]
    payload = after.data(command)
    read_only, scratch, fast = after.memories()
    assert decode_stream(payload).words == words
    assert after.tensors[command].ints("shape") == (len(payload),)
    assert after.data(read_only) == changed.read_only
    assert after.tensors[read_only].ints("shape") == (len(changed.read_only),)
    assert after.tensors[scratch].ints("shape") == (changed.arena_bytes,)
    assert after.tensors[fast].ints("shape") == (4096,)
    expected = [at + 512 if at >= 0 else at for at in before.allocation[3:]]
    expected[scratch] = expected[fast] = 0
    assert after.allocation == [*before.allocation[:3], *expected]
    paths = {
        path.split("[")[0] + path[path.find("]") + 1 :].split("[")[0]
        for path, _, _ in differences(fields(content), fields(write_file(changed)))
    }
    assert paths == {".subgraphs.tensors", ".buffers.data"}


def test_everything_is_aligned() -> None:
    """Constants and command words begin at multiples of 16 bytes of the file (TFLM, the driver)."""
    written = write_file(emitted_of(compiled(CONV(), "ethos-u55-128")))
    parts = Parts(written)
    for tensor in (parts.operators[0].ints("inputs")[0], parts.memories()[0]):
        data = parts.data(tensor)
        assert written.find(data) % 16 == 0
    payload = parts.data(parts.operators[0].ints("inputs")[0])
    assert decode_stream(payload).start_bytes % 16 == 0


def test_the_payload_counts_up_to_24_bits() -> None:
    """Word counts above 65,535 use bits 15 to 8 of the driver action; nothing follows STOP."""
    template = Parts(compiled(POOL(), "ethos-u55-128"))
    old = template.data(template.operators[0].ints("inputs")[0])
    words = (0x0107,) * 70_000 + (STOP,)
    payload = write_payload(old, words)
    stream = decode_stream(payload)
    assert stream.words == words
    assert len(payload) == stream.start_bytes + 4 * len(words)
    assert payload[:16] == old[:16]
    with pytest.raises(EmitError, match="16777216 words"):
        write_payload(old, (0x0107,) * (1 << 24))
    with pytest.raises(ValueError, match="STOP"):
        write_payload(old, (0x0107,))
    with pytest.raises(EmitError, match="COP1"):
        write_payload(b"COP2" + old[4:], words)
    with pytest.raises(EmitError, match="configuration"):
        write_payload(old[:4] + struct.pack("<I", 5) + old[8:], words)


def test_names_are_kept_as_they_are() -> None:
    """Control characters and bytes that are no UTF-8 are written again, not replaced."""
    root = decode(compiled(POOL(), "ethos-u55-128"), keeps_text=True)
    graph = root.records("subgraphs")[0]
    tensors = list(graph.records("tensors"))
    odd = "a\n\x07\x1bé" + b"\xff\xfe".decode("utf-8", "surrogateescape")
    tensors[-1] = Record("Tensor", {**tensors[-1].values, "name": odd})
    odd_graph = Record("SubGraph", {**graph.values, "tensors": tuple(tensors)})
    content = encode(Record("Model", {**root.values, "subgraphs": (odd_graph,)}))
    assert b"a\n\x07\x1b\xc3\xa9\xff\xfe\0" in content
    assert b"a\n\x07\x1b\xc3\xa9\xff\xfe\0" in write_file(emitted_of(content))


def test_a_template_that_does_not_fit_is_refused() -> None:
    content = compiled(POOL(), "ethos-u55-128")
    given = emitted_of(content)
    with pytest.raises(EmitError, match="1 NPU operators, 2 streams"):
        write_file(replace(given, streams=given.streams * 2))
    with pytest.raises(EmitError, match="no scratch_fast"):
        write_file(replace(given, fast_bytes=16))
    with pytest.raises(ModelError, match="read_only"):
        write_file(replace(given, read_only=bytes(16)))
    with pytest.raises(ModelError, match="Nothing"):
        replace_values(content, {}, {"Nothing": b""})
    short = replace_values(content, {}, {ALLOCATION: b"1234"})
    with pytest.raises(EmitError, match="4 bytes for 5 tensors"):
        write_file(replace(given, template=short))


def test_shared_buffers_are_not_overwritten() -> None:
    b = Builder("shared")
    b.output(b.conv2d(b.input("x", (1, 8, 8, 16)), 8, 3))
    root = decode(b.build())
    graph = root.records("subgraphs")[0]
    tensors = list(graph.records("tensors"))
    used = next(i for i, t in enumerate(tensors) if t.integer("buffer"))
    tensors.append(tensors[used])
    doubled = Record("SubGraph", {**graph.values, "tensors": tuple(tensors)})
    content = encode(Record("Model", {**root.values, "subgraphs": (doubled,)}))
    with pytest.raises(ModelError, match="2 users"):
        replace_values(content, {used: TensorValues((4,), b"1234")}, {})


def test_litert_opens_the_file_up_to_the_npu_op() -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    written = write_file(emitted_of(compiled(CONV(), "ethos-u55-128")))
    opened = interpreter.Interpreter(model_content=written)
    assert [each["name"] for each in opened.get_input_details()] == ["x"]
    with pytest.raises(RuntimeError, match="ethos-u"):
        opened.allocate_tensors()


def test_vela_reads_the_file() -> None:
    """To Vela the op is one of the CPU: it passes the file on with the same payload."""
    written = write_file(emitted_of(compiled(CONV(), "ethos-u55-128")))
    result = compile_model(written, load_target("ethos-u55-128"), VelaOptions(), cache=None)
    assert result.report.cpu_ops == 1
    assert result.report.npu_ops == 0
    ours, theirs = Parts(written), Parts(result.compiled)
    command = ours.operators[0].ints("inputs")[0]
    again = theirs.operators[0].ints("inputs")[0]
    assert theirs.data(again) == ours.data(command)


def test_the_simulator_runs_the_file() -> None:
    assert open_compiled(write_file(emitted_of(compiled(CONV(), "ethos-u55-128")))).programs
