"""scan: records of files, partitions and data directories, as a restartable stream of columns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from kseg.errors import KsegError, NotALogError
from kseg.extras import require
from kseg.files.grammar import parse_partition_dir
from kseg.files.mapping import Mapping, private_memory
from kseg.files.names import (
    PartitionDirectory,
    PartitionName,
    PathKind,
    Unreadable,
    classify_path,
    find_replicas,
    readable_partitions,
)
from kseg.format.header import BatchTable
from kseg.format.request import FIELDS, FIELDS_DEFAULT, Request, RequestOptions, check_word
from kseg.format.typed import ERRORS, Kinds, decode_columns, decoded_fields, kinds_of, read_fields
from kseg.format.values import RecordColumns, html_table
from kseg.format.workspace import STREAMED_BYTES, Use, Workspace
from kseg.log.segment.reader import Segment
from kseg.workers import PerThread

if TYPE_CHECKING:
    import pyarrow

    from kseg.log.reader.view import LogView
    from kseg.workers import Results

#: Fields that a scan adds to those of a segment.
PLACE_FIELDS: Final = ("topic", "partition")
#: A path that cannot be read ends the scan before it begins, or is passed over.
OnError = Literal["raise", "skip"]


@dataclass(frozen=True, slots=True)
class ScanSource:
    """One thing to read: a file of batches or a partition directory, and where it belongs."""

    path: Path
    is_file: bool
    topic: str | None
    partition: int | None


@dataclass(slots=True)
class Scan:
    """A lazy reader: each iteration, and each Arrow stream, begins anew.

    Attributes:
        sources: what is read, in order.
        columns: those that it gives.
        request: the records wanted, with the columns that are decoded.
        errors: with `on_corrupt="skip"`, the faults that the latest iteration skipped.
        skipped: with `on_error="skip"`, what could not be read when the scan was made.
        kinds: the kinds that keys and values are decoded as.
    """

    sources: tuple[ScanSource, ...]
    columns: tuple[str, ...]
    request: Request
    mapping: Mapping
    errors: list[KsegError] = field(default_factory=list)
    skipped: tuple[Unreadable, ...] = ()
    kinds: Kinds = field(default_factory=dict)

    def __iter__(self) -> Iterator[RecordColumns]:
        """The records, a bounded piece at a time, in the order of `sources`."""
        return self._read("held")

    def _read(self, use: Use) -> Iterator[RecordColumns]:
        self.errors.clear()
        request = self.request
        if request.on_corrupt == "skip":
            request = replace(request, on_corrupt=self.errors.append)
        if request.threads > 1:
            from kseg.log.reader import pieces

            yield from pieces.read_pieces(self._works(request), request.threads, request.on_error)
            return
        workspace = Workspace(use=use, fresh=private_memory)
        for source in self.sources:
            for columns in self._pieces(source, request, workspace):
                yield _placed(columns, source, self.kinds)

    def _works(self, request: Request) -> Iterator[Results]:
        """The same as pieces of work for threads."""
        from kseg.log.reader.pieces import log_pieces, segment_pieces

        memory = PerThread(partial(Workspace, piece_bytes=STREAMED_BYTES))
        for source in self.sources:
            if source.is_file:
                segment = Segment.open(source.path, mapping=self.mapping)
                works = segment_pieces(segment, memory, request)
            else:
                works = log_pieces(self._opened(source), memory, request)
            for work in works:
                yield work.through(partial(_placed_or_fault, source, self.kinds))

    def _pieces(
        self, source: ScanSource, request: Request, workspace: Workspace
    ) -> Iterator[RecordColumns]:
        if source.is_file:
            with Segment.open(source.path, mapping=self.mapping) as segment:
                yield from segment.read(request, workspace=workspace)
        else:
            yield from self._opened(source).read(request, workspace=workspace)

    def _opened(self, source: ScanSource) -> LogView:
        """A partition; warns of records that a reader does not get of it."""
        view = _view(source.path, self.mapping)
        for line in view.left_out(self.request):
            warnings.warn(f"kseg: {source.path}: {line}", UserWarning, stacklevel=2)
        return view

    def batches(self) -> Iterator[BatchTable]:
        """Headers alone, at most 65,536 a table; wrong checksums are noted, not refused.

        These are all batches in the files, also in segments that overlap.
        """
        for source in self.sources:
            if source.is_file:
                with Segment.open(source.path, mapping=self.mapping) as segment:
                    for tile in segment.walk():
                        yield tile.table
            else:
                log = _view(source.path, self.mapping)
                for info in log.segments:
                    with log.open_segment(info) as segment:
                        for tile in segment.walk():
                            yield tile.table

    def to_reader(self) -> pyarrow.RecordBatchReader:
        """A new `pyarrow.RecordBatchReader`.

        Who keeps what it gives, as a table does, gets larger and larger batches, unless the bounds
        of a piece were set.
        """
        return self._reader("streamed")

    def _reader(self, use: Use) -> pyarrow.RecordBatchReader:
        from kseg import arrow

        return arrow.to_reader(self._read(use), self.columns, self.kinds)

    def to_arrow(self) -> pyarrow.Table:
        """Everything as a `pyarrow.Table` of few chunks; memory grows with the data."""
        return self._reader("kept").read_all()

    def to_pandas(self) -> Any:
        """Everything as a `pandas.DataFrame`; needs pandas and `kseg[arrow]`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Everything as a `polars.DataFrame`; needs polars and `kseg[arrow]`."""
        return require("polars", extra="arrow").DataFrame(self.to_arrow())

    def __repr__(self) -> str:
        """What is read, and which fields."""
        first = str(self.sources[0].path)
        more = f" and {len(self.sources) - 1} more" if len(self.sources) > 1 else ""
        return f"Scan({first!r}{more}, columns={', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        """The first records as a table, for notebooks; it reads one piece at most."""
        from html import escape

        line = f"<p>{escape(repr(self))}</p>"
        for columns in replace(self, errors=[]):
            return line + html_table(columns, None)
        return line

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """An Arrow stream; each call starts a new reader."""
        from kseg import arrow

        return arrow.stream(self._read("streamed"), self.columns, requested_schema, self.kinds)


def _view(path: Path, mapping: Mapping) -> LogView:
    """A partition, which only those read who read more than files."""
    from kseg.log.reader.view import LogView

    return LogView.open(path, mapping=mapping)


def _placed(columns: RecordColumns, source: ScanSource, kinds: Kinds) -> RecordColumns:
    """Columns that say where they belong, decoded as asked for."""
    placed = columns.placed(source.topic, source.partition)
    return decode_columns(placed, kinds) if kinds else placed


def _placed_or_fault(
    source: ScanSource, kinds: Kinds, got: RecordColumns | KsegError
) -> RecordColumns | KsegError:
    """Columns that say where they belong; faults pass."""
    return got if isinstance(got, KsegError) else _placed(got, source, kinds)


def scan(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    decode: MappingOf[str, str] | None = None,
    topics: Iterable[str] | None = None,
    partitions: Iterable[int] | None = None,
    on_error: OnError = "raise",
    mapping: Mapping = "auto",
    **options: Unpack[RequestOptions],
) -> Scan:
    """Read records of one or many files, partitions or data directories.

    Args:
        paths: one or several; name and contents decide what each is.
        decode: the kinds of keys and values, such as `{"key": "text", "value": "json"}`: text,
            json, int16, int32, int64, float, double, uuid, or Kafka's name. A key or value of
            another kind is null, and `key_error` and `value_error`, columns that come with it, say
            why. JSON and UUIDs are text in Arrow; Python gets the JSON value, and a `UUID`.
        topics: only these topics.
        partitions: only these partition numbers.
        on_error: "raise" the error of a path or a partition that cannot be read, before the first
            record; or "skip" it and read the rest, see `Scan.skipped`.
        mapping: "auto", "always" or "never", see `Segment.open`.
        options: attributes of `kseg.format.request.Request`:
            columns: offset, timestamp, key, value and headers if it is not given, with topic and
                partition in front where more than one partition is read.
            offset: `(start, end)` or a `range`, half open, None for no bound. A partition gives
                each offset once, and no offset before the log's start; a file is read as it is.
            time: the same for times: milliseconds, a `datetime` with a time zone, a `date` (its
                00:00 UTC), a `datetime64` or ISO 8601; records need not be in order of time. In
                Arrow, `timestamp` is null outside the years 1 to 9999, which engines do not all
                hold; the column `timestamp_ms` has every time as a number.
            max_rows, max_bytes: bounds of a piece; unless one is set, an Arrow stream gives larger
                pieces to a consumer that keeps them.
            isolation: "read_uncommitted", or "read_committed" (whole partitions only).
            open_transactions: "wait" ends committed records at the first open transaction, with a
                warning; "abort" takes open transactions as aborted.
            on_corrupt: "raise", or "skip" damaged batches and keep their faults in `Scan.errors`.
            threads: how many share the work. The records and their order are the same for any
                number; the pieces may end elsewhere, and each thread has pieces of its own in
                memory.
            control: give transaction markers and other control records too.
            verify_crc: refuse damaged batches.

    Raises:
        NotALogError: a path is nothing that kseg reads, or nothing is left after choosing.
        ValueError: an argument is none of its values, a `datetime` has no time zone, or two
            directories are replicas of a partition, whose records would count twice.
        TypeError: bounds that are no pair of whole numbers, or of times.
        OSError: a path is missing, or something in it cannot be read.

    Example:
        >>> reader = scan("orders-0", offset=(240, None), columns=("offset", "key"))
        >>> reader.to_arrow().num_rows
        14
    """
    check_word("on_error", on_error, ("raise", "skip"))
    asked = options.pop("columns", None)
    request = Request(**options)
    chosen = [Path(path) for path in ((paths,) if isinstance(paths, (str, PathLike)) else paths)]
    skipped: list[Unreadable] | None = None if on_error == "raise" else []
    wanted_topics = None if topics is None else set(topics)
    wanted_partitions = None if partitions is None else set(partitions)

    def wants(name: PartitionName | None) -> bool:
        topic, partition = (None, None) if name is None else (name.topic, name.partition)
        return (wanted_topics is None or topic in wanted_topics) and (
            wanted_partitions is None or partition in wanted_partitions
        )

    kinds = kinds_of(decode)
    kept = _each_once(source for path in chosen for source in _readable(path, wants, skipped))
    if not kept:
        raise NotALogError("no partition is left to read", path=chosen[0] if chosen else None)
    if request.isolation == "read_committed" and any(source.is_file for source in kept):
        raise ValueError("read_committed needs whole partitions, not single files")
    columns = _columns(asked, len(kept), kinds)
    decoded = read_fields(name for name in columns if name not in PLACE_FIELDS) or ("offset",)
    request = replace(request, columns=decoded)
    return Scan(kept, columns, request, mapping, skipped=tuple(skipped or ()), kinds=kinds)


def _columns(asked: Iterable[str] | None, source_count: int, kinds: Kinds) -> tuple[str, ...]:
    if asked is None:
        asked = (*PLACE_FIELDS, *FIELDS_DEFAULT) if source_count > 1 else FIELDS_DEFAULT
    known = (*FIELDS, *PLACE_FIELDS, "timestamp_ms", *ERRORS.values())
    wanted = tuple(asked)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no field {', '.join(unknown)}; there are: {', '.join(known)}")
    return decoded_fields(wanted, kinds)


def _readable(
    path: Path, wants: Callable[[PartitionName | None], bool], skipped: list[Unreadable] | None
) -> Iterator[ScanSource]:
    """What a path holds that can be read; the rest goes to `skipped`, or is raised."""
    try:
        yield from _sources(path, wants, skipped)
    except OSError as error:
        if skipped is None:
            raise
        skipped.append(Unreadable(path, error))


def _each_once(found: Iterable[ScanSource]) -> tuple[ScanSource, ...]:
    """The sources without those that others are or hold.

    Raises:
        ValueError: two are replicas of one partition.
    """
    places: dict[str, ScanSource] = {}
    for source in found:
        places.setdefault(os.path.realpath(source.path), source)
    kept = tuple(
        source
        for place, source in places.items()
        if not (source.is_file and os.path.dirname(place) in places)
    )
    replicas = find_replicas(
        source.path.absolute().parent if source.is_file else source.path for source in kept
    )
    if replicas is not None:
        replicas.refuse()
    return kept


def _sources(
    path: Path, wants: Callable[[PartitionName | None], bool], skipped: list[Unreadable] | None
) -> Iterator[ScanSource]:
    """What a path holds to be read, in order; deleted and stray partitions are passed over."""
    known = classify_path(path)
    if known.kind is PathKind.FILE:
        if known.file is None or not known.file.kind.holds_batches:
            raise NotALogError("not a file of batches", path=path)
        name = _partition_around(path)
        if wants(name):
            yield _source(path, is_file=True, name=name)
        return
    if known.kind is PathKind.PARTITION:
        found = [PartitionDirectory(path, known.partition, known.partition_files)]
    else:
        listing = known.data_directory
        assert listing is not None
        found = [
            entry
            for entry in (*listing.partitions, *listing.lost)
            if entry.name is None or entry.name.suffix is None
        ]
    for entry in readable_partitions((one for one in found if wants(one.name)), skipped):
        yield _source(entry.path, is_file=False, name=entry.name)


def _partition_around(file: Path) -> PartitionName | None:
    """The partition that a file's directory is named for."""
    try:
        return parse_partition_dir(file.absolute().parent.name)
    except NotALogError:
        return None


def _source(path: Path, *, is_file: bool, name: PartitionName | None) -> ScanSource:
    return ScanSource(path, is_file, name.topic if name else None, name.partition if name else None)


__all__ = ["PLACE_FIELDS", "Scan", "ScanSource", "scan"]
