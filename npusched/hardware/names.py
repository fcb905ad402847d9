"""Names that users type: matching, short forms and suggestions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npusched.errors import TargetError
from npusched.hardware.target import Family, MemoryKind

PREFIXES: dict[str, Family] = {
    "Ethos_U55_": Family.U55,
    "Ethos_U65_": Family.U65,
    "Ethos_U85_": Family.U85,
}
"""How Arm's system configs begin (Vela 5.2.0, config_files/Arm/vela.ini)."""

MEMORY_NAMES: dict[str, tuple[str, MemoryKind]] = {
    "Sram": ("sram", MemoryKind.SRAM),
    "Dram": ("dram", MemoryKind.DRAM),
    "OnChipFlash": ("flash", MemoryKind.ON_CHIP_FLASH),
    "OffChipFlash": ("flash", MemoryKind.OFF_CHIP_FLASH),
}
"""Vela's memory areas: our name for the memory, and its kind."""


def family_of_name(system_config: str) -> Family | None:
    """Return the family that a system config's name claims, None if it claims none."""
    for prefix, family in PREFIXES.items():
        if system_config.lower().startswith(prefix.lower()):
            return family
    return None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like ``name``, None if none is like it.

    A name without its family prefix counts as well: "High_Ent" is like Ethos_U65_High_End.
    """
    from difflib import get_close_matches

    by_lower = {
        form: candidate
        for candidate in known
        for form in (_without_prefix(candidate.lower()), candidate.lower())
    }
    close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def unknown_name(kind: str, name: str, known: Sequence[str], owner: str = "") -> TargetError:
    """Return the error for a name that ``owner`` does not know: it lists what is, and suggests."""
    like = suggestion(name, known)
    listed = ", ".join(known) if known else "none"
    return TargetError(
        f"unknown {kind} {name!r}{_for(owner)}",
        f"known: {listed}",
        f"did you mean {like!r}?" if like else "choose one of these",
        name=name,
        known=tuple(known),
        suggestion=like,
    )


def match_name(name: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the known names that ``name`` may stand for, best rule first; () if there are none.

    Rules, the first that finds any decides: the same; the same but for case; the part after the
    family prefix ("High_End"); a part that begins like it ("Deep" for Deep_Embedded); the part
    after "SYS_" ("DRAM_Mid").
    """
    if name in known:
        return (name,)
    wanted = name.lower().replace("-", "_")
    shorts = {candidate: _without_prefix(candidate.lower()) for candidate in known}
    rules = (
        [candidate for candidate in known if candidate.lower() == wanted],
        [candidate for candidate, short in shorts.items() if short == wanted],
        [candidate for candidate, short in shorts.items() if short.startswith(wanted + "_")],
        [candidate for candidate, short in shorts.items() if short.removeprefix("sys_") == wanted],
    )
    return next((tuple(found) for found in rules if found), ())


def resolve_name(kind: str, name: str, known: Sequence[str], owner: str = "") -> str:
    """Return the one known name that ``name`` stands for. Raises TargetError if none or several.

    ``owner`` says, in the error, who knows the names: a target or a file.
    """
    found = match_name(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise TargetError(
            f"{kind} {name!r} is ambiguous{_for(owner)}",
            f"it may be {', '.join(found)}",
            "write the full name",
            name=name,
            known=found,
        )
    raise unknown_name(kind, name, known, owner)


def _without_prefix(name: str) -> str:
    for prefix in PREFIXES:
        if name.startswith(prefix.lower()):
            return name[len(prefix) :]
    return name


def _for(owner: str) -> str:
    return f" for {owner}" if owner else ""
