"""The worker process: whatever happens to it is a VelaError, and the next request works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import msgspec
import pytest

from npusched.errors import VelaError
from npusched.hardware import load_target
from npusched.vela import runner
from npusched.vela.options import Optimise, VelaOptions
from npusched.vela.process import VelaWorker
from npusched.vela.protocol import (
    Compiled,
    PerfReport,
    ProtocolError,
    Request,
    read_frame,
    write_frame,
)

ANSWER = Compiled(
    core_version="5.2.0",
    report=PerfReport(
        npu_cycles=1,
        cpu_cycles=0,
        total_cycles=2,
        mac_count=3,
        npu_ops=1,
        cpu_ops=0,
        cascades=0,
        cascaded_ops=0,
        original_weights_bytes=0,
        encoded_weights_bytes=0,
        read_only_peak_bytes=0,
        staging_memory="Sram",
        memories={},
    ),
    columns={},
    seconds=0.0,
    model=b"file",
)

PRELUDE = """
import os, signal, sys, time
from npusched.vela import protocol
requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
ANSWER = bytes.fromhex({answer!r})
def answer():
    protocol.read_frame(requests)
    protocol.write_frame(replies, ANSWER)
"""


def request(limit_s: float = 30.0) -> Request:
    return Request(architecture="EthosU55", system="", options="", model=b"", limit_s=limit_s)


def fake(body: str) -> VelaWorker:
    """Return a worker that runs ``body`` in place of Vela (``answer()`` answers one request)."""
    prelude = PRELUDE.format(answer=msgspec.msgpack.encode(ANSWER).hex())
    return VelaWorker((sys.executable, "-c", prelude + textwrap.dedent(body)))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_worker_is_started_once_and_reused() -> None:
    with fake("while True: answer()") as worker:
        assert worker.pid is None
        assert worker.run(request())[0].model == b"file"
        first = worker.pid
        assert worker.run(request())[0].report.total_cycles == 2
        assert worker.pid == first
    assert first is not None
    assert not is_alive(first)


def test_printed_text_is_returned_with_its_own_reply() -> None:
    body = """
    for text in ("one", "", "three"):
        protocol.read_frame(requests)
        print(text, file=sys.stderr, flush=True)
        protocol.write_frame(replies, ANSWER)
    """
    with fake(body) as worker:
        assert [worker.run(request())[1].strip() for _ in range(3)] == ["one", "", "three"]


def test_hang_is_a_timeout_and_the_next_request_gets_a_new_worker(tmp_path: Path) -> None:
    flag = tmp_path / "hung"
    body = f"""
    if not os.path.exists({str(flag)!r}):
        open({str(flag)!r}, "w").close()
        protocol.read_frame(requests)
        time.sleep(60)
    while True: answer()
    """
    with fake(body) as worker:
        started = time.perf_counter()
        with pytest.raises(VelaError) as caught:
            worker.run(request(0.5))
        assert time.perf_counter() - started < 10
        assert caught.value.values["reason"] == "timeout"
        assert "0.5 s" in caught.value.what
        assert worker.run(request())[0].model == b"file"


def test_crash_names_the_signal_and_the_last_words() -> None:
    body = """
    print("buffer contents inconsistent", file=sys.stderr, flush=True)
    protocol.read_frame(requests)
    os.kill(os.getpid(), signal.SIGSEGV)
    """
    with fake(body) as worker, pytest.raises(VelaError) as caught:
        worker.run(request())
    assert caught.value.values == {"reason": "crash", "signal": "SIGSEGV"}
    assert caught.value.why == "buffer contents inconsistent"
    assert caught.value.exit_code == 3


def test_exit_without_answer() -> None:
    with fake("protocol.read_frame(requests); sys.exit(7)") as worker:
        with pytest.raises(VelaError) as caught:
            worker.run(request())
        assert caught.value.values == {"reason": "exit", "status": 7}
        assert worker.pid is None


@pytest.mark.parametrize(
    "written",
    [
        'b"Vela says hello\\n" * 4',
        'b"NPV1" + (5).to_bytes(8, "little") + b"wrong"',
        'b"NPV1" + (1 << 60).to_bytes(8, "little")',
    ],
    ids=["text", "not msgpack", "huge"],
)
def test_nonsense_on_the_reply_pipe(written: str) -> None:
    body = f"protocol.read_frame(requests); replies.write({written}); replies.flush(); answer()"
    with fake(body) as worker:
        with pytest.raises(VelaError) as caught:
            worker.run(request())
        assert caught.value.values["reason"] in ("protocol", "exit", "killed")
        assert worker.pid is None


def test_killed_in_mid_compile_is_tried_again(tmp_path: Path) -> None:
    flag = tmp_path / "first"
    body = f"""
    if not os.path.exists({str(flag)!r}):
        protocol.read_frame(requests)
        open({str(flag)!r}, "w").close()
        time.sleep(60)
    while True: answer()
    """

    with fake(body) as worker:

        def kill() -> None:
            while not flag.exists():
                time.sleep(0.01)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        assert worker.run(request())[0].model == b"file"
        killer.join()


def test_killed_twice_is_an_error() -> None:
    body = "protocol.read_frame(requests); os.kill(os.getpid(), signal.SIGKILL)"
    with fake(body) as worker, pytest.raises(VelaError) as caught:
        worker.run(request())
    assert caught.value.values == {"reason": "killed", "signal": "SIGKILL"}


def test_killed_while_idle_goes_unnoticed() -> None:
    with fake("while True: answer()") as worker:
        worker.run(request())
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        assert worker.run(request())[0].model == b"file"


def test_threads_take_turns() -> None:
    with fake("while True: answer()") as worker:
        results: list[int] = []

        def compile_some() -> None:
            results.extend(worker.run(request())[0].report.total_cycles for _ in range(5))

        threads = [threading.Thread(target=compile_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [2] * 20


def test_frames_survive_short_reads_and_refuse_short_files(tmp_path: Path) -> None:
    path = tmp_path / "frames"
    with path.open("wb") as stream:
        write_frame(stream, b"x" * 100_000)
        write_frame(stream, b"")
    with path.open("rb", buffering=0) as raw:
        assert read_frame(raw) == b"x" * 100_000
        assert read_frame(raw) == b""
        with pytest.raises(ProtocolError):
            read_frame(raw)


SCRIPT_PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path
from npusched.errors import VelaError
from npusched.hardware import load_target
from npusched.vela import runner
content = Path(sys.argv[1]).read_bytes()
target = load_target("ethos-u55-128")
def cycles():
    return runner.compile_model(content, target, cache=None).report.total_cycles
"""


