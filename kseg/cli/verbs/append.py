"""The options of `kseg append`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    NEW_PATH,
    WholeNumber,
    batch_bytes_option,
    json_bytes_option,
    json_option,
    level_option,
    settings_options,
)
from kseg.cli.parsing import CODECS
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.argument("directory", metavar="DIR", type=NEW_PATH)
@click.option(
    "--codec",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@level_option
@batch_bytes_option("Largest batch before compression, unless one record is larger.")
@click.option(
    "--batch-records", type=WholeNumber(min=1), metavar="N", help="Most records of a batch."
)
@click.option(
    "--keep-timestamps", is_flag=True, help="Take each line's timestamp where it has one."
)
@json_bytes_option("How keys, values and header values are written in the lines.")
@click.option("--durable", is_flag=True, help="Flush each batch before the next one is appended.")
@settings_options
@json_option
def append(**given: Any) -> int:
    """Append the records on standard input to the partition DIR, made if it is absent.

    A record is a line of JSON as dump and read print it with --format jsonl. Only "value" is
    needed; null makes a tombstone; {"base64": "..."} stands for any bytes. "key", "headers" and, if
    asked for, "timestamp" are taken too; other fields are ignored. The log assigns offsets. Control
    records are left out, with a message. Prints the first and the last offset when all records are
    on the disk. The topic's settings are looked for as by 'kseg retain'; Kafka's defaults count for
    the rest.
    """
    from kseg.cli.append import append as run

    return run(**given)
