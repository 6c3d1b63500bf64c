"""The options of `kseg verify`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    PATH,
    deep_option,
    jobs_option,
    json_option,
    mapping_option,
    now_option,
    selection_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.argument("paths", nargs=-1, metavar="PATH...", type=PATH)
@deep_option
@click.option("--codes", is_flag=True, help="List every code of a finding with its meaning.")
@jobs_option
@selection_options
@mapping_option
@now_option()
@json_option
def verify(**given: Any) -> int:
    """Check every byte: checksums, structure, offsets, indexes, snapshots, checkpoints, names.

    Exits 0 if it finds nothing worse than warnings, 1 otherwise. Changes nothing.
    """
    from kseg.cli.verify import verify as run

    return run(**given)
