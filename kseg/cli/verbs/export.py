"""The options of `kseg export`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.options import (
    Parsed,
    completed,
    isolation_option,
    jobs_option,
    json_bytes_option,
    mapping_option,
    offset_and_time_options,
    on_corrupt_option,
    out_option,
    paths_argument,
    selection_options,
    typed_options,
)
from kseg.cli.parsing import EXTENSIONS, PARTITION_KEYS, parse_names
from kseg.cli.starting import Verb


def _parse_fields(text: str) -> tuple[str, ...]:
    from kseg.cli.typed import FIELD_NAMES  # they are those of the kernels

    return parse_names(text, "field", FIELD_NAMES)


def _parse_keys(text: str) -> tuple[str, ...]:
    return parse_names(text, "column", PARTITION_KEYS)


@click.command(cls=Verb)
@paths_argument
@out_option("A file or a directory.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(EXTENSIONS)),
    help="By OUT's extension if not given, else parquet.",
)
@click.option(
    "--per",
    type=click.Choice(["partition", "segment"]),
    default="partition",
    show_default=True,
    help="One file for each.",
)
@click.option(
    "--partition-by",
    "by",
    type=Parsed("day,topic,...", _parse_keys),
    default=(),
    shell_complete=completed("partition_keys"),
    help="Directories as Hive has them, such as OUT/day=2026-11-23/topic=orders: by day, topic, "
    "partition, which the files leave out then. Days are UTC.",
)
@typed_options
@click.option(
    "--keep-bytes",
    is_flag=True,
    help="Also the bytes of what does not decode, in key_bytes and value_bytes.",
)
@click.option(
    "--replace",
    "replace_files",
    is_flag=True,
    help="Replace files also where they have records that this export does not take.",
)
@click.option(
    "--fields",
    type=Parsed("NAME,...", _parse_fields),
    shell_complete=completed("fields"),
    help="Only these, in this order.",
)
@click.option(
    "--no-formulas",
    is_flag=True,
    help="In csv for a spreadsheet: ' in front of text that it would compute, as =1+1.",
)
@json_bytes_option("How bytes are written in jsonl and csv.")
@on_corrupt_option
@isolation_option
@selection_options
@offset_and_time_options
@mapping_option
@jobs_option
def export(**given: Any) -> int:
    """Write records as .parquet, .arrow (IPC file), .jsonl or .csv.

    OUT is a file if it has one of these extensions and there is one file to write; else it is a
    directory, made if it is missing: OUT/orders-0.parquet, or with --per segment
    OUT/orders-0/00000000000000000000.parquet, which has the records that a read of the log gives
    from that segment. A file gets its name, and replaces an older one, when it is complete.

    A file is not replaced if it may have records that this export does not take: an older offset,
    another time. Parquet and Arrow files say which they have; a .jsonl or .csv file does not, so
    that only an export without --offset and --time replaces it. --replace replaces any.

    A spreadsheet computes text that begins with = + - or @. --no-formulas puts an apostrophe in
    front of such text in a .csv file.

    Keys and values that do not decode are null; they are counted, and the exit code is 1.

    With --partition-by OUT is a directory of directories, and files have names such as
    part-orders-0.parquet; a day that comes again behind eight others has another file.
    """
    from kseg.cli.export import export as run

    return run(**given)
