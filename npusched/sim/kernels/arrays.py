"""Array types of the simulator: which integers an array holds is said by its name and docstring."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
"""Stored values of a feature map, or values in any type that holds them exactly."""

Ints: TypeAlias = npt.NDArray[Any]
"""Exact signed integers, int32 or int64."""
