"""The options of `kseg dump`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.kafka_dump.options import kafka_options
from kseg.cli.options import (
    PATH,
    bytes_option,
    decode_options,
    format_option,
    jobs_option,
    mapping_option,
    range_options,
    selection_options,
)
from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.argument("paths", nargs=-1, metavar="PATH...", type=PATH)
@format_option
@click.option(
    "--batches/--records", "batches", default=False, help="One row per batch, or per record."
)
@bytes_option
@selection_options
@range_options
@mapping_option
@decode_options
@jobs_option
@kafka_options
@click.pass_context
def dump(context: click.Context, /, **given: Any) -> int:
    """Print batches and records as they lie in the files, in file order.

    A PATH may be a log, an index, a snapshot, a checkpoint, a partition directory, a data
    directory, or - for batches on standard input. Goes on past a batch whose checksum fails (its
    records say valid=false), says each finding on standard error, and then exits 1. Records of
    Kafka's internal topics are decoded: key and value are objects. With --kafka it prints what
    Kafka's own tool prints, and takes that tool's options.
    """
    if given["kafka"]:
        from kseg.cli.kafka_dump.run import run_kafka

        return run_kafka(context, **given)
    from kseg.cli.dump import dump as run

    return run(context, **given)
