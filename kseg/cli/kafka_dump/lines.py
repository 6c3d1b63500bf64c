"""The lines of batches and records, as templates for the text kernel, and their contents.

`Lines` has the text of the lines of a release: here of 4.2, in `older` of older releases.

Source: Kafka 4.2 `DumpLogSegments.printBatchLevel`, `dumpLog`, `DecoderMessageParser`,
`StringDecoder`, `LongDecoder`, `IntegerDecoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from operator import itemgetter
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kseg.constants import (
    INT64_MIN,
    MESSAGE_BYTES_MIN,
    Array,
    Bools,
    Compression,
    Int32s,
    Int64s,
    TimestampType,
    Uint8s,
)
from kseg.errors import CorruptRecordError, InvalidRecordError, KsegError
from kseg.format import text
from kseg.format.header import DELETE_HORIZON, BatchTable

if TYPE_CHECKING:
    from kseg.cli.row_writer import Piece, Template
    from kseg.files.log_file import LogFile
    from kseg.format.values import BinaryColumn, RecordColumns

Failed = tuple[int, KsegError] | None
#: Finds the column of a field of a line; the kernel has codes for some.
Columns = Callable[[str], Any]
#: Kafka reads no further batch where so many bytes or fewer are left.
HEAD_BYTES: Final = 17
_FALSE_TRUE = (b"false", b"true")
#: The names of the fields of a line that are not numbers, and the number of the first name.
_NAMES: Final = {
    "timestamp_type": (tuple(kind.label.encode() for kind in TimestampType), -1),
    "codec": (tuple(codec.label.encode() for codec in Compression), 0),
    "CODEC": (tuple(codec.name.encode() for codec in Compression), 0),
    **dict.fromkeys(("crc_ok", "is_control", "is_transactional", "valid"), (_FALSE_TRUE, 0)),
}
_HORIZON = (b" deleteHorizonMs: OptionalLong.empty", b" deleteHorizonMs: OptionalLong[")


class Lines(NamedTuple):
    """The lines of one release, as texts with the names of columns in braces.

    Attributes:
        head: the line of a batch of magic 2 up to its position.
        batch: the rest of the line of a batch.
        record: the line of a record of magic 2 up to the names of its headers; None where the
            release did not know magic 2.
        message: the line of a message of magic 0 or 1 up to its contents.
        horizon: whether the head ends with the delete horizon.
        nested: whether the line of a batch precedes the lines of its records.
        null_payload: the text for a record without a value; None for nothing.
        keyed: whether the key of a record without a value is printed.
        lenient: whether an impossible size is an end like any other.
        gaps: precedes the path of a log whose offsets have gaps.
        title: precedes the first offset of a log.
        deep_only: whether the release prints batches by their records only.
    """

    head: str
    batch: str
    record: str | None
    message: str
    horizon: bool = False
    nested: bool = True
    null_payload: bytes | None = None
    keyed: bool = True
    lenient: bool = False
    gaps: str = "Non-consecutive offsets in "
    title: str = "Log starting"
    deep_only: bool = False

    def batch_head(self, table: BatchTable) -> Template:
        """The line of each batch up to its position; a message has an offset there.

        Args:
            table: batches of magic 2 and above, or messages of magic 0 and 1.
        """
        if table.magic[0] < 2:
            return line_pieces("offset: {last_offset}", partial(getattr, table))
        head = line_pieces(self.head, partial(getattr, table))
        return (*head, *_horizon(table)) if self.horizon else head

    def batch_line(self, table: BatchTable) -> Template:
        """The line of each batch of a table, as for `batch_head`."""
        return (*self.batch_head(table), *line_pieces(self.batch, partial(getattr, table)))


_HEAD: Final = (
    "baseOffset: {base_offset} lastOffset: {last_offset} count: {record_count} "
    "baseSequence: {base_sequence} lastSequence: {last_sequence} producerId: {producer_id} "
    "producerEpoch: {producer_epoch} partitionLeaderEpoch: {leader_epoch} "
    "isTransactional: {is_transactional} isControl: {is_control}"
)
_RECORD: Final = (
    "| offset: {offset} {timestamp_type}: {timestamp} keySize: {key_size} valueSize: {value_size}"
)
#: The lines of Kafka 4.2; the line of a message has a stray brace.
CURRENT: Final = Lines(
    _HEAD,
    " position: {position} {timestamp_type}: {max_timestamp} size: {size} magic: {magic} "
    "compresscodec: {codec} crc: {crc} isvalid: {crc_ok}\n",
    f"{_RECORD} sequence: {{sequence}}",
    f"{_RECORD} isValid: {{valid}} crc: {{crc}}}}}}",
    horizon=True,
)


def line_pieces(line: str, column: Columns) -> Template:
    """The template of a line; a `?` behind a name leaves out the number -1 with its lead."""
    return tuple(_piece(lead.encode(), name, column) for lead, name, *_ in Formatter().parse(line))


def _piece(lead: bytes, name: str | None, column: Columns) -> Piece:
    if name is None:
        return (text.TEXT, lead)
    values = column(name.removesuffix("?").replace("CODEC", "codec"))
    names, first = _NAMES.get(name.rpartition(".")[2], (None, 0))
    if names is not None:
        return (text.ENUM, lead, b"", values, names, first)
    return (text.INT, lead, None, values, -1) if name[-1] == "?" else int_piece(lead, values)


def int_piece(lead: bytes, column: Array) -> Piece:
    """A number behind `lead`."""
    return (text.INT, lead, b"", column, None)


def _horizon(table: BatchTable) -> Template:
    has = (table.attributes & DELETE_HORIZON) != 0
    present = set(table.base_timestamp[has].tolist())
    absent = next(number for number in count(INT64_MIN) if number not in present)
    horizon = np.where(has, table.base_timestamp, absent)
    return (
        (text.ENUM, b"", b"", has, _HORIZON, 0),
        (text.INT, b"", None, horizon, absent),
        (text.ENUM, b"", b"", has, (b"", b"]"), 0),
    )


class Texts(NamedTuple):
    """Values as text, in Arrow's layout, null where nothing is printed."""

    offsets: Int32s
    data: Uint8s | bytes
    validity: Uint8s | None

    @classmethod
    def of(cls, values: list[bytes | None]) -> Texts:
        """The texts of a list."""
        ends = np.cumsum([0, *(len(value or b"") for value in values)])
        there = np.array([value is not None for value in values], np.bool_)
        data = b"".join(value or b"" for value in values)
        return cls(ends.astype(np.int32), data, np.packbits(there, bitorder="little"))

    @classmethod
    def of_column(cls, column: BinaryColumn, keep: Bools | None) -> Texts:
        """A column as it is, null where `keep` is false."""
        validity = column.validity
        if keep is not None:
            validity = np.packbits(keep & column.is_valid(), bitorder="little")
        return cls(column.offsets, column.data, validity)

    def where(self, keep: Bools) -> Texts:
        """The same, null where `keep` is false too."""
        if self.validity is not None:
            bits = np.unpackbits(self.validity, count=len(keep), bitorder="little")
            keep = keep & bits.view(np.bool_)
        return self._replace(validity=np.packbits(keep, bitorder="little"))


