"""Sparse constants (TACO-style, as the TFLite schema stores them) -> dense arrays.

A sparse tensor has ``n`` axes and ``b`` block axes (which split some of the ``n``). The axes are
stored in ``traversal_order``, each dense (every index present) or compressed (CSR: per parent,
``array_segments`` delimits the range of ``array_indices`` that are present). The values lie in
traversal order.
"""

from __future__ import annotations

from math import prod
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from npusched.errors import ModelError
from npusched.ir import Shape
from npusched.tflite.records import Record

_Ints: TypeAlias = npt.NDArray[np.int64]


def densify(
    values: npt.NDArray[np.generic], shape: Shape, sparsity: Record, where: str
) -> npt.NDArray[np.generic]:
    """Return the dense array of ``shape``; elements that are not stored are 0.

    Time and memory are linear in the stored elements plus ``prod(shape)``. Raises ModelError
    where the description does not fit the values or the shape.
    """
    order, block_map = sparsity.ints("traversal_order"), sparsity.ints("block_map")
    levels = sparsity.records("dim_metadata")
    rank = len(shape)
    if sorted(order) != list(range(rank + len(block_map))) or len(levels) != len(order):
        _malformed(where, f"traversal order {list(order)} does not name every axis once")
    if any(not 0 <= axis < rank for axis in block_map) or len(set(block_map)) != len(block_map):
        _malformed(where, f"block map {list(block_map)} does not name axes of {list(shape)}")
    sizes = _stored_sizes(order, block_map, levels, shape, where)

    # Every axis adds index * stride to the flat position, so one column of positions is enough.
    strides = _strides(shape, block_map, sizes)
    # A path ends in a value or in a compressed axis, so that what is stored bounds the paths.
    stored = [len(values), *(len(_values(level, "array_segments")) - 1 for level in levels)]
    positions = np.zeros(1, np.int64)
    for axis, level in zip(order, levels, strict=True):
        if level.integer("format") == 0:
            positions = _dense_level(positions, sizes[axis], strides[axis], max(stored), where)
        else:
            positions = _csr_level(level, positions, sizes[axis], strides[axis], where)
    if len(positions) != len(values):
        _malformed(where, f"it describes {len(positions)} values, the buffer holds {len(values)}")
    dense = np.zeros(prod(shape), values.dtype)
    dense[positions] = values
    return dense.reshape(shape)


def _stored_sizes(
    order: tuple[int, ...],
    block_map: tuple[int, ...],
    levels: tuple[Record, ...],
    shape: Shape,
    where: str,
) -> list[int]:
    """Size of every axis as stored: block sizes, and the block counts of the axes they split."""
    rank = len(shape)
    sizes = [*shape, *(0 for _ in block_map)]
    for axis, level in zip(order, levels, strict=True):
        if axis >= rank:
            block = level.integer("dense_size")
            split = shape[block_map[axis - rank]]
            if level.integer("format") != 0 or block < 1 or split % block:
                _malformed(where, f"a block of {block} does not divide an axis of {split}")
            sizes[axis] = block
            sizes[block_map[axis - rank]] = split // block
    for axis, level in zip(order, levels, strict=True):
        if level.integer("format") == 0 and level.integer("dense_size") != sizes[axis]:
            stated = level.integer("dense_size")
            _malformed(where, f"a dense axis of {sizes[axis]} is described as {stated}")
    return sizes


def _strides(shape: Shape, block_map: tuple[int, ...], sizes: list[int]) -> list[int]:
    """Elements between neighbours along every stored axis."""
    rank = len(shape)
    elements = [prod(shape[axis + 1 :]) for axis in range(rank)]
    strides = [*elements, *(elements[axis] for axis in block_map)]
    for position, axis in enumerate(block_map):
        strides[axis] *= sizes[rank + position]
    return strides


def _dense_level(parents: _Ints, size: int, stride: int, limit: int, where: str) -> _Ints:
    if len(parents) * size > limit:
        _malformed(where, f"it describes {len(parents) * size} paths, {limit} are stored")
    steps = np.arange(size, dtype=np.int64) * stride
    return (parents[:, None] + steps).reshape(-1)


def _csr_level(level: Record, parents: _Ints, size: int, stride: int, where: str) -> _Ints:
    segments, indices = _values(level, "array_segments"), _values(level, "array_indices")
    if len(segments) != len(parents) + 1 or segments[0] != 0 or segments[-1] != len(indices):
        _malformed(where, f"{len(segments)} segments do not delimit {len(indices)} indices")
    counts = np.diff(segments)
    if (counts < 0).any():
        _malformed(where, "its segments do not increase")
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        _malformed(where, f"an index lies outside an axis of {size}")
    return np.repeat(parents, counts) + indices * stride


def _values(level: Record, name: str) -> _Ints:
    vector = level.record(name)
    if vector is None:
        return np.zeros(0, np.int64)
    if vector.table == "Uint8Vector":
        return np.frombuffer(vector.blob("values"), np.uint8).astype(np.int64)
    return np.array(vector.ints("values"), np.int64)


def _malformed(where: str, why: str) -> NoReturn:
    raise ModelError(
        f"cannot use the model: the sparse values of {where} are malformed",
        why,
        "the file is damaged: export or download it again",
    )
