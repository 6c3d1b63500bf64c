"""The verbs that move records out of logs and into logs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kseg.cli.main import Verb, verb
from kseg.cli.options import (
    CODECS,
    LOCAL_PATH,
    NEW_PATH,
    OFFSET,
    PATH,
    TIME,
    Parsed,
    WholeNumber,
    apply_option,
    asked,
    batch_bytes_option,
    broker_options,
    bytes_option,
    choice,
    completed,
    decode_options,
    flag,
    format_option,
    jobs_option,
    json_bytes_option,
    json_option,
    level_option,
    now_option,
    on_corrupt_option,
    out_option,
    parse_names,
    paths_argument,
    query_options,
    segments_backup_option,
    selection_options,
    settings_options,
    tier_options,
)
from kseg.constants import EXTENSIONS, INT32_MAX, PARTITION_KEYS
from kseg.internal.releases import DUMP_RELEASE, DUMP_RELEASES

_F = TypeVar("_F", bound=Callable[..., Any])
_COUNT: Final = WholeNumber(min=0, max=INT32_MAX)
DECODER_NAMES: Final = "string, long or integer, or the name of Kafka's class for it"
#: The decoders of internal topics in the order in which they count.
TOPIC_DECODERS: Final = {
    "offsets-decoder": "__consumer_offsets",
    "transaction-log-decoder": "__transaction_state",
    "cluster-metadata-decoder": "__cluster_metadata",
    "remote-log-metadata-decoder": "__remote_log_metadata",
    "share-group-state-decoder": "__share_group_state",
}
#: Parameters of the verb that do not go with `--kafka`.
_OWN: Final = (
    "form",
    "batches",
    "encoding",
    "topics",
    "partitions",
    "offset",
    "time",
    "key",
    "limit",
    "last",
    "mapping",
    "decode_as",
    "raw",
)
_FLAGS: Final = {
    "kafka": "Print the lines of Kafka's dump tool (kafka-dump-log), byte for byte.",
    "deep-iteration": "With --kafka: print records, not only batches.",
    "print-data-log": "With --kafka: print keys and payloads too.",
    "skip-record-metadata": "With --kafka: of records print only key and payload.",
    "verify-index-only": "With --kafka: compare indexes with their logs, and print no entries.",
    "index-sanity-check": "With --kafka: of each index say only whether it passes.",
    **{
        name: f"With --kafka: print records of {topic} decoded."
        for name, topic in TOPIC_DECODERS.items()
    },
}


def kafka_options(function: _F) -> _F:
    """`--kafka`, and Kafka's own options, which go with it only."""
    for option in reversed(_options_with_value()):
        function = option(function)
    for name, text in reversed(_FLAGS.items()):
        function = flag(f"--{name}", help_text=text)(function)
    return function


def _options_with_value() -> list[Callable[[_F], _F]]:
    """The options of Kafka's tool that take a value."""
    return [
        click.option(
            "--kafka-version",
            type=click.Choice(DUMP_RELEASES),
            default=None,
            help=f"With --kafka: the lines of this release's tool; {DUMP_RELEASE} by default.",
        ),
        click.option(
            "--files", metavar="A,B...", help="With --kafka: the PATHs, as Kafka's tool has them."
        ),
        click.option(
            "--max-bytes", type=_COUNT, metavar="N", help="With --kafka: bytes read of each log."
        ),
        click.option(
            "--max-message-size",
            type=_COUNT,
            metavar="N",
            help="With --kafka: an option of Kafka's tool; batches of any size are compared.",
        ),
        click.option("--key-decoder-class", metavar="NAME", help=f"With --kafka: {DECODER_NAMES}."),
        click.option("--value-decoder-class", metavar="NAME", help="With --kafka: likewise."),
    ]


def refuse_kafka_options(words: dict[str, Any]) -> None:
    """Refuse Kafka's options without `--kafka`.

    Raises:
        UsageError: names the first one.
    """
    for name, value in words.items():
        if value not in (None, False):
            raise click.UsageError(f"--{name.replace('_', '-')} needs --kafka.")


def refuse_own_options(context: click.Context) -> None:
    """Refuse the options of `kseg dump` that `--kafka` does not have.

    Raises:
        UsageError: names the first one.
    """
    for name in _OWN:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(
                parameter for parameter in context.command.params if parameter.name == name
            )
            raise click.UsageError(f"{option.opts[0]} cannot be used with --kafka.")


