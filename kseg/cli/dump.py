"""`kseg dump`: the contents of files, damaged batches too, as text, JSON lines or CSV."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final

import click
import numpy as np

from kseg.cli import output
from kseg.cli.failures import complain, one_line
from kseg.cli.options import Paths
from kseg.cli.paths import InputFile, batch_files, catalog_of
from kseg.cli.records import (
    RecordLines,
    Source,
    decoding,
    record_fields,
    row_style,
    stream_tiles,
    within,
)
from kseg.cli.rows import (
    BATCH_FIELDS,
    RECORD_FIELDS,
    UNKNOWN,
    RowWriter,
    Style,
    batch_rows,
    dump_workspace,
)
from kseg.cli.verbs.move import refuse_kafka_options
from kseg.commands import printable
from kseg.constants import INT64_MIN, ConnectTopic, StopReason
from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError, UnreadableError, at_path
from kseg.files.log_file import PIECE_BYTES, LogFile, Tile
from kseg.files.mapping import Mapping
from kseg.files.names import FileKind, FileName
from kseg.files.selection import Selection
from kseg.format.bodies import message_error
from kseg.format.columns import decode
from kseg.format.header import COLUMN, BatchTable, crc_error, stop_error
from kseg.format.request import Request
from kseg.format.take import take_equal
from kseg.format.values import RecordColumns
from kseg.internal import InternalTopic
from kseg.records.query import ALL
from kseg.workers import At, PerThread, Put, SharedUse, Work, each_at, putting, run_in_order

_STDIN = FileName(FileKind.LOG, 0)
_STDIN_PATH = Path("-")
#: The records, or the batches, of a part of a file.
Rows = RecordColumns | BatchTable
#: Also records of control batches, and of batches that do not match their checksums.
ALL_RECORDS: Final = Request(control=True, verify_crc=False, constants_once=True)


def dump(
    context: click.Context,
    /,
    paths: Paths,
    query: dict[str, Any],
    form: str,
    batches: bool,
    encoding: str | None,
    decode_as: str | None,
    raw: bool,
    **kafkas: Any,
) -> int:
    """Run the verb; returns the exit code."""
    refuse_kafka_options(kafkas)
    if not paths:
        raise click.MissingParameter(ctx=context, param=context.command.params[0])
    if batches and "key" in query:
        raise click.UsageError("--key chooses records; it cannot be used with --batches.")
    if batches and decode_as is not None:
        raise click.UsageError("--decode is about records; it cannot be used with --batches.")
    run = Dump(
        row_style(form, encoding),
        output.binary_stdout(),
        replace(ALL_RECORDS, offset=query.get("offset"), time=query.get("time")),
        batches=batches,
        mapping=query["mapping"],
        key=query.get("key"),
        limit=query.get("limit"),
        last=query.get("last"),
        jobs=query["threads"],
        **decoding(decode_as, raw),
    )
    run.paths(paths, Selection.of(query.get("topics"), query.get("partitions")))
    return run.end()


class Dump(RecordLines):
    """One run of the verb."""

    def __init__(
        self,
        style: Style,
        out: IO[bytes],
        request: Request = ALL_RECORDS,
        *,
        batches: bool = False,
        mapping: Mapping = "auto",
        key: bytes | None = None,
        limit: int | None = None,
        last: int | None = None,
        jobs: int = 1,
        **how: Any,
    ) -> None:
        """Start with nothing written and nothing found.

        Args:
            style: the style of the rows.
            out: the stream to which rows are written.
            request: the records.
            batches: write a row for each batch, not for each record.
            mapping: how files are opened.
            key: only records with this key.
            limit: stop after this number of rows; None for all.
            last: only this number of rows, the last ones of each partition; None for all.
            jobs: the number of threads.
            how: as for `RecordLines`.
        """
        super().__init__(style, out, **how)
        self.request = request
        self.last = last
        self._key = key
        self._left = limit
        self._held: deque[tuple[Rows, Source]] = deque()
        #: With a limit there is little work to share, so one thread does it.
        self._jobs = jobs if limit is None and last is None else 1
        self.fields = BATCH_FIELDS if batches else RECORD_FIELDS
        self._batches_only = batches
        self._mapping = mapping
        self._memory = PerThread(dump_workspace)
        self._met_log = False
        #: The most bytes to read of each file; None for all.
        self.bytes_max: int | None = None

    def paths(self, paths: Sequence[str], selection: Selection) -> None:
        """Dump everything under the paths."""
        run_in_order(self._pieces(paths, selection), self._take, threads=self._jobs)
        if self._met_log and not self.full:
            self.tell_nothing("batch" if self._batches_only else "record", self.request)

    def _pieces(self, paths: Sequence[str], selection: Selection) -> Iterator[Work]:
        """The work on all files, directory by directory."""
        files = self._found_under(paths, selection)
        titles = len(files) > 1 and self.style.form == "text"
        for directory, group in groupby(files, key=_directory_of):
            if directory == _STDIN_PATH:
                tiles = stream_tiles(sys.stdin.buffer)
                yield from each_at("-", self._log(next(group), tiles, is_last=True))
                self._finish()
                continue
            yield from self._partition(list(group), titles=titles)
            if self.full:
                return

    def _found_under(self, paths: Sequence[str], selection: Selection) -> list[InputFile]:
        """The files under the paths, each once.

        All lines of CSV have the same columns, so records are decoded according to their topic only
        if all files are of such topics.
        """
        files_by_path = dict[str, InputFile]()
        stdin_at = paths.index("-") if "-" in paths else len(paths)
        replicas = "all" if self._batches_only else "refuse"
        for named in (paths[:stdin_at], paths[stdin_at : stdin_at + 1], paths[stdin_at + 1 :]):
            if named == ("-",):
                files_by_path["-"] = InputFile(_STDIN_PATH, _STDIN)
                continue
            catalog = catalog_of(named, selection, files="all", replicas=replicas) if named else ()
            for file in (file for partition in catalog for file in batch_files(partition)):
                files_by_path.setdefault(os.path.realpath(file.path), file)
        files = list(files_by_path.values())
        if self.style.form == "csv" and self.by_name:
            logs = (file for file in files if file.name.kind.holds_batches)
            self.by_name = all(self._topic(file) for file in logs)
        return files

    def _topic(self, source: InputFile) -> InternalTopic | ConnectTopic | None:
        """The internal topic whose schemas decode the records of a file; None for other files."""
        if self._batches_only:
            return None
        topic = None if source.partition is None else source.partition.topic
        itself = source.partition is None and source.path != _STDIN_PATH
        return self.topic_of(topic, source.path if itself else None, source.name.kind)

    def _partition(self, files: list[InputFile], *, titles: bool) -> Iterator[Work]:
        """Dump files of one directory; zeros at the end of the last one are no damage."""
        holds_rows = self.last is not None
        if titles and holds_rows:
            # The files that the last rows are in are not known yet.
            yield putting(_title(files[0].path.parent))
        for source in files:
            if not source.name.kind.holds_batches:
                yield At(source.path, partial(self._entries, source))
        logs, start = self._files_in_range([file for file in files if file.name.kind.holds_batches])
        for number, source in enumerate(logs):
            if self.full:
                return
            if titles and not holds_rows:
                yield putting(_title(source.path))
            pieces = self._file(source, start if number == 0 else 0, number == len(logs) - 1)
            yield from each_at(source.path, pieces)
        self._finish()

    def _file(self, source: InputFile, start: int, is_last: bool) -> Iterator[Work]:
        """Dump one log from a position on; `is_last` as in `_log`."""
        unreadable: list[KsegError] = []
        file = LogFile.open(source.path, self._mapping)
        with SharedUse(file.close) as use:
            tiles = file.walk(
                start=start,
                end=self.bytes_max,
                on_bad_crc="note",
                on_unreadable=unreadable.append,
                tile_bytes=PIECE_BYTES if self._jobs > 1 else None,
            )
            for work in self._log(source, tiles, is_last):
                for error in unreadable:
                    yield partial(self.find, error, source.path)
                unreadable.clear()
                yield use.to(work)

    def _files_in_range(self, logs: list[InputFile]) -> tuple[list[InputFile], int]:
        """The files that can hold the wanted records, and the position to begin at in the first."""
        takes_all = self.request.bounds == (ALL, ALL) and self._key is None
        if self.last is not None and takes_all and not self._batches_only:
            from kseg.records.narrowing import tail_of

            skipped, start = tail_of(
                [source.path for source in logs], self.last, mapping=self._mapping
            )
            return logs[skipped:], start
        return list(_segments_in_range(logs, self.request)) if len(logs) > 1 else logs, 0

    def _entries(self, source: InputFile, put: Put) -> None:
        """Dump the entries of a file that is not a log; damage is a finding."""
        try:
            self._write_entries(source, put)
        except (CorruptIndexError, UnreadableError) as error:
            self.find(error, source.path, put)

    def _write_entries(self, source: InputFile, put: Put) -> None:
        """Write the entries of a file that is not a log."""
        from kseg.cli.decoded import dump_entries

        style = self.style_of(source.directory, source.path.name)
        dump_entries(source, style, RowWriter(put), put)

    def _log(self, file: InputFile, tiles: Iterator[Tile], is_last: bool) -> Iterator[Work]:
        """Dump one file of batches, up to bytes that are not a batch.

        Args:
            file: the file.
            tiles: the tiles of a walk over it.
            is_last: whether it is the last file of its partition, which may end in zeros.
        """
        self._met_log = True
        style = self.style_of(file.directory, file.path.name)
        source = Source(file.path, style, self._topic(file), is_last)
        if style.form == "csv":
            yield putting(partial(self.write_head, source))
        for tile in tiles:
            yield partial(self._tile, tile, source)
            if self.full:
                return

    def _tile(self, tile: Tile, source: Source, put: Put) -> None:
        """Write the rows of a tile, and report its damage."""
        with self.sink(put) as sink:
            if tile.table.bad_crc_count:
                for row in np.flatnonzero(tile.table.crc_ok == 0).tolist():
                    self.find(crc_error(tile.table[row]), source.path, put)
            if self._batches_only:
                self._batches(tile, source, sink, put)
            else:
                self._columns(tile, source, sink, put)
        if not self.full:
            self._end(tile.table, source, put)

    def _columns(self, tile: Tile, source: Source, sink: RowWriter, put: Put) -> None:
        """Write the records of a tile."""
        fields = record_fields(kafka07=tile.table.kafka07)
        request = replace(self.request, columns=fields)
        for columns in self._decode_tile(tile, request, source, put):
            chosen = columns if self._key is None else take_equal(columns, self._key)
            self._take_rows(chosen, source, sink, put)
            if self.full:
                return

    def _decode_tile(
        self, tile: Tile, request: Request, source: Source, put: Put
    ) -> Iterator[RecordColumns]:
        """The records of a tile, without those that cannot be decoded, which are reported."""
        with self._memory.one() as workspace:
            pieces = decode(
                tile.data,
                tile.table,
                request,
                base=tile.base,
                workspace=workspace,
                on_error=lambda error: self._report_undecoded(error, source, put),
            )
            for columns in pieces:
                for error in message_errors(columns, tile.table):
                    self.find(error, source.path, put)
                yield columns

    def _batches(self, tile: Tile, source: Source, sink: RowWriter, put: Put) -> None:
        """Write a row for each wanted batch of a tile."""
        table = complete_wrappers(
            tile.data,
            tile.base,
            tile.table,
            lambda error: self._report_undecoded(error, source, put),
        )
        offsets = table.last_offset, table.base_offset
        times = table.max_timestamp, table.base_timestamp
        keep = within(self.request, len(table), offsets, times)
        table = table if keep.all() else table.take(keep)
        self._take_rows(table, source, sink, put)

    # ---- counted rows ----------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether no further row is wanted."""
        return self._left == 0

    def _take_rows(self, rows: Rows, source: Source, sink: RowWriter, put: Put) -> None:
        """Write records or batches within the limit; with `last`, only remember the latest."""
        if self._left is not None:
            rows = rows[: self._left]
            self._left -= len(rows)
        if self.last is None:
            self._write_rows(rows, source, sink, put)
            return
        self._held.append((rows, source))
        surplus = sum(len(rows_held) for rows_held, _source in self._held) - self.last
        while self._held and len(self._held[0][0]) <= surplus:
            surplus -= len(self._held.popleft()[0])

    def _write_rows(self, rows: Rows, source: Source, sink: RowWriter, put: Put) -> None:
        """Write records or batches."""
        if isinstance(rows, BatchTable):
            sink.rows(batch_rows(rows, source.style), len(rows))
        else:
            self.write_columns(rows, source, sink, put)

    def _finish(self) -> None:
        """Write the rows that are held back; the next rows belong to another partition."""
        surplus = sum(len(rows_held) for rows_held, _source in self._held) - (self.last or 0)
        with self.sink(self._take) as sink:
            for rows, source in self._held:
                latest = rows[max(surplus, 0) :]
                self._write_rows(latest, source, sink, self._take)
                surplus = 0
        self._held.clear()

    def _report_undecoded(self, error: KsegError, source: Source, put: Put) -> None:
        """Report a batch whose records cannot all be shown, unless its checksum is the reason."""
        if error.stop is None:
            self.find(error, source.path, put)

    def _end(self, table: BatchTable, source: Source, put: Put) -> None:
        """Report why a walk ended before its file did."""
        if table.stop in (StopReason.END, StopReason.LIMIT):
            return
        error = at_path(stop_error(table), source.path)
        if table.stop is StopReason.ZERO_TAIL and source.is_last:
            line = f"kseg: warning: {one_line(error)}, as preallocation leaves them"
            put(partial(complain, line))
        else:
            self.find(error, source.path, put)


