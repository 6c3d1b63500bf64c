"""`kseg transactions`: open and hanging transactions, things that wait, and the way to end each."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kseg.catalog.catalog import Catalog
from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.groups import write_logs
from kseg.cli.parsing import Paths, clock_of
from kseg.errors import KsegError
from kseg.files.selection import Selection
from kseg.format.times import iso_text
from kseg.log.reader import LogView

if TYPE_CHECKING:
    from kseg.analysis.transactions import Transactions


def transactions(
    directories: Paths,
    selection: Selection,
    now_ms: int | None,
    at: int | None,
    since: int | None,
    max_timeout_minutes: int,
    show_all: bool,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.transactions import find

    with usage_errors(), output.progress("walk transactions", 0, in_bytes=True) as bar:
        found = find(
            directories,
            selection,
            (at, since),
            max_timeout_minutes,
            clock_of(now_ms)(),
            bar.to,
        )
    if as_json:
        document = {"path": output.path_field(directories), **found.to_json(transactions=False)}
        rows = found.transactions.rows()
        output.write_long_document("transactions/1", document, "transactions", rows)
    else:
        complain(*map(str, found.findings))
        _print(found, show_all=show_all)
        if at is not None or since is not None:
            write_logs(found.logs)
    is_wrong = any(each.severity == "error" for each in found.findings)
    return Exit.FOUND if is_wrong or found.counts["hanging"] else Exit.OK


def mention(catalog: Catalog) -> None:
    """Name the first open transaction of each partition, for verbs that look at whole logs."""
    for partition in catalog:
        with suppress(KsegError, OSError):
            found = None if partition.is_file else LogView.open(partition.path).open_transaction
            if found is not None:
                output.write_line(
                    f"note: {partition.path}: a transaction is open at offset {found.offset};"
                    " 'kseg transactions' shows how to end it"
                )


def _print(found: Transactions, *, show_all: bool) -> None:
    for each in found:
        since = iso_text(each.start_ms) or "an unknown time"
        output.write_line(
            f"{each.status}: {each.topic}-{each.partition}: offsets {each.first_offset} to"
            f" {each.last_offset}, {output.counted(each.records, 'record')},"
            f" {output.human_bytes(each.bytes)}, since {since}"
        )
        name = each.transactional_id or "without a transactional id"
        output.write_line(f"  producer {each.producer_id}, {name}: {each.why}")
        if each.holds:
            output.write_line(f"  holds: {each.holds}")
        if each.command is not None:
            output.write_line(f"    {each.command}")
    if show_all:
        head = (
            *("topic", "partition", "status", "first_offset", "last_offset", "records", "bytes"),
            *("producer_id", "producer_epoch", "transactional_id", "marker_offset", "duration_ms"),
        )
        rows = [[row[name] for name in head] for row in found.transactions.rows()]
        output.write_table(head, rows)
    output.write_line(found.title or "no transactions")
