"""Ways to run that are off unless asked for, since their gain rests on Vela's cost model alone."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Switch(StrEnum):
    """``BLOCK_CHOICE``: the legal OFM block of least striped cost instead of Vela's.

    ``STAGED_INPUT``: graph inputs may be copied from the arena to the staging memory first.
    ``OVERLAP``: a result may be written over rows of its input that have been used.
    """

    BLOCK_CHOICE = "block-choice"
    STAGED_INPUT = "staged-input"
    OVERLAP = "overlap"


def described(switches: Iterable[Switch]) -> str:
    """What the scope of a bound says of the switches that are on; "" if none is."""
    names = [switch.value.replace("-", " ") for switch in sorted(switches)]
    return f", with {', '.join(names)} (gains under Vela's model)" if names else ""