@click.command(cls=Verb)
@paths_argument(required=False)
@format_option
@click.option(
    "--batches/--records", "batches", default=False, help="One row per batch, or per record."
)
@bytes_option
@query_options("dump")
@decode_options
@kafka_options
@click.pass_context
def dump(context: click.Context, /, **words: Any) -> int:
    """Print the batches and records of files, in file order.

    A PATH may be a log, an index, a snapshot, a checkpoint, a partition directory, a data
    directory, or - for batches on standard input. Continues past a batch with a wrong checksum (its
    records have valid=false), reports each finding on standard error, and then exits 1. Keys and
    values of Kafka's internal topics are decoded to objects. With --kafka it prints the output of
    Kafka's own tool, and takes that tool's options.
    """
    home = "kseg.cli.kafka_dump.run" if words["kafka"] else "kseg.cli.dump"
    code: int = import_module(home).dump(context, **words)
    return code


@verb(
    paths_argument(),
    format_option,
    bytes_option,
    query_options("read"),
    decode_options,
    flag("--follow", help_text="Continue with new records until interrupted, or until --limit."),
    choice(
        "--recreated",
        among=["raise", "start"],
        help_text=(
            "Where the topic is deleted and made again, --follow ends; or it waits for the topic, "
            "and goes on at its start."
        ),
    ),
    home="records",
)
def read() -> None:
    """Print records from an offset or a time on, as a consumer would get them.

    A PATH is a partition directory, a data directory or a log file. Shows no transaction markers
    and no records before the log's start offset. Stops at damage with exit code 1, or steps over it
    with --on-corrupt skip. Keys and values of Kafka's internal topics are decoded to objects; those
    of other topics with --decode-key and --decode-value.
    """


@verb(
    paths_argument(),
    out_option("A file or a directory, or a URL such as s3://bucket/dir.", stores=True),
    click.option(
        "--format",
        "form",
        type=click.Choice(list(EXTENSIONS)),
        help="The default is by OUT's extension, else parquet.",
    ),
    choice("--per", among=["partition", "segment", "topic"], help_text="One file for each."),
    click.option(
        "--partition-by",
        "by",
        type=Parsed("day,topic,...", partial(parse_names, noun="column", allowed=PARTITION_KEYS)),
        default=(),
        shell_complete=completed("partition_keys"),
        help="Directories as Hive has them, such as OUT/day=2026-11-23/topic=orders: by day, "
        "topic, partition, which the files leave out then. Days are UTC.",
    ),
    flag(
        "--keep-bytes",
        help_text=(
            "Also write the bytes of values that do not decode, in key_bytes and value_bytes."
        ),
    ),
    flag(
        "--replace",
        "replace_files",
        help_text="Replace files even if they have records that this export leaves out.",
    ),
    flag(
        "--no-formulas",
        help_text=(
            "For csv in a spreadsheet: put ' before text that it would compute, such as =1+1."
        ),
    ),
    json_bytes_option("The form of bytes in jsonl and csv."),
    query_options("export"),
)
def export() -> None:
    """Write records as .parquet, .arrow (IPC file), .jsonl or .csv.

    OUT is a file if it has one of these extensions and there is one file to write; else it is a
    directory, which is made if it is missing: OUT/orders-0.parquet, or with --per segment
    OUT/orders-0/00000000000000000000.parquet, with the records that a reader of the log gets from
    that segment. With --per topic it is OUT/orders.parquet, with the records of its partitions in
    order. A file gets its name, and replaces an older one, when it is complete.

    A file is not replaced if it may have records that this export leaves out: an older offset,
    another time. Parquet and Arrow files know their records; .jsonl and .csv files do not, so only
    an export without --offset, --time, --key and --limit replaces them. --replace replaces any.

    A spreadsheet computes text that begins with = + - or @. --no-formulas puts an apostrophe before
    such text in a .csv file.

    Keys and values that do not decode are null; they are counted, and the exit code is 1.

    With --partition-by OUT is a directory of directories, and files have names such as
    part-orders-0.parquet; a day that returns after eight other days gets another file.
    """


@verb(
    paths_argument(stores=False),
    out_option("A file or directory; without it, closed segments change in place.", required=False),
    click.option(
        "--magic",
        type=WholeNumber(0, 2),
        metavar="N",
        help="The format: 2 since Kafka 0.11, 1 since 0.10, 0 since 0.8; 2 if not given.",
    ),
    click.option(
        "--codec",
        type=click.Choice(CODECS),
        help="The codec of the batches; by default each keeps its own.",
    ),
    level_option,
    flag("--drop", help_text="Leave out data that the format cannot hold, instead of refusing."),
    batch_bytes_option("Gather plain messages of old formats into batches of about this size."),
    click.option(
        "--first-offset",
        type=OFFSET,
        metavar="N",
        help="Number messages of Kafka 0.7 from here on; by default by OUT's name, else 0.",
    ),
    on_corrupt_option,
    flag("--force", help_text="Replace an OUT that exists."),
    apply_option,
    segments_backup_option,
    selection_options,
    settings_options,
    jobs_option,
    json_option,
)
def convert() -> None:
    """Write the records of PATH in another format or codec to OUT, at the same offsets.

    PATH is a .log file, a .kafka file of Kafka 0.7, or - for batches on standard input. If PATH is
    a partition or data directory, each segment becomes OUT/orders-0/00000000000000000000.log.
    Batches that need no change are copied byte for byte. If the format cannot hold some data, the
    verb fails, or drops the data with a message (--drop). OUT gets its name when it is complete; -
    is standard output.

    Without -o, the closed segments of the partitions and data directories PATH... get another codec
    in place. The verb prints the plan; --apply carries it out while no broker runs. Batches of
    magic 2 change one by one, and keep offsets, times, producers, transactions and delete horizons.
    A batch that would become larger than max.message.bytes stays as it is. So do older formats,
    damaged segments and topics with remote storage. If the run is killed, a segment has its old
    files or the new ones. 'kseg explain PATH --what-if compression.type=zstd' estimates what a
    codec gives.
    """


