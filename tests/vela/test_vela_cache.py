"""The cache: what is stored comes back or nothing does; losing it loses no result."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from npusched.hardware import load_target
from npusched.vela import cache as cache_module
from npusched.vela import runner
from npusched.vela.cache import VelaCache, cache_info, cache_key, clear_cache, default_folder
from npusched.vela.options import Feature, VelaConfig, VelaOptions, compiler_text, system_text
from npusched.vela.process import VelaWorker
from npusched.vela.protocol import Access, MemoryUse, PerfReport
from npusched.vela.result import VelaResult

KEY = cache_key("a", "b")


def make_result(model: bytes = b"compiled", cycles: int = 7) -> VelaResult:
    access = Access(read_bytes=10, written_bytes=20, access_cycles=30)
    return VelaResult(
        vela_version="5.2.0",
        model_sha256="00",
        config=VelaConfig(
            architecture="EthosU55", macs=128, cores=1, ini="", system_config="S", memory_mode="M"
        ),
        options=VelaOptions(disable=(Feature.CASCADING,)),
        arena_limit_bytes=1 << 40,
        compiled=model,
        raw=None,
        report=PerfReport(
            npu_cycles=cycles,
            cpu_cycles=0,
            total_cycles=cycles,
            mac_count=3,
            npu_ops=1,
            cpu_ops=0,
            cascades=0,
            cascaded_ops=0,
            original_weights_bytes=0,
            encoded_weights_bytes=0,
            read_only_peak_bytes=0,
            staging_memory="Sram",
            memories={
                "Sram": MemoryUse(peak_bytes=1, access_cycles=2, accesses={"Weights": access})
            },
        ),
        columns={"perf": {"id": msgspec.Raw(msgspec.msgpack.encode(("1", "0x20")))}},
        printed="line\n\nline\nother\n",
        seconds=0.5,
    )


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    cache = VelaCache(tmp_path)
    assert cache.get(KEY) is None
    assert cache.put(KEY, make_result())
    found = cache.get(KEY)
    assert found is not None
    assert found.report == make_result().report
    assert found.compiled == b"compiled"
    assert found.options == make_result().options
    assert found.database.table("perf").ints("id") == (1, 32)
    assert found.messages == ("line", "other")
    assert cache.get(cache_key("a", "c")) is None


def test_key_depends_on_every_part_and_on_where_parts_end() -> None:
    keys = {cache_key("ab", "c"), cache_key("a", "bc"), cache_key("abc"), cache_key("ab", "d")}
    assert len(keys) == 4


def test_entries_are_private(tmp_path: Path) -> None:
    cache = VelaCache(tmp_path)
    cache.put(KEY, make_result())
    (entry,) = cache.folder.iterdir()
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_folder_that_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    cache = VelaCache(tmp_path)
    cache.put(KEY, make_result())
    cache.folder.chmod(0o777)
    assert cache.get(KEY) is None
    assert not cache.put(KEY, make_result())
    cache.folder.chmod(0o700)
    assert cache.get(KEY) is not None


def test_bound_holds_over_many_writes(tmp_path: Path) -> None:
    """200 entries of about 1.3 KB into 20 KB, by two writers that do not know of each other."""
    caches = [VelaCache(tmp_path, limit_bytes=20_000) for _ in range(2)]
    for number in range(200):
        caches[number % 2].put(cache_key(str(number)), make_result(os.urandom(1000)))
        assert caches[0].info().size_bytes <= 2 * 20_000
    assert caches[0].info().entries > 5


def decoded(entry: bytes) -> VelaResult | None:
    return cache_module._decode(KEY, entry, msgspec.msgpack.Decoder(VelaResult))


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    """Flip each byte of an entry in turn, cut it at each length: never a wrong result."""
    cache = VelaCache(tmp_path)
    cache.put(KEY, make_result())
    (entry,) = cache.folder.iterdir()
    good = entry.read_bytes()
    for position in range(len(good)):
        bad = good[:position] + bytes([good[position] ^ 0x41]) + good[position + 1 :]
        assert decoded(bad) is None, position
    for length in range(len(good)):
        assert decoded(good[:length]) is None, length
    assert decoded(good) is not None
    entry.write_bytes(good[:-1] + b"x")
    assert cache.get(KEY) is None
    entry.write_bytes(good + b"\0")
    assert cache.get(KEY) is None
    assert cache.put(KEY, make_result())
    assert cache.get(KEY) is not None


def test_entry_under_another_key_is_refused(tmp_path: Path) -> None:
    cache = VelaCache(tmp_path)
    cache.put(KEY, make_result())
    (entry,) = cache.folder.iterdir()
    other = cache_key("other")
    entry.rename(cache.folder / entry.name.replace(KEY, other))
    assert cache.get(other) is None


def test_decompression_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that unpacks to more than it says (or than is allowed) is refused."""
    cache = VelaCache(tmp_path)
    monkeypatch.setattr(cache_module, "_ENTRY_LIMIT_BYTES", 100)
    cache.put(KEY, make_result(bytes(100_000)))
    assert cache.get(KEY) is None


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = VelaCache(tmp_path)
    keys = [cache_key(str(number)) for number in range(4)]
    for age, key in enumerate(keys[:3]):
        cache.put(key, make_result(os.urandom(1000)))
        path = cache.folder / f"{key}.vela"
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    assert cache.get(keys[0]) is not None  # now the youngest
    total = cache.info().size_bytes
    small = VelaCache(tmp_path, limit_bytes=total + 100)
    small.put(keys[3], make_result(os.urandom(1000)))
    assert [small.get(key) is not None for key in keys] == [True, False, True, True]
    assert small.info().size_bytes <= total + 100


