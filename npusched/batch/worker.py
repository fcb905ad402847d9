"""The process that plans: ``python -m npusched.batch.worker``.

It answers tasks until its standard input ends, row by row, and then ends at once, whatever it is
doing: nobody is left to take the answer.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import IO

import msgspec

from npusched.batch.jobs import Task
from npusched.batch.task import run_task
from npusched.collector import collect_seldom
from npusched.report.sweep_types import SweepRow
from npusched.vela import protocol

TASK_DONE = b""
"""The frame after the last row of a task."""


def main(run: Callable[[Task], Iterable[SweepRow]] = run_task) -> None:
    """Work until standard input ends. ``run`` gives the rows of a task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the parent decides
    collect_seldom()
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what anybody prints does not go between the replies
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, tasks), daemon=True).start()
    while True:
        for row in run(pickle.loads(tasks.get())):
            protocol.write_frame(replies, msgspec.msgpack.encode(row))
        protocol.write_frame(replies, TASK_DONE)


def _listen(stream: IO[bytes], tasks: queue.SimpleQueue[bytes]) -> None:
    """Pass on tasks; end the process when the other side has gone."""
    try:
        while True:
            tasks.put(protocol.read_frame(stream))
    except (OSError, protocol.ProtocolError):
        os._exit(0)


if __name__ == "__main__":
    main()
