"""`kseg append`: lines of JSON become batches at the end of a log.

A line is a record as `kseg dump --format jsonl` and `kseg read --format jsonl` print it. Of its
fields, `value` is needed, `key`, `headers` and `timestamp` may be there, `control` and `valid` are
checked, and all others are ignored: the new log has its own offsets, producers and codecs. Text
that is not UTF-8, such as a header name, stands as `{"base64": "..."}`.

Of a name that stands twice in an object the last counts, as for the standard `json`.
"""

from __future__ import annotations

import json
import re
import sys
from binascii import a2b_base64, unhexlify
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from kseg.catalog import partition_at
from kseg.cli import output
from kseg.cli.failures import Exit, complain, one_line, usage_errors
from kseg.cli.options import CODECS, CommandSettings
from kseg.cli.paths import known_configs
from kseg.constants import BATCH_BYTES, INT64_MAX, NO_TIMESTAMP, Compression
from kseg.documents import frozen_dataclass
from kseg.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KsegError,
    LimitExceededError,
    NotALogError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from kseg.files.names import parse_partition_dir
from kseg.format.encode import encode_batches
from kseg.format.header import EncodedBatch
from kseg.format.options import BatchOptions
from kseg.format.take import join_rows, take_rows
from kseg.format.values import HeadersColumn, RecordColumns, binary_column, freeze
from kseg.log.data_directory import refuse_cluster_metadata
from kseg.log.log import Log

#: Errors of the lines themselves; other errors are about the log that is there.
_OF_LINES = (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RecordBatchTooLargeError,
)
#: Lines with control records that are named one by one.
_NAMED_MAX = 10


def append(
    directory: str,
    encoding: str,
    durable: bool,
    command_settings: CommandSettings,
    as_json: bool,
    codec: str,
    level: int | None,
    batch_bytes: int,
    batch_records: int | None,
    keep_timestamps: bool,
) -> int:
    """Run `kseg append`; returns the exit code."""
    with usage_errors():
        batch = BatchOptions(compression=Compression(CODECS.index(codec)), level=level)
        options = AppendOptions(encoding, keep_timestamps, batch, batch_bytes, batch_records)
    path = Path(directory)
    _check_name(path)
    partition = partition_at(path)
    config = known_configs([partition], command_settings)[path]
    run = AppendRun(path, options, command_settings.clock, durable=durable)
    is_new = not path.exists()
    # The clock is the log's too, so that a run with --now can be repeated exactly.
    log = Log.open(path, mode="append", create=True, config=config, now_ms=command_settings.clock)
    if is_new:
        complain(f"kseg: {directory}: a new partition; there was none")
    try:
        try:
            run.go(sys.stdin.buffer, log)
        finally:
            log.close()
            run.lasting = not log.state.failed
    except _OF_LINES as error:
        complain(f"kseg: {one_line(error)}")
        run.say(as_json=as_json)
        return Exit.USAGE
    except (KsegError, OSError, KeyboardInterrupt):
        run.say_so_far()
        raise
    run.say(as_json=as_json)
    return Exit.OK


def _check_name(path: Path) -> None:
    """Refuse a directory name in which no broker looks for a partition, and KRaft's.

    Raises:
        NotALogError: names the directory, and the form that its name must have.
    """
    refuse_cluster_metadata(path)
    try:
        parse_partition_dir(path.resolve().name)
    except NotALogError as error:
        raise NotALogError(error.reason, path=path) from None


