"""BatchBuilder: a batch that grows record by record, and how large batches will be.

Owns the states of a builder and the errors with which it refuses; `kseg._kernels.builder` writes
the records. If all records are at hand, `kseg.format.encode` writes them at once.

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
from typing import TYPE_CHECKING, NoReturn

from kseg._kernels import builder as _builder
from kseg._kernels import encode as _encode
from kseg.constants import (
    BATCH_BYTES,
    BATCH_HEADER_BYTES,
    Codec,
    Compression,
    ControlType,
    TimestampType,
    codec_of,
)
from kseg.errors import BuilderStateError, InvalidRecordError
from kseg.format.compress import compress
from kseg.format.control import EndMarker, KRaftValue, LeaderChange, control_key
from kseg.format.encode import wrap_messages
from kseg.format.encoded import EncodedBatch
from kseg.format.header import wrap_int64
from kseg.format.options import BatchOptions
from kseg.format.times import Time, time_ms

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kseg.format.values import Record

    Headers = Iterable[tuple[str | Buffer, str | Buffer | None]]

#: Bytes of a magic 2 record besides its key, value and headers, at most.
RECORD_OVERHEAD_MAX = 21

_INT32_MAX = 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

#: Why `kseg._kernels.builder` refused a record, by status.
_REFUSALS = (
    "",
    "",
    "only a control batch takes control records",
    "a control batch takes control records only",
    "offset {0} is not above the last one, {last}",
    "offset {0} lies below the base offset {base} or more than 2147483647 above it",
    "timestamp {0} is neither -1 nor 0 or later",
    "magic {magic} has no headers",
    "a header has no name",
    "a record has at most 2147483647 bytes",
    "a batch has at most 2147483647 bytes",
    "a batch has at most 2147483647 records",
    "offsets and timestamps have 64 bits",
)
_CLOSED = 1

#: Most batches of a producer have the options of the one before, checked by then.
_options_of = lru_cache(maxsize=256)(BatchOptions)


class BatchBuilder(_builder.BatchBuffer):
    """Builds one batch of magic 2, one wrapper of magic 0 or 1, or plain messages.

    It extends the kernel's buffer rather than holding one, so that `append` is a single call. One
    thread at a time may use it.
    """

    __slots__ = ("_body", "_built", "_is_aborted", "_options", "_ratio")

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
        options = _options_of(
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
        if not _INT64_MIN <= base_offset <= _INT64_MAX:
            raise ValueError(f"base_offset {base_offset} does not fit 64 bits")
        if not expected_ratio >= 0:
            raise ValueError(f"expected_ratio is 0 or more, not {expected_ratio}")
        super().__init__(
            magic=magic,
            attributes=options.attributes,
            control=control,
            log_append_time=log_append_time,
            base_offset=base_offset,
            delete_horizon_ms=delete_horizon_ms,
            limit=min(max(batch_bytes_max, 0), _INT32_MAX),
            ratio=expected_ratio,
        )
        self._options = options
        self._body: bytes | None = None
        self._built: EncodedBatch | None = None
        self._is_aborted = False
        self._ratio = 1.0

    # Markers

    def append_end_marker(
        self, kind: ControlType, coordinator_epoch: int, *, timestamp: Time
    ) -> int:
        """Add the end of a transaction; answers its offset.

        Args:
            kind: ABORT or COMMIT.
            coordinator_epoch: epoch of the coordinator that ends it, 32 bits.
            timestamp: of the marker, ms or as `Time` has it.

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
        return self._append_control(control_key(kind), marker.to_bytes(), time_ms(timestamp))

    def append_leader_change(self, change: LeaderChange, *, timestamp: Time) -> int:
        """Add a change of leader; answers its offset.

        Args:
            change: who leads and who voted.
            timestamp: of the marker, ms or as `Time` has it.

        Raises:
            InvalidRecordError: no control batch, or the batch has no leader epoch.
            BuilderStateError: the builder takes no records any more.
        """
        return self.append_control(change, timestamp=timestamp)

    def append_control(self, value: KRaftValue, *, timestamp: Time) -> int:
        """Add a marker of KRaft; answers its offset.

        Args:
            value: what it says; its type makes the key.
            timestamp: of the marker, ms or as `Time` has it.

        Raises:
            InvalidRecordError: no control batch, or a change of leader without leader epoch.
            BuilderStateError: the builder takes no records any more.

        Source: Kafka MemoryRecordsBuilder.appendLeaderChangeMessage and its siblings.
        """
        if isinstance(value, LeaderChange) and self._options.leader_epoch == -1:
            raise InvalidRecordError("a change of leader needs a leader epoch")
        return self._append_control(control_key(value.TYPE), value.to_bytes(), time_ms(timestamp))

    def _time_ms(self, given: Time) -> int:
        return time_ms(given)

    def _refuse(self, status: int, number: object) -> NoReturn:
        """Raise for a record that the kernel did not take."""
        if status == _CLOSED:
            raise BuilderStateError(self._state_text("take a record"))
        base, last = self.base_offset, self.last_offset
        text = _REFUSALS[status].format(number, base=base, last=last, magic=self._options.magic)
        raise InvalidRecordError(text, record_index=self.record_count)

    # What it is like

    @property
    def options(self) -> BatchOptions:
        """What all records share, as of now."""
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
        return len(self._built) if self._built is not None else self._estimated

    @property
    def compression_ratio(self) -> float:
        """Compressed by uncompressed size of the records; 1.0 until the batch is built."""
        return self._ratio

    # The end

    def close_for_appends(self) -> None:
        """Take no more records and compress them; the header may still change."""
        if not self.is_open:
            return
        options = self._options
        if options.compression and self.record_count:
            body = compress(
                options.compression, self._records(), magic=options.magic, level=options.level
            )
            # A copy: what a codec answers may hold the memory of its worst case for ever.
            self._body = bytes(memoryview(body))
            self._drop(False)
        self._close()

    def set_producer_state(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Say who produced the batch. `build` checks that the numbers fit each other.

        Args:
            producer_id: 0 or more; -1 for no producer.
            producer_epoch: 0 or more; -1 for no producer.
            base_sequence: of the first record, 0 or more; -1 for none.
            transactional: whether the batch belongs to a transaction.

        Raises:
            BuilderStateError: the batch is built, or the builder was aborted.
            ValueError: a number does not fit its field.

        Source: Kafka MemoryRecordsBuilder.setProducerState.
        """
        self._ensure_unbuilt("change its producer")
        self._set_producer(producer_id, producer_epoch, base_sequence, transactional)

    def override_last_offset(self, last_offset: int) -> None:
        """Let the batch end at a later offset than its last record's, as compacted ones do.

        Args:
            last_offset: the offset that the header says, that of the last record or later.

        Raises:
            BuilderStateError: the batch is built.
            ValueError: the offset lies below the last record's or the batch's own, or too far
                from the latter.

        Source: Kafka MemoryRecordsBuilder.overrideLastOffset.
        """
        self._ensure_unbuilt("change its last offset")
        least, most = self._last_record_offset, self.base_offset + _INT32_MAX
        if not least <= last_offset <= most:
            raise ValueError(f"last offset {last_offset} is not within {least} and {most}")
        self._override(last_offset)

    def reopen(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transactional: bool = False,
    ) -> None:
        """Change the producer of a batch that may be built already; `build` then makes it anew.

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
        self._built = self._make()
        return self._built

    def abort(self) -> None:
        """Drop the records; every later call but `abort` is refused."""
        self._drop(True)
        self._is_aborted = True
        self._body = self._built = None

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
        self._options = replace(
            self._options,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )

    def _make(self) -> EncodedBatch:
        """The bytes, with their offsets, counts and timestamps."""
        magic, count, last = self._options.magic, self.record_count, self.last_offset
        if count == 0:
            return EncodedBatch(b"", magic, self.base_offset, self.base_offset - 1, 0, -1, -1, 0)
        body = self._records() if self._body is None else self._body
        if self._options.compression:
            self._ratio = len(body) / self.uncompressed_bytes
        latest, latest_offset = self._latest()
        return EncodedBatch(
            data=self._seal(body),
            magic=magic,
            base_offset=self.base_offset,
            last_offset=last,
            record_count=count,
            max_timestamp=latest,
            offset_of_max_timestamp=latest_offset,
            uncompressed_bytes=self.uncompressed_bytes,
            compression_ratio=self._ratio,
        )

    def _latest(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the batch or message that has it.

        Source: Kafka MemoryRecordsBuilder.info.
        """
        plain = self._options.magic < 2 and not self._options.compression
        if self._options.is_log_append:
            return self._options.log_append_time, self.base_offset if plain else self.last_offset
        if self.max_timestamp == -1:
            return -1, -1
        return self.max_timestamp, self.max_timestamp_offset if plain else self.last_offset

    def _seal(self, body: bytes | memoryview) -> bytes:
        """Header or wrapper around the records."""
        options = self._options
        latest = options.log_append_time if options.is_log_append else self.max_timestamp
        if options.magic == 2:
            return _encode.seal_batch(
                body,
                self.base_offset,
                self.last_offset,
                options.leader_epoch,
                options.attributes,
                self._base_timestamp,
                latest,
                options.producer_id,
                options.producer_epoch,
                options.base_sequence,
                self.record_count,
            )
        body = bytes(body)
        if not options.compression:
            return body
        return wrap_messages(body, options.magic, options.attributes, self.last_offset, latest)


# How large a batch will be


def estimate_bytes_upper_bound(
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
    *,
    magic: int = 2,
    compression: Codec = Compression.NONE,
) -> int:
    """An upper bound for the bytes of a batch with this record alone, for any offset and time.

    Source: Kafka AbstractRecords.estimateSizeInBytesUpperBound.
    """
    fields = _builder.fields_bytes(magic, key, value, headers if magic == 2 else ())
    if magic == 2:
        return BATCH_HEADER_BYTES + RECORD_OVERHEAD_MAX + fields
    # Kafka leaves out the offset and size of the inner message.
    wrapper = (22 if magic else 14) if codec_of(compression) else 0
    return wrapper + fields


def estimate_set_bytes(
    records: Iterable[Record],
    *,
    magic: int = 2,
    compression: Codec = Compression.NONE,
    base_offset: int = 0,
) -> int:
    """Bytes of records as one set: exact without a codec, else half, between 1 KiB and 64 KiB.

    Args:
        records: with absolute offsets, which magic 2 needs.
        base_offset: of the batch.

    Source: Kafka AbstractRecords.estimateSizeInBytes.
    """
    size, base_timestamp = 0, None
    for given in records:
        if base_timestamp is None:
            base_timestamp = given.timestamp
            size = BATCH_HEADER_BYTES if magic == 2 else 0
        size += _builder.record_bytes(
            magic,
            given.key,
            given.value,
            given.headers if magic == 2 else (),
            timestamp_delta=wrap_int64(given.timestamp - base_timestamp),
            offset_delta=given.offset - base_offset,
        )
    return min(max(size // 2, 1024), 65_536) if codec_of(compression) else size
