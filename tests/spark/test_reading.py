from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from kseg.errors import CorruptIndexError, CorruptRecordError, KsegError
from kseg.log.log import Log
from kseg.records.scan import scan
from kseg.spark import schema
from kseg.spark.damage import read_report
from kseg.spark.options import SourceOptions, parse_options
from kseg.spark.plan import Split, list_logs, make_plan
from kseg.spark.reading import read_split, read_task
from tests.builders import batch, messages, record, wrapper, write_segment
from tests.spark.rows import projection, read


def options(path: Path, **given: str) -> SourceOptions:
    return parse_options({"path": str(path), **given})


def splits(path: Path, **given: str) -> list[Split]:
    chosen = options(path, **given)
    return [split for task in make_plan(list_logs(chosen), chosen) for split in task]


def plain(base_offset: int, count: int = 10, **more: object) -> bytes:
    records = [
        record(b"value %d" % (base_offset + index), timestamp=base_offset + index)
        for index in range(count)
    ]
    return batch(records, base_offset=base_offset, **more)  # type: ignore[arg-type]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Two segments of ten batches with ten records each."""
    directory = tmp_path / "orders-3"
    for base in (0, 100):
        write_segment(directory, base, *(plain(base + 10 * index) for index in range(10)))
    return directory


def test_every_column_of_a_record_arrives(tmp_path: Path) -> None:
    rich = record(b"v", key=b"k", timestamp=1_700_000_000_123, headers=[(b"h", b"1"), (b"h", None)])
    bare = record(None, timestamp=-1)
    directory = tmp_path / "orders-3"
    path = write_segment(
        directory,
        0,
        batch([rich, bare], producer_id=7, producer_epoch=2, base_sequence=5, leader_epoch=4),
    )
    names = [column.name for column in schema.COLUMNS.values()]
    first, second = read(directory, *names).to_pylist()
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 3,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        "timestampMs": 1_700_000_000_123,
        "leaderEpoch": 4,
        "producerId": 7,
        "producerEpoch": 2,
        "sequence": 5,
        "baseOffset": 0,
        "position": 0,
        "magic": 2,
        "codec": "none",
        "transactional": False,
        "control": False,
        "controlType": None,
        "deleteHorizonMs": None,
        "path": str(path),
        "keyError": None,
        "valueError": None,
        "corrupt": None,
    }
    nothing = {"key": None, "value": None, "headers": None, "timestamp": None, "timestampMs": -1}
    assert second == {**first, **nothing, "offset": 1, "sequence": 6}


def test_a_query_without_columns_still_counts_its_rows(orders: Path) -> None:
    chosen = options(orders, startingOffsets="7")
    (task,) = make_plan(list_logs(chosen), chosen)
    batches = list(read_task(task, schema.project(StructType([])), chosen))
    assert sum(batch.num_rows for batch in batches) == 193
    assert {batch.num_columns for batch in batches} == {0}


@pytest.mark.parametrize("target", [1, 300, 1000, 4000, 10**6])
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [0, 1])
def test_splits_give_each_record_once_in_every_format(
    tmp_path: Path, target: int, magic: int, codec: int
) -> None:
    def piece(base: int) -> bytes:
        given = [record(b"%d" % (base + n), timestamp=0) for n in range(10)]
        if magic == 2:
            return batch(given, base_offset=base, codec=codec)
        if codec:
            return wrapper(given, magic=magic, codec=codec, base_offset=base)
        return messages(given, magic=magic, base_offset=base)

    write_segment(tmp_path / "orders-3", 0, *(piece(10 * n) for n in range(20)))
    rows = read(tmp_path, "offset", targetPartitionBytes=str(target))
    assert rows.column(0).to_pylist() == list(range(200))
    middle = read(
        tmp_path,
        "offset",
        targetPartitionBytes=str(target),
        startingOffsets="57",
        endingOffsets="123",
    )
    assert middle.column(0).to_pylist() == list(range(57, 123))


