"""`kseg read`: the records of a log as a consumer would see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import numpy as np

from kseg import Segment
from kseg.cli import output
from kseg.cli.batches import tail_of
from kseg.cli.decoded import DECODED_FIELDS, Decoding, decoded_rows, decoding
from kseg.cli.failures import Exit, complain, one_line, tell_replaced
from kseg.cli.options import (
    ALL,
    Range,
    Selection,
    check_ranges,
)
from kseg.cli.paths import known_path, known_paths
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.rows import RECORD_FIELDS, Style, csv_head, record_rows
from kseg.cli.selected import RowSink, equal_to
from kseg.cli.standard_streams import ReaderGone
from kseg.errors import KsegError, NotALogError, at_path
from kseg.files.names import KnownPath, PathKind
from kseg.log.log import Log
from kseg.log.reader import believed_end

if TYPE_CHECKING:
    from kseg.cli.selected import Mask
    from kseg.format.values import RecordColumns
    from kseg.internal import InternalTopic
    from kseg.log.reader import SegmentInfo


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
    decode_as: str | None,
    raw: bool,
    follow: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    check_ranges(last=last, limit=limit)
    asked = Asked(offsets, times, isolation, key, limit, last)
    style = Style(form, encoding or ("utf8" if form == "text" else "base64"))
    selection = Selection(topics, partitions)
    run = Reader(asked, style, output.binary_stdout(), decoding(decode_as, raw))
    if follow:
        run.follow(_one_partition(paths, selection))
    else:
        run.paths(paths, selection)
    tell_replaced(run.sink.replaced)
    return Exit.FOUND if run.findings else Exit.OK


@dataclass(frozen=True, slots=True)
class Asked:
    """The records that the user asks for."""

    offsets: Range = ALL
    times: Range = ALL
    isolation: str = "read_uncommitted"
    key: bytes | None = None
    limit: int | None = None
    last: int | None = None

    @property
    def where(self) -> dict[str, Any]:
        """The ranges as arguments of `Segment.read`."""
        return {
            "start_offset": self.offsets[0],
            "end_offset": self.offsets[1],
            "start_timestamp": self.times[0],
            "end_timestamp": self.times[1],
        }

    def mask(self, columns: RecordColumns) -> Mask | None:
        """Which records of a piece the user asks for; only the isolation was applied before."""
        masks = [
            wanted
            for values, (first, end) in (
                (columns["offset"], self.offsets),
                (columns["timestamp"], self.times),
            )
            for wanted in (
                None if first is None else values >= first,
                None if end is None else values < end,
            )
            if wanted is not None
        ]
        return np.logical_and.reduce(masks) if masks else None

    @property
    def plain_tail(self) -> bool:
        """Whether headers are enough to find the last N."""
        whole = self.offsets == self.times == ALL and self.key is None
        return self.last is not None and whole and self.isolation == "read_uncommitted"


class Reader:
    """One run of the verb."""

    def __init__(
        self, asked: Asked, style: Style, out: IO[bytes], decoding: Decoding | None = None
    ) -> None:
        """Start with nothing written and nothing found."""
        self.findings = 0
        self._decoding = decoding or Decoding()
        self._asked = asked
        self._style = style
        self._out = out
        self.sink = RowSink(out.write, limit=asked.limit, last=asked.last)
        self._headed = False

    def paths(self, paths: tuple[str, ...], selection: Selection) -> None:
        """Write the records of everything under the paths."""
        if self._style.form == "csv" and self._decoding.by_name:
            # One head serves all lines: decoded by name is all or nothing.
            every = _topics(paths, selection, self._decoding)
            self._decoding = replace(self._decoding, by_name=all(every))
        for path, known in known_paths(paths):
            self._path(path, known, selection)

    def _path(self, path: str, known: KnownPath, selection: Selection) -> None:
        """Write the records of a file, a partition or a data directory."""
        if known.kind is PathKind.FILE:
            self._file(known.path)
            return
        for partition in partitions_of((path,), selection):
            if self.sink.full:
                return
            with Log.open(partition.path) as log:
                self._write(self._of_log(log), partition.path.resolve().name, log.topic)

    def follow(self, path: Path) -> None:
        """Write the records of a partition, and then new ones as they come."""
        asked, sink = self._asked, self.sink
        with Log.open(path) as log:
            name, begin = log.path.resolve().name, log.log_start_offset
            end = asked.offsets[1]
            if end is not None and self._end_of(log) >= end:
                self._write(self._of_log(log), name, log.topic)
                return
            if asked.last is not None:
                # The tail is shown once; from there on nothing is held back any more.
                self._write(self._of_log(log), name, log.topic)
                self.sink = sink = RowSink(self._out.write, limit=asked.limit)
                begin = self._end_of(log)
            begin = max(begin, asked.offsets[0] or 0)
            self._out.flush()
            names, gone = _fields(kafka07=False), ReaderGone()
            topic = self._decoding.topic(log.topic, None, None)
            for columns in log.follow(begin, isolation=asked.isolation, stop=gone, fields=names):
                self._put(columns, name, topic, asked.mask(columns))
                self._out.flush()
                if sink.full or (end is not None and int(columns["offset"][-1]) >= end - 1):
                    return

    def _end_of(self, log: Log) -> int:
        committed = self._asked.isolation == "read_committed"
        return log.last_stable_offset if committed else log.log_end_offset

    def _file(self, path: Path) -> None:
        if self._asked.isolation != "read_uncommitted":
            raise click.UsageError("--isolation wants a partition directory, not one file of it.")
        known = known_path(str(path)).file
        if known is None or not known.kind.holds_batches:
            raise NotALogError("a file without records; 'kseg dump' shows it", path=path)
        with Segment.open(path) as segment:
            names = _fields(kafka07=segment.kafka07)
            topic = self._decoding.topic(None, path, known.kind)
            self._write_pieces(segment.read(fields=names, **self._asked.where), None, topic)

    def _of_log(self, log: Log) -> Iterator[RecordColumns]:
        names = _fields(kafka07=any(info.files.kafka07 for info in log.segments))
        where = self._asked.where
        if self._asked.plain_tail:
            where["start_offset"] = _start_of_tail(log, self._asked.last or 0)
        yield from log.read(fields=names, isolation=self._asked.isolation, **where)

    def _write(self, pieces: Iterator[RecordColumns], directory: str, topic: str | None) -> None:
        self._write_pieces(pieces, directory, self._decoding.topic(topic, None, None))

    def _write_pieces(
        self,
        pieces: Iterator[RecordColumns],
        directory: str | None,
        topic: InternalTopic | None,
    ) -> None:
        for columns in pieces:
            self._put(columns, directory, topic)
            if self.sink.full:
                break
        self.sink.finish()

    def _put(
        self,
        columns: RecordColumns,
        directory: str | None,
        topic: InternalTopic | None,
        mask: Mask | None = None,
    ) -> None:
        """Write the chosen records of a piece, decoded by the schemas of a topic."""
        if self._style.form == "csv":
            directory = directory or ""
        style = self._style.of(directory, Path(columns.source or "").name)
        if style.form == "csv" and not self._headed:
            self._out.write(csv_head(RECORD_FIELDS if topic is None else DECODED_FIELDS, style))
            self._headed = True
        key = self._asked.key
        if key is not None:
            same = equal_to(columns["key"], key)
            mask = same if mask is None else mask & same
        if topic is None:
            self.sink.take(record_rows(columns, style), len(columns), mask)
            return
        for part in decoded_rows(columns, topic, style, mask, self.sink.left):
            self.sink.take(part.template, part.count)
            for error in part.faults:
                self._found(error, columns.source)

    def _found(self, error: KsegError, source: str | None) -> None:
        """Report a record that is not what its schema says; its row has the bytes."""
        self.findings += 1
        self._out.flush()
        complain(f"kseg: {one_line(error if source is None else at_path(error, source))}")


def _topics(
    paths: tuple[str, ...], selection: Selection, decoding: Decoding
) -> Iterator[InternalTopic | None]:
    """The internal topic of everything under the paths, as far as there is one."""
    for path, known in known_paths(paths):
        if known.kind is PathKind.FILE:
            yield decoding.topic(None, known.path, known.file.kind if known.file else None)
        else:
            for partition in partitions_of((path,), selection):
                yield decoding.topic(partition.topic, None, None)


def _fields(*, kafka07: bool) -> tuple[str, ...]:
    names = (field.name for field in RECORD_FIELDS)
    return tuple(name for name in names if kafka07 or name != "next_offset")


def _start_of_tail(log: Log, count: int) -> int | None:
    """The offset of at least the last `count` records, by headers; None if they do not say."""
    number, position = tail_of([info.path for info in log.segments], count, control=False)
    infos = log.segments[number:]
    if not infos or _overlap(log, infos):
        return None
    with log.open_segment(infos[0]) as segment:
        for tile in segment.walk(start=position, limit=position + 1):
            table = tile.table
            if len(table) and table.crc_ok[0] == 1:
                first = int(table.base_offset[0])
                return first if first >= 0 else int(table.last_offset[0])
    return None


def _overlap(log: Log, infos: tuple[SegmentInfo, ...]) -> bool:
    """Whether a segment reaches past the next one's base, so that records would count twice."""
    for info, following in pairwise(infos):
        with log.open_segment(info) as segment:
            end = believed_end(segment, following.base_offset)
        if end is not None and end > following.base_offset:
            return True
    return False


def _one_partition(paths: tuple[str, ...], selection: Selection) -> Path:
    """The one directory to follow."""
    found = list(partitions_of(paths, selection))
    if len(found) != 1:
        raise click.UsageError(f"--follow wants one partition, and this is {len(found)}.")
    return found[0].path
