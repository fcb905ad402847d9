"""Rows and memories of a scheduled op inside a segment."""

from __future__ import annotations

from npusched.graph.chains import primary_ifm
from npusched.graph.types import NOT_STORED, Placement, ScheduledOp, Upscale
from npusched.schedule.rows import Window


def window_of(op: ScheduledOp) -> Window:
    """How rows of the op's result map to rows of the IFM that it is striped along.

    For ops that cannot be striped only the row counts mean anything (they run whole).
    """
    ofm_rows = op.ofm.shape[1] if op.ofms else 1
    if op.placement is Placement.CPU or not op.ifms:
        return Window(ofm_rows=ofm_rows, ifm_rows=op.ifms[0].shape[1] if op.ifms else 1)
    ifm_rows = op.ifms[primary_ifm(op)].shape[1]
    kernel = op.kernel
    plain = kernel.dilated_h == 1 and kernel.stride_h == 1 and op.upscale is Upscale.NONE
    return Window(
        ofm_rows=ofm_rows,
        ifm_rows=ifm_rows,
        stride=kernel.stride_h,
        extent=kernel.dilated_h,
        pad_top=kernel.pad_top,
        whole=plain and ifm_rows == 1 and ofm_rows > 1,
    )


def touched_maps(op: ScheduledOp) -> tuple[int, ...]:
    """Ids of the stored feature maps that an op reads or writes, sorted."""
    touched = {access.tensor for access in (*op.reads, *op.writes)}
    return tuple(sorted(touched - {NOT_STORED}))
