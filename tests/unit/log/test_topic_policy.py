"""What retention goes by, where a topic's settings are known and where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.change.cleanup import plan_retention
from kseg.errors import NotALogError
from kseg.files import checkpoints
from kseg.files.checkpoints import TopicPartition
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery
from kseg.log.recovery.reindex import plan_reindex
from kseg.log.topic_policy import (
    KRAFT,
    NOT_COMPACTED,
    POLICY_UNKNOWN,
    KnownTopics,
    compaction_rules,
    known_topics,
    retention_rules,
)
from tests.builders import batch, record

OURS, BROKERS = KnownTopics(), KnownTopics(of_broker=True, compacted=frozenset({"tables"}))
GARBLED = KnownTopics(of_broker=True, compacted=None)
AGE, DELETE = {"retention.ms": "7"}, {"cleanup.policy": "delete"}
COMPACTED = ["__consumer_offsets", "__transaction_state", "tables"]

# What goes by what: cleanup policy, retention.ms and retention.bytes, and why it is skipped.

Row = tuple[str, int, int, str | None]
NOTHING, UNKNOWN = ("", -1, -1, None), ("", -1, -1, POLICY_UNKNOWN)
KAFKAS, KEEP = ("delete", 604_800_000, -1, None), ("delete", -1, -1, None)
BY_AGE = ("delete", 7, -1, None)


def found(
    known: KnownTopics,
    topic: str | None,
    settings: dict[str, str],
    own: dict[str, str],
    *,
    of_one_log: bool = False,
) -> Row:
    config = LogConfig.from_kafka(settings, of_topic=own)
    rules = retention_rules(known, topic, config, of_one_log=of_one_log)
    policy = ",".join(sorted(rules.config.cleanup_policy))
    return policy, rules.config.retention_ms, rules.config.retention_bytes, rules.skipped


@pytest.mark.parametrize(
    ("known", "topic", "settings", "own", "row"),
    [
        (OURS, "orders", {}, {}, KAFKAS),
        (OURS, None, AGE, {}, BY_AGE),
        (BROKERS, "orders", {}, {}, UNKNOWN),
        (BROKERS, None, {}, {}, UNKNOWN),
        (BROKERS, "orders", AGE, {}, UNKNOWN),
        (BROKERS, "orders", DELETE, {}, UNKNOWN),
        (BROKERS, "orders", DELETE | AGE, {}, BY_AGE),
        (BROKERS, "orders", DELETE | {"retention.bytes": "9"}, {}, ("delete", -1, 9, None)),
        (BROKERS, "orders", DELETE | {"retention.ms": "604800000"}, {}, KAFKAS),
        (BROKERS, "orders", {"cleanup.policy": "compact"} | AGE, {}, ("compact", 7, -1, None)),
        (BROKERS, "orders", {}, AGE, BY_AGE),
        (BROKERS, "orders", AGE, DELETE, BY_AGE),
        (BROKERS, "orders", DELETE | {"retention.ms": "1"}, AGE, BY_AGE),
        (BROKERS, "tables", DELETE | AGE, DELETE, UNKNOWN),
        (BROKERS, "tables", {}, DELETE | AGE, BY_AGE),
        (BROKERS, "__consumer_offsets", {}, DELETE | AGE, BY_AGE),
        (BROKERS, "__consumer_offsets", AGE, DELETE, UNKNOWN),
        (BROKERS, "__consumer_offsets", DELETE, AGE, ("compact", 7, -1, None)),
        (BROKERS, "__remote_log_metadata", DELETE | AGE, {}, KEEP),
        (BROKERS, "__remote_log_metadata", {}, AGE, BY_AGE),
        (BROKERS, "__remote_log_metadata", {}, DELETE, KEEP),
        (OURS, "__remote_log_metadata", {}, {}, KEEP),
        (GARBLED, "orders", DELETE | AGE, {}, UNKNOWN),
        (GARBLED, "orders", {}, AGE, UNKNOWN),
        (GARBLED, "orders", {}, DELETE | AGE, BY_AGE),
        *((BROKERS, topic, DELETE | AGE, {}, ("compact", -1, -1, None)) for topic in COMPACTED),
        *((OURS, topic, DELETE | AGE, {}, ("compact", -1, -1, None)) for topic in COMPACTED[:2]),
        (OURS, "__share_group_state", DELETE | AGE, {}, KEEP),
        (BROKERS, "__share_group_state", DELETE | AGE, {}, KEEP),
        *((known, "__cluster_metadata", {}, DELETE | AGE, ("", -1, -1, KRAFT))
          for known in (OURS, BROKERS)),
    ],
)  # fmt: skip
def test_what_is_known_goes_before_what_is_named_for_all(
    known: KnownTopics, topic: str | None, settings: dict[str, str], own: dict[str, str], row: Row
) -> None:
    assert found(known, topic, settings, own) == row


@pytest.mark.parametrize(
    ("topic", "settings", "own", "said"),
    [
        ("orders", {}, {}, "--config orders:retention.ms=MS or orders:retention.bytes=BYTES"),
        (None, {}, {}, "--config retention.ms=MS or retention.bytes=BYTES"),
        ("orders", AGE, {}, "--config orders:cleanup.policy=delete"),
        ("orders", DELETE, {}, "--config orders:retention.ms=MS or"),
        ("tables", {}, DELETE, "--config tables:retention.ms=MS or"),
    ],
)
def test_what_is_unknown_is_told_with_the_words_that_name_it(
    topic: str | None, settings: dict[str, str], own: dict[str, str], said: str
) -> None:
    config = LogConfig.from_kafka(settings, of_topic=own)
    assert said in retention_rules(BROKERS, topic, config, of_one_log=False).why


@pytest.mark.parametrize("known", [OURS, BROKERS])
@pytest.mark.parametrize(
    ("topic", "skipped"),
    [
        ("__consumer_offsets", None),
        ("__transaction_state", None),
        ("__share_group_state", NOT_COMPACTED),
        ("__remote_log_metadata", NOT_COMPACTED),
    ],
)
def test_internal_topics_are_compacted_only_where_kafka_compacts_them(
    known: KnownTopics, topic: str, skipped: str | None
) -> None:
    compact = LogConfig.from_kafka({"cleanup.policy": "compact"})
    assert compaction_rules(known, topic, compact).skipped == skipped


def test_a_directory_tells_its_topics(tmp_path: Path) -> None:
    assert known_topics(tmp_path) == OURS
    (tmp_path / "meta.properties").touch()
    path = tmp_path / "cleaner-offset-checkpoint"
    checkpoints.write_offset_checkpoint(path, {TopicPartition("tables", 3): 7})
    assert known_topics(tmp_path) == BROKERS
    path.write_text("garbled")
    assert known_topics(tmp_path) == GARBLED


# Logs


OLD = LogConfig(segment_bytes=150)
TOPICS = ["orders", "tables", "__consumer_offsets"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A broker's, of logs with three segments of one record each, all old."""
    path = tmp_path / "data"
    path.mkdir()
    with LogDirectory.open(path, mode="append", config=OLD) as directory:
        for topic in TOPICS:
            log = directory.create(topic, 0)
            for _ in range(3):
                log.append(batch([record(bytes(50), timestamp=0)]))
    (path / "meta.properties").touch()
    all_of_them = {TopicPartition(topic, 0): 3 for topic in TOPICS}
    checkpoints.write_offset_checkpoint(path / "replication-offset-checkpoint", all_of_them)
    cleaned = {TopicPartition("tables", 0): 2}
    checkpoints.write_offset_checkpoint(path / "cleaner-offset-checkpoint", cleaned)
    return path


