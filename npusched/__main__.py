"""Entry point of the ``npusched`` command."""

from __future__ import annotations

import gc
import sys
from typing import Final

YOUNG_OBJECTS: Final = 50_000
"""Objects that may be made before the collector looks for cycles (Python: 700). Plans are made of
small values without cycles: looking so often took a sixth of a run and freed nothing."""


def main() -> None:
    """Run the command line and exit with its code."""
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        from npusched.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
