"""The options of `kseg info`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import jobs_option, json_option, paths_argument, selection_options
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@paths_argument
@selection_options
@click.option("--segments", "per_segment", is_flag=True, help="A line for each segment.")
@jobs_option
@json_option
def info(**given: Any) -> int:
    """Show partitions, segments, offsets, times, codecs, formats and sizes.

    Reads headers and indexes only; 'kseg verify' checks the contents. Times are those that headers
    state. Counts are of the files: an offset that two segments hold counts twice.
    """
    from kseg.cli.info import info as run

    return run(**given)
