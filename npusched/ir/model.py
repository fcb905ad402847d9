"""A quantised network as plain frozen values: no file format, no graph library, no hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from npusched.ir.kinds import OpKind
from npusched.ir.options import NoOptions, Options

Shape: TypeAlias = tuple[int, ...]
"""Axis sizes, outermost first, as in the file (any rank, () is a scalar)."""


class DataType(Enum):
    """Element type; the value is (name, bits per element)."""

    INT4 = ("int4", 4)
    INT8 = ("int8", 8)
    UINT8 = ("uint8", 8)
    INT16 = ("int16", 16)
    UINT16 = ("uint16", 16)
    INT32 = ("int32", 32)
    UINT32 = ("uint32", 32)
    INT64 = ("int64", 64)
    UINT64 = ("uint64", 64)
    BOOL = ("bool", 8)
    FLOAT16 = ("float16", 16)
    BFLOAT16 = ("bfloat16", 16)
    FLOAT32 = ("float32", 32)
    FLOAT64 = ("float64", 64)
    COMPLEX64 = ("complex64", 64)
    COMPLEX128 = ("complex128", 128)
    STRING = ("string", 0)
    RESOURCE = ("resource", 0)
    VARIANT = ("variant", 0)
    UNKNOWN = ("unknown", 0)

    @property
    def label(self) -> str:
        """Lower-case name, as numpy writes it."""
        return self.value[0]

    @property
    def bits(self) -> int:
        """Bits per element; 0 where elements have no fixed size (string, resource)."""
        return self.value[1]

    @property
    def is_float(self) -> bool:
        """True for floating and complex types."""
        return self.label.startswith(("float", "bfloat", "complex"))

    @property
    def is_signed(self) -> bool:
        """True for signed integers."""
        return self.label.startswith("int")

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers (not bool)."""
        return self.label.startswith(("int", "uint"))


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """Affine quantisation ``real = scale * (q - zero_point)``.

    One scale and zero point for the tensor (``axis is None``), or one per index of ``axis``.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor of a subgraph. ``index`` is its position in the file's subgraph.

    ``data`` is set for constants: a read-only array of ``shape`` (sparse tensors are densified,
    INT4 unpacked to int8) that takes no part in comparisons. ``dynamic_axes`` lists the axes the
    file marks as unknown (-1); ``shape`` holds 1 or the value given by the user there.
    ``stored_bytes`` is the size of the constant's buffer in the file, 0 for activations.
    """

    index: int
    name: str
    shape: Shape
    dtype: DataType
    quantization: Quantization | None = None
    data: npt.NDArray[np.generic] | None = field(default=None, compare=False, repr=False)
    is_variable: bool = False
    is_sparse: bool = False
    dynamic_axes: tuple[int, ...] = ()
    stored_bytes: int = 0

    @property
    def is_constant(self) -> bool:
        """True if the file holds the tensor's values."""
        return self.data is not None

    @property
    def elements(self) -> int:
        """Number of elements (1 for a scalar)."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Logical size in bytes, unpadded, rounded up to whole bytes."""
        return (self.elements * self.dtype.bits + 7) // 8


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a subgraph. Tensors are indices into ``Subgraph.tensors``; -1 = absent."""

    index: int
    kind: OpKind
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()
    options: Options = msgspec.field(default_factory=NoOptions)
    custom_code: str = ""
    version: int = 1


class Subgraph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph of ops in file order, which is a valid execution order."""

    index: int
    name: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A named entry point: which subgraph it runs and the names of its inputs and outputs."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A whole model file.

    ``notes`` are facts the user must hear once (a dynamic batch taken as 1, ...).
    ``const_bytes``: data of all buffers of the file, each once (weights, metadata).
    ``content`` are the bytes of the file, for tools that need the file itself (Vela).
    """

    name: str
    sha256: str
    size_bytes: int
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()
    description: str = ""
    notes: tuple[str, ...] = ()
    const_bytes: int = 0
    content: bytes = field(default=b"", compare=False, repr=False)
