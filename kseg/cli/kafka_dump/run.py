"""`kseg dump --kafka`: from the options of the command line to a run of Kafka's tool.

Source: Kafka 4.2 `DumpLogSegments.main`, `DumpLogSegments.dumpLog`, `FileLogInputStream.nextBatch`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click
import numpy as np

from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain
from kseg.cli.kafka_dump.lines import (
    CURRENT,
    Contents,
    DumpOptions,
    Lines,
    Parser,
    Texts,
    check_end,
    first_failure,
    line_pieces,
    lines_before,
    names_and_marks,
    number_decoder,
    record_columns,
    record_tail,
    stored_contents,
    style_of,
)
from kseg.cli.kafka_dump.options import (
    DECODER_NAMES,
    TOPIC_DECODERS,
    refuse_own_options,
)
from kseg.cli.options import LOCAL_PATH
from kseg.cli.output import binary_stdout, taker
from kseg.cli.row_writer import RowWriter, Template, dump_workspace
from kseg.constants import BATCH_HEADER_BYTES, Compression, Int64s
from kseg.errors import CorruptRecordError, InvalidRecordError, KsegError, NotALogError
from kseg.files.grammar import FileKind, FileName, file_name
from kseg.files.log_file import PIECE_BYTES, LogFile, Tile
from kseg.format.columns import decode
from kseg.format.header import BatchTable, refused_batch
from kseg.format.request import Request
from kseg.format.take import runs
from kseg.format.values import RecordColumns
from kseg.format.workspace import Workspace
from kseg.workers import PerThread, Put, SharedUse, Work, each_at, putting, run_in_order

if TYPE_CHECKING:
    from kseg.cli.kafka_dump.older import MessageReader

    Memory = tuple[Workspace, RowWriter]

#: Ends of the names of files that the tool prints.
_SUFFIXES: Final = ("log", "checkpoint", "index", "timeindex", "snapshot", "txnindex")
#: Decoders by the end of their class name, in small letters, without `Decoder`.
_DECODERS: Final[dict[str, Any]] = {
    "string": None,
    "long": number_decoder(8),
    "integer": number_decoder(4),
}


def dump(context: click.Context, /, paths: tuple[str, ...], jobs: int, **given: Any) -> int:
    """Run the tool with the options of the command line; returns the exit code.

    Raises:
        UsageError: there is no path, the decoder is unknown, or the tool lacks an option.
    """
    refuse_own_options(context)
    out = binary_stdout()
    files = [*paths, *(given["files"] or "").split(",")]
    files = [LOCAL_PATH.convert(each, None, context) for each in files if each]
    files = [str(file) for each in files for file in _files(Path(each))]
    if not files:
        raise click.UsageError('Missing required argument "[files]".')
    return KafkaDump(_options(given, out), out, jobs).run(files)


def _files(path: Path) -> list[Path]:
    """A file itself; of a directory, the files that the tool can print, by name.

    Raises:
        NotALogError: the directory has none.
        OSError: the directory cannot be listed.
    """
    if not path.is_dir():
        return [path]
    names = sorted(os.listdir(path))
    found = [path / name for name in names if name.rpartition(".")[2] in _SUFFIXES]
    if not found:
        raise NotALogError("a directory without logs, indexes and snapshots", path=path)
    return found


def _options(given: dict[str, Any], out: IO[bytes]) -> DumpOptions:
    parser, size = _parser(given), given["max_message_size"]
    return DumpOptions(
        style_of(terminal=out.isatty()),
        metadata=not given["skip_record_metadata"],
        deep=given["deep_iteration"] or parser is not None,
        parser=parser,
        max_bytes=given["max_bytes"],
        lines=_lines(given),
        verify_only=given["verify_index_only"],
        sanity_only=given["index_sanity_check"],
        **({} if size is None else {"max_message_size": size}),
    )


def _lines(given: dict[str, Any]) -> Lines:
    """The lines of the release that is asked for.

    Raises:
        UsageError: the lines of an older release for a decoder, for contents alone, or for messages
            without deep iteration; those are not known.
    """
    if given["kafka_version"] in (None, "4.2"):
        return CURRENT
    from kseg.cli.kafka_dump.older import VERSIONS  # few scripts ask for them

    lines = VERSIONS[given["kafka_version"]]
    for name in (*TOPIC_DECODERS, "skip-record-metadata"):
        if given[name.replace("-", "_")]:
            raise click.UsageError(f"--{name} prints the lines of 4.2 only.")
    if lines.deep_only and not given["deep_iteration"]:
        raise click.UsageError("Up to --kafka-version 0.10 there are lines for --deep-iteration.")
    return lines


def _parser(given: dict[str, Any]) -> Parser | None:
    for name, topic in TOPIC_DECODERS.items():
        if given[name.replace("-", "_")]:
            from kseg.cli.kafka_dump.decoders import internal_contents  # loads all schemas
            from kseg.internal import InternalTopic

            return partial(internal_contents, InternalTopic(topic))
    classes = given["key_decoder_class"], given["value_decoder_class"]
    if not given["print_data_log"] and classes == (None, None):
        return None
    key, value = map(_decoder, classes)
    return partial(stored_contents, key=key, value=value) if key or value else stored_contents


def _decoder(name: str | None) -> Any:
    known = (name or "string").rpartition(".")[2].lower().removesuffix("decoder")
    if known not in _DECODERS:
        raise click.UsageError(f"No decoder {name!r}; there are {DECODER_NAMES}.")
    return _DECODERS[known]


# ---- logs ---------------------------------------------------------------------------------------

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
    ),
    control=True,
    verify_crc=False,
    constants_once=True,
)


class Gaps:
    """Offsets that do not continue the offset before, as pairs.

    Attributes:
        first: the first seen; None before that.
        previous: the last seen.
        pairs: int64[n, 2] each: the offset before, and the offset that does not continue it.
    """

    __slots__ = ("first", "pairs", "previous")

    def __init__(self) -> None:
        """Start in front of the first offset."""
        self.first: int | None = None
        self.previous = -1
        self.pairs: list[Int64s] = []

    def add(self, offsets: Int64s) -> None:
        """Take the next offsets. After -1 any may follow, as in Kafka."""
        before = np.concatenate(([np.int64(self.previous)], offsets[:-1]))
        found = (before != -1) & (offsets != before + 1)
        if found.any():
            self.pairs.append(np.stack((before[found], offsets[found]), axis=1))
        self.first = int(offsets[0]) if self.first is None else self.first
        self.previous = int(offsets[-1])

    def join(self, behind: Gaps) -> None:
        """Take the gaps of the next offsets, which were compared by themselves."""
        if behind.first is not None:
            self.add(np.array([behind.first], np.int64))
            self.pairs += behind.pairs
            self.previous = behind.previous

    def lines(self, heading: str) -> Iterator[str]:
        """The lines of Kafka's tool about them, the last pair first."""
        if self.pairs:
            yield heading
        for pairs in reversed(self.pairs):
            for before, after in pairs[::-1].tolist():
                yield f"  {before} is followed by {after}"


