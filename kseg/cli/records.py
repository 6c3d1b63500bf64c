"""`kseg read`, `kseg grep`, and records as lines: the part that `kseg dump` shares with them.

`read` shows the records of a log as a consumer would see them, `grep` those that match. A run
chooses records by a `Request`, a key and a count, and writes each as a row. Records of Kafka's
internal topics are decoded, by the topic that is given, or by the name of their log. This loads no
schema, since few logs belong to such a topic: their rows are made in `decoded`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np

from kseg.catalog import partition_at
from kseg.cli import output
from kseg.cli.failures import Exit, complain, complain_of, tell_replaced, usage_errors
from kseg.cli.main import ReaderGone
from kseg.cli.options import LOCAL_PATH, Paths
from kseg.cli.paths import one_partition, scanned, tier_of_run
from kseg.cli.rows import (
    RECORD_FIELDS,
    Field,
    RowWriter,
    Style,
    csv_head,
    record_rows,
    typed_fields,
)
from kseg.constants import Bools, ConnectTopic, StopReason, topic_named
from kseg.errors import KsegError, at_path
from kseg.files.grammar import FileKind, parse_name
from kseg.files.log_file import Tile
from kseg.files.selection import Selection
from kseg.format.header import scan
from kseg.format.reader import PIECE_BYTES
from kseg.format.request import Request
from kseg.format.take import first_rows, take_rows
from kseg.format.times import iso_text
from kseg.format.values import RecordColumns
from kseg.internal import InternalTopic
from kseg.records.query import ALL, parse_key
from kseg.stores.path import RemotePath, path_at
from kseg.workers import At, PerThread, Put, Results, run_in_order

if TYPE_CHECKING:
    from kseg.records.stream import Scan

#: The values of `--decode`.
NAMES: Final = {
    "offsets": InternalTopic.OFFSETS,
    "transactions": InternalTopic.TRANSACTIONS,
    "metadata": InternalTopic.METADATA,
    "share": InternalTopic.SHARE,
    "remote": InternalTopic.REMOTE,
    "connect-offsets": ConnectTopic.OFFSETS,
    "offset-syncs": ConnectTopic.SYNCS,
    "checkpoints": ConnectTopic.CHECKPOINTS,
}
_SNAPSHOTS: Final = (FileKind.CHECKPOINT_KRAFT, FileKind.BOOTSTRAP)


class Source(NamedTuple):
    """A log or a partition whose records are written.

    Attributes:
        path: the file, or the directory.
        style: the style of its rows.
        topic: the internal topic by whose schemas the records are decoded; None for other records.
        is_last: whether it is the last file of its directory, which may end in zeros.
    """

    path: Path
    style: Style
    topic: InternalTopic | ConnectTopic | None
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
        *,
        decode_as: InternalTopic | ConnectTopic | None = None,
        by_name: bool = False,
    ) -> None:
        """Start with nothing written and nothing found.

        Args:
            style: the form of rows.
            out: takes the rows.
            decode_as: decode the records of all files by this topic's schemas.
            by_name: decode the records of files that belong to an internal topic.
        """
        self.style = style
        self.out = out
        self.findings = 0
        self.is_empty = True
        self._replaced = 0
        self._writers = PerThread(RowWriter)
        self.by_name = by_name
        #: Whether rows of several partitions follow each other without a line between them.
        self.is_of_many = False
        self._decode_as = decode_as
        #: The paths of files that the user named, rather than their directory.
        self._named_files: frozenset[str] = frozenset()
        self._sources: dict[str, Source] = {}
        self._take = output.taker(out.write)
        self._headed = False

    def write(self, records: Scan, jobs: int = 1) -> None:
        """Write the records of a scan.

        Args:
            records: with the columns `record_fields`; its faults go to `note`.
            jobs: the threads that make text; one, if records of the scan are counted.
        """
        has_inside = _tell_outside(records)
        if jobs > 1:
            self._begin(records)
            works = records.works(piece_bytes=PIECE_BYTES)
            pieces = (At(work.path, partial(self._put_rows, work)) for work in works)
            run_in_order(pieces, self._take, threads=jobs)
        else:
            self.write_pieces(records, records)
        if (
            has_inside and records.counts[0] != 0
        ):  # else the reason is known: the bounds, or a limit
            self.tell_nothing("record", records.request)

    def write_pieces(self, records: Scan, pieces: Iterable[RecordColumns]) -> None:
        """Write pieces of a scan, each before the next one is read."""
        self._begin(records)
        with self.sink(self._take) as sink:
            for columns in pieces:
                self._write_piece(columns, sink, self._take)
                self.out.flush()

    @contextmanager
    def sink(self, put: Put) -> Iterator[RowWriter]:
        """Writes the rows of a piece of work, and then puts a function that adds their sums."""
        with self._writers.one() as writer:
            yield writer.to(put)
            sums = writer.replaced, writer.is_empty
        put(partial(self._add, *sums))

    def _add(self, replaced: int, is_empty: bool) -> None:
        """Add the sums of a piece of work."""
        self._replaced += replaced
        self.is_empty = self.is_empty and is_empty

    def tell_nothing(self, noun: str, request: Request) -> None:
        """Report that the ranges of a request have nothing, if they do.

        Args:
            noun: the noun for a row: record or batch.
            request: the request, which has the ranges.
        """
        if not self.is_empty:
            return
        options: Any = (("--offset", request.offset, _plain), ("--time", request.time, _iso))
        ranges = [
            f"{option} {text(bounds[0])}..{text(bounds[1])}"
            for option, bounds, text in options
            if bounds != ALL
        ]
        if ranges:
            complain(f"kseg: no {noun} found in {' '.join(ranges)}")

    def _begin(self, records: Scan) -> None:
        """Take note of what all records of a scan have in common."""
        self.fields = typed_fields(records.kinds)
        self._named_files = frozenset(
            str(source.path) for source in records.sources if source.is_file
        )
        if self.style.form == "csv" and self.by_name:
            # One head serves all lines: decoded by name is all or nothing.
            topics = (
                self.topic_of(source.topic, kind=_kind_of(source.path) if source.is_file else None)
                for source in records.sources
            )
            self.by_name = all(topics)

    def note(self, error: KsegError) -> None:
        """Report a fault that a scan skips."""
        self.find(error, error.path or "", self._take)

    def _put_rows(self, work: Results, put: Put) -> None:
        """Put the rows of a piece of work."""
        with self.sink(put) as sink:
            for result in work:
                if isinstance(result, KsegError):
                    self.find(result, result.path or "", put)
                else:
                    self._write_piece(result, sink, put)

    def _write_piece(self, columns: RecordColumns, sink: RowWriter, put: Put) -> None:
        """Put the rows of a piece of columns, which is of one file."""
        if "next_offset" in columns.fields and not str(columns.source).endswith(".kafka"):
            arrays = {name: columns.arrays[name] for name in columns.fields}
            del arrays["next_offset"]
            columns = replace(columns, arrays=arrays)
        source = self._sources.get(columns.source or "")
        if source is None:
            source = self._sources[columns.source or ""] = self._source_of(columns)
        if source.style.form == "csv" and not self._headed:
            put(partial(self.write_head, source))
        self.write_columns(columns, source, sink, put)

    def _source_of(self, columns: RecordColumns) -> Source:
        """The file of a piece of columns, with the style of its rows.

        Rows name the partition directory, unless the user named the file.
        """
        path = path_at(columns.source or "")
        if str(path) in self._named_files:
            topic = self.topic_of(columns.topic, path, _kind_of(path))
            return Source(path, self.style_of(None, path.name), topic)
        if tier_of_run() is not None:  # an object's directory is not named after the partition
            directory = f"{columns.topic}-{columns.partition}"
        elif isinstance(path, RemotePath):
            directory = path.absolute().parent.name
        else:
            directory = os.path.basename(os.path.realpath(path.absolute().parent))
        return Source(path, self.style_of(directory, path.name), self.topic_of(columns.topic))

    def topic_of(
        self, topic: str | None, path: Path | None = None, kind: FileKind | None = None
    ) -> InternalTopic | ConnectTopic | None:
        """The internal topic by whose schemas records are decoded; None for other records.

        Args:
            topic: the topic of the partition directory; None if it has another name.
            path: the path of a file that the user named; None for the files of a directory.
            kind: the kind of that file.
        """
        if self._decode_as is not None or not self.by_name:
            return self._decode_as
        if kind in _SNAPSHOTS:
            return InternalTopic.METADATA
        if topic is None and path is not None:
            topic = partition_at(path.absolute().parent).topic
        return topic_named(topic)

    def style_of(self, directory: str | None, file: str | None) -> Style:
        """The style of the rows of a file.

        Each row of CSV has a directory, which may be empty; a row of text has it only if rows
        of several partitions are written.

        Args:
            directory: the name of the directory; None if the rows do not name it.
            file: the name of the file; None if the rows do not name it.
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
            from kseg.cli.decoded import DECODED_FIELDS  # imported late: rarely used

            fields = DECODED_FIELDS
        self.out.write(csv_head(fields, source.style))
        self._headed = True

    def write_columns(
        self, columns: RecordColumns, source: Source, sink: RowWriter, put: Put
    ) -> None:
        """Write the records of a piece."""
        if source.topic is None:
            sink.rows(record_rows(columns, source.style, self.fields), len(columns))
            return
        from kseg.cli.decoded import decoded_rows  # imported late: rarely used

        for rows, count, faults in decoded_rows(columns, source.topic, source.style):
            sink.rows(rows, count)
            for error in faults:
                self.find(error, columns.source or source.path, put)

    def find(self, error: KsegError, path: str | Path, put: Put) -> None:
        """Report a fault, in its turn after the rows that come before it."""
        put(partial(self._report, at_path(error, path)))

    def _report(self, error: KsegError) -> None:
        """Report a fault, and count it."""
        self.findings += 1
        self.out.flush()
        complain_of((error,))

    def end(self) -> Exit:
        """Report the values that are not exact; returns the exit code."""
        tell_replaced(self._replaced)
        return Exit.FOUND if self.findings else Exit.OK


