"""The lines of older releases of Kafka's tool.

    0.8 .. 0.10.0   a line for each message, without a time
    0.10            a line for each message
    0.11 .. 1.1     a line for each batch, or with deep iteration for each record
    2.8             a line for each batch; behind it, with deep iteration, each record's, which says
                    once more what the batch says

Source: Kafka 0.8.2, 0.10.2, 1.1 and 2.8 `kafka.tools.DumpLogSegments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kseg.cli.kafka_dump.lines import (
    BATCH_INTS,
    FALSE_TRUE,
    TIMES,
    Look,
    RecordPiece,
    batch_lines,
    enum_piece,
    int_piece,
    names_and_marks,
    of_batch,
)
from kseg.constants import Compression
from kseg.errors import InvalidRecordError
from kseg.format import text

if TYPE_CHECKING:
    import numpy.typing as npt

    from kseg.cli.rows import Template
    from kseg.format.header import BatchTable

_CODECS = tuple(codec.name.encode() for codec in Compression)


@dataclass(frozen=True, slots=True)
class OldLines:
    """The lines of one older release.

    Attributes:
        nested: whether a batch's line stands in front of those of its records.
        null_payload: what is printed for a record without a value; None for nothing.
        keyed: whether a record without a value has its key printed.
        lenient: whether an impossible size is an end like any other.
        gaps: what precedes the path of a log whose offsets have gaps.
    """

    nested: bool = False
    null_payload: bytes | None = None
    keyed: bool = False
    lenient: bool = False
    gaps: str = "Non-consecutive offsets in :"

    def head(self, table: BatchTable) -> Template:
        """What stands in front of a batch's position."""
        return _batch_head(table, count=self.nested)

    def batches(self, table: BatchTable) -> Template:
        """A line for each batch of one family."""
        raise NotImplementedError

    def records(self, piece: RecordPiece, look: Look) -> Template:
        """A record's line up to its contents."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class MessageLines(OldLines):
    """Up to 0.10.

    Attributes:
        times: whether a line has a time, and a codec's name its later form.
    """

    times: bool = False

    def batches(self, table: BatchTable) -> Template:
        """Not to be had: messages are printed by deep iteration only."""
        raise InvalidRecordError("lines of this release are for messages, not batches")

    def records(self, piece: RecordPiece, look: Look) -> Template:
        """A message's line; that of the message that holds it is never printed."""
        if piece.checks is None:
            raise InvalidRecordError("this release of Kafka did not know magic 2")
        columns = piece.columns
        times = (
            enum_piece(b" ", columns.timestamp_type, TIMES, -1),
            int_piece(": ", columns.timestamp),
        )
        keys, values = piece.sizes
        codec = b"NONE" if self.times else b"NoCompressionCodec"
        return (
            int_piece("offset: ", columns.offset),
            int_piece(" position: ", columns.position),
            *(times if self.times else ()),
            enum_piece(b" isvalid: ", piece.checks.valid, FALSE_TRUE),
            int_piece(" payloadsize: ", values),
            int_piece(" magic: ", columns.magic),
            (text.TEXT, b" compresscodec: " + codec),
            int_piece(" crc: ", piece.checks.crc),
            (text.INT, b" keysize: ", None, keys, -1),
        )


@dataclass(frozen=True, slots=True)
class EraOfBatches(OldLines):
    """0.11 to 1.1."""

    def batches(self, table: BatchTable) -> Template:
        """A batch's line."""
        return (
            *self.head(table),
            int_piece(" position: ", table.position),
            enum_piece(b" ", table.timestamp_type, TIMES, -1),
            int_piece(": ", table.max_timestamp),
            enum_piece(b" isvalid: ", table.crc_ok, FALSE_TRUE),
            int_piece(" size: ", table.size),
            int_piece(" magic: ", table.magic),
            enum_piece(b" compresscodec: ", table.codec, _CODECS),
            int_piece(" crc: ", table.crc),
            (text.TEXT, b"\n"),
        )

    def records(self, piece: RecordPiece, look: Look) -> Template:
        """A record's line."""
        columns, checks = piece.columns, piece.checks
        valid = np.ones(len(columns), np.bool_) if checks is None else checks.valid
        return (
            int_piece("offset: ", columns.offset),
            int_piece(" position: ", columns.position),
            enum_piece(b" ", columns.timestamp_type, TIMES, -1),
            int_piece(": ", columns.timestamp),
            enum_piece(b" isvalid: ", valid, FALSE_TRUE),
            int_piece(" keysize: ", piece.sizes[0]),
            int_piece(" valuesize: ", piece.sizes[1]),
            int_piece(" magic: ", columns.magic),
            enum_piece(b" compresscodec: ", piece.of_batch("codec"), _CODECS),
            *(_producer(piece, look) if checks is None else (int_piece(" crc: ", checks.crc),)),
        )


