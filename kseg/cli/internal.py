"""`kseg groups`, `transactions`, `metadata` and `schemas`: what internal topics and markers say."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import kseg
from kseg.catalog import Catalog
from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.options import TIME, Paths, Setting
from kseg.commands import command_line, printable
from kseg.errors import KsegError
from kseg.files.selection import Selection, some_of
from kseg.files.whole_file import whole_file
from kseg.format.times import iso_text
from kseg.frames import counted
from kseg.log.reader import LogView

if TYPE_CHECKING:
    from kseg.analysis.groups import GroupChange, Groups
    from kseg.analysis.internal_logs import LogTaken
    from kseg.analysis.metadata import Metadata
    from kseg.analysis.transactions import Transactions
    from kseg.internal.registry import Schema, Schemas

_RETENTION: Final = "offsets.retention.minutes"
#: The most groups in one command, whose length systems limit.
_COMMAND_GROUPS: Final = 100
_TOOLS: Final = {
    "kafka-consumer-groups.sh": ("Classic", "Consumer"),
    "kafka-streams-groups.sh": ("Streams",),
}
#: Tool -> its option for the partitions of one topic, where that is not `--topic`.
_TOPIC_OPTIONS: Final = {"kafka-streams-groups.sh": "--input-topic"}
_NO_RESET: Final = (
    "kafka-share-groups.sh --reset-offsets takes --to-earliest, --to-latest or --to-datetime, and "
    "no offsets: share groups are not in the file"
)


def groups(
    directories: Paths,
    group: str,
    at: int | None,
    since: int | None,
    lag_to: str,
    readable: bool,
    settings: tuple[Setting, ...],
    reset_commands: str | None,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    more = {"readable": readable, **_retention(settings)}
    later: list[GroupChange] = []
    with output.progress("read internal topics", 0, in_bytes=True) as bar:
        report = kseg.groups(
            directories, group=group, at=at, since=since, lag_to=lag_to, progress=bar.to, **more
        )
        if at is not None and reset_commands is not None:
            now = kseg.groups(directories, group=group, since=at, progress=bar.to, **more)
            later = [
                change
                for change in now.changes
                if change.field == "offset" and change.before is None
            ]
    if as_json:
        document = {"path": output.path_field(directories), **report.to_json(commits=False)}
        output.write_long_document("groups/1", document, "commits", report.commits.rows())
    else:
        complain(*map(str, report.findings))
        _print(report, group, moments=at is not None or since is not None)
    if reset_commands is not None:
        commands = write_resets(report, Path(reset_commands))
        lines = (*(f"    {command}" for command in commands), *unreset_share(report))
        complain(*lines) if as_json else output.write_lines(lines)
        complain(*_not_reset(report, later))
    return Exit.FOUND if _has_errors(report) else Exit.OK


def _has_errors(report: Groups | Transactions | Metadata | Schemas) -> bool:
    """Whether there is an error among the findings."""
    return any(finding.severity == "error" for finding in report.findings)


def _retention(settings: Sequence[Setting]) -> dict[str, Any]:
    """The argument of `kseg.groups` for the retention; empty for the default."""
    minutes = {}
    for setting in settings:
        if setting.name != _RETENTION or setting.topic is not None or not setting.value.isdecimal():
            raise click.UsageError(f"--config takes {_RETENTION}=N here, with a whole number.")
        minutes["retention_minutes"] = int(setting.value)
    return minutes


def _print(report: Groups, glob: str, *, moments: bool) -> None:
    """Print the groups; members and commits only if groups are chosen by a glob.

    Args:
        report: the groups.
        glob: the glob that chose the groups; "*" for all.
        moments: whether they are of a past time, so that the ends of the logs read are printed.
    """
    if not report.logs:
        output.write_line("no topic of groups is here: __consumer_offsets, __share_group_state")
    elif not len(report):
        output.write_line("no groups" if glob == "*" else f"no group here is {printable(glob)}")
    head = "group type state epoch members commits pending lag expires_ms"
    _table(head, report.table_rows())
    if glob != "*":
        members = "member_id instance_id client_id host epoch topics assignment user_data_bytes"
        _table(f"group {members}", [_member_texts(row) for row in report.members.table_rows()])
        commits = "offset end_offset end_from lag lag_ms outside expires_ms pending metadata"
        _table(f"group topic partition {commits}", list(report.commits.rows()))
        delivery = "start_offset end_offset lag in_flight available acquired acknowledged archived"
        _table(f"group topic partition {delivery}", report.share.table_rows())
    _table("group topic partition field before after", report.changes.table_rows())
    columns = report.commits.columns
    places = zip(columns["topic"], columns["partition"], columns["end_from"], strict=True)
    unknown = sorted({(topic, number) for topic, number, word in places if word is None})
    if unknown:
        names = printable(some_of([f"{topic}-{number}" for topic, number in unknown]))
        complain(f"no lag for {names}: not here; give the data directories of all brokers")
    if moments:
        write_logs(report.logs)


def write_logs(logs: Iterable[LogTaken]) -> None:
    """Print a line for each partition of an internal topic: how much of it was read."""
    for log in logs:
        last = "nothing"
        if log.last_offset is not None:
            last = f"offset {log.last_offset}, {iso_text(log.timestamp_ms) or 'without a time'}"
        name = f"{log.topic}-{log.partition}"
        output.write_line(f"{name}: taken up to {last}; the log ends at {log.log_end_offset}")


def _table(head: str, rows: Sequence[Any]) -> None:
    """Print rows as a table, with times as text; nothing if there are no rows."""
    names = head.split()
    if rows:
        cells = [
            [iso_text(row[name]) if name == "expires_ms" else row[name] for name in names]
            for row in rows
        ]
        output.write_table(["expires" if name == "expires_ms" else name for name in names], cells)


def _member_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    """A member with its topics and partitions as text."""
    parts = [
        (f"{part['role']} " if part["role"] else "")
        + f"{part['topic']}:{','.join(map(str, part['partitions']))}"
        for part in row["assignment"] or ()
    ]
    topics = row["topics"] or ([row["regex"]] if row["regex"] else [])
    return {**row, "topics": " ".join(topics), "assignment": " ".join(parts)}


def write_resets(
    report: Groups, path: Path, commits: Iterable[Mapping[str, Any]] | None = None
) -> list[str]:
    """Write commits into a file for Kafka's tools; returns the commands that read the file.

    The tools expect the column of groups only in a file of several groups.

    Args:
        report: the groups.
        path: the new file.
        commits: the commits to write; all commits of the report if None.
    """
    types = {group.group: group.type for group in report}
    rows = [  # group, topic, partition and offset
        (row["group"], row["topic"], row["partition"], row["offset"])
        for row in (report.commits.rows() if commits is None else commits)
        if row["pending"] is None and row["offset"] is not None and "\n" not in row["group"]
    ]
    names = list(dict.fromkeys(row[0] for row in rows))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        row[1:] if len(names) == 1 else row for row in rows
    )
    with whole_file(path) as file:
        file.write(text.getvalue().encode())
    commands = []
    for tool, kinds in _TOOLS.items():
        of_tool = [name for name in names if types[name] in kinds]
        for first in range(0, len(of_tool), _COMMAND_GROUPS):
            chosen = [
                word
                for name in of_tool[first : first + _COMMAND_GROUPS]
                for word in ("--group", name)
            ]
            commands.append(
                command_line(
                    tool,
                    "--bootstrap-server",
                    "HOST:PORT",
                    *chosen,
                    "--reset-offsets",
                    "--from-file",
                    str(path),
                    "--dry-run",
                )
            )
    return commands


def unreset_share(report: Groups) -> Iterator[str]:
    """A line about share groups, which the file cannot have; nothing if there are none."""
    if any(group.type == "Share" for group in report):
        yield _NO_RESET


def _not_reset(report: Groups, later: Sequence[GroupChange]) -> Iterator[str]:
    """Lines about groups and partitions that the file cannot have, and commands for the partitions.

    Args:
        report: the groups at the time of the file.
        later: the commits that exist now and did not exist then.
    """
    for group in sorted({group_row.group for group_row in report if "\n" in group_row.group}):
        yield f"{printable(group)}: not in the file, since its name has a line break"
    tools = {kind: tool for tool, kinds in _TOOLS.items() for kind in kinds}
    types = {group.group: group.type for group in report}
    places: dict[tuple[str, str], list[str]] = {}
    for commit in later:
        if commit.topic is not None and "\n" not in commit.group:
            places.setdefault((commit.group, commit.topic), []).append(str(commit.partition))
    if places:
        yield (
            "these partitions had no commit at that time, so that the file has none for them; a "
            "consumer would skip the records after that time. Remove their commits, and it "
            "begins where its auto.offset.reset says:"
        )
    for (group, topic), numbers in places.items():
        tool = tools.get(types.get(group, "Classic"), "kafka-consumer-groups.sh")
        option = _TOPIC_OPTIONS.get(tool, "--topic")
        yield "    " + command_line(
            tool,
            "--bootstrap-server",
            "HOST:PORT",
            "--delete-offsets",
            "--group",
            group,
            option,
            f"{topic}:{','.join(numbers)}",
        )


# ---- transactions --------------------------------------------------------------------------------


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
    with usage_errors(), output.progress("walk transactions", 0, in_bytes=True) as bar:
        report = kseg.transactions(
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
        _print_transactions(report, show_all=show_all)
        if at is not None or since is not None:
            write_logs(report.logs)
    return Exit.FOUND if _has_errors(report) or report.counts["hanging"] else Exit.OK


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


def _print_transactions(report: Transactions, *, show_all: bool) -> None:
    """Print the open transactions, with `show_all` also a table of all, and the counts."""
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
            "topic",
            "partition",
            "status",
            "first_offset",
            "last_offset",
            "records",
            "bytes",
            "producer_id",
            "producer_epoch",
            "transactional_id",
            "marker_offset",
            "duration_ms",
        )
        output.write_columns(head, report.transactions.rows())
    output.write_line(report.title or "no transactions")


# ---- the metadata log ----------------------------------------------------------------------------


def metadata(
    directories: Paths,
    topics: tuple[str, ...],
    compared: tuple[str, str] | None,
    at: int | None,
    since: int | None,
    at_offset: int | None,
    show_secrets: bool,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    if not directories and compared is None:
        raise click.UsageError("Missing argument 'DIR...'.")
    if compared is not None and (at, since, at_offset) != (None, None, None):
        raise click.UsageError("--diff names its moments: no --at, --since or --at-offset.")

    def read(where: tuple[str, ...], **moment: int | None) -> Metadata:
        with usage_errors(), output.progress("metadata", 0) as bar:
            return kseg.metadata(
                where, topics=topics, show_secrets=show_secrets, progress=bar.to, **moment
            )

    if compared is None:
        state = read(directories, at=at, since=since, at_offset=at_offset)
        if as_json:
            output.write_document("metadata/1", state.to_json())
        else:
            _print_state(state)
        return Exit.FOUND if _has_errors(state) else Exit.OK
    if directories:
        moments = [TIME.convert(moment, None, click.get_current_context()) for moment in compared]
        before, after = (read(directories, at=moment) for moment in moments)
    else:
        before, after = (read((directory,)) for directory in compared)
    changes = after.changes_since(before)
    if as_json:
        states = [state.to_json() for state in (before, after)]
        output.write_document("metadata/1", {"states": states, "changes": list(changes)})
    else:
        complain(
            *(
                f"kseg: {finding.severity}: {finding}"
                for finding in (*before.findings, *after.findings)
            )
        )
        output.write_lines(map(_change_line, changes))
        if not len(changes):
            output.write_line("nothing differs")
    is_wrong = _has_errors(before) or _has_errors(after)
    return Exit.FOUND if len(changes) or is_wrong else Exit.OK


def _print_state(state: Metadata) -> None:
    """Print a state: up to where the log was read, and each table that has rows."""
    complain(*(f"kseg: {finding.severity}: {finding}" for finding in state.findings))
    time = iso_text(state.timestamp) or "no known time"
    line = f"up to offset {state.end_offset}, {time}, leader epoch {state.leader_epoch}"
    leader = "unknown" if state.leader is None else state.leader
    summary = f"{line}, leader {leader}" if state.end_offset else "the log has no record so early"
    output.write_line(f"{state.path}: {summary}")
    for kind, table in state.tables.items():
        if len(table):
            output.write_lines(("", kind))
            if kind == "changes":
                output.write_lines(map(_change_line, table))
            else:
                _write_table([_row_texts(row) for row in table])


def _write_table(rows: list[dict[str, str]]) -> None:
    """Write rows, without columns that are empty or "no" in all of them."""
    names = [name for name in rows[0] if any(row[name] not in ("", "no") for row in rows)]
    output.write_columns(names, rows)


def _row_texts(row: dict[str, Any]) -> dict[str, str]:
    """A row as text; `certain` is shown only in a row that is not certain."""
    cells = {name: _cell(value) for name, value in row.items() if name != "hidden"}
    if row.get("hidden"):
        cells["value"] = "(hidden)"
    if "timestamp" in row:
        cells["timestamp"] = iso_text(row["timestamp"]) or ""
    return cells | ({"certain": ""} if row.get("certain") else {})


def _change_line(row: dict[str, Any]) -> str:
    """A change in a line."""
    name = " ".join(map(str, row["key"]))
    before, after = (
        "nothing"
        if row[moment] is None
        else ", ".join(f"{name}={value}" for name, value in _row_texts(row[moment]).items())
        for moment in ("before", "after")
    )
    at_offset = "" if row["offset"] is None else f" (offset {row['offset']})"
    return f"{row['table']} {name}: {before} -> {after}{at_offset}"


def _cell(value: Any) -> str:
    """A value as text; empty for None."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


