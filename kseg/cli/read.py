"""`kseg read`: the records of a log as a consumer would see them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import numpy as np

from kseg import Segment
from kseg.cli import output
from kseg.cli.batches import tail_of
from kseg.cli.decoding import Decoding, decoding
from kseg.cli.failures import Exit, complain, one_line, tell_left_out, tell_replaced
from kseg.cli.options import check_ranges
from kseg.cli.parsing import ALL, Range, Selection
from kseg.cli.paths import known_path, known_paths, logs_once, one_partition, refuse_replicas
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.row_writer import Mask, RowSink, RowSinks, Template, equal_to
from kseg.cli.rows import RECORD_FIELDS, Field, Style, csv_head, record_rows
from kseg.cli.starting import ReaderGone
from kseg.cli.typed import kinds_from, typed_fields, typed_rows
from kseg.errors import KsegError, NotALogError, at_path
from kseg.files.names import PathKind, is_new
from kseg.format.request import FIELDS_DEFAULT, Request
from kseg.format.typed import Kinds, decode_columns
from kseg.format.workspace import Workspace
from kseg.log.log import Log
from kseg.log.reader import LogView, believed_end, log_pieces, segment_pieces
from kseg.workers import At, Kept, Put, Work, run_in_order

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns
    from kseg.internal import InternalTopic
    from kseg.log.reader import SegmentInfo


def read(
    paths: tuple[str, ...],
    form: str,
    encoding: str | None,
    isolation: str,
    open_transactions: str,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    offsets: Range,
    times: Range,
    key: bytes | None,
    limit: int | None,
    last: int | None,
    decode_as: str | None,
    raw: bool,
    decode_key: str | None,
    decode_value: str | None,
    follow: bool,
    jobs: int,
) -> int:
    """Do what the verb says; returns the exit code."""
    check_ranges(last=last, limit=limit)
    kinds = kinds_from(decode_key, decode_value)
    if kinds and decode_as is not None:
        raise click.UsageError("--decode and --decode-key or --decode-value exclude each other.")
    asked = Asked(offsets, times, isolation, key, limit, last, open_transactions)
    style = Style(form, encoding or ("utf8" if form == "text" else "base64"))
    selection = Selection(topics, partitions)
    by_topic = decoding(decode_as, raw=raw or bool(kinds))
    run = Reader(asked, style, output.binary_stdout(), by_topic, kinds, jobs)
    if follow:
        run.follow(one_partition(paths, selection).path)
    else:
        run.paths(paths, selection)
    tell_replaced(run.sinks.replaced)
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
    open_transactions: str = "wait"

    def request(self, columns: tuple[str, ...] = FIELDS_DEFAULT) -> Request:
        """The same as a reader takes it."""
        return Request(
            columns,
            self.offsets,
            self.times,
            isolation=self.isolation,
            open_transactions=self.open_transactions,
        )

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

    def lies_outside(self, log: LogView) -> bool:
        """Whether a log has none of the offsets, since it ends before them or begins behind."""
        first, end = self.offsets
        return (first is not None and first >= log.log_end_offset) or (
            end is not None and end <= log.log_start_offset
        )

    @property
    def plain_tail(self) -> bool:
        """Whether headers are enough to find the last N."""
        whole = self.offsets == self.times == ALL and self.key is None
        return self.last is not None and whole and self.isolation == "read_uncommitted"


@dataclass(frozen=True, slots=True)
class _Source:
    """What is read at a time: a file or a partition, and what its records are.

    Attributes:
        path: the file or the directory.
        directory: its name in rows; None for a file by itself.
        topic: the internal topic by whose schemas the records are decoded.
    """

    path: Path
    directory: str | None
    topic: InternalTopic | None


class Reader:
    """One run of the verb.

    Pieces of work put text, and functions to be called when all text before is written.
    """

    def __init__(
        self,
        asked: Asked,
        style: Style,
        out: IO[bytes],
        decoding: Decoding | None = None,
        kinds: Kinds | None = None,
        jobs: int = 1,
    ) -> None:
        """Start with nothing written and nothing found."""
        self.findings = 0
        self.sinks = RowSinks(out.write, limit=asked.limit, last=asked.last)
        self._decoding = decoding or Decoding()
        self._kinds = kinds or {}
        self._fields = typed_fields(self._kinds)
        self._asked = asked
        self._style = style
        self._out = out
        self._take = output.taker(out.write)
        self._headed = False
        self._memory = Kept(Workspace)
        self._jobs = 1 if self.sinks.counted else jobs
        #: Whether something was read that is not known to lie outside of the offsets.
        self._inside = False

    def paths(self, paths: tuple[str, ...], selection: Selection) -> None:
        """Write the records of everything under the paths."""
        refuse_replicas(paths, selection)
        if self._style.form == "csv" and self._decoding.by_name:
            # One head serves all lines: decoded by name is all or nothing.
            every = _topics(paths, selection, self._decoding)
            self._decoding = self._decoding._replace(by_name=all(every))
        run_in_order(self._pieces(paths, selection), self._take, threads=self._jobs)
        if self._inside:
            self.sinks.tell_nothing("record", self._asked.offsets, self._asked.times)

    def _pieces(self, paths: tuple[str, ...], selection: Selection) -> Iterator[Work]:
        seen: set[str] = set()
        for path, known in known_paths(paths):
            if known.kind is PathKind.FILE:
                if not is_new(path, seen) or os.path.dirname(os.path.realpath(path)) in seen:
                    continue
                self._inside = True
                yield from self._file(known.path)
                self.sinks.finish()
                continue
            for partition in logs_once(path, known, selection, seen):
                if self.sinks.full:
                    return
                yield from self._partition(LogView.open(partition.path))
                self.sinks.finish()

    def _file(self, path: Path) -> Iterator[Work]:
        if self._asked.isolation != "read_uncommitted":
            reason = "--isolation wants a partition directory, not one file of it."
            yield partial(_refuse, click.UsageError(reason))
            return
        known = known_path(str(path)).file
        if known is None or not known.kind.holds_batches:
            raise NotALogError("a file without records; 'kseg dump' shows it", path=path)
        segment = Segment.open(path)
        request = self._asked.request(_fields(kafka07=segment.kafka07))
        source = _Source(path, None, self._decoding.topic(None, path, known.kind))
        if self._jobs == 1:
            with segment:
                yield partial(self._all, segment.read(request), source)
        else:
            for work in segment_pieces(segment, self._memory, request):
                yield At(source.path, partial(self._piece, work, source))

    def _partition(self, log: LogView) -> Iterator[Work]:
        if self._asked.lies_outside(log):
            complain(f"kseg: {log.path}: nothing is there: {log.extent}")
        else:
            self._inside = True
            tell_left_out(log.path, log.left_out(self._asked.request()))
        if self._jobs == 1:
            yield self._whole(log)
            return
        source = self._source_of(log)
        for work in log_pieces(log, self._memory, self._request_for(log)):
            yield At(source.path, partial(self._piece, work, source))

    def _whole(self, log: LogView) -> Work:
        """A partition as one piece of work."""
        return partial(self._all, log.read(self._request_for(log)), self._source_of(log))

    def _source_of(self, log: LogView | Log) -> _Source:
        topic = self._decoding.topic(log.topic, None, None)
        return _Source(log.path, log.path.resolve().name, topic)

    def _request_for(self, log: LogView) -> Request:
        """The records to read of a partition."""
        names = _fields(kafka07=any(info.files.kafka07 for info in log.segments))
        request = self._asked.request(names)
        if self._asked.plain_tail:
            start = _start_of_tail(log, self._asked.last or 0)
            request = replace(request, offset=(start, self._asked.offsets[1]))
        return request

    def follow(self, path: Path) -> None:
        """Write the records of a partition, and then new ones as they come."""
        asked = self._asked
        with Log.open(path) as log:
            begin, end = log.log_start_offset, asked.offsets[1]
            if end is not None and self._end_of(log) >= end:
                self._now(log)
                return
            if asked.last is not None:
                # The tail is shown once; from there on nothing is held back any more.
                self._now(log)
                begin = self._end_of(log)
            sink = RowSink(self._out.write, limit=asked.limit)
            begin = max(begin, asked.offsets[0] or 0)
            self._out.flush()
            names, gone, source = _fields(kafka07=False), ReaderGone(), self._source_of(log)
            for columns in log.follow(begin, isolation=asked.isolation, stop=gone, columns=names):
                self._rows(columns, source, sink, self._take, asked.mask(columns))
                self._out.flush()
                if sink.full or (end is not None and int(columns["offset"][-1]) >= end - 1):
                    break
            self.sinks.add(sink.replaced, sink.is_empty)

    def _now(self, log: Log) -> None:
        """Write the records that there are, in this thread."""
        run_in_order([self._whole(log.view)], self._take, threads=1)
        self.sinks.finish()

    def _end_of(self, log: Log) -> int:
        committed = self._asked.isolation == "read_committed"
        return log.last_stable_offset if committed else log.log_end_offset

    # ---- doing -----------------------------------------------------------------------------------

    def _all(self, pieces: Iterator[RecordColumns], source: _Source, put: Put) -> None:
        """Put the rows of a whole source, until no further row is wanted."""
        with self.sinks.sink(put) as sink:
            for columns in pieces:
                self._rows(columns, source, sink, put)
                if sink.full:
                    return

    def _piece(self, work: Work, source: _Source, put: Put) -> None:
        """Put the rows of a piece of work that puts columns."""
        with self.sinks.sink(put) as sink:
            work(lambda columns: self._rows(columns, source, sink, put))

    def _rows(
        self,
        columns: RecordColumns,
        source: _Source,
        sink: RowSink,
        put: Put,
        mask: Mask | None = None,
    ) -> None:
        """Put the chosen records of a piece of columns, decoded by the schemas of a topic."""
        directory = source.directory
        if self._style.form == "csv":
            directory = directory or ""
        style = self._style.of(directory, Path(columns.source or "").name)
        if style.form == "csv" and not self._headed:
            put(partial(self._head, source.topic, style))
        key = self._asked.key
        if key is not None:
            same = equal_to(columns["key"], key)
            mask = same if mask is None else mask & same
        if source.topic is None:
            sink.take(self._records(columns, style), len(columns), mask)
            return
        from kseg.cli.decoded import decoded_rows  # few logs are of an internal topic

        for part in decoded_rows(columns, source.topic, style, mask, sink.left):
            sink.take(part.template, part.count)
            for error in part.faults:
                put(partial(self._found, error, columns.source))

    def _records(self, columns: RecordColumns, style: Style) -> Template:
        if not self._kinds:
            return record_rows(columns, style)
        return typed_rows(decode_columns(columns, self._kinds), style, self._fields)

    def _head(self, topic: InternalTopic | None, style: Style) -> None:
        """Write the first line of CSV, unless it is there."""
        if not self._headed:
            self._out.write(csv_head(self._fields_of(topic), style))
            self._headed = True

    def _fields_of(self, topic: InternalTopic | None) -> tuple[Field, ...]:
        if topic is None:
            return self._fields
        from kseg.cli.decoded import DECODED_FIELDS  # likewise

        return DECODED_FIELDS

    def _found(self, error: KsegError, source: str | None) -> None:
        """Report a record that is not what its schema says; its row has the bytes."""
        self.findings += 1
        self._out.flush()
        complain(f"kseg: {one_line(error if source is None else at_path(error, source))}")


def _refuse(error: Exception, put: Put) -> None:
    """A piece of work that fails, behind the results in front of it."""
    raise error


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


def _start_of_tail(log: LogView, count: int) -> int | None:
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


def _overlap(log: LogView, infos: tuple[SegmentInfo, ...]) -> bool:
    """Whether a segment reaches past the next one's base, so that records would count twice."""
    for info, following in pairwise(infos):
        with log.open_segment(info) as segment:
            end = believed_end(segment, following.base_offset)
        if end is not None and end > following.base_offset:
            return True
    return False
