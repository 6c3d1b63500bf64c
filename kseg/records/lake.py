"""Files of records for other programs: names, Hive's layout, and the refusal to lose records.

Each file is written beside its final name and renamed when it is complete, so no program reads half
a file.

Parquet and Arrow files say which records they have in the metadata of their schema, under
`kseg.export`. JSON lines and CSV have no place for it: an export with bounds does not replace them.

With `by` the files are in Hive's layout: `day=2026-11-23/topic=t/part-t-0.parquet`. The names of
directories have values that the files leave out. Few files are open at a time: records are mostly
in order of time, so the file of a day is completed once many other days have followed; if the day
occurs again, it gets one more file.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kseg.constants import EXTENSIONS, PARTITION_KEYS, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, LimitExceededError
from kseg.extras import require
from kseg.files.whole_file import (
    HIVE_NULL,
    OPEN_MAX,
    fitting_name,
    hive_directory,
    refuse_in_data_directory,
    whole_file,
)
from kseg.format.take import split_days
from kseg.format.times import iso_text
from kseg.format.typed import BYTES, ERRORS, Kinds, decoded_fields
from kseg.frames import Table
from kseg.records.query import Range
from kseg.stores.path import RemotePath, out_path

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns
    from kseg.stores.path import Sink

    Write = Callable[[RecordColumns], None]
    Begin = Callable[[Path, RecordColumns], AbstractContextManager[Write]]

ALL: Final[Range] = (None, None)
#: Days of the years 1 to 9999, from 1970 on; other programs read no others.
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
#: The most files of one partition or segment: with more, the records have meaningless times.
_FILES_MAX: Final = 10_000
#: Ends of names that people give to files of records, and to no directory.
_OTHERS: Final = {"json", "ndjson", "pq", "feather", "ipc", "orc", "avro", "tsv", "txt", "xlsx"}


# ---- the records of a file -----------------------------------------------------------------------

#: The key in the metadata of a schema.
_KEY: Final = b"kseg.export"
#: The most bytes that are read of a file's end, which has its schema and its row groups.
_END_BYTES_MAX: Final = 64 << 20
_WAYS_OUT: Final = (
    "export all of that, choose another output, or replace the file (--replace, replace=True)"
)


class Selected(NamedTuple):
    """The records that an export writes into a file.

    Attributes:
        offsets: the bounds of offsets, half open; None on a side without a bound.
        times: the bounds of times in ms, likewise.
        isolation: "read_committed" leaves records out.
        has_bounds: whether the user gave bounds, so that a part of the log is left out.
        key: only records with this key, in hexadecimal digits.
        limit: only the first `limit` records.
        last: only the last `last` records of each log.
        logs: the name and the offsets of each log, in a file of several partitions.
    """

    offsets: Range = ALL
    times: Range = ALL
    isolation: str = "read_uncommitted"
    has_bounds: bool = False
    key: str | None = None
    limit: int | None = None
    last: int | None = None
    logs: tuple[tuple[str, Range], ...] = ()

    def metadata(self) -> dict[bytes, bytes]:
        """The metadata for the schema of a file."""
        further = {"offsets": self.offsets, "times": self.times, "isolation": self.isolation}
        further |= {
            name: getattr(self, name) for name in _FURTHER if getattr(self, name) != _DEFAULTS[name]
        }
        return {_KEY: json.dumps(further).encode()}

    def covers(self, other: Selected) -> bool:
        """Whether a new file with this selection has all records of a file with the `other` one.

        The other file may be older: retention and appends have changed the logs since.
        """
        mine, logs = dict(self.logs), dict(other.logs)
        same_logs = bool(mine) == bool(logs) and mine.keys() >= logs.keys()
        return (
            same_logs
            and all(_within(bounds, mine[name]) for name, bounds in logs.items())
            and _within(other.offsets, self.offsets)
            and _within(other.times, self.times)
            and self.isolation in (other.isolation, "read_uncommitted")
            and self.key in (other.key, None)
            and self.last is None  # a log that has grown has other last records
            and (self.limit is None or self._extends(other))
        )

    def _extends(self, other: Selected) -> bool:
        """Whether this selection of the first records starts with all records that `other` selects.

        Never for several logs: a log that has grown shifts the records of the logs after it.
        """
        if self.logs or self.limit is None or other.limit is None or other.limit > self.limit:
            return False
        mine = (self.times, self.isolation, self.key, self.offsets[0])
        return mine == (other.times, other.isolation, other.key, other.offsets[0])

    def __str__(self) -> str:
        """The bounds in words."""
        times = "..".join("" if at is None else iso_text(at) or str(at) for at in self.times)
        logs = ", ".join(f"{name} {_text(bounds)}" for name, bounds in self.logs)
        parts = [f"offsets {logs or _text(self.offsets)}"]
        if self.times != ALL:
            parts.append(f"times {times}")
        if self.key is not None:
            parts.append(f"the key hex:{self.key}")
        if self.limit is not None:
            parts.append(f"the first {self.limit} records")
        if self.last is not None:
            parts.append(f"the last {self.last} records")
        if self.isolation != "read_uncommitted":
            parts.append(self.isolation)
        return ", ".join(parts)


#: All records of any log.
EVERYTHING: Final = Selected()
#: Fields that most files lack in their metadata.
_FURTHER: Final = ("key", "limit", "last", "logs")
_DEFAULTS: Final = Selected._field_defaults


def _within(inner: Range, outer: Range) -> bool:
    """Whether the inner bounds are within the outer ones; None means no bound on that side."""
    return (outer[0] is None or (inner[0] is not None and inner[0] >= outer[0])) and (
        outer[1] is None or (inner[1] is not None and inner[1] <= outer[1])
    )


def _text(bounds: Range) -> str:
    """Bounds in words: `10..20`, without the number where there is no bound."""
    return "..".join("" if at is None else str(at) for at in bounds)


def refuse_loss(target: Path, form: str, selected: Selected) -> None:
    """Refuse to replace a file that may have records which the new file will not have.

    Args:
        target: the path of both files.
        form: the format of both files.
        selected: the selection of the new file.

    Raises:
        FileExistsError: the file may have such records.
    """
    if not target.exists():
        return
    present = _selected_of(target, form)
    if present is None and selected.has_bounds:
        raise refusal(target, f"this export has only {selected}, the file may have more")
    if present is not None and not selected.covers(present):
        raise refusal(target, f"the file has {present}, this export has {selected}")


def refusal(target: Path, why: str) -> FileExistsError:
    """The error for a file that is not replaced."""
    reason = f"not replaced: {why}; {_WAYS_OUT}"
    return FileExistsError(errno.EEXIST, reason, os.fspath(target))


def _selected_of(target: Path, form: str) -> Selected | None:
    """The records in a file according to its metadata; None if it lacks this metadata."""
    if form not in ("parquet", "arrow"):
        return None
    pyarrow: Any = require("pyarrow", extra="arrow")
    parquet: Any = require("pyarrow.parquet", extra="arrow")
    stored = _end_of(target, form) if isinstance(target, RemotePath) else None
    with (
        suppress(pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError),
        pyarrow.BufferReader(stored) if stored else pyarrow.OSFile(os.fspath(target)) as file,
    ):
        is_parquet = form == "parquet"
        schema = parquet.read_schema(file) if is_parquet else pyarrow.ipc.open_file(file).schema
        metadata = json.loads(schema.metadata[_KEY])
        offsets, times = (_range(metadata[name]) for name in ("offsets", "times"))
        logs = tuple((str(name), _range(bounds)) for name, bounds in metadata.get("logs", ()))
        key, limit, last = (metadata.get(name) for name in ("key", "limit", "last"))
        return Selected(offsets, times, str(metadata["isolation"]), False, key, limit, last, logs)
    return None


def _end_of(target: RemotePath, form: str) -> bytes:
    """The end of a Parquet or Arrow file, which has the schema; empty for other files.

    Raises:
        OSError: the store refuses.
    """
    with closing(target.open_elsewhere()) as file:
        # The file ends with the size of the metadata in four bytes, and `PAR1` or `ARROW1`. pyarrow
        # needs as many further bytes before the metadata.
        tail = 8 if form == "parquet" else 10
        size = int.from_bytes(file.read(max(file.size - tail, 0), 4), "little") + 2 * tail
        start = max(file.size - size, 0)
        return bytes(file.read(start, size)) if size <= _END_BYTES_MAX else b""


def _range(extremes: list[int | None]) -> Range:
    """Bounds from JSON.

    Raises:
        ValueError, TypeError: they are not bounds.
    """
    start, end = extremes
    return (None if start is None else int(start), None if end is None else int(end))


# ---- writing -------------------------------------------------------------------------------------


@frozen_dataclass
class FileFormat:
    """The form, columns and records of exported files.

    Attributes:
        form: "parquet" or "arrow", or another format that a subclass writes.
        columns: the names of the columns, in order.
        kinds: the kinds that keys and values are decoded as.
        by: the columns in the names of directories, which files leave out.
        keep_bytes: also write the bytes of values that do not decode.
        selected: the records that the file has.
        replace: replace any file, whatever its contents.
        source: the log or partition directory whose owner and permissions the file gets.
        is_file: whether the source is a single file that was named.
    """

    form: str
    columns: tuple[str, ...]
    kinds: Kinds = field(default_factory=dict)
    by: tuple[str, ...] = ()
    keep_bytes: bool = False
    selected: Selected = EVERYTHING
    replace: bool = False
    source: Path | None = None
    is_file: bool = False

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of a file in order; a decoded column is followed by that of its errors.

        Raises:
            ValueError: the columns do not match the decoded kinds.
        """
        names = (name for name in self.columns if name not in self.by)
        return decoded_fields(names, self.kinds, keep_bytes=self.keep_bytes)

    def check(self) -> None:
        """Refuse a format in which no file can be written.

        Raises:
            ValueError: it has no columns, or `by` has an unknown column.
        """
        unknown = [name for name in self.by if name not in PARTITION_KEYS]
        if unknown or len(set(self.by)) < len(self.by):
            raise ValueError(f"partition_by is of {', '.join(PARTITION_KEYS)}, not {self.by!r}")
        if self.keep_bytes and not self.kinds:
            raise ValueError("keep_bytes needs decode")
        if self.form == "parquet" and self.kinds:
            from kseg.arrow import check_types  # needs pyarrow

            check_types(self.kinds, "Parquet", "write .arrow or .jsonl, or ")
        if not self.fields:
            raise ValueError("the columns are all left out by partition_by")

    def opened(self, sink: Sink) -> AbstractContextManager[Write]:
        """A function that writes pieces to a new file, which the end of the block completes."""
        return _parquet(sink, self) if self.form == "parquet" else _arrow(sink, self)


