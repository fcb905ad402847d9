"""Kernels one after the other: no kernel starts before the one before it has ended.

BLOCKDEP says how many of a kernel's first blocks may run while the kernel before is finishing. With
0 nothing overlaps, so nothing rests on what may overlap (EMIT.md §10).
"""

from __future__ import annotations

from dataclasses import replace

from npusched.emission.parts import Emitted, Stream
from npusched.vela.stream import Register

_TWO_WORDS = 0x4000
_CODE = 0xC3FF


def with_serial_kernels(emitted: Emitted) -> Emitted:
    """Return the same streams with BLOCKDEP 0 everywhere."""
    return replace(emitted, streams=tuple(map(_serial, emitted.streams)))


def _serial(stream: Stream) -> Stream:
    words = list(stream.words)
    at = 0
    while at < len(words):
        code = words[at] & _CODE
        if code == Register.BLOCK_DEPENDENCY:
            words[at] = int(code)
        at += 2 if code & _TWO_WORDS else 1
    return replace(stream, words=tuple(words))
