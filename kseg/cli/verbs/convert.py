"""The options of `kseg convert`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    OFFSET,
    PATH,
    WholeNumber,
    batch_bytes_option,
    jobs_option,
    json_option,
    level_option,
    on_corrupt_option,
    out_option,
)
from kseg.cli.parsing import CODECS
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.argument("path", metavar="PATH", type=PATH)
@out_option("A file or directory.")
@click.option(
    "--magic",
    type=WholeNumber(0, 2),
    metavar="N",
    default=2,
    show_default=True,
    help="The format: 2 since Kafka 0.11, 1 since 0.10, 0 since 0.8.",
)
@click.option("--codec", type=click.Choice(CODECS), help="Each batch keeps its own if not given.")
@level_option
@click.option(
    "--drop", is_flag=True, help="Leave out what the format cannot hold, instead of refusing."
)
@batch_bytes_option("Gather plain messages of old formats into batches of about this size.")
@click.option(
    "--first-offset",
    type=OFFSET,
    metavar="N",
    help="Number messages of Kafka 0.7 from here on; by OUT's name if not given, else 0.",
)
@on_corrupt_option
@click.option("--force", is_flag=True, help="Replace an OUT that exists.")
@jobs_option
@json_option
def convert(**given: Any) -> int:
    """Write the records of PATH in another format or codec to OUT, at the same offsets.

    PATH is a .log, a .kafka of Kafka 0.7, or - for batches on standard input; or a partition or
    data directory, of which each segment becomes OUT/orders-0/00000000000000000000.log. Batches
    that need no change are copied byte for byte. If the format cannot hold something, the verb
    fails, or drops it with a message (--drop). OUT gets its name when it is complete; - is standard
    output.
    """
    from kseg.cli.convert import convert as run

    return run(**given)
