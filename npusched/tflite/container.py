"""What kind of file is this? Everything that is said before the flatbuffer is decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from npusched.errors import ModelError
from npusched.tflite.schema import IDENTIFIER

MAX_FILE_BYTES: Final = 1 << 31
"""Offsets of a flatbuffer are 32 bit; nothing larger can run on the targets."""

_OTHER_FORMATS: Final = (
    (b"PK\x03\x04", "a zip archive", "unpack it and pass the .tflite file inside"),
    (b"\x1f\x8b", "a gzip archive", "unpack it and pass the .tflite file inside"),
    (b"\x89HDF", "a Keras HDF5 model", "convert it with the TFLite converter first"),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the file itself: git lfs pull"),
    (b"<", "an HTML or XML page", "download the model file itself, not the page that shows it"),
    (b"{", "a JSON file", "pass the .tflite file"),
)
_TEXT_BYTES: Final = frozenset(range(32, 127)) | frozenset(b"\t\r\n")
_OTHER_IDENTIFIERS: Final = {
    b"TOSA": ("a TOSA flatbuffer", "pass the .tflite file that it was made from"),
    b"ET12": ("an ExecuTorch program", "export the model to .tflite"),
}


def read_file(path: Path) -> bytes:
    """Return the bytes of a model file. Raises ModelError where there is none to read."""
    try:
        if path.is_dir():
            raise ModelError(
                f"cannot read the model: {path} is a directory",
                "a model is one file",
                "pass a .tflite file",
            )
        if not path.is_file():
            found = sorted(p.name for p in path.parent.glob("*.tflite"))[:3]
            near = f"{path.parent} has {', '.join(found)}" if found else "no such file"
            raise ModelError(
                f"cannot read the model: {path} does not exist", near, "check the path"
            )
        if path.stat().st_size > MAX_FILE_BYTES:
            why = f"{path.stat().st_size} bytes, a flatbuffer holds at most {MAX_FILE_BYTES}"
            raise ModelError(f"cannot read the model: {path} is too large", why, "check the path")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelError(
            f"cannot read the model: {path}", reason, "check the path and its permissions"
        ) from error


def check_identifier(content: bytes) -> None:
    """Raise ModelError, naming what the file seems to be, unless it is a TFLite flatbuffer."""
    if not content:
        raise ModelError(
            "cannot read the model: the file is empty", "0 bytes", "export or download it again"
        )
    if content[4:8] == IDENTIFIER:
        return
    looks, hint = "", "pass a .tflite file (its bytes 4 to 8 read TFL3)"
    for magic, text, advice in _OTHER_FORMATS:
        if content.lstrip()[: len(magic)] == magic:
            looks, hint = f", it looks like {text}", advice
            break
    else:
        if content[4:8] in _OTHER_IDENTIFIERS:
            text, hint = _OTHER_IDENTIFIERS[content[4:8]]
            looks = f", it looks like {text}"
        elif all(byte in _TEXT_BYTES for byte in content[:512]):
            looks = ", it looks like a text file"
    raise ModelError(
        f"cannot read the model: not a TFLite file{looks}",
        f"bytes 4 to 8 are {content[4:8].hex(' ') or 'missing'}, expected 54 46 4c 33 (TFL3)",
        hint,
        size_bytes=len(content),
    )
