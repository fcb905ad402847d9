"""Weights as the encoders see them: values minus zero points; what 2:4 sparsity asks of them."""

from __future__ import annotations

import numpy as np

from npusched.cost.weight_stream import Values
from npusched.graph.types import Weights

_LARGEST_SPARSE = 127
"""Largest magnitude that the 2:4 format holds (Vela 5.2.0, ethos_u85_weight_encoder.cpp)."""


def centred(weights: Weights) -> Values | None:
    """Weights minus zero points as (O, H, W, I), None if the values are not known."""
    if weights.values is None:
        return None
    values = np.asarray(weights.values).reshape(weights.shape).astype(np.int32)
    zero_points = np.asarray(weights.zero_points, dtype=np.int32)
    if len(zero_points) == values.shape[0]:
        zero_points = zero_points.reshape(-1, 1, 1, 1)
    else:
        zero_points = zero_points[:1]
    result: Values = np.clip(values - zero_points, -255, 255).astype(np.int16)
    return result


def is_sparse(weights: Weights) -> bool:
    """True if every four neighbouring input channels hold at least two zeros (2:4, U85).

    Channels beyond the last count as zeros, so one or two input channels always qualify (Vela
    5.2.0, ethos_u85_weight_encoder.cpp, the sparsity check).
    """
    values = centred(weights)
    if values is None or int(np.abs(values).max(initial=0)) > _LARGEST_SPARSE:
        return False
    missing = -values.shape[3] % 4
    padded = np.pad(values, ((0, 0), (0, 0), (0, 0), (0, missing)))
    zeros = (padded.reshape(-1, 4) == 0).sum(axis=1)
    return bool((zeros >= 2).all())
