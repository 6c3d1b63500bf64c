"""The Parquet files that a worker writes: one open for each partition or date, row groups bounded.

Rows wait until there are enough for a row group. What waits in all files together is bounded, and
so is the number of open files: with times in no order, a date gets a further file. How columns are
stored is said in `kseg.parquet`. Needs no pyspark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kseg.arrow import to_record_batch
from kseg.constants import NO_TIMESTAMP
from kseg.files import io, ownership
from kseg.files.output_names import hive_directory
from kseg.files.whole_file import FileSink
from kseg.parquet import parquet_writer
from kseg.spark.remote import is_remote

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns

PLACE_FIELDS: Final = ("topic", "partition")
#: The name of a directory for rows without a value, as Hive and Spark have it.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_WAITING_BYTES_MAX: Final = 128 << 20
_OPEN_MAX: Final = 64
_MS_PER_DAY: Final = 86_400_000
#: Days of the years 1 to 9999, from 1970 on.
_DAYS: Final = (-719_162, 2_932_896)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The form of the files.

    Attributes:
        fields: names of `kseg.arrow`, in order.
        by: "partition" or "date".
        compression: of Parquet.
        row_group_rows: at most so many rows in a row group.
    """

    fields: tuple[str, ...]
    by: str
    compression: str
    row_group_rows: int

    @property
    def written(self) -> tuple[str, ...]:
        """The fields in a file; topic and partition are not, where the directories say them."""
        if self.by == "date":
            return self.fields
        return tuple(name for name in self.fields if name not in PLACE_FIELDS)

    @property
    def decoded(self) -> tuple[str, ...]:
        """What to decode: the fields, and what is said of each file."""
        names = {"timestamp" if name == "timestamp_ms" else name for name in self.fields}
        return tuple(sorted((names | {"offset", "timestamp"}) - set(PLACE_FIELDS)))


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file, whole.

    Attributes:
        path: relative to the export.
        topic, partition: of all its records; None where they are of several.
        date: in UTC, of all its records, where files go by it; None without.
        records, bytes: rows, and the size of the file.
        first_offset, last_offset: the extremes.
        min_timestamp, max_timestamp: ms, the extremes of those that have one; None if none has.
    """

    path: str
    topic: str | None
    partition: int | None
    date: str | None
    records: int
    bytes: int
    first_offset: int
    last_offset: int
    min_timestamp: int | None
    max_timestamp: int | None


class ParquetFiles:
    """The files of one task. As a context manager: after an error, none of them is left."""

    def __init__(self, root: Path, options: FileOptions) -> None:
        """Nothing is made yet."""
        self._root: Final = root
        self._options: Final = options
        self._open: dict[tuple[str, ...], _OpenFile] = {}
        self._done: list[ExportedFile] = []

    def write(self, columns: RecordColumns, source: str | None = None) -> None:
        """Add the records of a log, in order; a new file gets the owner of that log."""
        batch = to_record_batch(columns, fields=self._options.written)
        for place, rows in _places(columns, self._options.by):
            chosen = batch if rows is None else batch.filter(pa.array(rows))
            self._file(place, source).add(chosen, columns, rows)
        waiting = sum(file.waiting_bytes for file in self._open.values())
        while waiting > _WAITING_BYTES_MAX:
            largest = max(self._open.values(), key=lambda file: file.waiting_bytes)
            waiting -= largest.waiting_bytes
            largest.write_group()

    def _file(self, place: tuple[str, ...], source: str | None) -> _OpenFile:
        file = self._open.pop(place, None)
        if file is None:
            if len(self._open) == _OPEN_MAX:
                oldest = next(iter(self._open))
                self._done.append(self._open.pop(oldest).finish())
            file = _OpenFile(self._root, place, self._options, source)
        self._open[place] = file  # at the end: the one that was not used for longest comes first
        return file

    def finish(self) -> tuple[ExportedFile, ...]:
        """Every file, lasting."""
        while self._open:
            place = next(iter(self._open))
            self._done.append(self._open[place].finish())
            del self._open[place]
        return tuple(self._done)

    def __enter__(self) -> ParquetFiles:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Remove files that were begun, where something went wrong."""
        if kind is not None:
            for file in self._open.values():
                file.discard()


