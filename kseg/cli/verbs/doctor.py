"""The options of `kseg doctor`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    directories_argument,
    jobs_option,
    json_option,
    release_option,
    settings_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@directories_argument(required=False)
@release_option
@click.option("--codes", is_flag=True, help="List every code of a finding with its meaning.")
@jobs_option
@settings_options
@json_option
def doctor(**given: Any) -> int:
    """Say whether a broker starts on its data directories DIR..., and what it does to them.

    Give all data directories of the broker, or its server.properties, which names them. Loads every
    partition as Kafka does, without changing anything: which offsets would be cut and how many
    records they hold, what fails and with which exception, how much is read again and how long that
    takes about. An error of input and output takes one directory offline, any other stops the
    broker. Each finding names what mends it.

    Exits 1 if the broker would not start with all directories, or would lose records.
    """
    from kseg.cli.doctor import doctor as run

    return run(**given)
