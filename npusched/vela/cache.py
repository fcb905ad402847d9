"""Results on disk, found by content; private, bounded, safe to share and to lose.

Vela's results, and what was made of them: any type that msgspec can decode.

An entry is one file: a header with version and digest, then zlib-compressed msgpack. It is
written beside its place and renamed into it, so a reader sees all of it or nothing; what fails
its checks when read is treated as absent and written anew. No failure of the cache is ever a
failure of the run.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from npusched.vela.result import VelaResult

CURVES_LIMIT_BYTES = 64 << 20
DEFAULT_LIMIT_BYTES = (512 << 20) - CURVES_LIMIT_BYTES
"""Of Vela's results; together with the curves 512 MiB."""

CURVES = "curves"
"""Subfolder of the curves that ``npusched tune`` makes."""

FORMAT = 1
"""Number of the entry format; another one is treated as absent."""

_MAGIC = b"npusched-vela\0"
_HEADER = struct.Struct("<14sHQ32s32s")
_SUFFIX = ".vela"
_ENTRY_LIMIT_BYTES = 2 << 30
_PUTS_BETWEEN_SCANS = 64

T = TypeVar("T")


def cache_key(*parts: str) -> str:
    """Return the key of a request: a digest of its parts, each with its length."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


def default_folder() -> Path:
    """Return $NPUSCHED_CACHE_DIR, else $XDG_CACHE_HOME/npusched, else ~/.cache/npusched."""
    named = os.environ.get("NPUSCHED_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "npusched"
    return Path(os.path.expanduser("~")) / ".cache" / "npusched"


class CacheInfo(msgspec.Struct, frozen=True):
    """State of the cache: where, how many entries, their size, and the bound on it."""

    folder: Path
    entries: int
    size_bytes: int
    limit_bytes: int


class DiskCache(Generic[T]):
    """Values of one type in the subfolder ``name`` of ``folder`` (default: ``default_folder``).

    Total size at most about ``limit_bytes``; what was not used for longest goes first.
    """

    def __init__(
        self,
        type_: type[T],
        name: str,
        folder: Path | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self.folder = (default_folder() if folder is None else folder) / name
        self.limit_bytes = limit_bytes
        self._decoder = msgspec.msgpack.Decoder(type_)
        self._room_bytes = 0
        self._puts = 0

    def get(self, key: str) -> T | None:
        """Return the stored result, or None if there is none that passes its checks."""
        path = self._path(key)
        try:
            if not _is_private(self.folder):
                return None
            data = path.read_bytes()
        except OSError:
            return None
        result = _decode(key, data, self._decoder)
        if result is not None:
            with suppress(OSError):
                os.utime(path)
        return result

    def put(self, key: str, result: T) -> bool:
        """Store a result; return False if it cannot be stored (full or read-only disk, ...)."""
        data = _encode(key, result)
        if len(data) > self.limit_bytes:
            return False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(self.folder):
                return False
            _write_atomically(self._path(key), data)
        except OSError:
            return False
        self._make_room(len(data))
        return True

    def clear(self) -> int:
        """Delete all entries; return how many."""
        removed = 0
        for path in self._files():
            with suppress(OSError):
                path.unlink()
                removed += path.suffix == _SUFFIX
        return removed

    def info(self) -> CacheInfo:
        """Return what is stored."""
        sizes = [size for _, size, _ in self._entries()]
        return CacheInfo(self.folder, len(sizes), sum(sizes), self.limit_bytes)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _files(self) -> list[Path]:
        """Our own files only: entries and left-over temporary files."""
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return [self.folder / name for name in names if name.endswith((_SUFFIX, _SUFFIX + ".tmp"))]

    def _entries(self) -> list[tuple[float, int, Path]]:
        entries = []
        for path in self._files():
            with suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        return entries

    def _make_room(self, written_bytes: int) -> None:
        """Count what was written; look at the folder when it may be full, and now and then.

        Other processes write, too, so the count alone would drift.
        """
        self._room_bytes -= written_bytes
        self._puts += 1
        if self._room_bytes < 0 or self._puts >= _PUTS_BETWEEN_SCANS:
            self._puts = 0
            self._room_bytes = self.limit_bytes - self._evict()

    def _evict(self) -> int:
        """Delete the least recently used entries until the rest fits; return its size in bytes."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit_bytes:
                break
            with suppress(OSError):
                path.unlink()
            total -= size
        return total


class VelaCache(DiskCache[VelaResult]):
    """The cache of Vela's results."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        super().__init__(VelaResult, "vela", folder, limit_bytes)


class _Curves(DiskCache[msgspec.Raw]):
    """The cache of curves as far as cleaning goes; ``api.tuning`` says what is in it."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(msgspec.Raw, CURVES, folder, CURVES_LIMIT_BYTES)


def clear_cache(folder: Path | None = None) -> int:
    """Delete all cached Vela results and what was made of them; return how many results."""
    _Curves(folder).clear()
    return VelaCache(folder).clear()


def cache_info(folder: Path | None = None) -> CacheInfo:
    """Return place and number of the cached Vela results, and the size of all that is cached."""
    info = VelaCache(folder).info()
    curves = _Curves(folder).info()
    return CacheInfo(
        info.folder,
        info.entries,
        info.size_bytes + curves.size_bytes,
        info.limit_bytes + curves.limit_bytes,
    )


def _is_private(folder: Path) -> bool:
    """Return True if nobody else can have written there. Raises OSError if it is not there."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _write_atomically(path: Path, data: bytes) -> None:
    """Write beside ``path`` and rename. mkstemp gives mode 0600. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=_SUFFIX + ".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _encode(key: str, result: object) -> bytes:
    payload = msgspec.msgpack.encode(result)
    body = zlib.compress(payload, 1)
    digest = hashlib.sha256(body).digest()
    header = _HEADER.pack(_MAGIC, FORMAT, len(payload), bytes.fromhex(key), digest)
    return header + body


def _decode(key: str, data: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T | None:
    """Check and decode an entry; None if anything is wrong with it."""
    if len(data) < _HEADER.size:
        return None
    magic, version, length, stored_key, digest = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if (magic, version, stored_key) != (_MAGIC, FORMAT, bytes.fromhex(key)):
        return None
    if length > _ENTRY_LIMIT_BYTES or hashlib.sha256(body).digest() != digest:
        return None
    unpacker = zlib.decompressobj()
    try:
        payload = unpacker.decompress(body, length + 1)
        return decoder.decode(payload) if len(payload) == length else None
    except (zlib.error, msgspec.MsgspecError):
        return None
