"""Built-in models: small int8 networks of known architectures, random weights from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final

from npusched.demos import networks
from npusched.errors import ModelError

__all__ = ["demo", "demo_names"]

MAX_CHAIN_OPS: Final = 10_000

_DEMOS: Final[dict[str, Callable[[], bytes]]] = {
    "mobilenet": networks.mobilenet,
    "resnet8": networks.resnet8,
    "ds_cnn": networks.ds_cnn,
    "autoencoder": networks.autoencoder,
    "unet": networks.unet,
    "mobilenet_v2": networks.mobilenet_v2,
    "chain": networks.chain,
    "block": networks.block,
}


def demo_names() -> tuple[str, ...]:
    """Return the names that ``demo`` knows; ``chain`` also takes a length (``chain:300``)."""
    return tuple(_DEMOS)


def demo(name: str) -> bytes:
    """Return the .tflite bytes of a built-in model, the same on every call and machine.

    ``name``: one of ``demo_names()``, or ``chain:N`` for a chain of N ops. Raises ModelError for
    anything else.
    """
    base, colon, size = name.partition(":")
    if base not in _DEMOS or (colon and base != "chain"):
        near = get_close_matches(base, _DEMOS, 1, 0.4)
        raise ModelError(
            f"there is no demo model {name!r}",
            f"built in: {', '.join(_DEMOS)}, and chain:N",
            f"did you mean {near[0]!r}?" if near else "pick one of them, or pass a .tflite file",
        )
    if not colon:
        return _DEMOS[base]()
    if not (size.isascii() and size.isdigit() and len(size) <= 9):
        raise ModelError(
            f"demo model {name!r} has no usable length",
            f"{size!r} is not a number of ops",
            "write chain:300, for example",
        )
    if not 1 <= int(size) <= MAX_CHAIN_OPS:
        raise ModelError(
            f"demo model {name!r} has no usable length",
            f"{int(size)} ops, allowed are 1 to {MAX_CHAIN_OPS}",
            "write chain:300, for example",
        )
    return networks.chain(int(size))
