"""Live ranges to addresses, the lower bound, and the independent check of an allocation."""

from npusched.memory.allocate import Allocation, allocate
from npusched.memory.check import check_allocation
from npusched.memory.naive import naive_peak
from npusched.memory.ranges import ALIGNMENT_BYTES, LiveRange, align_up, live_bytes, lower_bound
from npusched.memory.tied import Tied, allocate_tied

__all__ = [
    "ALIGNMENT_BYTES",
    "Allocation",
    "LiveRange",
    "Tied",
    "align_up",
    "allocate",
    "allocate_tied",
    "check_allocation",
    "live_bytes",
    "lower_bound",
    "naive_peak",
]
