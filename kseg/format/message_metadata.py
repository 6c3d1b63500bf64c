"""A message with its topic, partition and offset, and the decoders for its key and value.

Decoders are any callables from bytes; the three here serve most topics.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kseg.errors import InvalidRecordError, LimitExceededError

if TYPE_CHECKING:
    from kseg.constants import TimestampType
    from kseg.format.message import Message

Decoder = Callable[[bytes], Any]


def decode_raw(data: bytes) -> bytes:
    """The bytes as they are."""
    return data


def decode_utf8(data: bytes) -> str:
    """Text; what is not UTF-8 becomes U+FFFD, as with Kafka's StringDecoder."""
    return data.decode("utf-8", errors="replace")


def decode_json(data: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        InvalidRecordError: it is none.
        LimitExceededError: it is nested deeper than the parser goes.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise LimitExceededError("JSON nested too deep") from error
    except ValueError as error:
        raise InvalidRecordError(f"not JSON: {error}") from error


#: Decoders by name.
DECODERS: dict[str, Decoder] = {"raw": decode_raw, "utf-8": decode_utf8, "json": decode_json}


@dataclass(frozen=True, slots=True)
class MessageAndMetadata:
    """A message with its topic, partition and offset, and the decoders for its key and value.

    Attributes:
        topic, partition, offset: where the message comes from.
        message: as it lies in the log.
        key_decoder, value_decoder: called with the bytes of a key or value; not called for null.

    Example:
        >>> from kseg.format.message import Message
        >>> message = Message.build(b'{"total": 9}', key=b"42")
        >>> MessageAndMetadata("orders", 0, message, 7, decode_utf8, decode_json).value()
        {'total': 9}

    Source: Kafka 0.10 kafka.message.MessageAndMetadata.
    """

    topic: str
    partition: int
    message: Message
    offset: int
    key_decoder: Decoder = decode_raw
    value_decoder: Decoder = decode_raw

    @property
    def timestamp(self) -> int:
        """In ms; -1 for none."""
        return self.message.timestamp

    @property
    def timestamp_type(self) -> TimestampType:
        """What the timestamp means."""
        return self.message.timestamp_type

    def key(self) -> Any:
        """The key, decoded; None for null, which no decoder sees."""
        data = self.message.key
        return None if data is None else self.key_decoder(data)

    def value(self) -> Any:
        """The value, decoded; None for null, which no decoder sees."""
        data = self.message.value
        return None if data is None else self.value_decoder(data)
