"""What no schedule can avoid: a lower bound on cycles that holds for every plan, of any scope."""

from __future__ import annotations

from math import ceil

from npusched.graph.types import Placement
from npusched.schedule.segments import Segments
from npusched.schedule.types import WeightMode


def compulsory_cycles(segments: Segments) -> int:
    """NPU cycles below which no plan can be, whatever it fuses and wherever things lie.

    Per op the longer of its MACs at full rate and one read of its weights from where constants
    lie; ops run one after the other. Graph inputs, outputs and everything that blocks, edges and
    output stages cost are left out, so the bound is not tight.
    """
    target, kernels = segments.target, segments.kernels
    if target.accelerator is None:
        return 0
    total = 0
    for v, op in enumerate(segments.graph.ops):
        if op.placement is Placement.CPU:
            continue
        places = segments.places_of(v, v, v, {})
        macs = kernels.whole(v, places, WeightMode.STREAMED).macs
        weights = kernels.weights(v, kernels.rows(v), places).total
        total += max(
            ceil(macs / target.accelerator.macs_per_cycle),
            ceil(weights / target.const.bandwidth_bytes_per_cycle),
        )
    return total
