"""Validation and offsets on append: what Kafka's LogValidator makes of each vector, byte for byte.

The hostile batches of the reading side go through the whole of a leader's append as well.
"""

from __future__ import annotations

from typing import Any

import pytest

from kseg.constants import Compression, TimestampType
from kseg.errors import (
    CorruptRecordError,
    DecompressionError,
    InvalidRecordError,
    InvalidTimestampError,
    KsegError,
    UnsupportedFormatError,
)
from kseg.format.header import scan
from kseg.log.validate.append import (
    AppendOrigin,
    AppendRules,
    ValidatedBatch,
    ValidationMetrics,
    validate,
    validate_append,
)
from tests.conformance.outputs import same_output

TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
#: Kafka's class -> ours. What Kafka leaks as an argument error is an argument error here too.
ERRORS: dict[str, type[Exception]] = {
    "CorruptRecordException": CorruptRecordError,
    "InvalidRecordException": InvalidRecordError,
    "InvalidTimestampException": InvalidTimestampError,
    "UnsupportedForMessageFormatException": UnsupportedFormatError,
    "UnsupportedCompressionTypeException": UnsupportedFormatError,
    "KafkaException": DecompressionError,
    "IllegalArgumentException": ValueError,
}


def rules_of(params: dict[str, Any]) -> AppendRules:
    return AppendRules(
        magic=params["to_magic"],
        compression=Compression[params["target_codec"].upper()],
        compacted=params["compacted"],
        timestamp_type=TIMESTAMP_TYPES[params["timestamp_type"]],
        timestamp_before_max_ms=params["before_max_ms"],
        timestamp_after_max_ms=params["after_max_ms"],
        leader_epoch=params["leader_epoch"],
        origin=AppendOrigin[params["origin"]],
        zstd_allowed="inter_broker_protocol" not in params,
    )


def outcome(validated: ValidatedBatch) -> tuple[int, int, int, bool, int, int]:
    """What was answered, in the order of `EXPECTED`."""
    return (
        validated.max_timestamp,
        validated.offset_of_max_timestamp,
        validated.next_offset,
        validated.sizes_maybe_changed,
        validated.stats.records_converted,
        validated.stats.temporary_bytes,
    )


EXPECTED = (
    "max_timestamp",
    "shallow_offset_of_max_timestamp",
    "next_offset",
    "message_size_maybe_changed",
    "num_records_converted",
    "temporary_memory_bytes",
)


def metrics_of(vector: dict[str, Any]) -> ValidationMetrics | None:
    """The counters that the vector names; None where it says nothing about them."""
    if "metrics" not in vector:
        return None
    metrics = ValidationMetrics()
    for name in vector["metrics"]:
        setattr(metrics, name, getattr(metrics, name) + 1)
    return metrics


def test_validation_gives_the_bytes_offsets_and_errors_that_kafka_gives(
    append_vector: dict[str, Any],
) -> None:
    data, params = bytes.fromhex(append_vector["hex"]), append_vector["params"]
    metrics = ValidationMetrics()
    how: dict[str, Any] = {
        "next_offset": params["first_offset"],
        "now_ms": params["now"],
        "source": Compression[params["source_codec"].upper()],
        "metrics": metrics,
    }
    if "error" not in append_vector:
        validated = validate(data, rules_of(params), **how)
        expect = append_vector["expect"]
        same_output(validated.to_bytes(), expect)
        assert outcome(validated) == tuple(expect[name] for name in EXPECTED)
        assert validated.first_offset == params["first_offset"]
        assert validated.last_offset == validated.next_offset - 1
        assert validated.record_count == validated.next_offset - validated.first_offset
        assert metrics == ValidationMetrics()
        return
    error = append_vector["error"]
    with pytest.raises(ERRORS[error.get("cause", error["error"])]) as caught:
        validate(data, rules_of(params), **how)
    if "record_indexes" in error:
        faults = caught.value.record_errors  # type: ignore[attr-defined]
        assert [fault.record_index for fault in faults] == error["record_indexes"]
    assert metrics_of(append_vector) in (None, metrics)


def test_a_leader_s_append_answers_as_validation_does_wherever_headers_are_in_order(
    append_vector: dict[str, Any],
) -> None:
    data, params = bytes.fromhex(append_vector["hex"]), append_vector["params"]
    where = {"next_offset": params["first_offset"], "now_ms": params["now"]}
    rules = rules_of(params)
    headers = scan(data, on_bad_crc="note")
    if any(h.magic == 2 and h.base_offset for h in headers) and params["origin"] == "CLIENT":
        with pytest.raises(InvalidRecordError, match="starts at offset 0"):
            validate_append(data, rules, **where)
    elif "error" in append_vector:
        error = append_vector["error"]
        with pytest.raises(ERRORS[error.get("cause", error["error"])]):
            validate_append(data, rules, **where)
    else:
        expect = append_vector["expect"]
        validated = validate_append(data, rules, **where)
        same_output(validated.to_bytes(), expect)
        assert outcome(validated) == tuple(expect[name] for name in EXPECTED)


#: What a leader says of a hostile batch, where it is not what the reader says.
LEADER: dict[str, type[Exception] | None] = {
    # The broker skips keys and values of what it leaves compressed, and lengths with them.
    "neg_v2_record_size_short_gzip": None,
}


def test_a_leader_refuses_hostile_batches_with_kafka_s_error(
    negative_vector: dict[str, Any],
) -> None:
    data = bytes.fromhex(negative_vector["hex"])
    magic = data[16] if len(data) > 16 and data[16] < 2 else 2
    wanted = LEADER.get(negative_vector["name"], ERRORS[negative_vector["error"]])
    if wanted is None:
        assert negative_vector["skip_iteration"] == "accepted"
        assert validate_append(data, AppendRules(magic=magic), next_offset=7, now_ms=0).in_place
        return
    with pytest.raises(wanted) as caught:
        validate_append(data, AppendRules(magic=magic), next_offset=7, now_ms=0)
    # Whatever Kafka leaks, a fault of the bytes is one of ours.
    assert type(caught.value) in (CorruptRecordError, InvalidRecordError, DecompressionError)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_no_hostile_batch_is_built_anew_either(
    magic: int, compression: Compression, negative_vector: dict[str, Any]
) -> None:
    data = bytes.fromhex(negative_vector["hex"])
    rules = AppendRules(magic=magic, compression=compression)
    if magic == 2 and compression and negative_vector["name"] in LEADER:
        assert validate_append(data, rules, next_offset=7, now_ms=0).in_place
        return
    with pytest.raises(KsegError) as caught:
        validate_append(data, rules, next_offset=7, now_ms=0)
    assert isinstance(caught.value, ValueError)
