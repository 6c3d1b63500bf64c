"""The options of `kseg completion`."""

from __future__ import annotations

from typing import Any

import click

_HELP = """Print the completion script for SHELL, which knows topics, partitions and fields, too.

\b
bash: kseg completion bash > ~/.local/share/bash-completion/completions/kseg
zsh:  kseg completion zsh > "${fpath[1]}/_kseg"
fish: kseg completion fish > ~/.config/fish/completions/kseg.fish

\b
For this shell alone: eval "$(kseg completion bash)"
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(**given: Any) -> None:
    """Print what `shell` sources."""
    from kseg.cli.completion import completion as run

    run(**given)
