"""Plans every file that it is told of, one after the other, in one process with resource limits.

Reads lines ``path`` from stdin, writes lines ``exit-code seconds peak-KiB traceback? path``.
"""

from __future__ import annotations

import contextlib
import io
import resource
import sys
import time
from pathlib import Path

from npusched.cli import run

LIMIT_BYTES = 1 << 30


def _peak_kib() -> int:
    """Largest resident size of this program (ru_maxrss would count the process it was made by)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise RuntimeError("the kernel does not tell the peak")


def main() -> None:
    """Plan each file without Vela (whose own crashes are tested elsewhere)."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    config = sys.argv[1]
    for line in sys.stdin:
        path = line.strip()
        out, err = io.StringIO(), io.StringIO()
        started = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(["plan", path, "--config", config, "--no-vela", "--format", "json"])
        spent = time.process_time() - started
        peak = _peak_kib()
        traced = "Traceback" in err.getvalue() or "internal error" in err.getvalue()
        sys.stdout.write(f"{code} {spent:.3f} {peak} {int(traced)} {path}\n")
        if traced:
            sys.stderr.write(err.getvalue())
        sys.stdout.flush()


if __name__ == "__main__":
    main()
