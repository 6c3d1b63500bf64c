"""Records of a fleet as Parquet files, written by the workers themselves; Spark only shares it out.

    OUT/topic=orders/partition=0/<first offset>-<attempt>.parquet     by="partition"
    OUT/day=2025-10-09/<first offset>-<attempt>.parquet               by="date", in UTC
    OUT/_manifest.json                                                every file, with its contents

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
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kseg.arrow import TYPES
from kseg.constants import NO_TIMESTAMP, Int64s, Progress
from kseg.errors import KsegError
from kseg.files import atomic, io, ownership
from kseg.files.whole_file import (
    HIVE_NULL,
    OPEN_MAX,
    FileSink,
    hive_directory,
    refuse_in_data_directory,
)
from kseg.format.take import split_days
from kseg.format.times import cell_of
from kseg.format.typed import BYTES, ERRORS
from kseg.format.values import RecordColumns
from kseg.parquet import ParquetFile
from kseg.records.scan import PLACE_FIELDS
from kseg.spark.damage import Damage, passing_over, report
from kseg.spark.jobs.running import Framed, Item, Ran, open_job, run, splits_of
from kseg.spark.options import SourceOptions, source_options
from kseg.spark.plan import Split, local_path
from kseg.spark.reading import read_split
from kseg.stores.path import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Days of the years 1 to 9999, from 1970 on.
_DAYS: Final = (-719_162, 2_932_896)


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The form of the files.

    Attributes:
        fields: names of `kseg.arrow`, in order.
        by: "partition" or "date".
        compression: of Parquet.
    """

    fields: tuple[str, ...]
    by: str
    compression: str

    @property
    def written(self) -> tuple[str, ...]:
        """The fields in a file; topic and partition are not, where the directories say them."""
        if self.by == "date":
            return self.fields
        return tuple(name for name in self.fields if name not in PLACE_FIELDS)

    @property
    def decoded(self) -> tuple[str, ...]:
        """The fields to decode, with those of the manifest."""
        names = {"timestamp" if name == "timestamp_ms" else name for name in self.fields}
        return tuple(sorted((names | {"offset", "timestamp"}) - set(PLACE_FIELDS)))