def _places(columns: RecordColumns, by: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The directories that a piece goes to, and which of its rows; None for all."""
    if not len(columns):
        return
    if by == "partition":
        number = NO_VALUE if columns.partition is None else str(columns.partition)
        topic = hive_directory("topic", columns.topic or NO_VALUE)
        yield (topic, f"partition={number}"), None
        return
    times = columns["timestamp"]
    days = times // _MS_PER_DAY
    known = (times != NO_TIMESTAMP) & (days >= _DAYS[0]) & (days <= _DAYS[1])
    days = np.where(known, days, _DAYS[1] + 1)
    found = np.unique(days).tolist()
    for day in found:
        yield (f"date={_date(day)}",), None if len(found) == 1 else days == day


def _date(day: int) -> str:
    return NO_VALUE if day > _DAYS[1] else str(np.datetime64(day, "D"))


class _OpenFile:
    """One file that is being written."""

    def __init__(
        self, root: Path, place: tuple[str, ...], options: FileOptions, source: str | None
    ) -> None:
        self._look = self._above = None
        if source is not None and not is_remote(source):
            self._look = ownership.of_copied_file(source)
            self._above = ownership.of_copied_directory(source)
        self._root, self._place, self._options = root, place, options
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self.waiting_bytes = self._records = 0
        self._sink: FileSink | None = None
        self._writer: Any = None
        self._path = ""
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._sources: set[tuple[str | None, int | None]] = set()

    def add(self, batch: pa.RecordBatch, columns: RecordColumns, rows: Any) -> None:
        """Take the rows of a piece; write those that fill a row group."""
        chosen = slice(None) if rows is None else rows
        offsets, times = columns["offset"][chosen], columns["timestamp"][chosen]
        times = times[times != NO_TIMESTAMP]
        self._offsets = _extremes([*self._offsets, int(offsets.min()), int(offsets.max())])
        if len(times):
            self._times = _extremes([*self._times, int(times.min()), int(times.max())])
        self._sources.add((columns.topic, columns.partition))
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self.waiting_bytes += batch.nbytes
        while self._waiting_rows >= self._options.row_group_rows:
            self.write_group()

    def write_group(self) -> None:
        """Write what waits, as far as it fits in one row group."""
        table = pa.Table.from_batches(self._waiting)
        group = table.slice(0, self._options.row_group_rows)
        if self._writer is None:
            self._begin(group)
        self._writer.write_table(group, row_group_size=group.num_rows)
        rest = table.slice(group.num_rows)
        self._waiting = rest.to_batches() if rest.num_rows else []
        self._waiting_rows, self.waiting_bytes = rest.num_rows, rest.nbytes
        self._records += group.num_rows

    def _begin(self, first: pa.Table) -> None:
        """Open the file, under a name that no other attempt has."""
        name = f"{self._offsets[0]:020}-{uuid.uuid4().hex[:12]}.parquet"
        self._path = "/".join((*self._place, name))
        io.make_directories(self._root.joinpath(*self._place), like=self._above)
        self._sink = FileSink(self._root / self._path, like=self._look)
        written = self._options.written
        self._writer = parquet_writer(
            self._sink, written, first, compression=self._options.compression
        )

    def finish(self) -> ExportedFile:
        """Write what is left; the file is lasting then."""
        while self._waiting_rows:
            self.write_group()
        assert self._sink is not None
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        topic, partition = next(iter(self._sources)) if len(self._sources) == 1 else (None, None)
        date = self._place[0].removeprefix("date=") if self._options.by == "date" else NO_VALUE
        return ExportedFile(
            path=self._path,
            topic=topic,
            partition=partition,
            date=None if date == NO_VALUE else date,
            records=self._records,
            bytes=size,
            first_offset=self._offsets[0],
            last_offset=self._offsets[-1],
            min_timestamp=self._times[0] if self._times else None,
            max_timestamp=self._times[-1] if self._times else None,
        )

    def discard(self) -> None:
        """Leave nothing of it."""
        if self._sink is not None:
            with suppress(OSError):  # the disk may be what went wrong
                self._writer.close()
            self._sink.discard()


def _extremes(values: list[int]) -> list[int]:
    return [min(values), max(values)]


__all__ = ["NO_VALUE", "PLACE_FIELDS", "ExportedFile", "FileOptions", "ParquetFiles"]
