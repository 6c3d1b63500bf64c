"""What `kseg.settings` says of a broker's topics, and what the broker itself says of them.

Settings are given in every way that a broker knows; a topic is deleted and made again. Kafka's own
client describes them, as kafka-configs does, and so does the broker's log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kseg
from tests.interop.broker.broker import RELEASE, Broker, Said, wait_until
from tests.interop.kafka import is_since, needed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "cluster",
    "STATIC_BROKER_CONFIG": "broker-config",
    "DEFAULT_CONFIG": "default",
}
#: kseg takes Kafka's defaults for these where all that goes before them was read.
DELETING = {"cleanup.policy", "retention.ms", "retention.bytes"}
#: Kafka describes these as defaults, with the right value: it looks for no name of a larger unit.
LARGER_UNITS = {"retention.ms", "segment.ms"}
#: What bears on no log.
NOT_OF_STORAGE = {"min.insync.replicas"}
STATIC = {
    "log.retention.minutes": 90,
    "log.roll.hours": 5,
    "log.index.interval.bytes": 2048,
    "log.cleaner.delete.retention.ms": 7_000,
    # So that the metadata log has snapshots, and records behind the last one.
    "metadata.log.max.record.bytes.between.snapshots": 3_000,
}
CLUSTER = {"log.retention.bytes": "5000000", "message.max.bytes": "900000"}
OF_BROKER = {"log.retention.bytes": "6000000", "log.cleaner.min.compaction.lag.ms": "11"}
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "own": {
        "cleanup.policy": "compact,delete",
        "retention.bytes": "123456",
        "min.cleanable.dirty.ratio": "0.25",
        "segment.bytes": "2097152",
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "zstd",
    },
    "taken-away": {"retention.ms": "77", "max.message.bytes": "500000"},
    "again": {"cleanup.policy": "delete", "retention.ms": "1000"},
}
CREATED = re.compile(r"Created log for partition (\S+) in \S+ with properties \{(.*)\}")


@dataclass(frozen=True, slots=True)
class Told:
    """A broker that was stopped, and what it said of each topic's settings."""

    data: Path
    properties: Path
    said: Said
    described: dict[str, dict[str, tuple[str, str]]]
    first: Path  # the data directory with what was there of "again" before it was made again


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    home = tmp_path_factory.mktemp("broker")
    with needed():
        # -1 would hide that of minutes.
        broker = Broker(home, {**STATIC, "log.retention.ms": None})
    with broker:
        broker.start()
        for topic, configs in TOPICS.items():
            broker.create(topic, **configs)
        broker.ask("configure", "", broker="", configs=CLUSTER)
        broker.ask("configure", "", broker="1", configs=OF_BROKER)
        broker.ask("configure", "taken-away", configs={"retention.ms": None})
        first = make_again(broker, home / "other")
        described = {topic: described_by(broker, topic) for topic in TOPICS}
        broker.stop()
        yield Told(broker.data, broker.properties, broker.said(), described, first)


def make_again(broker: Broker, other: Path) -> Path:
    """Delete a topic and create it again; its first directory is kept as one of another disk."""
    shutil.copytree(broker.data / "again-0", other / "again-0")
    shutil.copy(broker.data / "meta.properties", other)
    broker.ask("delete", "again")
    wait_until(lambda: not (broker.data / "again-0").exists())
    broker.create("again", **{"retention.ms": "2000"})
    return other


def described_by(broker: Broker, topic: str) -> dict[str, tuple[str, str]]:
    found = broker.ask("describe", topic)["configs"]
    sources = {name: SOURCES[source] for name, (_, source) in found.items()}
    for name in LARGER_UNITS:
        if sources[name] == "default":
            sources[name] = "broker-config"
    return {name: (value, sources[name]) for name, (value, _) in found.items()}


@pytest.mark.parametrize("topic", TOPICS)
def test_settings_and_their_sources_are_those_that_kafka_describes(told: Told, topic: str) -> None:
    known = kseg.settings(told.data, broker_config=told.properties)
    assert known.findings == ()
    assert known.cluster is not None
    assert known.cluster.snapshot_end > 0
    found = known.of(told.data / f"{topic}-0")
    assert (found.skipped, found.why, found.findings) == (None, "", ())
    mine = {name: (each.value, each.source) for name, each in found.values.items()}
    theirs = told.described[topic]
    assumed = {name for name in DELETING if theirs[name][1] == "default"}
    assert assumed <= mine.keys()
    if not is_since(RELEASE, "4.4"):  # this setting came with 4.4
        mine.pop("max.decompressed.message.bytes", None)
    assert mine == {name: theirs[name] for name in mine}
    named = {name for name, (_, source) in theirs.items() if source != "default"}
    assert named - NOT_OF_STORAGE <= mine.keys()


def test_each_source_has_its_turn(told: Told) -> None:
    assert {source for each in told.described.values() for _, source in each.values()} == set(
        SOURCES.values()
    )


def test_a_topic_s_own_settings_are_those_that_the_broker_logs(told: Told) -> None:
    known = kseg.settings(told.data)
    lines = [CREATED.match(line.text) for line in told.said.lines]
    logged = {match[1]: match[2] for match in lines if match}
    for topic in ("plain", "own", "again"):
        values = known.of(told.data / f"{topic}-0").values
        own = {name: each.value for name, each in values.items() if each.source == "topic"}
        pairs = re.findall(r'([\w.]+)="?(.*?)"?(?:, (?=[\w.]+=)|$)', logged[f"{topic}-0"])
        assert dict(pairs) == own


def test_a_directory_of_the_topic_before_is_stray(told: Told) -> None:
    known = kseg.settings([told.data, told.first], broker_config=told.properties)
    before = known.of(told.first / "again-0")
    assert (before.skipped, "another id" in before.why) == ("stray", True)
    now = known.of(told.data / "again-0")
    assert (now.skipped, now.values["retention.ms"].value) == (None, "2000")
    assert now.values["cleanup.policy"].source == "default"
