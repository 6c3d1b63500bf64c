"""The lines of batches and records, as templates for the text kernel, and their keys and values.

`Lines` has the text of the lines of a release:

    0.8 .. 0.10.0   a line for each message, without a time
    0.10            a line for each message
    0.11 .. 1.1     a line for each batch, or with deep iteration for each record
    2.8             a line for each batch; after it, with deep iteration, a line for each record,
                    which repeats the fields of the batch
    4.2             likewise, but a line of a record has its own fields only
    4.4             likewise, but a log that does not begin at offset 0 has a gap before it

Source: `DumpLogSegments` of these releases; `StringDecoder`, `LongDecoder`, `IntegerDecoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kseg.cli.rows import Piece, Template, bytes_piece
from kseg.constants import NEWEST_RELEASE, Bools, Compression, Int64s, TimestampType
from kseg.errors import InvalidRecordError, KsegError
from kseg.format import text
from kseg.format.header import DELETE_HORIZON, BatchTable
from kseg.format.values import BinaryColumn, binary_column
from kseg.internal.releases import DUMP_RELEASE

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns

#: Finds the column of a field of a line.
Columns = Callable[[str], Any]
_NO_HORIZON: Final = b"OptionalLong.empty"
_FALSE_TRUE: Final = ((b"false", b"true"), 0)
#: Field of a line that is not a number -> the names of its values, and the number of the first.
_NAMES: Final = {
    "timestamp_type": (tuple(kind.label.encode() for kind in TimestampType), -1),
    "codec": ((*(codec.label.encode() for codec in Compression), b"unknown"), 0),
    "CODEC": ((*(codec.name.encode() for codec in Compression), b"UNKNOWN"), 0),
    "horizon": ((_NO_HORIZON,), 0),
    **dict.fromkeys(("crc_ok", "is_control", "is_transactional", "valid"), _FALSE_TRUE),
}


class Lines(NamedTuple):
    """The lines of one release, as texts with the names of columns in braces.

    Attributes:
        head: the line of a batch of magic 2 up to its position.
        batch: the rest of the line of a batch.
        record: the line of a record of magic 2 up to the names of its headers; None where the
            release did not know magic 2.
        message: the line of a message of magic 0 or 1 up to its contents.
        nested: whether the line of a batch precedes the lines of its records.
        null_payload: the text for a record without a value; None if nothing is printed.
        keyed: whether the key of a record without a value is printed.
        gaps: the text before the path of a log whose offsets have gaps.
        title: the text before the first offset of a log.
        deep_only: whether the release prints only the records of batches.
        starts_at_zero: whether a first offset above 0 is a gap, and gaps are sorted.
        lone_payload: the text before a payload that is the only content of its line.
        last_of_producer: the end of the line of a producer in a snapshot that has no last batch.
        named_status: whether the status of a transaction is a word.
    """

    head: str
    batch: str
    record: str | None
    message: str
    nested: bool = True
    null_payload: bytes | None = None
    keyed: bool = True
    gaps: str = "Non-consecutive offsets in "
    title: str = "Log starting"
    deep_only: bool = False
    starts_at_zero: bool = False
    lone_payload: bytes = b" payload: "
    last_of_producer: str = " "
    named_status: bool = False

    def batch_line(self, table: BatchTable) -> Template:
        """The line of each batch of a table; a message has only its offset, which comes first.

        Args:
            table: batches of magic 2, or messages of magic 0 and 1.
        """
        head = self.head if table.magic[0] >= 2 else "offset: {last_offset}"
        return line_pieces(head + self.batch, partial(_batch_column, table))


_HEAD: Final = (
    "baseOffset: {base_offset} lastOffset: {last_offset} baseSequence: {base_sequence} "
    "lastSequence: {last_sequence} producerId: {producer_id} producerEpoch: {producer_epoch} "
    "partitionLeaderEpoch: {leader_epoch} isTransactional: {is_transactional}"
)
_COUNTED_HEAD: Final = _HEAD.replace(" base", " count: {record_count} base", 1)
_RECORD: Final = (
    "| offset: {offset} {timestamp_type}: {timestamp} keySize: {key_size} valueSize: {value_size}"
)
#: The lines that are printed by default; the line of a message has a stray brace.
CURRENT: Final = Lines(
    f"{_COUNTED_HEAD} isControl: {{is_control}} deleteHorizonMs: {{horizon}}",
    " position: {position} {timestamp_type}: {max_timestamp} size: {size} magic: {magic} "
    "compresscodec: {codec} crc: {crc} isvalid: {crc_ok}\n",
    f"{_RECORD} sequence: {{sequence}}",
    f"{_RECORD} isValid: {{valid}} crc: {{crc}}}}}}",
)
_OLD_MESSAGE: Final = (
    "offset: {offset} position: {position} isvalid: {valid} payloadsize: {value_size} "
    "magic: {magic} compresscodec: NoCompressionCodec crc: {crc} keysize: {key_size?}"
)
_OLD_RECORD: Final = (
    "offset: {offset} position: {position} {timestamp_type}: {timestamp} isvalid: {valid} "
    "keysize: {key_size} valuesize: {value_size} magic: {magic} compresscodec: {batch.CODEC}"
)
_NESTED: Final = (
    "| offset: {offset} isValid: {valid} crc: CRC keySize: {key_size} valueSize: {value_size} "
    "{timestamp_type}: {timestamp} baseOffset: BASE lastOffset: {batch.last_offset} "
    "baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
    "producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
    "batchSize: {batch.size} magic: {magic} compressType: {batch.CODEC} position: {position}"
)
_MESSAGES: Final = Lines(
    _HEAD,
    "",
    None,
    _OLD_MESSAGE,
    nested=False,
    keyed=False,
    gaps="Non-secutive offsets in :",
    title="Starting",
    deep_only=True,
)
_BATCHES: Final = Lines(
    _HEAD,
    " position: {position} {timestamp_type}: {max_timestamp} isvalid: {crc_ok} size: {size} "
    "magic: {magic} compresscodec: {CODEC} crc: {crc}\n",
    f"{_OLD_RECORD} producerId: {{batch.producer_id}} producerEpoch: {{batch.producer_epoch}}"
    " sequence: {sequence} isTransactional: {batch.is_transactional}",
    f"{_OLD_RECORD} crc: {{crc}}",
    nested=False,
    keyed=False,
    gaps="Non-consecutive offsets in :",
    title="Starting",
)
#: Release -> its lines.
VERSIONS: Final = {
    "0.8": _MESSAGES._replace(null_payload=b"null", keyed=True),
    "0.9": _MESSAGES,
    "0.10.0": _MESSAGES,
    "0.10": _MESSAGES._replace(
        message=_OLD_MESSAGE.replace(" isvalid", " {timestamp_type}: {timestamp} isvalid").replace(
            "NoCompressionCodec", "NONE"
        )
    ),
    "0.11": _BATCHES,
    "1.0": _BATCHES,
    "1.1": _BATCHES,
    "2.8": _BATCHES._replace(
        head=f"{_COUNTED_HEAD} isControl: {{is_control}}",
        batch=CURRENT.batch.replace("{codec}", "{CODEC}"),
        record=_NESTED.replace("CRC", "null", 1).replace("BASE", "{batch.base_offset}")
        + " sequence: {sequence}",
        # Of a compressed message only the messages inside say where it begins.
        message=_NESTED.replace("CRC", "{crc}", 1).replace("BASE", "{base_offset}")
        + " crc: {crc} isvalid: {valid}",
        nested=True,
        keyed=True,
    ),
    DUMP_RELEASE: CURRENT,
    NEWEST_RELEASE: CURRENT._replace(
        message=CURRENT.message.removesuffix("}}"),
        starts_at_zero=True,
        lone_payload=b"| payload: ",
        last_of_producer="",
        named_status=True,
    ),
}


def line_pieces(line: str, column: Columns) -> Template:
    """The template of a line with names of columns in braces.

    With a `?` after a name, the number -1 is left out with the text before it.

    Args:
        line: the line.
        column: returns the column of a name.
    """
    return tuple(_piece(lead.encode(), name, column) for lead, name, *_ in Formatter().parse(line))


def _piece(lead: bytes, name: str | None, column: Columns) -> Piece:
    """The piece of a template for a field and the text before it; only text if `name` is None."""
    if name is None:
        return (text.TEXT, lead)
    values = column(name.removesuffix("?").replace("CODEC", "codec"))
    if isinstance(values, BinaryColumn):
        return bytes_piece(lead, values, text.RAW | text.BARE)
    names, first = _NAMES.get(name.rpartition(".")[2], (None, 0))
    if names is not None:
        return (text.ENUM, lead, b"", values, names, first)
    return (text.INT, lead, None, values, -1 if name[-1] == "?" else None)


def _batch_column(table: BatchTable, name: str) -> Any:
    """The column of a field in the line of a batch; `horizon` is a time in Java's form."""
    if name != "horizon":
        return getattr(table, name)
    has_horizon = (table.attributes & DELETE_HORIZON) != 0
    if not has_horizon.any():
        return has_horizon
    times = zip(has_horizon.tolist(), table.base_timestamp.tolist(), strict=True)
    return binary_column(
        [b"OptionalLong[%d]" % time if has_time else _NO_HORIZON for has_time, time in times]
    )


