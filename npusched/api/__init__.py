"""What the command line and Python programs call."""

from npusched.api.caching import cache_clear, cache_info
from npusched.api.comparing import compare, compare_report
from npusched.api.folding import FoldResult, fold
from npusched.api.planning import plan, plan_report

__all__ = [
    "FoldResult",
    "cache_clear",
    "cache_info",
    "compare",
    "compare_report",
    "fold",
    "plan",
    "plan_report",
]
