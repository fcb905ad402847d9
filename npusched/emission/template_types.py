"""What a template says: kernels with their registers, tensors, and what the host does between."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from npusched.emission.follow import TemplateTensor
from npusched.hardware.target import AcceleratorU55, Target
from npusched.sim.container import CompiledFile, NpuOperator
from npusched.sim.program import Machine
from npusched.sim.state import KernelState
from npusched.vela.result import VelaResult
from npusched.vela.stream import StreamOp

CONSTANT = 0
"""Region of the read-only tensor."""


@dataclass(frozen=True, slots=True)
class Use:
    """A kernel's view of a tensor: its base lies ``delta_bytes`` behind the tensor's start."""

    tensor: int
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class ConstantUse:
    """A kernel reads constants of the read-only tensor as a feature map.

    ``data`` are the bytes of the view; its base lies ``delta_bytes`` behind their start.
    """

    data: bytes
    address: int
    delta_bytes: int


@dataclass(frozen=True, kw_only=True)
class TemplateKernel:
    """A kernel of the template.

    ``index`` counts over all NPU operators, ``partition`` is the NPU operator's number.
    ``registers``: all that it sees. ``op``: the acting command. ``weights``, ``scales``: encoded
    bytes per core, with the lengths of the registers; ``table``: its LUT, b"" without one.
    ``table_address``: of the table in the read-only tensor.
    """

    index: int
    partition: int
    op: StreamOp
    registers: dict[int, int]
    state: KernelState
    ifm: Use | ConstantUse
    ifm2: Use | ConstantUse | None
    ofm: Use
    weights: tuple[bytes, ...] = ()
    scales: tuple[bytes, ...] = ()
    table: bytes = b""
    table_address: int = 0

    @property
    def uses(self) -> tuple[tuple[str, Use], ...]:
        """(role, use) of the tensors that it touches; the result last."""
        named = (("ifm", self.ifm), ("ifm2", self.ifm2), ("ofm", self.ofm))
        return tuple((role, use) for role, use in named if isinstance(use, Use))

    @property
    def rows(self) -> int:
        """Rows of its result."""
        return self.state.ofm.h

    @property
    def channels(self) -> int:
        """Channels of its result."""
        return self.state.ofm.c


@dataclass(frozen=True, slots=True)
class HostStep:
    """Ops of the host between NPU operators: for each, the planned tensors that it touches."""

    touched: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Template:
    """The compiled file taken apart.

    ``steps``: numbers of NPU operators and the host's steps, in order. ``boundary``: tensor of
    the template for each planned tensor of the flatbuffer (by index), also for those that only
    the host touches; ``planned``: their addresses in Vela's arena. ``fixed``: offsets that Vela
    gives to constants of the host, which mean nothing. ``inputs``, ``outputs``: tensors of the
    template that are graph inputs and outputs.
    """

    content: bytes
    result: VelaResult
    target: Target
    file: CompiledFile
    machine: Machine
    kernels: tuple[TemplateKernel, ...]
    tensors: tuple[TemplateTensor, ...]
    steps: tuple[int | HostStep, ...]
    boundary: dict[int, int]
    planned: dict[int, int]
    fixed: dict[int, int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def accelerator(self) -> AcceleratorU55:
        """The NPU."""
        accelerator = self.target.accelerator
        assert isinstance(accelerator, AcceleratorU55)
        return accelerator

    @property
    def partitions(self) -> tuple[NpuOperator, ...]:
        """The NPU operators."""
        return self.file.operators

    @cached_property
    def by_partition(self) -> tuple[tuple[TemplateKernel, ...], ...]:
        """The kernels of each NPU operator."""
        found: list[list[TemplateKernel]] = [[] for _ in self.partitions]
        for kernel in self.kernels:
            found[kernel.partition].append(kernel)
        return tuple(map(tuple, found))

    @property
    def read_only(self) -> bytes:
        """The read-only tensor (all NPU operators share it)."""
        region = self.partitions[0].regions[CONSTANT]
        return region.content or b""
