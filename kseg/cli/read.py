"""`kseg read`: the records of a log as a consumer would see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kseg.cli import output
from kseg.cli.batches import tail_of
from kseg.cli.options import (
    ALL,
    Range,
    Selection,
    bytes_option,
    check_ranges,
    format_option,
    isolation_option,
    paths_argument,
    range_options,
    selection_options,
)
from kseg.cli.paths import known_path, partitions
from kseg.cli.rows import RECORD_FIELDS, Style, csv_head, record_rows
from kseg.cli.selected import RowSink, equal_to
from kseg.errors import NotALogError
from kseg.files.names import PathKind
from kseg.log.partition import Log
from kseg.log.segment import Segment

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns


@click.command()
@paths_argument
@format_option
@bytes_option
@isolation_option
@selection_options
@range_options
def read(
    paths: tuple[str, ...],
    form: str,
    encoding: str | None,
    isolation: str,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    offsets: Range,
    times: Range,
    key: bytes | None,
    limit: int | None,
    last: int | None,
) -> None:
    """Print records from an offset or a time on, as a consumer would get them.

    A PATH is a partition directory, a data directory or a log file. No transaction markers and
    nothing before the log's start offset is shown; damage ends the reading with exit code 1.
    """
    check_ranges(last=last, limit=limit)
    asked = Asked(offsets, times, isolation, key, limit, last)
    style = Style(form, encoding or ("utf8" if form == "text" else "base64"))
    run = Reader(asked, style, output.binary_stdout())
    for path in paths:
        run.path(path, Selection(topics, partitions))


@dataclass(frozen=True, slots=True)
class Asked:
    """Which records are wanted."""

    offsets: Range = ALL
    times: Range = ALL
    isolation: str = "read_uncommitted"
    key: bytes | None = None
    limit: int | None = None
    last: int | None = None

    @property
    def where(self) -> dict[str, Any]:
        """The ranges in the words of `Segment.read`."""
        return {
            "start_offset": self.offsets[0],
            "end_offset": self.offsets[1],
            "start_timestamp": self.times[0],
            "end_timestamp": self.times[1],
        }

    @property
    def plain_tail(self) -> bool:
        """Whether the last N can be told from headers."""
        whole = self.offsets == self.times == ALL and self.key is None
        return self.last is not None and whole and self.isolation == "read_uncommitted"


class Reader:
    """One run of the verb."""

    def __init__(self, asked: Asked, style: Style, out: IO[bytes]) -> None:
        """Start with nothing written."""
        self._asked = asked
        self._style = style
        self._out = out
        self._sink = RowSink(out.write, limit=asked.limit, last=asked.last)
        self._headed = False

    def path(self, path: str, selection: Selection) -> None:
        """Write the records of a file, a partition or a data directory."""
        known = known_path(path)
        if known.kind is PathKind.FILE:
            self._file(known.path)
            return
        for partition in partitions((path,), selection):
            if self._sink.full:
                return
            with Log.open(partition.path) as log:
                self._write(self._of_log(log), partition.path.resolve().name)

    def _file(self, path: Path) -> None:
        if self._asked.isolation != "read_uncommitted":
            raise click.UsageError("--isolation wants a partition directory, not one file of it.")
        known = known_path(str(path)).file
        if known is None or not known.kind.holds_batches:
            raise NotALogError("a file without records; 'kseg dump' shows it", path=path)
        with Segment.open(path) as segment:
            names = _fields(kafka07=segment.kafka07)
            self._write(segment.read(fields=names, **self._asked.where), None)

    def _of_log(self, log: Log) -> Iterator[RecordColumns]:
        names = _fields(kafka07=any(info.files.kafka07 for info in log.segments))
        if not self._asked.plain_tail:
            isolation = self._asked.isolation
            yield from log.read(fields=names, isolation=isolation, **self._asked.where)
            return
        paths = [info.path for info in log.segments]
        skipped, position = tail_of(paths, self._asked.last or 0, control=False)
        for info in log.segments[skipped:]:
            with log.open_segment(info) as segment:
                start = log.log_start_offset if log.log_start_offset > log.first_offset else None
                yield from segment.read(fields=names, start_offset=start, start_position=position)
            position = 0

    def _write(self, pieces: Iterator[RecordColumns], directory: str | None) -> None:
        if self._style.form == "csv":
            directory = directory or ""
        for columns in pieces:
            style = self._style.of(directory, Path(columns.source or "").name)
            if style.form == "csv" and not self._headed:
                self._out.write(csv_head(RECORD_FIELDS, style))
                self._headed = True
            key = self._asked.key
            mask = None if key is None else equal_to(columns["key"], key)
            self._sink.take(record_rows(columns, style), len(columns), mask)
            if self._sink.full:
                break
        self._sink.finish()


def _fields(*, kafka07: bool) -> tuple[str, ...]:
    names = (field.name for field in RECORD_FIELDS)
    return tuple(name for name in names if kafka07 or name != "next_offset")
