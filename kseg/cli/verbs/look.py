"""The verbs that examine logs and change nothing, and the verbs about kseg itself."""

from __future__ import annotations

from functools import partial, wraps
from importlib import import_module
from typing import Any

import click

from kseg.cli.main import verb
from kseg.cli.options import (
    NEW_PATH,
    OFFSET,
    PATH,
    SETTING,
    TIME,
    Option,
    Parsed,
    WholeNumber,
    at_since_options,
    bytes_option,
    choice,
    codes_option,
    copies_argument,
    decode_options,
    directories_argument,
    flag,
    format_option,
    jobs_option,
    json_bytes_option,
    json_option,
    mapping_option,
    moment_options,
    now_option,
    parse_names,
    paths_argument,
    plain_option,
    query_options,
    selection_options,
    settings_options,
    tier_options,
    topics_option,
)
from kseg.constants import NEWEST_RELEASE

_METAVARS = {"directories": "DIR...", "paths": "PATH..."}


def codes_of(module: str, argument: str = "") -> Option:
    """Declare `--codes`, which lists `CODES` of a module in place of the verb's work.

    Args:
        module: `kseg.analysis.x`; a code has its severity, its meaning and perhaps more.
        argument: must be given unless the codes are listed.
    """

    def declare(function: Any) -> Any:
        @wraps(function)
        def list_or_run(*, codes: bool, **words: Any) -> Any:
            if not codes:
                if argument and not words[argument]:
                    raise click.UsageError(f"Missing argument '{_METAVARS[argument]}'.")
                return function(**words)
            from kseg.cli import output

            table = import_module(module).CODES
            output.write_codes(function.__name__, table, as_json=words["as_json"])
            return 0

        return codes_option(list_or_run)

    return declare


@verb(
    paths_argument(),
    selection_options,
    tier_options,
    flag("--segments", "per_segment", help_text="A line for each segment."),
    jobs_option,
    json_option,
)
def info() -> None:
    """Show partitions, segments, offsets, times, codecs, formats and sizes.

    Reads only headers and indexes; 'kseg verify' checks the contents. Times come from headers.
    Counts are those of the files: an offset in two segments counts twice.
    """


@verb(
    paths_argument(required=False),
    flag("--deep", help_text="Decode every record too."),
    flag(
        "--sequences",
        help_text="List gaps and doubles in the sequences of each idempotent producer, too.",
    ),
    flag(
        "--complete",
        help_text=(
            "Also report the time up to which the data directories are complete, or what they lack."
        ),
    ),
    codes_of("kseg.analysis.values", "paths"),
    jobs_option,
    selection_options,
    tier_options,
    mapping_option,
    now_option(),
    json_option,
    home="doctor",
)
def verify() -> None:
    """Check every byte: checksums, structure, offsets, indexes, snapshots, checkpoints, names.

    Exits 0 if it finds nothing worse than warnings, 1 otherwise. Changes nothing.

    With --complete, give all data directories of one broker, or of its backup. The metadata log
    names the partitions that belong there; checkpoints, leader epochs and the segments around a gap
    show which records are missing.
    """


@verb(
    click.argument("pattern", metavar="PATTERN"),
    paths_argument(),
    flag("-e", "--regex", help_text="PATTERN is a regular expression of RE2."),
    flag("--hex", "is_hex", help_text="PATTERN is bytes in hexadecimal."),
    click.option(
        "--in",
        "fields",
        type=Parsed(
            "key,value,headers",
            partial(parse_names, noun="field", allowed=("key", "value", "headers")),
        ),
        default="key,value,headers",
        show_default=True,
        help="The fields that are searched; headers by their names and values.",
    ),
    flag("-i", "--ignore-case", help_text="Ignore the case of letters."),
    flag("-x", "--whole", help_text="The whole field must match PATTERN."),
    flag("-v", "--invert", help_text="Print the records that do not match."),
    flag(
        "-c",
        "--count",
        "with_count",
        help_text="Print only the number of records in each partition.",
    ),
    flag("-l", "--list", "list_only", help_text="Print only the partitions with a match."),
    click.option(
        "-C",
        "--context",
        type=WholeNumber(min=0),
        default=0,
        metavar="N",
        help="Also print N records of the partition before and after each match.",
    ),
    format_option,
    bytes_option,
    query_options("grep"),
    decode_options,
    home="records",
)
def grep() -> None:
    r"""Print the records with PATTERN in their key, value or headers.

    PATTERN is text, searched for as UTF-8. With -e it is a regular expression for UTF-8 values:
    other bytes only match \C. Every batch is inflated, checked and searched; only batches that
    contain the text are decoded. An empty PATTERN is in every record.

    Exits 0 if a record matches, 1 if no record matches or the log is damaged.
    """


