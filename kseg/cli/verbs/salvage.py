"""The options of `kseg salvage`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    directories_argument,
    jobs_option,
    json_option,
    out_option,
    selection_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@directories_argument(required=True)
@out_option("The new data directory; OUT.kseg-salvage beside it has the report.")
@click.option(
    "--abort-open",
    is_flag=True,
    help="End each transaction whose marker may be lost with a marker that aborts it.",
)
@click.option(
    "--unproven",
    is_flag=True,
    help="Also write the records that parse in damaged batches, in files beside OUT.",
)
@jobs_option
@selection_options
@json_option
def salvage(**given: Any) -> int:
    """Take what can be proved out of damaged logs, into a new data directory.

    Recovery cuts a log at its first bad byte. This keeps each sound batch behind it, too: one whose
    checksum is right, that is a batch of the log and not data of a record, and whose offsets fit.
    DIR is a partition directory or a data directory, and is not changed. OUT is new, or empty; it
    has its name once it is whole. A broker adopts it.

    What is lost is listed by offsets. OUT.kseg-salvage holds report.json, the bytes that are not
    kept (quarantine/), and with --unproven the records that may be right (unproven/).

    Exits 0 if nothing was lost, 1 if anything was.
    """
    from kseg.cli.salvage import salvage as run

    return run(**given)
