"""Vela's uncascaded compilation as a template: what every kernel does, on which tensors.

Without cascades every op is one kernel (or a fixed sequence of kernels) with all its weights in
the read-only tensor. Registers are taken as they are: scales, rounding, tables, clips. Addresses
are turned into tensors by following who wrote each byte last (EMIT.md §2), across NPU operators
and the host's ops between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npusched.emission.follow import Follower, TemplateTensor
from npusched.emission.parts import ALIGNMENT_BYTES
from npusched.emission.template_types import (
    CONSTANT,
    ConstantUse,
    HostStep,
    Template,
    TemplateKernel,
    Use,
)
from npusched.errors import EmitError
from npusched.hardware.target import AcceleratorU55, Target
from npusched.sim.container import (
    CompiledFile,
    NpuOperator,
    planned_offsets,
    read_compiled_file,
)
from npusched.sim.memory import Region, Storage
from npusched.sim.program import Machine, machine_of, table_range
from npusched.sim.state import KernelState, read_kernel
from npusched.sim.views import View
from npusched.tflite import is_vela_compiled
from npusched.tflite.reader import read_compiled
from npusched.vela.cache import VelaCache
from npusched.vela.compiled import NPU_OP
from npusched.vela.options import Feature, VelaOptions, address_space_bytes
from npusched.vela.result import VelaResult
from npusched.vela.runner import compile_model, config_of
from npusched.vela.stream import AddressRange, StreamOp, StreamOpKind

__all__ = [
    "CONSTANT",
    "ConstantUse",
    "HostStep",
    "Template",
    "TemplateKernel",
    "Use",
    "make_template",
    "read_template",
    "template_options",
]


def template_options(target: Target) -> VelaOptions:
    """Return Vela's options for a template: uncascaded, unbuffered, no limit on the arena."""
    return VelaOptions(
        disable=(Feature.CASCADING, Feature.FM_STAGING),
        arena_cache_size_bytes=address_space_bytes(config_of(target).architecture),
    )


def make_template(content: bytes, target: Target, *, cache: VelaCache | None = None) -> Template:
    """Compile a model in the worker process and take the result apart.

    Raises TargetError and VelaError as ``compile_model``, EmitError for what cannot be emitted.
    """
    if not isinstance(target.accelerator, AcceleratorU55):
        raise EmitError(
            f"cannot emit for {target.name}",
            "streams are written for Ethos-U55 and U65 only",
            "compile with Vela, or choose one of those with --config",
        )
    result = compile_model(content, target, template_options(target), cache=cache)
    if not is_vela_compiled(read_compiled(result.compiled, "template")):
        raise EmitError(
            "there is nothing to emit",
            "Vela leaves every op of the model on the host",
            "'npusched plan' says why each op is not on the NPU",
        )
    return read_template(result, target)


def read_template(result: VelaResult, target: Target) -> Template:
    """Take a compiled file apart (see ``Template``). Raises EmitError, SimError, ModelError."""
    file = read_compiled_file(result.compiled, "template")
    graph = file.model.subgraphs[0]
    offsets, *others = planned_offsets(result.compiled, file.model)
    if any(operator.subgraph for operator in file.operators) or any(max(o) >= 0 for o in others):
        raise _refuse(
            "several subgraphs use the NPU or its arena", "only the first one can be emitted"
        )
    scratch = {operator.memory_tensors[0] for operator in file.operators}
    if len(scratch) != 1:
        raise _refuse("the NPU operators do not share one arena", f"scratch tensors {scratch}")
    bases = max(offsets[scratch.copy().pop()], 0)
    memory = {t for operator in file.operators for t in operator.memory_tensors}
    given = {placed.tensor.index for operator in file.operators for placed in operator.inputs}
    planned = {
        t.index: (offsets[t.index] - bases, t.size_bytes)
        for t in graph.tensors
        if offsets[t.index] >= 0
        and t.index not in memory
        and (not t.is_constant or t.index in given)
    }
    for index in planned:
        if graph.tensors[index].is_variable:
            name = graph.tensors[index].name
            raise _refuse(f"tensor {name} is a variable", "it keeps its value between inferences")
    fixed = {
        t.index: offsets[t.index]
        for t in graph.tensors
        if offsets[t.index] >= 0 and t.index not in memory and t.index not in planned
    }
    return _Reader(result, target, file, planned, fixed).read()


