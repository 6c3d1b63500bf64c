"""`kseg transactions`: open and hanging transactions, things that wait, and the way to end each."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kseg.catalog.catalog import Catalog
from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.groups import write_logs
from kseg.cli.parsing import Paths
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
    from kseg.analysis.transactions import transactions as run

    with usage_errors(), output.progress("walk transactions", 0, in_bytes=True) as bar:
        report = run(
            directories,
            topics=selection.topics,
            partitions=selection.partitions,
            at=at,
            since=since,
            max_timeout_minutes=max_timeout_minutes,
            now=now_ms,
            progress=bar.to,
        )
    if as_json:
        document = {"path": output.path_field(directories), **report.to_json(transactions=False)}
        rows = report.transactions.rows()
        output.write_long_document("transactions/1", document, "transactions", rows)
    else:
        complain(*map(str, report.findings))
        _print(report, show_all=show_all)
        if at is not None or since is not None:
            write_logs(report.logs)
    is_wrong = any(finding.severity == "error" for finding in report.findings)
    return Exit.FOUND if is_wrong or report.counts["hanging"] else Exit.OK


def mention(catalog: Catalog) -> None:
    """Name the first open transaction of each partition, for verbs that look at whole logs."""
    for partition in catalog:
        with suppress(KsegError, OSError):
            oldest = None if partition.is_file else LogView.open(partition.path).open_transaction
            if oldest is not None:
                output.write_line(
                    f"note: {partition.path}: a transaction is open at offset {oldest.offset};"
                    " 'kseg transactions' shows how to end it"
                )


def _print(report: Transactions, *, show_all: bool) -> None:
    for transaction in report:
        since = iso_text(transaction.start_ms) or "an unknown time"
        output.write_line(
            f"{transaction.status}: {transaction.topic}-{transaction.partition}: offsets"
            f" {transaction.first_offset} to {transaction.last_offset},"
            f" {output.counted(transaction.records, 'record')},"
            f" {output.human_bytes(transaction.bytes)}, since {since}"
        )
        name = transaction.transactional_id or "without a transactional id"
        output.write_line(f"  producer {transaction.producer_id}, {name}: {transaction.why}")
        if transaction.holds:
            output.write_line(f"  holds: {transaction.holds}")
        if transaction.command is not None:
            output.write_line(f"    {transaction.command}")
    if show_all:
        head = (
            *("topic", "partition", "status", "first_offset", "last_offset", "records", "bytes"),
            *("producer_id", "producer_epoch", "transactional_id", "marker_offset", "duration_ms"),
        )
        rows = [[row[name] for name in head] for row in report.transactions.rows()]
        output.write_table(head, rows)
    output.write_line(report.title or "no transactions")
