"""Triggers of the errors that the command line itself finds."""

from __future__ import annotations

import io
from pathlib import Path

from npusched.cli.tune import _make_folder
from tests.errors.place import CHAIN, PLAIN, U55, Place, Table, cli


class _Full(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def _full_stdout(place: Place) -> None:
    place.patch.setattr("sys.stdout", _Full())
    place.cli("plan", CHAIN, *PLAIN)


COMMANDS: Table = {
    "cli.run:_usage_error": cli("plan", CHAIN, *PLAIN, "--objective", "cycle"),
    "cli.app:plan": cli("plan", CHAIN, *PLAIN, "--frontier", "--format", "sarif"),
    "cli.app:plan#2": cli("plan", CHAIN, *PLAIN, "--frontier", "--advice", "all"),
    "cli.app:_file_wanted": cli("demo", "mobilenet"),
    "cli.checking:check": cli("check", CHAIN, *PLAIN, "--max-regression", "2%"),
    "cli.compare:compare": cli(
        "compare", CHAIN, *U55, "--vela-output", ".", "--arena-cache-size", "4KiB"
    ),
    "cli.executing:run": cli("run", CHAIN, "-o", "-", "--format", "json"),
    "cli.executing:prove": cli(
        "prove", CHAIN, *U55, "--compiled", CHAIN, "--arena-cache-size", "4KiB"
    ),
    "cli.executing:prove#2": cli("prove", CHAIN, *U55, "--plan", "--arena-cache-size", "4KiB"),
    "cli.executing:prove#3": cli("prove", CHAIN, *U55, "--sram", "4KiB"),
    "cli.executing:check_plan_options": cli(
        "prove", CHAIN, *U55, "--plan-file", "plan.json", "--sram", "4KiB"
    ),
    "cli.executing:inspect": cli("inspect", CHAIN, "--trace", "out.json"),
    "cli.executing:read_file": lambda place: place.cli(
        "run", place.compiled(), "--input", "absent\n.npz"
    ),
    "cli.options:_with_target.wrapped": cli("inspect", CHAIN, "--memory-mode", "Sram_Only"),
    "cli.options:candidate_options.wrapped": cli("plan", CHAIN, *PLAIN, "--max-compilations", "3"),
    "cli.output:write_result": _full_stdout,
    "api.files:write_in_one_step": cli("demo", "mobilenet", "-o", "/absent\x1b[2J/x.tflite"),
    "cli.parse:read_bytes": cli("plan", "/dev/zero", *PLAIN),
    "cli.parse:parse_shapes": cli("plan", CHAIN, *PLAIN, "--input-shape", "x\n=1,a"),
    "cli.sweep:sweep": cli("sweep", CHAIN, "--show", "store.sqlite"),
    "cli.sweep:sweep#2": cli("sweep"),
    "cli.sweep:sweep#3": cli("sweep", CHAIN),
    "cli.tune:tune": cli("tune", CHAIN, "--configs", "ethos-u55-128", "--max-latency", "2ms"),
    "cli.tune:tune#2": cli("tune", CHAIN),
    "cli.tune:_make_folder": lambda place: _make_folder(Path(place.file("a\nb", "")) / "folder"),
    "cli.tune:_matrix": cli("tune", CHAIN, *U55, "--configs", "ethos-u55-256"),
    "cli.tune:_matrix#2": cli("tune", CHAIN, *U55, "--clock", "1GHz", "--memory-modes", "all"),
    "cli.tune:_matrix#3": cli("tune", CHAIN, "--memory-modes", "all"),
}
