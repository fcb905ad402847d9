"""A worker that dies at times, started in place of the real one: MODEL AFTER SIGNAL DEATHS FOLDER.

On the model of that name it dies by the signal after so many rows of a task, DEATHS times in all
processes together (each death leaves a file in the folder).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from npusched.batch import worker
from npusched.batch.jobs import Task
from npusched.batch.task import run_task
from npusched.report.sweep_types import SweepRow


def command(
    model: str, *, after: int, by: signal.Signals, deaths: int, folder: Path
) -> tuple[str, ...]:
    """The command line of such a worker."""
    program = (sys.executable, "-P", "-m", "tests.batch.dying_worker")
    return (*program, model, str(after), by.name, str(deaths), str(folder))


def _dying(task: Task) -> Iterator[SweepRow]:
    model, after, by, deaths, folder = sys.argv[1:]
    for number, row in enumerate(run_task(task)):
        if task.model.name == model and number == int(after):
            marks = len(os.listdir(folder))
            if marks < int(deaths):
                Path(folder, str(os.getpid())).touch()
                os.write(2, b"about to die\n")
                os.kill(os.getpid(), signal.Signals[by])
        yield row


if __name__ == "__main__":
    worker.main(_dying)
