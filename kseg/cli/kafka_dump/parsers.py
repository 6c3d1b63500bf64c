"""What is printed of a record's key and value: text, numbers, or what a decoder makes of them.

Source: Kafka 4.2 `DumpLogSegments.DecoderMessageParser`, `StringDecoder`, `LongDecoder`,
`IntegerDecoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kseg.cli.kafka_dump.lines import Texts
from kseg.errors import InvalidRecordError, KsegError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kseg.format.values import BinaryColumn, RecordColumns

    Mask = npt.NDArray[np.bool_]
    Decoder = Callable[[bytes], bytes] | None
    Unread = Mapping[int, str]


class Contents(NamedTuple):
    """What is printed of the records of a piece.

    Attributes:
        key: their keys as text; None to print none at all.
        payload: likewise their values.
        failed: the record at which Kafka's tool ends with an exception, and why; else None.
    """

    key: Texts | None = None
    payload: Texts | None = None
    failed: tuple[int, KsegError] | None = None


class Parser(Protocol):
    """Makes the texts of a piece of records.

    Attributes:
        prints_stored_bytes: whether keys and values are printed as they are stored.
    """

    prints_stored_bytes: bool

    def parse(self, columns: RecordColumns, control: Mask | None, unread: Unread) -> Contents:
        """What is printed as key and as payload; of control records nothing is.

        Args:
            columns: with `offset`, `key` and `value`.
            control: bool[n], which are control records; None for none.
            unread: records whose values cannot be read, with Java's words for why.
        """


class DecoderParser:
    """Key and value each by a decoder of their own; one without is UTF-8 text."""

    def __init__(self, key: Decoder = None, value: Decoder = None) -> None:
        """Keep both."""
        self._key = key
        self._value = value
        self.prints_stored_bytes = key is None and value is None

    def parse(self, columns: RecordColumns, control: Mask | None, unread: Unread) -> Contents:
        """The texts of keys and values; null for an absent one."""
        keep = None if control is None else ~control
        key, key_failed = _decoded(columns.key, self._key, keep)
        payload, payload_failed = _decoded(columns.value, self._value, keep)
        refused = ((row, InvalidRecordError(why)) for row, why in unread.items())
        every = (key_failed, payload_failed, next(refused, None))
        failures = [failed for failed in every if failed is not None]
        return Contents(key, payload, min(failures, key=itemgetter(0), default=None))


def _decoded(
    column: BinaryColumn, decoder: Decoder, keep: Mask | None
) -> tuple[Texts, tuple[int, KsegError] | None]:
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


def number_decoder(size: int) -> Callable[[bytes], bytes]:
    """A decoder of big-endian numbers of so many bytes; more bytes are ignored, as in Kafka."""

    def decode(value: bytes) -> bytes:
        if len(value) < size:
            raise InvalidRecordError(f"{len(value)} bytes are no number of {size} bytes")
        return b"%d" % int.from_bytes(value[:size], "big", signed=True)

    return decode
