"""`Scan`: records as a restartable stream of columns, in pieces, tables and files."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kseg.constants import Progress, StrPath
from kseg.errors import KsegError
from kseg.files.mapping import Mapping, private_memory
from kseg.files.names import LeftOut, Partition
from kseg.files.selection import several
from kseg.format.header import BatchTable
from kseg.format.reader import STREAMED_BYTES, Use, Workspace
from kseg.format.request import ANY_RECORD, ROWS_MAX, Request, check_word, key_needle
from kseg.format.take import first_rows, last_rows_of_each, take_equal
from kseg.format.typed import (
    KEPT_BYTES,
    Kinds,
    decode_columns,
    read_fields,
    without_errors,
)
from kseg.format.values import RecordColumns
from kseg.frames import Frames, html_table
from kseg.log.segment.reader import Segment
from kseg.records.query import ALL, count_of
from kseg.workers import PerThread, Results

if TYPE_CHECKING:
    import polars
    import pyarrow

    from kseg.lazy import Condition
    from kseg.log.reader.view import LogView
    from kseg.log.reader.visible import WholeBatches
    from kseg.records.lake import WrittenFiles
    from kseg.records.partitioners import KeyPlaces
    from kseg.records.patterns import Pattern


#: Fields that a scan adds to those of a segment.
PLACE_FIELDS: Final = ("topic", "partition")
#: With `replicas="all"`, the partition directory of each record.
DIRECTORY: Final = "directory"
#: Records that a notebook shows.
_HTML_ROWS: Final = 10


@dataclass(slots=True, repr=False, eq=False)
class Scan(Frames):
    """A lazy reader: each iteration, and each Arrow stream, begins again.

    Attributes:
        sources: the files and partitions that are read, in order.
        columns: the columns that it gives.
        errors: with `on_corrupt="skip"`, the faults that the latest iteration skipped.
        left_out: the paths that are not read, each with a reason; see `kseg.Catalog`.
        pieces: the number of pieces that the latest iteration has read.
        pushed: the scan that the latest query of a lazy frame or a dataset read: the partitions,
            columns and bounds that the query asked for, and its `pieces`.
    """

    sources: tuple[Partition, ...]
    columns: tuple[str, ...]
    _request: Request
    _mapping: Mapping
    errors: list[KsegError] = field(default_factory=list)
    left_out: tuple[LeftOut, ...] = ()
    _kinds: Kinds = field(default_factory=dict)
    _key: bytes | None = None
    _key_places: KeyPlaces | None = None
    _pattern: Pattern | None = None
    _context: int = 0
    _limit: int | None = None
    _last: int | None = None  # only so many records from the end of each partition
    _offsets: MappingOf[Any, Any] = field(default_factory=dict)
    _progress: Progress | None = None
    _views: MappingOf[Path, LogView] = field(default_factory=dict)
    pieces: int = 0
    pushed: Scan | None = None

    def __iter__(self) -> Iterator[RecordColumns]:
        """The records, a bounded piece at a time, in the order of `sources`.

        `pandas.DataFrame(scan)` makes its rows of what an iteration gives, and has no other way to
        take a stream. So pandas itself gets the records one by one.
        """
        pieces = self._read("held")
        if sys._getframe(1).f_globals.get("__name__") == "pandas.core.frame":
            return chain.from_iterable(pieces)  # type: ignore[arg-type]
        return pieces

    @property
    def request(self) -> Request:
        """The bounds, the isolation, the size of pieces and the stored columns of what is read.

        The columns are those that the scan gives, and those of its conditions.
        """
        names = [name for name in self.columns if name not in (DIRECTORY, *PLACE_FIELDS)]
        names += () if self._key is None else ("key",)
        names += () if self._pattern is None else self._pattern.fields
        return replace(self._request, columns=read_fields(names, self._kinds) or ("offset",))

    @property
    def skipped(self) -> tuple[LeftOut, ...]:
        """With `on_error="skip"`, the paths that could not be read when the scan was made."""
        return tuple(entry for entry in self.left_out if entry.error is not None)

    @property
    def kinds(self) -> Kinds:
        """The kinds that keys and values are decoded as."""
        return self._kinds

    def head(self, n: int = 10) -> Scan:
        """The same scan, ended after `n` records.

        Raises:
            ValueError: `n` is negative.
        """
        limit = count_of("limit", n)
        if self._limit is not None:
            limit = min(limit or 0, self._limit)
        return replace(self, errors=[], _limit=limit)

    def holding(self, pattern: Pattern, context: int = 0) -> Scan:
        """The records of the scan that match a pattern; see `kseg.grep`.

        Args:
            pattern: the condition on their contents.
            context: as many records before each and after it come as well.

        Raises:
            ValueError: the scan has `last`, and the last records have no context.
        """
        if context and self._last is not None:
            raise ValueError("last and context exclude each other")
        return replace(self, errors=[], _pattern=pattern, _context=context)

    def count(self) -> int:
        """The number of records that the scan gives.

        Headers tell it for batches of magic 2 that are wanted as a whole; other batches are
        decoded. Checksums are compared in batches that are decoded alone.

        Raises:
            KsegError, OSError: as an iteration does.
        """
        if not self._headers_tell:
            return sum(map(len, self))
        return sum(count for _source, count in self._counts())

    @property
    def _headers_tell(self) -> bool:
        """Whether headers can tell the number of records."""
        _offsets, times = self._request.bounds
        conditions = times, self._key, self._pattern, self._limit, self._last
        return conditions == (ALL, None, None, None, None)

    @property
    def _has_bounds(self) -> bool:
        """Whether a caller leaves out records of the sources."""
        return not self._takes_all or self.counts != (None, None)

    @property
    def _takes_all(self) -> bool:
        """Whether no bound, key or pattern leaves records out."""
        narrowing = self._request.bounds, self._key, self._pattern, self._offsets
        return narrowing == ((ALL, ALL), None, None, {})

    def _counts(self) -> Iterator[tuple[Partition, int]]:
        """Each source with the number of its records."""
        from kseg.log.reader.visible import WholeBatches

        request, memory = replace(self._new_request(), columns=("offset",)), Workspace()
        for source in self.sources:
            whole = WholeBatches()
            decoded = sum(map(len, self._stored_records(source, request, memory, whole)))
            yield source, decoded + whole.records

    def _read(self, use: Use, piece_bytes: int = 0) -> Iterator[RecordColumns]:
        """The records up to the scan's limit; arguments are those of `_pieces`."""
        return first_rows(self._pieces(use, piece_bytes), self._limit)

    def _views_now(self) -> dict[Path, LogView]:
        """The partitions at this moment."""
        return {
            source.path: _view(source, self._mapping)
            for source in self.sources
            if not source.is_file
        }

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """The bounds `limit` and `last` of the scan, each None if it is not set."""
        return self._limit, self._last

    def at(self, views: MappingOf[Path, LogView], columns: tuple[str, ...] = ()) -> Scan:
        """The same scan of partitions at an earlier moment.

        Args:
            views: path of a partition -> its log at that moment.
            columns: columns in place of those of the scan.
        """
        return replace(self, columns=columns or self.columns, errors=[], _views=views)

    def _new_request(self) -> Request:
        """The request of a new iteration, whose faults go to `errors`."""
        self.errors.clear()
        request = self.request
        if request.on_corrupt != "skip":
            return request
        return replace(request, on_corrupt=self.errors.append)

    def _pieces(self, use: Use, piece_bytes: int = 0) -> Generator[RecordColumns]:
        """The chosen records, whose number the caller cuts off at the scan's limit.

        Args:
            use: the use of the pieces, which decides their size.
            piece_bytes: the bytes of bodies in a piece, for any number of threads; 0 leaves the
                size to `use`, and is `STREAMED_BYTES` with several threads.
        """
        request = self._new_request()
        self.pieces = 0  # `_read_sources` counts them
        pieces = self._read_sources(use, request, piece_bytes)
        if self._context:
            from kseg.records.patterns import with_context

            pieces = with_context(pieces, self._context)
        elif self._last is not None:
            pieces = last_rows_of_each(pieces, self._last)
        yield from (
            pieces if self._progress is None else self._report_progress(pieces, self._progress)
        )

    def _read_sources(
        self, use: Use, request: Request, piece_bytes: int
    ) -> Iterator[RecordColumns]:
        """The chosen records of all sources, in order.

        With context, it yields the records that do not match as well, and marks those that do.
        Arguments are those of `_pieces`.
        """
        if request.threads > 1 or piece_bytes:
            from kseg.log.reader.view import read_pieces

            works = self.works(request, piece_bytes or STREAMED_BYTES)
            for columns in read_pieces(works, request.threads, request.on_error):
                self.pieces += 1
                yield columns
            return
        workspace = Workspace(use=use, fresh=private_memory)
        for source in self.sources:
            for columns in self._stored_records(source, request, workspace):
                self.pieces += 1
                yield self.chosen(source, columns)
            yield from self._source_ends

    @property
    def _source_ends(self) -> tuple[RecordColumns, ...]:
        """A piece without records, which marks the end of a source; empty where it is not needed.

        It is needed for context and for the last records, which are found in each source by itself.
        """
        is_needed = bool(self._context) or self._last is not None
        return (RecordColumns(0, {}),) if is_needed else ()

    def chosen(self, source: Partition, columns: RecordColumns) -> RecordColumns:
        """The chosen records of a piece, decoded, with the names of their partition.

        Args:
            source: the source of the piece.
            columns: the piece: the columns of `request`, records within its bounds.
        """
        if self._key is not None:
            columns = take_equal(columns, self._key)
        if self._pattern is not None:
            # With context all records stay, and those that match get a mark.
            filtered = self._pattern.mark if self._context else self._pattern.take
            columns = filtered(columns)
        if self._key is not None or self._pattern is not None:
            extra = {"key", "value", "headers"} - set(read_fields(self.columns, self._kinds))
            columns = columns.of_arrays(
                {name: column for name, column in columns.arrays.items() if name not in extra}
            )
        if "timestamp_ms" in self.columns and "timestamp" in columns.arrays:
            times = columns.arrays["timestamp"]
            arrays = {**columns.arrays, "timestamp_ms": times}
            if "timestamp" not in self.columns:
                del arrays["timestamp"]
            columns = columns.of_arrays(arrays)
        directory = str(source.directory) if DIRECTORY in self.columns else None
        placed = columns.placed(source.topic, source.partition, directory)
        if not self._kinds:
            return placed
        keep_bytes = not KEPT_BYTES.isdisjoint(self.columns)
        decoded = decode_columns(placed, self._kinds, keep_bytes=keep_bytes)
        arrays = {name: column for name, column in decoded.arrays.items() if name in self.columns}
        return replace(decoded, arrays=arrays)

    def works(
        self, request: Request | None = None, piece_bytes: int = STREAMED_BYTES
    ) -> Iterator[Results]:
        """Works for threads, whose results are the records; and faults, if faults are skipped.

        Args:
            request: the records, without the bounds of single partitions, the key and the pattern;
                the scan's own request if None.
            piece_bytes: the bytes of bodies in a piece of columns.
        """
        from kseg.log.reader.view import log_pieces

        request = self._new_request() if request is None else request
        memory = PerThread(partial(Workspace, piece_bytes=piece_bytes))
        for source in self.sources:
            view, source_request = self._view_and_request(source, request)
            for work in log_pieces(view, memory, source_request):
                results = work.through(partial(_or_fault, partial(self.chosen, source)))
                # A piece without records shows the progress of a search that finds nothing.
                mark = RecordColumns(0, {}, str(work.path))
                yield results if self._source_ends or self._progress is None else results.then(mark)
            if self._source_ends:
                yield Results(source.path, lambda: iter(self._source_ends))

    def of_part(self, source: Any, segment: Segment, **part: Any) -> Iterator[RecordColumns]:
        """The records of a part of an open segment.

        Args:
            source: has the topic and the partition of the records.
            segment: the segment.
            part: arguments of `Segment.read` besides the request.

        Raises:
            KsegError, OSError: as `Segment.read` raises them.
        """
        for columns in segment.read(self._request_for(source, self._new_request()), **part):
            yield self.chosen(source, columns)

    def _stored_records(
        self,
        source: Partition,
        request: Request,
        workspace: Workspace,
        whole: WholeBatches | None = None,
    ) -> Iterator[RecordColumns]:
        """The stored records of one source; `whole` counts batches that need no decoding."""
        view, source_request = self._view_and_request(source, request)
        yield from view.read(source_request, workspace=workspace, whole=whole)

    def _place_keys(self, partitioner: str, counts: Any, paths: Iterable[Path]) -> Scan:
        """The same scan, which reads a key only from its partition; see `KeyPlaces.of`."""
        from kseg.records.partitioners import KeyPlaces

        numbers = several("partitions", counts, int, "a number, or several")
        self._key_places = KeyPlaces.of(partitioner, numbers, self.sources, paths)
        if self._key is not None:
            self.sources = self._with_key(self.sources, self._key)
        return self

    def _with_key(self, sources: Sequence[Partition], key: bytes) -> tuple[Partition, ...]:
        """The sources that can have a key, after a check of a sample of keys in each source."""
        places = self._key_places
        if places is None:
            return tuple(sources)
        places.check(sources, self._samples)
        return tuple(source for source in sources if places.can_have(source, key))

    def _samples(self, source: Partition, rows: int) -> Iterator[Iterable[RecordColumns]]:
        """Offsets and keys from the first records of a source, and from its last ones."""
        request = replace(
            self._request_for(source, self._request),
            columns=("offset", "key"),
            max_rows=rows,
            isolation="read_uncommitted",
            on_corrupt="skip",
            contains=ANY_RECORD,
        )
        view = _view(source, self._mapping)
        yield view.read(request)
        start = max(request.offset_start, view.log_end_offset - rows)
        yield view.read(replace(request, offset=(start, request.offset_end)))

    def _request_for(self, source: Partition, request: Request | None = None) -> Request:
        """The request for one source: with its own bounds of offsets, and the bytes to search."""
        request = self._request if request is None else request
        key = self._key
        if self._pattern is not None and not self._context:
            key = self._pattern.key if key is None else key
            request = replace(request, contains=self._pattern.needle)
        if key is not None:
            request = replace(request, contains=key_needle(key))
        bounds = self._offsets.get((source.topic, source.partition))
        if bounds is None:
            bounds = self._offsets.get(source.partition)
        return request if bounds is None else replace(request, offset=bounds)

    def _view_and_request(self, source: Partition, request: Request) -> tuple[LogView, Request]:
        """The log of a source at this moment, and the request for it.

        Warns of records that a reader does not get.
        """
        source_request = self._request_for(source, request)
        view = self._views.get(source.path) or _view(source, self._mapping)
        for line in view.left_out(source_request):
            warnings.warn(f"kseg: {source.path}: {line}", UserWarning, stacklevel=1)
        is_whole = (
            self._takes_all
            and not source.is_file
            and source_request.isolation == "read_uncommitted"
        )
        if self._last is not None and is_whole:
            from kseg.records.narrowing import start_of_tail

            start = start_of_tail(view, self._last, control=source_request.control)
            source_request = replace(source_request, offset=(start, None))
        return view, source_request

    def _report_progress(
        self, pieces: Iterable[RecordColumns], progress: Progress
    ) -> Iterator[RecordColumns]:
        """The pieces; `progress` is called after each segment."""
        sizes = dict(self._files(*self.sources))
        done, total, current = 0, sum(sizes.values()), None
        for columns in pieces:
            if columns.source != current:
                done += sizes.get(current or "", 0)
                current = columns.source
                progress(done, total)
            yield columns
        progress(total, total)

    def _files(self, *sources: Partition) -> Iterator[tuple[str, int]]:
        """The files that hold the records of sources, and their sizes."""
        for source in sources:
            for info in _view(source, self._mapping).segments:
                yield str(info.path), info.size

    def batches(self) -> Iterator[BatchTable]:
        """The headers of all batches in the files, also of segments that overlap.

        A table has at most 65,536 of them. Wrong checksums are noted, not refused.
        """
        for _source, _path, table in self._tables():
            yield table

    def _tables(self) -> Iterator[tuple[Partition, Path, BatchTable]]:
        """The headers of all batches, with their source and segment."""
        for source in self.sources:
            view = _view(source, self._mapping)
            for info in view.segments:
                with view.open_segment(info) as segment:
                    for tile in segment.walk():
                        yield source, segment.path, tile.table

    def batches_arrow(self) -> pyarrow.RecordBatchReader:
        """The headers of all batches, with their topic and partition, as an Arrow reader.

        The columns are those of `BatchTable`; `base_timestamp` and `max_timestamp` are
        timestamps in UTC, `codec` is a word, and `valid` says whether the checksum is right.
        """
        from kseg import arrow

        return arrow.batches_reader(
            (source.topic, source.partition, table) for source, _path, table in self._tables()
        )

    @property
    def schema(self) -> pyarrow.Schema:
        """The Arrow schema of the records; nothing is read."""
        from kseg import arrow

        return arrow.schema(self.columns, self._kinds)

    def to_reader(self) -> pyarrow.RecordBatchReader:
        """A new `pyarrow.RecordBatchReader`.

        If the consumer keeps the batches (a table does), they grow, unless the bounds of a piece
        were set.
        """
        return self._reader("streamed")

    def _reader(self, use: Use) -> pyarrow.RecordBatchReader:
        from kseg import arrow

        return arrow.to_reader(self._read(use), self.columns, self._kinds)

    def to_arrow(self) -> pyarrow.Table:
        """Everything as a `pyarrow.Table` of few chunks; memory grows with the data."""
        return self._reader("kept").read_all()

    def _table_for(self, engine: str) -> pyarrow.Table:
        self._check_types(engine)
        return self.to_arrow()

    def _check_types(self, engine: str, way_out: str = "") -> None:
        """Refuse columns of types that an engine does not have."""
        if self._kinds:
            from kseg.arrow import check_types

            kinds = {name: self._kinds[name] for name in self._kinds if name in self.columns}
            check_types(kinds, engine, way_out)

    def lazy(self) -> polars.LazyFrame:
        """The records as a lazy frame of Polars, which reads for each query; needs `kseg[arrow]`.

        The columns of a query, and its filters on topic, partition, offset, timestamp and one key,
        become the scan's own: segments and batches that cannot have a record of the answer are
        passed over. Other filters are applied to each piece. A query of topic and partition alone
        reads headers where they are enough, as `count` does. `pushed` is the scan of the query.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        from kseg import arrow, lazy

        self._check_types("Polars")
        return lazy.polars_frame(
            arrow.for_engines(self.schema),
            self._query,
            is_pure=all(map(_is_closed, self.sources)),
            about=repr(self),
        )

    def dataset(self) -> pyarrow.dataset.Dataset:
        """The records as a `pyarrow.dataset.Dataset` for queries of DuckDB and Polars; see `lazy`.

        The dataset's own `pushed` is the scan that its latest query read; None before the first.
        """
        from kseg import arrow, lazy

        self._check_types("DuckDB and Polars")
        kind = arrow.for_engines(self.schema)
        return lazy.ScanDataset(kind, self._query, repr(self), lambda: self.pushed)

    def _query(
        self,
        conditions: Sequence[Condition],
        columns: Sequence[str] | None,
        limit: int | None,
        max_rows: int | None,
    ) -> pyarrow.RecordBatchReader:
        """The pieces that a query asks for; see `kseg.lazy.Read`."""
        from kseg import arrow

        limited = self if limit is None else self.head(limit)
        kind = arrow.for_engines(self.schema)
        names = tuple(kind.names if columns is None else columns)
        request, offsets, key, sources = self._request, self._offsets, self._key, self.sources
        if limited.counts == (None, None):  # counted records are found before they are filtered
            from kseg.records.narrowing import can_have, narrowed, wanted_key

            sources = tuple(source for source in sources if can_have(source, conditions))
            request = narrowed(request, conditions)
            offsets = {
                partition: narrowed(Request(offset=bounds), conditions).offset
                for partition, bounds in offsets.items()
            }
            if key is None and (key := wanted_key(conditions, self._kinds)) is not None:
                sources = self._with_key(sources, key)
        self.pushed = replace(
            limited,
            sources=sources,
            columns=names,
            errors=self.errors,
            _request=replace(request, max_rows=min(max_rows or ROWS_MAX, request.max_rows)),
            _key=key,
            _offsets=offsets,
            pieces=0,
            pushed=None,
        )
        if self.pushed._headers_tell and {*PLACE_FIELDS, DIRECTORY}.issuperset(names):
            return arrow.to_reader(self.pushed._places(), names)
        return self.pushed.to_reader().cast(kind.empty_table().select(names).schema)

    def _places(self) -> Iterator[RecordColumns]:
        """Pieces with as many rows as there are records, and only columns of their source."""
        for source, count in self._counts():
            for start in range(0, count, ROWS_MAX):
                yield self.chosen(source, RecordColumns(min(ROWS_MAX, count - start), {}))

    def to_parquet(
        self,
        out: StrPath,
        *,
        partition_by: str | Iterable[str] = (),
        per: str = "partition",
        keep_bytes: bool = False,
        replace: bool = False,
    ) -> WrittenFiles:
        """Write the records as Parquet files, as `kseg export` writes them; needs `kseg[arrow]`.

        A file gets its name when it is complete. It is not replaced if it may have records that the
        scan does not have: an older offset, another time. Memory stays small. Keys and values that
        do not decode are null, with a warning.

        Args:
            out: a directory, made if it is missing; or, for one file, its name with `.parquet`.
                Also a URL such as `s3://bucket/dir`, where a file appears once it is complete.
            partition_by: the columns in the names of directories, as Hive has them: of "day" (in
                UTC), "topic" and "partition". The files leave these out.
            per: one file for each "partition", for each "segment", or for each "topic" with the
                records of one partition after the other. A file that was named itself has its own.
            keep_bytes: with `decode`, also write the bytes of values that do not decode, in
                `key_bytes` and `value_bytes`.
            replace: replace files also where they have records that the scan does not have.

        Returns:
            A table with `path`, `records` and `bytes` of each file.

        Raises:
            FileExistsError: a file may have other records; the message has the ways out.
            ValueError: an argument has a value that it cannot have, or several files would have
                one name.
            TypeError: an argument has another type.
            KsegError, OSError: as an iteration does, or a file cannot be written.
        """
        from kseg.records import exports, lake

        check_word("per", per, ("partition", "segment", "topic"))
        if self._pattern is not None:
            raise ValueError("write the records of a search by pyarrow, from to_reader()")
        by = several("partition_by", partition_by, str, "a name, or several")
        names = without_errors(self.columns)
        look = lake.FileFormat(
            "parquet", names, self._kinds, by, bool(keep_bytes), replace=bool(replace)
        )
        look.check()
        written = exports.write_scan(self, per, lake.output_path(out), look, self._progress)
        self.errors[:] = written.faults
        for line in written.undecoded.lines(look, "keep_bytes=True"):
            warnings.warn(line, UserWarning, stacklevel=2)
        return lake.WrittenFiles(written.files)

    def __repr__(self) -> str:
        """The first path, the columns, and the bounds that were given."""
        first = repr(str(self.sources[0].path)) if self.sources else "nothing"
        more = f" and {len(self.sources) - 1} more" if len(self.sources) > 1 else ""
        parts = [f"{first}{more}", f"columns={', '.join(self.columns)}"]
        offset, time = self._request.offset, self._request.time
        bounds = {"offset": offset, "time": time, "key": self._key, "limit": self._limit}
        bounds["last"] = self._last
        if self._pattern is not None:
            bounds["pattern"] = self._pattern.data
        parts += [
            f"{name}={value!r}"
            for name, value in bounds.items()
            if value not in (None, (None, None))
        ]
        return f"Scan({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """The first records as a table, for notebooks; it reads few pieces."""
        from html import escape

        rows: list[dict[str, Any]] = []
        for columns in replace(self.head(_HTML_ROWS), _progress=None):
            rows += columns
        has_more = len(rows) == _HTML_ROWS and self._limit != _HTML_ROWS
        table = html_table(rows, more="there are more" if has_more else "")
        return f"<p>{escape(repr(self))}</p>{table}"

    def __arrow_c_schema__(self) -> object:
        """Only the schema, so that DuckDB opens one stream for each query."""
        self._check_types("DuckDB and Polars", "use to_arrow(), or ")
        schema: object = self.schema.__arrow_c_schema__()
        return schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """An Arrow stream; each call starts a new reader."""
        from kseg import arrow

        self._check_types("DuckDB and Polars", "use to_arrow(), or ")
        return arrow.stream(self._read("streamed"), self.columns, requested_schema, self._kinds)


def _is_closed(source: Partition) -> bool:
    """Whether a source no longer changes: it is a segment that has a segment after it."""
    logs = source.directory.glob("*.log")
    return source.is_file and any(other.name > source.path.name for other in logs)


def _or_fault(
    change: Callable[[RecordColumns], RecordColumns], result: RecordColumns | KsegError
) -> RecordColumns | KsegError:
    """The changed columns of a piece; a fault is returned as it is."""
    return result if isinstance(result, KsegError) else change(result)


def _view(source: Partition, mapping: Mapping) -> LogView:
    from kseg.log.reader.view import LogView

    return LogView.at(source, mapping)
