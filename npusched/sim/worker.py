"""The process that runs LiteRT: ``python -m npusched.sim.worker``, messages on its pipes."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress

from npusched.errors import SimError
from npusched.sim.litert import run_reference
from npusched.sim.reference import LENGTH, read_exactly


def main() -> None:
    """Answer requests until the pipe ends. What C++ code prints goes nowhere."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with suppress(EOFError):
        while True:
            (length,) = LENGTH.unpack(read_exactly(sys.stdin.buffer.read, LENGTH.size))
            request = pickle.loads(read_exactly(sys.stdin.buffer.read, length))
            content, inputs, wanted, keeps_all, is_stateful = request
            reply: object
            try:
                reply = run_reference(
                    content, inputs, wanted, keeps_all=keeps_all, is_stateful=is_stateful
                )
            except SimError as error:
                reply = error
            message = pickle.dumps(reply, pickle.HIGHEST_PROTOCOL)
            answers.write(LENGTH.pack(len(message)))
            answers.write(message)
            answers.flush()


if __name__ == "__main__":
    main()
