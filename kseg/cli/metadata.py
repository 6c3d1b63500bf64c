"""`kseg metadata`: a cluster by the log of KRaft, at a moment or between two."""

from __future__ import annotations

from typing import Any

import click

import kseg
from kseg.analysis.metadata import Metadata
from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.options import TIME
from kseg.cli.parsing import Paths
from kseg.format.times import iso_text


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
        found = read(directories, at=at, since=since, at_offset=at_offset)
        if as_json:
            output.write_document("metadata/1", found.to_json())
        else:
            _write(found)
        return _code_of(found)
    if directories:
        moments = [TIME.convert(each, None, click.get_current_context()) for each in compared]
        before, after = (read(directories, at=each) for each in moments)
    else:
        before, after = (read((each,)) for each in compared)
    changes = after.changes_since(before)
    if as_json:
        states = [each.to_json() for each in (before, after)]
        output.write_document("metadata/1", {"states": states, "changes": list(changes)})
    else:
        complain(*(f"kseg: {one.severity}: {one}" for one in (*before.findings, *after.findings)))
        output.write_lines(map(_changed, changes))
        if not len(changes):
            output.write_line("nothing differs")
    return Exit.FOUND if len(changes) else max(_code_of(before), _code_of(after))


def _code_of(found: Metadata) -> int:
    return Exit.FOUND if any(one.severity == "error" for one in found.findings) else Exit.OK


def _write(found: Metadata) -> None:
    complain(*(f"kseg: {one.severity}: {one}" for one in found.findings))
    time = iso_text(found.timestamp) or "no known time"
    line = f"up to offset {found.end_offset}, {time}, leader epoch {found.leader_epoch}"
    leader = "unknown" if found.leader is None else found.leader
    said = f"{line}, leader {leader}" if found.end_offset else "the log has no record so early"
    output.write_line(f"{found.path}: {said}")
    for kind, table in found.tables.items():
        if len(table):
            output.write_lines(("", kind))
            if kind == "changes":
                output.write_lines(map(_changed, table))
            else:
                _write_table([_shown(row) for row in table])


def _write_table(rows: list[dict[str, str]]) -> None:
    """The columns that say something."""
    names = [name for name in rows[0] if any(row[name] not in ("", "no") for row in rows)]
    output.write_table(names, [[row[name] for name in names] for row in rows])


def _shown(row: dict[str, Any]) -> dict[str, str]:
    """A row as text, without default values."""
    found = {name: _cell(each) for name, each in row.items() if name != "hidden"}
    if row.get("hidden"):
        found["value"] = "(hidden)"
    if "timestamp" in row:
        found["timestamp"] = iso_text(row["timestamp"]) or ""
    return found | ({"certain": ""} if row.get("certain") else {})


def _changed(row: dict[str, Any]) -> str:
    """A change in a line."""
    name = " ".join(map(str, row["key"]))
    before, after = (
        "nothing"
        if row[each] is None
        else ", ".join(f"{name}={value}" for name, value in _shown(row[each]).items())
        for each in ("before", "after")
    )
    place = "" if row["offset"] is None else f" (offset {row['offset']})"
    return f"{row['table']} {name}: {before} -> {after}{place}"


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
