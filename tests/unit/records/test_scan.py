"""scan: many sources as one stream, begun again each time."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

import duckdb
import pandas
import pytest

import kseg
from kseg import CorruptRecordError, scan
from tests.builders import batch, record, write_segment
from tests.unit.log.brute import rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`orders` with two partitions, `users` with one, one deleted; offsets count from 0 in each."""
    root = tmp_path / "data"
    for name in ("orders-0", "orders-10", "orders-9", "users-0", "gone-0." + "a" * 32 + "-delete"):
        parts = [
            batch(
                [record(f"{name}:{at}".encode(), timestamp=1000 * at + by) for by in range(2)],
                base_offset=2 * at,
            )
            for at in range(4)
        ]
        write_segment(root / name, 0, *parts[:2])
        write_segment(root / name, 4, *parts[2:])
    return root


def values(found: kseg.Scan) -> list[str]:
    return [value.decode() for piece in found for value in piece.value]


def test_a_data_directory_is_read_partition_by_partition(data: Path) -> None:
    found = scan(data)
    assert found.columns == (
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
    )
    pieces = list(found)
    seen = list(dict.fromkeys((piece.topic, piece.partition) for piece in pieces))
    assert sorted(seen) == [("orders", 0), ("orders", 9), ("orders", 10), ("users", 0)]
    assert len(values(found)) == 4 * 8
    for piece in pieces:
        assert piece.source is not None
        assert Path(piece.source).parent.name == f"{piece.topic}-{piece.partition}"


def test_topics_and_partitions_choose(data: Path) -> None:
    def chosen(**where: Any) -> set[str]:
        return {source.path.name for source in scan(data, **where).sources}

    assert chosen(topics=["orders"]) == {"orders-0", "orders-9", "orders-10"}
    assert chosen(partitions=[0]) == {"orders-0", "users-0"}
    assert chosen(topics=["orders", "users"], partitions=[9, 0]) == {
        "orders-0",
        "orders-9",
        "users-0",
    }
    assert chosen(topics="orders", partitions=0) == {"orders-0"}
    assert chosen(topics="*ers") == chosen()
    with pytest.raises(ValueError, match="no topic here is order; did you mean orders"):
        chosen(topics="order")
    with pytest.raises(ValueError, match="there are 0, 9, 10"):
        chosen(topics="orders", partitions=[1, 2])


def test_paths_may_be_files_partitions_and_directories_at_once(data: Path) -> None:
    file = data / "users-0" / f"{4:020d}.log"
    found = scan([file, data / "orders-0", str(data / "orders-9")])
    texts = values(found)
    assert texts[:4] == [f"users-0:{at}" for at in (2, 2, 3, 3)]
    assert len(texts) == 4 + 8 + 8
    assert [source.is_file for source in found.sources] == [True, False, False]
    assert next((s.topic, s.partition) for s in found.sources) == ("users", 0)
    assert scan(file).columns == kseg.scan(data / "users-0").columns
    assert scan(file).columns[:2] == ("topic", "partition")


def test_each_iteration_begins_anew_and_lazily(data: Path) -> None:
    found = scan(data / "orders-0", max_rows=3)
    first, second = iter(found), iter(found)
    assert next(first).offset.tolist() == next(second).offset.tolist()
    assert [len(piece) for piece in found] == [len(piece) for piece in found]
    lazy = scan(data / "users-0")
    for path in (data / "users-0").iterdir():
        path.unlink()
    (data / "users-0").rmdir()
    with pytest.raises(FileNotFoundError):
        list(lazy)


def test_faults_are_kept_and_forgotten_by_the_next_iteration(data: Path) -> None:
    path = data / "orders-0" / f"{0:020d}.log"
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[: half + 70] + b"?!" + whole[half + 72 :])
    (data / "users-0" / f"{0:020d}.log").write_bytes(whole[:-5])
    found = scan(data, on_corrupt="skip", topics=["orders", "users"])
    for _ in range(2):
        assert len(values(found)) == 4 * 8 - 4
        assert {(error.path, error.position) for error in found.errors} == {
            (str(path), half),
            (str(data / "users-0" / path.name), half),
        }
    with pytest.raises(CorruptRecordError):
        list(scan(data))
    path.write_bytes(whole)
    (data / "users-0" / path.name).write_bytes(whole)
    assert len(values(found)) == 4 * 8
    assert found.errors == []


