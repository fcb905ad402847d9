"""Plain values that describe a network."""

from npusched.ir.kinds import OpKind
from npusched.ir.model import (
    DataType,
    Model,
    Op,
    Quantization,
    Shape,
    Signature,
    Subgraph,
    Tensor,
)
from npusched.ir.options import ActivationKind, Options, Padding

__all__ = [
    "ActivationKind",
    "DataType",
    "Model",
    "Op",
    "OpKind",
    "Options",
    "Padding",
    "Quantization",
    "Shape",
    "Signature",
    "Subgraph",
    "Tensor",
]