def _directory_of(file: InputFile) -> Path:
    """The directory of a file; of standard input, its own name."""
    return file.path if file.path == _STDIN_PATH else file.path.parent


def _title(path: Path) -> bytes:
    """The line of text before the rows of a file, or of a directory."""
    return f"# {printable(str(path))}\n".encode()


def _segments_in_range(logs: list[InputFile], request: Request) -> Iterator[InputFile]:
    """The segments that can have offsets in the range of a request, by their base offsets."""
    bases = [
        INT64_MIN if source.name.base_offset is None else source.name.base_offset for source in logs
    ]
    for number, source in enumerate(logs):
        later = [base for base in bases[number + 1 :] if base > bases[number]]
        if bases[number] < request.offset_end and (not later or later[0] > request.offset_start):
            yield source


def complete_wrappers(
    data: memoryview, base: int, table: BatchTable, on_error: Callable[[KsegError], None]
) -> BatchTable:
    """Fill in `base_offset` and `record_count` of compressed messages, which are inflated for that.

    Both become `UNKNOWN` for a message that cannot be inflated.

    Args:
        data: the bytes of the file from `base` on.
        base: the position of `data[0]` in the file.
        table: the headers of batches inside `data`.
        on_error: called with each error in these batches.
    """
    wrapped = table.is_wrapper
    if not wrapped.any():
        return table
    rows = table.rows.copy()
    fields = ("position", "base_offset", "offset", "valid")
    request = Request(columns=fields, control=True, verify_crc=False)
    count = rows[:, COLUMN["record_count"]]
    first = rows[:, COLUMN["base_offset"]]
    count[wrapped] = first[wrapped] = UNKNOWN
    for columns in decode(data, table.take(wrapped), request, base=base, on_error=on_error):
        for error in message_errors(columns, table):
            on_error(error)
        positions, starts, counts = np.unique(
            columns.position, return_index=True, return_counts=True
        )
        at = np.searchsorted(table.position, positions)
        fresh = count[at] == UNKNOWN
        first[at[fresh]] = columns.base_offset[starts[fresh]]
        count[at] = np.maximum(count[at], 0) + counts
    return replace(table, rows=rows)


def message_errors(columns: RecordColumns, table: BatchTable) -> Iterator[CorruptRecordError]:
    """An error for each message in a sound wrapper whose own checksum is wrong.

    Args:
        columns: the messages: `position`, `offset` and `valid`.
        table: the headers of their wrappers, with the results of the checksums.
    """
    rows = np.flatnonzero(~columns.valid)
    if not len(rows):
        return
    outer = np.searchsorted(table.position, columns.position[rows])
    for row in rows[table.crc_ok[outer] != 0].tolist():
        yield message_error(int(columns.position[row]), int(columns.offset[row]))