class AppendRun:
    """One run: the lines so far, and the offsets they got."""

    def __init__(
        self, path: Path, options: AppendOptions, clock: Callable[[], int], *, durable: bool
    ) -> None:
        """Start with nothing appended."""
        self.lasting = False  #: whether the log was closed in good order
        self._options = options
        self._clock = clock
        self._durable = durable
        self._sums: dict[str, Any] = {
            "path": str(path),
            "first_offset": None,
            "last_offset": None,
            "records": 0,
            "batches": 0,
            "bytes": 0,
            "control_records_left_out": 0,
        }

    def go(self, lines: IO[bytes], log: Log) -> None:
        """Append batch by batch, so that memory stays flat however long the input is."""
        sums = self._sums
        for batch in encode_lines(
            lines, self._options, base_offset=0, clock=self._clock, on_control=self._left_out
        ):
            result = log.append(batch, durable=self._durable)
            if sums["first_offset"] is None:
                sums["first_offset"] = result.first_offset
            sums["last_offset"] = result.last_offset
            sums["batches"] += 1
            sums["records"] += batch.record_count
            sums["bytes"] += result.valid_bytes

    def _left_out(self, line: int) -> None:
        """Count a line with a control record, and name the first ones."""
        self._sums["control_records_left_out"] += 1
        if self._sums["control_records_left_out"] <= _NAMED_MAX:
            complain(f"kseg: line {line}: a control record; left out")

    def say(self, *, as_json: bool) -> None:
        """Print the offsets of the lines."""
        sums = self._sums
        controls, first, last = (
            sums[name] for name in ("control_records_left_out", "first_offset", "last_offset")
        )
        if controls > _NAMED_MAX:
            complain(f"kseg: {controls} control records in all; left out")
        if as_json:
            output.write_document("append/1", sums)
        elif first is None:
            output.write_line(f"{sums['path']}: nothing appended")
        else:
            output.write_line(
                f"{sums['path']}: offsets {first} to {last}; records: {sums['records']}, "
                f"batches: {sums['batches']}, bytes: {sums['bytes']}"
            )

    def say_so_far(self) -> None:
        """Print the offsets that were appended before the run stopped."""
        first = self._sums["first_offset"]
        last = self._sums["last_offset"]
        if first is not None:
            doubt = "" if self.lasting else ", but it is not known whether they last"
            complain(f"kseg: offsets {first} to {last} were appended before{doubt}")


# ---- the lines -----------------------------------------------------------------------------------

#: Text parsed at a time, at least; and of so many batches, so that few are begun twice.
_PIECE_BYTES = 1 << 20
_PIECE_BATCHES = 4
#: Of a line, a batch and a piece: two of them stay below the 2 GiB of a column.
_BYTES_MAX = 1 << 29
_WHITE = " \t\r"

#: The most levels of lists and objects inside each other.
_DEPTH_MAX = 64
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')

#: The functions that turn text of a line into bytes.
_ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "base64": partial(a2b_base64, strict_mode=True),
    "hex": unhexlify,
    "utf8": str.encode,
}


#: A record: its line, timestamp, key, value and headers.
_Row = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes | None, bytes | None]]]


@frozen_dataclass
class AppendOptions:
    """Options for reading lines and writing batches.

    Attributes:
        encoding: how keys, values and header values are written: `base64`, `hex` or `utf8`.
        keep_timestamps: take each line's `timestamp` where it has one; else the clock's.
        batch: how batches are written.
        batch_bytes: largest batch in bytes before compression, unless one record is larger.
        batch_records: most records of a batch; None for as many as fit.
        line_bytes_max: longest line allowed.
    """

    encoding: str = "base64"
    keep_timestamps: bool = False
    batch: BatchOptions = field(default_factory=BatchOptions)
    batch_bytes: int = BATCH_BYTES
    batch_records: int | None = None
    line_bytes_max: int = 1 << 26

    def __post_init__(self) -> None:
        """Refuse batches that are too large for a column."""
        if not 0 < self.batch_bytes <= _BYTES_MAX:
            raise ValueError(f"batch_bytes is 1 to {_BYTES_MAX}, not {self.batch_bytes}")


def encode_lines(
    stream: IO[bytes],
    options: AppendOptions,
    *,
    base_offset: int,
    clock: Callable[[], int],
    on_control: Callable[[int], object] | None = None,
) -> Iterator[EncodedBatch]:
    """Batches of all lines of a stream, offsets running on; as large as the options allow.

    Where a batch ends depends on the lines alone, not on how they arrive. Before a bad line raises,
    batches of the lines before it may have been given, whole ones as always.

    Args:
        stream: the lines; read to its end.
        options: how they are read and written.
        base_offset: offset of the first record.
        clock: the time in ms; asked once for each piece of lines.
        on_control: called with the number, from 1, of each line that holds a control record. Those
            are left out: a marker means nothing without its transaction.

    Raises:
        InvalidRecordError: a line is not a record; the message has its number, counted from 1.
        LimitExceededError: a line is longer than the options allow.
    """
    held: RecordColumns | None = None  # records that are in no batch yet
    offset = base_offset
    for piece in read_lines(stream, options, clock=clock, on_control=on_control):
        held = piece if held is None else join_rows([held, piece])
        last: EncodedBatch | None = None
        done = 0
        for batch in _encode(held, options, offset):
            if last is not None:
                yield last
                done += last.record_count
            last = batch
        # The last batch may have room for lines yet to come: it is made again with them.
        held = take_rows(held, np.arange(done, len(held)))
        offset += done
    if held is not None:
        yield from _encode(held, options, offset)


