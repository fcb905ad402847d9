"""Sparse constants against a slow encoder that walks the tensor index by index."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusched.errors import ModelError
from npusched.tflite import Builder, read_model
from npusched.tflite.records import Record, Value
from npusched.tflite.sparse import densify


def _levels(
    dense: npt.NDArray[np.int8], order: list[int], block_map: list[int], blocks: list[int],
    compressed: list[bool],
) -> tuple[list[int], tuple[Record, ...]]:  # fmt: skip
    """Store ``dense`` the way the schema describes: one level per stored axis, outwards in."""
    rank = dense.ndim
    sizes = list(dense.shape) + blocks
    for axis, block in zip(block_map, blocks, strict=True):
        sizes[axis] //= block

    def part(prefix: tuple[int, ...]) -> list[int]:
        """All values below a path (indices in traversal order)."""
        found = []
        ranges = [range(sizes[axis]) for axis in order[len(prefix) :]]
        for rest in product(*ranges):
            at = dict(zip(order, prefix + rest, strict=True))
            index = []
            for axis in range(rank):
                if axis in block_map:
                    block = block_map.index(axis)
                    index.append(at[axis] * blocks[block] + at[rank + block])
                else:
                    index.append(at[axis])
            found.append(int(dense[tuple(index)]))
        return found

    paths: list[tuple[int, ...]] = [()]
    records = []
    for axis, is_compressed in zip(order, compressed, strict=True):
        size = sizes[axis]
        if not is_compressed:
            records.append(Record("DimensionMetadata", {"format": 0, "dense_size": size}))
            paths = [(*path, i) for path in paths for i in range(size)]
            continue
        segments, indices, kept = [0], [], []
        for path in paths:
            present = [i for i in range(size) if any(part((*path, i)))]
            indices += present
            kept += [(*path, i) for i in present]
            segments.append(len(indices))
        paths = kept
        values: dict[str, Value] = {
            "format": 1,
            "array_segments": Record("Int32Vector", {"values": tuple(segments)}),
            "array_indices": Record("Uint16Vector", {"values": tuple(indices)}),
        }
        records.append(Record("DimensionMetadata", values))
    return [part(path)[0] for path in paths], tuple(records)


@st.composite
def _cases(
    draw: st.DrawFn,
) -> tuple[npt.NDArray[np.int8], list[int], list[int], list[int], list[bool]]:
    rank = draw(st.integers(1, 3))
    block_axes = draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=2))
    blocks = [draw(st.sampled_from([1, 2, 3])) for _ in block_axes]
    shape = [draw(st.integers(1, 3)) for _ in range(rank)]
    for axis, block in zip(block_axes, blocks, strict=True):
        shape[axis] *= block
    cells = prod(shape)
    values = draw(st.lists(st.sampled_from([0, 0, 0, 1, -5]), min_size=cells, max_size=cells))
    outer = draw(st.permutations(range(rank)))
    order = [*outer, *range(rank, rank + len(block_axes))]
    compressed = [draw(st.booleans()) for _ in range(rank)] + [False] * len(block_axes)
    return np.array(values, np.int8).reshape(shape), order, block_axes, blocks, compressed


@given(_cases())
@settings(max_examples=150, deadline=None)
def test_densify_inverts_a_slow_encoder(
    case: tuple[npt.NDArray[np.int8], list[int], list[int], list[int], list[bool]],
) -> None:
    dense, order, block_map, blocks, compressed = case
    values, levels = _levels(dense, order, block_map, blocks, compressed)
    sparsity = Record(
        "SparsityParameters",
        {"traversal_order": tuple(order), "block_map": tuple(block_map), "dim_metadata": levels},
    )
    found = densify(np.array(values, np.int8), dense.shape, sparsity, "test")
    assert np.array_equal(found, dense)


def _csr(segments: tuple[int, ...], indices: tuple[int, ...], **changes: Value) -> Record:
    """A 2 x 4 matrix: dense rows, compressed columns."""
    values: dict[str, Value] = {
        "traversal_order": (0, 1),
        "dim_metadata": (
            Record("DimensionMetadata", {"dense_size": 2}),
            Record(
                "DimensionMetadata",
                {
                    "format": 1,
                    "array_segments": Record("Uint8Vector", {"values": bytes(segments)}),
                    "array_indices": Record("Int32Vector", {"values": indices}),
                },
            ),
        ),
        **changes,
    }
    return Record("SparsityParameters", values)


def test_sparse_weights_in_a_file() -> None:
    """Rows [0 5 0 0] and [7 0 0 9]: segments 0 1 3, columns 1 | 0 3."""
    b = Builder()
    x = b.input("x", (1, 4), scale=1.0, zero_point=0)
    w = b.tensor(
        "w", (2, 4), "int8", scale=1.0, data=bytes([5, 7, 9]), sparsity=_csr((0, 1, 3), (1, 0, 3))
    )
    b.output(b.fully_connected(x, 2, weights=w, bias=False))
    tensor = read_model(b.build(), "m").subgraphs[0].tensors[w.index]
    assert tensor.data is not None
    assert tensor.data.tolist() == [[0, 5, 0, 0], [7, 0, 0, 9]]
    assert tensor.is_sparse
    assert tensor.stored_bytes == 3


@pytest.mark.parametrize(
    "sparsity",
    [
        _csr((0, 1), (1, 0, 3)),
        _csr((0, 1, 4), (1, 0, 3)),
        _csr((0, 2, 1), (1,)),
        _csr((0, 1, 3), (1, 0, 4)),
        _csr((0, 1, 3), (1, 0, -1)),
        _csr((0, 1, 3), (1, 0, 3), traversal_order=(0, 0)),
        _csr((0, 1, 3), (1, 0, 3), traversal_order=(0,)),
        _csr((0, 1, 3), (1, 0, 3), block_map=(2,)),
        _csr((0, 1, 3), (1, 0, 3), dim_metadata=()),
        _csr((0, 1, 2), (1, 0)),
    ],
)
def test_malformed_sparsity(sparsity: Record) -> None:
    b = Builder()
    b.output(b.tensor("w", (2, 4), "int8", data=bytes([5, 7, 9]), sparsity=sparsity))
    with pytest.raises(ModelError, match="sparse values"):
        read_model(b.build(), "m")


def test_sparse_bomb() -> None:
    """8 values that claim to be 2**31 bytes when dense are refused before any memory is taken."""
    b = Builder()
    rows = 1 << 20
    sparsity = Record(
        "SparsityParameters",
        {
            "traversal_order": (0, 1),
            "dim_metadata": (
                Record("DimensionMetadata", {"dense_size": rows}),
                Record("DimensionMetadata", {"format": 1}),
            ),
        },
    )
    b.output(b.tensor("w", (rows, 2048), "int8", data=bytes(8), sparsity=sparsity))
    with pytest.raises(ModelError, match="too large to unpack"):
        read_model(b.build(), "m")
