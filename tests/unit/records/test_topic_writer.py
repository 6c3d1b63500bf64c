"""`write_topic`: records go where producers send them, or nothing is written."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kseg
from tests.unit.log.settings import made
from tests.unit.log.settings.made import FIRST, SECOND, Broker

NOW_MS = int(time.time() * 1000)
RECORDS = {"key": ["a", "b", "c", None], "value": [b"1", "2", None, "4"]}


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A stopped broker with two empty partitions of one topic."""
    found = Broker(tmp_path / "data").says(
        [
            made.topic("orders"),
            *(made.partition(FIRST, number, [7]) for number in range(2)),
            made.topic("other", SECOND),
            made.partition(SECOND, 0, [7, 8]),
            made.partition(SECOND, 1, [8]),
        ]
    )
    for name, topic_id in (("orders-0", FIRST), ("orders-1", FIRST), ("other-0", SECOND)):
        with kseg.Log.open(found.path / name, mode="append", create=True, topic_id=topic_id):
            pass
    return found


def rows(broker: Broker, topic: str = "orders") -> dict[bytes | None, tuple[int, bytes | None]]:
    """Partition and value by key."""
    return {
        row["key"]: (row["partition"], row["value"])
        for columns in kseg.scan(broker.path, topics=topic)
        for row in columns
    }


def write(source: Any, broker: Broker, **options: Any) -> dict[int, kseg.AppendResult]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kseg.write_topic(source, broker.path, "orders", **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RECORDS,
        lambda: [
            dict(zip(RECORDS, pair, strict=True)) for pair in zip(*RECORDS.values(), strict=True)
        ],
        lambda: list(zip(*RECORDS.values(), strict=True)),
        lambda: pa.table(
            {"key": RECORDS["key"], "value": [b"1", b"2", None, b"4"], "more": [1] * 4}
        ),
        lambda: pl.DataFrame({"key": RECORDS["key"], "value": ["1", "2", None, "4"]}).to_pandas(),
        lambda: pa.record_batch({"key": RECORDS["key"], "value": ["1", "2", None, "4"]}),
    ],
    ids=["columns", "dicts", "pairs", "table", "pandas", "batch"],
)
@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_each_record_goes_to_the_partition_of_its_key(
    broker: Broker, make: Any, partitioner: str
) -> None:
    results = write(make(), broker, partitioner=partitioner)
    found = rows(broker)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"c", None)):
        assert found[key] == (kseg.partition_for(key, 2, partitioner), value)
    assert found[None][1] == b"4"
    assert sum(each.record_count for each in results.values()) == 4


def test_columns_may_have_other_names(broker: Broker) -> None:
    frame = pl.DataFrame({"user": ["a"], "text": ["x"], "at": [NOW_MS], "key": ["ignored"]})
    write(frame, broker, key="user", value="text", timestamp="at")
    (columns,) = kseg.scan(broker.path, topics="orders")
    assert (columns.key[0], columns.value[0]) == (b"a", b"x")


def test_records_without_a_key_go_round_in_batches(broker: Broker) -> None:
    results = write({"value": [b"x" * 9_000] * 8}, broker)
    assert {number: each.record_count for number, each in results.items()} == {0: 4, 1: 4}
    write({"key": [None] * 2}, broker, append=True)
    large = write({"value": [b"x" * 9_000] * 8}, broker, append=True, batch_bytes=30_000)
    assert {number: result.record_count for number, result in large.items()} == {0: 5, 1: 3}


def test_an_error_takes_the_records_back(broker: Broker) -> None:
    def frames() -> Iterator[kseg.RecordColumns]:
        yield from kseg.arrow.from_arrow(pa.table({"key": ["a", "b", "c"]}))
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write(frames(), broker)
    assert rows(broker) == {}
    assert kseg.LogDirectory.open(broker.path).logs.keys() >= {("orders", 0), ("orders", 1)}


