"""`kseg read`: the records of a log as a consumer would see them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from kseg import Segment
from kseg.cli import output
from kseg.cli.failures import complain, tell_left_out, usage_errors
from kseg.cli.options import LOCAL_PATH, check_ranges
from kseg.cli.parsing import Paths
from kseg.cli.paths import (
    known_path,
    known_paths,
    logs_once,
    one_partition,
    refuse_replicas,
    view_of,
)
from kseg.cli.paths import partitions as partitions_of
from kseg.cli.records import (
    RecordLines,
    Source,
    decoding,
    record_fields,
    row_style,
    within,
)
from kseg.cli.row_writer import RowSink, Template
from kseg.cli.rows import Style
from kseg.cli.starting import ReaderGone
from kseg.cli.typed import kinds_from, typed_fields, typed_rows
from kseg.constants import Bools
from kseg.errors import KsegError, NotALogError
from kseg.files.names import PathKind, is_new
from kseg.files.selection import Selection
from kseg.format.request import Request, key_needle
from kseg.format.typed import Kinds, decode_columns
from kseg.format.values import RecordColumns
from kseg.format.workspace import Workspace
from kseg.internal import InternalTopic
from kseg.log.log import Log
from kseg.log.reader import LogView, log_pieces, segment_pieces
from kseg.records.query import Range
from kseg.records.tail import start_of_tail
from kseg.workers import At, PerThread, Put, Work, run_in_order


def read(
    paths: Paths,
    form: str,
    encoding: str | None,
    on_corrupt: str,
    isolation: str,
    open_transactions: str,
    selection: Selection,
    offsets: Range,
    times: Range,
    key: bytes | None,
    partitioner: str | None,
    counts: tuple[int, ...],
    limit: int | None,
    last: int | None,
    decode_as: str | None,
    raw: bool,
    decode_key: str | None,
    decode_value: str | None,
    schemas: tuple[str, ...],
    subject: str | None,
    schema_version: int | None,
    record: str | None,
    follow: bool,
    recreated: str,
    jobs: int,
) -> int:
    """Run the verb; returns the exit code."""
    check_ranges(last=last, limit=limit)
    kinds = kinds_from(
        *({"key": decode_key, "value": decode_value}, paths, selection.topics, schemas),
        subject=subject,
        schema_version=schema_version,
        record=record,
    )
    if kinds and decode_as is not None:
        raise click.UsageError("--decode and --decode-key or --decode-value exclude each other.")
    if (partitioner or counts) and not (partitioner and key is not None and not follow):
        raise click.UsageError(
            "--partitions wants --partitioner, which wants --key and no --follow."
        )
    _check_follow(follow, recreated, on_corrupt)
    request = Request(
        offset=offsets,
        time=times,
        isolation=isolation,
        open_transactions=open_transactions,
        contains=key_needle(key),
    )
    run = Reader(
        row_style(form, encoding),
        output.binary_stdout(),
        request,
        kinds,
        key=key,
        limit=limit,
        last=last,
        jobs=jobs,
        **decoding(decode_as, raw=raw or bool(kinds)),
    )
    if on_corrupt == "skip":
        run.skip_damage()
    if follow:
        LOCAL_PATH.convert(paths[0], None, None)  # nothing tells of changes in a store
        run.follow(one_partition(paths, selection).path, recreated)
    else:
        if partitioner is not None:
            paths = _paths_with(key, partitioner, counts, paths, selection.topics, request)
        run.paths(paths, selection)
    return run.end()


def _check_follow(follow: bool, recreated: str, on_corrupt: str) -> None:
    """Refuse options that go only with `--follow`, or not with it.

    Raises:
        UsageError: there is one.
    """
    if recreated == "start" and not follow:
        raise click.UsageError("--recreated wants --follow.")
    if follow and on_corrupt == "skip":
        raise click.UsageError("--follow ends at damage: --on-corrupt skip is for other reads.")


def _paths_with(
    key: bytes | None,
    partitioner: str,
    counts: tuple[int, ...],
    paths: Paths,
    topics: tuple[str, ...],
    request: Request,
) -> Paths:
    """The files and partitions that can have a key."""
    from kseg.records.scan import scan  # only a search for a key needs it

    with usage_errors():
        found = scan(
            paths,
            topics=topics or None,
            partitions=counts or None,
            partitioner=partitioner,
            key=key,
            offset=request.offset,
            time=request.time,
        )
    return tuple(str(source.path) for source in found.sources)


class Reader(RecordLines):
    """One run of the verb."""

    def __init__(
        self, style: Style, out: IO[bytes], request: Request, kinds: Kinds, **how: Any
    ) -> None:
        """Start with nothing written and nothing found.

        Args:
            style: the form of rows.
            out: takes the rows.
            request: the records.
            kinds: of decoded keys and values.
            how: as for `RecordLines`.
        """
        super().__init__(style, out, request, **how)
        self.fields = typed_fields(kinds)
        self._kinds = kinds
        self._memory = PerThread(Workspace)
        #: Whether something was read that is not known to lie outside of the offsets.
        self._inside = False
        self._faults: list[KsegError] = []

    def skip_damage(self) -> None:
        """Leave damaged batches out, and report them."""
        self.request = replace(self.request, on_corrupt=self._faults.append)

    def paths(self, paths: Paths, selection: Selection) -> None:
        """Write the records of everything under the paths."""
        refuse_replicas(paths, selection)
        if self.style.form == "csv" and self.by_name:
            # One head serves all lines: decoded by name is all or nothing.
            self.by_name = all(self._topics(paths, selection))
        run_in_order(self._pieces(paths, selection), self._take, threads=self._jobs)
        if self._inside:
            self.sinks.tell_nothing("record", self.request)

    def _pieces(self, paths: Paths, selection: Selection) -> Iterator[Work]:
        seen: set[str] = set()
        for path, known in known_paths(paths):
            self.is_of_many = len(paths) > 1 or known.kind is PathKind.DATA_DIRECTORY
            if known.kind is PathKind.FILE:
                if not is_new(path, seen) or os.path.dirname(os.path.realpath(path)) in seen:
                    continue
                self._inside = True
                yield from self._file(known.path)
                self.sinks.finish()
                continue
            for partition in logs_once(path, selection, seen):
                if self.sinks.full:
                    return
                yield from self._partition(view_of(partition.path))
                self.sinks.finish()

    def _file(self, path: Path) -> Iterator[Work]:
        if self.request.isolation != "read_uncommitted":
            reason = "--isolation wants a partition directory, not one file of it."
            yield partial(_refuse, click.UsageError(reason))
            return
        known = known_path(str(path)).file
        if known is None or not known.kind.holds_batches:
            raise NotALogError("a file without records; 'kseg dump' shows it", path=path)
        segment = Segment.open(path)
        request = replace(self.request, columns=record_fields(kafka07=segment.kafka07))
        source = Source(path, self.style_of(None, None), self.topic_of(None, path, known.kind))
        if self._jobs == 1:
            with segment:
                yield partial(self._all, segment.read(request), source)
        else:
            for work in segment_pieces(segment, self._memory, request):
                yield At(source.path, partial(self._piece, work, source))

    def _partition(self, log: LogView) -> Iterator[Work]:
        request = self.request
        if request.offset_start >= log.log_end_offset or request.offset_end <= log.log_start_offset:
            complain(f"kseg: {log.path}: nothing is there: {log.extent}")
        else:
            self._inside = True
            tell_left_out(log.path, log.left_out(request))
        if self._jobs == 1:
            yield self._whole(log)
            return
        source = self._source_of(log)
        for work in log_pieces(log, self._memory, self._request_for(log)):
            if self.sinks.full:
                return
            yield At(source.path, partial(self._piece, work, source))

    def _whole(self, log: LogView) -> Work:
        """A partition as one piece of work."""
        return partial(self._all, log.read(self._request_for(log)), self._source_of(log))

    def _source_of(self, log: LogView | Log) -> Source:
        style = self.style_of(log.path.resolve().name, None)
        return Source(log.path, style, self.topic_of(log.topic, None, None))

    def _request_for(self, log: LogView) -> Request:
        """The records to read of a partition."""
        names = record_fields(kafka07=any(info.files.kafka07 for info in log.segments))
        request = replace(self.request, columns=names)
        if self.last is None or not self.takes_all or request.isolation != "read_uncommitted":
            return request
        return replace(request, offset=(start_of_tail(log, self.last, control=False), None))

    def follow(self, path: Path, recreated: str) -> None:
        """Write the records of a partition, and then new ones as they come."""
        request = self.request
        with Log.open(path) as log:
            begin, end = log.log_start_offset, request.offset_end
            if self._end_of(log) >= end:
                self._now(log)
                return
            if self.last is not None:
                # The tail is shown once; from there on nothing is held back any more.
                self._now(log)
                begin = self._end_of(log)
            sink = RowSink(self.out.write, limit=self.limit)
            begin = max(begin, request.offset_start)
            self.out.flush()
            names, gone, source = record_fields(kafka07=False), ReaderGone(), self._source_of(log)
            how: Any = {"isolation": request.isolation, "columns": names}
            for columns in log.follow(begin, stop=gone, recreated=recreated, **how):
                self._rows(columns, source, sink, self._take, self._wanted(columns))
                self.out.flush()
                if sink.full or int(columns["offset"][-1]) >= end - 1:
                    break
            self.sinks.add(sink.replaced, sink.is_empty)

    def _wanted(self, columns: RecordColumns) -> Bools:
        """bool[n]: new records within the bounds; only the isolation was applied before."""
        offsets, times = columns["offset"], columns["timestamp_ms"]
        return within(self.request, len(columns), (offsets, offsets), (times, times))

    def _now(self, log: Log) -> None:
        """Write the records that there are, in this thread."""
        run_in_order([self._whole(log.view)], self._take, threads=1)
        self.sinks.finish()

    def _end_of(self, log: Log) -> int:
        committed = self.request.isolation == "read_committed"
        return log.last_stable_offset if committed else log.log_end_offset

    # ---- doing -----------------------------------------------------------------------------------

    def _all(self, pieces: Iterator[RecordColumns], source: Source, put: Put) -> None:
        """Put the rows of a whole source, until no further row is wanted."""
        with self.sinks.sink(put) as sink:
            for columns in pieces:
                self._find_all(put)
                self._rows(columns, source, sink, put)
                if sink.full:
                    return
            self._find_all(put)

    def _find_all(self, put: Put) -> None:
        """Report the faults that were skipped since."""
        for error in self._faults:
            self.find(error, error.path or "", put)
        self._faults.clear()

    def _piece(self, work: Work, source: Source, put: Put) -> None:
        """Put the rows of a piece of work that puts columns."""
        with self.sinks.sink(put) as sink:

            def take(got: RecordColumns | KsegError) -> None:
                if isinstance(got, KsegError):
                    self.find(got, got.path or "", put)
                else:
                    self._rows(got, source, sink, put)

            work(take)

    def _rows(
        self,
        columns: RecordColumns,
        source: Source,
        sink: RowSink,
        put: Put,
        mask: Bools | None = None,
    ) -> None:
        """Put the chosen records of a piece of columns, which is of one file."""
        style = source.style._replace(file=Path(columns.source or "").name)
        source = source._replace(style=style)
        if style.form == "csv" and not self._headed:
            put(partial(self.write_head, source))
        self.write_columns(columns, source, sink, put, mask)

    def rows(self, columns: RecordColumns, style: Style) -> Template:
        """The rows of records, with keys and values decoded as the user says."""
        if not self._kinds:
            return super().rows(columns, style)
        return typed_rows(decode_columns(columns, self._kinds), style, self.fields)

    def _topics(self, paths: Paths, selection: Selection) -> Iterator[InternalTopic | None]:
        """The internal topic of everything under the paths, as far as there is one."""
        for path, known in known_paths(paths):
            if known.kind is PathKind.FILE:
                yield self.topic_of(None, known.path, known.file.kind if known.file else None)
            else:
                for partition in partitions_of((path,), selection):
                    yield self.topic_of(partition.topic, None, None)


def _refuse(error: Exception, put: Put) -> None:
    """A piece of work that fails, behind the results in front of it."""
    raise error
