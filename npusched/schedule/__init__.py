"""Segments, stripes, buffers and placement: the plan, its search and its independent check."""

from npusched.schedule.check import check_plan
from npusched.schedule.kernels import Kernels, WeightSizes
from npusched.schedule.level_costs import fusion_levels, whole_cost
from npusched.schedule.levels import Level
from npusched.schedule.objective import Goal, Objective
from npusched.schedule.ordering import OrderedPlanner, with_given_ids
from npusched.schedule.plan import Planner
from npusched.schedule.segments import Segments
from npusched.schedule.switches import Switch
from npusched.schedule.types import (
    Amounts,
    Bound,
    Buffer,
    Buffering,
    BufferKind,
    Copy,
    OpRun,
    Plan,
    Proof,
    Segment,
    WeightMode,
)

__all__ = [
    "Amounts",
    "Bound",
    "Buffer",
    "BufferKind",
    "Buffering",
    "Copy",
    "Goal",
    "Kernels",
    "Level",
    "Objective",
    "OpRun",
    "OrderedPlanner",
    "Plan",
    "Planner",
    "Proof",
    "Segment",
    "Segments",
    "Switch",
    "WeightMode",
    "WeightSizes",
    "check_plan",
    "fusion_levels",
    "whole_cost",
    "with_given_ids",
]
