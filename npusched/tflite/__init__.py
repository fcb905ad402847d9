"""TFLite files: bytes to ``ir.Model`` and back. The only package that knows flatbuffers."""

from npusched.tflite.reader import is_vela_compiled, load_model, read_compiled, read_model, verify

__all__ = ["is_vela_compiled", "load_model", "read_compiled", "read_model", "verify"]
