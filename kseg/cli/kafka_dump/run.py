"""`kseg dump --kafka`: from the options of the command line to a run of Kafka's tool.

Source: Kafka `DumpLogSegments.main`, `DumpLogSegments.dumpLog`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click
import numpy as np

from kseg.cli.dump import Dump
from kseg.cli.failures import Exit, complain
from kseg.cli.kafka_dump.lines import (
    CURRENT,
    VERSIONS,
    Columns,
    DumpOptions,
    Lines,
    Note,
    Parser,
    line_pieces,
    number_decoder,
    record_columns,
    stored_contents,
    style_of,
    where,
)
from kseg.cli.options import LOCAL_PATH, Paths
from kseg.cli.output import binary_stdout
from kseg.cli.paths import InputFile
from kseg.cli.rows import Piece, RowWriter, Style, Template, bytes_piece, headers_piece
from kseg.cli.verbs.move import DECODER_NAMES, TOPIC_DECODERS, refuse_own_options
from kseg.commands import printable
from kseg.constants import Int64s, StopReason
from kseg.errors import InvalidRecordError, KsegError, NotALogError
from kseg.files.grammar import FileKind, FileName, file_name
from kseg.format import text
from kseg.format.bodies import body_of
from kseg.format.codec import Arena
from kseg.format.header import BatchTable, scan
from kseg.format.request import INFLATED_BYTES_MAX, Request
from kseg.format.take import runs
from kseg.format.values import BinaryColumn, RecordColumns
from kseg.internal.releases import DUMP_RELEASE
from kseg.workers import At, Put, Work, each_at, putting, run_in_order

if TYPE_CHECKING:
    from kseg.cli.records import Source
    from kseg.files.log_file import Tile
    from kseg.log.recovery import Finding

#: Ends of the names of files that the tool prints.
_LOGS: Final = (".log", ".checkpoint")
_SUFFIXES: Final = (*_LOGS, ".index", ".timeindex", ".snapshot", ".txnindex")
_RAW: Final = text.RAW | text.BARE
#: Decoders by the end of their class name, in small letters, without `Decoder`.
_DECODERS: Final[dict[str, Any]] = {
    "string": None,
    "long": number_decoder(8),
    "integer": number_decoder(4),
}


def dump(context: click.Context, /, paths: Paths, query: dict[str, Any], **words: Any) -> int:
    """Run the tool with the options of the command line; returns the exit code.

    Raises:
        UsageError: there is no path, the decoder is unknown, or the tool lacks an option.
    """
    refuse_own_options(context)
    out = binary_stdout()
    files = [*paths, *(words["files"] or "").split(",")]
    files = [LOCAL_PATH.convert(file, None, context) for file in files if file]
    files = [str(file) for path in files for file in _files(Path(path))]
    if not files:
        raise click.UsageError('Missing required argument "[files]".')
    return KafkaDump(_options(words, out), out, query["threads"]).run(files)


def _files(path: Path) -> list[Path]:
    """A file itself; or the files in a directory that the tool can print, sorted by name.

    Raises:
        NotALogError: the directory has none.
        OSError: the directory cannot be listed.
    """
    if not path.is_dir():
        return [path]
    names = sorted(os.listdir(path))
    files = [path / name for name in names if name.endswith(_SUFFIXES)]
    if not files:
        raise NotALogError("a directory without logs, indexes and snapshots", path=path)
    return files


def _options(words: dict[str, Any], out: IO[bytes]) -> DumpOptions:
    """The options of a run, from those of the command line."""
    lines = _lines(words)
    parser = _parser(words, lines)
    return DumpOptions(
        style_of(terminal=out.isatty()),
        metadata=not words["skip_record_metadata"],
        deep=words["deep_iteration"] or parser is not None,
        parser=parser,
        max_bytes=words["max_bytes"],
        verify_only=words["verify_index_only"],
        sanity_only=words["index_sanity_check"],
        lines=lines,
    )


def _lines(words: dict[str, Any]) -> Lines:
    """The lines of the release that the options name.

    Raises:
        UsageError: the lines of an older release for a decoder, for contents alone, or for messages
            without deep iteration; those are not known.
    """
    lines = VERSIONS[words["kafka_version"] or DUMP_RELEASE]
    if lines.record == CURRENT.record:
        return lines
    for name in (*TOPIC_DECODERS, "skip-record-metadata"):
        if words[name.replace("-", "_")]:
            raise click.UsageError(f"--{name} prints the lines of {DUMP_RELEASE} and later only.")
    if lines.deep_only and not words["deep_iteration"]:
        raise click.UsageError("Up to --kafka-version 0.10 there are lines for --deep-iteration.")
    return lines


def _parser(words: dict[str, Any], lines: Lines) -> Parser | None:
    """The function for the texts of keys and values; None if they are not printed."""
    for name, topic in TOPIC_DECODERS.items():
        if words[name.replace("-", "_")]:
            from kseg.cli.kafka_dump.decoders import internal_contents  # loads all schemas
            from kseg.internal import InternalTopic

            return partial(internal_contents, InternalTopic(topic), named_status=lines.named_status)
    classes = words["key_decoder_class"], words["value_decoder_class"]
    if not words["print_data_log"] and classes == (None, None):
        return None
    key, value = map(_decoder, classes)
    return partial(stored_contents, key=key, value=value) if key or value else stored_contents


def _decoder(name: str | None) -> Any:
    """The decoder for the name of a class of Kafka; None for text."""
    kind = (name or "string").rpartition(".")[2].lower().removesuffix("decoder")
    if kind not in _DECODERS:
        raise click.UsageError(f"No decoder {name!r}; there are {DECODER_NAMES}.")
    return _DECODERS[kind]


# ---- a run ---------------------------------------------------------------------------------------

_REQUEST = Request(
    columns=(
        "position",
        "base_offset",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
        "magic",
        "sequence",
        "control",
        "valid",
    ),
    control=True,
    verify_crc=False,
    constants_once=True,
)


class Gaps:
    """The offsets of a log that do not continue the offset before."""

    def __init__(self, *, starts_at_zero: bool) -> None:
        """Start before the first offset.

        Args:
            starts_at_zero: whether a first offset above 0 is a gap.
        """
        self._previous = -1
        self._starts_at_zero = starts_at_zero
        self._pairs: list[tuple[int, int]] = []

    def add(self, offsets: Int64s) -> None:
        """Add the next offsets of the log. Before Kafka 4.4, any offset may follow -1."""
        before = np.concatenate(([np.int64(self._previous)], offsets[:-1]))
        is_gap = ((before != -1) | self._starts_at_zero) & (offsets != before + 1)
        self._pairs += zip(before[is_gap].tolist(), offsets[is_gap].tolist(), strict=True)
        self._previous = int(offsets[-1])

    def lines(self, heading: str) -> Iterator[str]:
        """The lines of Kafka's tool about gaps; before Kafka 4.4, the last gap comes first."""
        if self._pairs:
            yield heading
        by_offset = sorted(dict(self._pairs).items())
        for before, after in by_offset if self._starts_at_zero else reversed(self._pairs):
            yield f"  {before} is followed by {after}"