class Messages(NamedTuple):
    """The fields that some messages store about themselves.

    Attributes:
        crc: the stored checksum, int64[n].
        valid: whether it is right, bool[n].
        key_size: the stored length of the key, int64[n]; negative for none.
        value_size: likewise of the value.
        left: bytes behind the length of the value, int64[n]: no value has more.
        value_at: the place of that length in the bytes around the message, int64[n].
    """

    crc: Int64s
    valid: Bools
    key_size: Int64s
    value_size: Int64s
    left: Int64s
    value_at: Int64s

    def unread(self) -> dict[int, str]:
        """The messages whose values cannot be read, with Java's reason."""
        rows = np.flatnonzero(self.value_size > self.left).tolist()
        return {
            row: f"newLimit > capacity: ({self.value_size[row]} > {self.left[row]})" for row in rows
        }

    def of(self, start: int, end: int) -> Messages:
        """Some of them."""
        columns: list[Any] = [column[start:end] for column in self]
        return Messages(*columns)


class Contents(NamedTuple):
    """The texts of the keys and values of a piece.

    Attributes:
        key: None to print no key at all.
        payload: likewise of the values.
        failed: the record at which Kafka's tool ends with an exception, and the reason.
    """

    key: Texts | None = None
    payload: Texts | None = None
    failed: Failed = None


#: Makes the contents of a piece: from its columns, bool[n] for its control records (None for none),
#: and the records whose values cannot be read, with Java's reasons.
Parser = Callable[["RecordColumns", "Bools | None", Mapping[int, str]], Contents]
Decoder = Callable[[bytes], bytes]


class DumpOptions(NamedTuple):
    """The options of a run, for logs and for indexes.

    Attributes:
        style: of keys, values and names, see `style_of`.
        metadata: whether the line of a record has its offset, time, sizes and so on.
        deep: print records.
        parser: makes the texts of key and payload; None to print neither.
        max_bytes: read only so many bytes of a log; None for all.
        lines: of the release.
        verify_only: print no entries of indexes.
        sanity_only: check indexes as an opening does, and no more.
        max_message_size: bytes of the log that are read at an entry of an offset index.
    """

    style: int
    metadata: bool = True
    deep: bool = False
    parser: Parser | None = None
    max_bytes: int | None = None
    lines: Lines = CURRENT
    verify_only: bool = False
    sanity_only: bool = False
    max_message_size: int = 5 * 1024 * 1024

    @property
    def terminal(self) -> bool:
        """Whether lines go to a terminal."""
        return self.style & text.RAW != text.RAW