@verb(
    click.argument("directory", metavar="DIR", type=NEW_PATH),
    click.option(
        "--codec",
        type=click.Choice(CODECS),
        default="none",
        show_default=True,
        help="The codec of the batches.",
    ),
    level_option,
    batch_bytes_option("Largest batch before compression, unless one record is larger."),
    click.option(
        "--batch-records", type=WholeNumber(min=1), metavar="N", help="Most records of a batch."
    ),
    flag("--keep-timestamps", help_text="Use each line's timestamp, if it has one."),
    json_bytes_option("The form of keys, values and header values in the lines."),
    flag("--durable", help_text="Flush each batch before the next one is appended."),
    settings_options,
    json_option,
)
def append() -> None:
    """Append the records on standard input to the partition DIR, and create it if it is absent.

    A record is a line of JSON as dump and read print it with --format jsonl. Only "value" is
    required: null makes a tombstone, {"base64": "..."} stands for any bytes. The verb also reads
    "key", "headers" and, with --keep-timestamps, "timestamp"; it ignores other fields. The log
    assigns offsets. Control records are left out, with a message. When all records are on the disk,
    the verb prints the first and the last offset. Topic settings come from the sources that 'kseg
    retain --help' lists, otherwise from Kafka's defaults.
    """


def _parse_renaming(text: str) -> tuple[str, str]:
    name, _, target = text.partition("=")
    return name, target or name


@verb(
    click.argument("sources", nargs=-1, required=True, metavar="SRC...", type=PATH),
    click.option(
        "--into",
        multiple=True,
        required=True,
        metavar="DATA_DIR",
        type=LOCAL_PATH,
        help="A data directory of the broker; repeat it for each, of every broker with replicas.",
    ),
    click.option(
        "--topic",
        "topics",
        type=Parsed("OLD[=NEW]", _parse_renaming),
        multiple=True,
        help="Only this topic, under another name in the target if NEW is given. Repeatable.",
    ),
    asked("partitions"),
    click.option(
        "--at",
        type=TIME,
        help="The logs as they were at this time: ISO 8601, ms, or such as yesterday, -1h.",
    ),
    choice(
        "--cut",
        among=["first", "last"],
        help_text=(
            "With --at, end a log before the first batch with a later time, or after the last "
            "batch that begins no later."
        ),
    ),
    choice(
        "--undecided",
        among=["stop", "abort", "commit"],
        help_text="How to end open transactions whose outcome is unknown.",
    ),
    click.option(
        "--groups-csv",
        metavar="FILE",
        type=NEW_PATH,
        help="Write the committed offsets of groups in the sources to FILE, for the adopted topics "
        "and offsets; the plan prints the commands that read it.",
    ),
    flag(
        "--let-retention-delete",
        help_text="Also adopt records that the first passes of retention and cleaner delete.",
    ),
    tier_options,
    broker_options,
    now_option(),
    apply_option,
    json_option,
    home="copies",
)
def adopt() -> None:
    """Bring logs from elsewhere into the empty topics of a stopped broker.

    SRC is a partition directory, a data directory, or a URL of either. A directory that a broker
    has put aside (-delete, -stray) counts only if you name it. First create the topics in the
    target, with the same numbers of partitions, and stop the broker in good order. Several copies
    of a partition are joined as by 'kseg merge'; the verb refuses a partition if no copy has some
    of its offsets.

    Records keep their offsets, times and bytes. Batches get the leader epoch of the target; the
    state of producers is not copied. A marker ends each transaction that is open at the end, in all
    partitions alike: as __transaction_state of the sources says, else as a marker in another
    partition says, else by --undecided. The plan refuses logs of which a first pass of retention or
    of the cleaner would delete records. It prints the commands that keep these records, and those
    that restore the settings.

    Nothing changes without --apply. If a run is interrupted, each partition is empty or whole, and
    the same command finishes it.
    """
