"""The lines of batches and records, as templates for the text kernel, and their contents.

`Lines` has those of a release: here those of 4.2, in `older` those of older releases.

Source: Kafka 4.2 `DumpLogSegments.printBatchLevel`, `dumpLog`, `DecoderMessageParser`,
`StringDecoder`, `LongDecoder`, `IntegerDecoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kseg.constants import Compression, TimestampType
from kseg.errors import InvalidRecordError, KsegError
from kseg.format import text
from kseg.format.header import DELETE_HORIZON

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.cli.rows import Piece, Template
    from kseg.format.header import BatchTable
    from kseg.format.values import BinaryColumn, RecordColumns

    Column = npt.NDArray[Any]
    Sizes = tuple[Column, Column]
    Mask = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.int64]
    Failed = tuple[int, KsegError] | None
_INT64_MIN = -(2**63)
CODECS = tuple(codec.label.encode() for codec in Compression)
TIMES = tuple(kind.label.encode() for kind in TimestampType)
FALSE_TRUE = (b"false", b"true")
_HORIZON = (b" deleteHorizonMs: OptionalLong.empty", b" deleteHorizonMs: OptionalLong[")
#: The fields of a batch line in front of its position, for magic 2.
BATCH_INTS = (
    ("baseOffset: ", "base_offset"),
    (" lastOffset: ", "last_offset"),
    (" count: ", "record_count"),
    (" baseSequence: ", "base_sequence"),
    (" lastSequence: ", "last_sequence"),
    (" producerId: ", "producer_id"),
    (" producerEpoch: ", "producer_epoch"),
    (" partitionLeaderEpoch: ", "leader_epoch"),
)


class Look(NamedTuple):
    """How much of a record a line has.

    Attributes:
        style: of the bytes of keys, values and names: as they are, or escaped for a terminal.
        metadata: offset, time, sizes and so on.
    """

    style: int
    metadata: bool = True

    @property
    def terminal(self) -> bool:
        """Whether lines go to a terminal."""
        return self.style & text.RAW != text.RAW


class Texts(NamedTuple):
    """Values as text, in Arrow's layout, null where nothing is printed."""

    offsets: npt.NDArray[np.int32]
    data: npt.NDArray[np.uint8] | bytes
    validity: npt.NDArray[np.uint8] | None

    @classmethod
    def of(cls, values: list[bytes | None]) -> Texts:
        """The texts of a list."""
        ends = np.cumsum([0, *(len(value or b"") for value in values)])
        there = np.array([value is not None for value in values], np.bool_)
        data = b"".join(value or b"" for value in values)
        return cls(ends.astype(np.int32), data, np.packbits(there, bitorder="little"))

    @classmethod
    def those(cls, column: BinaryColumn, keep: npt.NDArray[np.bool_] | None) -> Texts:
        """A column as it is, null where `keep` is false."""
        validity = column.validity
        if keep is not None:
            validity = np.packbits(keep & column.is_valid(), bitorder="little")
        return cls(column.offsets, column.data, validity)

    def where(self, keep: npt.NDArray[np.bool_]) -> Texts:
        """The same, null where `keep` is false too."""
        if self.validity is not None:
            bits = np.unpackbits(self.validity, count=len(keep), bitorder="little")
            keep = keep & bits.view(np.bool_)
        return self._replace(validity=np.packbits(keep, bitorder="little"))


class Messages(NamedTuple):
    """What each of some messages says of itself.

    Attributes:
        crc: the checksum stored, int64[n].
        valid: whether it is right, bool[n].
        key_size: the length of the key as stored, int64[n]; negative for none.
        value_size: likewise of the value.
        left: bytes behind the length of the value, int64[n]: no value has more.
        value_at: where that length lies in the bytes around the message, int64[n].
    """

    crc: Numbers
    valid: npt.NDArray[np.bool_]
    key_size: Numbers
    value_size: Numbers
    left: Numbers
    value_at: Numbers

    def unread(self) -> dict[int, str]:
        """The messages whose values cannot be read, with Java's words for why."""
        rows = np.flatnonzero(self.value_size > self.left).tolist()
        return {
            row: f"newLimit > capacity: ({self.value_size[row]} > {self.left[row]})" for row in rows
        }

    def of(self, start: int, end: int) -> Messages:
        """Some of them."""
        columns: list[Any] = [column[start:end] for column in self]
        return Messages(*columns)