@verb(
    click.argument("directory", metavar="DIR", type=PATH),
    click.option("--offset", type=OFFSET, metavar="N", help="The offset to look for."),
    click.option(
        "--time", type=TIME, help="The time to look for: ISO 8601, ms, or such as yesterday, -1h."
    ),
    now_option(expose=False),
    selection_options,
    tier_options,
    json_option,
    home="info",
)
def lookup() -> None:
    """Show the place of the first record at or after an offset or a time.

    DIR is a partition directory, or a data directory in which --topic and --partition choose one.
    """


@verb(
    click.argument("keys", nargs=-1, required=True, metavar="KEY..."),
    click.option(
        "--partitions",
        type=WholeNumber(1),
        required=True,
        metavar="N",
        help="The number of partitions of the topic.",
    ),
    choice(
        "--partitioner",
        among=("murmur2", "crc32"),
        help_text=(
            "murmur2: Java, Streams, Connect, kafka-python, aiokafka, franz-go. crc32: librdkafka"
            " and its clients, by default."
        ),
    ),
    json_option,
    home="info",
)
def partition() -> None:
    """Name the partition that producers send a key to.

    KEY is the serialized key: text, hex:BYTES or base64:BYTES.
    """


@verb(
    paths_argument(required=False),
    click.option("--subject", metavar="GLOB", help="Only subjects that match."),
    click.option(
        "--id", "schema_id", metavar="ID", help="Print the schema of this id, or of this GUID."
    ),
    now_option(expose=False),
    click.option(
        "--at",
        type=TIME,
        help="The registry before this time: ISO 8601, ms, or such as yesterday, -1h.",
    ),
    codes_of("kseg.internal.registry", "paths"),
    json_option,
    home="internal",
)
def schemas() -> None:
    """List the schemas of a schema registry, from its topic in a data directory.

    PATH is a data directory with the topic _schemas, its partition, a file of a schema (.avsc,
    .proto or .json), or the URL of a registry, http:// or https://. Credentials come from
    KSEG_REGISTRY_USER_INFO (user:password), KSEG_REGISTRY_TOKEN or netrc. No other registry is
    contacted, and references in a schema are never opened. Deleted schemas are listed too: their
    ids still resolve. Exits 1 if the schemas have a fault.
    """


@verb(
    directories_argument(required=False, stores=True),
    click.option(
        "--group",
        metavar="GLOB",
        default="*",
        help="Only groups that match; with their members and commits.",
    ),
    moment_options,
    choice(
        "--lag-to",
        among=["high-watermark", "last-stable-offset"],
        help_text=(
            "Where lag ends. The high watermark is that of the checkpoint beside the log, else"
            " the log's end; with --at, it is the last record of that time or before."
        ),
    ),
    flag(
        "--readable",
        help_text=(
            "Count as lag only the records that a consumer of committed records gets: no markers,"
            " no aborted records, none that compaction or retention took. Reads the logs."
        ),
    ),
    click.option(
        "--config",
        "settings",
        type=SETTING,
        multiple=True,
        help="offsets.retention.minutes=N of the broker, by which commits expire; else 10080.",
    ),
    click.option(
        "--reset-commands",
        metavar="FILE",
        type=NEW_PATH,
        help="Write the committed offsets to FILE as CSV, and print the commands of Kafka's tools"
        " that set groups to them.",
    ),
    codes_of("kseg.analysis.internal_logs", "directories"),
    json_option,
    home="internal",
)
def groups() -> None:
    """List consumer, share and streams groups: members, committed offsets, lag, now or in the past.

    DIR are the data directories of one or several brokers. The topics __consumer_offsets and
    __share_group_state in them are read; no broker is contacted. For a running broker the answer is
    the state of its files. A commit in a transaction counts from its COMMIT marker. Facts without a
    record, such as the steps of a rebalance, are left out. Exits 1 if a log is damaged.
    """


