"""Records of a fleet as Parquet files, written by the workers; Spark only distributes the work.

    OUT/topic=orders/partition=0/<first offset>-<attempt>.parquet     by="partition"
    OUT/day=2025-10-09/<first offset>-<attempt>.parquet               by="date", in UTC
    OUT/_manifest.json                                                every file, with its contents

Directories are named as Hive, Spark and others read them: `spark.read.parquet(OUT)` has their
columns again. Everything is written into `<OUT>.kseg-export-<job>/`, beside it. After the last task
the files of failed attempts are removed, the manifest is written, and one rename gives the
directory its name. So either the whole export exists or nothing; with `overwrite`, nothing exists
between two renames.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kseg.arrow import TYPES
from kseg.constants import NO_TIMESTAMP, Int64s, Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError
from kseg.files import atomic, io, ownership
from kseg.files.selection import StrPaths
from kseg.files.whole_file import HIVE_NULL, FileSink, refuse_in_data_directory
from kseg.format.times import cell_of
from kseg.format.typed import BYTES, ERRORS, SCHEMA_IDS, SCHEMA_NAMES
from kseg.format.values import RecordColumns
from kseg.log.recovery import Finding
from kseg.parquet import ParquetFile
from kseg.records.lake import FileFormat, hive_files
from kseg.spark.damage import passing_over, report, text_of
from kseg.spark.jobs.running import Framed, Item, Ran, open_job, run, splits_of
from kseg.spark.options import SourceOptions, source_options
from kseg.spark.plan import Split, local_path
from kseg.spark.reading import read_split
from kseg.stores.path import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: The value of `by` -> the columns in the names of directories.
_BY_DATE: Final = ("day",)
_LAYOUTS: Final = {"partition": ("topic", "partition"), "date": _BY_DATE}


class ExportedFile(NamedTuple):
    """One file, whole.

    Attributes:
        path: the path relative to the export.
        topic, partition: those of all its records; None if its records are of several.
        date: the date in UTC of all its records, if files are separated by date; otherwise None.
        records, bytes: the number of records, and the size of the file.
        first_offset, last_offset: the smallest and the largest offset.
        min_timestamp, max_timestamp: in ms, of the records with a time; None if none has one.
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


class TaskFiles:
    """The files of one task.

    Attributes:
        source: the log that records come from; a new file gets its owner.
        fields: the columns that are read, with those that the manifest needs.
        done: the complete files.
    """

    def __init__(self, root: Path, look: FileFormat, compression: str) -> None:
        """Make no file yet.

        Args:
            root: the directory of all files.
            look: the columns of files, and those in the names of directories.
            compression: the codec of the Parquet files.
        """
        self._root: Final = root
        self._look: Final = look
        self._compression: Final = compression
        self.fields: Final = tuple(dict.fromkeys((*look.fields, "offset", "timestamp")))
        self.source: str | None = None
        self.done: list[ExportedFile] = []

    def opened(self) -> AbstractContextManager[Callable[[RecordColumns], None]]:
        """A function that writes records to their files; after an error, open files are removed."""
        return hive_files(self._root, self._look.by, self._begin)

    @contextmanager
    def _begin(
        self, directory: Path, first: RecordColumns
    ) -> Iterator[Callable[[RecordColumns], None]]:
        """Begin a file in a directory, with the owner of their log; it is added to `done`."""
        file_like = directory_like = None
        if self.source is not None and not is_remote(self.source):
            file_like = ownership.of_copied_file(self.source)
            directory_like = ownership.of_copied_directory(self.source)
        io.make_directories(directory, like=directory_like)
        # No other attempt uses this name.
        path = directory / f"{int(first['offset'].min()):020}-{uuid.uuid4().hex[:12]}.parquet"
        offsets, times = list[int](), list[int]()
        places = Counter[tuple[str | None, int | None]]()
        with (
            FileSink(path, like=file_like) as sink,
            ParquetFile(sink, self._look.fields, compression=self._compression) as file,
        ):

            def write(columns: RecordColumns) -> None:
                file.write(columns)
                places[columns.topic, columns.partition] += len(columns)
                stored = columns["timestamp_ms"]
                _note_extremes(offsets, columns["offset"])
                _note_extremes(times, stored[stored != NO_TIMESTAMP])

            yield write
        topic, partition = next(iter(places)) if len(places) == 1 else (None, None)
        date = directory.name.partition("=")[2] if self._look.by == _BY_DATE else HIVE_NULL
        self.done.append(
            ExportedFile(
                path=str(path.relative_to(self._root)),
                topic=topic,
                partition=partition,
                date=None if date == HIVE_NULL else date,
                records=places.total(),
                bytes=sink.tell(),
                first_offset=min(offsets),
                last_offset=max(offsets),
                min_timestamp=min(times, default=None),
                max_timestamp=max(times, default=None),
            )
        )


