"""Wrong arguments of the functions that Python users call: each error names what is wanted."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kseg
from tests.tidy import tree
from tests.unit.log.settings import made

Call = Callable[[], object]
#: A call in a directory with the demo data, the error, and a part of its text.
CALLS: dict[str, tuple[Call, type[Exception], str]] = {
    # ---- paths
    "a missing path": (lambda: kseg.scan("nowhere"), FileNotFoundError, "nowhere"),
    "no path": (lambda: kseg.scan([]), ValueError, "paths is empty"),
    "a number as a path": (lambda: kseg.scan(3), TypeError, "not int"),
    "bytes as a path": (lambda: kseg.scan(b"."), TypeError, "a path is text or a Path, not bytes"),
    "an open file": (lambda: kseg.scan(io.BytesIO(b"")), TypeError, "not an open file"),
    "open files": (lambda: kseg.scan([io.BytesIO(b"")]), TypeError, "not an open file"),
    "a store": (lambda: kseg.doctor("s3://b/data"), ValueError, "s3://b/data is in a store"),
    "a URL of a file": (lambda: kseg.scan("file:///nowhere"), FileNotFoundError, "/nowhere"),
    "a URL with a password": (lambda: kseg.scan("s3://a:b@c/d"), ValueError, "no user, password"),
    "a glob of nothing": (lambda: kseg.scan("no*"), FileNotFoundError, "no path matches"),
    "a file of other bytes": (lambda: kseg.scan("text.txt"), kseg.NotALogError, "text.txt"),
    "an index": (lambda: kseg.scan("orders-0/x.index"), kseg.NotALogError, "not a file of batches"),
    "an empty directory": (lambda: kseg.scan("empty"), kseg.NotALogError, "empty"),
    "topics of nowhere": (lambda: kseg.topics("nowhere"), FileNotFoundError, "nowhere"),
    "a segment of nowhere": (lambda: kseg.Segment.open("0.log"), FileNotFoundError, "0.log"),
    "a log of nowhere": (lambda: kseg.Log.open("nowhere"), FileNotFoundError, "nowhere"),
    # ---- settings and options
    "a misspelt setting": (
        lambda: kseg.Log.open("new-0", mode="append", create=True, config={"segment.byte": 1}),
        ValueError,
        "did you mean segment.bytes",
    ),
    "a setting that is no number": (
        lambda: kseg.plan_retention("orders-0", config={"retention.ms": "x"}),
        ValueError,
        "retention.ms is a number",
    ),
    "settings of a log as text": (
        lambda: kseg.Log.open("new-0", mode="append", create=True, config="retention.ms=1"),
        TypeError,
        "settings are a dict",
    ),
    "a misspelt option": (
        lambda: kseg.encode_batch({"value": ["v"]}, {"compresion": "zstd"}),
        ValueError,
        "did you mean compression",
    ),
    # ---- what is chosen
    "a topic that is not there": (lambda: scan(topics="order"), ValueError, "did you mean orders"),
    "topics as numbers": (lambda: scan(topics=[3]), TypeError, "topics is a name, or several"),
    "a topic as bytes": (lambda: scan(topics=b"orders"), TypeError, "topics is a name"),
    "a partition that is not there": (lambda: scan(partitions=9), ValueError, "there are 0, 1"),
    "a negative partition": (lambda: scan(partitions=-1), ValueError, "partitions has -1"),
    "a partition as text": (lambda: scan(partitions="0"), TypeError, "partitions is a number"),
    "partitions as text": (lambda: scan(partitions=["0"]), TypeError, "partitions is a number"),
    "a partition and a half": (lambda: scan(partitions=1.5), TypeError, "partitions is a number"),
    "a column that is not there": (lambda: scan(columns=["ofset"]), ValueError, "no column ofset"),
    "no column": (lambda: scan(columns=[]), ValueError, "columns is empty"),
    "a column as a number": (lambda: scan(columns=[3]), ValueError, "no column 3; there are"),
    "a misspelt argument": (lambda: scan(topic="orders"), TypeError, "topic"),
    # ---- bounds
    "an offset as text": (lambda: scan(offset="3"), TypeError, "offset is one offset, or (start"),
    "an offset and a half": (lambda: scan(offset=1.5), TypeError, "offset is one offset"),
    "three offsets": (lambda: scan(offset=(1, 2, 3)), TypeError, "offset is one offset"),
    "a set of offsets": (lambda: scan(offset={1, 2}), TypeError, "offset is one offset"),
    "offsets by topic": (lambda: scan(offset={"orders": 3}), TypeError, "by (topic, partition)"),
    "a step": (lambda: scan(offset=range(0, 9, 2)), TypeError, "offset is one offset"),
    "a time as a number": (lambda: scan(time=5), TypeError, "time is one day"),
    "a time in words": (lambda: scan(time=("last week", None)), ValueError, "last week"),
    "an instant": (lambda: scan(time="2025-01-01T10:00"), TypeError, "time is one day"),
    "a day that is none": (lambda: scan(time="2025-02-30"), ValueError, "2025-02-30"),
    "a key as a number": (lambda: scan(key=42), TypeError, "key is bytes or text, not 42"),
    "a limit as text": (lambda: scan(limit="3"), TypeError, "limit is a whole number, not '3'"),
    "a negative limit": (lambda: scan(limit=-1), ValueError, "limit is 0 or more"),
    "a negative head": (lambda: scan().head(-1), ValueError, "limit is 0 or more"),
    "no thread": (lambda: scan(threads=0), ValueError, "threads is 0"),
    "threads as text": (lambda: scan(threads="2"), TypeError, "str"),
    "an isolation": (lambda: scan(isolation="dirty"), ValueError, "isolation is read_uncommitted"),
    "what damage does": (lambda: scan(on_corrupt="ignore"), ValueError, "on_corrupt is raise"),
    "settings as text": (lambda: kseg.explain(".", config="x"), TypeError, "settings are a dict"),
    "a supposition": (lambda: kseg.explain(".", what_if="x=1"), TypeError, "what_if is a dict"),
    "a kind": (lambda: scan(decode="avro2"), ValueError, "nothing is decoded as 'avro2'"),
    "a kind for the offset": (lambda: scan(decode={"offset": "text"}), ValueError, "not decoded"),
    "kinds in a list": (lambda: scan(decode=["json"]), TypeError, "decode is a dict"),
    "replicas": (lambda: scan(replicas="best"), ValueError, "replicas is refuse or newest"),
    "committed records of a file": (
        lambda: kseg.scan("orders-0/*.log", isolation="read_committed"),
        ValueError,
        "read_committed needs whole partitions",
    ),
    # ---- keys and topics to write
    "a key of a number": (lambda: kseg.partition_for(42, 4), TypeError, "bytes, text or None"),
    "a column of numbers": (
        lambda: kseg.partition_for(pl.Series([1]), 4),
        TypeError,
        "int64, not bytes",
    ),
    "no partition": (lambda: kseg.partition_for("a", 0), ValueError, "partitions is 0"),
    "a partitioner": (lambda: kseg.partition_for("a", 4, "java"), ValueError, "partitioner is"),
    "a frame with keys of numbers": (
        lambda: write(pl.DataFrame({"key": [1], "value": ["x"]})),
        ValueError,
        "column 'key' is int64",
    ),
    "a frame without the key": (
        lambda: write(pl.DataFrame({"user": ["a"]})),
        ValueError,
        "none of the columns key",
    ),
    "a topic that Kafka refuses": (
        lambda: kseg.write_topic([], "broker", "a/b"),
        ValueError,
        "'a/b' is not a topic",
    ),
    "a topic that is not known": (
        lambda: kseg.write_topic([], "broker", "new"),
        kseg.KsegError,
        "kafka-topics.sh",
    ),
    # ---- appends
    "text to append": (lambda: append("text"), TypeError, "append takes batches, or records"),
    "texts to append": (lambda: append(["text"]), TypeError, "not a list of texts"),
    "numbers to append": (lambda: append({"value": [1]}), TypeError, "value"),
    "a number to append": (lambda: append(3), TypeError, "not int"),
    "a triple": (lambda: append([(1, 2, 3)]), TypeError, "record 0 is tuple of 3"),
    "a misspelt column": (lambda: append({"vale": [b"x"]}), ValueError, "not vale"),
    "a misspelt column of a frame": (
        lambda: append(pl.DataFrame({"key": ["a"], "vaal": ["b"]})),
        ValueError,
        "not vaal; did you mean value",
    ),
    "records without a field": (lambda: append([{}, {}]), ValueError, "none of them"),
    "columns of two lengths": (
        lambda: append({"key": [b"a"], "value": []}),
        ValueError,
        "value has 0 values where 1 are wanted",
    ),
    "a table without records": (lambda: append(pa.table({"a": [1]})), ValueError, "none of the"),
    "a value that is too large": (
        lambda: append({"value": [bytes(2_000_000)]}),
        kseg.AppendError,
        "max.message.bytes",
    ),
    "an unknown codec": (
        lambda: kseg.BatchOptions(compression="brotli"),
        ValueError,
        "brotli",
    ),
    "a mode": (lambda: kseg.Log.open("orders-0", mode="w"), ValueError, "mode is 'read' or"),
    "an append to a log for reading": (
        lambda: kseg.Log.open("orders-0").append({"value": [b"x"]}),
        kseg.KsegError,
        "open for reading only",
    ),
}


def scan(**options: Any) -> kseg.Scan:
    return kseg.scan(".", **options)


def append(records: Any) -> object:
    with kseg.Log.open("own-0", mode="append", create=True) as log:
        return log.append(records)


def write(frame: Any) -> object:
    return kseg.write_topic(frame, "broker", "users")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(tree.ROOT / "kseg" / "demo_data", tmp_path / "data")
    home = tmp_path / "data"
    (home / "empty").mkdir()
    (home / "text.txt").write_text("text")
    (home / "orders-0" / "x.index").write_bytes(b"")
    broker = made.Broker(home / "broker").says(
        [made.topic("users"), made.partition(made.FIRST, 0, [7])]
    )
    name = broker.path / "users-0"
    with kseg.Log.open(name, mode="append", create=True, topic_id=made.FIRST):
        pass
    monkeypatch.chdir(home)
    return home


@pytest.mark.parametrize(("call", "error", "words"), CALLS.values(), ids=CALLS)
@pytest.mark.usefixtures("place")
def test_a_wrong_call_is_refused_with_what_is_wanted(
    call: Call, error: type[Exception], words: str
) -> None:
    with pytest.raises((TypeError, ValueError, OSError, kseg.KsegError)) as caught:
        call()
    assert isinstance(caught.value, error)
    assert re.search(re.escape(words), str(caught.value))


def test_a_generator_that_was_read_gives_no_records(place: Path) -> None:
    pieces = iter(kseg.scan("orders-0"))
    list(pieces)
    with kseg.Log.open(place / "own-0", mode="append", create=True) as log:
        assert log.append(pieces).record_count == 0


def test_files_that_vanish_during_a_scan_are_named(place: Path) -> None:
    pieces = iter(kseg.scan(["orders-0", "orders-1"], max_rows=10))
    next(pieces)
    shutil.rmtree(place / "orders-1")
    with pytest.raises(FileNotFoundError, match="orders-1"):
        list(pieces)


def test_settings_and_options_are_plain_dicts(tmp_path: Path) -> None:
    config: Any = {"segment.bytes": 1 << 20, "cleanup.policy": "compact"}
    with kseg.Log.open(tmp_path / "t-0", mode="append", create=True, config=config) as log:
        log.append([("k", "v")], options={"compression": "zstd"})
        assert (log.config.segment_bytes, log.config.compacted) == (1 << 20, True)
    assert kseg.info(tmp_path / "t-0").table_rows()[0]["codecs"] == ["zstd"]
    for plan in (kseg.plan_recovery, kseg.plan_reindex, kseg.plan_retention, kseg.plan_compaction):
        assert plan(tmp_path / "t-0", config=config) is not None