def starts(data: Path) -> list[int]:
    starts = []
    for topic in TOPICS:
        with Log.open(data / f"{topic}-0") as log:
            starts.append(log.log_start_offset)
    return starts


@pytest.mark.parametrize("config", [None, OLD, LogConfig(retention_bytes=0)])
def test_a_directory_of_a_broker_loses_nothing_that_nobody_named(
    data: Path, config: LogConfig | None
) -> None:
    with LogDirectory.open(data, mode="append", config=config) as directory:
        assert directory.retain() == {}
    assert starts(data) == [0, 0, 0]


@pytest.mark.parametrize(
    ("config", "expected"),
    [(None, [0, 0, 0]), (OLD, [0, 0, 0]), (LogConfig(retention_bytes=0), [3, 0, 0])],
)
def test_a_log_goes_by_what_was_named_for_it(
    data: Path, config: LogConfig | None, expected: list[int]
) -> None:
    for topic in TOPICS:
        with Log.open(data / f"{topic}-0", mode="append", config=config) as log:
            planned = plan_retention(log)
            log.delete_old_segments()
        with Log.open(data / f"{topic}-0") as log:
            assert planned.new_log_start_offset == log.log_start_offset
    assert starts(data) == expected


def test_the_log_of_kraft_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "__cluster_metadata-0"
    how = {"mode": "append", "create": True, "config": OLD}
    with Log.open(path, **how) as log:  # type: ignore[arg-type]
        for _ in range(3):
            log.append(batch([record(bytes(50), timestamp=0)]))
        log.delete_records_before(2)
        plan = plan_retention(log, config=LogConfig.from_kafka({}, of_topic=DELETE | AGE))
        assert (plan.is_noop, plan.skipped, plan.held_bytes) == (True, KRAFT, 0)
        assert log.delete_old_segments().segments_count == 0
    (path / f"{2:020d}.index").unlink()
    for change in (
        lambda: plan_recovery(path).apply(),
        lambda: plan_reindex(path).apply(),
    ):
        with pytest.raises(NotALogError, match="left alone"):
            change()
    assert not (path / f"{2:020d}.index").exists()
