"""`kseg completion`: the script that a shell reads to complete verbs, options and paths."""

from __future__ import annotations

import click


def completion(shell: str) -> None:
    """Do what the verb says."""
    from click.shell_completion import ShellComplete, get_completion_class

    from kseg.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    # The base class's source(): the one for bash first runs a bash to ask its version.
    click.echo(ShellComplete.source(kind(cli, {}, "kseg", "_KSEG_COMPLETE")))