def _note_extremes(extremes: list[int], values: Int64s) -> None:
    """Add the smallest and the largest value to a list."""
    if len(values):
        extremes.extend((int(values.min()), int(values.max())))


SCHEMA: Final = "kseg.spark-export/1"
MANIFEST: Final = "_manifest.json"
#: The fields that files can have: a job decodes nothing, so it has no field about decoding.
FIELD_NAMES: Final = tuple(
    name
    for name in TYPES
    if name not in (*ERRORS.values(), *BYTES.values(), *SCHEMA_IDS.values(), *SCHEMA_NAMES.values())
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
#: The number of damaged places that the answer names; more are only counted.
_FAULTS_NAMED_MAX: Final = 100


@frozen_dataclass(repr=False)
class ExportResult(Framed):
    """The files that an export wrote: a table with a row for each.

    Attributes:
        out: the directory.
        files: all files, sorted by path.
        fault_count: the number of places that could not be read, under `onCorrupt=skip`.
        faults: the first of these places, as text.
        tasks: the number of tasks that Spark ran.
        skipped: the number of pieces of logs that an earlier run had written.
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
        """The number of records in all files."""
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
    paths: StrPaths,
    out: StrPath,
    *,
    by: str = "partition",
    columns: Iterable[str] = FIELDS,
    compression: str = "zstd",
    options: Mapping[str, str] | None = None,
    overwrite: bool = False,
    job: StrPath | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Write records as Parquet.

    Args:
        spark: the session.
        paths: one path or several, as every worker sees them.
        out: the directory to make, as every worker sees it.
        by: "partition" or "date": the meaning of the directories.
        columns: names of `kseg.arrow`, in the order of the files.
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
    look = _file_format(tuple(columns), by, compression)
    chosen = source_options(paths, options)
    _check_target(target, overwrite=overwrite)
    directory = None
    if job is not None:
        directory = open_job(job, "export", (str(target), look, compression, options))
    items = splits_of(chosen, marked=directory is not None)
    staging = _staging_of(target, directory)
    _begin(staging, items)
    try:
        ran = run(
            spark,
            items,
            partial(_export, root=staging, look=look, compression=compression, options=chosen),
            job=directory,
            classes=(ExportedFile,),
            usable=partial(_is_there, staging),
            progress=progress,
        )
        result = _result(target, ran)
        _show(staging, target, result)
    except BaseException:
        if directory is None:
            shutil.rmtree(staging, ignore_errors=True)
        raise
    return result


def _file_format(columns: tuple[str, ...], by: str, compression: str) -> FileFormat:
    """The format of the files; raises ValueError for an unknown column, layout or codec."""
    unknown = [name for name in columns if name not in FIELD_NAMES]
    if unknown or not columns or len(set(columns)) < len(columns):
        reason = (
            f"no column {', '.join(unknown)}" if unknown else "columns must differ, and be some"
        )
        raise ValueError(f"kseg: {reason}; there are: {', '.join(FIELD_NAMES)}")
    if by not in _LAYOUTS:
        raise ValueError(f"kseg: by is one of {', '.join(_LAYOUTS)}, not {by!r}")
    if compression not in CODECS:
        raise ValueError(f"kseg: compression is one of {', '.join(CODECS)}, not {compression!r}")
    look = FileFormat("parquet", columns, by=_LAYOUTS[by])
    if not look.fields:
        raise ValueError("kseg: topic and partition are in names; some other column is needed")
    return look


def _check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse to replace anything but an earlier export, and that too without `overwrite`."""
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


def _staging_of(target: Path, directory: Path | None) -> Path:
    """The directory where files are written: the same in each run of a job, otherwise a new one."""
    name = uuid.uuid4().hex if directory is None else str(directory.resolve())
    suffix = hashlib.sha256(name.encode()).hexdigest()[:12]
    return target.with_name(f"{target.name}.kseg-export-{suffix}")


def _begin(staging: Path, items: Sequence[Item]) -> None:
    """Make the directory for the new files; it gets the owner of the logs.

    Raises:
        PermissionError: another user made it, or may write to it.
    """
    ownership.check_safe(staging)
    sources = [item.payload.path for item in items if not is_remote(item.payload.path)]
    look = ownership.of_copied_directory(sources[0]) if sources else None
    io.make_directories(staging, like=look and look._replace(mode=look.mode & ~0o022))


def _is_there(root: Path, done: _Exported) -> bool:
    """Whether the files of an earlier task are still there."""
    files, _fault_count, _faults = done
    return all((root / file.path).exists() for file in files)


def _result(target: Path, ran: Ran) -> ExportResult:
    """The result of all tasks, from their answers; see `_Exported`."""
    files, counts, faults = zip(*ran.answers, strict=True) if ran.answers else ((), (), ())
    return ExportResult(
        out=str(target),
        files=tuple(sorted(chain(*files), key=lambda file: file.path)),
        fault_count=sum(counts),
        faults=tuple(sorted(chain(*faults))[:_FAULTS_NAMED_MAX]),
        tasks=ran.tasks,
        skipped=ran.skipped,
    )


def _show(staging: Path, target: Path, result: ExportResult) -> None:
    """Remove files that are not of the export, write the manifest, rename the directory."""
    missing = {str(staging / file.path) for file in result.files}
    for folder, _folders, names in os.walk(staging):
        for name in names:
            path = os.path.join(folder, name)
            if path not in missing:  # a file of a failed attempt, or of an earlier run
                io.unlink(path)
            else:
                missing.discard(path)
        io.flush_directory(folder)
    if missing:
        raise KsegError("a file that a worker wrote is not seen here", path=min(missing))
    text = json.dumps(result.manifest(), indent=1)
    atomic.replace_file(staging / MANIFEST, text.encode())
    old = None
    if target.exists():
        old = target.with_name(f"{target.name}.kseg-old-{uuid.uuid4().hex[:8]}")
        io.rename(target, old)
    io.rename(staging, target)
    io.flush_directory(target.parent)
    if old is not None:
        io.remove_tree(old)


# ---- in a worker ---------------------------------------------------------------------------------


def _export(
    splits: Sequence[Split],
    *,
    root: Path,
    look: FileFormat,
    compression: str,
    options: SourceOptions,
) -> _Exported:
    """The work of a task: write the records of its splits; returns files and faults."""
    damages: list[Finding] = []
    files = TaskFiles(root, look, compression)
    with files.opened() as write:
        for split in splits:
            files.source = split.path
            on_error = passing_over(options, split, damages)
            for columns in read_split(split, files.fields, options, on_error):
                if len(columns):
                    write(columns)
    if options.on_corrupt != "raise":
        report(damages, tuple(splits), options.report_path)
    return tuple(files.done), len(damages), tuple(map(text_of, damages[:_FAULTS_NAMED_MAX]))