@verb(
    directories_argument(required=False, stores=True),
    topics_option(
        "Only topics that match, with their partitions and configurations; may be repeated."
    ),
    click.option(
        "--diff",
        "compared",
        nargs=2,
        metavar="A B",
        help=(
            "Show the differences between two moments of DIR, or without DIR "
            "between two directories."
        ),
    ),
    moment_options,
    click.option(
        "--at-offset", type=OFFSET, metavar="N", help="The state after the record of this offset."
    ),
    flag(
        "--show-secrets",
        help_text="Show the values of passwords, and of configurations with unknown names.",
    ),
    codes_of("kseg.analysis.metadata"),
    json_option,
    home="internal",
)
def metadata() -> None:
    """Show a cluster by the log of KRaft: __cluster_metadata-0 in the directories DIR...

    Shows brokers, topics, partitions with replicas and leaders, configurations with the level that
    sets each, features, quotas, ACLs, SCRAM users, delegation tokens and voters; each with the
    offset and the time of its last change. With the directories of several voters it shows which
    records a majority has. Values of configurations are hidden if they are passwords or have
    unknown names.

    Exits 1 if the log is damaged, or if --diff finds a difference. Changes nothing.
    """


@verb(
    directories_argument(required=False, stores=True),
    selection_options,
    now_option(),
    at_since_options,
    click.option(
        "--max-timeout",
        "max_timeout_minutes",
        type=WholeNumber(min=0),
        default=15,
        show_default=True,
        metavar="MINUTES",
        help="The longest that a transaction may take, transaction.max.timeout.ms of the broker.",
    ),
    flag("--all", "show_all", help_text="Also list ended transactions."),
    codes_of("kseg.analysis.internal_logs", "directories"),
    json_option,
    home="internal",
)
def transactions() -> None:
    """Find open and hanging transactions, their effects, and the command that ends each.

    DIR are the data directories of one or several brokers. Transactions of all partitions are found
    by headers, and joined with __transaction_state; no broker is contacted. A transaction is
    hanging by the rules of 'kafka-transactions.sh find-hanging'. Checksums are not
    compared; use 'kseg verify' for that.

    Exits 1 if a transaction is hanging, or a log is damaged. Changes nothing.
    """


@verb(
    paths_argument(),
    click.option(
        "--top",
        type=WholeNumber(min=0),
        default=10,
        show_default=True,
        metavar="N",
        help="Name the N keys with most bytes in each partition.",
    ),
    flag(
        "--headers",
        help_text="Read only headers: fast, but without sizes of records and without keys.",
    ),
    json_bytes_option("The form of keys in JSON."),
    jobs_option,
    selection_options,
    plain_option,
    json_option,
    home="info",
)
def stats() -> None:
    """Count what fills the disk: batches, records, sizes, times, codecs and top keys.

    The size of a record is that of its key and value before compression. Quantiles are at most a
    sixteenth too large, numbers of different keys are within about 2 %, and the bytes of a top key
    are exact unless an error is shown. Counts are those of the files: an offset in two segments
    counts twice.
    """


@verb(
    directories_argument(required=False),
    click.option(
        "--for",
        "release",
        metavar="RELEASE",
        help=(
            "The release of Kafka to start; by default that of the cluster's metadata version, "
            f"else {NEWEST_RELEASE}. Unknown facts about other releases are named."
        ),
    ),
    codes_of("kseg.analysis.doctor"),
    jobs_option,
    settings_options,
    json_option,
)
def doctor() -> None:
    """Predict whether a broker starts on its data directories DIR..., and what it would change.

    Give all data directories of the broker, or its server.properties, which names them. The verb
    loads every partition as Kafka does, and changes nothing. It shows the offsets and records that
    the start would cut, the exception that would stop it, and how much data it would read again,
    with an estimate of the time. An I/O error takes one directory offline; any other error stops
    the broker. Each finding names its repair.

    Exits 1 if the broker would not start with all directories, or would lose records.
    """