def test_result_larger_than_the_cache_is_not_stored(tmp_path: Path) -> None:
    cache = VelaCache(tmp_path, limit_bytes=500)
    assert not cache.put(KEY, make_result(os.urandom(1000)))
    assert cache.info().entries == 0


def test_clear_takes_only_our_files(tmp_path: Path) -> None:
    cache = VelaCache(tmp_path)
    cache.put(KEY, make_result())
    (cache.folder / "half.vela.tmp").write_bytes(b"left over")
    (cache.folder / "notes.txt").write_text("mine")
    assert cache_info(tmp_path).entries >= 1
    assert clear_cache(tmp_path) == 1
    assert [path.name for path in cache.folder.iterdir()] == ["notes.txt"]
    assert clear_cache(tmp_path / "absent") == 0


def test_full_disk_loses_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing fails half-way: ``put`` says no, nothing is left behind, old entries stay."""
    cache = VelaCache(tmp_path)
    cache.put(KEY, make_result())
    real = os.fdopen

    def full(handle: int, mode: str) -> object:
        stream = real(handle, mode)

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                stream.close()

            def write(self, data: bytes) -> int:
                stream.write(data[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")

        return Full()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        assert not cache.put(cache_key("new"), make_result())
    assert [path.name for path in cache.folder.iterdir()] == [f"{KEY}.vela"]
    assert cache.get(KEY) is not None


def test_unusable_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = VelaCache(tmp_path / "file")
    assert not cache.put(KEY, make_result())
    assert cache.get(KEY) is None
    assert cache.info().entries == 0


def test_no_temporary_file_survives_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = VelaCache(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.put(KEY, make_result())
    assert list(cache.folder.iterdir()) == []


def test_two_processes_share_it(tmp_path: Path) -> None:
    """Two programs write and read the same ten keys 100 times: each read is whole or absent."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "import test_vela_cache as t\n"
        "cache = t.VelaCache(Path(sys.argv[1]), limit_bytes=20_000)\n"
        "hits = 0\n"
        "for turn in range(100):\n"
        "    key = t.cache_key(str(turn % 10))\n"
        "    found = cache.get(key)\n"
        "    assert found is None or found.compiled == bytes([turn % 10]) * 3000, turn\n"
        "    hits += found is not None\n"
        "    cache.put(key, t.make_result(bytes([turn % 10]) * 3000))\n"
        "print(hits)\n"
    )
    command = (sys.executable, "-c", script, str(tmp_path), str(Path(__file__).parent))
    root = Path(__file__).parents[2]
    programs = [
        subprocess.Popen(
            command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [program.communicate(timeout=60) for program in programs]
    assert [error for _, error in outputs] == ["", ""]
    assert sum(int(hits) for hits, _ in outputs) > 50
    assert VelaCache(tmp_path).info().entries <= 10


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUSCHED_CACHE_DIR", os.sep + "own")
    assert default_folder() == Path(os.sep + "own")
    monkeypatch.delenv("NPUSCHED_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", os.sep + "xdg")
    assert default_folder() == Path(os.sep + "xdg") / "npusched"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder().parts[-2:] == (".cache", "npusched")


def test_cached_result_needs_no_worker(corpus_dir: Path, tmp_path: Path) -> None:
    content = (corpus_dir / "models" / "mlpt_kws.tflite").read_bytes()
    target = load_target("ethos-u55-128")
    cache = VelaCache(tmp_path)
    first = runner.compile_model(content, target, cache=cache)
    with VelaWorker(("/nonexistent",)) as broken:
        again = runner.compile_model(content, target, cache=cache, worker=broken)
    assert again.report == first.report
    assert again.compiled == first.compiled
    assert again.printed == first.printed
    table, known = again.database.table("perf"), first.database.table("perf")
    assert table.header == known.header
    assert list(table.rows()) == list(known.rows())


def test_corrupt_entry_is_compiled_and_written_again(corpus_dir: Path, tmp_path: Path) -> None:
    content = (corpus_dir / "models" / "mlpt_kws.tflite").read_bytes()
    target = load_target("ethos-u55-128")
    cache = VelaCache(tmp_path)
    first = runner.compile_model(content, target, cache=cache)
    (entry,) = cache.folder.iterdir()
    entry.write_bytes(entry.read_bytes()[:-100])
    again = runner.compile_model(content, target, cache=cache)
    assert again.report == first.report
    with VelaWorker(("/nonexistent",)) as broken:
        runner.compile_model(content, target, cache=cache, worker=broken)


def test_request_texts() -> None:
    """Sets are sorted, comments of the ini do not matter, every option is in the text."""
    one = VelaOptions(disable=(Feature.GROUPING, Feature.CASCADING, Feature.GROUPING)).canonical()
    two = VelaOptions(disable=(Feature.CASCADING, Feature.GROUPING)).canonical()
    assert one == two
    text = compiler_text(one, 4096)
    assert "disable_feature=Cascading|Grouping\n" in text
    assert "arena_size_limit=4096\n" in text
    assert "optimize=Performance\n" in text
    plain = VelaConfig(
        architecture="EthosU55",
        macs=32,
        cores=1,
        ini="[A]\nb=1",
        system_config="A",
        memory_mode="M",
    )
    commented = msgspec.structs.replace(plain, ini="; note\n[A]\n\n  b=1\n# more\n")
    assert system_text(plain) == system_text(commented)
