"""TFLite files: bytes to ``ir.Model`` and back. The only package that knows flatbuffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npusched.tflite.reader import is_vela_compiled, load_model, read_model, verify

if TYPE_CHECKING:
    from npusched.tflite.builder import Builder
    from npusched.tflite.graph_builder import Ref

__all__ = ["Builder", "Ref", "is_vela_compiled", "load_model", "read_model", "verify"]


def __getattr__(name: str) -> object:
    """Load the builder where it is used: reading a model needs none of it."""
    if name in ("Builder", "Ref"):
        from npusched.tflite import builder

        return getattr(builder, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
