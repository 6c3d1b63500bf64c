"""The verbs that repair closed logs, and those that delete records from them."""

from __future__ import annotations

import click

from kseg.cli.main import verb
from kseg.cli.options import (
    LOCAL_PATH,
    OFFSET,
    TIME,
    Option,
    Parsed,
    WholeNumber,
    apply_option,
    change_options,
    directories_argument,
    flag,
    high_watermark_option,
    jobs_option,
    json_option,
    out_option,
    output_option,
    segments_backup_option,
    selection_options,
    settings_options,
    tier_options,
)
from kseg.constants import COMPACTION_MAP_BYTES, COMPACTION_RULES
from kseg.records.query import parse_key, parse_offset_range


def _rules_option(text: str) -> Option:
    """`--rules`, with the release whose rules count."""
    return click.option(
        "--rules",
        type=click.Choice(COMPACTION_RULES),
        default=COMPACTION_RULES[-1],
        show_default=True,
        help=text,
    )


@verb(
    directories_argument(required=True),
    flag("--as-broker", help_text="Do exactly what Kafka does, and report no more."),
    click.option(
        "--clean/--unclean",
        default=None,
        help="Whether the log was closed in good order; by default its mark decides.",
    ),
    click.option(
        "--recovery-point",
        type=OFFSET,
        metavar="N",
        help="Records below N were flushed; by default the checkpoint decides.",
    ),
    click.option(
        "--log-start-offset",
        type=OFFSET,
        metavar="N",
        help="The first offset to read; by default the checkpoint decides.",
    ),
    selection_options,
    tier_options,
    change_options,
    settings_options,
    jobs_option,
    json_option,
    home="closed",
)
def recover() -> None:
    """Show what a start after a crash would change in DIR...: cuts, rebuilt and removed files.

    Each DIR is a partition directory, a data directory with all its partitions, or a broker's
    server.properties, for the directories in its log.dirs. Name all directories of a broker. The
    verb also checks the end of the log and of its indexes after a clean shutdown. Changes nothing
    without --apply. 'kseg retain --help' says where settings such as index.interval.bytes come
    from.

    After --apply, a broker starts without reading its logs again: once all partitions of a data
    directory are in order, it gets the mark of a clean stop, without the broker's epoch. The verb
    names a partition that cannot be recovered, and continues with the others. After an interruption
    the next run continues where the last one stopped. The log of KRaft stays as it is.
    """


@verb(
    click.argument("directory", metavar="DIR", type=LOCAL_PATH),
    click.option(
        "--only",
        "kinds",
        type=click.Choice(["index", "timeindex", "txnindex", "snapshot"]),
        multiple=True,
        help="Only files of this kind; may be repeated.",
    ),
    flag(
        "--exact",
        help_text=("Also replace correct indexes whose bytes differ from those that Kafka writes."),
    ),
    selection_options,
    change_options,
    settings_options,
    jobs_option,
    json_option,
    home="closed",
)
def reindex() -> None:
    """Show the indexes and snapshots in DIR that do not match the log, and rebuild them.

    DIR is a partition directory, or a data directory with all its partitions. The log itself never
    changes. If it is damaged, the indexes stay as they are: use 'kseg recover'. Changes nothing
    without --apply. New entries lie index.interval.bytes apart; 'kseg retain --help' says where
    that setting comes from.
    """


@verb(
    directories_argument(required=True),
    click.option(
        "--to",
        "offset",
        type=OFFSET,
        metavar="OFFSET",
        help="The new end of the log: this offset and all later ones are removed.",
    ),
    click.option(
        "--to-time",
        "time_ms",
        type=TIME,
        help="Cut each partition to its state then: it ends before the first later batch.",
    ),
    selection_options,
    tier_options,
    change_options,
    settings_options,
    json_option,
    home="closed",
)
def truncate() -> None:
    """Cut the log in DIR back to an offset, or many logs back to a time.

    DIR is a partition directory or a data directory. In a data directory, --topic and --partition
    choose one partition for --to, one or several for --to-time. The verb removes whole batches, so
    records before OFFSET in the same batch go, too. Cuts nothing without --apply. 'kseg retain
    --help' says where the topic's settings come from.
    """


