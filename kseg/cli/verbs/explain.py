"""The options of `kseg explain`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    directories_argument,
    explain_options,
    jobs_option,
    json_option,
    settings_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@directories_argument(required=True)
@explain_options
@jobs_option
@settings_options
@json_option
def explain(**given: Any) -> int:
    """Say what keeps each byte of the data directories DIR... on the disk, and until when.

    A broker's server.properties stands for the directories in its log.dirs, and is its
    --broker-config, too. Each segment, index and other file has a cause, by the settings that the
    broker has ('kseg retain --help' has their order): younger than retention, with the date at
    which it goes; held by a record whose time lies in the future; compacted, or why it is not;
    leftovers; backups of kseg; deleted files that a process still has open. Totals by cause come
    first.

    --free proposes steps in this order: leftovers, what is due by the settings, compaction, shorter
    retention. Nothing is changed: run the commands yourself. Kafka's own topics are not among them.

    Exits 1 if something cannot be read, or if --free is out of reach.
    """
    from kseg.cli.explain import explain as run

    return run(**given)