def run_script(body: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own (forks and signals do not belong into the test process)."""
    return subprocess.run(
        (sys.executable, "-X", "dev", "-c", SCRIPT_PRELUDE + textwrap.dedent(body), *arguments),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )


@pytest.fixture(scope="module")
def kws(corpus_dir: Path) -> Path:
    return corpus_dir / "models" / "mlpt_kws.tflite"


def test_fork_gets_a_worker_of_its_own(kws: Path) -> None:
    body = """
    before = cycles()
    parent_worker = runner._WORKER.pid
    child = os.fork()
    if child == 0:
        same = cycles() == before and runner._WORKER.pid != parent_worker
        sys.exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cycles() == before
    assert runner._WORKER.pid == parent_worker
    print("ok")
    """
    done = run_script(body, str(kws))
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("ok", "", 0)


def test_interrupt_takes_the_worker_along_and_leaves_a_usable_runner(kws: Path) -> None:
    body = """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if started by a shell with &
    cycles()
    first = runner._WORKER.pid
    os.kill(first, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        cycles()
    except KeyboardInterrupt:
        print("interrupted")
    assert runner._WORKER.pid is None
    cycles()
    assert runner._WORKER.pid != first
    print("ok")
    """
    done = run_script(body, str(kws))
    assert (done.stdout.split(), done.stderr) == (["interrupted", "ok"], "")


def test_worker_ends_with_the_program(kws: Path) -> None:
    done = run_script("cycles(); print(runner._WORKER.pid)", str(kws))
    assert (done.stderr, done.returncode) == ("", 0)
    assert not is_alive(int(done.stdout))


def test_worker_ends_itself_when_nobody_waits() -> None:
    body = (
        "from npusched.vela.worker import _set_alarm; _set_alarm(0.1); import time; time.sleep(30)"
    )
    done = subprocess.run((sys.executable, "-c", body), timeout=20, check=False)
    assert done.returncode == -signal.SIGALRM


def test_real_crash_then_real_result(kws: Path) -> None:
    """A file cut after 5,000 bytes makes the C++ core read outside of it and die."""
    content = kws.read_bytes()
    target = load_target("ethos-u55-128")
    with VelaWorker() as worker:
        with pytest.raises(VelaError) as caught:
            runner.compile_model(content[:5000], target, cache=None, worker=worker)
        assert caught.value.values["reason"] in ("crash", "compile")
        assert all((caught.value.what, caught.value.why, caught.value.hint))
        result = runner.compile_model(content, target, cache=None, worker=worker)
    assert result.report.npu_ops > 0
    assert result.compiled[4:8] == b"TFL3"


def test_refused_model_says_why(corpus_dir: Path) -> None:
    content = (corpus_dir / "models" / "tflm_trained_lstm_float.tflite").read_bytes()
    with pytest.raises(VelaError) as caught:
        runner.compile_model(content, load_target("ethos-u55-128"), cache=None)
    assert "FLOAT32" in caught.value.why
    assert caught.value.values["reason"] == "compile"


def test_name_that_is_no_utf8_is_said(kws: Path) -> None:
    """The database cannot carry such a name; without it the model compiles."""
    content = kws.read_bytes()
    name = b"functional_1/activation/Relu"
    assert name in content
    odd = content.replace(name, b"\xff" + name[1:])
    target = load_target("ethos-u55-128")
    with pytest.raises(VelaError) as caught:
        runner.compile_model(odd, target, cache=None)
    assert "not valid UTF-8" in caught.value.why
    options = VelaOptions(debug_database=False)
    assert runner.compile_model(odd, target, options, cache=None).report.npu_ops > 0


def test_missing_vela_in_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ``ethosu`` package without ``regor`` stands before the real one."""
    (tmp_path / "ethosu").mkdir()
    (tmp_path / "ethosu" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with VelaWorker() as worker:
        for _ in range(2):
            with pytest.raises(VelaError) as caught:
                worker.run(request())
            assert caught.value.values["reason"] == "missing"
            assert "ethos-u-vela" in caught.value.hint


def test_version_is_that_of_the_distribution() -> None:
    from importlib import metadata

    assert runner.vela_version() == metadata.version("ethos-u-vela")
    assert runner._version_by_metadata() == runner._version_on_path()


def test_warm_up_starts_the_worker_that_is_used(kws: Path) -> None:
    body = """
    runner.warm_up()
    pid = runner._WORKER.pid
    assert cycles() > 0
    assert pid is not None and runner._WORKER.pid == pid
    print("ok")
    """
    done = run_script(body, str(kws))
    assert (done.stdout.strip(), done.stderr) == ("ok", "")


def test_missing_vela_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(runner, "_version_on_path", lambda: "")
    runner.vela_version.cache_clear()
    try:
        with pytest.raises(VelaError) as caught:
            runner.compile_model(b"", load_target("ethos-u55-128"), cache=None)
        assert caught.value.values["reason"] == "missing"
        runner.warm_up()  # nobody needs Vela yet: no error
    finally:
        runner.vela_version.cache_clear()


def test_history_of_the_worker_does_not_change_results(corpus_dir: Path) -> None:
    """A reused worker gives what a fresh one gives: totals, file and every op's cycles."""
    target = load_target("ethos-u55-128")
    models = [corpus_dir / "models" / f"mlpt_{name}.tflite" for name in ("kws", "resnet8", "kws")]
    with VelaWorker() as reused:
        one = [
            runner.compile_model(m.read_bytes(), target, cache=None, worker=reused) for m in models
        ]
    with VelaWorker() as fresh:
        other = runner.compile_model(models[0].read_bytes(), target, cache=None, worker=fresh)
    for result in (one[0], one[2]):
        assert result.report == other.report
        assert result.compiled == other.compiled
        perf = [r.database.table("perf").column("op_cycles") for r in (result, other)]
        assert perf[0] == perf[1]


def test_options_reach_vela(corpus_dir: Path) -> None:
    """Size uses less memory and more cycles than Performance; no database if not asked for."""
    content = (corpus_dir / "models" / "mlpt_vww.tflite").read_bytes()
    target = load_target("ethos-u55-128")
    fast = runner.compile_model(content, target, cache=None)
    small = runner.compile_model(
        content,
        target,
        VelaOptions(optimise=Optimise.SIZE, debug_database=False),
        cache=None,
    )
    peak = small.report.memories["Sram"].peak_bytes
    assert peak < fast.report.memories["Sram"].peak_bytes
    assert small.report.total_cycles > fast.report.total_cycles
    assert fast.database.names
    assert not small.database
