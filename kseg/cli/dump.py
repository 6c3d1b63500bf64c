"""`kseg dump`: the contents of files, damaged batches too, as text, JSON lines or CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import numpy as np
from click.core import ParameterSource

from kseg.cli import output
from kseg.cli.batches import complete_wrappers, holding, message_errors, tail_of
from kseg.cli.decoded import DECODED_FIELDS, Decoding, decode_options, decoded_rows, decoding
from kseg.cli.entries import dump_entries
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain, one_line, tell_replaced
from kseg.cli.kafka_dump.options import kafka_options, refuse_kafka_options
from kseg.cli.options import (
    ALL,
    Range,
    Selection,
    bytes_option,
    check_ranges,
    format_option,
    mapping_option,
    range_options,
    selection_options,
)
from kseg.cli.paths import InputFile, sources
from kseg.cli.row_writer import RowWriter
from kseg.cli.rows import BATCH_FIELDS, RECORD_FIELDS, Style, batch_rows, csv_head, record_rows
from kseg.cli.selected import RowSink, equal_to
from kseg.cli.streams import stream_tiles
from kseg.constants import StopReason
from kseg.errors import CorruptIndexError, KsegError, UnreadableError, at_path
from kseg.files.log_file import LogFile, Tile
from kseg.files.names import FileKind, FileName
from kseg.format.columns import Workspace, decode
from kseg.format.header import crc_error, stop_error
from kseg.format.request import INT64_MIN, NO_END, Request

if TYPE_CHECKING:
    from kseg.cli.decoded import Decoded
    from kseg.files.mapping import Mapping
    from kseg.format.header import BatchTable
    from kseg.internal import InternalTopic

_STDIN, _STDIN_PATH = FileName(FileKind.LOG, 0), Path("-")
#: Parameters that do not go with `--kafka`.
_OWN = (
    "form",
    "batches",
    "encoding",
    "topics",
    "partitions",
    "offsets",
    "times",
    "key",
    "limit",
    "last",
    "mapping",
    "decode_as",
    "raw",
)


@click.command()
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=str))
@format_option
@click.option(
    "--batches/--records", "batches", default=False, help="One row per batch, or per record."
)
@bytes_option
@selection_options
@range_options
@mapping_option
@decode_options
@kafka_options
@click.pass_context
def dump(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    form: str,
    batches: bool,
    encoding: str | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    offsets: Range,
    times: Range,
    key: bytes | None,
    limit: int | None,
    last: int | None,
    mapping: Mapping,
    decode_as: str | None,
    raw: bool,
    kafka: bool,
    **kafkas: Any,
) -> int:
    """Print batches and records as they lie in the files, in file order.

    A PATH may be a log, an index, a snapshot, a checkpoint, a partition directory, a data
    directory, or - for batches on standard input. Goes on past a batch whose checksum fails (its
    records say valid=false), says each finding on standard error, and then exits 1. Records of
    Kafka's internal topics are decoded: key and value are objects. With --kafka it prints what
    Kafka's own tool prints, and takes that tool's options.
    """
    if kafka:
        from kseg.cli.kafka_dump.run import run_kafka  # most calls of the verb do without it

        _refuse_own_options(context)
        return run_kafka(paths, kafkas)
    refuse_kafka_options(kafkas)
    if not paths:
        raise click.MissingParameter(ctx=context, param=context.command.params[0])
    check_ranges(last=last, limit=limit)
    if batches and key is not None:
        raise click.UsageError("--key chooses records; it does not go with --batches.")
    if batches and decode_as is not None:
        raise click.UsageError("--decode is about records; it does not go with --batches.")
    style = Style(form, encoding or ("utf8" if form == "text" else "base64"))
    asked = Asked(batches, offsets, times, key, limit, last, mapping)
    run = Dump(asked, style, output.binary_stdout(), decoding(decode_as, raw))
    run.paths(paths, Selection(topics, partitions))
    tell_replaced(run.sink.replaced)
    return Exit.FOUND if run.findings else Exit.OK


def _refuse_own_options(context: click.Context) -> None:
    """Refuse what `--kafka` has no use for, rather than pass it over."""
    for name in _OWN:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(one for one in context.command.params if one.name == name)
            raise click.UsageError(f"{option.opts[0]} does not go with --kafka.")


@dataclass(frozen=True, slots=True)
class Asked:
    """The records or batches that the user asks for."""

    batches: bool
    offsets: Range = ALL
    times: Range = ALL
    key: bytes | None = None
    limit: int | None = None
    last: int | None = None
    mapping: Mapping = "auto"

    def request(self, kafka07: bool) -> Request:
        """The same as a `Request`."""
        names = (field.name for field in RECORD_FIELDS)
        return Request(
            fields=tuple(name for name in names if kafka07 or name != "next_offset"),
            offset_start=_or(self.offsets[0], INT64_MIN),
            offset_end=_or(self.offsets[1], NO_END),
            timestamp_start=_or(self.times[0], INT64_MIN),
            timestamp_end=_or(self.times[1], NO_END),
            control=True,
            verify_crc=False,
        )


def _or(bound: int | None, default: int) -> int:
    return default if bound is None else bound


class Dump:
    """One run of the verb: where rows go, and the faults so far."""

    def __init__(
        self, asked: Asked, style: Style, out: IO[bytes], decoding: Decoding | None = None
    ) -> None:
        """Start with nothing written and nothing found."""
        self.asked = asked
        self.style = style
        self.out = out
        self.decoding = decoding or Decoding()
        self.findings = 0
        self.sink = RowSink(out.write, limit=asked.limit, last=asked.last)
        self._workspace = Workspace()
        self._headed = False

    def paths(self, paths: Iterable[str], selection: Selection) -> None:
        """Dump everything under the paths."""
        several = False
        for path, found in self._found_under(paths, selection):
            if path == "-":
                self._log(found[0], stream_tiles(sys.stdin.buffer), True)
                self.sink.finish()
                continue
            several = several or len(found) > 1
            for _directory, group in groupby(found, key=lambda source: source.path.parent):
                self._partition(list(group), titles=several and self.style.form == "text")
                if self.sink.full:
                    return
            several = True

    def _found_under(
        self, paths: Iterable[str], selection: Selection
    ) -> Iterable[tuple[str, list[InputFile]]]:
        """The files under each path, listed when its turn comes; for CSV all of them at once.

        Lines of CSV have one head, so that records are decoded by the name of their topic only if
        all are.
        """
        found = (
            (path, [_stdin_source()] if path == "-" else list(sources((path,), selection)))
            for path in paths
        )
        if self.style.form != "csv" or not self.decoding.by_name:
            return found
        every = list(found)
        logs = (one for _, files in every for one in files if one.name.kind.holds_batches)
        if any(self._topic(source) is None for source in logs):
            self.decoding = replace(self.decoding, by_name=False)
        return every

    def _topic(self, source: InputFile) -> InternalTopic | None:
        """The internal topic by whose schemas the records of a file are decoded."""
        itself = source.directory is None and source.path != _STDIN_PATH
        path = source.path if itself else None
        return self.decoding.topic(source.topic, path, source.name.kind)

    def _partition(self, found: list[InputFile], *, titles: bool) -> None:
        """Dump files of one directory; the last one may end in zeros without harm."""
        last = self.asked.last is not None
        if titles and last:
            self._title(found[0].path.parent)  # which files the rows come from is not known yet
        for source in found:
            if not source.name.kind.holds_batches:
                self._entries(source)
        logs, start = self._narrowed([one for one in found if one.name.kind.holds_batches])
        for number, source in enumerate(logs):
            if self.sink.full:
                return
            if titles and not last:
                self._title(source.path)
            with LogFile.open(source.path, self.asked.mapping) as file:
                tiles = file.walk(
                    start=start if number == 0 else 0,
                    on_bad_crc="note",
                    on_unreadable=partial(self._found, source=source),
                )
                self._log(source, tiles, number == len(logs) - 1)
        self.sink.finish()

    def _narrowed(self, logs: list[InputFile]) -> tuple[list[InputFile], int]:
        """The files that can hold what is wanted, and where to begin in the first of them."""
        if self.asked.last is not None and self._plain_tail:
            skipped, start = tail_of(
                [source.path for source in logs], self.asked.last, mapping=self.asked.mapping
            )
            return logs[skipped:], start
        return list(_overlapping(logs, self.asked.offsets)) if len(logs) > 1 else logs, 0

    @property
    def _plain_tail(self) -> bool:
        """Whether headers are enough to find the last N."""
        asked = self.asked
        return not asked.batches and asked.offsets == asked.times == ALL and asked.key is None

    def _entries(self, source: InputFile) -> None:
        try:
            dump_entries(source, self._style_of(source), RowWriter(self.out.write), self.out.write)
        except (CorruptIndexError, UnreadableError) as error:
            self._found(error, source)

    def _title(self, path: Path) -> None:
        self.out.write(f"# {printable(str(path))}\n".encode())

    def _style_of(self, source: InputFile) -> Style:
        directory = source.directory
        if self.style.form == "csv":
            directory = directory or ""
        return self.style.of(directory, source.path.name)

    def _log(self, source: InputFile, tiles: Iterator[Tile], last: bool) -> None:
        """Dump one file of batches, up to bytes that are no batch."""
        style = self._style_of(source)
        if style.form == "csv" and not self._headed:
            records = RECORD_FIELDS if self._topic(source) is None else DECODED_FIELDS
            self.out.write(csv_head(BATCH_FIELDS if self.asked.batches else records, style))
            self._headed = True
        for tile in tiles:
            self._bad_checksums(tile.table, source)
            if self.asked.batches:
                self._batches(tile, style, source)
            else:
                self._records(tile, style, source)
            if self.sink.full:
                return
            self._end(tile.table, source, last)

    def _records(self, tile: Tile, style: Style, source: InputFile) -> None:
        request, topic = self.asked.request(tile.table.kafka07), self._topic(source)
        pieces = decode(
            tile.data,
            tile.table,
            request,
            base=tile.base,
            workspace=self._workspace,
            on_error=lambda error: self._undecoded(error, source),
        )
        for columns in pieces:
            for error in message_errors(columns, tile.table):
                self._found(error, source)
            key = self.asked.key
            mask = None if key is None else equal_to(columns["key"], key)
            if topic is None:
                self.sink.take(record_rows(columns, style), len(columns), mask)
            else:
                self._decoded(decoded_rows(columns, topic, style, mask, self.sink.left), source)
            if self.sink.full:
                return

    def _decoded(self, parts: Iterator[Decoded], source: InputFile) -> None:
        for part in parts:
            self.sink.take(part.template, part.count)
            for error in part.faults:
                self._found(error, source)

    def _batches(self, tile: Tile, style: Style, source: InputFile) -> None:
        table = complete_wrappers(
            tile.data, tile.base, tile.table, lambda error: self._undecoded(error, source)
        )
        table = holding(table, self.asked.offsets, self.asked.times)
        self.sink.take(batch_rows(table, style), len(table))

    def _undecoded(self, error: KsegError, source: InputFile) -> None:
        """A batch whose records cannot all be shown; for a checksum, that has been said."""
        if error.stop is None:
            self._found(error, source)

    def _bad_checksums(self, table: BatchTable, source: InputFile) -> None:
        if table.bad_crc_count:
            for row in np.flatnonzero(table.crc_ok == 0).tolist():
                self._found(crc_error(table[row]), source)

    def _end(self, table: BatchTable, source: InputFile, last: bool) -> None:
        """Report why a walk ended before its file did."""
        if table.stop in (StopReason.END, StopReason.LIMIT):
            return
        error = at_path(stop_error(table), source.path)
        if table.stop is StopReason.ZERO_TAIL and last:
            complain(f"kseg: warning: {one_line(error)}, as preallocation leaves them")
        else:
            self._found(error, source)

    def _found(self, error: KsegError, source: InputFile) -> None:
        self.findings += 1
        self.out.flush()
        complain(f"kseg: {one_line(at_path(error, source.path))}")


def _stdin_source() -> InputFile:
    return InputFile(_STDIN_PATH, _STDIN)


def _overlapping(logs: list[InputFile], offsets: Range) -> Iterator[InputFile]:
    """The segments whose base offsets leave room for the range."""
    first, end = _or(offsets[0], INT64_MIN), _or(offsets[1], NO_END)
    bases = [_or(source.name.base_offset, INT64_MIN) for source in logs]
    for number, source in enumerate(logs):
        later = [base for base in bases[number + 1 :] if base > bases[number]]
        if bases[number] < end and (not later or later[0] > first):
            yield source
