"""Records of a fleet as Parquet files, written by the workers themselves; Spark only shares it out.

    OUT/topic=orders/partition=0/<first offset>-<attempt>.parquet     by="partition"
    OUT/day=2025-10-09/<first offset>-<attempt>.parquet               by="date", in UTC
    OUT/_manifest.json                                                every file, and what is in it

Directories are named as Hive, Spark and others read them: `spark.read.parquet(OUT)` has their
columns again. Everything is written into `<OUT>.kseg-export-<job>/`, beside. When the last task has
ended, files of attempts that failed go, the manifest is written, and one rename shows it all. So
there is the whole export or none; with `overwrite`, for the moment between two renames, none.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kseg.arrow import TYPES, to_record_batch
from kseg.constants import NO_TIMESTAMP
from kseg.errors import KsegError
from kseg.files import atomic, io, ownership
from kseg.files.output_names import hive_directory
from kseg.files.whole_file import FileSink
from kseg.format.typed import BYTES, ERRORS
from kseg.parquet import parquet_writer
from kseg.spark.damage import Damage, passing_over, report
from kseg.spark.jobs.running import Item, open_job, run, splits_of
from kseg.spark.options import SourceOptions, source_options
from kseg.spark.plan import local_path
from kseg.spark.reading import read_split
from kseg.spark.remote import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kseg.format.values import RecordColumns
    from kseg.spark.jobs.running import Progress
    from kseg.spark.plan import Split


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
        yield (f"day={_date(day)}",), None if len(found) == 1 else days == day


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
        date = self._place[0].removeprefix("day=") if self._options.by == "date" else NO_VALUE
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


SCHEMA: Final = "kseg.spark-export/1"
MANIFEST: Final = "_manifest.json"
#: The fields that files can have: a job decodes nothing, so it has no field about decoding.
FIELD_NAMES: Final = tuple(
    name for name in TYPES if name not in (*ERRORS.values(), *BYTES.values())
)
#: The columns of Spark's own Kafka source, under kseg's names.
FIELDS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)
ROW_GROUP_ROWS: Final = 128 << 10
CODECS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
_BY: Final = ("partition", "date")
#: Damaged places that the answer names; more are counted only.
_FAULTS_NAMED_MAX: Final = 100
_DDL: Final = (
    "path STRING, topic STRING, partition INT, date STRING, records BIGINT, bytes BIGINT, "
    "first_offset BIGINT, last_offset BIGINT, min_timestamp BIGINT, max_timestamp BIGINT"
)


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written.

    Attributes:
        out: the directory.
        files: all of them, by path.
        fault_count: places that could not be read, under `onCorrupt=skip`.
        faults: the first of them, as text.
        tasks: how many Spark ran.
        skipped: pieces of logs that an earlier run had written.
    """

    out: str
    files: tuple[ExportedFile, ...]
    fault_count: int
    faults: tuple[str, ...]
    tasks: int
    skipped: int

    @property
    def records(self) -> int:
        """In all files."""
        return sum(file.records for file in self.files)

    def manifest(self) -> dict[str, Any]:
        """What stands in `_manifest.json`."""
        return {
            "schema": SCHEMA,
            "records": self.records,
            "bytes": sum(file.bytes for file in self.files),
            "faults": self.fault_count,
            "files": [asdict(file) for file in self.files],
        }

    def frame(self, spark: SparkSession) -> DataFrame:
        """The files, a row each; their rows are `spark.read.parquet(out)`."""
        return spark.createDataFrame([tuple(asdict(file).values()) for file in self.files], _DDL)


@dataclass(frozen=True, slots=True)
class _Exported:
    """What one task wrote."""

    files: tuple[ExportedFile, ...]
    fault_count: int
    faults: tuple[str, ...]


