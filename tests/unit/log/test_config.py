from __future__ import annotations

import dataclasses

import pytest

from kseg.constants import Compression, TimestampType
from kseg.log.config import LogConfig
from kseg.log.validate.rules import AppendOrigin, AppendRules

INT64_MAX = 2**63 - 1

#: Kafka's defaults, as its own documentation of topics lists them.
DEFAULTS = {
    "segment_bytes": 1073741824,
    "segment_ms": 604800000,
    "segment_jitter_ms": 0,
    "segment_index_bytes": 10485760,
    "index_interval_bytes": 4096,
    "retention_ms": 604800000,
    "retention_bytes": -1,
    "flush_messages": INT64_MAX,
    "flush_ms": INT64_MAX,
    "max_message_bytes": 1048588,
    "max_decompressed_message_bytes": 2147483639,
    "message_timestamp_type": TimestampType.CREATE_TIME,
    "message_timestamp_before_max_ms": INT64_MAX,
    "message_timestamp_after_max_ms": 3600000,
    "cleanup_policy": frozenset({"delete"}),
    "delete_retention_ms": 86400000,
    "min_compaction_lag_ms": 0,
    "max_compaction_lag_ms": INT64_MAX,
    "min_cleanable_dirty_ratio": 0.5,
    "file_delete_delay_ms": 60000,
    "local_retention_ms": -2,
    "local_retention_bytes": -2,
    "preallocate": False,
    "compression_type": None,
    "compression_gzip_level": -1,
    "compression_lz4_level": 9,
    "compression_zstd_level": 3,
    "message_format_magic": 2,
    "producer_id_expiration_ms": 86400000,
    "transaction_max_timeout_ms": 900000,
}

#: Every setting, not at its default, as Kafka spells it.
SPELT = {
    "segment.bytes": "1048576",
    "segment.ms": "1000",
    "segment.jitter.ms": "10",
    "segment.index.bytes": "1200",
    "index.interval.bytes": "0",
    "retention.ms": "-1",
    "retention.bytes": "5000",
    "local.retention.ms": "6",
    "local.retention.bytes": "7",
    "flush.messages": "1",
    "flush.ms": "0",
    "max.message.bytes": "999",
    "max.decompressed.message.bytes": "9999",
    "message.timestamp.type": "LogAppendTime",
    "message.timestamp.before.max.ms": "1",
    "message.timestamp.after.max.ms": "2",
    "cleanup.policy": "compact,delete",
    "delete.retention.ms": "3",
    "min.compaction.lag.ms": "4",
    "max.compaction.lag.ms": "5",
    "min.cleanable.dirty.ratio": "0.25",
    "file.delete.delay.ms": "0",
    "preallocate": "true",
    "compression.type": "gzip",
    "compression.gzip.level": "9",
    "compression.lz4.level": "17",
    "compression.zstd.level": "-7",
}


def test_the_defaults_are_those_of_kafka() -> None:
    found = dataclasses.asdict(LogConfig())
    assert (found.pop("named"), found.pop("named_for_topic")) == (frozenset(), frozenset())
    assert found == DEFAULTS
    assert LogConfig.from_kafka({}) == LogConfig()
    assert LogConfig().to_kafka() == {}


def test_every_setting_goes_to_kafkas_spelling_and_back() -> None:
    config = LogConfig.from_kafka(SPELT)
    assert config.to_kafka() == SPELT
    assert LogConfig.from_kafka(config.to_kafka()) == config
    differing = [name for name in DEFAULTS if getattr(config, name) != DEFAULTS[name]]
    assert len(differing) == len(SPELT)


@pytest.mark.parametrize(
    ("value", "codec"),
    [
        ("producer", None),
        ("uncompressed", Compression.NONE),
        ("snappy", Compression.SNAPPY),
        ("lz4", Compression.LZ4),
        ("zstd", Compression.ZSTD),
    ],
)
def test_codecs_have_kafkas_names(value: str, codec: Compression | None) -> None:
    config = LogConfig.from_kafka({"compression.type": value})
    assert config.compression_type is codec
    assert config.to_kafka().get("compression.type", "producer") == value


@pytest.mark.parametrize(
    ("release", "magic"),
    [("0.8.2", 0), ("0.9.0.1", 0), ("0.10.0-IV1", 1), ("0.10.2", 1), ("0.11.0", 2), ("3.0-IV1", 2)],
)
def test_a_release_says_which_format_is_stored(release: str, magic: int) -> None:
    config = LogConfig.from_kafka({"message.format.version": release})
    assert config.message_format_magic == magic
    assert LogConfig.from_kafka(config.to_kafka()) == config


