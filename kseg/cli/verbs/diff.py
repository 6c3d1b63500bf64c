"""The options of `kseg diff`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    copies_argument,
    jobs_option,
    json_option,
    mapping_option,
    records_option,
    selection_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@copies_argument
@records_option
@click.option("--all", "show_all", is_flag=True, help="Also list the partitions that are the same.")
@jobs_option
@selection_options
@mapping_option
@json_option
def diff(**given: Any) -> int:
    """Compare copies: replicas, a backup, a directory that was restored. A is what B... is held to.

    A and B are partition directories, copies of one partition whatever their names; or data
    directories, whose partitions are joined by topic, number and topic id. Each copy is the same as
    A, a prefix, diverged (at which offset, in which epoch, whose batches), or has holes. What lies
    in damaged bytes is unknown. Where segments are cut, where a log starts and what its indexes say
    is no difference.

    The data directories of one broker are one copy, with commas between them as in log.dirs:
    /disk1/data,/disk2/data.

    Exits 0 if all copies are the same, 1 if anything differs or is unknown. Changes nothing.
    """
    from kseg.cli.diff import diff as run

    return run(**given)
