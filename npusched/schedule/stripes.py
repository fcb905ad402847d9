"""Rows of a scheduled op: its window, the memories it touches, and its cost description striped."""

from __future__ import annotations

from dataclasses import replace

from npusched.cost.op_cost import reshaped
from npusched.cost.types import CostFm, CostOp
from npusched.graph.types import NOT_STORED, Placement, ScheduledOp, Upscale
from npusched.schedule.rows import Window


def window_of(op: ScheduledOp) -> Window:
    """How rows of the op's result map to rows of its primary IFM.

    For ops that cannot be striped only the row counts mean anything (they run whole).
    """
    ofm_rows = op.ofm.shape[1] if op.ofms else 1
    if op.placement is Placement.CPU or not op.ifms:
        return Window(ofm_rows=ofm_rows, ifm_rows=op.ifms[0].shape[1] if op.ifms else 1)
    ifm_rows = op.ifms[0].shape[1]
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


def stripe(op: CostOp, rows: int, ifm_rows: int) -> CostOp:
    """``op`` on ``rows`` rows of its OFM and ``ifm_rows`` rows of its primary IFM.

    A second input gives as many rows as the OFM, unless it is broadcast over height.
    """
    n, h, w, c = op.ofm.shape
    if rows >= h:
        return op
    ifm_n, _, ifm_w, ifm_c = op.ifm.shape
    second = None if op.ifm2 is None else _rows_of(op.ifm2, h, rows)
    striped = reshaped(
        op,
        ifm=(ifm_n, ifm_rows, ifm_w, ifm_c),
        ofm=(n, rows, w, c),
        ifm2=None if second is None else second.shape,
    )
    return replace(
        striped,
        subs=tuple(
            replace(
                sub,
                ifm=None if sub.ifm is None else _rows_of(sub.ifm, h, rows),
                ifm2=None if sub.ifm2 is None else _rows_of(sub.ifm2, h, rows),
            )
            for sub in striped.subs
        ),
    )


def _rows_of(fm: CostFm, full: int, rows: int) -> CostFm:
    n, h, w, c = fm.shape
    return replace(fm, shape=(n, rows, w, c)) if h == full else fm
