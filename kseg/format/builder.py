"""BatchBuilder: a batch that grows record by record.

Owns the states of a builder, the sizes of records and the errors with which it refuses them. It
keeps records in lists; `kseg.format.encode` writes them when the batch is built.

A builder takes records until it is closed, by `close_for_appends` or `build`; then only the header
can change, and after `build` only through `reopen`. Once aborted it can do nothing.

Example:
    >>> builder = BatchBuilder(base_offset=42)
    >>> builder.append(b"key", b"value", timestamp=1_700_000_000_000)
    42
    >>> builder.append(b"key", None, timestamp=1_700_000_000_001, headers=[("why", b"gone")])
    43
    >>> batch = builder.build()
    >>> len(batch), batch.record_count, batch.max_timestamp
    (95, 2, 1700000000001)

Source: Kafka MemoryRecordsBuilder, AbstractRecords.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from kseg.constants import (
    BATCH_BYTES,
    BATCH_HEADER_BYTES,
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    LOG_OVERHEAD,
    Codec,
    Compression,
    ControlType,
    TimestampType,
)
from kseg.errors import BuilderStateError, InvalidRecordError
from kseg.format.control import EndMarker, KRaftValue, LeaderChange, control_key
from kseg.format.encode import encode_batch
from kseg.format.header import EncodedBatch, wrap_int32, wrap_int64
from kseg.format.options import BatchOptions
from kseg.format.times import Time, time_ms

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Headers = Iterable[tuple[str | Buffer, str | Buffer | None]]
    Pairs = list[tuple[bytes | None, bytes | None]]


#: Most batches of a producer have the options of the one before, checked by then.
_options_of = lru_cache(maxsize=256)(BatchOptions)


class BatchBuilder:
    """Builds one batch of magic 2, one wrapper of magic 0 or 1, or plain messages.

    One thread at a time may use it.
    """

    def __init__(
        self,
        *,
        magic: int = 2,
        compression: Codec = Compression.NONE,
        level: int | None = None,
        timestamp_type: TimestampType | None = None,
        log_append_time: int = -1,
        base_offset: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = -1,
        delete_horizon_ms: int = -1,
        batch_bytes_max: int = BATCH_BYTES,
        expected_ratio: float = 1.0,
    ) -> None:
        """Begin a batch.

        Args:
            base_offset: offsets count from it; the first record has it unless it brings its own.
            batch_bytes_max: size from which the batch counts as full. The builder still takes
                records.
            expected_ratio: compressed by uncompressed size to expect; see `RatioEstimator`.

        The other arguments are those of `BatchOptions`.

        Raises:
            ValueError: arguments exclude each other, or a number does not fit its field.
        """
        self._options = _options_of(
            magic,
            compression,
            level,
            timestamp_type,
            log_append_time,
            producer_id,
            producer_epoch,
            base_sequence,
            transactional,
            control,
            leader_epoch,
            delete_horizon_ms,
        )
        if not INT64_MIN <= base_offset <= INT64_MAX:
            raise ValueError(f"base_offset {base_offset} does not fit 64 bits")
        if not expected_ratio >= 0:
            raise ValueError(f"expected_ratio is 0 or more, not {expected_ratio}")
        self._base_offset = base_offset
        self._limit = min(max(batch_bytes_max, 0), INT32_MAX)
        self._expected_ratio = expected_ratio
        self._head_bytes = BATCH_HEADER_BYTES if magic == 2 else 0
        if magic < 2 and self._options.compression:
            self._head_bytes = _message_bytes(magic, None, None)
        self._is_open, self._is_aborted = True, False
        self._built: EncodedBatch | None = None
        self._reset()

    def _reset(self) -> None:
        """Remove all records."""
        self._columns: dict[str, list[Any]] = {
            name: [] for name in ("offset", "timestamp", "key", "value", "headers")
        }
        self._uncompressed_bytes = 0
        self._last_override: int | None = None
        self._next_offset = self._base_offset
        self._max_timestamp = self._max_timestamp_offset = -1

    # Records

    def append(
        self,
        key: str | Buffer | None = None,
        value: str | Buffer | None = None,
        *,
        timestamp: Time = -1,
        headers: Headers = (),
        offset: int | None = None,
        timestamp_ms: Time | None = None,
    ) -> int:
        """Add a record.

        A record that is refused leaves the builder as it was: the next one can be appended.

        Args:
            key: bytes, text (as UTF-8), or None for null.
            value: bytes, text (as UTF-8), or None for null.
            timestamp: the time of the record, as `kseg.times.time_ms` accepts it; -1 for no time.
                Ignored for magic 0.
            headers: pairs of a name (text, bytes) and a value (text, bytes, None); magic 2 only.
            offset: the offset of the record; None for one more than the last record's.
            timestamp_ms: the old name of `timestamp`.

        Returns:
            The record's offset.

        Raises:
            InvalidRecordError: the record cannot be written; the text names the limit.
            BuilderStateError: the builder takes no more records.

        Source: Kafka MemoryRecordsBuilder.appendWithOffset.
        """
        time = time_ms(timestamp if timestamp_ms is None else timestamp_ms)
        return self._append(key, value, time, headers, offset, control=False)

    def _append(
        self, key: Any, value: Any, timestamp: int, headers: Any, offset: int | None, control: bool
    ) -> int:
        """Add a record, control or not; return its offset.

        Raises:
            InvalidRecordError: the format cannot store it, or the batch would become too large.
        """
        pairs, refused = _pairs_of(headers) if headers != () else ([], "")
        record_offset = self._next_offset if offset is None else index(offset)
        key, value = _view_of(key), _view_of(value)
        refused = self._refusal(control, timestamp, record_offset, pairs, refused)
        if not refused:
            size = self._record_bytes(
                timestamp, record_offset - self._base_offset, key, value, pairs
            )
            if size - LOG_OVERHEAD > INT32_MAX:
                refused = f"a record has at most {INT32_MAX} bytes"
            elif size > INT32_MAX - self._head_bytes - self._uncompressed_bytes:
                refused = f"a batch has at most {INT32_MAX} bytes"
        if refused:
            raise InvalidRecordError(refused, record_index=self.record_count)
        copies = [(_copy(name), _copy(content)) for name, content in pairs]
        self._keep((record_offset, timestamp, _copy(key), _copy(value), copies), size)
        return record_offset

    def _refusal(
        self, control: bool, timestamp: int, offset: int, pairs: Pairs, of_headers: str
    ) -> str:
        """Why a record is refused, whatever its size; empty if it is not."""
        if not (_fits_int64(timestamp) and _fits_int64(offset)):
            return "offsets and timestamps have 64 bits"
        if not self._is_open:
            raise BuilderStateError(self._state_text("take a record"))
        if control != self._options.control:
            if control:
                return "only a control batch holds control records"
            return "a control batch holds only control records"
        has_offset = self._last_override is not None or self.record_count > 0
        if has_offset and offset < self._next_offset:
            return f"offset {offset} is not above the last one, {self.last_offset}"
        if timestamp < -1:
            return f"timestamp {timestamp} is neither -1 nor 0 or later"
        if of_headers:
            return of_headers
        if pairs and self._options.magic < 2:
            return f"magic {self._options.magic} has no headers"
        if not 0 <= offset - self._base_offset <= INT32_MAX:
            return (
                f"offset {offset} lies below the base offset {self._base_offset} or more than "
                f"{INT32_MAX} above it"
            )
        if self.record_count == INT32_MAX:
            return f"a batch has at most {INT32_MAX} records"
        return ""

    def _record_bytes(
        self, timestamp: int, offset_delta: int, key: Any, value: Any, pairs: Any
    ) -> int:
        """The size of a record as it would be written, without a codec."""
        magic = self._options.magic
        delta = wrap_int64(timestamp - self._base_timestamp(timestamp))
        return _record_bytes(magic, key, value, pairs, delta, offset_delta)

    def _base_timestamp(self, first: int) -> int:
        """The base of relative timestamps; `first` before the first record."""
        if self._options.delete_horizon_ms >= 0:
            return self._options.delete_horizon_ms
        return self._columns["timestamp"][0] if self.record_count else first

    def _keep(self, row: tuple[Any, ...], size: int) -> None:
        """Add a checked record: its offset, timestamp, key, value and headers, and its size."""
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self._uncompressed_bytes += size
        self._last_override = None
        offset, timestamp = row[:2]
        self._next_offset = offset + 1
        if self._options.magic < 2 and self._options.is_log_append:
            timestamp = self._options.log_append_time
        if self._options.magic and timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = timestamp, offset

    # Room

    def has_room_for(
        self,
        key: str | Buffer | None = None,
        value: str | Buffer | None = None,
        headers: Headers = (),
        timestamp: Time = -1,
        *,
        timestamp_ms: Time | None = None,
    ) -> bool:
        """Whether a record fits below the limit, as far as that is known before compressing.

        The first record always fits. Headers are not counted for magic 0 and 1.

        Args:
            key, value, headers, timestamp, timestamp_ms: as for `append`.

        Source: Kafka MemoryRecordsBuilder.hasRoomFor.
        """
        time = time_ms(timestamp if timestamp_ms is None else timestamp_ms)
        if self.is_full:
            return False
        if self.record_count == 0:
            return True
        if not _fits_int64(time):
            return False
        pairs = _checked_pairs(headers) if self._options.magic == 2 else []
        # The delta is cut to 32 bits, as in Java; a record so far off is refused anyway.
        delta = wrap_int32(self.last_offset - self._base_offset + 1)
        size = self._record_bytes(time, delta, _view_of(key), _view_of(value), pairs)
        return self._limit >= self._estimate() + size

    def _estimate(self) -> int:
        """The size of the batch as Kafka estimates it, by the expected ratio of the codec."""
        if not self._options.compression:
            return self._head_bytes + self._uncompressed_bytes
        # In single precision and in this order, as Kafka has it; Java's cast stops at 2^31 - 1.
        with np.errstate(over="ignore"):
            ratio = np.float32(self._expected_ratio)
            compressed = np.float32(self._uncompressed_bytes) * ratio * np.float32(1.05)
        return self._head_bytes + (int(compressed) if compressed < INT32_MAX else INT32_MAX)

    @property
    def is_full(self) -> bool:
        """Whether no more records should come: the limit is reached, or the builder is closed."""
        return not self.is_open or (self.record_count > 0 and self._limit <= self._estimate())

    @property
    def is_open(self) -> bool:
        """Whether more records may be added."""
        return self._is_open

    @property
    def record_count(self) -> int:
        """How many records there are."""
        return len(self._columns["offset"])

    @property
    def uncompressed_bytes(self) -> int:
        """Size of the records so far, without the header of the batch or wrapper.

        For magic 0 and 1 with the 12 bytes of offset and size of each message.
        """
        return self._uncompressed_bytes

    @property
    def base_offset(self) -> int:
        """The offset that the offsets of the batch are relative to."""
        return self._base_offset

    @property
    def last_offset(self) -> int:
        """The last offset of the batch; one below its base offset if it has no record."""
        if self._last_override is not None:
            return self._last_override
        offsets = self._columns["offset"]
        return offsets[-1] if offsets else wrap_int64(self._base_offset - 1)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a record, in ms; -1 without records."""
        return self._max_timestamp

    @property
    def max_timestamp_offset(self) -> int:
        """Offset of the first record with the largest timestamp; -1 without records."""
        return self._max_timestamp_offset

    # Markers

    def append_end_marker(
        self, kind: ControlType, coordinator_epoch: int, *, timestamp: Time
    ) -> int:
        """Add the end of a transaction; return its offset.

        Args:
            kind: ABORT or COMMIT.
            coordinator_epoch: epoch of the coordinator that ends it, 32 bits.
            timestamp: the time of the marker, in ms or as `Time` has it.

        Raises:
            ValueError: the type is neither ABORT nor COMMIT, or a number does not fit its field.
            InvalidRecordError: no producer id, no transactional flag, or no control batch.
            BuilderStateError: the builder takes no records any more.

        Source: Kafka MemoryRecordsBuilder.appendEndTxnMarker.
        """
        marker = EndMarker(kind, coordinator_epoch)
        if not self._options.has_producer:
            raise InvalidRecordError("the end of a transaction needs a producer id")
        if not self._options.transactional:
            raise InvalidRecordError("the end of a transaction needs a transactional batch")
        return self._append_marker(control_key(kind), marker.to_bytes(), timestamp)

    def append_leader_change(self, change: LeaderChange, *, timestamp: Time) -> int:
        """Add a change of leader; return its offset.

        Args:
            change: the leader and the voters.
            timestamp: the time of the marker, in ms or as `Time` has it.

        Raises:
            InvalidRecordError: no control batch, or the batch has no leader epoch.
            BuilderStateError: the builder takes no records any more.
        """
        return self.append_control(change, timestamp=timestamp)

    def append_control(self, value: KRaftValue, *, timestamp: Time) -> int:
        """Add a marker of KRaft; return its offset.

        Args:
            value: its contents; its type makes the key.
            timestamp: the time of the marker, in ms or as `Time` has it.

        Raises:
            InvalidRecordError: no control batch, or a change of leader without leader epoch.
            BuilderStateError: the builder takes no records any more.

        Source: Kafka MemoryRecordsBuilder.appendLeaderChangeMessage and its siblings.
        """
        if isinstance(value, LeaderChange) and self._options.leader_epoch == -1:
            raise InvalidRecordError("a change of leader needs a leader epoch")
        return self._append_marker(control_key(value.TYPE), value.to_bytes(), timestamp)

    def _append_marker(self, key: bytes, value: bytes, timestamp: Time) -> int:
        return self._append(key, value, time_ms(timestamp), headers=(), offset=None, control=True)

    # Its properties

    @property
    def options(self) -> BatchOptions:
        """The fields that all records share at this moment."""
        return self._options

    @property
    def is_built(self) -> bool:
        """Whether `build` was called, and `reopen` was not since."""
        return self._built is not None

    @property
    def estimated_bytes(self) -> int:
        """Bytes of the batch with its header; an estimate for a compressed one until it is built.

        Source: Kafka MemoryRecordsBuilder.estimatedSizeInBytes.
        """
        return len(self._built) if self._built is not None else self._estimate()

    @property
    def compression_ratio(self) -> float:
        """Compressed by uncompressed size of the records; 1.0 until the batch is built."""
        return 1.0 if self._built is None else self._built.compression_ratio

    # The end

    def close_for_appends(self) -> None:
        """Take no more records; the header may still change."""
        self._is_open = False

    def set_producer_state(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Set the producer of the batch. `build` checks that the numbers fit each other.

        Args:
            producer_id: 0 or more; -1 for no producer.
            producer_epoch: 0 or more; -1 for no producer.
            base_sequence: the sequence of the first record, 0 or more; -1 if it has none.
            transactional: whether the batch belongs to a transaction.

        Raises:
            BuilderStateError: the batch is built, or the builder was aborted.
            ValueError: a number does not fit its field.

        Source: Kafka MemoryRecordsBuilder.setProducerState.
        """
        self._ensure_unbuilt("change its producer")
        self._set_producer(producer_id, producer_epoch, base_sequence, transactional)

    def override_last_offset(self, last_offset: int) -> None:
        """Let the batch end at a later offset than its last record's, as compacted batches do.

        Args:
            last_offset: the offset that the header says, that of the last record or later.

        Raises:
            BuilderStateError: the batch is built.
            ValueError: the offset is below the last record's or the batch's own, or too far
                from the latter.

        Source: Kafka MemoryRecordsBuilder.overrideLastOffset.
        """
        self._ensure_unbuilt("change its last offset")
        offsets = self._columns["offset"]
        least, most = offsets[-1] if offsets else self._base_offset, self.base_offset + INT32_MAX
        if not least <= last_offset <= most:
            raise ValueError(f"last offset {last_offset} is not within {least} and {most}")
        self._last_override, self._next_offset = last_offset, last_offset + 1

    def reopen(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Change the producer of a batch, also after `build`, which then makes it again.

        Args:
            producer_id, producer_epoch, base_sequence, transactional: as for `set_producer_state`.

        Raises:
            BuilderStateError: the builder was aborted.
            ValueError: a number does not fit its field.

        Source: Kafka MemoryRecordsBuilder.reopenAndRewriteProducerState.
        """
        if self._is_aborted:
            raise BuilderStateError(self._state_text("be reopened"))
        self._set_producer(producer_id, producer_epoch, base_sequence, transactional)
        self._built = None

    def build(self) -> EncodedBatch:
        """The batch; the same one again until `reopen`. Without records its data is empty.

        Raises:
            BuilderStateError: the builder was aborted.
            InvalidRecordError: the producer's fields do not fit each other; the builder is as it
                was.

        Source: Kafka MemoryRecordsBuilder.build and close.
        """
        if self._built is not None:
            return self._built
        if self._is_aborted:
            raise BuilderStateError(self._state_text("be built"))
        self._options.check_producer()
        self.close_for_appends()
        self._built = encode_batch(
            self._columns,
            self._options,
            base_offset=self._base_offset,
            last_offset=self._last_override if self.record_count else None,
        )
        return self._built

    def abort(self) -> None:
        """Drop the records; every later call but `abort` is refused."""
        self._reset()
        self._is_open, self._is_aborted, self._built = False, True, None

    # Parts of the above

    def _state_text(self, what: str) -> str:
        state = "aborted" if self._is_aborted else "built" if self.is_built else "closed"
        return f"the builder is {state}, it cannot {what} any more"

    def _ensure_unbuilt(self, what: str) -> None:
        if self._built is not None or self._is_aborted:
            raise BuilderStateError(self._state_text(what))

    def _set_producer(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> None:
        """Set the producer's fields of the header."""
        self._options = replace(
            self._options,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )


def _record_bytes(
    magic: int,
    key: bytes | None,
    value: bytes | None,
    pairs: Pairs,
    timestamp_delta: int,
    offset_delta: int,
) -> int:
    """Bytes of one record; for magic 0 and 1 of a message with its offset and size.

    Source: Kafka DefaultRecord.sizeInBytes, LegacyRecord.recordSize.
    """
    if magic < 2:
        return _message_bytes(magic, key, value)
    deltas = _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta)
    size = 1 + deltas + _fields_bytes(key, value, pairs)
    return _varint_bytes(size) + size


def _message_bytes(magic: int, key: bytes | None, value: bytes | None) -> int:
    return LOG_OVERHEAD + (22 if magic else 14) + len(key or b"") + len(value or b"")


def _fields_bytes(key: bytes | None, value: bytes | None, pairs: Pairs) -> int:
    size = _size_with_length(key) + _size_with_length(value) + _varint_bytes(len(pairs))
    return size + sum(
        _size_with_length(name) + _size_with_length(content) for name, content in pairs
    )


def _size_with_length(field: bytes | None) -> int:
    """Bytes of a field with its length."""
    return 1 if field is None else _varint_bytes(len(field)) + len(field)


def _varint_bytes(value: int) -> int:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    return max((zigzag.bit_length() + 6) // 7, 1)


def _fits_int64(number: int) -> bool:
    return INT64_MIN <= number <= INT64_MAX


def _view_of(field: Any) -> Any:
    """A field as bytes, or as a view of another buffer, which is copied only if it is stored."""
    if field is None or isinstance(field, bytes):
        return field
    return field.encode() if isinstance(field, str) else memoryview(field).cast("B")


def _copy(view: Any) -> bytes | None:
    return None if view is None else bytes(view)


def _pairs_of(headers: Any) -> tuple[Pairs, str]:
    """Names and values as bytes; and the reason why a record cannot have these headers, or ""."""
    pairs: Pairs = []
    if headers is None:
        return pairs, "a header has no name"
    for name, value in headers:
        if name is None:
            return pairs, "a header has no name"
        pairs.append((_view_of(name), _view_of(value)))
    return pairs, ""


def _checked_pairs(headers: Headers) -> Pairs:
    pairs, refused = _pairs_of(headers)
    if refused:
        raise ValueError(refused)
    return pairs
