"""Records of logs as lines: the part that `kseg dump` and `kseg read` share.

A run chooses records by a `Request`, a key and a count, and writes each as a row. Records of
Kafka's internal topics are decoded, by the topic that is given, or by the name of their log. This
loads no schema, since few logs belong to such a topic: their rows are made in `decoded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np

from kseg.cli import output
from kseg.cli.failures import Exit, complain, one_line, tell_replaced
from kseg.cli.paths import partition_at
from kseg.cli.row_writer import RowSink, RowSinks, Template
from kseg.cli.rows import RECORD_FIELDS, Field, Style, csv_head, record_rows
from kseg.constants import Bools, StopReason
from kseg.errors import KsegError, at_path
from kseg.files.grammar import FileKind
from kseg.files.log_file import Tile
from kseg.format.header import scan
from kseg.format.request import Request
from kseg.format.take import equal_to
from kseg.format.values import RecordColumns
from kseg.internal import InternalTopic
from kseg.records.query import ALL
from kseg.workers import Put

if TYPE_CHECKING:
    pass


#: The values of `--decode`.
NAMES: Final = {
    "offsets": InternalTopic.OFFSETS,
    "transactions": InternalTopic.TRANSACTIONS,
    "metadata": InternalTopic.METADATA,
    "share": InternalTopic.SHARE,
    "remote": InternalTopic.REMOTE,
}
_SNAPSHOTS: Final = (FileKind.CHECKPOINT_KRAFT, FileKind.BOOTSTRAP)


class Source(NamedTuple):
    """A log or a partition whose records are written.

    Attributes:
        path: the file, or the directory.
        style: of its rows.
        topic: the internal topic by whose schemas the records are decoded; None for other records.
        is_last: whether it is the last file of its directory, which may end in zeros.
    """

    path: Path
    style: Style
    topic: InternalTopic | None
    is_last: bool = True


class RecordLines:
    """One run of a verb: the records that it writes, where their rows go, and the faults so far.

    Pieces of work put text, and functions to be called when all text before is written.
    """

    fields: tuple[Field, ...] = RECORD_FIELDS

    def __init__(
        self,
        style: Style,
        out: IO[bytes],
        request: Request,
        *,
        key: bytes | None = None,
        limit: int | None = None,
        last: int | None = None,
        decode_as: InternalTopic | None = None,
        by_name: bool = False,
        jobs: int = 1,
    ) -> None:
        """Start with nothing written and nothing found.

        Args:
            style: the form of rows.
            out: takes the rows.
            request: the records.
            key: only records with this key.
            limit: stop after so many rows.
            last: only so many rows, the last ones of each partition.
            decode_as: decode the records of all files by this topic's schemas.
            by_name: decode the records of files that belong to an internal topic.
            jobs: threads.
        """
        self.style = style
        self.out = out
        self.request = request
        self.limit = limit
        self.last = last
        self.findings = 0
        self.sinks = RowSinks(out.write, limit=limit, last=last)
        self.by_name = by_name
        #: Whether rows of several partitions follow each other without a line between them.
        self.is_of_many = False
        self._decode_as = decode_as
        self._key = key
        self._take = output.taker(out.write)
        self._headed = False
        self._jobs = 1 if self.sinks.counted else jobs

    @property
    def takes_all(self) -> bool:
        """Whether neither bounds nor a key leave records out."""
        return self.request.offset == self.request.time == ALL and self._key is None

    def topic_of(
        self, topic: str | None, path: Path | None, kind: FileKind | None
    ) -> InternalTopic | None:
        """The internal topic by whose schemas records are decoded; None for other records.

        Args:
            topic: of the partition directory that was given.
            path: of a file that was given itself.
            kind: of the file.
        """
        if self._decode_as is not None or not self.by_name:
            return self._decode_as
        if kind in _SNAPSHOTS:
            return InternalTopic.METADATA
        if topic is None and path is not None:
            topic = partition_at(path.absolute().parent).topic
        return InternalTopic(topic) if topic in set(InternalTopic) else None

    def style_of(self, directory: str | None, file: str | None) -> Style:
        """The style of the rows of a file.

        Each row of CSV has a directory, which may be empty; a row of text has it only if rows
        of several partitions are written.
        """
        if self.style.form == "csv":
            directory = directory or ""
        elif self.style.form == "text" and not self.is_of_many:
            directory = None
        return self.style._replace(directory=directory, file=file)

    def write_head(self, source: Source) -> None:
        """Write the first line of CSV, unless it is there."""
        if self._headed or source.style.form != "csv":
            return
        fields = self.fields
        if source.topic is not None:
            from kseg.cli.decoded import DECODED_FIELDS  # only few logs belong to such a topic

            fields = DECODED_FIELDS
        self.out.write(csv_head(fields, source.style))
        self._headed = True

    def write_columns(
        self,
        columns: RecordColumns,
        source: Source,
        sink: RowSink,
        put: Put,
        mask: Bools | None = None,
    ) -> None:
        """Write the chosen records of a piece."""
        if self._key is not None:
            same = equal_to(columns["key"], self._key)
            mask = same if mask is None else mask & same
        if source.topic is None:
            sink.take(self.rows(columns, source.style), len(columns), mask)
            return
        from kseg.cli.decoded import decoded_rows  # likewise

        for rows, count, faults in decoded_rows(
            columns, source.topic, source.style, mask, sink.left
        ):
            sink.take(rows, count)
            for error in faults:
                self.find(error, columns.source or source.path, put)

    def rows(self, columns: RecordColumns, style: Style) -> Template:
        """The rows of records that belong to no internal topic."""
        return record_rows(columns, style)

    def find(self, error: KsegError, path: str | Path, put: Put) -> None:
        """Report a fault, behind the rows in front of it."""
        put(partial(self._report, at_path(error, path)))

    def _report(self, error: KsegError) -> None:
        self.findings += 1
        self.out.flush()
        complain(f"kseg: {one_line(error)}")

    def end(self) -> Exit:
        """Report the values that are not exact; returns the exit code."""
        tell_replaced(self.sinks.replaced)
        return Exit.FOUND if self.findings else Exit.OK


def row_style(form: str, encoding: str | None) -> Style:
    """The style of `--format` and `--bytes`."""
    return Style(form, encoding or ("utf8" if form == "text" else "base64"))


def decoding(decode_as: str | None, raw: bool) -> dict[str, Any]:
    """The values of `--decode` and `--raw` as arguments of `RecordLines`.

    Raises:
        UsageError: both are given.
    """
    if decode_as is not None and raw:
        raise click.UsageError("--raw and --decode exclude each other.")
    return {"decode_as": None if decode_as is None else NAMES[decode_as], "by_name": not raw}


def record_fields(*, kafka07: bool) -> tuple[str, ...]:
    """The names of a record's fields; only records of Kafka 0.7 have `next_offset`."""
    names = (field.name for field in RECORD_FIELDS)
    return tuple(name for name in names if kafka07 or name != "next_offset")