def _encode(columns: RecordColumns, options: AppendOptions, offset: int) -> Iterator[EncodedBatch]:
    """The batches of records; an error about a record has the number of its line."""
    try:
        yield from encode_batches(
            columns,
            options.batch,
            base_offset=offset,
            batch_bytes=options.batch_bytes,
            batch_records=options.batch_records,
        )
    except InvalidRecordError as error:
        if error.record_index is None:
            raise
        _refuse(int(columns["line"][error.record_index]), error.reason)


def read_lines(
    stream: IO[bytes],
    options: AppendOptions,
    *,
    clock: Callable[[], int],
    on_control: Callable[[int], object] | None = None,
) -> Iterator[RecordColumns]:
    """The records of a stream, some MiB of text a piece.

    The fields are `timestamp`, `key`, `value`, `headers`, and `line` for the zero-based number of
    the line. Arguments and errors are those of `encode_lines`. Blank lines are skipped.
    """
    number = 0
    for text in _whole_lines(stream, options):
        columns, controls = _parse(text, options, clock(), number)
        if on_control is not None:
            for line in controls:
                on_control(line + 1)
        number += text.count(b"\n")
        if len(columns):
            yield columns


def _whole_lines(stream: IO[bytes], options: AppendOptions) -> Iterator[bytes]:
    """A stream in pieces of whole lines; the last line gets its end if it has none."""
    # `parts` are the beginning of a line, of `held` bytes, after `number` lines.
    piece_bytes = max(_PIECE_BYTES, _PIECE_BATCHES * options.batch_bytes)
    parts: list[bytes] = []
    held = 0
    number = 0
    while chunk := stream.read(min(piece_bytes, _BYTES_MAX)):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            text = b"".join((*parts, chunk[:cut]))
            yield text
            number += text.count(b"\n")
            parts = []
            held = 0
        parts.append(chunk[cut:])
        held += len(chunk) - cut
        if held > options.line_bytes_max:
            _too_long(number, options.line_bytes_max)
    if held:
        yield b"".join((*parts, b"\n"))


def _parse(
    text: bytes, options: AppendOptions, now_ms: int, number: int
) -> tuple[RecordColumns, list[int]]:
    """The records of some lines, and the numbers of lines with control records.

    Args:
        text: whole lines.
        options: how to read them.
        now_ms: the time of records without a time.
        number: the number of the first line.
    """
    rows: list[_Row] = []
    controls: list[int] = []
    for at, data in enumerate(text.split(b"\n"), number):
        if len(data) > options.line_bytes_max:
            _too_long(at, options.line_bytes_max)
        try:
            line = data.decode()
        except UnicodeDecodeError as error:
            _refuse(at, f"not UTF-8: byte 0x{data[error.start]:02x}")
        fields = _object(line.strip(_WHITE), at)
        if fields is None:
            continue
        if fields.get("control") is True:
            controls.append(at)
        else:
            rows.append(_row(fields, at, options, now_ms))
    return _columns(rows), controls


def _columns(rows: list[_Row]) -> RecordColumns:
    """Rows of records as read-only columns."""
    lines, timestamps, keys, values, headers = zip(*rows, strict=True) if rows else ((),) * 5
    pairs = list(chain.from_iterable(headers))
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(pairs) for pairs in headers], out=ends[1:])
    arrays = {
        "timestamp": np.array(timestamps, np.int64),
        "key": binary_column(keys),
        "value": binary_column(values),
        "headers": HeadersColumn(
            ends,
            binary_column([name for name, _ in pairs]),
            binary_column([value for _, value in pairs]),
        ),
        "line": np.array(lines, np.int64),
    }
    for array in arrays.values():
        freeze(array)
    return RecordColumns(len(rows), arrays)