def dump_memory() -> Memory:
    """Memory for the columns and the text of one tile, used again for the next."""
    return dump_workspace(), RowWriter()


class _TileLines:
    """The lines of one tile.

    Attributes:
        gaps: of the offsets printed.
    """

    def __init__(
        self, options: DumpOptions, put: Put, workspace: Workspace, rows: RowWriter
    ) -> None:
        """Print to `put`."""
        self.gaps = Gaps()
        self._options = options
        self._lines = options.lines
        self._write = put
        self._rows = rows.to(put)
        self._workspace = workspace

    @cached_property
    def _messages(self) -> MessageReader:
        from kseg.cli.kafka_dump.older import MessageReader  # few logs have any

        return MessageReader()

    def print(self, tile: Tile, size: int) -> None:
        """Print a tile of a file of so many bytes, up to a batch whose header Kafka cannot show."""
        table = tile.table
        beyond = (table.magic >= 2) & (table.position + BATCH_HEADER_BYTES > size)
        refused = (table.codec > Compression.ZSTD) | (table.magic < 0) | beyond
        first = int(refused.argmax()) if refused.any() else len(table)
        sound = table.take(slice(0, first)) if first < len(table) else table
        if self._options.deep:
            self._deep(tile, sound)
        else:
            self._batches(sound, self._rows)
        if first < len(table):
            self._refuse(table.take(slice(first, first + 1)), beyond=bool(beyond[first]))

    def _refuse(self, table: BatchTable, *, beyond: bool) -> None:
        """End at a batch, with the part of its line that Kafka prints."""
        header = table[0]
        if beyond:
            raise CorruptRecordError("the header ends after the file", position=header.position)
        self._rows.rows(self._lines.batch_head(table), 1)
        what = f"magic {header.magic}" if header.magic < 0 else f"codec {header.codec}"
        raise InvalidRecordError(f"no release wrote {what}", position=header.position)

    def _deep(self, tile: Tile, table: BatchTable) -> None:
        made = bytearray()
        if self._lines.nested:
            self._batches(table, RowWriter(made.extend))
        lines = _BatchLines(bytes(made), len(table))

        def show(piece: RecordColumns) -> None:
            for start, end in runs(piece.magic < 2):
                columns = piece if end - start == len(piece) else piece[start:end]
                rows = _rows_of(table, columns.position)
                self._records(tile, table, columns, rows, lines.up_to(rows))

        def show_unread(error: KsegError) -> None:
            shown = False
            for columns in self._unread(tile, table, error):
                show(columns)
                shown = True
            if not shown:
                raise error

        try:
            pieces = decode(
                *(tile.data, table, _REQUEST),
                base=tile.base,
                workspace=self._workspace,
                on_error=show_unread,
            )
            for columns in pieces:
                show(columns)
        except KsegError as error:
            last = len(table) if error.position is None else error.position
            self._put(lines.rest(int(np.searchsorted(table.position, last, "right"))))
            raise
        self._put(lines.rest(len(table)))

    def _put(self, lines: memoryview) -> None:
        if lines:
            self._write(lines)

    def _unread(self, tile: Tile, table: BatchTable, error: KsegError) -> Iterator[RecordColumns]:
        """The messages behind a wrong length, which Kafka's tool prints; they are not a batch."""
        header = table[int(np.searchsorted(table.position, error.position or 0))]
        if header.magic < 2:
            yield from self._messages.without_lies(tile.data, tile.base, header, _REQUEST)

    def _records(
        self,
        tile: Tile,
        table: BatchTable,
        columns: RecordColumns,
        rows: Int64s,
        before: Texts,
    ) -> None:
        """Print the records of a piece, up to one at which Kafka's tool ends."""
        options = self._options
        control = columns.control if columns.magic[0] >= 2 and columns.control.any() else None
        marks, unmarked = (None, None)
        if control is not None and options.metadata:
            from kseg.cli.kafka_dump.decoders import control_marks  # few logs have control records

            marks, unmarked = control_marks(columns)
        checks = None
        if columns.magic[0] < 2:
            checks = self._messages.of(tile.data, tile.base, table, rows)
        contents = Contents()
        if options.parser is not None:
            unread = {} if checks is None else checks.unread()
            contents = options.parser(columns, control, unread)
        failed = first_failure(unmarked, contents.failed)
        head: Template = (lines_before(before),)
        if options.metadata:
            line = self._lines.record if checks is None else self._lines.message
            if line is None:
                raise InvalidRecordError("this release of Kafka did not know magic 2")
            head += line_pieces(line, record_columns(columns, table, rows, checks))
            if checks is None:
                head += names_and_marks(columns.headers, options.style, marks)
        count = len(columns) if failed is None else failed[0]
        key = contents.key
        if key is not None and not self._lines.keyed:
            key = key.where(columns.value.is_valid())
        tail = record_tail(
            options.style,
            key,
            contents.payload,
            metadata=options.metadata,
            null_payload=self._lines.null_payload,
        )
        self._rows.rows((*head, *tail), count)
        self.gaps.add(columns.offset)
        if failed is not None:
            self._rows.rows(head, count + 1, start=count)
            error = failed[1]
            error.position = int(columns.position[count])
            error.offset = int(columns.offset[count])
            raise error

    def _batches(self, table: BatchTable, rows: RowWriter) -> None:
        """Write the lines of a table, a run of one family at a time."""
        for start, end in runs(table.magic < 2):
            run = table.take(slice(start, end))
            rows.rows(self._lines.batch_line(run), len(run))


