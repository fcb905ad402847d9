"""The process that runs Vela's C++ core: ``python -m npusched.vela.worker``.

It answers requests until its standard input ends. It is expendable: the core may crash, hang or
print what it likes. Only ``ethosu.regor`` is imported (9 ms), never ``ethosu.vela.vela``.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from types import ModuleType
from typing import IO, Protocol

import msgspec

from npusched.vela import protocol
from npusched.vela.protocol import (
    Access,
    Compiled,
    Failed,
    MemoryUse,
    PerfReport,
    RawModel,
    RawTensor,
    Reply,
    Request,
)

MEMORY_LIMIT_BYTES = 4 << 30
"""Address space of the worker. Vela and its tables need about 1.1 GiB for 66,000 scheduled ops."""

CORE_ERRORS = (RuntimeError, ValueError, LookupError, ArithmeticError, MemoryError, TypeError)
"""What the C++ standard exceptions become in Python (pybind11's table of translations)."""

_GRACE_S = 2.0


class _Access(Protocol):
    bytesRead: int  # noqa: N815 - Vela's names
    bytesWritten: int  # noqa: N815
    accessCycles: int  # noqa: N815


class _Memory(Protocol):
    peakUsage: int  # noqa: N815
    totalAccessCycles: int  # noqa: N815
    accesses: dict[str, _Access]


class _Report(Protocol):
    npuCycles: int  # noqa: N815
    cpuCycles: int  # noqa: N815
    totalCycles: int  # noqa: N815
    macCount: int  # noqa: N815
    npuOps: int  # noqa: N815
    cpuOps: int  # noqa: N815
    cascades: int
    cascadedOps: int  # noqa: N815
    originalWeights: int  # noqa: N815
    encodedWeights: int  # noqa: N815
    readOnlyPeakUsage: int  # noqa: N815
    stagingMemoryArea: str  # noqa: N815
    memories: dict[str, _Memory]


class _Table(Protocol):
    header: list[str]
    data: list[list[str]]


class _Database(Protocol):
    tables: dict[str, _Table]


class _Tensor(Protocol):
    region: int
    address: int
    size: int
    element_size: int
    shape: list[int]
    scale: list[float]
    zero_point: list[int]


class _ReadOnly(Protocol):
    region: int
    data: bytes


class _Output(Protocol):
    perf_report: _Report
    opt_database: _Database
    model: bytes
    command_stream: bytes
    read_only: _ReadOnly
    scratch: _Tensor
    scratch_fast: _Tensor
    inputs: list[_Tensor]
    outputs: list[_Tensor]
    variables: list[_Tensor]


def _report(report: _Report) -> PerfReport:
    return PerfReport(
        npu_cycles=report.npuCycles,
        cpu_cycles=report.cpuCycles,
        total_cycles=report.totalCycles,
        mac_count=report.macCount,
        npu_ops=report.npuOps,
        cpu_ops=report.cpuOps,
        cascades=report.cascades,
        cascaded_ops=report.cascadedOps,
        original_weights_bytes=report.originalWeights,
        encoded_weights_bytes=report.encodedWeights,
        read_only_peak_bytes=report.readOnlyPeakUsage,
        staging_memory=report.stagingMemoryArea,
        memories={
            name: MemoryUse(
                peak_bytes=memory.peakUsage,
                access_cycles=memory.totalAccessCycles,
                accesses={
                    purpose: Access(
                        read_bytes=access.bytesRead,
                        written_bytes=access.bytesWritten,
                        access_cycles=access.accessCycles,
                    )
                    for purpose, access in memory.accesses.items()
                },
            )
            for name, memory in report.memories.items()
        },
    )


def _columns(database: _Database) -> protocol.Columns:
    """Turn every table into encoded columns, so that readers decode only what they look at."""
    encode = msgspec.msgpack.Encoder().encode
    result: protocol.Columns = {}
    for name, table in database.tables.items():
        header, rows = table.header, table.data
        cells = zip(*rows, strict=True) if rows else (() for _ in header)
        result[name] = {
            column: msgspec.Raw(encode(cell)) for column, cell in zip(header, cells, strict=True)
        }
    return result


def _raw_tensor(tensor: _Tensor) -> RawTensor:
    return RawTensor(
        region=tensor.region,
        address=tensor.address,
        size_bytes=tensor.size,
        element_size_bytes=tensor.element_size,
        shape=tuple(tensor.shape),
        scales=tuple(tensor.scale),
        zero_points=tuple(tensor.zero_point),
    )


def _raw_model(output: _Output) -> RawModel:
    return RawModel(
        command_stream=bytes(output.command_stream),
        read_only=bytes(output.read_only.data),
        read_only_region=output.read_only.region,
        scratch=_raw_tensor(output.scratch),
        scratch_fast=_raw_tensor(output.scratch_fast),
        inputs=tuple(map(_raw_tensor, output.inputs)),
        outputs=tuple(map(_raw_tensor, output.outputs)),
        variables=tuple(map(_raw_tensor, output.variables)),
    )


def _compile(regor: ModuleType, request: Request) -> Reply:
    started = time.perf_counter()
    try:
        output: _Output = regor.compile(
            request.architecture,
            request.model,
            "TFLITE",
            request.system,
            options=request.options,
            verbose=False,
        )
        return _compiled(regor, output, started)
    except UnicodeDecodeError as error:
        message = f"the database cannot be read: a tensor's name is not valid UTF-8 ({error})"
        return Failed(stage="compile", error=type(error).__name__, message=message)
    except CORE_ERRORS as error:
        return Failed(stage="compile", error=type(error).__name__, message=str(error))


def _compiled(regor: ModuleType, output: _Output, started: float) -> Compiled:
    is_raw = hasattr(output, "command_stream")
    return Compiled(
        core_version=str(getattr(regor, "__version__", "")).strip('"'),
        report=_report(output.perf_report),
        columns=_columns(output.opt_database),
        seconds=time.perf_counter() - started,
        model=b"" if is_raw else bytes(output.model or b""),
        raw=_raw_model(output) if is_raw else None,
    )


def _limit_resources() -> None:
    """Bound the address space and write no core files (POSIX only)."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return
    for limit, value in ((resource.RLIMIT_AS, MEMORY_LIMIT_BYTES), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(limit)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(limit, (value, hard))


def _set_alarm(seconds: float) -> None:
    """Let the system end this process if a request takes longer, even if nobody waits for it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def serve(requests: IO[bytes], replies: IO[bytes]) -> None:
    """Answer requests until the input ends."""
    decoder = msgspec.msgpack.Decoder(Request)
    encode = msgspec.msgpack.Encoder().encode
    try:
        regor: ModuleType | Failed = importlib.import_module("ethosu.regor")
    except ImportError as error:
        regor = Failed(stage="import", error=type(error).__name__, message=str(error))
    while True:
        try:
            request = decoder.decode(protocol.read_frame(requests))
        except protocol.ProtocolError:
            return
        _set_alarm(request.limit_s + _GRACE_S)
        reply = regor if isinstance(regor, Failed) else _compile(regor, request)
        _set_alarm(0.0)
        protocol.write_frame(replies, encode(reply))


def main() -> None:
    """Keep the reply pipe to ourselves, send all other output to standard error, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_resources()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, replies)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
