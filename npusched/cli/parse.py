"""Texts from the command line to values, with errors that say what is wrong."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from npusched.errors import ModelError, NpuschedError

if TYPE_CHECKING:
    from npusched.hardware import Target
    from npusched.ir import Shape

DEMO_PREFIX = "demo:"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetArguments:
    """What the user said about the target."""

    config: str
    system_config: str | None = None
    memory_mode: str | None = None
    vela_config: Path | None = None
    clock: str | None = None
    derate: tuple[str, ...] = ()

    def load(self) -> Target:
        """Resolve the target. Raises TargetError."""
        from npusched.hardware import load_target, parse_derate, parse_frequency

        return load_target(
            self.config,
            system_config=self.system_config,
            memory_mode=self.memory_mode,
            vela_config=self.vela_config,
            clock_hz=None if self.clock is None else parse_frequency(self.clock),
            derate=parse_derate(self.derate),
        )


def display_name(model: str) -> str:
    """What a model is called in results: the file's name without its folder, valid Unicode."""
    if model.startswith(DEMO_PREFIX):
        return model
    return os.fsencode(os.path.basename(model) or model).decode(errors="replace")


def read_bytes(model: str) -> bytes:
    """Content of a model file or pipe, or of a built-in demo (``demo:NAME``). Raises ModelError."""
    if model.startswith(DEMO_PREFIX):
        from npusched.demos import demo

        return demo(model.removeprefix(DEMO_PREFIX))
    from npusched.tflite.container import MAX_FILE_BYTES, read_file

    path = Path(model)
    try:
        mode = path.stat().st_mode
        if stat.S_ISFIFO(mode):
            with path.open("rb") as stream:
                return stream.read(MAX_FILE_BYTES)
    except (OSError, ValueError):
        mode = 0
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise ModelError(
            f"cannot read the model: {model} is a device",
            "only files and pipes are read",
            "name a .tflite file",
        )
    return read_file(path)


def parse_shapes(texts: tuple[str, ...]) -> dict[str, Shape]:
    """``NAME=1,96,96,3`` texts to shapes. Raises NpuschedError for anything else."""
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, separator, sizes = text.rpartition("=")
        try:
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            shape = ()
        if not separator or not name or not shape or min(shape) < 1:
            raise NpuschedError(
                f"cannot read input shape '{text}'",
                "it is not NAME=N,N,... with sizes of at least 1",
                "e.g. --input-shape serving_default_x=1,96,96,3",
            )
        shapes[name] = shape
    return shapes
