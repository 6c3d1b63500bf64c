"""One face for both readers, the plain reference and kseg, so that each vector is asked of both.

Values come in the words of the vectors and of `kseg dump`: codecs and timestamp types by name,
`None` for what is absent, `bytes` where JSON has hex or base64.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from kseg import errors
from kseg.constants import Compression, ControlType, StopReason, TimestampType
from kseg.format import columns, header
from kseg.format.request import FIELDS, Request
from kseg.format.values import RecordColumns
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
    def read07(self, data: bytes, offset: int) -> Read: ...


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

    def read07(self, data: bytes, offset: int) -> Read:
        return collect(
            {
                "offset": message.offset,
                "next_offset": message.end_offset,
                "position": message.offset - offset,
                "magic": message.magic,
                "codec": reference.CODECS[message.codec],
                "timestamp": -1,
                "timestamp_type": "NoTimestampType",
                "key": None,
                "value": message.payload,
            }
            for message in messages07(data, offset)
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
        fields["control_type"] = control_name(record.key if batch.is_control else None)
        return fields


def control_name(key: bytes | None) -> str:
    """A key that says nothing is shown as one of an unknown type; so are records that are data."""
    try:
        return reference.control_type(key)
    except reference.RefusedError:
        return "UNKNOWN"


KINDS = {
    errors.CorruptRecordError: "corrupt",
    errors.InvalidRecordError: "invalid",
    errors.DecompressionError: "codec",
    errors.UnsupportedFormatError: "unsupported",
}

#: Where Kafka's memory reader raises; it tells nothing about zeros and torn tails.
CORRUPT_STOPS = {StopReason.BAD_LENGTH, StopReason.BAD_MAGIC}


class Kseg:
    """kseg's walk and columns, over the same bytes."""

    name = "kseg"

    def walk(self, data: bytes, policy: str) -> Found:
        table = header.scan(
            data, on_bad_crc="note", policy="file" if policy == "file" else "strict"
        )
        corrupt = table.stop in CORRUPT_STOPS
        if table.stop is StopReason.ZERO_TAIL:
            corrupt = len(data) - table.end_position >= 12
        return Found(
            [self._batch(batch) for batch in table],
            table.end_position,
            "corrupt" if corrupt else None,
        )

    def check(self, data: bytes) -> str | None:
        return "corrupt" if header.scan(data).stop is not StopReason.END else None

    def read(self, data: bytes, position: int, size: int) -> Read:
        table = header.scan(
            data[: position + size], start=position, on_bad_crc="note", policy="file"
        )
        return self._decode(data, table)

    def read07(self, data: bytes, offset: int) -> Read:
        table = header.scan(data, kafka07=True, log_start=offset)
        read = self._decode(data, table)
        # 0.7's iterator raises where the walk stops for anything but the end of the bytes.
        left = len(data) - table.end_position
        plain_end = left < 4 or table.stop is StopReason.TORN_TAIL
        return Read(read.records, read.error or (None if plain_end else "corrupt"))

    def _decode(self, data: bytes, table: header.BatchTable) -> Read:
        request = Request(columns=FIELDS, control=True, verify_crc=False)
        taken: list[Fields] = []
        try:
            for piece in columns.decode(memoryview(data), table, request):
                taken.extend(as_records(piece))
        except errors.KsegError as error:
            return Read(taken, KINDS[type(error)])
        return Read(taken, None)

    @staticmethod
    def _batch(batch: header.BatchHeader) -> Fields:
        fields: Fields = {name: getattr(batch, name) for name in header.FIELDS}
        fields.update(
            crc_ok=bool(batch.crc_ok),
            codec=Compression(batch.codec).label if batch.codec <= 4 else None,
            timestamp_type=batch.timestamp_type.label,
            count=batch.record_count,
            transactional=batch.is_transactional,
            control=batch.is_control,
            delete_horizon_ms=batch.delete_horizon_ms,
            last_sequence=batch.last_sequence,
        )
        return fields


def as_records(piece: RecordColumns) -> list[Fields]:
    """The rows of a piece in the words of `kseg dump`."""
    lists = {
        name: column.tolist() if hasattr(column, "tolist") else list(column)
        for name, column in piece.arrays.items()
    }
    rows = [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]
    for row in rows:
        name_values(row)
    return rows


def name_values(row: Fields) -> None:
    """Numbers become the names and nulls that `kseg dump` prints."""
    for name, words in (("codec", Compression), ("timestamp_type", TimestampType)):
        if name in row:
            row[name] = words(row[name]).label
    if "headers" in row:
        row["headers"] = list(row["headers"])
    if row.get("delete_horizon_ms") == -1:
        row["delete_horizon_ms"] = None
    if "control_type" in row:
        known = {kind.value for kind in ControlType}
        number = row["control_type"]
        row["control_type"] = ControlType(number).name if number in known else "UNKNOWN"


READERS: list[Reader] = [Reference(), Kseg()]
