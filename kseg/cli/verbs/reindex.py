"""The options of `kseg reindex`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli import change_options
from kseg.cli.options import (
    PATH,
    jobs_option,
    json_option,
    reindex_options,
    selection_options,
    settings_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.argument("directory", metavar="DIR", type=PATH)
@reindex_options
@selection_options
@change_options.change_options
@settings_options
@jobs_option
@json_option
def reindex(**given: Any) -> int:
    """Show which indexes and snapshots in DIR do not fit the log, and make them anew.

    DIR is a partition directory, or a data directory with all its partitions. Never touches the log
    itself. If the log is damaged it leaves the indexes alone: use 'kseg recover'. Changes nothing
    without --apply. New entries lie index.interval.bytes apart: the topic's settings are looked for
    as by 'kseg retain'.
    """
    from kseg.cli.reindex import reindex as run

    return run(**given)