def record_columns(
    columns: RecordColumns, table: BatchTable, rows: Int64s, crc: Int64s | None
) -> Columns:
    """A function that returns the columns of the line of a record.

    Args:
        columns: the records.
        table: the batches, whose fields have `batch.` before their names.
        rows: int64[n], the batch of each record.
        crc: the stored checksums of messages of magic 0 and 1; None for magic 2.
    """

    def column(name: str) -> Any:
        if name.startswith("batch."):
            return getattr(table, name.removeprefix("batch."))[rows]
        if name in ("key_size", "value_size"):
            return columns[name.removesuffix("_size")].sizes()
        return crc if name == "crc" else columns["timestamp_ms" if name == "timestamp" else name]

    return column


# ---- keys and values -----------------------------------------------------------------------------

#: Receives the row of a record that cannot be decoded, and the reason.
Note = Callable[[int, KsegError], None]
Contents = tuple[BinaryColumn | None, BinaryColumn | None]
#: Makes the texts of keys and values from the columns of a piece and bool[n], its control records,
#: which have no texts (None if there are none).
Parser = Callable[["RecordColumns", "Bools | None", Note], Contents]
Decoder = Callable[[bytes], bytes]


class DumpOptions(NamedTuple):
    """The options of a run.

    Attributes:
        style: the style of keys, values and names, see `style_of`.
        metadata: whether the line of a record has its offset, time, sizes and so on.
        deep: print records.
        parser: makes the texts of key and payload; None to print neither.
        max_bytes: the most bytes of a log to read; None for all.
        lines: the lines of the release.
        verify_only: print faults of indexes, and no entries.
        sanity_only: print only whether an index passes the check.
    """

    style: int
    metadata: bool = True
    deep: bool = False
    parser: Parser | None = None
    max_bytes: int | None = None
    lines: Lines = CURRENT
    verify_only: bool = False
    sanity_only: bool = False


