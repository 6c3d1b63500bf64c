"""The options of `kseg append`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kseg.cli.options import broker_options, config_options, json_option
from kseg.cli.parsing import CODECS
from kseg.constants import BATCH_BYTES


@click.command()
@click.argument("path", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--codec",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option("--level", type=int, metavar="N", help="The codec's level, if not Kafka's default.")
@click.option(
    "--batch-bytes",
    type=click.IntRange(min=1),
    default=BATCH_BYTES,
    show_default=True,
    metavar="N",
    help="Largest batch before compression, unless one record is larger.",
)
@click.option(
    "--batch-records", type=click.IntRange(min=1), metavar="N", help="Most records of a batch."
)
@click.option(
    "--keep-timestamps", is_flag=True, help="Take each line's timestamp where it has one."
)
@click.option(
    "--bytes",
    "encoding",
    type=click.Choice(["base64", "utf8", "hex"]),
    default="base64",
    show_default=True,
    help="How keys, values and header values are written in the lines.",
)
@click.option("--durable", is_flag=True, help="Flush each batch before the next one is appended.")
@config_options
@broker_options
@json_option
def append(**given: Any) -> int:
    """Append the records on standard input to the partition DIR, made if it is absent.

    A record is a line of JSON as dump and read print it with --format jsonl. Only "value" is
    needed; null makes a tombstone; {"base64": "..."} stands for any bytes. The log assigns offsets.
    Control records are left out, with a message. Prints the first and the last offset when all
    records are on the disk. The topic's settings are looked for as by 'kseg retain'; Kafka's
    defaults count for the rest.
    """
    from kseg.cli.append import append as run

    return run(**given)
