"""BLOCKDEP of a kernel: how many blocks it may run ahead of what was issued before it.

The smaller of two rules (EMIT.md §5). Ours: the first blocks of a kernel must not read what one
of the last three blocks ever issued writes. Vela's: windows of IFM blocks against the blocks of
the kernel before, a coarser grid. Hardware has only ever run Vela's values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from npusched.graph.types import Upscale
from npusched.hardware.target import AcceleratorU55, Block
from npusched.sim.blockdep import MAX_BLOCK_DEPENDENCY, Job, ifm_jobs, ofm_jobs
from npusched.sim.memory import Span, Storage
from npusched.sim.shram import ifm_block
from npusched.sim.state import KernelState
from npusched.sim.views import Pool, View
from npusched.vela.stream import StreamOpKind


@dataclass(frozen=True, slots=True)
class Frame:
    """How a view lies in its tensor: equal frames have equal coordinates but for the offsets.

    ``row`` and ``channel``: place of the view's first element.
    """

    tensor: int
    pitch: tuple[int, int, int, int]
    row: int
    channel: int

    def place(self, job: Job) -> Job:
        """A job of the view, in coordinates of the tensor."""
        return Job(
            (job.rows[0] + self.row, job.rows[1] + self.row),
            job.columns,
            (job.channels[0] + self.channel, job.channels[1] + self.channel),
        )


class BlockDependencies:
    """Remembers the last blocks issued in a stream."""

    def __init__(self, accelerator: AcceleratorU55) -> None:
        self._accelerator = accelerator
        self._keeps_tables = accelerator.shram_reserved_end_banks > 0
        self._jobs: deque[tuple[Frame, Job]] = deque(maxlen=MAX_BLOCK_DEPENDENCY)
        self._previous: KernelState | None = None
        self._frame = Frame(-1, (0, 0, 0, 0), 0, 0)

    def issue(self, state: KernelState, frames: Mapping[str, Frame]) -> int:
        """Return the value for a kernel, and remember its last blocks.

        ``frames``: of its feature maps in memory, by role.
        """
        previous, self._previous = self._previous, state
        found = 0
        if previous is not None:
            found = min(
                self._own_limit(state, frames),
                vela_limit(previous, state, {**frames, "before": self._frame}, self._accelerator),
            )
            had_table = previous.table is not None and state.table is None
            if had_table and not self._keeps_tables:
                found = 0
        self._frame = frames["ofm"]
        for job in ofm_jobs(state, MAX_BLOCK_DEPENDENCY, last=True):
            self._jobs.append((frames["ofm"], frames["ofm"].place(job)))
        return found

    def _own_limit(self, state: KernelState, frames: Mapping[str, Frame]) -> int:
        """Largest b such that no job i reads from the job j back with i + j < b."""
        limit = MAX_BLOCK_DEPENDENCY
        for role in ("ifm", "ifm2"):
            frame, view = frames.get(role), getattr(state, role)
            if frame is None or view is None:
                continue
            for ahead, job in enumerate(ifm_jobs(state, view, MAX_BLOCK_DEPENDENCY)):
                for back, (written, place) in enumerate(reversed(self._jobs)):
                    if ahead + back < limit and _touches(state, frame, job, written, place):
                        limit = ahead + back
        return limit


def _touches(state: KernelState, frame: Frame, job: Job, written: Frame, place: Job) -> bool:
    if frame.tensor != written.tensor:
        return False
    if frame.pitch != written.pitch or state.upscale is not Upscale.NONE:
        return True
    return _meet(frame.place(job), place)


def _meet(a: Job, b: Job) -> bool:
    return all(
        x[0] < y[1] and y[0] < x[1]
        for x, y in ((a.rows, b.rows), (a.columns, b.columns), (a.channels, b.channels))
    )


# --- Vela's rule -------------------------------------------------------------------------------


def vela_limit(
    previous: KernelState,
    state: KernelState,
    frames: Mapping[str, Frame],
    accelerator: AcceleratorU55,
) -> int:
    """Return a value as Vela 5.2 limits it, ``frames`` with that of the kernel before as "before".

    It knows no repetition over the OFM's depth; where both inputs come from the kernel before, or
    a broadcast one, it gives up.
    """
    before = frames["before"]
    hit = [
        role
        for role in ("ifm", "ifm2")
        if role in frames and frames[role].tensor == before.tensor and getattr(state, role)
    ]
    if not hit:
        return MAX_BLOCK_DEPENDENCY
    view, frame = getattr(state, hit[0]), frames[hit[0]]
    if len(hit) > 1 or (hit[0] == "ifm2" and _size(view) < _size(state.ifm)):
        return 0
    limit = MAX_BLOCK_DEPENDENCY
    written = [before.place(job) for job in ofm_jobs(previous, MAX_BLOCK_DEPENDENCY, last=True)]
    for ahead, job in enumerate(_windows(state, view, accelerator)):
        for back, place in enumerate(reversed(written)):
            if ahead + back < limit and _touches(state, frame, job, before, place):
                limit = ahead + back
    return limit


def _windows(state: KernelState, view: View, accelerator: AcceleratorU55) -> Iterator[Job]:
    """IFM blocks of the first jobs as Vela sees them: in their rounded size, walked over the IFM.

    A convolution does not read them again for every block of OFM channels.
    """
    block, window = ifm_block(state, accelerator), state.window
    is_conv = state.kind is StreamOpKind.CONV or state.function is Pool.REDUCE_SUM
    depth = block.c if is_conv else state.block.c
    steps = -(-(view.c if is_conv else state.ofm.c) // depth)
    flat = replace(state, block=Block(state.block.h, state.block.w, state.ofm.c))
    jobs = ofm_jobs(flat, MAX_BLOCK_DEPENDENCY, last=False)
    for number in range(min(MAX_BLOCK_DEPENDENCY, len(jobs) * steps)):
        job = jobs[number // steps]
        y = max(0, job.rows[0] * window.stride_h - window.pad_top)
        x = max(0, job.columns[0] * window.stride_w - window.pad_left)
        z = number % steps * depth
        yield Job((y, y + block.h), (x, x + block.w), (z, z + depth))


def _size(view: View) -> int:
    return view.h * view.w * view.c


def tile_spans(storage: Storage) -> list[Span]:
    """Bytes of a feature map, one interval per tile."""
    spans: dict[tuple[int, int], Span] = {}
    for piece in storage.pieces:
        key = (piece.rows.start, piece.columns.start)
        low, high = piece.span(storage.view.dtype.itemsize)
        a, b = spans.get(key, (low, high))
        spans[key] = (min(a, low), max(b, high))
    return list(spans.values())
