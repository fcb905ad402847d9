"""Triggers of the errors of Vela: its process, what it gives back, the files that it writes."""

from __future__ import annotations

import msgspec

from npusched.demos import demo
from npusched.hardware import load_target
from npusched.vela import runner
from npusched.vela.compiled import read_compiled_model
from npusched.vela.encoded import stream_kernels
from npusched.vela.files import parse_summary
from npusched.vela.process import VelaWorker, _failure
from npusched.vela.protocol import Failed
from npusched.vela.row_fields import kind_of
from npusched.vela.tables import DebugTable
from tests.errors.place import CHAIN, U55, Place, Table, Trigger
from tests.vela.test_vela_process import ANSWER, fake, request


def _worker(body: str, limit_s: float = 30.0) -> Trigger:
    """Ask a worker that runs this program in place of Vela."""

    def run(_: Place) -> None:
        with fake(body) as worker:
            worker.run(request(limit_s))

    return run


def _no_worker(_: Place) -> None:
    with VelaWorker(("/nonexistent/pyt\nhon",)) as worker:
        worker.run(request())


def _failed(error: str, message: str, stage: str = "compile") -> Trigger:
    """The error for what the worker reports."""

    def run(_: Place) -> None:
        raise _failure(Failed(stage=stage, error=error, message=message), "last\nwords")

    return run


def _no_file(_: Place) -> None:
    reply = msgspec.msgpack.encode(msgspec.structs.replace(ANSWER, model=b"")).hex()
    body = f"protocol.read_frame(requests); protocol.write_frame(replies, bytes.fromhex({reply!r}))"
    with fake(body) as worker:
        runner.compile_model(
            demo("chain:2"), load_target("ethos-u55-128"), cache=None, worker=worker
        )


def _other_database(_: Place) -> None:
    """A database without the streams that the file has."""
    result = runner.compile_model(demo("chain:2"), load_target("ethos-u55-128"), cache=None)
    stream_kernels(msgspec.structs.replace(result, columns={}))


def _raw_output(_: Place) -> None:
    result = runner.compile_model(demo("chain:2"), load_target("ethos-u55-128"), cache=None)
    read_compiled_model(msgspec.structs.replace(result, compiled=b""))


def _compare_with(**files: str) -> Trigger:
    """``npusched compare --vela-output`` with a folder of these files (dots are ``__``)."""

    def run(place: Place) -> None:
        folder = place.folder / "out\nput"
        folder.mkdir()
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_text(content)
        place.cli("compare", CHAIN, *U55, "--vela-output", str(folder))

    return run


def _table(column: str, *cells: str) -> DebugTable:
    return DebugTable("perf", {column: msgspec.Raw(msgspec.msgpack.encode(cells))})


COMPILER: Table = {
    "vela.compiled:read_compiled_model": _raw_output,
    "vela.encoded:_mismatch": _other_database,
    "vela.files:read_vela_output": _compare_with(),
    "vela.files:read_vela_output#2": _compare_with(
        chain_summary_a__csv="x\n1\n", chain_summary_b__csv="x\n1\n"
    ),
    "vela.files:_unreadable": lambda _: parse_summary("network,cycles_total\nx,ma\x1bny\n"),
    "vela.files:_networks": lambda place: place.cli(
        "compare", CHAIN, *U55, "--vela-output", str(place.folder / "absent")
    ),
    "vela.measured:_unreadable": lambda place: place.cli(
        "compare", CHAIN, *U55, "--measured", place.file("m\n.csv", "index,cycles\n1,fa\x1bst\n")
    ),
    "vela.process:VelaWorker._ensure_started": _no_worker,
    "vela.process:_death": _worker("protocol.read_frame(requests); time.sleep(60)", 0.1),
    "vela.process:_death#2": _worker("protocol.read_frame(requests); sys.exit(7)"),
    "vela.process:_death#3": _worker(
        "protocol.read_frame(requests); os.kill(os.getpid(), signal.SIGKILL)"
    ),
    "vela.process:_death#4": _worker(
        "print('odd \\x1b[2J'); protocol.read_frame(requests); os.kill(os.getpid(), 11)"
    ),
    "vela.process:_failure": _failed("MemoryError", ""),
    "vela.process:_failure#2": _failed("ValueError", "first\nsecond\x1b[2J"),
    "vela.process:not_installed": _failed("ImportError", "No module named 'ethosu'", "import"),
    "vela.row_fields:kind_of": lambda _: kind_of("Conv\n2Dish"),
    "vela.runner:compile_config": _no_file,
    "vela.stream:_malformed": lambda place: place.cli(
        "inspect", place.file("stream.bin", b"COP1" + bytes(8))
    ),
    "vela.tables:broken": lambda _: _table("id", "ma\x1bny").ints("id"),
}