def _refuse(what: str, why: str) -> EmitError:
    return EmitError(
        f"cannot emit this model: {what}",
        why,
        "compile it with Vela; docs/emit.md lists what can be emitted",
    )


class _Reader:
    """Walks the steps of the file in order and collects kernels and tensors."""

    def __init__(
        self,
        result: VelaResult,
        target: Target,
        file: CompiledFile,
        planned: dict[int, tuple[int, int]],
        fixed: dict[int, int],
    ) -> None:
        self.result, self.target, self.file, self.planned = result, target, file, planned
        self.fixed = fixed
        self.follower = Follower()
        self.kernels: list[tuple[TemplateKernel, dict[str, int]]] = []
        self.boundary: dict[int, int] = {}
        self.listed: dict[int, int] = {}
        self.scratch = file.operators[0].memory_tensors[0]
        for operator in file.operators:
            for region, tensor in zip(operator.regions[1:], operator.memory_tensors, strict=True):
                self.follower.add_memory(tensor, region.size_bytes)

    def read(self) -> Template:
        """Return the template."""
        graph = self.file.model.subgraphs[0]
        numbers = {operator.op: k for k, operator in enumerate(self.file.operators)}
        for tensor in graph.tensors:
            if tensor.index in graph.inputs or tensor.is_constant:
                self._write_planned(tensor.index)
        steps: list[int | HostStep] = []
        pending: list[int] = []
        for op in graph.ops:
            if op.custom_code == NPU_OP and op.index in numbers:
                if pending:
                    steps.append(self._host(pending))
                    pending = []
                steps.append(numbers[op.index])
                self._operator(numbers[op.index])
            else:
                pending.append(op.index)
        if pending:
            steps.append(self._host(pending))
        for index in graph.outputs:
            self._read_planned(index)
        return self._finish(steps)

    def _finish(self, steps: list[int | HostStep]) -> Template:
        graph = self.file.model.subgraphs[0]
        tensors, number_of = self.follower.tensors()
        kernels = []
        for kernel, values in self.kernels:
            changes = {
                role: self._use(kernel, role, number_of[values[role]], tensors) for role in values
            }
            kernels.append(_with(kernel, changes))
        known = {**self.listed, **self.boundary}
        boundary = {index: number_of[value] for index, value in known.items()}
        machines = {machine_of(operator.stream) for operator in self.file.operators}
        return Template(
            content=self.result.compiled,
            result=self.result,
            target=self.target,
            file=self.file,
            machine=machines.pop(),
            kernels=tuple(kernels),
            tensors=tensors,
            steps=tuple(steps),
            boundary=boundary,
            fixed=self.fixed,
            planned={index: address for index, (address, _) in self.planned.items()},
            inputs=tuple(boundary[i] for i in graph.inputs if i in boundary),
            outputs=tuple(boundary[i] for i in graph.outputs if i in boundary),
        )

    def _use(
        self, kernel: TemplateKernel, role: str, tensor: int, tensors: Sequence[TemplateTensor]
    ) -> Use:
        view = getattr(kernel.state, role)
        return Use(tensor, view.bases[0] - tensors[tensor].base)

    # --- the host ---------------------------------------------------------------------------

    def _host(self, ops: Sequence[int]) -> HostStep:
        """Follow ops of the host."""
        graph = self.file.model.subgraphs[0]
        touched = []
        for number in ops:
            op = graph.ops[number]
            reads = [index for index in op.inputs if index in self.planned]
            writes = [index for index in op.outputs if index in self.planned]
            for index in reads:
                self._read_planned(index)
            for index in writes:
                self._write_planned(index)
            touched.append(tuple(dict.fromkeys((*reads, *writes))))
        return HostStep(tuple(touched))

    def _span(self, index: int) -> tuple[int, int]:
        address, size = self.planned[index]
        return address, address + size

    def _write_planned(self, index: int) -> None:
        if index in self.planned:
            value = self.follower.write_span(self.scratch, self._span(index))
            self.boundary[index] = value

    def _read_planned(self, index: int) -> None:
        """The host reads a tensor: all its bytes are one tensor, which must be named once."""
        if index not in self.planned:
            return
        value = self.follower.read_span(self.scratch, self._span(index))
        if value is None:
            name = self.file.model.subgraphs[0].tensors[index].name
            raise _refuse(f"tensor {name} is read by the host", "but nobody wrote all of it")
        self.boundary.setdefault(index, value)

    # --- the NPU ----------------------------------------------------------------------------

    def _operator(self, number: int) -> None:
        """Follow the kernels of an NPU operator."""
        operator = self.file.operators[number]
        memories = {1: operator.memory_tensors[0], 2: operator.memory_tensors[1]}
        machine = machine_of(operator.stream)
        tables: dict[int, AddressRange] = {}
        for op, registers in operator.stream.walk():
            if op.kind is StreamOpKind.STOP:
                break
            if op.kind is StreamOpKind.DMA:
                self._dma(op, tables, machine)
            elif op.is_kernel:
                self._kernel(number, operator, op, dict(registers), memories, tables)
        for index in (placed.tensor.index for placed in operator.outputs):
            if index not in self.planned:
                continue
            value = self.follower.only_value(self.scratch, self._span(index))
            if value is not None:
                self.listed[index] = value

    def _dma(self, op: StreamOp, tables: dict[int, AddressRange], machine: Machine) -> None:
        source, destination = op.source, op.destination
        assert source is not None
        assert destination is not None
        if not destination.internal or source.region != CONSTANT:
            raise _refuse(
                "Vela copies a feature map by DMA",
                f"{source.length_bytes} bytes from region {source.region} to {destination.region}",
            )
        tables[destination.address - machine.table_address] = source

    def _kernel(
        self,
        number: int,
        operator: NpuOperator,
        op: StreamOp,
        registers: dict[int, int],
        memories: dict[int, int],
        tables: dict[int, AddressRange],
    ) -> None:
        """Add a kernel: what it is, and the values that it reads and writes, by role."""
        state = read_kernel(op, registers, len(self.kernels))
        content = operator.regions[CONSTANT].content or b""
        values: dict[str, int] = {}
        constants: dict[str, ConstantUse] = {}
        for role in ("ifm", "ifm2", "ofm"):
            view: View | None = getattr(state, role)
            if view is None:
                continue
            if view.region == CONSTANT and role != "ofm":
                constants[role] = _constant(content, view)
            else:
                values[role] = self._value(state, role, view, memories[view.region])
        held = _held_table(state, machine_of(operator.stream), tables)
        nothing = Use(-1, 0)
        kernel = TemplateKernel(
            index=len(self.kernels),
            partition=number,
            op=op,
            registers=registers,
            state=state,
            ifm=constants.get("ifm", nothing),
            ifm2=constants.get("ifm2", nothing) if state.ifm2 is not None else None,
            ofm=nothing,
            weights=_bytes(operator.regions, state.weights),
            scales=_bytes(operator.regions, state.scales),
            table=content[held.address : held.address + held.length_bytes],
            table_address=held.address,
        )
        self.kernels.append((kernel, values))

    def _value(self, state: KernelState, role: str, view: View, memory: int) -> int:
        """Follow a feature map in memory."""
        if view.h > view.height0 or view.w > view.width0:
            raise _refuse(f"{state.label} has a feature map in tiles", "uncascaded ones have none")
        storage = Storage.of(view)
        if role == "ofm":
            return self.follower.write(memory, storage)
        value = self.follower.read(memory, storage)
        if value is None:
            raise _refuse(f"{state.label} reads bytes that nobody wrote", f"its {role}")
        return value


