"""The verbs that repair logs."""

from __future__ import annotations

import click

from kseg.cli.options import (
    LOCAL_PATH,
    OFFSET,
    change_options,
    directories_argument,
    flag,
    jobs_option,
    json_option,
    out_option,
    selection_options,
    settings_options,
    tier_options,
)
from kseg.cli.starting import verb


@verb(
    directories_argument(required=True),
    flag("--as-broker", help_text="Do just what Kafka would do, and report no more."),
    click.option(
        "--clean/--unclean",
        default=None,
        help="Was the log closed in good order? By default as its mark says.",
    ),
    click.option(
        "--recovery-point",
        type=OFFSET,
        metavar="N",
        help="Records below N were flushed; by default as the checkpoint says.",
    ),
    click.option(
        "--log-start-offset",
        type=OFFSET,
        metavar="N",
        help="The first offset to read; by default as the checkpoint says.",
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
    """Show the changes of a start after a crash to DIR...: cuts, rebuilt and removed files.

    Each DIR is a partition directory, a data directory with all its partitions, or a broker's
    server.properties, for the directories in its log.dirs; give all those of a broker. Checks the
    end of the log and of its indexes also after a clean shutdown. Changes nothing without --apply.
    Settings of topics, such as index.interval.bytes, are looked for as by 'kseg retain'.

    With --apply a broker that starts afterwards reads no log again: once all partitions of a data
    directory are in order, it gets the mark of a clean stop, without the broker's epoch. A
    partition that cannot be recovered is named, and the others go on. If it is interrupted, the
    next run goes on where it was. The log of KRaft is left alone.
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

    DIR is a partition directory, or a data directory with all its partitions. Never touches the log
    itself. If the log is damaged it leaves the indexes alone: use 'kseg recover'. Changes nothing
    without --apply. New entries lie index.interval.bytes apart: the topic's settings are looked for
    as by 'kseg retain'.
    """


@verb(
    click.argument("directory", metavar="DIR", type=LOCAL_PATH),
    click.option(
        "--to",
        "offset",
        type=OFFSET,
        required=True,
        metavar="OFFSET",
        help="The new end of the log: this offset and all later ones are removed.",
    ),
    selection_options,
    tier_options,
    change_options,
    settings_options,
    json_option,
    home="closed",
)
def truncate() -> None:
    """Cut the log in DIR back, so that it ends at an offset.

    DIR is a partition directory, or a data directory in which --topic and --partition choose one.
    Batches are removed whole, so records before OFFSET in the same batch are removed, too. Cuts
    nothing without --apply. The topic's settings are looked for as by 'kseg retain'.
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

    Recovery cuts a log at its first bad byte. Salvage also keeps each batch behind it whose
    checksum is right, whose offsets and leader epoch fit, and which is proved to be a batch of the
    log rather than data of a record. Records keep their offsets and their bytes. DIR is a partition
    directory or a data directory, and is not changed. OUT is new, or empty; it appears once it is
    complete. A broker adopts it.

    Lost records are listed by offset. OUT.kseg-salvage holds report.json and the bytes that are not
    kept (quarantine/; kseg dump reads quarantine/TOPIC-N/readable/*.log). The last lines say how to
    put the result back.

    The log of KRaft, __cluster_metadata-0, is salvaged only where DIR names it, up to its first
    gap.

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

    A and B are partition directories, copies of one partition; or data directories, whose
    partitions are joined by topic, number and topic id. Only provable batches of a copy count. At
    one offset the higher leader epoch wins; batches of a copy behind the offset where it leaves the
    history of the last leader are left out, as Kafka cuts a follower. Different batches of one
    leader epoch are a conflict: both are shown and nothing is written, unless --prefer decides.

    The data directories of one broker are one copy, with commas between them as in log.dirs:
    /disk1/data,/disk2/data.

    Exits 0 if OUT is whole, and copies differ from it only by damage. Exits 1 if offsets are
    missing, copies contradict each other, or a copy cannot be read, even if OUT was written.
    """
