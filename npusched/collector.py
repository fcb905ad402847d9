"""How often Python's collector runs in a process of ours."""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 50_000
"""Objects that may be made before the collector looks for cycles (Python: 700). Plans are made of
small values without cycles: looking so often took a sixth of a run and freed nothing."""


def collect_seldom() -> None:
    """Set that for this process."""
    gc.set_threshold(YOUNG_OBJECTS)