@contextmanager
def open_target(
    target: Path, file_format: FileFormat, faults: Sequence[KsegError]
) -> Iterator[Write]:
    """A function that writes pieces; the file gets its name when the block ends without an error.

    Args:
        target: the path of the file.
        file_format: its format.
        faults: the damage that was skipped so far; the reader may add more.

    Raises:
        FileExistsError: there is a file with records that the new one may not have.
    """
    replaces = target.exists() and not file_format.replace
    if replaces:
        refuse_loss(target, file_format.form, file_format.selected)
    with ExitStack() as stack:
        if isinstance(target, RemotePath):
            from kseg.stores.path import whole_object

            new = not (replaces or file_format.replace)
            sink: Sink = stack.enter_context(whole_object(target, new=new))
        else:
            sink = stack.enter_context(whole_file(target, source=file_format.source))
        write = stack.enter_context(file_format.opened(sink))
        yield write
        if replaces and faults:
            raise refusal(target, "it may have records that are damaged in the log by now")


@contextmanager
def _parquet(sink: Sink, file_format: FileFormat) -> Iterator[Write]:
    """A function that writes pieces to a Parquet file."""
    parquet: Any = require("kseg.parquet", extra="arrow")
    metadata = file_format.selected.metadata()
    with parquet.ParquetFile(sink, file_format.fields, file_format.kinds, metadata) as file:
        yield file.write


