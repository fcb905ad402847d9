"""Emitted streams broken on purpose: every one must fail the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from npusched.emission.events import Event, Issue, Run
from npusched.emission.parts import Emitted, Stream
from npusched.vela.stream import Register

_TWO_WORDS = 0x4000
_CODE = 0xC3FF
_DMA_WAIT, _KERNEL_WAIT = 0x11, 0x12


@dataclass(frozen=True, slots=True)
class Word:
    """A command: its code, parameter, and place in the stream (in words)."""

    code: int
    parameter: int
    at: int


def commands(words: Sequence[int]) -> Iterator[Word]:
    """Yield the commands of a stream."""
    at = 0
    while at < len(words):
        code = words[at] & _CODE
        yield Word(code, words[at] >> 16, at)
        at += 2 if code & _TWO_WORDS else 1


def _with_words(emitted: Emitted, partition: int, words: Sequence[int]) -> Emitted:
    streams = list(emitted.streams)
    streams[partition] = replace(streams[partition], words=tuple(words))
    return replace(emitted, streams=tuple(streams))


def _edited(
    emitted: Emitted, edit: Callable[[Stream], Iterator[tuple[int, ...]]]
) -> Iterator[Emitted]:
    """One copy for each way to edit a stream."""
    for number, stream in enumerate(emitted.streams):
        for words in edit(stream):
            yield _with_words(emitted, number, words)


def without_waits(emitted: Emitted) -> Iterator[Emitted]:
    """Each single DMA_WAIT or KERNEL_WAIT left out."""

    def edit(stream: Stream) -> Iterator[tuple[int, ...]]:
        for word in commands(stream.words):
            if word.code in (_DMA_WAIT, _KERNEL_WAIT):
                yield stream.words[: word.at] + stream.words[word.at + 1 :]

    return _edited(emitted, edit)


def without_any_wait(emitted: Emitted) -> Emitted:
    """All waits left out."""
    for number, stream in enumerate(emitted.streams):
        waits = {w.at for w in commands(stream.words) if w.code in (_DMA_WAIT, _KERNEL_WAIT)}
        kept = [word for at, word in enumerate(stream.words) if at not in waits]
        emitted = _with_words(emitted, number, kept)
    return emitted


def with_block_dependency(emitted: Emitted, value: int) -> Emitted:
    """BLOCKDEP forced to a value."""
    return _with_register(emitted, Register.BLOCK_DEPENDENCY, lambda _: value)


def without_top_padding(emitted: Emitted) -> Emitted:
    """No padding above, anywhere."""
    return _with_register(emitted, Register.IFM_PAD_TOP, lambda _: 0)


def _with_register(emitted: Emitted, register: Register, change: Callable[[int], int]) -> Emitted:
    for number, stream in enumerate(emitted.streams):
        words = list(stream.words)
        for word in commands(stream.words):
            if word.code == register:
                words[word.at] = word.code | change(word.parameter) << 16
        emitted = _with_words(emitted, number, words)
    return emitted


def swapped_stripes(issue: Issue) -> Iterator[Issue]:
    """Each pair of successive stripes of one kernel exchanged."""
    last: dict[int, int] = {}
    for at, (_, event) in enumerate(issue.events):
        if not isinstance(event, Run):
            continue
        before = last.get(event.kernel)
        last[event.kernel] = at
        if before is None:
            continue
        events: list[tuple[int, Event]] = list(issue.events)
        events[before], events[at] = events[at], events[before]
        yield replace(issue, events=tuple(events))
