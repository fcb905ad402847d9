"""The read-only tensor: encoded weights, tables and constant maps, and where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from npusched.emission.parts import ByteRange, CoreChunk, EncodedChunk, ReadOnly
from npusched.emission.template import ConstantUse, Template, TemplateKernel
from npusched.emission.weights import WeightEncoder
from npusched.vela.stream import AddressRange


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk at an address of the read-only tensor."""

    address: int
    total_bytes: int
    cores: tuple[CoreChunk, ...]


class Constants(Protocol):
    """Where constants are."""

    def chunk(self, kernel: TemplateKernel, block_depth: int, c0: int, c1: int) -> PlacedChunk:
        """Weights of channels [c0, c1) of a kernel."""

    def table(self, kernel: TemplateKernel) -> int:
        """Address of a kernel's table."""

    def constant_map(self, use: ConstantUse) -> int:
        """Address of a constant feature map."""

    def content(self) -> bytes:
        """The read-only tensor."""


class OriginalConstants:
    """The template's own read-only tensor, for kernels that run as they are."""

    def __init__(self, template: Template) -> None:
        self._content = template.read_only

    def chunk(self, kernel: TemplateKernel, block_depth: int, c0: int, c1: int) -> PlacedChunk:
        """The kernel's weights where Vela put them."""
        state = kernel.state
        assert (block_depth, c0, c1) == (state.block.c, 0, kernel.channels)
        parts = (*state.scales, *state.weights)
        low = min(part.address for part in parts)
        high = max(part.address + part.length_bytes for part in parts)
        cores = tuple(
            CoreChunk(_within(scale, low), _within(weight, low))
            for scale, weight in zip(state.scales, state.weights, strict=True)
        )
        return PlacedChunk(low, high - low, cores)

    def table(self, kernel: TemplateKernel) -> int:
        """Where Vela put it."""
        return kernel.table_address

    def constant_map(self, use: ConstantUse) -> int:
        """Where Vela put it."""
        return use.address

    def content(self) -> bytes:
        """The template's."""
        return self._content


def _within(part: AddressRange, low: int) -> ByteRange:
    return ByteRange(part.address - low, part.length_bytes)


class RebuiltConstants:
    """A read-only tensor built anew, with what is used."""

    def __init__(self, template: Template) -> None:
        self.encoder = WeightEncoder(template.machine)
        self._built = ReadOnly()
        self._known: dict[tuple[int, int, int, int], PlacedChunk] = {}

    def encode(self, kernel: TemplateKernel, block_depth: int, c0: int, c1: int) -> EncodedChunk:
        """The chunk itself, to know its size before it is placed."""
        return self.encoder.encode_chunk(kernel, block_depth, c0, c1)

    def chunk(self, kernel: TemplateKernel, block_depth: int, c0: int, c1: int) -> PlacedChunk:
        """Encode and add what is not there yet."""
        key = (kernel.index, block_depth, c0, c1)
        known = self._known.get(key)
        if known is None:
            made = self.encode(kernel, block_depth, c0, c1)
            address = self._built.add(made.data)
            known = self._known[key] = PlacedChunk(address, len(made.data), made.cores)
        return known

    def table(self, kernel: TemplateKernel) -> int:
        """Add the table."""
        return self._built.add(kernel.table)

    def constant_map(self, use: ConstantUse) -> int:
        """Add the map."""
        return self._built.add(use.data)

    def content(self) -> bytes:
        """What has been added."""
        return self._built.content()
