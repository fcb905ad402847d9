"""What the shell completes for an argument: models and targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete_model(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files, and the built-in models where ``demo:`` may begin."""
    from click.shell_completion import CompletionItem

    if incomplete and "demo:".startswith(incomplete[:5]):
        from npusched.demos import demo_names

        names = [f"demo:{name}" for name in demo_names()]
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return found if incomplete.startswith("demo:") else [*found, _files(incomplete)]
    return [_files(incomplete)]


def complete_targets(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of targets (the last of several, after a comma), or files if none begins so."""
    from click.shell_completion import CompletionItem

    from npusched.hardware.store import target_names

    before, comma, last = incomplete.rpartition(",")
    names = [name for name in target_names() if name.startswith(last)]
    if not names:
        return [_files(incomplete)]
    return [CompletionItem(f"{before}{comma}{name}") for name in names]


def _files(incomplete: str) -> CompletionItem:
    """Have the shell complete a path."""
    from click.shell_completion import CompletionItem

    return CompletionItem(incomplete, type="file")
