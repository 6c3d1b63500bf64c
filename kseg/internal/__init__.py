"""The records of Kafka's internal topics, from bytes to values.

    cursor     bytes read one after the other, never past their end
    schemas    `schemas.json` compiled into readers: one for each message and version
    records    the frame around a message, and `decode`, which this page hands on

No record type is known by hand: what `schemas.json` does not have is handed on as raw bytes, with
the reason. Nothing here touches a disk, but for that file, which is read once, when the first
record is decoded.

Example:
    >>> record = decode("__cluster_metadata", None, bytes.fromhex("01180000"))
    >>> record.name, record.version, record.value
    ('END_TRANSACTION_RECORD', 0, {})
"""

from __future__ import annotations

from kseg.internal.records import InternalRecord, InternalTopic, decode

__all__ = ["InternalRecord", "InternalTopic", "decode"]
