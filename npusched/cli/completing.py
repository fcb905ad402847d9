"""The script that makes a shell complete what is typed."""

from __future__ import annotations

from typing import Final

import click

from npusched.cli.options import common_options, examples
from npusched.cli.output import write_result

SHELLS: Final = ("bash", "zsh", "fish")


@click.command(
    epilog=examples(
        "npusched completion bash >> ~/.bashrc",
        "npusched completion zsh >> ~/.zshrc",
        "npusched completion fish > ~/.config/fish/completions/npusched.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@common_options
def completion(shell: str) -> int:
    """Print the script that completes commands, options, targets and models in SHELL.

    Put it into the file that the shell reads when it starts.
    """
    from click.shell_completion import get_completion_class

    from npusched.cli.app import app

    found = get_completion_class(shell)
    assert found is not None, "click has the shells that are offered"
    write_result(found(app, {}, "npusched", "_NPUSCHED_COMPLETE").source(), None)
    return 0
