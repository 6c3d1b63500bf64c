"""The options of `kseg recover`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli import change_options
from kseg.cli.options import (
    OFFSET,
    directories_argument,
    jobs_option,
    json_option,
    selection_options,
    settings_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@directories_argument(required=True)
@click.option(
    "--as-broker", is_flag=True, help="Do just what Kafka 4.2.0 would do, and report no more."
)
@click.option(
    "--clean/--unclean",
    default=None,
    help="Was the log closed in good order? By default as its mark says.",
)
@click.option(
    "--recovery-point",
    type=OFFSET,
    metavar="N",
    help="Records below N were flushed; by default as the checkpoint says.",
)
@click.option(
    "--log-start-offset",
    type=OFFSET,
    metavar="N",
    help="The first offset to read; by default as the checkpoint says.",
)
@selection_options
@change_options.change_options
@settings_options
@jobs_option
@json_option
def recover(**given: Any) -> int:
    """Show what a start after a crash would do to DIR...: what it cuts, makes anew and removes.

    Each DIR is a partition directory, a data directory with all its partitions, or a broker's
    server.properties, for the directories in its log.dirs; give all those of a broker. Checks the
    end of the log and of its indexes also after a clean shutdown. Changes nothing without --apply.
    Settings of topics, such as index.interval.bytes, are looked for as by 'kseg retain'.

    With --apply a broker that starts afterwards reads no log again: once all partitions of a data
    directory are in order, it gets the mark of a clean stop, without the broker's epoch. A
    partition that cannot be recovered is named, and the others go on. If it is interrupted, the
    next run goes on where it was. The log of KRaft is left alone.
    """
    from kseg.cli.recover import recover as run

    return run(**given)
