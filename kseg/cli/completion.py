"""`kseg completion`: the script that a shell reads to complete verbs, options and paths."""

from __future__ import annotations

import click

_HELP = """Print the completion script for SHELL.

\b
bash: kseg completion bash > ~/.local/share/bash-completion/completions/kseg
zsh:  kseg completion zsh > "${fpath[1]}/_kseg"
fish: kseg completion fish > ~/.config/fish/completions/kseg.fish
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what `shell` sources."""
    from click.shell_completion import ShellComplete, get_completion_class

    from kseg.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    # The base class's source(): the one for bash first runs a bash to ask its version.
    click.echo(ShellComplete.source(kind(cli, {}, "kseg", "_KSEG_COMPLETE")))