class RecordPiece(NamedTuple):
    """The records of a piece, and what is known of their batches.

    Attributes:
        columns: the records.
        table: the batches.
        rows: int64[n], the batch of each record.
        checks: what messages of magic 0 and 1 say of themselves; None for magic 2.
        control: texts of control records; None where there is none.
    """

    columns: RecordColumns
    table: BatchTable
    rows: npt.NDArray[np.int64]
    checks: Messages | None
    control: Texts | None

    @property
    def sizes(self) -> Sizes:
        """Of keys and of values, as they are stored; negative for none."""
        if self.checks is None:
            return self.columns.key.sizes(), self.columns.value.sizes()
        return self.checks.key_size, self.checks.value_size

    def of_batch(self, name: str) -> Column:
        """A field of the batches, a value a record."""
        column: Column = getattr(self.table, name)[self.rows]
        return column


class Lines(NamedTuple):
    """The lines of one release.

    Attributes:
        head: the line of a batch up to its position.
        batches: the whole line of each batch of one family.
        records: the line of a record up to its contents.
        nested: whether the line of a batch precedes those of its records.
        null_payload: the text for a record without a value; None for nothing.
        keyed: whether the key of a record without a value is printed.
        lenient: whether an impossible size is an end like any other.
        gaps: precedes the path of a log whose offsets have gaps.
        title: precedes the first offset of a log.
        deep_only: whether the release prints batches by their records only.
    """

    head: Callable[[BatchTable], Template]
    batches: Callable[[BatchTable], Template]
    records: Callable[[RecordPiece, Look], Template]
    nested: bool = True
    null_payload: bytes | None = None
    keyed: bool = True
    lenient: bool = False
    gaps: str = "Non-consecutive offsets in "
    title: str = "Log starting"
    deep_only: bool = False


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
Parser = Callable[["RecordColumns", "Mask | None", Mapping[int, str]], Contents]
Decoder = Callable[[bytes], bytes]


def look_of(*, terminal: bool, metadata: bool = True) -> Look:
    """The look for standard output that is a terminal, or is not."""
    encoding = text.UTF8 if terminal else text.RAW
    return Look(encoding | text.BARE | text.JAVA, metadata)


def batch_lines(table: BatchTable, head: Template, codecs: tuple[bytes, ...] = CODECS) -> Template:
    """A line for each batch: `head`, then what every magic has.

    Args:
        table: the batches, of one family.
        head: what stands in front of the position.
        codecs: what each codec is called.
    """
    return (
        *head,
        int_piece(" position: ", table.position),
        enum_piece(b" ", table.timestamp_type, TIMES, -1),
        int_piece(": ", table.max_timestamp),
        int_piece(" size: ", table.size),
        int_piece(" magic: ", table.magic),
        enum_piece(b" compresscodec: ", table.codec, codecs),
        int_piece(" crc: ", table.crc),
        enum_piece(b" isvalid: ", table.crc_ok, FALSE_TRUE),
        (text.TEXT, b"\n"),
    )


def batch_head(table: BatchTable) -> Template:
    """What stands in front of a batch's position; of messages of magic 0 and 1 just an offset."""
    if len(table) and table.magic[0] < 2:
        return (int_piece("offset: ", table.last_offset),)
    has = (table.attributes & DELETE_HORIZON) != 0
    held = set(table.base_timestamp[has].tolist())
    absent = next(number for number in count(_INT64_MIN) if number not in held)
    horizon = np.where(has, table.base_timestamp, absent)
    return (
        *(int_piece(lead, getattr(table, name)) for lead, name in BATCH_INTS),
        enum_piece(b" isTransactional: ", table.is_transactional, FALSE_TRUE),
        enum_piece(b" isControl: ", table.is_control, FALSE_TRUE),
        enum_piece(b"", has, _HORIZON),
        (text.INT, b"", None, horizon, absent),
        enum_piece(b"", has, (b"", b"]")),
    )


def lines_before(before: Texts) -> Piece:
    """Whole lines in front of each record's, those of the batches that begin there."""
    return (text.BYTES, b"", None, text.RAW | text.BARE, *before)


