"""All static checks of a compiled file or a raw stream, without data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npusched.hardware.target import AcceleratorU55
from npusched.sim.container import SCRATCH, NpuOperator
from npusched.sim.hazards import Hazard, HazardKind, find_hazards
from npusched.sim.kernels.arrays import Array
from npusched.sim.memory import Span
from npusched.sim.program import Program
from npusched.sim.rows import find_stale_rows
from npusched.sim.run import Executable
from npusched.sim.shram import check_shram


def host_spans(operator: NpuOperator) -> tuple[tuple[int, Span], ...]:
    """Return the bytes that the host writes for an operator: (region, span) of its inputs."""
    return operator.host_spans


def check_executable(
    executable: Executable,
    accelerator: AcceleratorU55 | None = None,
    ops: Sequence[Mapping[int, int]] | None = None,
) -> tuple[tuple[Hazard, ...], ...]:
    """Return the findings of each NPU operator, in file order.

    What earlier operators left in shared memories counts as written. ``accelerator``: also check
    that blocks fit its SHRAM. ``ops``: for each operator, which kernels are stripes of one op (see
    ``find_stale_rows``).
    """
    known = ops or [{}] * len(executable.programs)
    kept: dict[int, Array] = {}
    found = []
    for operator, program, own in zip(
        executable.file.operators, executable.programs, known, strict=True
    ):
        tensors = dict(zip(_scratch_keys(program), operator.memory_tensors, strict=True))
        written = {key: kept[tensor] for key, tensor in tensors.items() if tensor in kept}
        hazards = find_hazards(program, host_spans(operator), written)
        kept.update({tensor: written[key] for key, tensor in tensors.items()})
        found.append(hazards + check_program(program, accelerator, own))
    return tuple(found)


def check_bare(program: Program, accelerator: AcceleratorU55 | None = None) -> tuple[Hazard, ...]:
    """Return the findings of a stream without its file (``load_bare``).

    Which bytes the host writes is not known, so reads of unwritten bytes are no findings.
    """
    found = find_hazards(program) + check_program(program, accelerator)
    return tuple(each for each in found if each.kind is not HazardKind.UNINITIALISED)


def _scratch_keys(program: Program) -> tuple[int, int]:
    """Keys of the two scratch memories."""
    return program.regions[SCRATCH].key, program.regions[SCRATCH + 1].key


def check_program(
    program: Program,
    accelerator: AcceleratorU55 | None = None,
    ops: Mapping[int, int] | None = None,
) -> tuple[Hazard, ...]:
    """Return stale rows, and with ``accelerator`` blocks that do not fit."""
    shram = () if accelerator is None else check_shram(program, accelerator)
    return find_stale_rows(program, ops) + shram
