"""What one run of Vela gave: a frozen value that the cache stores and all readers start from."""

from __future__ import annotations

from functools import cached_property

import msgspec

from npusched.vela.options import VelaConfig, VelaOptions
from npusched.vela.protocol import Columns, PerfReport, RawModel
from npusched.vela.tables import DebugDatabase

CORE = "regor"
"""The only core that the runner uses (the legacy Python core is deprecated)."""


class VelaResult(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One compilation: what was asked, by which Vela, and everything it answered.

    ``arena_limit_bytes`` is the limit that was really passed. ``compiled`` is the .tflite file
    (empty for raw output, then ``raw`` has the parts). ``printed`` is the C++ core's own output.
    ``columns`` are the debug database's cells, decoded on demand by ``database``.
    """

    vela_version: str
    core: str = CORE
    model_sha256: str
    config: VelaConfig
    options: VelaOptions
    arena_limit_bytes: int
    compiled: bytes
    raw: RawModel | None
    report: PerfReport
    columns: Columns
    printed: str
    seconds: float

    @property
    def messages(self) -> tuple[str, ...]:
        """The printed lines, without blank ones and repetitions, in order."""
        return tuple(
            dict.fromkeys(line.strip() for line in self.printed.splitlines() if line.strip())
        )

    @cached_property
    def database(self) -> DebugDatabase:
        """The debug database; without tables if it was not asked for."""
        return DebugDatabase(self.columns)