def record_head(columns: RecordColumns, sizes: Sizes, middle: Template) -> Template:
    """A record's line up to its contents.

    Args:
        columns: with `offset`, `timestamp` and `timestamp_type`.
        sizes: of keys and of values.
        middle: what follows the sizes: `of_batch` or `of_message`.
    """
    return (
        int_piece("| offset: ", columns.offset),
        enum_piece(b" ", columns.timestamp_type, TIMES, -1),
        int_piece(": ", columns.timestamp),
        int_piece(" keySize: ", sizes[0]),
        int_piece(" valueSize: ", sizes[1]),
        *middle,
    )


def record_tail(
    look: Look, key: Texts | None, payload: Texts | None, null_payload: bytes | None = None
) -> Template:
    """Key and payload, where they are to be printed, and the end of the line."""
    pieces: list[Piece] = []
    if key is not None:
        lead = b" key: " if look.metadata else b"| key: "
        pieces.append((text.BYTES, lead, None, look.style, *key))
    if payload is not None:
        pieces.append((text.BYTES, b" payload: ", null_payload, look.style, *payload))
    return (*pieces, (text.TEXT, b"\n"))


def of_batch(columns: RecordColumns, look: Look, control: Texts | None) -> Template:
    """What the line of a record of magic 2 has behind the sizes."""
    return (int_piece(" sequence: ", columns.sequence), *names_and_marks(columns, look, control))


def names_and_marks(columns: RecordColumns, look: Look, control: Texts | None) -> Template:
    """Names of headers, then what a control record says."""
    headers = columns.headers
    names, values = headers.keys, headers.values
    sources = (names.offsets, names.data, values.offsets, values.data, values.validity)
    named = (text.HEADERS, b" headerKeys: ", b"", look.style, headers.offsets, *sources)
    if control is None:
        return (named,)
    return (named, (text.BYTES, b"", None, look.style, *control))


def of_message(crc: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> Template:
    """What the line of a message of magic 0 or 1 has there, a stray brace at its end."""
    return (
        enum_piece(b" isValid: ", valid, FALSE_TRUE),
        int_piece(" crc: ", crc),
        (text.TEXT, b"}"),
    )


def int_piece(lead: str, column: npt.NDArray[Any]) -> Piece:
    """A number behind `lead`."""
    return (text.INT, lead.encode(), b"", column, None)


def enum_piece(
    lead: bytes, column: npt.NDArray[Any], names: tuple[bytes, ...], first: int = 0
) -> Piece:
    """One of several names behind `lead`: that of `column - first`."""
    return (text.ENUM, lead, b"", column, names, first)


def _records(piece: RecordPiece, look: Look) -> Template:
    """The line of a record of 4.2 up to its contents."""
    if piece.checks is None:
        middle = of_batch(piece.columns, look, piece.control)
    else:
        middle = of_message(piece.checks.crc, piece.checks.valid)
    return record_head(piece.columns, piece.sizes, middle)


#: The lines of Kafka 4.2.
CURRENT = Lines(batch_head, lambda table: batch_lines(table, batch_head(table)), _records)


# ---- keys and values -----------------------------------------------------------------------------


def stored_contents(
    columns: RecordColumns, control: Mask | None, unread: Mapping[int, str]
) -> Contents:
    """Keys and values as UTF-8 text."""
    return decoded_contents(columns, control, unread)


def decoded_contents(
    columns: RecordColumns,
    control: Mask | None,
    unread: Mapping[int, str],
    *,
    key: Decoder | None = None,
    value: Decoder | None = None,
) -> Contents:
    """Keys and values, each by a decoder; without one they are UTF-8 text."""
    keep = None if control is None else ~control
    keys, key_failed = _decoded(columns.key, key, keep)
    values, value_failed = _decoded(columns.value, value, keep)
    refused = ((row, InvalidRecordError(why)) for row, why in unread.items())
    return Contents(keys, values, first_failure(key_failed, value_failed, next(refused, None)))


def first_failure(*failures: Failed) -> Failed:
    """The failure of the first record."""
    return min((one for one in failures if one is not None), key=itemgetter(0), default=None)


def _decoded(
    column: BinaryColumn, decoder: Decoder | None, keep: Mask | None
) -> tuple[Texts, Failed]:
    if decoder is None:
        return Texts.those(column, keep), None
    texts: list[bytes | None] = [None] * len(column)
    for row, value in enumerate(column):
        if value is None or (keep is not None and not keep[row]):
            continue
        try:
            texts[row] = decoder(value)
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
