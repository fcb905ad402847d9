"""The bytes of a constant -> a read-only numpy array of its shape."""

from __future__ import annotations

import struct
from itertools import pairwise
from math import prod
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from npusched.errors import ModelError
from npusched.ir import DataType, Shape
from npusched.tflite.records import Record
from npusched.tflite.sparse import densify

Array: TypeAlias = npt.NDArray[np.generic]

UNPACK_LIMIT_BYTES: Final = 256 << 20
"""Bytes that unpacking (INT4, sparse, text) may take in all, unless the file itself is larger."""

NUMPY_TYPES: Final[dict[DataType, np.dtype[np.generic]]] = {
    DataType.INT4: np.dtype("i1"),
    DataType.INT8: np.dtype("i1"),
    DataType.UINT8: np.dtype("u1"),
    DataType.INT16: np.dtype("<i2"),
    DataType.UINT16: np.dtype("<u2"),
    DataType.INT32: np.dtype("<i4"),
    DataType.UINT32: np.dtype("<u4"),
    DataType.INT64: np.dtype("<i8"),
    DataType.UINT64: np.dtype("<u8"),
    DataType.BOOL: np.dtype("?"),
    DataType.FLOAT16: np.dtype("<f2"),
    DataType.BFLOAT16: np.dtype("<f4"),
    DataType.FLOAT32: np.dtype("<f4"),
    DataType.FLOAT64: np.dtype("<f8"),
    DataType.COMPLEX64: np.dtype("<c8"),
    DataType.COMPLEX128: np.dtype("<c16"),
}
"""numpy type of a constant's values; INT4 is unpacked to int8, BFLOAT16 widened to float32."""


class Constants:
    """Turns buffers into arrays, within one memory budget for everything that must be unpacked."""

    def __init__(self, file_bytes: int) -> None:
        self.left_bytes = max(UNPACK_LIMIT_BYTES, 2 * file_bytes)

    def array(
        self, raw: memoryview, shape: Shape, dtype: DataType, sparsity: Record | None, where: str
    ) -> Array:
        """Return the values of a constant, read-only.

        Types whose elements have no fixed size in bytes: STRING gives an object array of bytes,
        an unknown type the raw bytes as one axis of uint8. Raises ModelError if the buffer does
        not hold exactly ``shape`` or if unpacking needs more memory than a sane file does.
        """
        if dtype is DataType.STRING:
            found: Array = self._strings(raw, shape, where)
        elif dtype not in NUMPY_TYPES:
            found = np.frombuffer(raw, np.uint8)
        elif sparsity is not None:
            itemsize = NUMPY_TYPES[dtype].itemsize
            self._take(prod(shape) * itemsize, where)
            stored = self._flat(raw, dtype, where)
            found = densify(stored, shape, sparsity, where)
        else:
            need_bytes = (prod(shape) * dtype.bits + 7) // 8
            if need_bytes != len(raw):
                raise _wrong_size(where, shape, dtype, need_bytes, len(raw))
            found = self._flat(raw, dtype, where)[: prod(shape)].reshape(shape)
        found.flags.writeable = False
        return found

    def _flat(self, raw: memoryview, dtype: DataType, where: str) -> Array:
        kind = NUMPY_TYPES[dtype]
        if dtype is DataType.INT4:
            self._take(6 * len(raw), where)
            return _unpack_int4(np.frombuffer(raw, np.uint8))
        if dtype is DataType.BFLOAT16:
            self._take(4 * len(raw), where)
            halves = np.frombuffer(raw[: len(raw) // 2 * 2], "<u2")
            wide: Array = np.left_shift(halves.astype(np.uint32), 16).view(np.float32)
            return wide
        if dtype is DataType.BOOL:
            return np.frombuffer(raw, np.uint8).astype(np.bool_)
        usable = len(raw) // kind.itemsize * kind.itemsize
        return np.frombuffer(raw[:usable], kind)

    def _strings(self, raw: memoryview, shape: Shape, where: str) -> Array:
        """Unpack TFLite's string buffer: count, count + 1 offsets, characters (all int32 LE)."""
        count = struct.unpack_from("<i", raw)[0] if len(raw) >= 4 else -1
        if count != prod(shape) or len(raw) < 4 * (count + 2):
            raise _wrong_size(where, shape, DataType.STRING, 4 * (prod(shape) + 2), len(raw))
        offsets = struct.unpack_from(f"<{count + 1}i", raw, 4)
        self._take(64 * count + len(raw), where)
        texts = np.empty(count, dtype=object)
        for i, (start, end) in enumerate(pairwise(offsets)):
            if not 0 <= start <= end <= len(raw):
                raise _wrong_size(where, shape, DataType.STRING, end, len(raw))
            texts[i] = bytes(raw[start:end])
        return texts.reshape(shape)

    def _take(self, need_bytes: int, where: str) -> None:
        self.left_bytes -= need_bytes
        if self.left_bytes < 0:
            raise ModelError(
                f"cannot use the model: {where} is too large to unpack",
                f"its values and those before it need more than {UNPACK_LIMIT_BYTES} bytes",
                "the file is damaged, or too large for any NPU target: export it again",
            )


def _unpack_int4(raw: npt.NDArray[np.uint8]) -> Array:
    """Two elements per byte, low nibble first, sign extended."""
    pairs = np.stack((raw << 4, raw & 0xF0), axis=-1).reshape(-1).view(np.int8)
    return pairs >> 4


def _wrong_size(
    where: str, shape: Shape, dtype: DataType, need_bytes: int, have_bytes: int
) -> ModelError:
    return ModelError(
        f"cannot use the model: {where} does not match its buffer",
        f"{dtype.label} {list(shape)} needs {need_bytes} bytes, the buffer has {have_bytes}",
        "the file is damaged: export or download it again",
        need_bytes=need_bytes,
        have_bytes=have_bytes,
    )