@contextmanager
def _arrow(sink: Sink, file_format: FileFormat) -> Iterator[Write]:
    """A function that writes pieces to an Arrow file."""
    arrow: Any = require("kseg.arrow", extra="arrow")
    pyarrow: Any = require("pyarrow", extra="arrow")
    fields = file_format.fields
    schema = arrow.schema(fields, file_format.kinds).with_metadata(file_format.selected.metadata())
    with pyarrow.ipc.new_file(sink, schema) as writer:
        yield lambda columns: writer.write_batch(arrow.to_record_batch(columns, fields=fields))


@contextmanager
def hive_files(out: Path, by: Sequence[str], begin: Begin) -> Iterator[Write]:
    """A function that writes pieces to the files of Hive's layout, few of them open at a time.

    The block completes the files; after an error, it removes those that are open.

    Args:
        out: the directory of the layout.
        by: the columns in the names of directories.
        begin: begins a file in a directory, given the directory and its first records.
    """
    # Directory -> its open file; the most recently used one comes last.
    files: dict[Path, tuple[ExitStack, Write]] = {}
    with ExitStack() as every:

        def write(columns: RecordColumns) -> None:
            """Write a piece to the files of its directories; with "day", rows are split by day."""
            for day, part in split_days(columns) if "day" in by else [(None, columns)]:
                names = {
                    "day": day_text(day) or HIVE_NULL,
                    "topic": columns.topic or HIVE_NULL,
                    "partition": HIVE_NULL if columns.partition is None else str(columns.partition),
                }
                directory = out.joinpath(*(hive_directory(key, names[key]) for key in by))
                if directory in files:
                    stack, write_part = files.pop(directory)
                else:
                    if len(files) == OPEN_MAX:  # the file that was used longest ago is complete
                        oldest, _ = files.pop(next(iter(files)))
                        oldest.close()
                    stack = every.enter_context(ExitStack())
                    write_part = stack.enter_context(begin(directory, part))
                files[directory] = stack, write_part
                write_part(part)

        yield write


