"""What to change, with the predicted effect: rules that look at a plan, or plan the change."""

from npusched.advise.first import Situation, advise
from npusched.advise.types import Advice, Confidence, Effect, Severity

__all__ = ["Advice", "Confidence", "Effect", "Severity", "Situation", "advise"]
