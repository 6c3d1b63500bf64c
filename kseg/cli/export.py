"""`kseg export`: records into files, one for each partition, segment or topic."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kseg.cli import output
from kseg.cli.failures import Exit, complain, complain_of, tell_replaced, usage_errors
from kseg.cli.options import Paths, check_names
from kseg.cli.output import owner_lines
from kseg.cli.paths import scanned, tier_of_run
from kseg.cli.rows import (
    FIELD_NAMES,
    RECORD_FIELDS,
    Field,
    RowWriter,
    Style,
    csv_head,
    record_rows,
    typed_fields,
)
from kseg.constants import EXTENSIONS
from kseg.documents import frozen_dataclass
from kseg.format.values import RecordColumns
from kseg.log.reader import LogView
from kseg.records.exports import Export, Written, exports_of, write_all
from kseg.records.lake import FileFormat, refuse_other_files
from kseg.records.stream import Scan
from kseg.stores.path import RemotePath, out_path

if TYPE_CHECKING:
    from kseg.stores.path import Sink


def export(
    paths: Paths,
    query: dict[str, Any],
    out: str,
    form: str | None,
    per: str,
    by: tuple[str, ...],
    keep_bytes: bool,
    replace_files: bool,
    no_formulas: bool,
    encoding: str,
) -> int:
    """Run the verb; returns the exit code."""
    if out == "-":
        raise click.UsageError("OUT is a file or a directory; 'kseg read' has standard output.")
    with usage_errors():
        refuse_other_files(where := out_path(out))
    extension = where.suffix[1:]
    form = form or (extension if extension in EXTENSIONS else "parquet")
    if keep_bytes and "decode" not in query:
        raise click.UsageError("--keep-bytes needs --decode-key or --decode-value.")
    if no_formulas and form != "csv":
        raise click.UsageError("--no-formulas needs --format csv.")
    fields = query.pop("columns", None)
    with usage_errors("Invalid value for '--fields'"):
        check_names(fields or (), "field", FIELD_NAMES)
    records = scanned(paths, query)
    with usage_errors():
        look = AnyFormat(
            form,
            fields_of(form, fields),
            records.kinds,
            by,
            keep_bytes,
            replace=replace_files,
            encoding=encoding,
            has_place=fields is None,
            formulas=not no_formulas,
        )
        look.check()
        _tell_where(records)
        pairs = exports_of(records, per, where, look)
    with output.progress("export", sum(export.size for export, _target in pairs)) as bar:
        written = write_all(records, pairs, look, where, partial(_tell_file, bar, look))
    complain_of(written.faults)
    complain(*written.undecoded.lines(look))
    if pairs:
        _say_owner(pairs[0][0].path, pairs[0][1], where)
    return Exit.FOUND if written.faults or written.undecoded.counts else Exit.OK


def _tell_file(
    bar: output.Bar, look: FileFormat, export: Export, target: Path, written: Written
) -> None:
    """Say what was written to a file."""
    bar.by(export.size)
    inside = f" in {output.counted(len(written.files), 'file')}" if look.by else ""
    if written.files or look.by:
        complain(f"{target}: {output.counted(written.records, 'record')}{inside}")


def _say_owner(source: Path, target: Path, out: Path) -> None:
    """Say how the files get the owner of the logs, if they have another."""
    if isinstance(out, RemotePath) or not os.path.lexists(source):
        return
    made = [target] if target.exists() else list(out.glob(os.path.relpath(target, out)))
    complain(*(owner_lines(made[0], source, out) if made else ()))


def _tell_where(records: Scan) -> None:
    """Say how much is read from the tier, and how much from this machine."""
    for source in records.sources if tier_of_run() is not None else ():
        remote = local = 0
        for info in LogView.at(source).segments:
            if info.end_offset is None:
                local += info.size
            else:  # the tier says where its segments end
                remote += info.size
        complain(
            f"kseg: {source.path}: {output.human_bytes(remote)} in the tier, "
            f"{output.human_bytes(local)} here"
        )


# ---- lines of text ----

Write = Callable[[RecordColumns], None]


_FIELDS = tuple(field.name for field in RECORD_FIELDS if field.name != "next_offset")
#: `timestamp` is null for times that engines do not all hold, hence the number after it.
_PAST_TIME = _FIELDS.index("timestamp") + 1
_ARROW_FIELDS = (
    "topic",
    "partition",
    *_FIELDS[:_PAST_TIME],
    "timestamp_ms",
    *_FIELDS[_PAST_TIME:],
)


def fields_of(form: str, chosen: tuple[str, ...] | None) -> tuple[str, ...]:
    """The fields of exported files, in order.

    Args:
        form: the format; only Arrow and Parquet files have topic and partition by default.
        chosen: the fields that the user chose; None for the default.

    Raises:
        ValueError: the format does not have one of them.
    """
    is_arrow = form in ("parquet", "arrow")
    if chosen is None:
        return _ARROW_FIELDS if is_arrow else _FIELDS
    if "timestamp_ms" in chosen and not is_arrow:
        raise ValueError(f"timestamp_ms is for Parquet and Arrow; in .{form}, timestamp is it")
    return chosen


@frozen_dataclass
class AnyFormat(FileFormat):
    """The form of exported files, also of those with lines of text.

    Attributes:
        encoding: the encoding of bytes.
        has_place: whether lines have the file, and the directory unless a file was named.
        formulas: do not change text in CSV that a spreadsheet would take for a formula.
    """

    encoding: str = "base64"
    has_place: bool = False
    formulas: bool = True

    def opened(self, sink: Sink) -> AbstractContextManager[Write]:
        """A function that writes pieces to a new file; the block ends the file."""
        if self.form in ("parquet", "arrow"):
            return FileFormat.opened(self, sink)
        return _csv(sink, self) if self.form == "csv" else _jsonl(sink, self)


@contextmanager
def _jsonl(sink: Sink, file_format: AnyFormat) -> Iterator[Write]:
    """A function that writes pieces as lines of JSON."""
    writer = RowWriter(sink.write)
    yield lambda columns: _write_rows(writer, columns, file_format)


@contextmanager
def _csv(sink: Sink, file_format: AnyFormat) -> Iterator[Write]:
    """A function that writes pieces as CSV."""
    sink.write(csv_head(_row_fields(file_format), _style(file_format, Path())))
    writer = RowWriter(sink.write if file_format.formulas else FormulaGuard(sink.write).write)
    yield lambda columns: _write_rows(writer, columns, file_format)
    tell_replaced(writer.replaced, f"{sink.target}: ")


def _write_rows(writer: RowWriter, columns: RecordColumns, file_format: AnyFormat) -> None:
    style = _style(file_format, Path(columns.source or ""))
    writer.rows(record_rows(columns, style, _row_fields(file_format)), len(columns))


def _style(file_format: AnyFormat, file: Path) -> Style:
    """The style of the rows of a file of records, which are of one log file."""
    # CSV in a file is for spreadsheets and loaders: text as it is, not escaped for a terminal.
    encoding = (
        "raw"
        if (file_format.form, file_format.encoding) == ("csv", "utf8")
        else file_format.encoding
    )
    if not file_format.has_place:
        return Style(file_format.form, encoding)
    directory = None if file_format.is_file else os.path.basename(os.path.realpath(file.parent))
    return Style(file_format.form, encoding, directory, file.name)


def _row_fields(file_format: AnyFormat) -> tuple[Field, ...]:
    """The fields of lines, in the order of the format; topic and partition are in none."""
    by_name = {field.name: field for field in typed_fields(file_format.kinds, keep_bytes=True)}
    return tuple(by_name[name] for name in file_format.fields if name in by_name)


#: The first bytes of formulas, with the wide forms of `= + - @` in UTF-8.
_FORMULA: Final = re.compile(rb"[=+\-@\t\r\n]|\xef\xbc[\x9d\x8b\x8d\xa0]")
_NUMBER: Final = re.compile(rb"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class FormulaGuard:
    """Passes CSV on whose text fields are all quoted, with apostrophes where they are needed.

    A spreadsheet takes text for a formula that begins with one of `= + - @`, a tab or a line end:
    Excel, LibreOffice and others (OWASP, "CSV Injection"). A number stays as it is.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        """Start before the first field."""
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