class _BatchLines:
    """The lines of a table, to be put in front of the records of their batches."""

    def __init__(self, made: bytes, count: int) -> None:
        """Take all of them, in the order of the table, or none."""
        self._data = made
        ends = np.flatnonzero(np.frombuffer(self._data, np.uint8) == 0x0A) + 1
        self._ends = np.concatenate(([0], ends)).astype(np.int32)
        if not made:
            self._ends = np.zeros(count + 1, np.int32)
        self._done = 0

    def up_to(self, rows: Int64s) -> Texts:
        """For each record the lines between its batch and the batch before."""
        starts = np.concatenate(([self._done], rows + 1))
        self._done = int(starts[-1])
        return Texts(self._ends[starts], self._data, None)

    def rest(self, end: int) -> memoryview:
        """The lines of batches before `end` that have not been asked for."""
        start, self._done = self._done, max(end, self._done)
        return memoryview(self._data)[self._ends[start] : self._ends[self._done]]


def _whole_headers(file: LogFile, table: BatchTable) -> BatchTable:
    """The same, but for batches that end inside their header: Kafka's tool reads on behind them."""
    short = (table.magic >= 2) & (table.size < BATCH_HEADER_BYTES)
    if not short.any():
        return table
    rows = table.rows.copy()
    for row in np.flatnonzero(short).tolist():
        position, size = int(table.position[row]), int(table.size[row])
        head = file.head_at(position).ljust(BATCH_HEADER_BYTES, b"\0")
        rows[row] = refused_batch(head, position=position, size=size, policy="file").rows[0]
    rows.flags.writeable = False
    return replace(table, rows=rows)


