"""Appends of hostile bytes: refused, or what the log then holds is sound."""

from __future__ import annotations

from random import Random

from kseg.constants import Compression, TimestampType
from kseg.errors import KsegError
from kseg.format.header import BatchTable, scan
from kseg.log.validate.append import (
    AppendOrigin,
    AppendRules,
    ValidatedBatch,
    validate,
    validate_append,
    validate_replica,
)

_NOW = 1_700_000_000_000
_LIMITS = (0, 1000, 2**62, 2**63 - 1)
#: A batch of a seed inflates to less; a bomb shall not take the time of the others.
_INFLATED_MAX = 1 << 20


def _rules(source: Random) -> AppendRules:
    magic = source.choice((0, 1, 2, 2))
    codecs = (None, None, *Compression) if magic == 2 else (None, None, *list(Compression)[:4])
    return AppendRules(
        magic=magic,
        compression=source.choice(codecs),
        compacted=source.random() < 0.2,
        timestamp_type=source.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)),
        timestamp_before_max_ms=source.choice(_LIMITS),
        timestamp_after_max_ms=source.choice(_LIMITS),
        origin=source.choice(list(AppendOrigin)),
        batch_bytes_max=source.choice((None, None, 10, 1000)),
        append_bytes_max=source.choice((None, None, 10, 1000)),
        inflated_bytes_max=source.choice((10, _INFLATED_MAX, _INFLATED_MAX)),
    )


def append_to_log(view: memoryview, table: BatchTable, source: Random) -> None:
    """Append one of the batches, or all bytes, in one of the ways there are."""
    if len(table) and source.random() < 0.8:
        start, size = table.rows[source.randrange(len(table)), :2].tolist()
        view = view[start : start + size]
    rules = _rules(source)
    offset = source.choice((0, 5, 2**31, 2**63 - 2**33))
    where = {"next_offset": offset, "now_ms": source.choice((_NOW, 0, 2**63 - 1))}
    before = bytes(view)
    try:
        if source.random() < 0.1:
            taken = validate_replica(view, rules, next_offset=offset)
        else:
            how = validate if source.random() < 0.5 else validate_append
            taken = how(view, rules, **where)
        check_taken(taken)
    except KsegError as error:
        _ = str(error)
    assert bytes(view) == before


def check_taken(taken: ValidatedBatch) -> None:
    """What may be written is whole batches, and what is said of it is so."""
    data = taken.to_bytes()
    assert len(taken) == len(data)
    assert scan(data, on_bad_crc="ignore").end_position == len(data)
    if not taken.in_place:
        assert scan(data).end_position == len(data)
        assert len(taken.tail) == 0
    if taken.head:  # a replica's batches keep their word, true or not
        assert taken.last_offset - taken.first_offset + 1 == taken.record_count
    assert taken.next_offset == taken.last_offset + 1
