"""Which kernels of a stream are fully connected layers of the original model.

LiteRT's reference kernel of such layers rounds once where the NPU rounds twice (SIM.md §4). They
are recognised by their weights, which must be rows of a layer's matrix: a 1x1 convolution of the
same shape is not one.
"""

from __future__ import annotations

import numpy as np

from npusched.ir import Model, OpKind, Subgraph
from npusched.sim.kernels.arrays import Array
from npusched.sim.program import LoadedKernel, Program


def connected_kernels(model: Model, program: Program) -> frozenset[int]:
    """Return the kernels (by index) that compute (rows of) FULLY_CONNECTED ops of the model."""
    layers = [matrix for graph in model.subgraphs for matrix in _matrices(graph)]
    rows = {matrix.shape[1]: _rows_by_width(layers, matrix.shape[1]) for matrix in layers}
    return frozenset(
        kernel.state.index for kernel in program.kernels if _is_connected(kernel, rows)
    )


def _matrices(graph: Subgraph) -> list[Array]:
    """Constant weights of fully connected ops, zero points subtracted (out, in)."""
    found = []
    for op in graph.ops:
        if op.kind is not OpKind.FULLY_CONNECTED or len(op.inputs) < 2 or op.inputs[1] < 0:
            continue
        tensor = graph.tensors[op.inputs[1]]
        if tensor.data is None or not tensor.dtype.is_integer or len(tensor.shape) < 2:
            continue
        matrix = tensor.data.reshape(-1, tensor.shape[-1]).astype(np.int16)
        quantization = tensor.quantization
        if quantization is not None:
            zeros = np.array(quantization.zero_points, np.int16)
            matrix = matrix - (zeros[:, None] if len(zeros) == len(matrix) else zeros[:1])
        found.append(matrix)
    return found


def _rows_by_width(layers: list[Array], width: int) -> set[bytes]:
    """All rows of layers with ``width`` inputs."""
    return {
        np.ascontiguousarray(row).tobytes()
        for matrix in layers
        if matrix.shape[1] == width
        for row in matrix
    }


def _is_connected(kernel: LoadedKernel, rows: dict[int, set[bytes]]) -> bool:
    """True if every output channel's weights are a row of a layer."""
    volume = kernel.volume
    if volume is None or kernel.state.kind != "conv":
        return False
    flat = volume.reshape(len(volume), -1).astype(np.int16)
    known = rows.get(flat.shape[1])
    return known is not None and all(row.tobytes() in known for row in flat)
