"""The command line: the only package that prints.

Exit codes: 0 ok · 1 a gate failed or no plan fits · 2 bad usage, file or configuration ·
3 internal error or Vela crashed · 130 interrupted.
"""

from npusched.cli.run import run

__all__ = ["run"]