def row_style(form: str, encoding: str | None) -> Style:
    """The style of `--format` and `--bytes`."""
    return Style(form, encoding or ("utf8" if form == "text" else "base64"))


def decoding(decode_as: str | None, raw: bool) -> dict[str, Any]:
    """`--decode` and `--raw` as arguments of `RecordLines`.

    Raises:
        UsageError: both are given.
    """
    if decode_as is not None and raw:
        raise click.UsageError("--raw and --decode exclude each other.")
    return {"decode_as": None if decode_as is None else NAMES[decode_as], "by_name": not raw}


#: The fields of a record. Only records of Kafka 0.7 have `next_offset`; no row of others shows it.
ROW_FIELDS: Final = tuple(field.name for field in RECORD_FIELDS)


def record_fields(*, kafka07: bool) -> tuple[str, ...]:
    """The names of a record's fields; only records of Kafka 0.7 have `next_offset`."""
    return tuple(name for name in ROW_FIELDS if kafka07 or name != "next_offset")


def _kind_of(path: Path) -> FileKind | None:
    """The kind of a file according to its name; None for a name that is not Kafka's."""
    name = parse_name(path.name)
    return None if name is None else name.kind


def _tell_outside(records: Scan) -> bool:
    """Report the partitions without offsets in the bounds; returns whether others have some."""
    from kseg.log.reader import LogView  # imported late: few queries have bounds

    start = records.request.offset_start
    end = records.request.offset_end
    has_inside = not records.sources or records.request.bounds[0] == ALL
    for source in () if has_inside else records.sources:
        view = None if source.is_file else LogView.at(source)
        if view is None or (start < view.log_end_offset and end > view.log_start_offset):
            has_inside = True
        else:
            complain(f"kseg: {view.path}: nothing is there: {view.extent}")
    return has_inside


