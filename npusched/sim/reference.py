"""What a model computes by LiteRT's reference kernels (extra ``prove``), and random inputs.

LiteRT runs in a worker process, which is kept for further calls: its reference kernels crash on
some models (a crash becomes a SimError), and its printing stays away from ours.
"""

from __future__ import annotations

import atexit
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from npusched.errors import SimError
from npusched.ir import DataType, Subgraph, Tensor
from npusched.sim.kernels.arrays import Array

_NOISE = 0.06
"""Spread of low-contrast inputs, as a share of the type's range."""

_SMALL_INDEX = 4
"""32- and 64-bit inputs are indices or counts as a rule: they are drawn below this."""

_FLOAT_SPREAD = 1.0

NO_VALUES_HINT = "LiteRT's reference kernels cannot run this model: it cannot be compared"

LENGTH = struct.Struct("<Q")
"""Every message on the worker's pipes is its length, then a pickle."""

LIMIT_S = 300.0
"""Longest that LiteRT may take for one request (a GMAC takes it some ten seconds)."""


class _Worker:
    """The worker process: started when needed, replaced when it dies. Requests take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def call(self, request: object) -> dict[int, Array]:
        """Send a request; return the values. Raises the worker's SimError, or one for a crash."""
        with self._lock:
            process = self._running()
            try:
                reply = _exchange(process, request)
            except (EOFError, OSError):
                raise self._crashed(process) from None
            except BaseException:
                self._stop()
                raise
        if isinstance(reply, SimError):
            raise reply
        assert isinstance(reply, dict)
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None or self._owner != os.getpid() or process.poll() is not None:
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "npusched.sim.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            self._process, self._owner = process, os.getpid()
        return process

    def _crashed(self, process: subprocess.Popen[bytes]) -> SimError:
        self._stop()
        return SimError(
            "LiteRT crashed on the model",
            f"its process ended with code {process.returncode}",
            "its reference kernels cannot run this model (or took too long): it cannot be compared",
        )

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def close(self) -> None:
        """End the process (it starts again when needed)."""
        with self._lock:
            self._stop()


_WORKER = _Worker()
atexit.register(_WORKER.close)


def close_worker() -> None:
    """Stop the worker process (it starts again when needed)."""
    _WORKER.close()


def _exchange(process: subprocess.Popen[bytes], request: object) -> object:
    """Send one message and wait for the answer. Raises EOFError or OSError if it ends.

    After ``LIMIT_S`` the process is ended: kernels that read beyond their data may loop for ever.
    """
    timer = threading.Timer(LIMIT_S, process.kill)
    timer.daemon = True
    timer.start()
    try:
        return _answer(process, request)
    finally:
        timer.cancel()


def _answer(process: subprocess.Popen[bytes], request: object) -> object:
    assert process.stdin is not None
    assert process.stdout is not None
    message = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
    process.stdin.write(LENGTH.pack(len(message)))
    process.stdin.write(message)
    process.stdin.flush()
    (length,) = LENGTH.unpack(read_exactly(process.stdout.read, LENGTH.size))
    return pickle.loads(read_exactly(process.stdout.read, length))


def read_exactly(read: Callable[[int], bytes], count: int) -> bytes:
    """Read ``count`` bytes from a pipe. Raises EOFError if it ends before."""
    data = read(count)
    if len(data) < count:
        raise EOFError
    return data


def random_inputs(graph: Subgraph, count: int, seed: int) -> dict[int, Array]:
    """Return ``count`` inputs per graph input: tensor index -> (count, *shape).

    Even ones are uniform over the type's range, odd ones are low-contrast noise around a random
    level (uniform data saturate many networks). Floats are normal. Deterministic in ``seed``.
    """
    generator = np.random.default_rng(seed)
    return {index: _draw(graph.tensors[index], count, generator) for index in graph.inputs}


def _draw(tensor: Tensor, count: int, generator: np.random.Generator) -> Array:
    shape = (count, *tensor.shape)
    dtype = tensor.dtype
    if dtype.is_float:
        return generator.normal(0.0, _FLOAT_SPREAD, shape).astype(dtype.label)
    if dtype is DataType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if not dtype.is_integer:
        raise SimError(
            f"cannot draw {dtype.label} inputs",
            f"input {tensor.name} has this type",
            "give inputs of your own, if the command takes them",
        )
    if dtype.bits > 16:
        return generator.integers(0, _SMALL_INDEX, shape).astype(dtype.label)
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    span = 1 << dtype.bits
    values = generator.integers(low, low + span, shape)
    level = generator.integers(low, low + span, (count, *(1 for _ in tensor.shape)))
    noise = np.rint(generator.normal(0.0, _NOISE * span, shape)).astype(np.int64)
    soft = np.clip(level + noise, low, low + span - 1)
    values[1::2] = soft[1::2]
    return values.astype(dtype.label)


def reference_values(
    content: bytes,
    inputs: Mapping[int, Array],
    wanted: Sequence[int],
    *,
    keeps_all: bool = False,
    is_stateful: bool = False,
) -> dict[int, Array]:
    """Run a model on each input of a batch; return tensor index -> (batch, *shape).

    ``wanted`` must not name strings, resources or variants. ``keeps_all``: values of all tensors
    are readable, not only those of the outputs. ``is_stateful``: the model has variables
    (resources), so each input gets a new interpreter. Tensors that LiteRT gives no values for are
    left out. Raises SimError if LiteRT is not installed, cannot run the model, or crashes.
    """
    return _WORKER.call((content, dict(inputs), list(wanted), keeps_all, is_stateful))
