"""Messages of Kafka 0.7 to 0.10 as objects: magic 0 and 1, and the format before them."""

from __future__ import annotations

from kseg.format.down_convert import down_convert
from kseg.format.encode import encode_messages_07
from kseg.format.message import Message, MessageAndMetadata, MessageAndOffset, MessageSet
from kseg.format.message07 import Message07, MessageSet07

__all__ = [
    "Message",
    "Message07",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageSet",
    "MessageSet07",
    "down_convert",
    "encode_messages_07",
]
