"""Runs ``vela`` commands as ``npusched tune`` prints them, in an empty folder."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from npusched.report.tune_types import TuneReport
from npusched.vela.files import read_vela_output
from npusched.vela.from_files import sram_peak_of

LIMIT_S = 300


def run_printed(report: TuneReport, point: int, content: bytes, folder: Path) -> tuple[int, int]:
    """(bytes of SRAM, cycles) that Vela states for a point's command, run in a new ``folder``.

    The model and the vela.ini that the command names are put there first; the command must call the
    model by a bare name. Raises RuntimeError if the command fails.
    """
    folder.mkdir()
    command = report.frontier[point].vela_command
    assert command is not None
    name = shlex.split(command)[1]
    assert Path(name).name == name
    (folder / name).write_bytes(content)
    if report.vela_ini is not None:
        (folder / report.vela_ini.name).write_text(report.vela_ini.text)
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": tools},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {(done.stdout + done.stderr).strip()[-500:]}")
    summary = read_vela_output(folder / "output").summary
    assert summary is not None
    return sram_peak_of(report.target, summary), round(summary.total_cycles)