@verb(
    directories_argument(required=True),
    out_option("The new data directory; OUT.kseg-salvage beside it has the report."),
    flag(
        "--abort-open",
        help_text="End each transaction whose marker may be lost with a marker that aborts it.",
    ),
    jobs_option,
    selection_options,
    tier_options,
    json_option,
)
def salvage() -> None:
    """Copy the provable part of damaged logs into a new data directory.

    Recovery cuts a log at its first bad byte. Salvage also keeps each batch after it whose
    checksum is right, whose offsets and leader epoch fit, and which is proved to be a batch of the
    log rather than data of a record. Records keep their offsets and their bytes. DIR is a partition
    directory or a data directory, and is not changed. OUT is new, or empty; it appears once it is
    complete. A broker adopts it.

    The verb lists lost records by offset. OUT.kseg-salvage holds report.json and the bytes left out
    (quarantine/; kseg dump reads quarantine/TOPIC-N/readable/*.log). The last lines say how to put
    the result back.

    The log of KRaft, __cluster_metadata-0, is salvaged only if DIR names it, up to its first gap.

    Exits 0 if nothing was lost, 1 if anything was.
    """


@verb(
    click.argument("copies", nargs=-1, required=True, metavar="A B...", type=LOCAL_PATH),
    out_option(
        "The data directory to make, new or empty; OUT.kseg-salvage beside it has the report."
    ),
    click.option(
        "--prefer",
        metavar="DIR",
        type=LOCAL_PATH,
        help="One of the copies: its batches win if batches of one leader epoch differ.",
    ),
    jobs_option,
    selection_options,
    tier_options,
    json_option,
    home="copies",
)
def merge() -> None:
    """Make one whole copy from damaged copies: replicas, backups. The copies are not changed.

    A and B are copies of one partition directory, or data directories. In data directories,
    partitions are matched by topic, number and topic id. Only provable batches of a copy count. At
    one offset the batch of the higher leader epoch wins. Where a copy diverges from the last
    leader, its later batches are left out, as Kafka cuts a follower. Different batches of one
    leader epoch are a conflict: the verb shows both and writes nothing, unless --prefer decides.

    The data directories of one broker are one copy, with commas between them as in log.dirs:
    /disk1/data,/disk2/data.

    Exits 0 if OUT is whole, and copies differ from it only by damage. Exits 1 if offsets are
    missing, copies contradict each other, or a copy cannot be read, even if OUT was written.
    """


@verb(
    directories_argument(required=True),
    selection_options,
    change_options,
    settings_options,
    tier_options,
    high_watermark_option(
        "This is the only copy: segments above a broker's high watermark may be deleted, too."
    ),
    json_option,
    home="cleanup",
)
def retain() -> None:
    """Show which segments of DIR... are too old, too many, or before the log's start.

    Each DIR is a partition directory, a data directory with all its partitions, or a broker's
    server.properties, for the directories in its log.dirs. The settings retention.ms,
    retention.bytes and cleanup.policy decide. Each comes from the first of these that has it:
    --config TOPIC:NAME=VALUE; the topic's own configuration in the metadata log
    (__cluster_metadata-0); the broker's dynamic configuration, then the cluster's; --broker-config;
    --config NAME=VALUE.

    Kafka's defaults count only with --broker-config, and only if the metadata log is whole and has
    the topic's id; for internal topics they never count. A topic without a known limit stays as it
    is. In a broker's data directory (one with meta.properties), a topic without a known
    cleanup.policy stays, too; elsewhere the policy is delete. A limit for one topic (--config
    TOPIC:retention.ms=MS), or for a DIR that is a single partition outside of a broker's directory,
    implies the policy delete. Records at or above the high watermark in a broker's
    replication-offset-checkpoint stay.

    If a topic was removed, or created again with another id, its directories stay as they are. So
    do topics with settings that kseg does not understand. Directories of ZooKeeper's era have no
    metadata log: there only --config decides.

    For a topic with remote.storage.enable=true, local.retention.ms and local.retention.bytes decide
    on local segments that the tier has. --tier, or __remote_log_metadata beside the partition,
    shows which segments these are; without either, the topic stays as it is.

    Kafka's internal topics, and those in cleaner-offset-checkpoint, keep the policy that Kafka gave
    them; only their own configuration and --config TOPIC:NAME=VALUE change that. The log of KRaft
    always stays. Deletes nothing without --apply.
    """


