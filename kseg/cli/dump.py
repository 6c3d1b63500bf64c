"""`kseg dump`: the contents of files, damaged batches too, as text, JSON lines or CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from kseg.cli import output
from kseg.cli.batches import complete_wrappers, holding, message_errors, tail_of
from kseg.cli.decoding import Decoding, decoding
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain, one_line, tell_replaced
from kseg.cli.kafka_dump.options import refuse_kafka_options
from kseg.cli.options import check_ranges
from kseg.cli.parsing import ALL, Range, Selection
from kseg.cli.paths import InputFile, refuse_replicas, sources
from kseg.cli.row_writer import (
    Mask,
    RowSink,
    RowSinks,
    RowWriter,
    dump_workspace,
    each_stretch,
    equal_to,
    inexact,
)
from kseg.cli.rows import (
    BATCH_FIELDS,
    RECORD_FIELDS,
    Field,
    Style,
    batch_rows,
    csv_head,
    record_rows,
    stored_rows,
)
from kseg.cli.streams import stream_tiles
from kseg.constants import StopReason
from kseg.errors import CorruptIndexError, KsegError, UnreadableError, at_path
from kseg.files.log_file import PIECE_BYTES, LogFile, Tile
from kseg.files.names import FileKind, FileName, is_new
from kseg.format.columns import decode
from kseg.format.header import BatchTable, crc_error, stop_error
from kseg.format.request import INT64_MIN, NO_END, Request
from kseg.workers import At, Kept, Lent, Put, Work, each_at, putting, run_in_order

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.format.values import RecordColumns
    from kseg.internal import InternalTopic

_STDIN, _STDIN_PATH = FileName(FileKind.LOG, 0), Path("-")


def dump(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    form: str,
    batches: bool,
    encoding: str | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    offsets: Range,
    times: Range,
    key: bytes | None,
    limit: int | None,
    last: int | None,
    mapping: Mapping,
    decode_as: str | None,
    raw: bool,
    jobs: int,
    **kafkas: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    refuse_kafka_options(kafkas)
    if not paths:
        raise click.MissingParameter(ctx=context, param=context.command.params[0])
    check_ranges(last=last, limit=limit)
    if batches and key is not None:
        raise click.UsageError("--key chooses records; it does not go with --batches.")
    if batches and decode_as is not None:
        raise click.UsageError("--decode is about records; it does not go with --batches.")
    style = Style(form, encoding or ("utf8" if form == "text" else "base64"))
    asked = Asked(batches, offsets, times, key, limit, last, mapping)
    how = decoding(decode_as, raw)
    run = Dump(asked, style, output.binary_stdout(), how, jobs)
    run.paths(paths, Selection(topics, partitions))
    tell_replaced(run.sinks.replaced)
    return Exit.FOUND if run.findings else Exit.OK


class Asked(NamedTuple):
    """The records or batches that the user asks for."""

    batches: bool
    offsets: Range = ALL
    times: Range = ALL
    key: bytes | None = None
    limit: int | None = None
    last: int | None = None
    mapping: Mapping = "auto"

    def request(self, kafka07: bool) -> Request:
        """The same as a `Request`."""
        names = (field.name for field in RECORD_FIELDS)
        return Request(
            columns=tuple(name for name in names if kafka07 or name != "next_offset"),
            offset=(_or(self.offsets[0], INT64_MIN), _or(self.offsets[1], NO_END)),
            time=(_or(self.times[0], INT64_MIN), _or(self.times[1], NO_END)),
            control=True,
            verify_crc=False,
            constants_once=True,
        )


def _or(bound: int | None, default: int) -> int:
    return default if bound is None else bound


class _Log(NamedTuple):
    """One log: where it is, how its rows look, what its records are, whether it is the last."""

    source: InputFile
    style: Style
    topic: InternalTopic | None
    last: bool


class Dump:
    """One run of the verb: where rows go, and the faults so far.

    Pieces of work put text, and functions to be called when all text before is written.
    """

    def __init__(
        self,
        asked: Asked,
        style: Style,
        out: IO[bytes],
        decoding: Decoding | None = None,
        jobs: int = 1,
    ) -> None:
        """Start with nothing written and nothing found."""
        self.asked = asked
        self.style = style
        self.out = out
        self.decoding = decoding or Decoding()
        self.findings = 0
        self.sinks = RowSinks(out.write, limit=asked.limit, last=asked.last)
        self._memory = Kept(dump_workspace)
        self._headed = False
        self._met_log = False
        self._jobs = 1 if self.sinks.counted else jobs

    def paths(self, paths: Iterable[str], selection: Selection) -> None:
        """Dump everything under the paths."""
        chosen, given = list(paths), [path for path in paths if path != "-"]
        if not self.asked.batches:
            refuse_replicas(given, selection, files=False)
        paths = chosen
        take = output.taker(self.out.write)
        run_in_order(self._pieces(paths, selection), take, threads=self._jobs)
        if self._met_log:
            noun = "batch" if self.asked.batches else "record"
            self.sinks.tell_nothing(noun, self.asked.offsets, self.asked.times)

    def _pieces(self, paths: Iterable[str], selection: Selection) -> Iterator[Work]:
        several = False
        for path, found in self._found_under(paths, selection):
            if path == "-":
                tiles = stream_tiles(sys.stdin.buffer)
                yield from each_at(path, self._log(found[0], tiles, True))
                self.sinks.finish()
                continue
            several = several or len(found) > 1
            for _directory, group in groupby(found, key=lambda source: source.path.parent):
                yield from self._partition(
                    list(group), titles=several and self.style.form == "text"
                )
                if self.sinks.full:
                    return
            several = True

    def _found_under(
        self, paths: Iterable[str], selection: Selection
    ) -> Iterable[tuple[str, list[InputFile]]]:
        """The files under each path, listed when its turn comes; for CSV all of them at once.

        Lines of CSV have one head, so that records are decoded by the name of their topic only if
        all are.
        """
        seen: set[str] = set()
        found = (
            (path, [_stdin_source()] if path == "-" else list(_new(path, selection, seen)))
            for path in paths
        )
        if self.style.form != "csv" or not self.decoding.by_name:
            return found
        every = list(found)
        logs = (one for _, files in every for one in files if one.name.kind.holds_batches)
        if any(self._topic(source) is None for source in logs):
            self.decoding = self.decoding._replace(by_name=False)
        return every

    def _topic(self, source: InputFile) -> InternalTopic | None:
        """The internal topic by whose schemas the records of a file are decoded."""
        itself = source.directory is None and source.path != _STDIN_PATH
        path = source.path if itself else None
        return self.decoding.topic(source.topic, path, source.name.kind)

    def _partition(self, found: list[InputFile], *, titles: bool) -> Iterator[Work]:
        """Dump files of one directory; the last one may end in zeros without harm."""
        last = self.asked.last is not None
        if titles and last:
            # Which files the rows come from is not known yet.
            yield putting(_title(found[0].path.parent))
        for source in found:
            if not source.name.kind.holds_batches:
                yield At(source.path, partial(self._entries, source))
        logs, start = self._narrowed([one for one in found if one.name.kind.holds_batches])
        for number, source in enumerate(logs):
            if self.sinks.full:
                return
            if titles and not last:
                yield putting(_title(source.path))
            pieces = self._file(source, start if number == 0 else 0, number == len(logs) - 1)
            yield from each_at(source.path, pieces)
        self.sinks.finish()

    def _file(self, source: InputFile, start: int, last: bool) -> Iterator[Work]:
        """Dump one log from a position on."""
        unreadable: list[KsegError] = []
        file = LogFile.open(source.path, self.asked.mapping)
        with Lent(file.close) as lent:
            tiles = file.walk(
                start=start,
                on_bad_crc="note",
                on_unreadable=unreadable.append,
                tile_bytes=PIECE_BYTES if self._jobs > 1 else None,
            )
            for work in self._log(source, tiles, last):
                for error in unreadable:
                    yield partial(self._find, error, source)
                unreadable.clear()
                yield lent.to(work)

    def _narrowed(self, logs: list[InputFile]) -> tuple[list[InputFile], int]:
        """The files that can hold what is wanted, and where to begin in the first of them."""
        if self.asked.last is not None and self._plain_tail:
            skipped, start = tail_of(
                [source.path for source in logs], self.asked.last, mapping=self.asked.mapping
            )
            return logs[skipped:], start
        return list(_overlapping(logs, self.asked.offsets)) if len(logs) > 1 else logs, 0

    @property
    def _plain_tail(self) -> bool:
        """Whether headers are enough to find the last N."""
        asked = self.asked
        return not asked.batches and asked.offsets == asked.times == ALL and asked.key is None

    def _entries(self, source: InputFile, put: Put) -> None:
        from kseg.cli.entries import dump_entries  # the readers of every other file; logs need none

        try:
            dump_entries(source, self._style_of(source), RowWriter(put), put)
        except (CorruptIndexError, UnreadableError) as error:
            self._find(error, source, put)

    def _style_of(self, source: InputFile) -> Style:
        directory = source.directory
        if self.style.form == "csv":
            directory = directory or ""
        return self.style.of(directory, source.path.name)

    def _log(self, source: InputFile, tiles: Iterator[Tile], last: bool) -> Iterator[Work]:
        """Dump one file of batches, up to bytes that are no batch."""
        self._met_log = True
        style, topic = self._style_of(source), self._topic(source)
        if style.form == "csv" and not self._headed:
            yield putting(csv_head(self._fields(topic), style))
            self._headed = True
        for tile in tiles:
            yield partial(self._tile, tile, _Log(source, style, topic, last))
            if self.sinks.full:
                return

    def _fields(self, topic: InternalTopic | None) -> tuple[Field, ...]:
        """What a line has."""
        if self.asked.batches:
            return BATCH_FIELDS
        if topic is None:
            return RECORD_FIELDS
        from kseg.cli.decoded import DECODED_FIELDS  # few files belong to an internal topic

        return DECODED_FIELDS

    def _tile(self, tile: Tile, log: _Log, put: Put) -> None:
        with self.sinks.sink(put) as sink:
            self._bad_checksums(tile.table, log.source, put)
            if self.asked.batches:
                self._batches(tile, log, sink, put)
            else:
                self._records(tile, log, sink, put)
        if not self.sinks.full:
            self._end(tile.table, log, put)

    def _records(self, tile: Tile, log: _Log, sink: RowSink, put: Put) -> None:
        def direct(start: int, end: int) -> int:
            return sink.take_stored(template, tile, start, end)

        def columns(start: int, end: int) -> None:
            if not sink.full:
                self._columns(
                    tile._replace(table=tile.table.take(slice(start, end))), log, sink, put
                )

        if not self._whole(tile.table, log):
            self._columns(tile, log, sink, put)
            return
        template = stored_rows(tile.table, log.style)
        each_stretch(tile.table, None if inexact(template) else direct, columns)

    def _whole(self, table: BatchTable, log: _Log) -> bool:
        """Whether all records of a table are written as they are stored."""
        asked = self.asked
        every = asked.offsets == asked.times == ALL and asked.key is None
        return every and not self.sinks.counted and log.topic is None and not table.kafka07

    def _columns(self, tile: Tile, log: _Log, sink: RowSink, put: Put) -> None:
        request = self.asked.request(tile.table.kafka07)
        key = self.asked.key
        with self._memory.one() as workspace:
            pieces = decode(
                tile.data,
                tile.table,
                request,
                base=tile.base,
                workspace=workspace,
                on_error=lambda error: self._undecoded(error, log.source, put),
            )
            for columns in pieces:
                for error in message_errors(columns, tile.table):
                    self._find(error, log.source, put)
                mask = None if key is None else equal_to(columns["key"], key)
                if log.topic is None:
                    sink.take(record_rows(columns, log.style), len(columns), mask)
                else:
                    self._decoded(columns, mask, log, sink, put)
                if sink.full:
                    return

    def _decoded(
        self, columns: RecordColumns, mask: Mask | None, log: _Log, sink: RowSink, put: Put
    ) -> None:
        from kseg.cli.decoded import decoded_rows  # likewise

        assert log.topic is not None
        for part in decoded_rows(columns, log.topic, log.style, mask, sink.left):
            sink.take(part.template, part.count)
            for error in part.faults:
                self._find(error, log.source, put)

    def _batches(self, tile: Tile, log: _Log, sink: RowSink, put: Put) -> None:
        table = complete_wrappers(
            tile.data, tile.base, tile.table, lambda error: self._undecoded(error, log.source, put)
        )
        table = holding(table, self.asked.offsets, self.asked.times)
        sink.take(batch_rows(table, log.style), len(table))

    def _undecoded(self, error: KsegError, source: InputFile, put: Put) -> None:
        """A batch whose records cannot all be shown; for a checksum, that has been said."""
        if error.stop is None:
            self._find(error, source, put)

    def _bad_checksums(self, table: BatchTable, source: InputFile, put: Put) -> None:
        if table.bad_crc_count:
            for row in np.flatnonzero(table.crc_ok == 0).tolist():
                self._find(crc_error(table[row]), source, put)

    def _end(self, table: BatchTable, log: _Log, put: Put) -> None:
        """Report why a walk ended before its file did."""
        if table.stop in (StopReason.END, StopReason.LIMIT):
            return
        error = at_path(stop_error(table), log.source.path)
        if table.stop is StopReason.ZERO_TAIL and log.last:
            line = f"kseg: warning: {one_line(error)}, as preallocation leaves them"
            put(partial(complain, line))
        else:
            self._find(error, log.source, put)

    def _find(self, error: KsegError, source: InputFile, put: Put) -> None:
        put(partial(self._found, at_path(error, source.path)))

    def _found(self, error: KsegError) -> None:
        self.findings += 1
        self.out.flush()
        complain(f"kseg: {one_line(error)}")


def _new(path: str, selection: Selection, seen: set[str]) -> Iterator[InputFile]:
    """The files under a path that were not under one before."""
    return (source for source in sources((path,), selection) if is_new(source.path, seen))


def _title(path: Path) -> bytes:
    return f"# {printable(str(path))}\n".encode()


def _stdin_source() -> InputFile:
    return InputFile(_STDIN_PATH, _STDIN)


def _overlapping(logs: list[InputFile], offsets: Range) -> Iterator[InputFile]:
    """The segments whose base offsets leave room for the range."""
    first, end = _or(offsets[0], INT64_MIN), _or(offsets[1], NO_END)
    bases = [_or(source.name.base_offset, INT64_MIN) for source in logs]
    for number, source in enumerate(logs):
        later = [base for base in bases[number + 1 :] if base > bases[number]]
        if bases[number] < end and (not later or later[0] > first):
            yield source