# ---- one line ------------------------------------------------------------------------------------


def _object(line: str, number: int) -> dict[str, Any] | None:
    """The JSON object of a line; None for a blank line."""
    if not line:
        return None
    try:
        fields = _decode(line)
    except json.JSONDecodeError as error:
        _refuse(number, f"not JSON: {error.msg} at column {error.colno}")
    except RecursionError:
        _too_deep(number)
    except ValueError as error:
        _refuse(number, f"not JSON that can be read: {error}")
    if type(fields) is not dict:
        _refuse(number, "not a JSON object")
    if line.count("[") + line.count("{") > _DEPTH_MAX:
        # Fields that a later field of the same name replaces count as well.
        depth = 0
        for bracket in re.findall(r"[][{}]", _STRING.sub("", line)):
            depth += 1 if bracket in "[{" else -1
            if depth > _DEPTH_MAX:
                _too_deep(number)
    return fields


def _row(fields: dict[str, Any], number: int, options: AppendOptions, now_ms: int) -> _Row:
    """The record of a line, from its JSON object.

    Args:
        fields: the object.
        number: the number of the line.
        options: how to read it.
        now_ms: the time of a record without a time.
    """
    encoding = options.encoding
    if "value" not in fields:
        _refuse(number, "no value; a tombstone says null")
    if fields.get("valid") is False:
        _refuse(number, "valid is false: its batch did not match its checksum")
    time = fields.get("timestamp") if options.keep_timestamps else None
    if time is not None and not (type(time) is int and NO_TIMESTAMP <= time <= INT64_MAX):
        _refuse(number, f"timestamp must be milliseconds, not below {NO_TIMESTAMP} on")
    headers = fields.get("headers")
    if headers is not None and type(headers) is not list:
        _refuse(number, "headers is not a list of [name, value]")
    pairs: list[tuple[bytes | None, bytes | None]] = []
    for pair in headers or ():
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in (str, dict):
            _refuse(number, "a header is [name, value], its name a string")
        name = _bytes(pair[0], "a header's name", number, "utf8")
        pairs.append((name, _bytes(pair[1], "a header's value", number, encoding)))
    key = _bytes(fields.get("key"), "key", number, encoding)
    value = _bytes(fields["value"], "value", number, encoding)
    return number, now_ms if time is None else time, key, value, pairs


def _no_constant(name: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is no JSON")


def _whole_number(digits: str) -> int:
    """A whole number; one with more than 40 digits is cut off, as it is too large in any case.

    `int` refuses to read thousands of digits, which a field that is ignored may have.
    """
    return int(digits[:40])


_decode = json.JSONDecoder(parse_int=_whole_number, parse_constant=_no_constant).decode


def _bytes(text: Any, name: str, number: int, encoding: str) -> bytes | None:
    """The bytes that a JSON value stands for; None for null.

    Args:
        text: a string in the encoding, or `{"base64": ...}`.
        name: the name of the value in errors.
        number: the number of the line.
        encoding: "base64", "hex" or "utf8".
    """
    if text is None:
        return None
    if type(text) is dict and list(text) == ["base64"] and type(text["base64"]) is str:
        text = text["base64"]
        encoding = "base64"
    if type(text) is not str:
        _refuse(number, f"{name} is neither a string nor null")
    try:
        return _ENCODINGS[encoding](text)
    except UnicodeEncodeError:
        _refuse(number, f"{name} holds half a surrogate pair")
    except ValueError as error:
        hint = "; --bytes utf8 takes text" if encoding == "base64" else ""
        _refuse(number, f"{name} is not {encoding}: {error}{hint}")


def _refuse(number: int, reason: str) -> NoReturn:
    """Raise the error of a line; lines are numbered from 0 here, and from 1 for people."""
    raise InvalidRecordError(f"line {number + 1}: {reason}")


def _too_deep(number: int) -> NoReturn:
    _refuse(number, f"lists and objects nested deeper than {_DEPTH_MAX}")


def _too_long(number: int, line_bytes_max: int) -> NoReturn:
    raise LimitExceededError(f"line {number + 1} is longer than {line_bytes_max} bytes")
