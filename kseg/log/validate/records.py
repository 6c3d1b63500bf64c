"""The checks of each record of an append, and the errors for refused ones.

The kernels of `kseg._kernels.validate` check the records. This module reads and counts their
answers, and raises errors with a text for each. It gives no offsets and builds no batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kseg._kernels import validate as _validate
from kseg.constants import TimestampType
from kseg.errors import InvalidRecordError, InvalidTimestampError, RecordFault
from kseg.format.bodies import at_batch, record_error
from kseg.format.header import BatchHeader, BatchTable
from kseg.log.validate.rules import AppendRules, ValidationMetrics

if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview

#: Why a single record is refused, in the order of the kernels' numbers.
REASONS = ("magic", "no_key", "timestamp", "timestamp_type")
#: Columns of the faults that a kernel notes.
NOTED_FIELDS = ("record", "reason", "offset", "timestamp")
_MAGIC, _NO_KEY, _TIMESTAMP, _TIMESTAMP_TYPE = range(len(REASONS))
_NO_FAULTS = np.empty((0, len(NOTED_FIELDS)), np.int64)
#: Status of the kernels for messages whose checksum is wrong, or of another magic.
_MESSAGE_CRC, _MESSAGE_MAGIC = 13, 17
#: The text of an error names at most so many refused records.
_SHOWN_MAX = 3


class Examined(NamedTuple):
    """What a pass over the records of an append found.

    Attributes:
        status: why the record after the last sound one is none; 0 where all are sound.
        records: how many are sound.
        max_timestamp: the largest timestamp; -1 for none.
        max_record: the first message of magic 1 that has it; -1 for none.
        record_bytes: what Kafka counts as the size of the records, uncompressed.
        sequential: whether offsets go 0, 1, 2.
        bad_magic, no_key, bad_timestamp, bad_timestamp_type: records refused for each reason.
    """

    status: int
    records: int
    max_timestamp: int
    max_record: int
    record_bytes: int
    sequential: bool
    bad_magic: int
    no_key: int
    bad_timestamp: int
    bad_timestamp_type: int

    @property
    def fault_count(self) -> int:
        """How many records are refused by themselves."""
        return self.bad_magic + self.no_key + self.bad_timestamp + self.bad_timestamp_type


def examine_batch(
    body: Buffer,
    header: BatchHeader,
    rules: AppendRules,
    *,
    now_ms: int,
    skip: bool,
    metrics: ValidationMetrics,
) -> Examined:
    """Hold the records of a magic 2 batch against the rules.

    Args:
        body: the records, inflated; not looked at where the header counts none.
        header: the batch's.
        rules: what is asked.
        now_ms: the time of the append.
        skip: do not hold the length of a record against its fields, as brokers do where they leave
            a batch compressed.
        metrics: counted on.

    Raises:
        InvalidRecordError, InvalidTimestampError: with all refused records, or for bytes that are
            no record.
    """

    def look(faults: Any) -> Examined:
        return Examined(
            *_validate.examine_records(
                body,
                count=header.record_count,
                base_offset=header.base_offset,
                base_timestamp=header.base_timestamp,
                max_timestamp=header.max_timestamp,
                log_append=header.timestamp_type == TimestampType.LOG_APPEND_TIME,
                skip=skip,
                faults=faults,
                **_asked(rules, now_ms),
            )
        )

    return _held(look, header, rules, now_ms, metrics)


def examine_wrapper(
    body: Buffer,
    header: BatchHeader,
    rules: AppendRules,
    *,
    now_ms: int,
    metrics: ValidationMetrics,
) -> Examined:
    """Hold the messages inside a wrapper of magic 0 or 1 against the rules.

    Raises:
        CorruptRecordError: the size or checksum of a message inside is wrong.
        InvalidRecordError, InvalidTimestampError: with all refused records, or for a set that is
            none.
    """

    def look(faults: Any) -> Examined:
        return Examined(
            *_validate.examine_messages(
                body,
                inner=True,
                magic=header.magic,
                offset=header.last_offset,
                timestamp=header.max_timestamp,
                log_append=header.timestamp_type == TimestampType.LOG_APPEND_TIME,
                faults=faults,
                **_asked(rules, now_ms),
            )
        )

    return _held(look, header, rules, now_ms, metrics)


def _held(
    look: Callable[[Any], Examined],
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
    metrics: ValidationMetrics,
) -> Examined:
    """The result of the check of one batch's records; raises what is wrong with them."""
    found = look(_NO_FAULTS)
    _count(found, metrics)
    if found.status:
        raise record_error(found.status, header, found.records)
    if found.fault_count:
        raise _refused(look, found, header, rules, now_ms)
    return found


