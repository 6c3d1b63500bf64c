"""`kseg groups`: groups by the internal topics, now or at another time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kseg.cli import output
from kseg.cli.failures import Exit, complain
from kseg.cli.parsing import Paths, Setting
from kseg.commands import command_line, printable
from kseg.files.selection import some_of
from kseg.files.whole_file import whole_file
from kseg.format.times import iso_text

if TYPE_CHECKING:
    from kseg.analysis.groups import GroupChange, Groups
    from kseg.analysis.internal_logs import LogTaken

_RETENTION: Final = "offsets.retention.minutes"
#: So many groups stand in one command: systems bound its length.
_COMMAND_GROUPS: Final = 100
_TOOLS: Final = {
    "kafka-consumer-groups.sh": ("Classic", "Consumer"),
    "kafka-streams-groups.sh": ("Streams",),
}
#: How a tool takes the partitions of one topic.
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
    settings: tuple[Setting, ...],
    reset_commands: str | None,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.groups import groups as groups_of

    minutes = _retention(settings)
    more: dict[str, Any] = {} if minutes is None else {"retention_minutes": minutes}
    later: list[GroupChange] = []
    with output.progress("read internal topics", 0, in_bytes=True) as bar:
        report = groups_of(
            directories, group=group, at=at, since=since, lag_to=lag_to, progress=bar.to, **more
        )
        if at is not None and reset_commands is not None:
            now = groups_of(directories, group=group, since=at, progress=bar.to, **more)
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
        lines = _write_resets(report, Path(reset_commands))
        complain(*lines) if as_json else output.write_lines(lines)
        complain(*_not_reset(report, later))
    return (
        Exit.FOUND if any(finding.severity == "error" for finding in report.findings) else Exit.OK
    )


def _retention(settings: Sequence[Setting]) -> int | None:
    minutes = None
    for setting in settings:
        if setting.name != _RETENTION or setting.topic is not None or not setting.value.isdecimal():
            raise click.UsageError(f"--config takes {_RETENTION}=N here, with a whole number.")
        minutes = int(setting.value)
    return minutes


def _print(report: Groups, glob: str, *, moments: bool) -> None:
    if not report.logs:
        output.write_line("no topic of groups is here: __consumer_offsets, __share_group_state")
    elif not len(report):
        output.write_line("no groups" if glob == "*" else f"no group here is {printable(glob)}")
    head = "group type state epoch members commits pending lag expires_ms"
    _table(head, report.table_rows())
    if glob != "*":
        members = "member_id instance_id client_id host epoch topics assignment user_data_bytes"
        _table(f"group {members}", [_flat(row) for row in report.members.table_rows()])
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
    """A line for each partition of an internal topic: how much of it was taken."""
    for log in logs:
        last = "nothing"
        if log.last_offset is not None:
            last = f"offset {log.last_offset}, {iso_text(log.timestamp_ms) or 'without a time'}"
        name = f"{log.topic}-{log.partition}"
        output.write_line(f"{name}: taken up to {last}; the log ends at {log.log_end_offset}")


def _table(head: str, rows: Sequence[Any]) -> None:
    """Rows as a table, if there are any; times as text."""
    names = head.split()
    if rows:
        cells = [
            [iso_text(row[name]) if name == "expires_ms" else row[name] for name in names]
            for row in rows
        ]
        output.write_table(["expires" if name == "expires_ms" else name for name in names], cells)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A member with its topics and partitions as text."""
    parts = [
        f"{(part['role'] or '')}{' ' if part['role'] else ''}{part['topic']}:"
        + ",".join(map(str, part["partitions"]))
        for part in row["assignment"] or ()
    ]
    topics = row["topics"] or ([row["regex"]] if row["regex"] else [])
    return {**row, "topics": " ".join(topics), "assignment": " ".join(parts)}


def _write_resets(report: Groups, path: Path) -> list[str]:
    """Write the commits for Kafka's tools; returns the commands that take the file."""
    types = {group.group: group.type for group in report}
    rows = [
        (row["group"], row["topic"], row["partition"], row["offset"])
        for row in report.commits.rows()
        if row["pending"] is None and row["offset"] is not None and "\n" not in row["group"]
    ]
    names = list(dict.fromkeys(row[0] for row in rows))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        row[1:] if len(names) == 1 else row for row in rows
    )
    with whole_file(path) as file:
        file.write(text.getvalue().encode())
    lines = []
    for tool, kinds in _TOOLS.items():
        of_tool = [name for name in names if types[name] in kinds]
        for first in range(0, len(of_tool), _COMMAND_GROUPS):
            chosen = [
                word
                for name in of_tool[first : first + _COMMAND_GROUPS]
                for word in ("--group", name)
            ]
            lines.append(
                "    "
                + command_line(
                    *(tool, "--bootstrap-server", "HOST:PORT", *chosen),
                    *("--reset-offsets", "--from-file", str(path), "--dry-run"),
                )
            )
    return lines + ([_NO_RESET] if "Share" in types.values() else [])


def _not_reset(report: Groups, later: Sequence[GroupChange]) -> Iterator[str]:
    """The partitions and groups that the file cannot have, with the commands for the first.

    Args:
        report: the groups at the time of the file.
        later: the commits that are there now, and were not then.
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
            "consumer would go on behind the records after that time. Remove their commits, and it "
            "begins where its auto.offset.reset says:"
        )
    for (group, topic), numbers in places.items():
        tool = tools.get(types.get(group, "Classic"), "kafka-consumer-groups.sh")
        option = _TOPIC_OPTIONS.get(tool, "--topic")
        yield "    " + command_line(
            *(tool, "--bootstrap-server", "HOST:PORT", "--delete-offsets", "--group", group),
            *(option, f"{topic}:{','.join(numbers)}"),
        )