def style_of(*, terminal: bool) -> int:
    """How keys, values and names are written: as they are, or escaped for a terminal."""
    return (text.UTF8 if terminal else text.RAW) | text.BARE | text.JAVA


def record_columns(
    columns: RecordColumns, table: BatchTable, rows: Int64s, checks: Messages | None
) -> Columns:
    """Finds the columns of the line of a record.

    Args:
        columns: the records.
        table: the batches, whose fields have `batch.` in front of their names.
        rows: int64[n], the batch of each record.
        checks: the stored fields of messages of magic 0 and 1; None for magic 2.
    """

    def column(name: str) -> Any:
        if name.startswith("batch."):
            return getattr(table, name.removeprefix("batch."))[rows]
        if checks is not None and name in Messages._fields:
            return getattr(checks, name)
        if name in ("key_size", "value_size"):
            return columns[name.removesuffix("_size")].sizes()
        return columns["timestamp_ms" if name == "timestamp" else name]

    return column


def lines_before(before: Texts) -> Piece:
    """Whole lines in front of each record's: the lines of the batches that begin there."""
    return (text.BYTES, b"", None, text.RAW | text.BARE, *before)


def names_and_marks(headers: Any, style: int, control: Texts | None) -> Template:
    """The names of headers, then the text of a control record."""
    names, values = headers.keys, headers.values
    sources = (names.offsets, names.data, values.offsets, values.data, values.validity)
    named = (text.HEADERS, b" headerKeys: ", b"", style, headers.offsets, *sources)
    return (named,) if control is None else (named, (text.BYTES, b"", None, style, *control))


def record_tail(
    style: int,
    key: Texts | None,
    payload: Texts | None,
    *,
    metadata: bool,
    null_payload: bytes | None = None,
) -> Template:
    """Key and payload, where they are to be printed, and the end of the line."""
    pieces: list[Piece] = []
    if key is not None:
        lead = b" key: " if metadata else b"| key: "
        pieces.append((text.BYTES, lead, None, style, *key))
    if payload is not None:
        pieces.append((text.BYTES, b" payload: ", null_payload, style, *payload))
    return (*pieces, (text.TEXT, b"\n"))


def check_end(log: LogFile, position: int, end: int) -> None:
    """Refuse an end of batches that Kafka's reader refuses.

    Raises:
        CorruptRecordError: a size that no batch has.
    """
    if end - position > HEAD_BYTES:
        size = int.from_bytes(log.head_at(position)[8:12], "big", signed=True)
        if size < MESSAGE_BYTES_MIN:
            reason = f"a size of {size} is smaller than that of any batch"
            raise CorruptRecordError(reason, path=log.path, position=position)


# ---- keys and values -----------------------------------------------------------------------------


def stored_contents(
    columns: RecordColumns,
    control: Bools | None,
    unread: Mapping[int, str],
    *,
    key: Decoder | None = None,
    value: Decoder | None = None,
) -> Contents:
    """Keys and values, each by a decoder; without a decoder they are UTF-8 text."""
    keep = None if control is None else ~control
    keys, key_failed = _decoded(columns.key, key, keep)
    values, value_failed = _decoded(columns.value, value, keep)
    refused = ((row, InvalidRecordError(why)) for row, why in unread.items())
    return Contents(keys, values, first_failure(key_failed, value_failed, next(refused, None)))


def first_failure(*failures: Failed) -> Failed:
    """The failure of the first record."""
    return min((one for one in failures if one is not None), key=itemgetter(0), default=None)


def _decoded(
    column: BinaryColumn, decoder: Decoder | None, keep: Bools | None
) -> tuple[Texts, Failed]:
    if decoder is None:
        return Texts.of_column(column, keep), None
    kept = column.is_valid() if keep is None else column.is_valid() & keep
    rows, values = np.flatnonzero(kept).tolist(), column.to_pylist()
    return texts_until(len(column), rows, lambda row: decoder(values[row] or b""))


def texts_until(count: int, rows: list[int], make: Callable[[int], bytes]) -> tuple[Texts, Failed]:
    """The texts of some of `count` rows, up to the first that cannot be made, and that one."""
    texts: list[bytes | None] = [None] * count
    for row in rows:
        try:
            texts[row] = make(row)
        except KsegError as error:
            return Texts.of(texts), (row, error)
    return Texts.of(texts), None


def number_decoder(size: int) -> Decoder:
    """A decoder of big-endian numbers of so many bytes; more bytes are ignored, as in Kafka."""

    def decode(value: bytes) -> bytes:
        if len(value) < size:
            raise InvalidRecordError(f"{len(value)} bytes are no number of {size} bytes")
        return b"%d" % int.from_bytes(value[:size], "big", signed=True)

    return decode
