"""The files that `kseg export` writes: Parquet, Arrow IPC, JSON lines and CSV.

Each is written beside its final name and renamed when it is complete, so no program reads half a
file.

Parquet and Arrow files say which records they have in the metadata of their schema, under
`kseg.export`. JSON lines and CSV have no place for it: an export with bounds does not replace them.

With `--partition-by` they stand in Hive's layout: `day=2026-11-23/topic=t/part-t-0.parquet`. The
names of directories say what the files leave out. Few files are open at a time: records are mostly
in order of time, so a day that many others have followed is done; where it comes again after all,
it gets one more file.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kseg.cli.failures import tell_replaced
from kseg.cli.parsing import ALL, Range
from kseg.cli.row_writer import RowWriter
from kseg.cli.rows import RECORD_FIELDS, Field, Style, csv_head, record_rows
from kseg.cli.typed import typed_fields, typed_rows
from kseg.errors import KsegError, LimitExceededError
from kseg.extras import require
from kseg.files.output_names import HIVE_NULL, OPEN_MAX, fitting_name, hive_directory
from kseg.files.whole_file import FileSink, whole_file
from kseg.format.take import split_days
from kseg.format.times import iso_text
from kseg.format.typed import KEPT_BYTES, Kinds, decode_columns, decoded_fields

if TYPE_CHECKING:
    from types import TracebackType

    from kseg.format.values import RecordColumns

    Write = Callable[[RecordColumns], None]

_FIELDS = tuple(one.name for one in RECORD_FIELDS if one.name != "next_offset")
#: `timestamp` is null for times that engines do not all hold, hence the number behind it.
_PAST_TIME = _FIELDS.index("timestamp") + 1
_ARROW_FIELDS = (
    *("topic", "partition", *_FIELDS[:_PAST_TIME], "timestamp_ms"),
    *_FIELDS[_PAST_TIME:],
)
#: Files of one partition or segment: more than these are times that mean nothing.
_FILES_MAX: Final = 10_000


# ---- the records of a file -----------------------------------------------------------------------

#: The key in the metadata of a schema.
_KEY: Final = b"kseg.export"
_WAYS_OUT: Final = "export all of that, choose another -o, or replace the file with --replace"


class Selected(NamedTuple):
    """The records of a log that an export takes.

    Attributes:
        offsets: half open; None where the log was not asked for its end.
        times: likewise, in ms.
        isolation: "read_committed" leaves records out.
        has_bounds: whether the user gave bounds, so that a part of the log is left out.
    """

    offsets: Range = ALL
    times: Range = ALL
    isolation: str = "read_uncommitted"
    has_bounds: bool = False

    def metadata(self) -> dict[bytes, bytes]:
        """The metadata for the schema of a file."""
        said = {"offsets": self.offsets, "times": self.times, "isolation": self.isolation}
        return {_KEY: json.dumps(said).encode()}

    def covers(self, other: Selected) -> bool:
        """Whether an export of this has all that an export of the other has."""
        return (
            _within(other.offsets, self.offsets)
            and _within(other.times, self.times)
            and self.isolation in (other.isolation, "read_uncommitted")
        )

    def __str__(self) -> str:
        """The bounds in words."""
        times = "..".join("" if at is None else iso_text(at) or str(at) for at in self.times)
        parts = [f"offsets {_text(self.offsets)}", *([f"times {times}"] * (self.times != ALL))]
        return ", ".join([*parts, *([self.isolation] * (self.isolation != "read_uncommitted"))])


#: All of any log.
EVERYTHING: Final = Selected()


def _within(inner: Range, outer: Range) -> bool:
    return (outer[0] is None or (inner[0] is not None and inner[0] >= outer[0])) and (
        outer[1] is None or (inner[1] is not None and inner[1] <= outer[1])
    )


def _text(bounds: Range) -> str:
    return "..".join("" if at is None else str(at) for at in bounds)


def refuse_loss(target: Path, form: str, selected: Selected) -> None:
    """Refuse to replace a file that may have records which this export does not take.

    Args:
        target: of the new file.
        form: of both files.
        selected: what the new file will have.

    Raises:
        FileExistsError: the file may have others.
    """
    if not target.exists():
        return
    there = _selected_of(target, form)
    if there is None and selected.has_bounds:
        raise refusal(target, f"this export takes {selected} alone, the file may have more")
    if there is not None and not selected.covers(there):
        raise refusal(target, f"the file has {there}, this export takes {selected}")


def refusal(target: Path, why: str) -> FileExistsError:
    """The error for a file that is not replaced."""
    reason = f"not replaced: {why}; {_WAYS_OUT}"
    return FileExistsError(errno.EEXIST, reason, os.fspath(target))


def _selected_of(target: Path, form: str) -> Selected | None:
    """The records that a file holds, by its metadata; None if it has no such metadata."""
    if form not in ("parquet", "arrow"):
        return None
    pyarrow: Any = require("pyarrow", extra="arrow")
    parquet: Any = require("pyarrow.parquet", extra="arrow")
    with suppress(pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError):
        if form == "parquet":
            metadata = parquet.read_schema(target).metadata
        else:
            with pyarrow.OSFile(os.fspath(target)) as file:
                metadata = pyarrow.ipc.open_file(file).schema.metadata
        said = json.loads(metadata[_KEY])
        offsets, times = (_range(said[name]) for name in ("offsets", "times"))
        return Selected(offsets, times, str(said["isolation"]))
    return None


def _range(given: list[int | None]) -> Range:
    start, end = given
    return (None if start is None else int(start), None if end is None else int(end))


# ---- writing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The form, fields and records of exported files.

    Attributes:
        form: one of `kseg.cli.options.EXTENSIONS`.
        chosen: the fields, None for all; then lines of text say `dir` and `file` too.
        encoding: of bytes in lines of text.
        directory: name of the partition directory, if one was asked for.
        kinds: what keys and values are decoded as.
        by: what the names of directories say, which files leave out.
        keep_bytes: also the bytes of what does not decode.
        selected: the records that the file has.
        replace: replace any file, whatever it has.
        formulas: leave text in CSV that a spreadsheet would compute as it is.
        source: the log or partition directory whose owner and permissions the file gets.
    """

    form: str
    chosen: tuple[str, ...] | None
    encoding: str
    directory: str | None = None
    kinds: Kinds = field(default_factory=dict)
    by: tuple[str, ...] = ()
    keep_bytes: bool = False
    selected: Selected = EVERYTHING
    replace: bool = False
    formulas: bool = True
    source: Path | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields in order. Arrow and Parquet files say topic and partition too.

        Raises:
            ValueError: the chosen ones do not go with what is decoded.
        """
        named = self.chosen
        if named is None:
            named = _ARROW_FIELDS if self.is_arrow else _FIELDS
        elif "timestamp_ms" in named and not self.is_arrow:
            raise ValueError(
                f"timestamp_ms is for Parquet and Arrow; in .{self.form}, timestamp is it"
            )
        kept = (name for name in named if name not in self.by)
        return decoded_fields(kept, self.kinds, keep_bytes=self.keep_bytes)

    def decoded(self, columns: RecordColumns) -> RecordColumns:
        """A piece as it is written: keys and values decoded."""
        if not self.kinds:
            return columns
        keep_bytes = not KEPT_BYTES.isdisjoint(self.fields)
        return decode_columns(columns, self.kinds, keep_bytes=keep_bytes)

    @property
    def is_arrow(self) -> bool:
        """Whether pyarrow writes the file."""
        return self.form in ("parquet", "arrow")


@contextmanager
def open_target(
    target: Path, file_format: FileFormat, faults: Sequence[KsegError]
) -> Iterator[Write]:
    """A function that writes pieces; the file takes its name when the block ends well.

    Args:
        target: the file.
        file_format: how it is to look.
        faults: the damage that was passed over so far; more may come.

    Raises:
        FileExistsError: there is a file with records that the new one may not have.
    """
    replaces = target.exists() and not file_format.replace
    if replaces:
        refuse_loss(target, file_format.form, file_format.selected)
    with (
        whole_file(target, source=file_format.source) as sink,
        _OPENERS[file_format.form](sink, file_format) as write,
    ):
        yield write
        if replaces and faults:
            raise refusal(target, "it may have records that are damaged in the log by now")


@contextmanager
def _parquet(sink: FileSink, file_format: FileFormat) -> Iterator[Write]:
    parquet: Any = require("kseg.parquet", extra="arrow")
    said = file_format.selected.metadata()
    with parquet.ParquetFile(sink, file_format.fields, file_format.kinds, said) as file:
        yield file.write


@contextmanager
def _arrow(sink: FileSink, file_format: FileFormat) -> Iterator[Write]:
    arrow: Any = require("kseg.arrow", extra="arrow")
    pyarrow: Any = require("pyarrow", extra="arrow")
    fields = file_format.fields
    schema = arrow.schema(fields, file_format.kinds).with_metadata(file_format.selected.metadata())
    with pyarrow.ipc.new_file(sink, schema) as writer:
        yield lambda columns: writer.write_batch(arrow.to_record_batch(columns, fields=fields))


@contextmanager
def _jsonl(sink: FileSink, file_format: FileFormat) -> Iterator[Write]:
    writer = RowWriter(sink.write)
    yield lambda columns: _write_rows(writer, columns, file_format)


@contextmanager
def _csv(sink: FileSink, file_format: FileFormat) -> Iterator[Write]:
    sink.write(csv_head(_row_fields(file_format), _style(file_format, "")))
    writer = RowWriter(sink.write if file_format.formulas else FormulaGuard(sink.write).write)
    yield lambda columns: _write_rows(writer, columns, file_format)
    tell_replaced(writer.replaced, f"{sink.target}: ")


def _write_rows(writer: RowWriter, columns: RecordColumns, file_format: FileFormat) -> None:
    style = _style(file_format, Path(columns.source or "").name)
    fields = _row_fields(file_format)
    if file_format.kinds:
        template = typed_rows(columns, style, fields)
    else:
        template = record_rows(columns, style, fields)
    writer.rows(template, len(columns))


def _style(file_format: FileFormat, file: str) -> Style:
    # CSV in a file is for spreadsheets and loaders: text as it is, not escaped for a terminal.
    encoding = (
        "raw"
        if (file_format.form, file_format.encoding) == ("csv", "utf8")
        else file_format.encoding
    )
    if file_format.chosen is not None:
        return Style(file_format.form, encoding)
    return Style(file_format.form, encoding, file_format.directory, file)


def _row_fields(file_format: FileFormat) -> tuple[Field, ...]:
    by_name = {one.name: one for one in typed_fields(file_format.kinds, keep_bytes=True)}
    return tuple(by_name[name] for name in file_format.fields if name in by_name)


_OPENERS: dict[str, Callable[[FileSink, FileFormat], Any]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": _jsonl,
    "csv": _csv,
}


#: The first bytes of formulas, with the wide forms of `= + - @` in UTF-8.
_FORMULA: Final = re.compile(rb"[=+\-@\t\r\n]|\xef\xbc[\x9d\x8b\x8d\xa0]")
_NUMBER: Final = re.compile(rb"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class FormulaGuard:
    """Passes CSV on whose text fields are all quoted, with apostrophes where they are needed.

    A spreadsheet takes text for a formula that begins with one of `= + - @`, a tab or a line end:
    Excel, LibreOffice and others (OWASP, "CSV Injection"). A number stays as it is.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Start in front of the first field."""
        self._write = write
        self._inside = self._begins = False
        self._after_quote = False

    def write(self, data: memoryview) -> None:
        """Pass on the next bytes; they may end anywhere, but within a character."""
        out = []
        for number, part in enumerate(bytes(data).split(b'"')):
            if number:
                # A quote that ends no field and follows one at once is a quote within it.
                self._begins = not self._inside and not self._after_quote
                self._after_quote = self._inside
                self._inside = not self._inside
                out.append(b'"')
            if not part:
                continue
            if self._begins and _FORMULA.match(part) and not _NUMBER.fullmatch(part):
                out.append(b"'")
            self._begins = self._after_quote = False
            out.append(part)
        self._write(b"".join(out))


class PartitionedFiles:
    """The files of one source of records, by what is said of each record. Not for threads."""

    def __init__(self, target: Path, file_format: FileFormat, faults: Sequence[KsegError]) -> None:
        """Write nothing yet.

        Args:
            target: the path of a file, with any names in place of the directories of the layout.
            file_format: how files are to look; `file_format.by` are the directories.
            faults: the damage that was passed over so far; more may come.
        """
        self._out: Final = target.parents[len(file_format.by)]
        self._target = target
        self._look = file_format
        self._faults = faults
        self._open: dict[Path, tuple[ExitStack, Write]] = {}
        self._parts: dict[Path, int] = {}
        self.count = 0

    def __enter__(self) -> Write:
        """A function that writes pieces."""
        return self._write

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Complete the open files; after an error, remove them."""
        every = ExitStack()
        for stack, _write in self._open.values():
            every.push(stack.__exit__)
        self._open.clear()
        every.__exit__(kind, error, traceback)

    def _write(self, columns: RecordColumns) -> None:
        """Add the records of a piece, each to the file of its directory."""
        for day, part in split_days(columns) if "day" in self._look.by else [(None, columns)]:
            said = {
                "day": HIVE_NULL if day is None else str(np.datetime64(day, "D")),
                "topic": columns.topic or HIVE_NULL,
                "partition": HIVE_NULL if columns.partition is None else str(columns.partition),
            }
            names = [hive_directory(key, said[key]) for key in self._look.by]
            self._file(self._out.joinpath(*names))(part)

    def _file(self, directory: Path) -> Write:
        """The function that writes to a directory's file.

        It may complete the file that was used longest ago.
        """
        found = self._open.pop(directory, None)
        if found is None:
            if len(self._open) == OPEN_MAX:
                stack, _write = self._open.pop(next(iter(self._open)))
                stack.close()
            found = self._begin(directory)
        self._open[directory] = found
        return found[1]

    def _begin(self, directory: Path) -> tuple[ExitStack, Write]:
        if self.count == _FILES_MAX:
            reason = f"more than {_FILES_MAX} files; --time leaves out times that mean nothing"
            raise LimitExceededError(reason, path=self._target)
        self.count += 1
        part = self._parts[directory] = self._parts.get(directory, 0) + 1
        # No partition's directory has a name with such an end.
        again = "" if part == 1 else f".{part}"
        stack = ExitStack()
        name = fitting_name(self._target.stem + again, self._target.suffix)
        return stack, stack.enter_context(open_target(directory / name, self._look, self._faults))
