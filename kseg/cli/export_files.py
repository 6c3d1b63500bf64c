"""The files that `kseg export` writes: Parquet, Arrow IPC, JSON lines and CSV.

Each is written beside its final name and renamed when it is complete, so no program reads half a
file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg.cli.csv_formulas import FormulaGuard
from kseg.cli.export_ranges import EVERYTHING, Selected, refusal, refuse_loss
from kseg.cli.failures import tell_replaced
from kseg.cli.row_writer import RowWriter
from kseg.cli.rows import RECORD_FIELDS, Field, Style, csv_head, record_rows
from kseg.cli.typed import typed_fields, typed_rows
from kseg.extras import require
from kseg.files.whole_file import FileSink, whole_file
from kseg.format.typed import KEPT_BYTES, decode_columns, decoded_fields

if TYPE_CHECKING:
    from kseg.errors import KsegError
    from kseg.format.typed import Kinds
    from kseg.format.values import RecordColumns

    Write = Callable[[RecordColumns], None]

_FIELDS = tuple(one.name for one in RECORD_FIELDS if one.name != "next_offset")
#: `timestamp` is null for times that engines do not all hold, hence the number behind it.
_PAST_TIME = _FIELDS.index("timestamp") + 1
_ARROW_FIELDS = (
    *("topic", "partition", *_FIELDS[:_PAST_TIME], "timestamp_ms"),
    *_FIELDS[_PAST_TIME:],
)


@dataclass(frozen=True, slots=True)
class Look:
    """How a file is to look.

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
def open_target(target: Path, look: Look, faults: Sequence[KsegError]) -> Iterator[Write]:
    """A function that writes pieces; the file takes its name when the block ends well.

    Args:
        target: the file.
        look: how it is to look.
        faults: the damage that was passed over so far; more may come.

    Raises:
        FileExistsError: there is a file with records that the new one may not have.
    """
    replaces = target.exists() and not look.replace
    if replaces:
        refuse_loss(target, look.form, look.selected)
    with whole_file(target, source=look.source) as sink, _OPENERS[look.form](sink, look) as write:
        yield write
        if replaces and faults:
            raise refusal(target, "it may have records that are damaged in the log by now")


@contextmanager
def _parquet(sink: FileSink, look: Look) -> Iterator[Write]:
    parquet: Any = require("kseg.parquet", extra="arrow")
    said = look.selected.metadata()
    with parquet.ParquetFile(sink, look.fields, look.kinds, said) as file:
        yield file.write


@contextmanager
def _arrow(sink: FileSink, look: Look) -> Iterator[Write]:
    arrow: Any = require("kseg.arrow", extra="arrow")
    pyarrow: Any = require("pyarrow", extra="arrow")
    fields = look.fields
    schema = arrow.schema(fields, look.kinds).with_metadata(look.selected.metadata())
    with pyarrow.ipc.new_file(sink, schema) as writer:
        yield lambda columns: writer.write_batch(arrow.to_record_batch(columns, fields=fields))


@contextmanager
def _jsonl(sink: FileSink, look: Look) -> Iterator[Write]:
    writer = RowWriter(sink.write)
    yield lambda columns: _write_rows(writer, columns, look)


@contextmanager
def _csv(sink: FileSink, look: Look) -> Iterator[Write]:
    sink.write(csv_head(_row_fields(look), _style(look, "")))
    writer = RowWriter(sink.write if look.formulas else FormulaGuard(sink.write).write)
    yield lambda columns: _write_rows(writer, columns, look)
    tell_replaced(writer.replaced, f"{sink.target}: ")


def _write_rows(writer: RowWriter, columns: RecordColumns, look: Look) -> None:
    style = _style(look, Path(columns.source or "").name)
    fields = _row_fields(look)
    if look.kinds:
        template = typed_rows(columns, style, fields)
    else:
        template = record_rows(columns, style, fields)
    writer.rows(template, len(columns))


def _style(look: Look, file: str) -> Style:
    # CSV in a file is for spreadsheets and loaders: text as it is, not escaped for a terminal.
    encoding = "raw" if (look.form, look.encoding) == ("csv", "utf8") else look.encoding
    if look.chosen is not None:
        return Style(look.form, encoding)
    return Style(look.form, encoding, look.directory, file)


def _row_fields(look: Look) -> tuple[Field, ...]:
    by_name = {one.name: one for one in typed_fields(look.kinds, keep_bytes=True)}
    return tuple(by_name[name] for name in look.fields if name in by_name)


_OPENERS: dict[str, Callable[[FileSink, Look], Any]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": _jsonl,
    "csv": _csv,
}
