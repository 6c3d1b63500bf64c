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
@jobs_option
@selection_options
@json_option
def salvage(**given: Any) -> int:
    """Take what can be proved out of damaged logs, into a new data directory.

    Recovery cuts a log at its first bad byte. This keeps each sound batch behind it, too, whose
    checksum is right, that is proved to be a batch of the log and not data of a record, and whose
    offsets and leader epoch fit. Nothing is moved to other offsets or rewritten. DIR is a partition
    directory or a data directory, and is not changed. OUT is new, or empty; it has its name once it
    is whole. A broker adopts it.

    What is lost is listed by offsets. OUT.kseg-salvage holds report.json and the bytes that are not
    kept (quarantine/; kseg dump reads quarantine/TOPIC-N/readable/*.log). The last lines say how to
    put the result back.

    The log of KRaft, __cluster_metadata-0, is salvaged only where DIR names it, up to its first
    gap.

    Exits 0 if nothing was lost, 1 if anything was.
    """
    from kseg.cli.salvage import salvage as run

    return run(**given)
