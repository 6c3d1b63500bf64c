"""One face for both readers, the plain reference and kseg, so that each vector is asked of both.

Values come in the words of the vectors and of `kseg dump`: codecs and timestamp types by name,
`None` for what is absent, `bytes` where JSON has hex or base64.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tests import reference
from tests.reference07 import messages07

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What a walk finds: whole batches, where they end, and the kind of error Kafka would raise."""

    batches: list[Fields]
    end_position: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Read:
    """Records as far as they are given, then the kind of error, if any."""

    records: list[Fields]
    error: str | None


class Reader(Protocol):
    """What the tests ask for."""

    name: str

    def walk(self, data: bytes, policy: str) -> Found: ...
    def read(self, data: bytes, position: int, size: int) -> Read: ...
    def check(self, data: bytes) -> str | None: ...
    def read07(self, data: bytes, offset: int, *, deep: bool) -> Read: ...


def collect(items: Iterable[Fields]) -> Read:
    """Exhaust an iterator of the reference that may end in a refusal."""
    taken: list[Fields] = []
    try:
        taken.extend(items)
    except reference.RefusedError as error:
        return Read(taken, error.kind)
    return Read(taken, None)


class Reference:
    """`tests/reference.py`."""

    name = "reference"

    def walk(self, data: bytes, policy: str) -> Found:
        walk = reference.walk(data, policy)
        return Found([self._batch(batch) for batch in walk.batches], walk.end_position, walk.error)

    def check(self, data: bytes) -> str | None:
        """The kind of error of the first batch's own check, before any record is looked at."""
        try:
            reference.walk(data).batches[0].ensure_valid()
        except reference.RefusedError as error:
            return error.kind
        return None

    def read(self, data: bytes, position: int, size: int) -> Read:
        batch = reference.parse_batch(data, position, size)
        return collect(self._record(batch, record) for record in reference.records(batch))

    def read07(self, data: bytes, offset: int, *, deep: bool) -> Read:
        return collect(
            {
                "next_offset": message.next_offset,
                "magic": message.magic,
                "codec": message.codec,
                "value": message.payload,
            }
            for message in messages07(data, offset, deep=deep)
        )

    @staticmethod
    def _batch(batch: reference.Batch) -> Fields:
        names = reference.CODECS
        return {
            "position": batch.position,
            "size": batch.size,
            "magic": batch.magic,
            "crc": batch.crc,
            "crc_ok": batch.crc_ok,
            "attributes": batch.attributes,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "codec": names[batch.codec] if batch.codec < len(names) else None,
            "timestamp_type": reference.TIMESTAMP_TYPES[batch.timestamp_type],
            "base_timestamp": batch.base_timestamp,
            "max_timestamp": batch.max_timestamp,
            "leader_epoch": batch.leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
            "count": batch.record_count,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "delete_horizon_ms": batch.delete_horizon_ms,
        }

    @staticmethod
    def _record(batch: reference.Batch, record: reference.Record) -> Fields:
        fields = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": reference.TIMESTAMP_TYPES[batch.timestamp_type],
            "key": record.key,
            "value": record.value,
            "headers": list(record.headers),
            "sequence": record.sequence,
            "size": record.size,
            "magic": batch.magic,
            "codec": reference.CODECS[batch.codec],
            "inner_crc_ok": record.crc_ok,
        }
        if batch.is_control:
            fields["control_type"] = reference.control_type(record.key)
        return fields


READERS: list[Reader] = [Reference()]