def day_text(day: int | None) -> str | None:
    """The date of a day since 1970; None if `day` is None or outside of the years 1 to 9999."""
    has_date = day is not None and _FIRST_DAY <= day <= _LAST_DAY
    return str(np.datetime64(day, "D")) if has_date else None


class Files:
    """The files of one source of records. Not for threads.

    Attributes:
        records: the number of records in each file so far.
    """

    def __init__(self, target: Path, file_format: FileFormat, faults: Sequence[KsegError]) -> None:
        """Write nothing yet.

        Args:
            target: the path of a file, with any names in place of the directories of the layout.
            file_format: the format of the files; `file_format.by` are the directories.
            faults: the damage that was skipped so far; the reader may add more.
        """
        self._target = target
        self._format = file_format
        self._faults = faults
        self._parts: Counter[Path] = Counter()
        self.records: dict[Path, int] = {}

    @contextmanager
    def opened(self) -> Iterator[Write]:
        """A function that writes pieces; the block completes the files, or removes open ones."""
        by = self._format.by
        layout = hive_files(self._target.parents[len(by)], by, self._begin)
        with layout if by else self._begin(self._target.parent) as write:
            yield write

    @contextmanager
    def _begin(self, directory: Path, _first: RecordColumns | None = None) -> Iterator[Write]:
        """Begin a file in a directory; its name has a number if the source has a file there."""
        if len(self.records) == _FILES_MAX:
            reason = f"more than {_FILES_MAX} files; --time leaves out times that mean nothing"
            raise LimitExceededError(reason, path=self._target)
        self._parts[directory] += 1
        part = self._parts[directory]
        # No directory of a partition has a name that ends like this.
        number = "" if part == 1 else f".{part}"
        path = directory / fitting_name(self._target.stem + number, self._target.suffix)
        with open_target(path, self._format, self._faults) as write:
            self.records[path] = 0

            def write_counted(columns: RecordColumns) -> None:
                write(columns)
                self.records[path] += len(columns)

            yield write_counted


@frozen_dataclass(repr=False)
class WrittenFiles(Table):
    """The files that an export wrote.

    Attributes:
        rows: path, number of records, and bytes of each.
    """

    rows: tuple[tuple[str, int, int], ...]

    @property
    def title(self) -> str:
        """How much was written."""
        return f"{sum(row[1] for row in self.rows)} records in {len(self.rows)} files"

    def table_rows(self) -> list[dict[str, Any]]:
        """A row for each file: `path`, `records`, `bytes`."""
        return [dict(zip(("path", "records", "bytes"), row, strict=True)) for row in self.rows]


