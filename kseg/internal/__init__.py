"""The records of Kafka's internal topics, from bytes to values.

    schemas         `schemas.json` compiled into readers: one for each message and version
    records         the frame around a message: `decode` for one record; `rows` for many, one by one
    releases        the metadata versions and settings of each release; which values may be shown
    coordinators    the last value of each key, and committed offsets, column by column
    registry        the schemas of a schema registry, from its topic `_schemas`
    arrow_tables    `tables`, `record_batches`: the same in Arrow, a table for each record type

All record types come from `schemas.json`. A record of another type stays raw bytes, with the
reason. Nothing here reads the disk except for that file, once, when the first record is decoded.

Example:
    >>> from kseg.internal import decode
    >>> record = decode("__cluster_metadata", None, bytes.fromhex("01180000"))
    >>> record.name, record.version, record.value
    ('END_TRANSACTION_RECORD', 0, {})
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