# ---- schemas -------------------------------------------------------------------------------------


def schemas(
    paths: Paths,
    subject: str | None,
    schema_id: str | None,
    at: int | None,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    with usage_errors():
        registry = kseg.schemas(paths[0] if len(paths) == 1 else paths, at=at)
    chosen = [
        schema
        for schema in registry
        if (subject is None or fnmatchcase(schema.subject, subject))
        and (schema_id is None or schema_id in (str(schema.id), schema.guid))
    ]
    if as_json:
        document = {
            "path": output.path_field(paths),
            "schemas": [schema.row() for schema in chosen],
            "findings": [finding._asdict() for finding in registry.findings],
        }
        output.write_document("schemas/1", document)
    else:
        complain(*map(str, registry.findings))
        _print_schemas(chosen, as_text=schema_id is not None)
    is_missing = not chosen and (subject is not None or schema_id is not None)
    return Exit.FOUND if is_missing or _has_errors(registry) else Exit.OK


def _print_schemas(chosen: list[Schema], *, as_text: bool) -> None:
    """The text if all that is chosen has one text; else a table."""
    is_one_text = as_text and len({schema.text for schema in chosen}) == 1
    if not chosen:
        complain("kseg: no schema here is chosen")
    elif is_one_text and not sys.stdout.isatty():
        output.binary_stdout().write(f"{chosen[0].text}\n".encode())
    elif is_one_text:
        output.write_lines(chosen[0].text.split("\n"))
    else:
        head = ("subject", "version", "id", "type", "deleted", "references", "guid")
        output.write_columns(head, [counted(schema.row()) for schema in chosen])