def _constant(content: bytes, view: View) -> ConstantUse:
    """The bytes of a constant feature map, from a multiple of 16 on."""
    low, high = Storage.of(view).span
    low -= low % ALIGNMENT_BYTES
    return ConstantUse(content[low:high], low, view.bases[0] - low)


def _held_table(
    state: KernelState, machine: Machine, tables: dict[int, AddressRange]
) -> AddressRange:
    """Where the kernel's table comes from; nothing without one."""
    table = table_range(state, machine)
    if table is None:
        return AddressRange(CONSTANT, 0, 0)
    held = tables.get(table.address - machine.table_address)
    if held is None:
        raise _refuse(f"{state.label} uses a table", "that was never copied to its slot")
    return held


def _bytes(regions: Sequence[Region], parts: Sequence[AddressRange]) -> tuple[bytes, ...]:
    """Encoded bytes, which are all constants in a template."""
    found = []
    for part in parts:
        if part.region != CONSTANT:
            raise _refuse("Vela buffers weights although it was told not to", f"{part}")
        content = regions[CONSTANT].content or b""
        found.append(content[part.address : part.address + part.length_bytes])
    return tuple(found)


def _with(kernel: TemplateKernel, uses: dict[str, Use]) -> TemplateKernel:
    return replace(kernel, **uses)  # type: ignore[arg-type]
