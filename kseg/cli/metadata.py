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
        state = read(directories, at=at, since=since, at_offset=at_offset)
        if as_json:
            output.write_document("metadata/1", state.to_json())
        else:
            _write(state)
        return _code_of(state)
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
        output.write_lines(map(_changed, changes))
        if not len(changes):
            output.write_line("nothing differs")
    return Exit.FOUND if len(changes) else max(_code_of(before), _code_of(after))


def _code_of(state: Metadata) -> int:
    return Exit.FOUND if any(finding.severity == "error" for finding in state.findings) else Exit.OK


def _write(state: Metadata) -> None:
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
                output.write_lines(map(_changed, table))
            else:
                _write_table([_shown(row) for row in table])


def _write_table(rows: list[dict[str, str]]) -> None:
    """The columns that say something."""
    names = [name for name in rows[0] if any(row[name] not in ("", "no") for row in rows)]
    output.write_table(names, [[row[name] for name in names] for row in rows])


def _shown(row: dict[str, Any]) -> dict[str, str]:
    """A row as text, without default values."""
    cells = {name: _cell(value) for name, value in row.items() if name != "hidden"}
    if row.get("hidden"):
        cells["value"] = "(hidden)"
    if "timestamp" in row:
        cells["timestamp"] = iso_text(row["timestamp"]) or ""
    return cells | ({"certain": ""} if row.get("certain") else {})


def _changed(row: dict[str, Any]) -> str:
    """A change in a line."""
    name = " ".join(map(str, row["key"]))
    before, after = (
        "nothing"
        if row[moment] is None
        else ", ".join(f"{name}={value}" for name, value in _shown(row[moment]).items())
        for moment in ("before", "after")
    )
    at_offset = "" if row["offset"] is None else f" (offset {row['offset']})"
    return f"{row['table']} {name}: {before} -> {after}{at_offset}"


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
