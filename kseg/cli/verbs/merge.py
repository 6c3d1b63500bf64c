"""The options of `kseg merge`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    PATH,
    copies_argument,
    jobs_option,
    json_option,
    out_option,
    selection_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@copies_argument
@out_option("The data directory to make, new or empty; OUT.kseg-salvage beside it has the report.")
@click.option(
    "--prefer",
    metavar="DIR",
    type=PATH,
    help="One of the copies: its batches win where those of one leader epoch differ.",
)
@jobs_option
@selection_options
@json_option
def merge(**given: Any) -> int:
    """Make one whole copy of damaged ones: replicas, backups. They stay as they are.

    A and B are partition directories, copies of one partition; or data directories, whose
    partitions are joined by topic, number and topic id. Of each copy counts what can be proved. At
    one offset the higher leader epoch wins; what a copy has behind the offset where it leaves the
    history of the last leader is left out, as Kafka cuts a follower. Different batches of one
    leader epoch are a conflict: both are shown and nothing is written, unless --prefer decides.

    The data directories of one broker are one copy, with commas between them as in log.dirs:
    /disk1/data,/disk2/data.

    Exits 0 if OUT is whole, and no copy differs from it but by damage. Exits 1 if offsets are
    missing, copies contradict each other, or one cannot be read, also where OUT was written.
    """
    from kseg.cli.merge import merge as run

    return run(**given)
