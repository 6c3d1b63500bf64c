"""The options of `kseg bench`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import json_option, paths_argument, selection_options
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@paths_argument
@selection_options
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="S",
    default=0.5,
    show_default=True,
    help="Least time for each step; never fewer than three runs.",
)
@json_option
def bench(**given: Any) -> None:
    """Measure verify, scan, columns, dump and the codecs on files of yours.

    Prints the median of several runs over warm files in one thread. The read sum only adds up the
    bytes, so it is the most that memory allows; compare the others with it.
    """
    from kseg.cli.bench import bench as run

    run(**given)
