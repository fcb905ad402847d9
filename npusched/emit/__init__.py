"""From a plan to a deployable ``.tflite`` for Ethos-U55 and U65.

Vela's own uncascaded compilation gives the numerics (registers of every kernel); order, rows,
addresses, copies, waits and every word of the stream are ours.

The package bears the name of the function that most programs want: ``npusched.emit(model, target,
output=...)`` calls ``npusched.api.emit``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


class _Emit(ModuleType):
    """The package as something to call."""

    def __call__(self, *arguments: object, **named: object) -> object:
        """Call ``npusched.api.emit``."""
        return import_module("npusched.api").emit(*arguments, **named)


sys.modules[__name__].__class__ = _Emit
