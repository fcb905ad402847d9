"""docs/python.md, made from the signatures and docstrings of what the package offers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import npusched
from tests.docs.pages import NOTE

INTRO = """# Python

`import npusched` offers what stands here, and imports nothing before it is asked for. Reports are
frozen values; their fields are those of the [JSON forms](json.md). In a notebook they show
themselves. Errors are subclasses of `NpuschedError` with `what`, `why`, `hint` and `values`.

```python
import npusched

plan = npusched.plan("model.tflite", "ethos-u55-128", sram="64KiB")
slowest = max(plan.ops, key=lambda op: op.cycles)
print(slowest.name, slowest.cycles, slowest.bound_by)
```
"""


def python_page() -> str:
    """The page."""
    functions = [name for name in npusched.__all__ if inspect.isfunction(getattr(npusched, name))]
    classes = [name for name in npusched.__all__ if inspect.isclass(getattr(npusched, name))]
    parts = [NOTE + INTRO]
    parts += [_function(name, getattr(npusched, name)) for name in functions]
    rows = [f"| `{name}` | {_first(getattr(npusched, name))} |" for name in classes]
    parts.append("\n".join(["## Values and errors\n", "| name | what it is |", "|---|---|", *rows]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _function(name: str, function: Callable[..., object]) -> str:
    """Heading, signature (one argument a line) and docstring."""
    signature = inspect.signature(function)
    lines, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            lines.append("    *,")
            keyword_only = True
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    result = signature.return_annotation
    body = "\n".join(lines)
    shown = (
        f"npusched.{name}(\n{body}\n) -> {result}" if lines else f"npusched.{name}() -> {result}"
    )
    return f"## {name}\n\n```text\n{shown}\n```\n\n{_markdown(inspect.getdoc(function) or '')}"


def _first(value: object) -> str:
    return _markdown((inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " "))


def _markdown(text: str) -> str:
    """A docstring's double backquotes as Markdown's single ones."""
    return re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
