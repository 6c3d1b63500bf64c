"""The options of `kseg read`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    bytes_option,
    decode_options,
    format_option,
    isolation_option,
    jobs_option,
    paths_argument,
    range_options,
    selection_options,
    typed_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@paths_argument
@format_option
@bytes_option
@isolation_option
@selection_options
@range_options
@decode_options
@typed_options
@jobs_option
@click.option(
    "--follow", is_flag=True, help="Go on with new records, until interrupted or at --limit."
)
def read(**given: Any) -> int:
    """Print records from an offset or a time on, as a consumer would get them.

    A PATH is a partition directory, a data directory or a log file. Shows no transaction markers
    and nothing before the log's start offset. Stops at damage with exit code 1. Records of Kafka's
    internal topics are decoded: key and value are objects; those of others with --decode-key and
    --decode-value.
    """
    from kseg.cli.read import read as run

    return run(**given)