def _producer(piece: RecordPiece, look: Look) -> Template:
    return (
        int_piece(" producerId: ", piece.of_batch("producer_id")),
        int_piece(" producerEpoch: ", piece.of_batch("producer_epoch")),
        int_piece(" sequence: ", piece.columns.sequence),
        enum_piece(b" isTransactional: ", piece.of_batch("is_transactional"), FALSE_TRUE),
        *names_and_marks(piece.columns, look, piece.control),
    )


@dataclass(frozen=True, slots=True)
class TwoLevels(OldLines):
    """2.8."""

    def batches(self, table: BatchTable) -> Template:
        """A batch's line."""
        return batch_lines(table, self.head(table), _CODECS)

    def records(self, piece: RecordPiece, look: Look) -> Template:
        """A record's line."""
        columns, checks = piece.columns, piece.checks
        if checks is None:
            seen: Template = ((text.TEXT, b" isValid: true crc: null"),)
            last = of_batch(columns, look, piece.control)
        else:
            crc, valid = int_piece(" crc: ", checks.crc), checks.valid
            seen = (enum_piece(b" isValid: ", valid, FALSE_TRUE), crc)
            last = (crc, enum_piece(b" isvalid: ", valid, FALSE_TRUE))
        bases = piece.of_batch("base_offset")
        if checks is not None:  # of a compressed message only what it holds says where it begins
            bases = _first_offsets(piece)
        return (
            int_piece("| offset: ", columns.offset),
            *seen,
            int_piece(" keySize: ", piece.sizes[0]),
            int_piece(" valueSize: ", piece.sizes[1]),
            enum_piece(b" ", columns.timestamp_type, TIMES, -1),
            int_piece(": ", columns.timestamp),
            int_piece(" baseOffset: ", bases),
            int_piece(" lastOffset: ", piece.of_batch("last_offset")),
            int_piece(" baseSequence: ", piece.of_batch("base_sequence")),
            int_piece(" lastSequence: ", piece.of_batch("last_sequence")),
            int_piece(" producerEpoch: ", piece.of_batch("producer_epoch")),
            int_piece(" partitionLeaderEpoch: ", piece.of_batch("leader_epoch")),
            int_piece(" batchSize: ", piece.of_batch("size")),
            int_piece(" magic: ", columns.magic),
            enum_piece(b" compressType: ", piece.of_batch("codec"), _CODECS),
            int_piece(" position: ", columns.position),
            *last,
        )


def _first_offsets(piece: RecordPiece) -> npt.NDArray[np.int64]:
    offsets: npt.NDArray[np.int64] = piece.columns.base_offset
    return offsets


def _batch_head(table: BatchTable, *, count: bool) -> Template:
    """What stands in front of a batch's position; `count` and `isControl` only later."""
    if not len(table) or table.magic[0] < 2:
        return (int_piece("offset: ", table.last_offset),)
    return (
        *(
            int_piece(lead, getattr(table, name))
            for lead, name in BATCH_INTS
            if count or name != "record_count"
        ),
        enum_piece(b" isTransactional: ", table.is_transactional, FALSE_TRUE),
        *((enum_piece(b" isControl: ", table.is_control, FALSE_TRUE),) if count else ()),
    )


_MISSPELT = "Non-secutive offsets in :"
#: By release, those that no fixture shows left out.
VERSIONS: dict[str, OldLines | None] = {
    "0.8": MessageLines(null_payload=b"null", keyed=True, lenient=True, gaps=_MISSPELT),
    "0.9": MessageLines(lenient=True, gaps=_MISSPELT),
    "0.10.0": MessageLines(lenient=True, gaps=_MISSPELT),
    "0.10": MessageLines(times=True, gaps=_MISSPELT),
    "0.11": EraOfBatches(),
    "1.0": EraOfBatches(),
    "1.1": EraOfBatches(),
    "2.8": TwoLevels(nested=True, keyed=True),
    "4.2": None,
}