def export(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    by: str = "partition",
    fields: Iterable[str] = FIELDS,
    compression: str = "zstd",
    row_group_rows: int = ROW_GROUP_ROWS,
    options: Mapping[str, str] | None = None,
    overwrite: bool = False,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Write records as Parquet.

    Args:
        spark: the session.
        paths: one path or several, as every worker sees them.
        out: the directory to make, as every worker sees it.
        by: "partition" or "date": what directories are for.
        fields: names of `kseg.arrow`, in the order of the columns.
        compression: "zstd", "snappy", "lz4", "gzip" or "none".
        row_group_rows: rows of a row group; fewer where they are large.
        options: of the source: `subscribe`, `startingTimestamp`, `isolation`, `onCorrupt` ...
        overwrite: take the place of an earlier export.
        job: a directory to note in what is finished, and to go on from.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: an argument or option is none of its values, or `out` is in a store.
        FileExistsError: `out` is there, and not to be replaced.
        NotALogError: a path is nothing of Kafka's.
        OSError: something is missing or cannot be read or written, here or by a worker.
        KsegError: a log is damaged: names file, position and code; or `job` is of another job.
    """
    target = Path(local_path(out)).absolute()
    look = _look(tuple(fields), by, compression, row_group_rows)
    chosen = source_options(paths, options)
    _check_target(target, overwrite=overwrite)
    directory = None
    if job is not None:
        directory = open_job(job, "export", (str(target), look, options))
    _logs, items = splits_of(chosen, marked=directory is not None)
    beside = _beside(target, directory)
    _begin(beside, items)
    try:
        ran = run(
            spark,
            items,
            partial(_export, root=beside, look=look, options=chosen),
            job=directory,
            usable=lambda done: all((beside / file.path).exists() for file in done.files),
            progress=progress,
        )
        result = _result(target, ran.answers, ran.tasks, ran.skipped)
        _show(beside, target, result)
    except BaseException:
        if directory is None:
            shutil.rmtree(beside, ignore_errors=True)
        raise
    return result


def _look(fields: tuple[str, ...], by: str, compression: str, rows: int) -> FileOptions:
    unknown = [name for name in fields if name not in FIELD_NAMES]
    if unknown or not fields or len(set(fields)) < len(fields):
        what = f"no field {', '.join(unknown)}" if unknown else "fields must differ, and be some"
        raise ValueError(f"kseg: {what}; there are: {', '.join(FIELD_NAMES)}")
    if by not in _BY:
        raise ValueError(f"kseg: by is one of {', '.join(_BY)}, not {by!r}")
    if compression not in CODECS:
        raise ValueError(f"kseg: compression is one of {', '.join(CODECS)}, not {compression!r}")
    if rows < 1:
        raise ValueError(f"kseg: a row group has a row or more, not {rows}")
    look = FileOptions(fields, by, compression, rows)
    if not look.written:
        raise ValueError("kseg: topic and partition are in names; some other field is needed")
    return look


def _check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse to take the place of anything but an earlier export, and of that unasked."""
    if not target.exists() or (target.is_dir() and not os.listdir(target)):
        return
    if not overwrite:
        raise FileExistsError(
            errno.EEXIST, "is there already; overwrite takes its place", str(target)
        )
    if not (target / MANIFEST).exists():
        raise FileExistsError(
            errno.EEXIST, "is no earlier export, so it is not replaced", str(target)
        )
    ownership.check_safe(target)


def _beside(target: Path, directory: Path | None) -> Path:
    """Where files are written: the same in each run of a job, else a new place."""
    name = uuid.uuid4().hex if directory is None else str(directory.resolve())
    suffix = hashlib.sha256(name.encode()).hexdigest()[:12]
    return target.with_name(f"{target.name}.kseg-export-{suffix}")


def _begin(beside: Path, items: Sequence[Item]) -> None:
    """Make the directory that files are written to; it gets the owner of the logs.

    Raises:
        PermissionError: another user made it, or may write to it.
    """
    ownership.check_safe(beside)
    sources = [item.payload.path for item in items if not is_remote(item.payload.path)]
    look = ownership.of_copied_directory(sources[0]) if sources else None
    io.make_directories(beside, like=look and look._replace(mode=look.mode & ~0o022))


def _result(target: Path, answers: Iterable[_Exported], tasks: int, skipped: int) -> ExportResult:
    done = list(answers)
    files = sorted((file for each in done for file in each.files), key=lambda file: file.path)
    faults = sorted(fault for each in done for fault in each.faults)
    count = sum(each.fault_count for each in done)
    return ExportResult(
        str(target), tuple(files), count, tuple(faults[:_FAULTS_NAMED_MAX]), tasks, skipped
    )


def _show(beside: Path, target: Path, result: ExportResult) -> None:
    """Let the whole export be seen at once."""
    wanted = {str(beside / file.path) for file in result.files}
    for folder, _folders, names in os.walk(beside):
        for name in names:
            path = os.path.join(folder, name)
            if path not in wanted:  # of an attempt that failed, or of an earlier run
                io.unlink(path)
            else:
                wanted.discard(path)
        io.flush_directory(folder)
    if wanted:
        raise KsegError("a file that a worker wrote is not seen here", path=min(wanted))
    text = json.dumps(result.manifest(), indent=1)
    atomic.replace_file(beside / MANIFEST, text.encode())
    old = None
    if target.exists():
        old = target.with_name(f"{target.name}.kseg-old-{uuid.uuid4().hex[:8]}")
        io.rename(target, old)
    io.rename(beside, target)
    io.flush_directory(target.parent)
    if old is not None:
        io.remove_tree(old)


# ---- in a worker ---------------------------------------------------------------------------------


def _export(
    splits: Sequence[Split], *, root: Path, look: FileOptions, options: SourceOptions
) -> _Exported:
    damages: list[Damage] = []
    with ParquetFiles(root, look) as files:
        for split in splits:
            on_error = passing_over(options, split, damages)
            for columns in read_split(split, look.decoded, options, on_error):
                files.write(
                    replace(columns, topic=split.topic, partition=split.partition), split.path
                )
        done = files.finish()
    if options.on_corrupt != "fail":
        report(damages, tuple(splits), options.report_path)
    return _Exported(done, len(damages), tuple(str(one) for one in damages[:_FAULTS_NAMED_MAX]))


__all__ = [
    "CODECS",
    "FIELDS",
    "MANIFEST",
    "NO_VALUE",
    "PLACE_FIELDS",
    "ExportResult",
    "ExportedFile",
    "FileOptions",
    "ParquetFiles",
    "export",
]
