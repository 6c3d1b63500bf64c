"""The partitions of a key: all its records are in them, and a sample refutes a wrong claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.dataset as pa_ds
import pytest

import kseg
from kseg.errors import MisplacedKeyError
from kseg.records.partitioners import partition_for
from tests.builders import batch, record, write_segment
from tests.unit.log.settings.made import (
    FIRST,
    NEWER_PARTITION,
    NO_OP,
    SECOND,
    Broker,
    Said,
    partition,
    partition_metadata,
    snapshot,
    topic,
)

COUNTS = (2, 5)
KEYS = [b"user-%d" % number for number in range(400)]


def sent(directory: Path, partitioner: str = "murmur2", counts: tuple[int, ...] = COUNTS) -> Path:
    """A topic that grew, with all keys sent for each of its counts, and some null ones."""
    for turn, count in enumerate(counts):
        found = partition_for(KEYS, count, partitioner).tolist()
        for number in range(count):
            keys = [key for key, place in zip(KEYS, found, strict=True) if place == number]
            records = [record(b"v", key=key) for key in (None, *keys, None)]
            write_segment(
                directory / f"users-{number}",
                1_000 * turn,
                batch(records, base_offset=1_000 * turn),
            )
    return directory


def said(*turns: int) -> list[list[Said]]:
    """The records of a metadata log whose topic had these numbers of partitions."""
    batches = [[topic("users")]]
    for before, count in zip((0, *turns), turns, strict=False):
        batches.append([partition(FIRST, number, [7]) for number in range(before, count)])
    return batches


def partitions_with(scan: kseg.Scan) -> list[int | None]:
    return [source.partition for source in scan.sources]


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_a_key_is_read_from_the_partitions_that_it_was_sent_to(
    tmp_path: Path, partitioner: str
) -> None:
    sent(tmp_path, partitioner)
    whole = kseg.scan(tmp_path, key="user-7").to_arrow().to_pylist()
    assert len(whole) == 2
    for given in (COUNTS, [*COUNTS, 5]):
        scan = kseg.scan(tmp_path, key="user-7", partitioner=partitioner, partitions=given)
        places = {partition_for(b"user-7", count, partitioner) for count in COUNTS}
        assert partitions_with(scan) == sorted(places)  # type: ignore[type-var]
        assert scan.to_arrow().to_pylist() == whole
    files = [path for path in sorted(tmp_path.rglob("*.log")) if "users-0" in str(path)]
    alone = kseg.scan(files, key="user-7", partitioner=partitioner, partitions=COUNTS)
    assert alone.to_arrow().to_pylist() == [row for row in whole if row["partition"] == 0]


def test_the_metadata_log_has_each_number_of_partitions(tmp_path: Path) -> None:
    broker = Broker(sent(tmp_path)).says(*said(*COUNTS))
    scan = kseg.scan(tmp_path, topics="users", key="user-7", partitioner="murmur2")
    assert len(partitions_with(scan)) == 2
    assert scan.count() == 2
    # A snapshot holds the end alone; the log from the first record on still holds the rest.
    broker.has_snapshot(6, snapshot([[each for part in said(5) for each in part]]))
    assert kseg.scan(tmp_path, key="user-7", partitioner="murmur2").count() == 2
    next(broker.log.glob("*.log")).unlink()
    broker.says([NO_OP], base_offset=6)
    with pytest.raises(MisplacedKeyError, match=r"murmur2 sends it to \d of 5: the topic had"):
        kseg.scan(tmp_path, key="user-7", partitioner="murmur2")
    late = kseg.scan(
        tmp_path, topics="users", key="user-7", partitioner="murmur2", offset=(1_000, None)
    )
    assert len(partitions_with(late)) == 1
    assert late.count() == 1


def test_directories_do_not_say_the_number_of_partitions(tmp_path: Path) -> None:
    sent(tmp_path)
    plain = kseg.scan(tmp_path, key="user-7", partitioner="murmur2")
    assert partitions_with(plain) == [0, 1, 2, 3, 4]
    broker = Broker(tmp_path).says(*said(*COUNTS))
    for number in (2, 3):
        (tmp_path / f"users-{number}" / "partition.metadata").write_text(partition_metadata(SECOND))
    astray = kseg.scan(tmp_path, topics="users", key="user-7", partitioner="murmur2")
    assert partitions_with(astray) == [0, 1, 2, 3, 4]
    for number in (2, 3):
        (tmp_path / f"users-{number}" / "partition.metadata").unlink()
    broker.says(*said(*COUNTS), [NEWER_PARTITION])
    unsure = kseg.scan(tmp_path, topics="users", key="user-7", partitioner="murmur2")
    assert partitions_with(unsure) == [0, 1, 2, 3, 4]


def test_null_keys_are_in_any_partition(tmp_path: Path) -> None:
    sent(tmp_path, "crc32", (3,))
    write_segment(tmp_path / "users-2", 5_000, batch([record(b"v", key=b"")], base_offset=5_000))
    scan = kseg.scan(tmp_path, key=b"", partitioner="crc32", partitions=3)
    assert partitions_with(scan) == [0, 1, 2]
    assert scan.count() == 1


@pytest.mark.parametrize("bounds", ["first", "last"])
def test_a_key_that_lies_elsewhere_refutes_the_claim(tmp_path: Path, bounds: str) -> None:
    sent(tmp_path, counts=(3,))
    astray = next(key for key in KEYS if partition_for(key, 3) == 1)
    offset = 900 if bounds == "last" else 0
    if bounds == "first":
        next((tmp_path / "users-2").glob("*.log")).unlink()
    many = [record(key=key) for key in KEYS if partition_for(key, 3) == 2] * 6
    parts = [batch(many, base_offset=1_000)]
    wrong = batch([record(key=None), record(key=astray)], base_offset=5_000 if offset else 900)
    parts = [*parts, wrong] if offset else [wrong, *parts]
    write_segment(tmp_path / "users-2", 900, *parts)
    kseg.scan(tmp_path, key="user-7")
    with pytest.raises(MisplacedKeyError) as refusal:
        kseg.scan(tmp_path, key="user-7", partitioner="murmur2", partitions=3)
    assert refusal.value.offset == (5_001 if offset else 901)
    assert refusal.value.path is not None
    assert refusal.value.path.endswith(".log")
    assert f"{astray!r} is in partition 2, and murmur2 sends it to 1 of 3" in str(refusal.value)
    with pytest.raises(MisplacedKeyError):
        kseg.scan(tmp_path, key="user-7", partitioner="crc32", partitions=3)


def test_damage_in_the_sample_is_passed_over(tmp_path: Path) -> None:
    sent(tmp_path, counts=(3,))
    number = partition_for("user-7", 3)
    other = next(each for each in range(3) if each != number)
    path = next((tmp_path / f"users-{other}").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    scan = kseg.scan(tmp_path, key="user-7", partitioner="murmur2", partitions=3)
    assert scan.count() == 1
    assert scan.errors == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitioner": "md5"}, "murmur2 or crc32"),
        ({"partitioner": "murmur2", "partitions": 0}, "not 1 or more"),
        ({"partitioner": "murmur2", "partitions": [3, -1]}, "not 1 or more"),
    ],
)
def test_wrong_partitioners_and_counts_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    sent(tmp_path)
    with pytest.raises(ValueError, match=message):
        kseg.scan(tmp_path, key="user-7", **options)


def test_queries_on_one_key_read_its_partition(tmp_path: Path) -> None:
    sent(tmp_path)
    options: dict[str, Any] = {"partitioner": "murmur2", "partitions": COUNTS}
    scan = kseg.scan(tmp_path, **options)
    assert len(scan.sources) == 5
    frame = scan.lazy().filter(pl.col("key") == b"user-7")
    assert frame.select("partition", "offset").collect().height == 2
    assert scan.pushed is not None
    assert len(scan.pushed.sources) == 2
    records: Any = kseg.dataset(tmp_path, **options)
    assert records.count_rows(filter=pa_ds.field("key") == b"user-7") == 2
    assert len(records.pushed.sources) == 2
    assert records.count_rows(filter=pa_ds.field("key").isin([b"user-7"])) == 2
    assert len(records.pushed.sources) == 5
    wrong: Any = kseg.dataset(tmp_path, partitioner="crc32", partitions=COUNTS)
    with pytest.raises(MisplacedKeyError):
        wrong.count_rows(filter=pa_ds.field("key") == b"user-7")