@verb(
    directories_argument(required=True),
    click.option(
        "--what-if",
        "supposed",
        type=SETTING,
        multiple=True,
        help=(
            "Show which bytes would go, and when, with this setting; or the sizes "
            "with compression.type=zstd (or zstd,lz4), also with "
            "compression.zstd.level=N. Repeatable."
        ),
    ),
    flag("--segments", help_text="A line for each segment and file."),
    tier_options,
    jobs_option,
    settings_options,
    plain_option,
    json_option,
)
def explain() -> None:
    """Explain why each byte of the data directories DIR... is on the disk, and until when.

    Instead of the directories, you may give the broker's server.properties: log.dirs in it names
    them, and its settings count as --broker-config. Each file has one cause that keeps it, found by
    the settings of the broker ('kseg retain --help' has their order): it is younger than retention,
    with the date at which it goes; a record in it has a time in the future; it is compacted, or why
    it is not; it is a leftover, a backup of kseg, or a deleted file that a process still has open.
    Totals by cause come first. Where most segments of a partition are small, it says why.

    Exits 1 if something cannot be read. Changes nothing; 'kseg retain' and 'kseg compact' show and
    delete what is due.
    """


@verb(
    directories_argument(required=True),
    click.option(
        "-o", "--output", "out", metavar="FILE", type=NEW_PATH, help="The page, a new file."
    ),
    click.option(
        "--keys/--no-keys",
        default=True,
        help="Whether the page names the keys with most bytes, which may be personal data.",
    ),
    jobs_option,
    settings_options,
    json_option,
    home="doctor",
)
def report() -> None:
    """Make one HTML page about the data directories DIR... of a broker.

    The page shows what fills the disk and why, growth and rates, sizes, codecs, keys, kinds of
    values, the next deletions by retention, and the findings of 'kseg verify' and 'kseg doctor'
    with the repair of each. It opens without a network. --json writes the numbers of 'stats',
    'explain', 'verify' and 'doctor' instead. Nothing is changed.

    Exits 1 if verify or doctor finds an error.
    """


@verb(
    copies_argument,
    flag(
        "--records",
        help_text=(
            "Compare the records of differing batches: for copies that were "
            "compacted separately or use different codecs."
        ),
    ),
    flag("--all", "show_all", help_text="Also list the partitions that are the same."),
    jobs_option,
    selection_options,
    mapping_option,
    json_option,
    home="copies",
)
def diff() -> None:
    """Compare copies B... with A: replicas, a backup, a restored directory.

    A and B are partition directories, copies of one partition under any names; or data directories,
    whose partitions are matched by topic, number and topic id. Each copy is the same as A, a prefix
    of it, diverged (at an offset, in an epoch), has holes, or has another start. Records in damaged
    bytes are unknown. Segment boundaries and index entries do not count as differences.

    The data directories of one broker are one copy, with commas between them as in log.dirs:
    /disk1/data,/disk2/data.

    Exits 0 if all copies are the same, 1 if anything differs or is unknown. Changes nothing.
    """


@verb(
    flag("--no-spark", help_text="Skip the Spark job, which needs Java and pyspark."),
    click.option(
        "-o",
        "--output",
        "out",
        metavar="DIR",
        type=NEW_PATH,
        help="Skip the tour: write the sample data directory to DIR, a new directory.",
    ),
    flag("--damaged", help_text="With -o: write it as a crash and a bad sector leave it."),
)
def demo() -> None:
    """Take the tour, on the small data directory of a Kafka broker that comes with kseg.

    Works on a copy in a temporary directory. Exits 1 if results differ between files, Arrow and
    Spark, or if a broken log is not repaired.
    """


_HELP = """Print the completion script for SHELL, which knows topics, partitions and fields, too.

\b
bash: kseg completion bash > ~/.local/share/bash-completion/completions/kseg
zsh:  kseg completion zsh > "${fpath[1]}/_kseg"
fish: kseg completion fish > ~/.config/fish/completions/kseg.fish

\b
For this shell alone: eval "$(kseg completion bash)"
"""


@click.command(help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(**words: Any) -> None:
    """Print the completion script for `shell`."""
    from kseg.cli.completion import completion as run

    run(**words)