@pytest.mark.parametrize(
    ("topic", "error", "words"),
    [
        ("new", kseg.KsegError, r"kafka-topics\.sh .* --create --topic new .*stop it again"),
        ("other", kseg.NotALogError, "other-1 is on broker 8, not on this one"),
        ("__consumer_offsets", ValueError, "not a topic that producers write to"),
        ("a b", ValueError, "not a topic that producers write to"),
    ],
)
def test_topics_that_cannot_be_written_are_refused(
    broker: Broker, topic: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        kseg.write_topic(RECORDS, broker.path, topic)


def test_a_topic_with_records_is_refused_unless_more_are_wanted(broker: Broker) -> None:
    write({"key": ["a"]}, broker)
    with pytest.raises(kseg.KsegError, match="append=True appends to them"):
        write({"key": ["b"]}, broker)
    write({"key": ["b"]}, broker, append=True)
    assert rows(broker).keys() == {b"a", b"b"}


def test_a_partition_in_another_directory_is_asked_for(broker: Broker, tmp_path: Path) -> None:
    second = Broker(tmp_path / "second")
    with kseg.Log.open(second.path / "orders-1", mode="append", create=True, topic_id=FIRST):
        (broker.path / "orders-1").rename(tmp_path / "old")
    with pytest.raises(kseg.NotALogError, match=r"orders-1 is in none .* log\.dirs"):
        write(RECORDS, broker)
    kseg.write_topic(RECORDS, [broker.path, second.path], "orders")
    ends = [
        kseg.Log.open(each.path / f"orders-{n}").log_end_offset
        for n, each in enumerate((broker, second))
    ]
    assert sum(ends) == 4


def test_a_directory_of_another_topic_of_that_name_is_refused(broker: Broker) -> None:
    (broker.path / "orders-1" / "partition.metadata").write_text(made.partition_metadata(SECOND))
    with pytest.raises(kseg.NotALogError, match="would put the partition aside"):
        write(RECORDS, broker)
    (broker.path / "orders-1" / "partition.metadata").unlink()
    with pytest.raises(kseg.NotALogError, match="it has no topic id"):
        write(RECORDS, broker)


def test_a_directory_without_a_metadata_log_is_refused(tmp_path: Path) -> None:
    data = Broker(tmp_path / "data").path
    with pytest.raises(kseg.NotALogError, match="metadata_directory"):
        kseg.write_topic(RECORDS, data, "orders")


def test_replicas_elsewhere_are_warned_of(tmp_path: Path) -> None:
    told = [made.topic("orders"), made.partition(FIRST, 0, [7, 8])]
    broker = Broker(tmp_path / "data").says(told)
    with kseg.Log.open(broker.path / "orders-0", mode="append", create=True, topic_id=FIRST):
        pass
    with pytest.warns(UserWarning, match="other brokers have replicas of orders"):
        kseg.write_topic(RECORDS, broker.path, "orders")


@pytest.mark.parametrize(
    ("settings", "warned"),
    [({}, True), ({"retention.ms": "-1"}, False), ({"cleanup.policy": "compact"}, False)],
)
def test_records_that_retention_takes_soon_are_warned_of(
    tmp_path: Path, settings: dict[str, str], warned: bool
) -> None:
    told = [made.topic("orders"), made.partition(FIRST, 0, [7])]
    broker = Broker(tmp_path / "data").says(
        [*told, *(made.setting(name, value) for name, value in settings.items())]
    )
    with kseg.Log.open(broker.path / "orders-0", mode="append", create=True, topic_id=FIRST):
        pass
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kseg.write_topic({"key": ["a"], "timestamp": [1_000]}, broker.path, "orders")
    assert ["retention of orders" in str(one.message) for one in seen] == [True] * warned


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (pl.DataFrame({"key": [1, 2]}), ValueError, "column 'key' is int64, not bytes or text"),
        ({"key": [1]}, TypeError, "a key is bytes, text or None, not int"),
        ({"ky": ["a"]}, ValueError, "out of key, value, timestamp, headers"),
        (pl.DataFrame({"ky": ["a"]}), ValueError, "none of the columns key, value"),
        ({"key": ["a"], "value": []}, ValueError, "of one length"),
        (pl.DataFrame({"key": ["a"], "vaal": ["b"]}), ValueError, "did you mean 'vaal'"),
        (
            [{"key": "a", "payload": "b"}],
            ValueError,
            "no column 'value', .*are key, payload",
        ),
        (pl.DataFrame({"value": ["a"], "keys": ["b"]}), ValueError, "did you mean 'keys'"),
        ([{}, {}], ValueError, "these have none of them"),
        (b"bytes", TypeError, "records are columns"),
        ("text", TypeError, "records are columns"),
        (3, TypeError, "records are columns"),
        ([3], TypeError, "record 0 is int"),
    ],
)
def test_records_of_another_kind_are_refused(
    broker: Broker, source: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        write(source, broker)
    assert rows(broker) == {}


@pytest.mark.parametrize(
    "names", [{"key": "usr"}, {"value": "vaal"}, {"timestamp": "at"}, {"headers": "none"}]
)
def test_a_name_that_no_column_has_is_refused_with_the_nearest(
    broker: Broker, names: dict[str, str]
) -> None:
    columns = {"user": ["a"], "val": ["b"], "more": ["c"]}
    given = {"key": "user", "value": "val", **names}
    (field,) = names
    for source in (pl.DataFrame(columns), columns, [dict.fromkeys(columns, "a")]):
        with pytest.raises(ValueError, match=f"no column '{names[field]}', .*{field}= names"):
            write(source, broker, **given)
    assert rows(broker) == {}