def test_values_may_be_numbers_and_spaced() -> None:
    config = LogConfig.from_kafka(
        {"segment.bytes": 4096, "preallocate": True, "cleanup.policy": " Compact , DELETE"}
    )
    assert (config.segment_bytes, config.preallocate) == (4096, True)
    assert config.cleanup_policy == {"compact", "delete"}
    assert LogConfig.from_kafka({"cleanup.policy": ""}).cleanup_policy == frozenset()


def test_the_old_bound_of_times_gives_way_to_the_new_ones() -> None:
    old = {"message.timestamp.difference.max.ms": "7"}
    config = LogConfig.from_kafka(old)
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (7, 7)
    both = LogConfig.from_kafka({"message.timestamp.after.max.ms": "9", **old})
    assert (both.message_timestamp_before_max_ms, both.message_timestamp_after_max_ms) == (7, 9)


def test_what_storage_does_not_look_at_is_passed_over() -> None:
    settings = {"min.insync.replicas": "2", "remote.storage.enable": "false"}
    assert LogConfig.from_kafka(settings) == LogConfig()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("segment.byte", "1", "not a setting of a topic; did you mean segment.bytes?"),
        ("message_format_magic", "1", "not a setting"),
        ("remote.storage.enable", "true", "no remote store"),
        ("segment.bytes", "13", "14 to"),
        ("segment.bytes", "2147483648", "14 to"),
        ("segment.bytes", "1e3", "is a number"),
        ("segment.bytes", "", "is a number"),
        ("segment.index.bytes", "11", "12 to"),
        ("index.interval.bytes", "-1", "0 to"),
        ("segment.ms", "0", "1 to"),
        ("retention.ms", "-2", "-1 to"),
        ("flush.messages", "0", "1 to"),
        ("max.compaction.lag.ms", "0", "1 to"),
        ("min.compaction.lag.ms", str(2**63), "0 to"),
        ("min.cleanable.dirty.ratio", "1.01", "0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "is a number"),
        ("cleanup.policy", "compact,keep", "keep"),
        ("compression.type", "none", "uncompressed"),
        ("compression.type", "brotli", "brotli"),
        ("compression.gzip.level", "0", "levels 1 to 9"),
        ("compression.lz4.level", "18", "levels 1 to 17"),
        ("compression.zstd.level", "23", "levels"),
        ("message.timestamp.type", "createtime", "CreateTime or"),
        ("message.format.version", "new", "is a release"),
        ("preallocate", "1", "true or false"),
    ],
)
def test_what_kafka_refuses_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        LogConfig.from_kafka({name: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"segment_bytes": True},
        {"segment_bytes": 1e6},
        {"min_compaction_lag_ms": 6, "max_compaction_lag_ms": 5},
        {"compression_type": Compression.ZSTD, "message_format_magic": 1},
        {"message_timestamp_type": TimestampType.NO_TIMESTAMP_TYPE},
        {"compression_type": 7},
        {"cleanup_policy": "compact"},
    ],
)
def test_fields_are_checked_when_they_are_made(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        LogConfig(**changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\w"):
        LogConfig().with_changes(**changes)


def test_compaction_caps_the_age_of_a_segment() -> None:
    assert LogConfig(max_compaction_lag_ms=5).roll_ms == 604800000
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=5)
    assert (compacted.roll_ms, compacted.with_changes(segment_ms=4).roll_ms) == (5, 4)
    assert (compacted.compacted, compacted.deletes) == (True, False)


def test_appends_are_asked_what_the_settings_say() -> None:
    rules = LogConfig.from_kafka(SPELT).append_rules(AppendOrigin.COORDINATOR, 7)
    assert rules == AppendRules(
        magic=2,
        compression=Compression.GZIP,
        level=9,
        compacted=True,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        timestamp_before_max_ms=1,
        timestamp_after_max_ms=2,
        leader_epoch=7,
        origin=AppendOrigin.COORDINATOR,
        batch_bytes_max=999,
        append_bytes_max=1048576,
    )
    assert LogConfig().append_rules().level is None
    assert LogConfig(compression_type=Compression.SNAPPY).append_rules().level is None
