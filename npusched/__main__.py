"""Entry point of the ``npusched`` command."""

from __future__ import annotations

import sys

from npusched.collector import collect_seldom


def main() -> None:
    """Run the command line and exit with its code."""
    collect_seldom()
    try:
        from npusched.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