@verb(
    directories_argument(required=True),
    selection_options,
    output_option,
    segments_backup_option,
    apply_option,
    settings_options,
    flag("--all", "from_start", help_text="Begin at the log's start, not at the checkpoint."),
    flag("--force", help_text="Also compact young records, and logs that are not dirty enough."),
    _rules_option(
        "3.9 leaves magic 0 and 1 as they are; since 4.0 they become magic 2. Since 4.4, an "
        "emptied batch stays only at the high watermark."
    ),
    click.option(
        "--map-bytes",
        type=WholeNumber(min=64),
        default=COMPACTION_MAP_BYTES,
        show_default=True,
        help="Memory for keys, 24 bytes each; if it is too small, there are several passes.",
    ),
    high_watermark_option(
        "This is the only copy: records above a broker's high watermark are compacted, too."
    ),
    json_option,
    home="cleanup",
)
def compact() -> None:
    """Show the result of compaction of DIR...: the last record of each key stays.

    Each DIR is a partition directory, a data directory with all its partitions, or a broker's
    server.properties, for the directories in its log.dirs. Topics are compacted if their
    cleanup.policy has compact: __consumer_offsets, __transaction_state, topics in
    cleaner-offset-checkpoint, and topics for which --config, the metadata log or --broker-config
    sets it. 'kseg retain --help' has the order of these sources, and the directories that are
    skipped. A run does what Kafka's cleaner does: it begins at the checkpoint, skips logs that are
    not dirty enough, and leaves out the active segment, records above the high watermark and
    undecided transactions. With cleanup.policy=compact,delete it also deletes old segments.

    Changes nothing without --apply. New segments are written beside the old ones, which are then
    removed. So the disk needs room for the largest new segment of each partition; the plan has its
    size. If there is too little room, segments that need less come first. Another disk cannot
    provide the room: if the run were killed, records would be where no broker looks for them.
    Removed segments are kept only with --backup-dir, since a backup would fill the disk again.
    """


@verb(
    directories_argument(required=True),
    click.option(
        "--key",
        "keys",
        type=Parsed("K", parse_key),
        multiple=True,
        help="All records with this key; may be repeated.",
    ),
    click.option(
        "--keys",
        "keys_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="All records with the keys in FILE, one a line.",
    ),
    click.option(
        "--keys-format",
        "encoding",
        type=click.Choice(["text", "hex", "base64"]),
        default="text",
        show_default=True,
        help="The form of the lines in FILE.",
    ),
    flag("--null-key", "null_key", help_text="All records without a key."),
    click.option(
        "--offset",
        type=Parsed("A..B", parse_offset_range),
        help="The records of one partition from offset A up to B, or at one offset.",
    ),
    flag(
        "--tombstone",
        "tombstones",
        help_text="Keep the last record of each key, without its value and headers.",
    ),
    click.option(
        "--check",
        "report_file",
        type=LOCAL_PATH,
        metavar="REPORT",
        help="Compare the logs with the JSON of an earlier run; with keys, say if they came back.",
    ),
    click.option(
        "--secret",
        "secret_file",
        type=LOCAL_PATH,
        metavar="FILE",
        help="With --json: show each key as its HMAC-SHA-256 with the bytes of FILE.",
    ),
    _rules_option(
        "Up to 4.0, the last batch of the log stays as a header even without records; since 4.4, "
        "the batch at the high watermark does."
    ),
    selection_options,
    segments_backup_option,
    apply_option,
    settings_options,
    jobs_option,
    json_option,
    home="cleanup",
)
def erase() -> None:
    """Show which records with some keys, or at some offsets, would be erased from closed logs.

    Each DIR is a partition directory, a data directory with all its partitions, or a broker's
    server.properties. The verb erases all records of a key, so that no older one becomes the
    latest. Every other record keeps its offset, time, sequence and transaction. Segments without a
    record to erase do not change. The verb also searches directories that a broker has put aside
    (-delete, -stray, -future).

    Changes nothing without --apply. The broker must have stopped in good order, and the disk needs
    room for the largest segment that changes. There is no backup without --backup-dir, since a
    backup keeps the erased records. A replica that still has the records brings them back when it
    becomes leader: erase them on all brokers before any of them starts.

    Kafka's own topics, topics with segments in a tier, damaged logs and logs with an open
    transaction stay as they are. Exits 1 if no record is found.
    """
