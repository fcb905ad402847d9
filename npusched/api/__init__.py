"""What the command line and Python programs call."""

from npusched.api.caching import cache_clear, cache_info
from npusched.api.folding import FoldResult, fold
from npusched.api.planning import plan, plan_report

__all__ = ["FoldResult", "cache_clear", "cache_info", "fold", "plan", "plan_report"]