class KafkaDump(Dump):
    """One run of the tool.

    Damage is reported as by any dump, on standard error, and the lines go on after it.
    """

    def __init__(self, options: DumpOptions, out: IO[bytes], jobs: int = 1) -> None:
        """Start with nothing printed and nothing found."""
        super().__init__(Style("text"), out, _REQUEST, batches=not options.deep, jobs=jobs)
        self.bytes_max = options.max_bytes
        self._options = options
        self._gaps: dict[Path, Gaps] = {}
        self._findings: dict[Path, tuple[Finding, ...]] = {}

    def run(self, paths: Iterable[str]) -> Exit:
        """Print every file; returns the exit code."""
        run_in_order(self._lines_of(paths), self._take, threads=self._jobs)
        self.out.flush()
        for path, gaps in self._gaps.items():
            for line in gaps.lines(f"{self._options.lines.gaps}{path.absolute()}"):
                complain(line)
        return self.end()

    def _lines_of(self, paths: Iterable[str]) -> Iterator[Work]:
        """The work on all files."""
        for path in map(Path, paths):
            yield putting(self._line(f"Dumping {path}"))
            if path.suffix not in _SUFFIXES:
                yield putting(partial(self._complain, f"Ignoring unknown file {path}"))
                continue
            source = InputFile(path, file_name(path))
            if path.suffix in _LOGS:
                yield putting(self._title(source.name))
                yield from each_at(path, self._file(source, start=0, is_last=True))
            else:
                yield At(path, partial(self._entries, source))

    def _title(self, name: FileName) -> bytes:
        """The line before the batches of a file."""
        if name.kind is FileKind.BOOTSTRAP:
            return self._line("KRaft bootstrap snapshot")
        if name.kind is FileKind.CHECKPOINT_KRAFT:
            return self._line(f"Snapshot end offset: {name.base_offset}, epoch: {name.epoch}")
        return self._line(f"{self._options.lines.title} offset: {name.base_offset}")

    def _line(self, line: str) -> bytes:
        """A line as bytes, with control characters escaped for a terminal."""
        shown = printable(line) if self.out.isatty() else line
        return shown.encode("utf-8", "surrogateescape") + b"\n"

    def _complain(self, line: str) -> None:
        self.out.flush()
        complain(line)

    def _write_entries(self, source: InputFile, put: Put) -> None:
        """Write the entries of an index and its faults, or the lines of another file."""
        from kseg.cli.kafka_dump import decoders

        if source.name.kind in (FileKind.INDEX, FileKind.TIMEINDEX):
            sanity_only = self._options.sanity_only
            log = source.path.with_suffix(".log")
            if log not in self._findings:  # of a segment with two indexes
                self._findings[log] = decoders.findings_of(log)
            faults = decoders.faults_of(source.path, self._findings[log], of_length=sanity_only)
            shows = not (sanity_only or self._options.verify_only)
            has_entries = decoders.print_index(source.path, RowWriter(put) if shows else None)
            if not has_entries and source.name.kind is FileKind.INDEX:
                put(self._line(f"{source.path} is empty."))
            elif sanity_only and not faults:
                put(self._line(f"{source.path} passed sanity check."))
            for fault in faults:
                self.find(fault, source.path, put)
            return
        for line in decoders.lines_of(source.path, self._options.lines):
            put(self._line(line))

    def _end(self, table: BatchTable, source: Source, put: Put) -> None:
        if self.bytes_max is None or table.stop is not StopReason.TORN_TAIL:
            super()._end(table, source, put)

    def _batches(self, tile: Tile, source: Source, sink: RowWriter, put: Put) -> None:
        self._write_batches(tile.table, sink.rows)

    def _write_batches(self, table: BatchTable, write: Callable[[Template, int], object]) -> None:
        """Write the lines of a table, a run of batches before magic 2, or of magic 2, at a time."""
        for start, end in runs(table.magic < 2):
            part = table.take(slice(start, end))
            write(self._options.lines.batch_line(part), len(part))

    def _columns(self, tile: Tile, source: Source, sink: RowWriter, put: Put) -> None:
        """Write the records of a tile; in some releases each batch has a line before them."""
        lines = bytearray()
        if self._options.lines.nested:
            self._write_batches(tile.table, RowWriter(lines.extend).rows)
        batch_lines = _BatchLines(bytes(lines), len(tile.table))
        crcs = _Checksums(tile)
        for piece in self._decode_tile(tile, self.request, source, put):
            put(partial(self._add_offsets, source.path, piece.offset.copy()))
            for start, end in runs(piece.magic < 2):
                columns = piece if end - start == len(piece) else piece[start:end]
                rows = np.searchsorted(tile.table.position, columns.position)
                crc = crcs.of(rows) if columns.magic[0] < 2 else None
                finder = record_columns(columns, tile.table, rows, crc)
                note = partial(self._note, columns, source, put)
                pieces = self._record_line(columns, finder, note)
                sink.rows((bytes_piece(b"", batch_lines.up_to(rows), _RAW), *pieces), len(columns))
        put(batch_lines.rest())

    def _add_offsets(self, path: Path, offsets: Int64s) -> None:
        """Note the offsets of a log, whose gaps are listed at the end."""
        gaps = Gaps(starts_at_zero=self._options.lines.starts_at_zero)
        self._gaps.setdefault(path, gaps).add(offsets)

    def _note(
        self, columns: RecordColumns, source: Source, put: Put, row: int, error: KsegError
    ) -> None:
        """Report the record in a row, which cannot be decoded."""
        error.position, error.offset = int(columns.position[row]), int(columns.offset[row])
        self.find(error, source.path, put)

    def _record_line(self, columns: RecordColumns, finder: Columns, note: Note) -> Template:
        """The line of each record of a piece: all records are before magic 2, or all are of it."""
        options = self._options
        lines = self._options.lines
        is_message = columns.magic[0] < 2
        control = columns.control if not is_message and columns.control.any() else None
        pieces: list[Piece] = []
        if options.metadata:
            line = lines.message if is_message else lines.record
            if line is None:
                raise InvalidRecordError("this release of Kafka did not know magic 2")
            pieces += line_pieces(line, finder)
            if not is_message:
                pieces.append(headers_piece(columns.headers, b" headerKeys: ", b"", options.style))
            if control is not None:
                from kseg.cli.kafka_dump.decoders import control_marks  # imported late: rare

                pieces.append(bytes_piece(b"", control_marks(columns, note), options.style))
        if options.parser is not None:
            key, payload = options.parser(columns, control, note)
            if key is not None:
                key = key if lines.keyed else where(key, columns.value.is_valid())
                lead = b" key: " if options.metadata else b"| key: "
                pieces.append(bytes_piece(lead, key, options.style))
            if payload is not None:
                null = lines.null_payload
                if not options.metadata and key is not None:
                    lone = where(payload, ~key.is_valid())
                    pieces.append(bytes_piece(lines.lone_payload, lone, options.style, null))
                    payload = where(payload, key.is_valid())
                lead = b" payload: " if pieces else lines.lone_payload
                pieces.append(bytes_piece(lead, payload, options.style, null))
        return (*pieces, (text.TEXT, b"\n"))


