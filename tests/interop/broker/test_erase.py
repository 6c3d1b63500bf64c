"""A broker serves all the rest of a topic from which records were erased, and goes on with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kseg
from tests.interop.broker.broker import Broker, Row, wait_until
from tests.interop.kafka import needed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

TOPIC, TABLE = "orders", "table"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: A segment has few batches: its indexes are full soon.
SMALL = {"segment_index_bytes": 60, "index_interval_bytes": 1}
#: The cleaner takes nothing before the test asks for it: it would change what the tests compare.
UNCLEANED = {"min_compaction_lag_ms": 10**12, "max_compaction_lag_ms": 10**13}
GONE, TEXT = b"user-3", b"personal data"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with needed():
        found = Broker(tmp_path_factory.mktemp("broker"))
    with found:
        found.start()
        found.create(TOPIC, 1, **SMALL)
        found.create(TABLE, 1, cleanup_policy="compact", **UNCLEANED, **SMALL)
        for number, codec in enumerate(CODECS):
            groups = [_group(number, "commit"), _group(number + 10, "abort")]
            for topic in (TOPIC, TABLE):
                found.produce(topic, [{"records": _records(number)}], compression_type=codec)
                found.produce(
                    topic, groups, transactional_id=f"{topic}-{number}", compression_type=codec
                )
        yield found


_KEYS = [b"user-%d" % number for number in range(7)]


def _records(number: int) -> list[dict[str, object]]:
    return [
        {
            "key": b"user-%d" % (row % 7),
            "value": (TEXT if row % 7 == 3 else b"other") * 9 + b"%d" % number,
        }
        for row in range(60)
    ]


def _group(number: int, end: str) -> dict[str, object]:
    return {"records": _records(number), "end": end}


def _rows(broker: Broker, topic: str) -> dict[str, list[Row]]:
    isolations = ("read_uncommitted", "read_committed")
    return {isolation: broker.consume(topic, 0, isolation) for isolation in isolations}


def _bytes_of(broker: Broker, topic: str) -> bytes:
    """All bytes of the files of a partition, and all that is compressed in them."""
    directory = broker.data / f"{topic}-0"
    raw = [path.read_bytes() for path in directory.iterdir() if path.is_file()]
    for columns in kseg.scan(directory, control=True):
        raw += [bytes(columns[name].data) for name in ("key", "value")]
    return b"".join(raw)


def test_all_the_rest_is_served_and_nothing_else(broker: Broker) -> None:
    before = {}
    for topic in (TOPIC, TABLE):
        broker.wait_for_markers(topic)
        before[topic] = _rows(broker, topic)
    broker.stop()
    for topic in before:
        assert TEXT in _bytes_of(broker, topic)
        plan = kseg.plan_erasure(broker.data / f"{topic}-0", keys=[GONE])
        assert (plan.refused, len(plan.segments) > 2) == (None, True)
        plan.apply()
        assert TEXT not in _bytes_of(broker, topic)
    said = broker.start()
    for topic, rows_before in before.items():
        assert [line.text for line in said.about(f"{topic}-0") if "snapshot" not in line.text] == []
        for isolation, rows in _rows(broker, topic).items():
            assert rows == [row for row in rows_before[isolation] if row.key != GONE], isolation
        (offsets,) = broker.produce(
            topic, [{"records": _records(99), "end": "commit"}], transactional_id=f"{topic}-0"
        )
        assert offsets[0] > rows_before["read_uncommitted"][-1].offset
        broker.wait_for_markers(topic)
        new = broker.consume(topic, 0, "read_committed")[-60:]
        assert [row.key for row in new] == [record["key"] for record in _records(99)]


def test_the_cleaner_runs_over_what_is_left(broker: Broker) -> None:
    checkpoint = broker.data / "cleaner-offset-checkpoint"
    assert f"{TABLE} 0" not in checkpoint.read_text("utf-8")
    settings = {
        "min.cleanable.dirty.ratio": "0.001",
        "min.compaction.lag.ms": "0",
        "segment.ms": "1",
        # The cleaner joins segments, and Kafka's fails if their indexes are as small as SMALL.
        "segment.index.bytes": "10000000",
    }
    begin = broker.log_bytes
    broker.ask("configure", TABLE, configs=settings)
    (last,) = broker.produce(TABLE, [{"records": [{"key": b"last", "value": b"last"}]}])
    cleaned = f"{TABLE} 0 {last[0]}"
    wait_until(lambda: cleaned in checkpoint.read_text("utf-8"), 120)
    assert [line for line in broker.said(begin).about(f"{TABLE}-0") if line.level != "INFO"] == []
    rows = broker.consume(TABLE, 0, "read_committed")
    assert sorted(row.key or b"" for row in rows) == [b"last", *_KEYS]


def test_a_follower_does_not_bring_erased_records_back(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Both brokers stop; the follower is erased first, and the leader one start later."""
    with needed():
        leader = Broker(tmp_path_factory.mktemp("leader"))
        follower = Broker(tmp_path_factory.mktemp("follower"), joins=leader)
    with leader, follower:
        leader.start()
        follower.start()
        words = ("--replica-assignment", "1:2", "--config", "segment.index.bytes=60")
        leader.ask_tool("TopicCommand", "--create", "--topic", TOPIC, *words)
        wait_until(lambda: leader.in_sync(TOPIC) == "1,2")
        for number, codec in enumerate(CODECS):
            leader.produce(
                TOPIC, [{"records": _records(number)}], compression_type=codec, acks="all"
            )
        rows = [row for row in leader.consume(TOPIC) if row.key != GONE]
        for node in (follower, leader):
            follower.stop()
            leader.stop()
            directory = node.data / f"{TOPIC}-0"
            kseg.plan_erasure(directory, keys=[GONE]).apply()
            said = leader.start()
            follower.start()
            wait_until(lambda: leader.in_sync(TOPIC) == "1,2")
            assert said.warnings() == []
            leader.produce(TOPIC, [{"records": [{"key": b"new", "value": b"x"}]}], acks="all")
            assert TEXT not in _bytes_of(node, TOPIC)
        assert [row for row in leader.consume(TOPIC) if row.key != b"new"] == rows
        follower.stop()
        leader.stop()
        assert kseg.diff(*(node.data / f"{TOPIC}-0" for node in (leader, follower))).ok
        assert TEXT not in _bytes_of(follower, TOPIC)
