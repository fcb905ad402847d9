"""Finds and reads the files of ``hw_configs/``; the only place that knows where they are."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from npusched.errors import InternalError, TargetError
from npusched.hardware import schema, target
from npusched.hardware.names import suggestion, unknown_name
from npusched.hardware.schema import EnergyClass, SharedTables, TargetFile
from npusched.hardware.target import (
    CPU_MAC_CLASSES,
    AcceleratorU55,
    AcceleratorU85,
    CpuCostClass,
    Family,
    HostCpu,
)

_T = TypeVar("_T")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")


def config_folder() -> Path:
    """Return the folder of the target files: inside an installed package, else next to it.

    A wheel holds it as ``npusched/hw_configs``; a source checkout (and an editable install) as the
    sibling folder ``hw_configs``. Raises InternalError if neither exists.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "hw_configs", package.parent / "hw_configs"):
        if (folder / "_arm.toml").is_file():
            return folder
    raise InternalError(
        "the hardware descriptions are missing",
        f"no hw_configs folder in or next to {package}",
        "reinstall npusched",
    )


def target_names() -> tuple[str, ...]:
    """Return the names of all targets: accelerators by family and size, then boards and hosts."""
    names = [path.stem for path in config_folder().glob("*.toml") if not path.stem.startswith("_")]
    return tuple(sorted(names, key=_natural))


def canonical_name(name: str) -> str:
    """Return the name of a target as its file is called; "U55_128" stands for ethos-u55-128.

    Of a path that ends in ``.toml`` the stem. Raises TargetError if there is no such target.
    """
    if name.endswith(".toml"):
        return Path(name).stem
    known = target_names()
    plain = name.strip().lower().replace("_", "-")
    for candidate in (plain, f"ethos-{plain}"):
        if candidate in known:
            return candidate
    raise unknown_name("target", name, known)


def read_target_file(name: str) -> TargetFile:
    """Return the target file of that name; a name that ends in ``.toml`` is a path.

    Raises TargetError if there is none or it is not as ``schema`` says.
    """
    if name.endswith(".toml"):
        return _checked(read_toml(Path(name), TargetFile), Path(name))
    return _shipped(canonical_name(name))


@cache
def _shipped(name: str) -> TargetFile:
    path = config_folder() / f"{name}.toml"
    return _checked(read_toml(path, TargetFile), path)


@cache
def arm_tables() -> SharedTables:
    """Return Arm's system configs and memory modes (``_arm.toml``)."""
    return read_toml(config_folder() / "_arm.toml", SharedTables)


@cache
def energy_classes() -> dict[str, EnergyClass]:
    """Return the energy classes by name (``_energy.toml``)."""
    return read_toml(config_folder() / "_energy.toml", dict[str, EnergyClass])


def accelerator_of(name: str, file: TargetFile) -> AcceleratorU55 | AcceleratorU85 | None:
    """Return the accelerator of a target file, following a name to the file that defines it.

    Raises TargetError if the named file defines none.
    """
    if not isinstance(file.accelerator, str):
        return file.accelerator
    other = read_target_file(file.accelerator).accelerator
    if not isinstance(other, AcceleratorU55 | AcceleratorU85):
        raise TargetError(
            f"target {name!r} names {file.accelerator!r} as its accelerator",
            f"the file of {file.accelerator!r} has no [accelerator] table",
            "name one of the ethos-u targets",
        )
    return other


def host_of(name: str, file: TargetFile) -> HostCpu:
    """Return the host CPU of a target file, at the clock that the file states.

    Raises TargetError if the file has neither ``[cpu]`` nor ``[host]`` or names a file without CPU.
    """
    if file.host is None:
        if file.cpu is None:
            raise TargetError(
                f"target {name!r} has no host CPU",
                "its file has neither a [cpu] nor a [host] table",
                'add [host] with cpu = "cortex-m55", clock_hz and source',
            )
        return file.cpu
    cpu = file.cpu or read_target_file(file.host.cpu).cpu
    if cpu is None:
        raise TargetError(
            f"target {name!r} names {file.host.cpu!r} as its host",
            f"the file of {file.host.cpu!r} has no [cpu] table",
            "name one of the cortex-m targets",
        )
    return msgspec.structs.replace(cpu, clock_hz=file.host.clock_hz)


def read_toml(path: Path, kind: type[_T]) -> _T:
    """Return the strictly decoded contents of a TOML file. Raises TargetError with the reason."""
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise TargetError(
            f"cannot read {path}",
            error.strerror or str(error),
            "check the path; `npusched configs` lists the names that come with npusched",
            path=str(path),
        ) from error
    except UnicodeDecodeError as error:
        raise TargetError(
            f"{path} is not a text file",
            f"byte {error.start} is not UTF-8",
            "write TOML in UTF-8",
            path=str(path),
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise TargetError(
            f"{path} is not TOML", str(error), "see https://toml.io for the syntax", path=str(path)
        ) from error
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _not_as_expected(path, str(error)) from error


def _not_as_expected(path: Path, message: str) -> TargetError:
    found = _UNKNOWN_FIELD.search(message)
    like = suggestion(found[1], _known_keys()) if found else None
    return TargetError(
        f"{path.name} is not a valid hardware description",
        message[0].lower() + message[1:],
        f"did you mean {like!r}?" if like else "docs/adding-a-board.md explains the format",
        path=str(path),
        suggestion=like,
    )


def _known_keys() -> set[str]:
    structs = [
        member
        for module in (schema, target)
        for member in vars(module).values()
        if isinstance(member, type) and issubclass(member, msgspec.Struct)
    ]
    return {key for struct in structs for key in struct.__struct_encode_fields__}


def _checked(file: TargetFile, path: Path) -> TargetFile:
    """Check what the types cannot say: cost classes of a CPU, the name of an own accelerator."""
    if file.cpu is not None:
        _check_classes(path, "cycles_per_mac", file.cpu.cycles_per_mac, CPU_MAC_CLASSES)
        _check_classes(path, "cycles_per_element", file.cpu.cycles_per_element, CpuCostClass)
    accelerator = file.accelerator
    if isinstance(accelerator, AcceleratorU55 | AcceleratorU85):
        is_u85 = accelerator.family is Family.U85
        if is_u85 != isinstance(accelerator, AcceleratorU85):
            raise TargetError(
                f"{path.name}: architecture and family contradict each other",
                f"an {accelerator.family} has architecture {'u85' if is_u85 else 'u55'}",
                "correct the [accelerator] table",
                path=str(path),
            )
    if file.energy not in energy_classes():
        raise unknown_name("energy class", file.energy, tuple(energy_classes()))
    return file


def _check_classes(
    path: Path, table: str, given: Mapping[str, float], classes: Iterable[CpuCostClass]
) -> None:
    known = {str(kind) for kind in classes}
    wrong = sorted(set(given) ^ known)
    if wrong:
        raise TargetError(
            f"{path.name}: the cost classes of [cpu.{table}] are not complete or not known",
            f"missing or unknown: {', '.join(wrong)}",
            f"state each of these once: {', '.join(sorted(known))}",
            path=str(path),
        )


def _natural(name: str) -> tuple[int, tuple[tuple[int, int | str], ...]]:
    """Sort key: ethos-u first, numbers by value."""
    parts = re.findall(r"\d+|\D+", name)
    rank = 0 if name.startswith("ethos-") else 1
    return rank, tuple((0, int(part)) if part.isdigit() else (1, part) for part in parts)
