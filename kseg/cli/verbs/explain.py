"""The options of `kseg explain`."""

from __future__ import annotations

import re
from typing import Any

import click

from kseg.cli.options import (
    SETTING,
    Parsed,
    broker_options,
    config_options,
    jobs_option,
    json_option,
)

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) *([KMGTP]?)(?:iB|B)?", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes, in units of 1024.

    >>> parse_size("100G"), parse_size("1.5 KiB")
    (107374182400, 1536)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("a size is a number with K, M, G or T, such as 100G")
    return int(float(match[1]) * 1024 ** " KMGTP".index(match[2].upper() or " "))


@click.command()
@click.argument(
    "directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=str)
)
@click.option(
    "--what-if",
    "supposed",
    type=SETTING,
    multiple=True,
    help="Say what would go, and when, by this setting. Repeatable.",
)
@click.option(
    "--free",
    "free_bytes",
    type=Parsed("SIZE", parse_size),
    help="Propose how so much room could become free, such as 100G. Exits 1 if it is out of reach.",
)
@click.option("--segments", is_flag=True, help="A line for each segment and file.")
@jobs_option
@config_options
@broker_options
@json_option
def explain(**given: Any) -> int:
    """Say what keeps each byte of the data directories DIR... on the disk, and until when.

    Each segment, index and other file has a cause, by the settings that the broker has ('kseg
    retain --help' has their order): younger than retention, with the date at which it goes; held by
    a record whose time lies in the future; compacted, or why it is not; leftovers; backups of kseg;
    deleted files that a process still has open. Totals by cause come first.

    --free proposes steps in this order: leftovers, what is due by the settings, compaction, shorter
    retention. Nothing is changed: run the commands yourself. Kafka's own topics are not among them.

    Exits 1 if something cannot be read, or if --free is out of reach.
    """
    from kseg.cli.explain import explain as run

    return run(**given)