class ExportedFile(NamedTuple):
    """One file, whole.

    Attributes:
        path: relative to the export.
        topic, partition: of all its records; None where they are of several.
        date: in UTC, of all its records, where files go by it; None without.
        records, bytes: rows, and the size of the file.
        first_offset, last_offset: the extremes.
        min_timestamp, max_timestamp: ms, the extremes of the records with a time; None without.
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
    """The files of one task. As a context manager: after an error, all are removed."""

    def __init__(self, root: Path, options: FileOptions) -> None:
        """Nothing is made yet."""
        self._root: Final = root
        self._options: Final = options
        self._open: dict[str, _OpenFile] = {}
        self._done: list[ExportedFile] = []

    def write(self, columns: RecordColumns, source: str | None = None) -> None:
        """Add the records of a log, in order; a new file gets the owner of that log."""
        for directory, date, part in _places(columns, self._options.by):
            file = self._open.pop(directory, None)
            if file is None:
                if len(self._open) == OPEN_MAX:
                    self._finish_oldest()
                first = int(part["offset"].min())
                file = _OpenFile(
                    self._root, f"{directory}/{first:020}", date, self._options, source
                )
            # At the end: the file that was not used for longest comes first.
            self._open[directory] = file
            file.add(part)

    def _finish_oldest(self) -> None:
        oldest = next(iter(self._open))
        self._done.append(self._open[oldest].finish())
        del self._open[oldest]

    def finish(self) -> tuple[ExportedFile, ...]:
        """Every file, lasting."""
        while self._open:
            self._finish_oldest()
        return tuple(self._done)

    def __enter__(self) -> ParquetFiles:
        """Itself."""
        return self

    def __exit__(self, *error: Any) -> None:
        """Remove files that were begun, where something went wrong."""
        every = ExitStack()
        for file in self._open.values():
            every.push(file.stack)
        every.__exit__(*error)


def _places(columns: RecordColumns, by: str) -> Iterator[tuple[str, str | None, RecordColumns]]:
    """The directories that a piece goes to; with the date in UTC and the records of each."""
    if by == "date":
        for day, part in split_days(columns):
            known = day is not None and _DAYS[0] <= day <= _DAYS[1]
            date = str(np.datetime64(day, "D")) if known else None
            yield hive_directory("day", date or HIVE_NULL), date, part
    elif len(columns):
        number = HIVE_NULL if columns.partition is None else columns.partition
        topic = hive_directory("topic", columns.topic or HIVE_NULL)
        yield f"{topic}/partition={number}", None, columns


class _OpenFile:
    """One file that is being written, and the extremes of its records."""

    def __init__(
        self, root: Path, stem: str, date: str | None, options: FileOptions, source: str | None
    ) -> None:
        look = above = None
        if source is not None and not is_remote(source):
            look = ownership.of_copied_file(source)
            above = ownership.of_copied_directory(source)
        # No other attempt has this name.
        self._path: Final = f"{stem}-{uuid.uuid4().hex[:12]}.parquet"
        self._date: Final = date
        self._records = 0
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._sources: set[tuple[str | None, int | None]] = set()
        io.make_directories((root / self._path).parent, like=above)
        self.stack: Final = ExitStack()
        self._sink: Final = self.stack.enter_context(FileSink(root / self._path, like=look))
        file = ParquetFile(self._sink, options.written, compression=options.compression)
        self._file: Final = self.stack.enter_context(file)

    def add(self, columns: RecordColumns) -> None:
        """Add records."""
        self._file.write(columns)
        self._records += len(columns)
        times = columns["timestamp_ms"]
        self._offsets = _extremes(self._offsets, columns["offset"])
        self._times = _extremes(self._times, times[times != NO_TIMESTAMP])
        self._sources.add((columns.topic, columns.partition))

    def finish(self) -> ExportedFile:
        """Complete the file; it is lasting then."""
        self.stack.close()
        topic, partition = next(iter(self._sources)) if len(self._sources) == 1 else (None, None)
        first_offset, last_offset = self._offsets
        min_timestamp, max_timestamp = self._times or (None, None)
        return ExportedFile(
            path=self._path,
            topic=topic,
            partition=partition,
            date=self._date,
            records=self._records,
            bytes=self._sink.tell(),
            first_offset=first_offset,
            last_offset=last_offset,
            min_timestamp=min_timestamp,
            max_timestamp=max_timestamp,
        )


def _extremes(known: list[int], values: Int64s) -> list[int]:
    if not len(values):
        return known
    found = [*known, int(values.min()), int(values.max())]
    return [min(found), max(found)]


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
CODECS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
_BY: Final = ("partition", "date")
#: Damaged places that the answer names; more are counted only.
_FAULTS_NAMED_MAX: Final = 100


@dataclass(frozen=True, slots=True, repr=False)
class ExportResult(Framed):
    """The files that an export wrote: a table with a row for each.

    Attributes:
        out: the directory.
        files: all of them, by path.
        fault_count: places that could not be read, under `onCorrupt=skip`.
        faults: the first of them, as text.
        tasks: how many Spark ran.
        skipped: pieces of logs that an earlier run had written.
    """

    COLUMNS = " ".join(ExportedFile._fields)

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
        """The contents of `_manifest.json`."""
        return {
            "schema": SCHEMA,
            "records": self.records,
            "bytes": sum(file.bytes for file in self.files),
            "faults": self.fault_count,
            "files": [file._asdict() for file in self.files],
        }

    def table_rows(self) -> list[dict[str, Any]]:
        """The files; their rows are `spark.read.parquet(out)`."""
        times = ("min_timestamp", "max_timestamp")
        return [
            file._asdict() | {name: cell_of(getattr(file, name)) for name in times}
            for file in self.files
        ]

    def column_kinds(self) -> Mapping[str, str | None]:
        """The types of columns that their names do not tell."""
        return dict.fromkeys(ExportedFile._fields) | {"date": "string"}


#: The files that one task wrote, the number of damaged places, and the first of these as text.
_Exported = tuple[tuple[ExportedFile, ...], int, tuple[str, ...]]


def export(
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    by: str = "partition",
    fields: Iterable[str] = FIELDS,
    compression: str = "zstd",
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
        by: "partition" or "date": the meaning of the directories.
        fields: names of `kseg.arrow`, in the order of the columns.
        compression: "zstd", "snappy", "lz4", "gzip" or "none".
        options: of the source: `subscribe`, `startingTimestamp`, `isolation`, `onCorrupt` ...
        overwrite: take the place of an earlier export.
        job: a directory for notes about finished tasks; a later run goes on from it.
        progress: called now and then with tasks done and tasks in all.

    Raises:
        ValueError: an argument or option is invalid, or `out` is in a store.
        FileExistsError: `out` is there, and not to be replaced.
        NotALogError: a path is not Kafka's.
        OSError: something is missing or cannot be read or written, here or by a worker.
        KsegError: a log is damaged: names file, position and code; or `job` is of another job.
    """
    target = Path(local_path(out)).absolute()
    look = _look(tuple(fields), by, compression)
    chosen = source_options(paths, options)
    _check_target(target, overwrite=overwrite)
    directory = None
    if job is not None:
        directory = open_job(job, "export", (str(target), look, options))
    items = splits_of(chosen, marked=directory is not None)
    beside = _beside(target, directory)
    _begin(beside, items)
    try:
        ran = run(
            spark,
            items,
            partial(_export, root=beside, look=look, options=chosen),
            job=directory,
            classes=(ExportedFile,),
            usable=partial(_is_there, beside),
            progress=progress,
        )
        result = _result(target, ran)
        _show(beside, target, result)
    except BaseException:
        if directory is None:
            shutil.rmtree(beside, ignore_errors=True)
        raise
    return result


