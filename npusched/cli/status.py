"""One line on a terminal's stderr while a command takes longer than a second.

It names the command, the seconds so far, and what the command says of its progress. It is drawn by
a thread, so a command need not know of it; whatever writes to the terminal clears it first. Where
stderr is no terminal nothing is ever drawn.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FIRST_S: Final = 1.0
"""Seconds before the line appears."""

REDRAW_S: Final = 0.2


class StatusLine:
    """The line of this process; ``STATUS`` is the only one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._label = self._said = self._drawn = ""
        self._began = 0.0

    @contextmanager
    def showing(self, label: str) -> Iterator[None]:
        """Show the line while the body runs, if it takes long enough and there is a terminal."""
        if not sys.stderr.isatty():
            yield
            return
        self._label, self._said, self._began = label, "", time.monotonic()
        self._done.clear()
        self._thread = threading.Thread(target=self._draw_on, daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def say(self, text: str) -> None:
        """What the command is at; shown with the line."""
        self._said = text

    def clear(self) -> None:
        """Take the line off the terminal; it comes back if the command goes on."""
        with self._lock:
            self._erase()

    def stop(self) -> None:
        """Take the line off for good: the command has a result, or a line of its own."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._done.set()
            thread.join()
            self.clear()

    def _draw_on(self) -> None:
        if self._done.wait(FIRST_S):
            return
        while True:
            with self._lock:
                self._draw()
            if self._done.wait(REDRAW_S):
                return

    def _draw(self) -> None:
        seconds = time.monotonic() - self._began
        parts = [f"{self._label}: {seconds:.0f} s", self._said]
        width = shutil.get_terminal_size((80, 24)).columns - 1
        text = ", ".join(part for part in parts if part)[:width]
        if text != self._drawn:
            sys.stderr.write("\r" + text.ljust(len(self._drawn)))
            sys.stderr.flush()
            self._drawn = text

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write("\r" + " " * len(self._drawn) + "\r")
            sys.stderr.flush()
            self._drawn = ""


STATUS: Final = StatusLine()