class _BatchLines:
    """The line of each batch of a table, which is written before the batch's first record."""

    def __init__(self, lines: bytes, count: int) -> None:
        """Start before the first batch.

        Args:
            lines: a line for each batch, in the order of the table, with its line feed; empty in a
                release that prints none, where the text of every batch is empty.
            count: the number of batches.
        """
        self._data = np.frombuffer(lines, np.uint8)
        ends = np.flatnonzero(self._data == 0x0A) + 1 if lines else np.zeros(count)
        self._ends = np.concatenate(([0], ends)).astype(np.int32)
        self._next_row = 0

    def up_to(self, rows: Int64s) -> BinaryColumn:
        """The text before each record: the lines since the record before, up to that of its batch.

        So the second record of a batch has an empty text, and the line of a batch without records
        comes before the next record.

        Args:
            rows: int64[n], the batch of each record in the table, ascending.
        """
        starts = np.concatenate(([self._next_row], rows + 1))
        self._next_row = int(starts[-1])
        return BinaryColumn(self._ends[starts], self._data)

    def rest(self) -> bytes:
        """The lines of the batches after the last record for which `up_to` was called."""
        return self._data[self._ends[self._next_row] :].tobytes()


class _Checksums:
    """The stored checksums of messages, also of those inside compressed ones, piece by piece."""

    def __init__(self, tile: Tile) -> None:
        """Start before the first message of a tile."""
        self._tile = tile
        self._row = -1
        self._left: Int64s = np.empty(0, np.int64)

    def of(self, rows: Int64s) -> Int64s:
        """int64[n]: the checksum of each message of the next piece.

        Args:
            rows: int64[n], the row in the table of the message, or of its wrapper; ascending.
        """
        checksums = self._tile.table.crc[rows]
        for row in np.unique(rows[self._tile.table.is_wrapper[rows]]).tolist():
            first, end = np.searchsorted(rows, [row, row + 1]).tolist()
            if row != self._row:
                self._row, self._left = row, self._inner_checksums(row)
            part = self._left[: end - first]
            self._left = self._left[end - first :]
            checksums[first : first + len(part)] = part
        return checksums

    def _inner_checksums(self, row: int) -> Int64s:
        """The checksums of the messages inside the compressed message in a row of the table."""
        table = self._tile.table.take(slice(row, row + 1))
        data = body_of(
            self._tile.data,
            table,
            base=self._tile.base,
            arena=Arena(),
            inflated_max=INFLATED_BYTES_MAX,
            refuse_bad_crc=False,
        )
        assert data is not None
        tables = [scan(data, on_bad_crc="ignore")]
        while tables[-1].stop is StopReason.LIMIT:
            tables.append(scan(data, start=tables[-1].end_position, on_bad_crc="ignore"))
        return np.concatenate([table.crc for table in tables])
