"""The values that the parts of ``emit`` hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

ALIGNMENT_BYTES = 16
"""Alignment of every address in an emitted file: bricks, DMA and TFLM's tensors need it."""


def align_up(value: int) -> int:
    """Round up to ``ALIGNMENT_BYTES``."""
    return -(-value // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class ByteRange:
    """``length_bytes`` bytes from ``offset_bytes``, counted from the start of the chunk."""

    offset_bytes: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class CoreChunk:
    """What one core reads of a chunk: scales (10 bytes a channel), then weights.

    The lengths are what the registers say (each padded to 16 bytes).
    """

    scales: ByteRange
    weights: ByteRange


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """Encoded weights and scales of channels ``c0`` to ``c1`` (not included) of one kernel.

    ``cores``: one entry per core in use. ``block_depth``: OFM block depth it was encoded for.
    """

    data: bytes
    cores: tuple[CoreChunk, ...]
    block_depth: int
    c0: int
    c1: int


@dataclass(frozen=True, slots=True)
class WeightChunk:
    """An encoded chunk with its place in the read-only tensor."""

    kernel: int
    offset_bytes: int
    chunk: EncodedChunk

    @property
    def total_bytes(self) -> int:
        """Bytes of the chunk, as a DMA copies them."""
        return len(self.chunk.data)


@dataclass(slots=True)
class ReadOnly:
    """Builder of the read-only tensor: 16-aligned, equal content only once."""

    _parts: list[bytes] = field(default_factory=list)
    _offsets: dict[bytes, int] = field(default_factory=dict)
    _size: int = 0

    def add(self, data: bytes) -> int:
        """Return the offset of ``data``, adding it if it is new."""
        known = self._offsets.get(data)
        if known is None:
            known = self._offsets[data] = self._size
            padded = data.ljust(align_up(len(data)), b"\0")
            self._parts.append(padded)
            self._size += len(padded)
        return known

    @property
    def size_bytes(self) -> int:
        """Bytes so far."""
        return self._size

    def content(self) -> bytes:
        """Return the whole tensor."""
        return b"".join(self._parts)


@dataclass(frozen=True, slots=True)
class BufferUse:
    """Where one feature map of a kernel lies, for the sidecar and the check of versions.

    ``role``: "ifm", "ifm2" or "ofm". ``tensor``: number of the template's tensor; ``first_row``
    and ``rows``: absolute rows of it that the kernel touches. ``address`` in ``region``: of the
    storage; ``capacity_rows``: rows of the rolling buffer, 0 = the whole tensor is stored.
    ``row_bytes``: distance of rows, ``row_zero_bytes``: of row 0 from the storage's start.
    """

    role: str
    tensor: int
    name: str
    region: int
    address: int
    first_row: int
    rows: int
    capacity_rows: int
    row_bytes: int
    row_zero_bytes: int


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One emitted kernel: where it comes from and what it touches.

    ``index``: number in the stream; ``template``: number of the template's kernel; ``op``: number
    of our scheduled op (-1: none known); ``source_ops``: ops of the source model. Rows ``a`` to
    ``b`` and channels ``c0`` to ``c1`` (ends not included) of its result. ``block``: OFM block
    (height, width, depth).
    """

    index: int
    template: int
    op: int
    name: str
    source_ops: tuple[int, ...]
    rows: tuple[int, int]
    channels: tuple[int, int]
    block: tuple[int, int, int]
    buffers: tuple[BufferUse, ...]
    weights: int | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """Command words of one ethos-u op, from the first command to STOP (included).

    ``partition``: index of the NPU op (ethos-u op) in the file, by execution order.
    """

    words: tuple[int, ...]
    partition: int
    kernels: tuple[KernelRecord, ...]


@dataclass(frozen=True, slots=True)
class Emitted:
    """All that the container needs.

    ``template``: the file whose flatbuffer is taken over (Vela's own, uncascaded). One stream per
    ethos-u op of it, in order. ``arena_bytes``: scratch tensor (in Dedicated_Sram the part off the
    chip); ``fast_bytes``: scratch_fast tensor in Dedicated_Sram, else None. ``addresses``: offset
    in the arena of every tensor of the template's flatbuffer that OfflineMemoryAllocation places
    (graph I/O, CPU boundary, tensors of CPU ops), by tensor index; others: -1.
    """

    template: bytes
    streams: tuple[Stream, ...]
    read_only: bytes
    arena_bytes: int
    fast_bytes: int | None
    addresses: dict[int, int]
    notes: tuple[str, ...] = ()