def style_of(*, terminal: bool) -> int:
    """The kernel's style for keys, values and names: as they are, or escaped for a terminal."""
    return (text.UTF8 if terminal else text.RAW) | text.BARE | text.JAVA


def stored_contents(
    columns: RecordColumns,
    control: Bools | None,
    note: Note,
    *,
    key: Decoder | None = None,
    value: Decoder | None = None,
) -> Contents:
    """Keys and values, each by a decoder; without a decoder they are UTF-8 text."""
    keep = None if control is None else ~control
    return _decode_column(columns.key, key, keep, note), _decode_column(
        columns.value, value, keep, note
    )


def where(column: BinaryColumn, keep: Bools | None) -> BinaryColumn:
    """The same column, also null where `keep` is false."""
    if keep is None:
        return column
    valid = column.is_valid() & keep
    validity = np.packbits(valid, bitorder="little")
    return BinaryColumn(column.offsets, column.data, validity, int((~valid).sum()))


def _decode_column(
    column: BinaryColumn, decoder: Decoder | None, keep: Bools | None, note: Note
) -> BinaryColumn:
    """The texts of a column; null outside of `keep`, and where a value cannot be decoded."""
    column = where(column, keep)
    if decoder is None:
        return column
    values = column.to_pylist()
    rows = np.flatnonzero(column.is_valid()).tolist()
    return texts_of(len(column), rows, lambda row: decoder(values[row] or b""), note)


def texts_of(
    count: int, rows: Iterable[int], make: Callable[[int], bytes], note: Note
) -> BinaryColumn:
    """The texts of some of `count` rows, null for one that cannot be made."""
    texts: list[bytes | None] = [None] * count
    for row in rows:
        try:
            texts[row] = make(row)
        except KsegError as error:
            note(row, error)
    return binary_column(texts)


def number_decoder(size: int) -> Decoder:
    """A decoder of big-endian numbers of `size` bytes; further bytes are ignored, as in Kafka."""

    def decode(value: bytes) -> bytes:
        if len(value) < size:
            raise InvalidRecordError(f"{len(value)} bytes are no number of {size} bytes")
        return b"%d" % int.from_bytes(value[:size], "big", signed=True)

    return decode