def _rows_of(table: BatchTable, positions: Int64s) -> Int64s:
    """The batch of each record, by its position; both rise."""
    batches = table.position
    first, last = np.searchsorted(batches, positions[[0, -1]]).tolist()
    starts = np.searchsorted(positions, batches[first : last + 1])
    return np.repeat(np.arange(first, last + 1), np.diff(starts, append=len(positions)))


def _title(name: FileName, lines: Lines) -> str:
    if name.kind is FileKind.BOOTSTRAP:
        return "KRaft bootstrap snapshot\n"
    if name.kind is FileKind.CHECKPOINT_KRAFT:
        return f"Snapshot end offset: {name.base_offset}, epoch: {name.epoch}\n"
    return f"{lines.title} offset: {name.base_offset}\n"


# ---- a run ---------------------------------------------------------------------------------------


class KafkaDump:
    """One run of the tool.

    Attributes:
        options: of the run.
        out: standard output.
        jobs: threads that share the work.
        found: whether something is damaged or differs.
    """

    def __init__(self, options: DumpOptions, out: IO[bytes], jobs: int = 1) -> None:
        """Start with nothing printed and nothing found."""
        self.options = options
        self.out = out
        self.jobs = jobs
        self.found = False
        self._gaps: list[tuple[str, Gaps]] = []
        self._faults: dict[str, list[str]] = {"index": [], "timeindex": []}
        self._memory = PerThread(dump_memory)

    def run(self, paths: Iterable[str]) -> Exit:
        """Print every file; at the first where Kafka's tool ends with an exception, end too.

        Raises:
            KsegError: that one, with the path.
            OSError: a file cannot be read.
        """
        try:
            run_in_order(self._pieces(paths), taker(self.out.write), threads=self.jobs)
        except KsegError:
            self.out.flush()
            raise
        self.out.flush()
        self._tell()
        return Exit.FOUND if self.found else Exit.OK

    def _pieces(self, paths: Iterable[str]) -> Iterator[Work]:
        for path in paths:
            yield from each_at(path, self._file(path))

    def _file(self, path: str) -> Iterator[Work]:
        yield putting(self._line(f"Dumping {path}"))
        _stem, dot, suffix = os.path.basename(path).rpartition(".")
        if not dot:
            raise NotALogError("a name without an extension", path=path)
        if suffix in ("log", "checkpoint"):
            yield from self._log(Path(path))
        elif suffix in _SUFFIXES:
            yield partial(self._other_file, Path(path), suffix)
        else:
            yield putting(partial(self._complain, f"Ignoring unknown file {path}"))

    def _line(self, text: str) -> bytes:
        shown = printable(text) if self.options.terminal else text
        return shown.encode("utf-8", "surrogateescape") + b"\n"

    def _complain(self, line: str) -> None:
        self.out.flush()
        complain(line)

    def _log(self, path: Path) -> Iterator[Work]:
        """One log as pieces of work.

        Each puts lines, and functions to be called when the lines in front are written.

        Raises:
            OSError: the file cannot be read.

        A piece raises:
            FormatError: where Kafka's tool ends with an exception; the lines in front are printed.
            LimitExceededError: a batch inflates to too many bytes.
            OSError: the file cannot be read.
        """
        gaps, options = Gaps(), self.options
        self._gaps.append((str(path), gaps))
        yield putting(_title(file_name(path), options.lines).encode())
        file = LogFile.open(path)
        with SharedUse(file.close) as shared:
            end = file.size if options.max_bytes is None else options.max_bytes
            position = 0
            tile_bytes = PIECE_BYTES if self.jobs > 1 else None
            for tile in file.walk(end=end, on_bad_crc="note", policy="file", tile_bytes=tile_bytes):
                self.found = self.found or bool(tile.table.bad_crc_count)
                yield shared.to(partial(self._tile, tile, file, gaps))
                position = tile.table.end_position
            yield shared.to(partial(self._end, file, position, min(end, file.size)))

    def _tile(self, tile: Tile, file: LogFile, gaps: Gaps, put: Put) -> None:
        tile = tile._replace(table=_whole_headers(file, tile.table))
        with self._memory.one() as memory:
            lines = _TileLines(self.options, put, *memory)
            lines.print(tile, file.size)
        put(partial(gaps.join, lines.gaps))

    def _end(self, file: LogFile, position: int, end: int, put: Put) -> None:
        left = end - position
        if not self.options.lines.lenient:
            check_end(file, position, end)
        if left and self.options.max_bytes is None:
            self.found = True
            put(self._line(f"Found {left} invalid bytes at the end of {file.path.name}"))

    def _other_file(self, path: Path, suffix: str, put: Put) -> None:
        """Print an index or a snapshot."""
        from kseg.cli.kafka_dump import indexes  # logs do without

        def line(text: str) -> None:
            put(self._line(text))

        if suffix == "snapshot":
            error = indexes.print_snapshot(path, line)
            if error is not None:
                self.found = True
                put(partial(self._complain, error))
        elif suffix == "txnindex":
            indexes.print_txn_index(path, line)
        else:
            is_time = suffix == "timeindex"
            print_index = indexes.print_time_index if is_time else indexes.print_offset_index
            found = print_index(path, self.options, put, line)
            lines = list(indexes.complaints(found, os.path.abspath(path)))
            put(partial(self._faults[suffix].extend, lines))

    def _tell(self) -> None:
        """Write the complaints of Kafka's tool, behind all lines."""
        for line in (*self._faults["index"], *self._faults["timeindex"]):
            self.found = True
            complain(line)
        for path, gaps in self._gaps:
            for line in gaps.lines(f"{self.options.lines.gaps}{os.path.abspath(path)}"):
                complain(line)