def _look(fields: tuple[str, ...], by: str, compression: str) -> FileOptions:
    unknown = [name for name in fields if name not in FIELD_NAMES]
    if unknown or not fields or len(set(fields)) < len(fields):
        what = f"no field {', '.join(unknown)}" if unknown else "fields must differ, and be some"
        raise ValueError(f"kseg: {what}; there are: {', '.join(FIELD_NAMES)}")
    if by not in _BY:
        raise ValueError(f"kseg: by is one of {', '.join(_BY)}, not {by!r}")
    if compression not in CODECS:
        raise ValueError(f"kseg: compression is one of {', '.join(CODECS)}, not {compression!r}")
    look = FileOptions(fields, by, compression)
    if not look.written:
        raise ValueError("kseg: topic and partition are in names; some other field is needed")
    return look


def _check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse to take the place of anything but an earlier export, and of that unasked."""
    refuse_in_data_directory(target)
    if not target.exists() or (target.is_dir() and not os.listdir(target)):
        return
    if not overwrite:
        raise FileExistsError(errno.EEXIST, "exists already; overwrite replaces it", str(target))
    if not (target / MANIFEST).exists():
        raise FileExistsError(
            errno.EEXIST, "is not an earlier export, so it is not replaced", str(target)
        )
    ownership.check_safe(target)


def _beside(target: Path, directory: Path | None) -> Path:
    """Where files are written: the same in each run of a job, else a new place."""
    name = uuid.uuid4().hex if directory is None else str(directory.resolve())
    suffix = hashlib.sha256(name.encode()).hexdigest()[:12]
    return target.with_name(f"{target.name}.kseg-export-{suffix}")


def _begin(beside: Path, items: Sequence[Item]) -> None:
    """Make the directory for the new files; it gets the owner of the logs.

    Raises:
        PermissionError: another user made it, or may write to it.
    """
    ownership.check_safe(beside)
    sources = [item.payload.path for item in items if not is_remote(item.payload.path)]
    look = ownership.of_copied_directory(sources[0]) if sources else None
    io.make_directories(beside, like=look and look._replace(mode=look.mode & ~0o022))


def _is_there(root: Path, done: _Exported) -> bool:
    """Whether the files of an earlier task are still there."""
    return all((root / file.path).exists() for file in done[0])


def _result(target: Path, ran: Ran) -> ExportResult:
    files, counts, faults = zip(*ran.answers, strict=True) if ran.answers else ((), (), ())
    return ExportResult(
        out=str(target),
        files=tuple(sorted(chain(*files), key=lambda file: file.path)),
        fault_count=sum(counts),
        faults=tuple(sorted(chain(*faults))[:_FAULTS_NAMED_MAX]),
        tasks=ran.tasks,
        skipped=ran.skipped,
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
    return done, len(damages), tuple(map(str, damages[:_FAULTS_NAMED_MAX]))
