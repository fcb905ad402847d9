"""How the runner and its worker process talk: length-prefixed msgpack frames over two pipes.

Requests go to the worker's standard input, replies come from what was its standard output when it
started (it redirects the C++ code's own printing elsewhere). A frame is 4 bytes "NPV1", the
payload length as 8 bytes little-endian, and the payload.
"""

from __future__ import annotations

import struct
from typing import IO, TypeAlias

import msgspec

MAGIC = b"NPV1"
MAX_FRAME_BYTES = 4 << 30
_HEADER = struct.Struct("<4sQ")

Columns: TypeAlias = dict[str, dict[str, msgspec.Raw]]
"""Table name -> column name -> the column's cells, still encoded (a msgpack list of strings)."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One compilation. The texts are those of ``options``; ``limit_s`` is wall-clock time."""

    architecture: str
    system: str
    options: str
    model: bytes
    limit_s: float


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic of one memory for one purpose. Feature-map bytes include Vela's burst inflation."""

    read_bytes: int
    written_bytes: int
    access_cycles: int


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """One memory: high-water mark, access cycles, and traffic by purpose (Weights, Scales, ...)."""

    peak_bytes: int
    access_cycles: int
    accesses: dict[str, Access]


class PerfReport(msgspec.Struct, frozen=True, kw_only=True):
    """Vela's network totals. ``cpu_cycles`` means nothing: Vela 5.2 does not cost CPU ops.

    ``original_weights_bytes`` and ``encoded_weights_bytes`` count shared weights once.
    """

    npu_cycles: int
    cpu_cycles: int
    total_cycles: int
    mac_count: int
    npu_ops: int
    cpu_ops: int
    cascades: int
    cascaded_ops: int
    original_weights_bytes: int
    encoded_weights_bytes: int
    read_only_peak_bytes: int
    staging_memory: str
    memories: dict[str, MemoryUse]


class RawTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of a raw-format result: where it lies and how it is quantised."""

    region: int
    address: int
    size_bytes: int
    element_size_bytes: int
    shape: tuple[int, ...]
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


class RawModel(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a raw-format result (``OutputFormat.RAW``)."""

    command_stream: bytes
    read_only: bytes
    read_only_region: int
    scratch: RawTensor
    scratch_fast: RawTensor
    inputs: tuple[RawTensor, ...]
    outputs: tuple[RawTensor, ...]
    variables: tuple[RawTensor, ...]


class Compiled(msgspec.Struct, frozen=True, kw_only=True, tag_field="reply", tag="compiled"):
    """A successful compilation. ``model`` is the .tflite file, or ``raw`` holds the parts."""

    core_version: str
    report: PerfReport
    columns: Columns
    seconds: float
    model: bytes = b""
    raw: RawModel | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag_field="reply", tag="failed"):
    """A compilation that ended in an exception of class ``error``, in ``stage``.

    ``stage`` is "import" (Vela cannot be loaded) or "compile".
    """

    stage: str
    error: str
    message: str


Reply: TypeAlias = Compiled | Failed


class ProtocolError(Exception):
    """The other side closed the pipe or sent something that is not a frame."""


def write_frame(stream: IO[bytes], payload: bytes) -> None:
    """Write one frame to a raw or buffered stream. Raises OSError if the pipe is closed."""
    for part in (_HEADER.pack(MAGIC, len(payload)), payload):
        rest = memoryview(part)
        while rest:
            rest = rest[stream.write(rest) :]
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes:
    """Read one frame's payload. Raises ProtocolError at end of file or on a malformed frame."""
    magic, length = _HEADER.unpack(_read_exactly(stream, _HEADER.size))
    if magic != MAGIC or length > MAX_FRAME_BYTES:
        raise ProtocolError("malformed frame")
    return _read_exactly(stream, length)


def _read_exactly(stream: IO[bytes], count: int) -> bytes:
    parts = []
    missing = count
    while missing:
        part = stream.read(missing)
        if not part:
            raise ProtocolError(f"end of file after {count - missing} of {count} bytes")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
