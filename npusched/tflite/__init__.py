"""TFLite files: bytes to ``ir.Model`` and back. The only package that knows flatbuffers."""

from npusched.tflite.builder import Builder
from npusched.tflite.graph_builder import Ref
from npusched.tflite.reader import is_vela_compiled, load_model, read_model, verify

__all__ = ["Builder", "Ref", "is_vela_compiled", "load_model", "read_model", "verify"]
