"""The options of `kseg truncate`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli import change_options
from kseg.cli.options import OFFSET, PATH, json_option, selection_options, settings_options
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--to",
    "offset",
    type=OFFSET,
    required=True,
    metavar="OFFSET",
    help="The new end of the log: this offset and all behind it go.",
)
@selection_options
@change_options.change_options
@settings_options
@json_option
def truncate(**given: Any) -> int:
    """Cut the log in DIR back, so that it ends at an offset.

    DIR is a partition directory, or a data directory of which --topic and --partition choose one.
    Batches go whole, so records in front of OFFSET may go with the batch that has it. Cuts nothing
    without --apply. The topic's settings are looked for as by 'kseg retain'.
    """
    from kseg.cli.truncate import truncate as run

    return run(**given)