def examine_entries(
    data: Buffer,
    table: BatchTable,
    rules: AppendRules,
    *,
    now_ms: int,
    metrics: ValidationMetrics,
) -> Examined:
    """Hold plain messages of magic 0 or 1, each of them a batch, against the rules.

    Raises:
        InvalidRecordError: a message of another magic than the first, or refused by itself.
        InvalidTimestampError: refused for its time.
    """
    magic = int(table.magic[0])

    def look(faults: Any) -> Examined:
        return Examined(
            *_validate.examine_messages(
                data,
                inner=False,
                magic=magic,
                offset=0,
                timestamp=0,
                log_append=False,
                faults=faults,
                **_asked(rules, now_ms),
            )
        )

    found = look(_NO_FAULTS)
    _count(found, metrics)
    if found.status == _MESSAGE_MAGIC:
        metrics.invalid_magic += 1
        header = table[found.records]
        reason = f"magic {header.magic} behind messages of magic {magic}"
        raise at_batch(InvalidRecordError(reason), header)
    if found.status:
        raise record_error(found.status, table[found.records], 0)
    if found.fault_count:
        raise _refused(look, found, table[found.records], rules, now_ms)
    return found


def _asked(rules: AppendRules, now_ms: int) -> dict[str, Any]:
    """The rules as the kernels take them."""
    return {
        "compacted": rules.compacted,
        "create_time": not rules.is_log_append,
        "now": now_ms,
        "before_max": rules.timestamp_before_max_ms,
        "after_max": rules.timestamp_after_max_ms,
    }


def _count(found: Examined, metrics: ValidationMetrics) -> None:
    metrics.invalid_magic += found.bad_magic
    metrics.no_key_compacted += found.no_key
    metrics.invalid_checksum += found.status == _MESSAGE_CRC


def _refused(
    look: Callable[[Any], Examined],
    found: Examined,
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
) -> InvalidRecordError | InvalidTimestampError:
    """The error for refused records: a second pass finds which, and whether for their time.

    Source: Kafka LogValidator.processRecordErrors.
    """
    noted = np.zeros((found.fault_count, len(NOTED_FIELDS)), np.int64)
    look(noted)
    plain = header.magic < 2 and not header.codec
    faults = tuple(
        RecordFault(0 if plain else record, _reason(reason, timestamp, header, rules, now_ms))
        for record, reason, _, timestamp in noted.tolist()
    )
    shown = "; ".join(
        f"record {fault.record_index}: {fault.reason}" for fault in faults[:_SHOWN_MAX]
    )
    text = f"{len(faults)} of the batch's records may not be appended: {shown}"
    if len(faults) > _SHOWN_MAX:
        text += f"; and {len(faults) - _SHOWN_MAX} more"
    timed = found.bad_timestamp or found.bad_timestamp_type
    error = InvalidTimestampError(text) if timed else InvalidRecordError(text)
    error.record_errors = faults
    return at_batch(error, header)


def _reason(
    reason: int, timestamp: int, header: BatchHeader, rules: AppendRules, now_ms: int
) -> str:
    """Why one record is refused, with the limit that it breaks."""
    if reason == _MAGIC:
        return f"its magic is not {header.magic}, that of the message around it"
    if reason == _NO_KEY:
        return "it has no key, which a compacted log needs"
    if reason == _TIMESTAMP_TYPE:
        return "it is marked with log append time, which only the log sets"
    if timestamp <= now_ms:
        limit = rules.timestamp_before_max_ms
        return f"its timestamp {timestamp} is more than {limit} ms older than {now_ms}"
    limit = rules.timestamp_after_max_ms
    return f"its timestamp {timestamp} is more than {limit} ms newer than {now_ms}"
