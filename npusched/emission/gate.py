"""The release gate: what a file must pass before it is written.

Everything is checked on the finished bytes, read again, by code that did not write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from npusched.emission.arena_check import check_arena
from npusched.emission.container import unplaced_bytes
from npusched.emission.numerics_check import find_numeric_faults
from npusched.emission.parser_check import check_parser
from npusched.emission.parts import Emitted
from npusched.emission.tags import find_tag_faults
from npusched.errors import ModelError, ReleaseError, SimError
from npusched.hardware.target import AcceleratorU55, Target
from npusched.sim.blockdep import find_early_blocks
from npusched.sim.check import check_executable
from npusched.sim.hazards import HazardKind
from npusched.sim.run import Executable, open_compiled


class CheckName(StrEnum):
    """The checks, in the order in which they are made."""

    DRIVER = "driver"
    RANGES = "ranges"
    WAITS = "waits"
    BLOCKDEP = "blockdep"
    WRITTEN = "written"
    ROWS = "rows"
    SHRAM = "shram"
    VERSIONS = "versions"
    NUMERICS = "numerics"
    ARENA = "arena"
    MEMORY = "memory"


MEANINGS: dict[CheckName, str] = {
    CheckName.DRIVER: "the Ethos-U driver and TFLM take the file",
    CheckName.RANGES: "addresses stay inside their memories, weights are constants that are there",
    CheckName.WAITS: "no command overtakes one whose data it needs or destroys",
    CheckName.BLOCKDEP: "no block is read before an earlier kernel has written it",
    CheckName.WRITTEN: "nothing is read that was not written",
    CheckName.ROWS: "rolling buffers hold the rows that are read",
    CheckName.SHRAM: "blocks fit the NPU's own memory",
    CheckName.VERSIONS: "every row that is read is the one that the plan means",
    CheckName.NUMERICS: "every kernel computes what Vela's does, with its own weights",
    CheckName.ARENA: "tensors that the host and the NPU share are not overwritten too early",
    CheckName.MEMORY: "the file needs no more memory than it may",
}
"""What each check says if it passes."""

_HAZARDS = {
    HazardKind.MISSING_DMA_WAIT: CheckName.WAITS,
    HazardKind.MISSING_KERNEL_WAIT: CheckName.WAITS,
    HazardKind.BLOCK_DEPENDENCY: CheckName.BLOCKDEP,
    HazardKind.UNINITIALISED: CheckName.WRITTEN,
    HazardKind.STALE_ROWS: CheckName.ROWS,
    HazardKind.SHRAM: CheckName.SHRAM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check and what it found; nothing if it passed."""

    name: CheckName
    findings: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """True if nothing was found."""
        return not self.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """All checks of a file; ``executable`` to run it, None if it could not be loaded."""

    checks: tuple[Check, ...]
    executable: Executable | None

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that found something."""
        return tuple(check for check in self.checks if not check.passed)

    def require(self) -> Executable:
        """Return the executable of a file that passed. Raises ReleaseError for any other."""
        if self.failed or self.executable is None:
            first = self.failed[0]
            raise ReleaseError(
                f"the file is not written: it fails the check '{first.name}'",
                first.findings[0],
                "this is a fault in npusched: report it with the model, target and options",
                failed=[check.name for check in self.failed],
                findings=[text for check in self.failed for text in check.findings[:10]],
            )
        return self.executable


def check_file(
    content: bytes, emitted: Emitted, target: Target, limit_bytes: int | None = None
) -> Gate:
    """Check a finished file. ``limit_bytes``: most that it may use of the budget memory.

    Raises nothing for what is wrong with the file: that is in the result.
    """
    accelerator = target.accelerator
    if not isinstance(accelerator, AcceleratorU55):
        raise TypeError(f"{target.name} has no Ethos-U55 or U65")
    found: dict[CheckName, list[str]] = {name: [] for name in CheckName}
    fast = None if emitted.fast_bytes is None else limit_bytes
    executable: Executable | None = None
    try:
        found[CheckName.DRIVER] += map(str, check_parser(content, accelerator, fast))
        executable = open_compiled(content)
    except (SimError, ModelError) as error:
        found[CheckName.RANGES].append(f"{error.what}: {error.why}")
    if executable is not None:
        stripes = [{k.index: k.template for k in stream.kernels} for stream in emitted.streams]
        for number, hazards in enumerate(check_executable(executable, accelerator, stripes)):
            for hazard in hazards:
                found[_HAZARDS[hazard.kind]].append(f"NPU operator {number}, {hazard}")
        for number, program in enumerate(executable.programs):
            early = find_early_blocks(program)
            found[CheckName.BLOCKDEP] += [f"NPU operator {number}, {text}" for text in early]
        found[CheckName.ARENA] += map(str, check_arena(executable))
        found[CheckName.VERSIONS] += find_tag_faults(executable, emitted)
        found[CheckName.NUMERICS] += find_numeric_faults(executable, emitted)
    used = used_bytes(emitted, target)
    if limit_bytes is not None and used > limit_bytes:
        found[CheckName.MEMORY].append(f"it uses {used} bytes of SRAM, {limit_bytes} are allowed")
    return Gate(
        checks=tuple(Check(name=name, findings=tuple(found[name])) for name in CheckName),
        executable=executable,
    )


def used_bytes(emitted: Emitted, target: Target) -> int:
    """Return the bytes of the budget memory that a file uses.

    The staging memory in Dedicated_Sram, else the arena, with the constants where they lie in the
    same memory (Sram_Only).
    """
    if emitted.fast_bytes is not None:
        return emitted.fast_bytes
    shares = target.roles.const == target.roles.cache
    return arena_bytes(emitted) + (len(emitted.read_only) if shares else 0)


def arena_bytes(emitted: Emitted) -> int:
    """Return the bytes that TFLM's arena needs for tensors, those without a place included."""
    return emitted.arena_bytes + unplaced_bytes(emitted.template)
