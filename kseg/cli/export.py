"""`kseg export`: records into files, one for each partition, segment or topic."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kseg.catalog.sources import ScanSource
from kseg.cli import output
from kseg.cli.failures import (
    Exit,
    complain,
    one_line,
    tell_left_out,
    tell_replaced,
    usage_errors,
)
from kseg.cli.owners import owner_lines
from kseg.cli.parsing import Paths
from kseg.cli.paths import (
    Partition,
    known_paths,
    logs_once,
    partition_at,
    refuse_replicas,
    tier_of_run,
    view_of,
)
from kseg.cli.row_writer import RowWriter
from kseg.cli.rows import RECORD_FIELDS, Field, Style, csv_head, record_rows
from kseg.cli.typed import kinds_from, typed_fields, typed_rows
from kseg.constants import EXTENSIONS
from kseg.errors import KsegError, NotALogError
from kseg.files import io
from kseg.files.names import OFFSET_MAX, PathKind, is_new
from kseg.files.selection import Selection
from kseg.format.request import Request, key_needle
from kseg.format.values import RecordColumns
from kseg.log.reader import LogView, first_offsets
from kseg.records.exports import Export, Part, by_topic, write_all
from kseg.records.lake import FileFormat, Undecoded, refuse_other_files, targets
from kseg.records.query import Range
from kseg.stores.path import RemotePath, out_path

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.stores.new_object import Sink


def export(
    paths: Paths,
    out: str,
    form: str | None,
    per: str,
    by: tuple[str, ...],
    decode_key: str | None,
    decode_value: str | None,
    schemas: tuple[str, ...],
    subject: str | None,
    schema_version: int | None,
    record: str | None,
    fields: tuple[str, ...] | None,
    keep_bytes: bool,
    replace_files: bool,
    no_formulas: bool,
    encoding: str,
    on_corrupt: str,
    isolation: str,
    open_transactions: str,
    selection: Selection,
    offsets: Range,
    times: Range,
    key: bytes | None,
    limit: int | None,
    mapping: Mapping,
    jobs: int,
) -> int:
    """Run the verb; returns the exit code."""
    if out == "-":
        raise click.UsageError("OUT is a file or a directory; 'kseg read' has standard output.")
    with usage_errors():
        refuse_other_files(where := out_path(out))
    form = form or _form_of(where)
    kinds = kinds_from(
        *({"key": decode_key, "value": decode_value}, paths, selection.topics, schemas),
        subject=subject,
        schema_version=schema_version,
        record=record,
    )
    _check_words(keep_bytes and not kinds, no_formulas and form != "csv")
    with usage_errors():
        look = AnyFormat(
            *(form, fields_of(form, fields), kinds, by, keep_bytes),
            replace=replace_files,
            encoding=encoding,
            has_place=fields is None,
            formulas=not no_formulas,
        )
        look.check()
    request = Request(
        offset=offsets,
        time=times,
        isolation=isolation,
        open_transactions=open_transactions,
        on_corrupt=on_corrupt,
        contains=key_needle(key),
    )
    found = list(_exports(paths, selection, per == "segment", request, mapping))
    if per == "topic":
        found = by_topic(found)
    found = [replace(one, key=key) for one in found]
    with usage_errors():
        places = targets([one.name for one in found], where, form, by)
    code = _write_all(found, places, look, jobs, limit, where)
    if found:
        _say_owner(found[0].path, places[0], where)
    return code


def _check_words(lone_bytes: bool, lone_formulas: bool) -> None:
    """Refuse an option that needs another one which is missing.

    Raises:
        UsageError: there is one.
    """
    if lone_bytes:
        raise click.UsageError("--keep-bytes needs --decode-key or --decode-value.")
    if lone_formulas:
        raise click.UsageError("--no-formulas needs --format csv.")


def _write_all(
    found: list[Export],
    places: list[Path],
    look: FileFormat,
    jobs: int,
    limit: int | None,
    out: Path,
) -> Exit:
    """Write the file of each input; returns the exit code."""
    faults, undecoded = list[KsegError](), Undecoded()
    total = sum(one.size for one in found)
    with (
        output.progress("export", total) as bar,
        closing(write_all(found, places, look, threads=jobs, limit=limit, out=out)) as written,
    ):
        for one, target, (count, files, damage, others) in zip(found, places, written, strict=True):
            faults += damage
            undecoded.merge(others)
            bar.by(one.size)
            inside = f" in {output.counted(len(files), 'file')}" if look.by else ""
            if files or look.by:
                complain(f"{target}: {output.counted(count, 'record')}{inside}")
    complain(*(f"kseg: {one_line(fault)}" for fault in faults), *undecoded.lines(look))
    return Exit.FOUND if faults or undecoded.counts else Exit.OK


def _say_owner(source: Path, target: Path, out: Path) -> None:
    """Say how the files get the owner of the logs, if they have another."""
    if isinstance(out, RemotePath) or not os.path.lexists(source):
        return
    made = [target] if target.exists() else list(out.glob(os.path.relpath(target, out)))
    complain(*(owner_lines(made[0], source, out) if made else ()))


def _exports(
    paths: Paths,
    selection: Selection,
    per_segment: bool,
    request: Request,
    mapping: Mapping,
) -> Iterator[Export]:
    """The files to write: one for each partition, or for each segment."""
    refuse_replicas(paths, selection)
    seen: set[str] = set()

    def export_of(
        partition: Partition, name: Path, size: int, file: Path | None, first: int | None = None
    ) -> Export:
        if file is not None and request.isolation != "read_uncommitted":
            raise click.UsageError("--isolation read_committed wants whole partitions.")
        source = ScanSource(
            *(file or partition.path, file is not None, partition.topic, partition.partition),
            tier=tier_of_run() if file is None else None,
        )
        is_asked = file is not None and first is None
        parts = (Part(source, request, first),)
        return Export(name, parts, size=size, mapping=mapping, is_file=is_asked, warn=tell_left_out)

    for path, known in known_paths(paths):
        if known.kind is PathKind.FILE:
            if not is_new(path, seen) or os.path.dirname(os.path.realpath(path)) in seen:
                continue
            if known.file is None or not known.file.kind.holds_batches:
                raise NotALogError("a file without records", path=path)
            size = io.size_at(known.path)
            parent = partition_at(known.path.absolute().parent)
            yield export_of(parent, Path(known.path.stem), size, known.path)
            continue
        for partition in logs_once(path, selection, seen):
            name = Path(partition.path.resolve().name)
            view = view_of(partition.path, mapping)
            _say_where(view)
            if not per_segment:
                yield export_of(partition, name, sum(info.size for info in view.segments), None)
                continue
            if tier_of_run() is not None:
                raise click.UsageError("--per segment is for local segments, without --tier.")
            firsts = _first_offsets(view, request.offset_start)
            for info in view.segments:
                first = firsts.get(info.path, OFFSET_MAX + 1)
                yield export_of(partition, name / info.path.stem, info.size, info.path, first)


def _say_where(view: LogView) -> None:
    """Say how much is read from the tier, and how much from this machine."""
    if view.remote is None:
        return
    sizes = {is_tiered: 0 for is_tiered in (True, False)}
    for info in view.segments:
        sizes[info.end_offset is not None] += info.size
    complain(
        f"kseg: {view.path}: {output.human_bytes(sizes[True])} in the tier, "
        f"{output.human_bytes(sizes[False])} here"
    )


def _first_offsets(view: LogView, start: int) -> dict[Path, int]:
    """The first offset that a read of the log takes from each segment, from `start` on."""
    firsts = first_offsets(view, max(view.log_start_offset, start))
    return {info.path: first for info, first in firsts}


def _form_of(out: Path) -> str:
    extension = out.suffix[1:]
    return extension if extension in EXTENSIONS else "parquet"


# ---- lines of text ----

Write = Callable[[RecordColumns], None]


_FIELDS = tuple(one.name for one in RECORD_FIELDS if one.name != "next_offset")
#: `timestamp` is null for times that engines do not all hold, hence the number behind it.
_PAST_TIME = _FIELDS.index("timestamp") + 1
_ARROW_FIELDS = (
    *("topic", "partition", *_FIELDS[:_PAST_TIME], "timestamp_ms"),
    *_FIELDS[_PAST_TIME:],
)


def fields_of(form: str, chosen: tuple[str, ...] | None) -> tuple[str, ...]:
    """The fields in order; all if None. Arrow and Parquet files also hold topic and partition.

    Raises:
        ValueError: the form does not have one.
    """
    is_arrow = form in ("parquet", "arrow")
    if chosen is None:
        return _ARROW_FIELDS if is_arrow else _FIELDS
    if "timestamp_ms" in chosen and not is_arrow:
        raise ValueError(f"timestamp_ms is for Parquet and Arrow; in .{form}, timestamp is it")
    return chosen


@dataclass(frozen=True, slots=True)
class AnyFormat(FileFormat):
    """The form of exported files, also of those with lines of text.

    Attributes:
        encoding: of bytes.
        has_place: whether lines have the file, and the directory where one was asked for.
        formulas: leave text in CSV that a spreadsheet would compute as it is.
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
    writer = RowWriter(sink.write)
    yield lambda columns: _write_rows(writer, columns, file_format)


@contextmanager
def _csv(sink: Sink, file_format: AnyFormat) -> Iterator[Write]:
    sink.write(csv_head(_row_fields(file_format), _style(file_format, Path())))
    writer = RowWriter(sink.write if file_format.formulas else FormulaGuard(sink.write).write)
    yield lambda columns: _write_rows(writer, columns, file_format)
    tell_replaced(writer.replaced, f"{sink.target}: ")


def _write_rows(writer: RowWriter, columns: RecordColumns, file_format: AnyFormat) -> None:
    style = _style(file_format, Path(columns.source or ""))
    fields = _row_fields(file_format)
    if file_format.kinds:
        template = typed_rows(columns, style, fields)
    else:
        template = record_rows(columns, style, fields)
    writer.rows(template, len(columns))


def _style(file_format: AnyFormat, file: Path) -> Style:
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
    by_name = {one.name: one for one in typed_fields(file_format.kinds, keep_bytes=True)}
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