def test_a_cut_inside_a_batch_is_noticed(orders: Path) -> None:
    log = orders / f"{0:020d}.log"
    size = log.stat().st_size
    entries = [(5, size // 4 + 7), (10, size // 2 + 7), (15, size * 3 // 4 + 7)]
    packed = b"".join(
        offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries
    )
    log.with_suffix(".index").write_bytes(packed)
    with pytest.raises(CorruptIndexError, match=r"index=ignore \[index-points-nowhere\]") as caught:
        read(log, "offset", index="use", targetPartitionBytes=str(size // 4))
    assert caught.value.path == str(log)
    rows = read(log, "offset", index="auto", targetPartitionBytes=str(size // 4))
    assert rows.column(0).to_pylist() == list(range(100))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    index=st.one_of(
        st.binary(max_size=200),
        st.lists(st.tuples(st.integers(-2, 105), st.integers(-2, 2500)), max_size=12).map(
            lambda entries: b"".join(struct.pack(">ii", *entry) for entry in entries)
        ),
    ),
    times=st.one_of(
        st.binary(max_size=200),
        st.lists(st.tuples(st.integers(-2, 205), st.integers(-2, 105)), max_size=12).map(
            lambda entries: b"".join(struct.pack(">qi", *entry) for entry in entries)
        ),
    ),
    target=st.integers(1, 3000),
    start=st.integers(0, 210),
)
def test_no_index_makes_rows_come_or_go(
    orders: Path, index: bytes, times: bytes, target: int, start: int
) -> None:
    for base in (0, 100):
        (orders / f"{base:020d}.index").write_bytes(index)
        (orders / f"{base:020d}.timeindex").write_bytes(times)
    for name in ("startingOffsets", "startingTimestamp"):
        given_bounds = {name: str(start), "targetPartitionBytes": str(target)}
        rows = read(orders, "offset", **given_bounds)
        assert rows.column(0).to_pylist() == list(range(start, 200))


def test_what_is_appended_after_planning_is_left_alone(orders: Path) -> None:
    log = orders / f"{100:020d}.log"
    half = log.read_bytes()[:-30]
    log.write_bytes(half)
    chosen = options(orders, columns="offset")
    (task,) = make_plan(list_logs(chosen), chosen)
    log.write_bytes(half + plain(200) + plain(210))
    rows = [row for batch in read_task(task, projection(chosen), chosen) for row in batch[0]]
    assert [row.as_py() for row in rows] == list(range(190))


def test_a_segment_that_shrank_after_planning_is_an_error(orders: Path) -> None:
    log = orders / f"{0:020d}.log"
    (split, _) = splits(orders)
    log.write_bytes(log.read_bytes()[: split.size // 2])
    with pytest.raises(CorruptRecordError, match="shrank") as caught:
        list(read_split(split, ("offset",), options(orders)))
    assert caught.value.path == str(log)


def test_a_segment_that_vanished_after_planning_is_named(orders: Path) -> None:
    (split, _) = splits(orders)
    Path(split.path).unlink()
    with pytest.raises(FileNotFoundError, match=f"{0:020d}.log"):
        list(read_split(split, ("offset",), options(orders)))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.fixture
def damaged(orders: Path) -> tuple[Path, int]:
    """The fourth batch of the first segment does not match its checksum."""
    log = orders / f"{0:020d}.log"
    position = sum(len(plain(10 * index)) for index in range(3))
    flip(log, position + 70)
    return orders, position


def test_damage_fails_with_file_position_and_code(damaged: tuple[Path, int]) -> None:
    directory, position = damaged
    with pytest.raises(KsegError) as caught:
        read(directory, "offset")
    text = str(caught.value)
    assert f"{0:020d}.log @ {position}" in text
    assert "[batch-crc]" in text
    assert "\n" not in text


def test_damage_is_skipped_logged_and_reported(
    damaged: tuple[Path, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory, position = damaged
    report = tmp_path / "report"
    given = {"onCorrupt": "skip", "reportPath": str(report)}
    rows = read(directory, "offset", **given)
    expected = [offset for offset in range(200) if not 30 <= offset < 40]
    assert rows.column(0).to_pylist() == expected
    (damage,) = read_report(report)
    assert (damage.code, damage.position, damage.offset) == ("batch-crc", position, 30)
    assert damage.path == str(directory / f"{0:020d}.log")
    assert "[batch-crc]" in caplog.text
    read(directory, "offset", **given)
    assert read_report(report) == [damage]


def test_a_report_shrinks_when_the_damage_is_gone(
    damaged: tuple[Path, int], tmp_path: Path
) -> None:
    directory, position = damaged
    report = tmp_path / "report"
    read(directory, "offset", onCorrupt="skip", reportPath=str(report))
    flip(directory / f"{0:020d}.log", position + 70)
    read(directory, "offset", onCorrupt="skip", reportPath=str(report))
    assert read_report(report) == []


@pytest.mark.parametrize("tail", [b"", bytes(50), plain(200)[:-5]])
def test_an_unfinished_tail_of_the_last_segment_is_no_damage(orders: Path, tail: bytes) -> None:
    log = orders / f"{100:020d}.log"
    log.write_bytes(log.read_bytes() + tail)
    assert read(orders, "offset").num_rows == 200
    assert read(log, "offset").num_rows == 100


def test_records_deleted_before_the_log_start_stay_deleted(orders: Path) -> None:
    checkpoint = orders.parent / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 3 42\n")
    assert read(orders, "offset").column(0).to_pylist() == list(range(42, 200))
    assert read(orders / f"{0:020d}.log", "offset").num_rows == 100


@pytest.mark.filterwarnings("ignore:.*read_committed ends at offset")
@pytest.mark.parametrize("word", ["wait", "abort"])
def test_committed_records_are_those_of_a_scan(fixture_cases: list[Path], word: str) -> None:
    found = 0
    logs = [path for case in fixture_cases for path in case.glob("*txn*-[0-9]*") if path.is_dir()]
    for path in logs:
        how = {"columns": ("offset", "key"), "isolation": "read_committed"}
        rows = [row for piece in scan(path, open_transactions=word, **how) for row in piece]  # type: ignore[arg-type]
        given = {"isolation": "read_committed", "openTransactions": word}
        for target in ("2000", "128m"):
            answer = read(path, "offset", targetPartitionBytes=target, **given)
            assert answer.column(0).to_pylist() == [row["offset"] for row in rows]
        key = next((row["key"] for row in rows if row["key"]), b"")
        answer = read(path, "offset", key=f"hex:{key.hex()}", **given)
        assert answer.column(0).to_pylist() == [row["offset"] for row in rows if row["key"] == key]
        found += len(rows) < scan(path).count()
    assert found > 0


@pytest.mark.parametrize("start", [None, 3, 5, 7])
@pytest.mark.parametrize("target", ["16", "1g"])
def test_tasks_agree_on_who_gives_what_segments_share(
    tmp_path: Path, target: str, start: int | None
) -> None:
    """Offsets 0 to 20, 5 to 9, 10 to 30 and 27 to 35, and one that starts below its base."""
    directory = tmp_path / "data" / "orders-0"
    for base, first, end in ((2, 0, 21), (5, 5, 10), (10, 10, 31), (27, 27, 36), (40, 36, 42)):
        parts = [batch([record(b"%d" % base)], base_offset=n) for n in range(first, end)]
        write_segment(directory, base, *parts)
    given = {"path": str(directory), "targetPartitionBytes": target}
    if start is not None:
        given["startingOffsets"] = json.dumps({"orders": {"0": start}})
    options = parse_options(given)
    tasks = make_plan(list_logs(options), options)
    found = [
        (offset, value)
        for task in tasks
        for split in task
        for columns in read_split(split, ("offset", "value"), options)
        for offset, value in zip(columns["offset"].tolist(), columns["value"], strict=True)
    ]
    with Log.open(directory) as log:
        expected = [(one.offset, one.value) for one in log.records(offset=(start, None))]
    assert found == expected
    assert [offset for offset, _ in found] == list(range(start or 2, 42))


def test_what_cannot_be_read_fails_a_query_or_is_a_row_of_damage(tmp_path: Path) -> None:
    write_segment(tmp_path / "orders-0", 0, batch([record(b"x")]))
    (tmp_path / "orders-1").symlink_to("gone")
    (tmp_path / "orders-2").mkdir()
    for word in ("fail", "skip"):
        with pytest.raises(OSError, match="orders-1"):
            list_logs(parse_options({"path": str(tmp_path), "onCorrupt": word}))
    options = parse_options({"path": str(tmp_path), "onCorrupt": "permissive"})
    tasks = make_plan(list_logs(options), options)
    fields = (("partition", IntegerType()), ("offset", LongType()), ("corrupt", StringType()))
    columns = schema.project(StructType([StructField(*field) for field in fields]), options)
    rows = [
        (row["partition"], row["offset"], row["corrupt"])
        for task in tasks
        for piece in read_task(task, columns, options)
        for row in piece.to_pylist()
    ]
    said = f"unreadable: {tmp_path}/orders-1: No such file or directory"
    assert rows == [(0, 0, None), (1, None, said)]


def test_keys_and_values_are_decoded_with_their_reasons_beside_them(tmp_path: Path) -> None:
    given = [record(b'{"n":1}', key=b"\0\0\0\7"), record(b"{", key=b"x"), record(None)]
    write_segment(tmp_path / "t-0", 0, batch(given))
    chosen = options(tmp_path / "t-0", decodeKey="Integer", decodeValue="json")
    assert schema.ddl(chosen) == (
        "`key` INT, `value` STRING, `topic` STRING, `partition` INT, `offset` BIGINT, "
        "`timestamp` TIMESTAMP_LTZ, `timestampType` INT, `keyError` STRING, `valueError` STRING"
    )
    fields = [("value", StringType()), ("keyError", StringType()), ("key", IntegerType())]
    wanted = schema.project(StructType([StructField(*field) for field in fields]), chosen)
    (task,) = make_plan(list_logs(chosen), chosen)
    (rows,) = read_task(task, wanted, chosen)
    assert rows.schema == wanted.schema
    assert rows.to_pylist() == [
        {"value": '{"n":1}', "keyError": None, "key": 7},
        {"value": None, "keyError": "int32 is 4 bytes, not 1", "key": None},
        {"value": None, "keyError": None, "key": None},
    ]