class Undecoded:
    """Counts keys and values that are null because their bytes are of another kind.

    Attributes:
        counts: "key" or "value" -> number.
    """

    def __init__(self) -> None:
        """Start without records."""
        self.counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def note(self, columns: RecordColumns) -> None:
        """Count the rows of a piece."""
        for name, error in ERRORS.items():
            reasons = columns.arrays.get(error)
            if reasons is None or reasons.null_count == len(columns):
                continue
            self.counts[name] += len(columns) - reasons.null_count
            first = next(reason for reason in reasons.to_pylist() if reason is not None)
            self._first.setdefault(name, first)

    def merge(self, other: Undecoded) -> None:
        """Add the counts of a later part."""
        self.counts += other.counts
        self._first = other._first | self._first

    def lines(self, file_format: FileFormat, way: str = "--keep-bytes") -> Iterator[str]:
        """A line for keys, and one for values, if they are decoded.

        Args:
            file_format: the format of the files.
            way: the option that keeps the bytes.
        """
        for name, count in self.counts.items():
            do, are = ("does", "is") if count == 1 else ("do", "are")
            hint = f"their bytes are in {BYTES[name]}"
            yield (
                f"kseg: {count} {name}{'s' * (count != 1)} {do} not decode as "
                f"{file_format.kinds[name].value} (the first: {self._first[name]}) and {are} null "
                "in what was written; "
                + (hint if BYTES[name] in file_format.fields else f"{way} keeps their bytes")
            )


# ---- names ---------------------------------------------------------------------------------------


def targets(names: Sequence[Path], out: Path, form: str, by: tuple[str, ...]) -> list[Path]:
    """The file for each name; with `by`, names of directories are patterns such as `day=*`.

    Args:
        names: paths relative to the output, without an extension.
        out: a file or a directory.
        form: one of `EXTENSIONS`.
        by: the columns in the names of directories.

    Raises:
        ValueError: the output has the name of another file, or is not a place for these files, or
            lies in a data directory.
    """
    refuse_other_files(out)
    if not isinstance(out, RemotePath):
        refuse_in_data_directory(out)
    is_file = out.suffix[1:] in EXTENSIONS and not out.is_dir()
    if by:
        if is_file:
            raise ValueError(f"with partition columns the output must be a directory, not {out}")
        layout = out.joinpath(*(f"{key}=*" for key in by))
        files = [
            layout / fitting_name(f"part-{'-'.join(name.parts)}", f".{form}") for name in names
        ]
    elif is_file:
        if len(names) != 1:
            raise ValueError(
                f"{len(names)} files would be written, so the output must be a directory, not {out}"
            )
        return [out]
    else:
        files = [out / name.with_name(fitting_name(name.name, f".{form}")) for name in names]
    if len(set(files)) < len(files):
        raise ValueError("two of the paths have the same name; export them one by one")
    return files


def output_path(out: StrPath) -> Path:
    """The path of a file or a directory that a caller names, here or in a store.

    Raises:
        TypeError: it is neither text nor a `Path`.
        MissingExtraError: no package here speaks with the store.
        ValueError: it is the name of a file in another form.
    """
    if not isinstance(out, str | os.PathLike) or isinstance(os.fspath(out), bytes):
        raise TypeError(f"out is the path of a directory or a file, not {out!r}")
    path = out_path(out)
    if path.suffix[1:] in EXTENSIONS[1:] and not path.is_dir():
        raise ValueError(
            f"{out} is not the name of a Parquet file; `kseg export` writes other files"
        )
    return path


def refuse_other_files(out: Path) -> None:
    """Refuse the name of a file that is not written, as if it were one of a directory.

    Raises:
        ValueError: it is one of those names.
    """
    if out.suffix[1:].lower() in _OTHERS and not out.is_dir():
        written = ", ".join(f".{extension}" for extension in EXTENSIONS)
        raise ValueError(f"{out} has an unknown extension; use one of {written}")