def test_headers_alone_come_as_tables(data: Path) -> None:
    tables = list(scan([data / "orders-0", data / "users-0" / f"{4:020d}.log"]).batches())
    assert sum(len(table) for table in tables) == 6
    assert {int(ok) for table in tables for ok in table.crc_ok} == {1}


@pytest.mark.parametrize(
    "bounds",
    [1.5, (1,), (1, 2, 3), ("2026-01-01", None), (None, 1.5), range(1, 9, 2), {1, 2}, True],
)
def test_bounds_are_whole_numbers(tmp_path: Path, bounds: Any) -> None:
    write_segment(tmp_path / "t-0", 0)
    with pytest.raises(TypeError, match=r"offset is one offset, or \(start, end\)"):
        scan(tmp_path / "t-0", offset=bounds)


def test_a_range_bounds_what_it_bounds_everywhere_in_python(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kseg.Log.open(path, mode="append", create=True) as log:
        log.append({"value": [b"x"] * 9, "timestamp": list(range(9))})
    for given, wanted in ((range(3, 5), [3, 4]), (range(100), list(range(9))), (range(5, 3), [])):
        for name in ("offset", "time"):
            found = scan(path, columns=("offset",), **{name: given})  # type: ignore[arg-type]
            assert [one for columns in found for one in columns["offset"].tolist()] == wanted


@pytest.mark.parametrize(
    "bounds",
    [5, (1,), (1, 2, 3), "2026-01-01T00:00Z", datetime(2026, 1, 1), (None, 1.5), range(1, 9, 2)],
)
def test_bounds_of_time_are_a_pair_of_times(tmp_path: Path, bounds: Any) -> None:
    write_segment(tmp_path / "t-0", 0)
    with pytest.raises(TypeError, match=r"time is one day, as a date|a time is an integer"):
        scan(tmp_path / "t-0", time=bounds)


def test_replicas_are_refused_and_a_path_given_twice_counts_once(tmp_path: Path) -> None:
    for broker in ("b1", "b2"):
        write_segment(tmp_path / broker / "t-0", 0)
    one, other = tmp_path / "b1", tmp_path / "b2"
    for paths in ([one, other], [one / "t-0", other], [one, other / "t-0" / f"{0:020d}.log"]):
        with pytest.raises(ValueError, match=r"t-0 is both .*/b1/t-0 and .*/b2/t-0") as caught:
            scan(paths)
        assert f"\nkseg merge {one}/t-0 {other}/t-0 -o OUT" in str(caught.value)
    once = values(scan(one))
    for paths in ([one, one], [one, other / ".." / "b1" / "t-0"]):
        assert values(scan(paths)) == once
    assert values(scan([one / "t-0" / f"{0:020d}.log", one])) == once
    (other / "t-0").rename(other / f"t-0.{'0' * 32}-future")
    assert values(scan([one, other])) == once


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """Keys that are numbers, values that are JSON, but for the last ones."""
    path = tmp_path / "typed-0"
    keys = [*(number.to_bytes(4, "big") for number in range(50)), b"x", None]
    values = [*(b'{"n": %d}' % number for number in range(50)), b"{", None]
    with kseg.Log.open(path, mode="append", create=True) as log:
        log.append({"key": keys, "value": values})
    return path


@pytest.mark.parametrize("threads", [1, 2])
def test_keys_and_values_are_decoded_and_why_not_stands_beside_them(
    typed: Path, threads: int
) -> None:
    found = scan(typed, decode={"key": "integer", "value": "json"}, threads=threads, max_rows=20)
    rows = [row for columns in found for row in columns]
    assert [(row["key"], row["value"]) for row in rows[:50]] == [(n, {"n": n}) for n in range(50)]
    table = found.to_arrow()
    assert table.column_names == list(found.columns) == list(rows[0])
    assert table["key"].to_pylist() == [*range(50), None, None]
    assert table["key_error"].to_pylist()[49:] == [None, "int32 is 4 bytes, not 1", None]
    assert table["value"].to_pylist()[48:] == ['{"n": 48}', '{"n": 49}', None, None]
    reason = "not JSON at character 1: Expecting property name enclosed in double quotes"
    assert table["value_error"].to_pylist()[49:] == [None, reason, None]
    assert found.to_polars()["value_error"][50] == found.to_pandas()["value_error"][50] == reason
    summed = duckdb.sql("select sum((value->>'n')::int) from found")
    assert summed.limit(1).fetchall() == [(1225,)]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"decode": {"value": "xml"}}, ValueError, "nothing is decoded as 'xml'"),
        ({"decode": {"offset": "text"}}, ValueError, "'offset' is not decoded; there are: key"),
        ({"decode": 3}, TypeError, "decode is a dict"),
        ({"decode": "jsn"}, ValueError, "nothing is decoded as 'jsn'"),
        ({"decode": {"key": "text"}, "columns": ("value",)}, ValueError, "not among the fields"),
        ({"columns": ("value", "value_error")}, ValueError, "where decode names 'value'"),
    ],
)
def test_what_cannot_be_decoded_is_refused_before_anything_is_read(
    typed: Path, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        scan(typed, **given)


# ---- one vocabulary ------------------------------------------------------------------------------


def offsets(found: kseg.Scan) -> list[tuple[Any, ...]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in dicts(found)]


def dicts(found: kseg.Scan) -> list[dict[str, Any]]:
    return [row for columns in found for row in columns]


def test_one_offset_and_offsets_by_partition(data: Path) -> None:
    assert offsets(scan(data, topics="orders", partitions=0, offset=3)) == [("orders", 0, 3)]
    by_number = scan(data, topics="orders", offset={0: 6, 9: (2, 4), 10: range(0)})
    assert offsets(by_number) == [
        ("orders", 0, 6),
        ("orders", 0, 7),
        ("orders", 9, 2),
        ("orders", 9, 3),
    ]
    by_name = scan(data, partitions=0, offset={("users", 0): 7, ("orders", 0): 6}, threads=2)
    assert offsets(by_name) == [("orders", 0, 6), ("orders", 0, 7), ("users", 0, 7)]
    assert len(offsets(scan(data, partitions=0, offset={("users", 0): 7}))) == 8 + 1
    for wrong in ({"orders": 3}, {(0, "orders"): 3}, {0: "x"}, {0: 1.5}):
        with pytest.raises(TypeError, match="offset is"):
            scan(data, offset=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("time", "wanted"),
    [
        ("1970-01-01", 8),
        (date(1970, 1, 2), 0),
        ("-1s", 3),
        (("-2s", "now"), 4),
        ((datetime(1970, 1, 1, 0, 0, 3), None), 2),
        ((datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), None), 2),
        ("today", 8),
        ("yesterday", 0),
        (None, 8),
    ],
)
def test_times_are_days_spans_and_pairs(data: Path, time: Any, wanted: int) -> None:
    found = scan(data / "orders-0", time=time, now=3_001)
    assert sum(map(len, found)) == wanted
    assert sum(map(len, found.head(100))) == wanted


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("limit", [0, 1, 5, 11, 100])
def test_a_limit_is_of_the_whole_answer(data: Path, limit: int, threads: int) -> None:
    found = scan(data, max_rows=3, limit=limit, threads=threads)
    assert offsets(found) == offsets(scan(data))[:limit]
    assert found.to_arrow().num_rows == min(limit, 32)
    assert sum(map(len, found.head(4))) == min(limit, 4)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_key_chooses_records(typed: Path, threads: int) -> None:
    wanted = (7).to_bytes(4, "big")
    for options in ({"key": wanted}, {"key": 7, "decode": {"key": "int32"}}):
        found = scan(typed, threads=threads, max_rows=9, **options)  # type: ignore[arg-type]
        assert [row["value"] for row in dicts(found)] == [b'{"n": 7}']
        only = scan(typed, columns=["offset"], threads=threads, key=wanted)
        assert dicts(only) == [{"topic": "typed", "partition": 0, "offset": 7}]
        assert only.to_arrow().column_names == ["offset"]
    assert dicts(scan(typed, key="x"))[0]["offset"] == 50
    assert dicts(scan(typed, key="nobody")) == []
    with pytest.raises(TypeError, match="a number needs its kind"):
        scan(typed, key=7)
    with pytest.raises(ValueError, match="is no int16"):
        scan(typed, key=70_000, decode={"key": "int16"})