def within(request: Request, rows: int, offsets: tuple[Any, Any], times: tuple[Any, Any]) -> Bools:
    """bool[n]: rows within the bounds of a request, or that reach into them.

    Args:
        request: with the bounds.
        rows: how many.
        offsets: the last and the first offset of each row.
        times: the last and the first time of each row.
    """
    keep = np.ones(rows, np.bool_)
    bounds: Any = ((offsets, request.offset), (times, request.time))
    for (last, first), (start, end) in bounds:
        if start is not None:
            keep &= last >= start
        if end is not None:
            keep &= first < end
    return keep


#: Bytes read from the pipe at a time. No memory is allocated for announced bytes that have not
#: come.
_CHUNK_BYTES = 1 << 20
_UNKNOWN_END = 2**62


def stream_tiles(stream: IO[bytes]) -> Iterator[Tile]:
    """Walk the batches of a stream to its end, or to bytes that are not a batch.

    Positions count from the first byte of the stream.
    """
    data, base, ended = b"", 0, False
    while True:
        chunk = b"" if ended else stream.read(max(_CHUNK_BYTES, len(data)))
        ended = not chunk
        data += chunk
        file_end = base + len(data) if ended else _UNKNOWN_END
        table = scan(memoryview(data), base=base, file_end=file_end, on_bad_crc="note")
        if table.stop is StopReason.ZERO_TAIL and not ended:
            table = table.ended(_zeros_to_the_end(stream))
        if len(table) or table.stop is not StopReason.LIMIT:
            yield Tile(memoryview(data), base, table)
        if table.stop is not StopReason.LIMIT:
            return
        data = data[table.end_position - base :]
        base = table.end_position


def _zeros_to_the_end(stream: IO[bytes]) -> StopReason:
    while chunk := stream.read(_CHUNK_BYTES):
        if chunk.count(0) != len(chunk):
            return StopReason.BAD_LENGTH
    return StopReason.ZERO_TAIL