def within(request: Request, rows: int, offsets: tuple[Any, Any], times: tuple[Any, Any]) -> Bools:
    """bool[n]: rows that are at least partly within the bounds of a request.

    Args:
        request: the request.
        rows: the number of rows.
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
    """Read a stream to its end, or to a byte that is not zero; returns why its walk ends."""
    while chunk := stream.read(_CHUNK_BYTES):
        if chunk.count(0) != len(chunk):
            return StopReason.BAD_LENGTH
    return StopReason.ZERO_TAIL


def _plain(bound: Any) -> str:
    """A bound as text; empty for None."""
    return "" if bound is None else str(bound)


def _iso(bound: Any) -> str:
    """A bound of time as text: ISO 8601, or ms outside of its years."""
    return iso_text(bound) or _plain(bound)


def read(
    paths: Paths,
    query: dict[str, Any],
    form: str,
    encoding: str | None,
    decode_as: str | None,
    raw: bool,
    follow: bool,
    recreated: str,
) -> int:
    """Run the verb; returns the exit code."""
    if "decode" in query and decode_as is not None:
        raise click.UsageError("--decode and --decode-key or --decode-value exclude each other.")
    if recreated == "start" and not follow:
        raise click.UsageError("--recreated wants --follow.")
    if follow and query["on_corrupt"] == "skip":
        raise click.UsageError("--follow ends at damage: --on-corrupt skip is for other reads.")
    if follow and ("partitioner" in query or query.get("control")):
        raise click.UsageError("--partitioner and --control are for reads without --follow.")
    lines = _lines(query, form, encoding, decode_as, raw)
    jobs = 1 if "limit" in query or "last" in query else query["threads"]
    query |= {"threads": 1, "columns": ROW_FIELDS}
    if follow:
        LOCAL_PATH.convert(paths[0], None, None)  # nothing tells of changes in a store
        selection = Selection.of(query.get("topics"), query.get("partitions"))
        path = one_partition(paths, selection).path
        _follow(lines, path, scanned((str(path),), query), query.get("limit"), recreated)
    else:
        records = scanned(paths, query)
        lines.is_of_many = len(paths) > 1 or [*map(str, paths)] != [str(records.sources[0].path)]
        lines.write(records, jobs)
    return lines.end()


def _lines(
    query: dict[str, Any], form: str, encoding: str | None, decode_as: str | None, raw: bool
) -> RecordLines:
    """The lines on standard output; they note the faults that the query passes over."""
    how = decoding(decode_as, raw=raw or "decode" in query)
    lines = RecordLines(row_style(form, encoding), output.binary_stdout(), **how)
    if query["on_corrupt"] == "skip":
        query["on_corrupt"] = lines.note
    return lines


def _follow(
    lines: RecordLines, path: Path, records: Scan, limit: int | None, recreated: str
) -> None:
    """Write the records of a partition, and then new ones as they come."""
    from kseg.log.log import Log  # a dump does without

    request = records.request
    committed = request.isolation == "read_committed"
    with Log.open(path) as log:
        log_end = log.last_stable_offset if committed else log.log_end_offset
        begin = max(log.log_start_offset, request.offset_start)
        if log_end >= request.offset_end or records.counts[1] is not None:
            # The tail is shown once; from there on nothing is held back any more.
            lines.write(records.at({records.sources[0].path: log.view}))
            if log_end >= request.offset_end:
                return
            begin = max(log_end, request.offset_start)
        lines.out.flush()
        new = log.follow(
            begin,
            stop=ReaderGone(),
            recreated=recreated,
            isolation=request.isolation,
            columns=request.columns,
        )
        lines.write_pieces(records, first_rows(_within_bounds(records, new), limit))


def _within_bounds(records: Scan, new: Iterator[RecordColumns]) -> Generator[RecordColumns]:
    """New records within the bounds of a scan; only the isolation was applied before."""
    request = records.request
    source = records.sources[0]
    for columns in new:
        offsets = columns["offset"]
        times = columns["timestamp_ms"]
        keep = within(request, len(columns), (offsets, offsets), (times, times))
        yield records.chosen(source, take_rows(columns, np.flatnonzero(keep)))
        if int(offsets[-1]) >= request.offset_end - 1:
            return


def grep(
    pattern: str,
    paths: Paths,
    query: dict[str, Any],
    regex: bool,
    is_hex: bool,
    fields: tuple[str, ...],
    ignore_case: bool,
    whole: bool,
    invert: bool,
    with_count: bool,
    list_only: bool,
    context: int,
    form: str,
    encoding: str | None,
    decode_as: str | None,
    raw: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.records.patterns import Pattern  # likewise

    only = with_count or list_only
    with usage_errors("--hex" if is_hex else ""):
        data = parse_key(f"hex:{pattern}") if is_hex else os.fsencode(pattern)
        searched = Pattern(data, fields, regex, ignore_case, whole, invert)
    if with_count + list_only + (context > 0 or form == "csv") > 1:
        raise click.UsageError(
            "--count and -l exclude each other, --context and --format csv: they write no records."
        )
    lines = _lines(query, form, encoding, decode_as, raw)
    with output.progress("grep", 0, in_bytes=True) as bar:
        query |= {"columns": ("offset",) if only else ROW_FIELDS, "progress": bar.to}
        with usage_errors():
            matches = scanned(paths, query).holding(searched, context)
        lines.is_of_many = len(matches.sources) > 1
        if only:
            has_any = _write_places(matches, form, list_only) > 0
        else:
            lines.write(matches)
            has_any = not lines.is_empty
    # No match is exit code 1, as of grep itself.
    return lines.end() or (Exit.OK if has_any else Exit.FOUND)


def _write_places(matches: Scan, form: str, list_only: bool) -> int:
    """Write each partition or file with matching records, or all with counts; return the sum."""
    total = 0
    for source in matches.sources:
        of_source = replace(matches.head(1) if list_only else matches, sources=(source,))
        path = str(source.path)
        count = sum(map(len, of_source))
        total += count
        if list_only and not count:
            continue
        if form == "jsonl":
            output.write_json({"path": path} if list_only else {"path": path, "count": count})
        else:
            output.write_line(path if list_only else f"{path}: {count}")
    return total