def test_schema_and_headers_as_arrow(data: Path) -> None:
    found = scan(data, columns=("partition", "timestamp"))
    assert found.schema == found.to_arrow().schema
    headers = found.batches_arrow().read_all()
    assert headers.num_rows == 4 * 4
    assert headers.slice(0, 1).to_pylist()[0] | {"position": 0, "size": 0} == {
        "topic": "orders",
        "partition": 0,
        "position": 0,
        "size": 0,
        "magic": 2,
        "base_offset": 0,
        "last_offset": 1,
        "record_count": 2,
        "timestamp_type": "CreateTime",
        "base_timestamp": datetime.fromtimestamp(0, UTC),
        "max_timestamp": datetime.fromtimestamp(0.001, UTC),
        "codec": "none",
        "leader_epoch": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "control": False,
        "control_type": None,
        "valid": True,
    }


@pytest.mark.parametrize("options", [{"time": (1001, 3001)}, {"key": "k"}, {"limit": 5}])
def test_a_count_decodes_for_times_keys_and_limits(data: Path, options: dict[str, Any]) -> None:
    found = scan(data, **options)
    assert found.count() == sum(map(len, found))


def test_a_count_leaves_bodies_alone(data: Path) -> None:
    path = data / "orders-0" / f"{0:020d}.log"
    whole = bytearray(path.read_bytes())
    whole[-2] ^= 1
    path.write_bytes(whole)
    assert scan(data).count() == 32
    with pytest.raises(CorruptRecordError):
        scan(data, offset=(None, 3)).count()


