"""The options of `kseg lookup`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import OFFSET, PATH, TIME, json_option, now_option, selection_options
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.argument("directory", metavar="DIR", type=PATH)
@click.option("--offset", type=OFFSET, metavar="N", help="The offset to look for.")
@click.option(
    "--time", type=TIME, help="The time to look for: ISO 8601, ms, or such as yesterday, -1h."
)
@now_option(expose=False)
@selection_options
@json_option
def lookup(**given: Any) -> None:
    """Say where the first record at or after an offset or a time lies.

    DIR is a partition directory, or a data directory of which --topic and --partition choose one.
    """
    from kseg.cli.lookup import lookup as run

    run(**given)