def test_globs_pass_over_what_is_no_log_and_what_a_broker_set_aside(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("cleaner-offset-checkpoint", "meta.properties", "bootstrap.checkpoint"):
        (data / name).write_bytes(b"0\n0\n")
    (data / "users-0" / f"{0:020d}.index").write_bytes(b"")
    assert values(scan(data / "*")) == values(scan(data))
    assert caplog.messages[0].count("-delete: left out: ") == 1
    assert values(scan(data / "users-0" / "*")) == values(scan(data / "users-0"))
    assert len(values(scan(data / "gone-*"))) == 8  # it matches nothing else
    assert {one.topic for one in kseg.topics(data / "*")} == {"orders", "users"}


def test_a_scan_becomes_a_frame_of_pandas(data: Path) -> None:
    found = pandas.DataFrame(scan(data, topics="users"))
    other = scan(data, topics="users").to_pandas()
    assert list(found.columns) == list(other.columns)
    assert found["value"].tolist() == other["value"].tolist()
    assert (found["timestamp"] == other["timestamp"]).all()


def files_under(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


COLUMNS = "topic,partition,offset,timestamp,key,value,headers"


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("words", "chosen", "options"),
    [
        ([], {}, {}),
        (["--partition-by", "day"], {}, {"partition_by": "day"}),
        (["--partition-by", "topic,partition"], {}, {"partition_by": ["topic", "partition"]}),
        (["--partition-by", "day,topic", "--per", "topic"], {}, {"partition_by": ("day", "topic")}),
        (["--per", "topic", "--offset", "3..7"], {"offset": (3, 7)}, {"per": "topic"}),
        (["--key", "k1", "--time", "0..3000"], {"key": "k1", "time": (0, 3000)}, {}),
        (["--limit", "19"], {"limit": 19}, {}),
        (["--topic", "o*", "--partition", "0,9"], {"topics": "o*", "partitions": [0, 9]}, {}),
    ],
)
def test_parquet_files_are_those_of_the_command(
    typed_data: Path,
    tmp_path: Path,
    words: list[str],
    chosen: dict[str, Any],
    options: dict[str, Any],
    threads: int,
) -> None:
    from kseg.cli.main import run

    if "--per" in words:
        options = options | {"per": "topic"}
    command = ["export", str(typed_data), "-o", str(tmp_path / "a"), "--fields", COLUMNS, *words]
    assert run(command) == 0
    found = scan(typed_data, threads=threads, **chosen)
    for _again in range(2):
        written = found.to_parquet(tmp_path / "b", **options)
        assert files_under(tmp_path / "b") == files_under(tmp_path / "a")
    rows = written.table_rows()
    assert sum(row["records"] for row in rows) == sum(map(len, found))
    assert {row["path"]: row["bytes"] for row in rows} == {
        str(tmp_path / "b" / name): len(held) for name, held in files_under(tmp_path / "b").items()
    }


@pytest.fixture
def typed_data(data: Path) -> Path:
    """`data` with keys in one more topic, without the partition that was deleted."""
    rmtree(next(data.glob("gone-*")))
    given = [record(b"{}", key=b"k%d" % (at % 2), timestamp=1000 * at) for at in range(6)]
    write_segment(data / "keyed-0", 0, batch(given))
    return data


def test_parquet_of_a_file_and_of_what_does_not_decode(
    typed: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from kseg.cli.main import run

    out = tmp_path_factory.mktemp("out")  # not beside the log
    source = next(typed.rglob("*.log"))
    words = ["--decode-value", "json", "--keep-bytes", "--fields", COLUMNS]
    assert run(["export", str(source), "-o", str(out / "a.parquet"), *words]) == 1
    found = scan(source, decode="json")
    with pytest.warns(UserWarning, match="not decode as json .*their bytes are in value_bytes"):
        found.to_parquet(out / "b.parquet", keep_bytes=True)
    assert (out / "b.parquet").read_bytes() == (out / "a.parquet").read_bytes()
    with pytest.warns(UserWarning, match="keep_bytes=True keeps their bytes"):
        found.to_parquet(out / "c.parquet")


@pytest.mark.parametrize(
    ("out", "options", "error", "text"),
    [
        ("https://host/out", {}, ValueError, "a web server, which takes no files"),
        (b"out", {}, TypeError, "out is the path"),
        ("out.parquet", {}, ValueError, "4 files would be written"),
        ("out.pq", {}, ValueError, "unknown extension"),
        ("out", {"per": "batch"}, ValueError, "per is partition or segment or topic"),
        ("out", {"partition_by": "hour"}, ValueError, "partition_by is of day, topic, partition"),
        ("out", {"partition_by": 5}, TypeError, "partition_by is a name, or several, not 5"),
        ("out", {"keep_bytes": True}, ValueError, "keep_bytes needs decode"),
    ],
)
def test_what_no_parquet_is_written_to(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    out: Any,
    options: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=text):
        scan(data).to_parquet(out, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_parquet_of_replicas_and_damage(data: Path, tmp_path: Path) -> None:
    other = write_segment(tmp_path / "other" / "users-0", 0, batch([record(b"more")])).parent
    both = scan([data, other.parent], topics="users", replicas="all")
    with pytest.raises(ValueError, match="the same name"):
        both.to_parquet(tmp_path / "out")
    written = both.to_parquet(tmp_path / "out", per="topic")
    assert written.table_rows()[0]["records"] == 9
    seen: list[tuple[int, int]] = []
    path = next(iter(sorted((data / "users-0").iterdir())))
    held = bytearray(path.read_bytes())
    held[-1] ^= 1
    path.write_bytes(held)
    with pytest.raises(CorruptRecordError):
        scan(data / "users-0").to_parquet(tmp_path / "one.parquet")
    assert not (tmp_path / "one.parquet").exists()
    found = scan(
        data / "users-0", on_corrupt="skip", progress=lambda done, total: seen.append((done, total))
    )
    found.to_parquet(tmp_path / "one.parquet")
    assert (len(found.errors), seen[-1][0]) == (1, seen[-1][1])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_gives_offsets_that_a_partition_does_not_have(tmp_path: Path, threads: int) -> None:
    path = write_segment(
        tmp_path / "orders-0",
        50,
        *(batch([record()], base_offset=offset) for offset in (-5, 3, 60)),
    )
    for place, offsets in ((path, [-5, 3, 60]), (path.parent, [60])):
        found = scan(place, columns=("offset",), threads=threads)
        assert [row["offset"] for row in rows(found)] == offsets
        assert found.count() == len(offsets)
