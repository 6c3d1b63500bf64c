"""`kseg read`, `lookup` and `info` on small logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.errors import OffsetOutOfRangeError
from kseg.log.log import Log
from kseg.log.partitioners import partition_for
from tests.builders import GZIP, LZ4, batch, message, record, wrapper, write_segment
from tests.unit.cli.conftest import Kseg, overlapping
from tests.unit.log.test_key_places import sent

START_MS = 1_760_000_000_000


def offsets(kseg: Kseg, *words: object) -> list[int]:
    ran = kseg("read", "--format", "jsonl", *words)
    assert (ran.code, ran.err) == (0, "")
    return [row["offset"] for row in ran.rows]


READS = {
    "everything": ([], list(range(10))),
    "from an offset": (["--offset", "7.."], [7, 8, 9]),
    "from a time": (["--time", "2025-10-09T08:53:27Z.."], [7, 8, 9]),
    "from a while ago": (["--now", "2025-10-09T08:53:29Z", "--time", "-2s..now"], [7, 8]),
    "now said last": (["--time", "-2s..", "--now", "1760000009000"], [7, 8, 9]),
    "yesterday": (["--time", "yesterday..today", "--now", "2025-10-10", "--limit", "2"], [0, 1]),
    "a key": (["--key", "key 1"], [1, 7]),
    "the first": (["--limit", "2"], [0, 1]),
    "the last": (["--last", "5"], [5, 6, 7, 8, 9]),
    "the last of a key": (["--last", "1", "--key", "key 0"], [9]),
    "the last committed": (["--last", "2", "--isolation", "read_committed"], [8, 9]),
}


@pytest.mark.parametrize("name", READS)
def test_read_begins_where_it_is_told(kseg: Kseg, orders: Path, name: str) -> None:
    words, expected = READS[name]
    assert offsets(kseg, *words, orders) == expected


def test_last_counts_records_not_markers(kseg: Kseg, payments: Path) -> None:
    assert offsets(kseg, "--last", "3", payments) == [0, 2, 4]


def test_committed_records_exclude_aborted_and_undecided_ones(kseg: Kseg, payments: Path) -> None:
    ran = kseg("read", "--format", "jsonl", "--isolation", "read_committed", payments)
    assert (ran.code, [row["offset"] for row in ran.rows]) == (0, [0])
    assert "a transaction of producer" in ran.err


def test_read_keeps_to_the_log_start_offset(kseg: Kseg, orders: Path) -> None:
    checkpoint = orders.parent / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 4\n")
    assert offsets(kseg, orders) == [4, 5, 6, 7, 8, 9]
    assert offsets(kseg, "--last", "9", orders) == [4, 5, 6, 7, 8, 9]


def test_read_takes_one_file(kseg: Kseg, orders: Path) -> None:
    assert offsets(kseg, orders / "00000000000000000006.log") == [6, 7, 8, 9]


def test_committed_reading_of_one_file_is_refused(kseg: Kseg, orders: Path) -> None:
    ran = kseg("read", "--isolation", "read_committed", orders / "00000000000000000006.log")
    assert (ran.code, ran.out) == (2, b"")


def test_read_of_an_index_exits_3(kseg: Kseg, orders: Path) -> None:
    path = orders / "00000000000000000006.index"
    path.write_bytes(b"")
    assert kseg("read", path).code == 3


def test_read_goes_through_a_data_directory(kseg: Kseg, orders: Path, payments: Path) -> None:
    rows = kseg("read", "--format", "jsonl", orders.parent, "--limit", "12").rows
    assert [row["dir"] for row in rows] == ["orders-0"] * 10 + ["payments-0"] * 2


def test_read_refuses_damage_after_the_records_before_it(kseg: Kseg, tmp_path: Path) -> None:
    good = batch([record(b"a")])
    path = write_segment(tmp_path / "t-0", 0, good, batch([record(b"b")], base_offset=1, crc=5))
    ran = kseg("read", "--format", "jsonl", tmp_path / "t-0")
    assert ran.code == 1
    assert [row["offset"] for row in ran.rows] == [0]
    assert ran.err.count("\n") == 1
    assert f"{path} @ {len(good)}" in ran.err


def test_read_takes_a_torn_tail_for_a_write_not_finished(kseg: Kseg, orders: Path) -> None:
    last = orders / "00000000000000000006.log"
    last.write_bytes(last.read_bytes()[:-1])
    assert offsets(kseg, orders) == [0, 1, 2, 3, 4, 5]


# Lookup.


def test_lookup_names_the_first_record_at_a_time(kseg: Kseg, orders: Path) -> None:
    document = kseg("lookup", "--json", "--time", str(START_MS + 6001), orders).document
    assert document["segment"] == "00000000000000000006.log"
    assert (document["offset"], document["timestamp"]) == (7, START_MS + 7000)


def test_lookup_of_a_time_after_the_last_finds_nothing(kseg: Kseg, orders: Path) -> None:
    ran = kseg("lookup", "--json", "--time", "2100-01-01", orders)
    assert ran.code == 0
    assert ran.document["offset"] is None
    assert ran.document["segment"] is None
    assert kseg("lookup", "--time", "2100-01-01", orders).text == (
        "no record at or after this time\n"
    )


def test_lookup_of_an_offset_whose_records_are_lost_finds_nothing(kseg: Kseg, orders: Path) -> None:
    for log in orders.glob("*.log"):
        log.write_bytes(b"")
    ran = kseg("lookup", "--offset", "4", orders)
    assert (ran.code, ran.text) == (0, "no record at or after this offset\n")
    with Log.open(orders) as log, pytest.raises(OffsetOutOfRangeError) as gone:
        log.lookup(4)
    assert gone.value.reason == "no batch is left from here to the log's end at offset 6"


def test_lookup_says_which_index_entry_it_used(kseg: Kseg, fixtures_dir: Path) -> None:
    directory = fixtures_dir / "new" / "4.2.0-txn" / "txn-0"
    entry = kseg("lookup", "--json", "--offset", "100", directory).document["index_entry"]
    shown = kseg("dump", "--format", "jsonl", directory / "00000000000000000061.index").rows
    assert entry in [{"offset": row["offset"], "position": row["position"]} for row in shown]


def test_lookup_outside_the_log_exits_2_and_says_its_bounds(kseg: Kseg, orders: Path) -> None:
    ran = kseg("lookup", "--offset", "10", orders)
    assert (ran.code, ran.out) == (2, b"")
    assert "offsets 0 to 9" in ran.err


def test_lookup_wants_one_partition(kseg: Kseg, orders: Path, payments: Path) -> None:
    ran = kseg("lookup", "--offset", "1", orders.parent)
    assert ran.code == 2
    ran = kseg("lookup", "--offset", "1", "--topic", "orders", orders.parent)
    assert ran.code == 0


# Info.


def test_info_does_not_invent_counts_that_headers_do_not_say(kseg: Kseg, tmp_path: Path) -> None:
    parts = (
        message(record(b"a"), magic=0),
        wrapper([record(b"b", timestamp=9), record(b"c")], magic=1, codec=GZIP, base_offset=1),
    )
    path = write_segment(tmp_path / "t-0", 0, *parts)
    for place in (path, path.parent):
        (one,) = kseg("info", "--json", place).document["partitions"]
        assert one["records"] is None
        assert one["batches"] == 2
        assert one["log_end_offset"] == 3
        assert (one["min_timestamp"], one["max_timestamp"]) == (9, 9)
        assert (one["codecs"], one["magics"]) == (["none", "gzip"], [0, 1])


def test_info_tells_of_damage_that_headers_show(kseg: Kseg, orders: Path) -> None:
    first = orders / "00000000000000000000.log"
    first.write_bytes(first.read_bytes() + b"garbage, and enough of it for a header")
    ran = kseg("info", "--json", orders)
    assert ran.code == 1
    assert ran.document["partitions"][0]["records"] == 10
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("verb", ["info", "stats"])
@pytest.mark.parametrize("columns", ["80", "200"])
def test_tables_fit_the_terminal_with_the_largest_partition_first(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    base = 1_234_567_890_123
    for name, size in (("a-0", 10), ("b-0", 3 << 20), ("c-0", 5000)):
        given = batch([record(bytes(size), key=b"k" * 99)], base_offset=base)
        write_segment(tmp_path / name, base, given)
    long = f"{'long' * 20}-0"
    write_segment(tmp_path / long, 0, batch([record()]))
    table = kseg(verb, tmp_path).text.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table] == ["partition", "b-0", "c-0", "a-0", long, "1"]
    assert max(len(line) for line in table if line != long) <= int(columns)
    assert "3.0 MiB" in table[1]
    assert ("from" in table[0]) is (columns == "200")


def test_info_of_an_empty_log_has_no_times(kseg: Kseg, tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 17)
    (one,) = kseg("info", "--json", tmp_path / "t-0").document["partitions"]
    assert (one["log_start_offset"], one["log_end_offset"]) == (17, 17)
    assert one["min_timestamp"] is None
    assert kseg("info", tmp_path / "t-0").code == 0


def test_info_takes_log_append_time_from_where_it_is(kseg: Kseg, tmp_path: Path) -> None:
    data = batch([record(timestamp=5)], log_append=True, max_timestamp=77, codec=LZ4)
    write_segment(tmp_path / "t-0", 0, data)
    (one,) = kseg("info", "--json", tmp_path / "t-0").document["partitions"]
    assert (one["min_timestamp"], one["max_timestamp"]) == (77, 77)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], list(range(10))),
        (["--offset", "6..9"], [6, 7, 8]),
        (["--last", "3"], [7, 8, 9]),
        (["--last", "7"], [3, 4, 5, 6, 7, 8, 9]),
        (["--follow", "--offset", "2..10"], list(range(2, 10))),
    ],
)
def test_read_of_overlapping_segments_gives_each_offset_once(
    kseg: Kseg, tmp_path: Path, words: list[str], expected: list[int]
) -> None:
    ran = kseg("read", "--format", "jsonl", *words, overlapping(tmp_path))
    assert ran.code == 0
    assert [row["offset"] for row in ran.rows] == expected


@pytest.mark.parametrize("verb", ["read", "dump"])
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("whole", [True, False])
def test_offsets_below_a_base_stay_out_of_bounds(
    kseg: Kseg, tmp_path: Path, verb: str, codec: int, whole: bool
) -> None:
    given = batch([record(b"x") for _ in range(8)], base_offset=0, codec=codec)
    path = write_segment(tmp_path / "data" / "orders-0", 5, given)
    words = (verb, "--format", "jsonl", path.parent if whole else path)
    assert [row["offset"] for row in kseg(*words, "--offset", "5..7").rows] == [5, 6]
    assert kseg("lookup", path.parent, "--offset", 4).code == 2


def test_the_last_of_a_log_with_records_below_its_base_lie_in_the_log(
    kseg: Kseg, tmp_path: Path
) -> None:
    given = [batch([record(b"x")], base_offset=n) for n in range(8)]
    path = write_segment(tmp_path / "data" / "orders-0", 5, *given)
    ran = kseg("read", "--format", "jsonl", "--last", "5", path.parent)
    assert [row["offset"] for row in ran.rows] == [5, 6, 7]


def test_a_key_is_read_from_its_partition(kseg: Kseg, tmp_path: Path) -> None:
    home = sent(tmp_path / "data", counts=(3,))
    words = ("--key", "user-7", "--partitioner", "murmur2", "--partitions", 3)
    assert offsets(kseg, home, *words) == offsets(kseg, home, "--key", "user-7")
    (number,) = {partition_for("user-7", 3)}
    path = next((home / f"users-{(number or 0) - 1}").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert len(offsets(kseg, home, *words)) == 1
    assert len(offsets(kseg, *sorted(home.glob(f"users-{number}/*.log")), *words)) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "user-7", "--partitioner", "crc32", "--partitions", 3], "crc32 sends it to"),
        (["--key", "user-7", "--partitions", 3], "--partitions wants --partitioner"),
        (["--partitioner", "crc32"], "which wants --key"),
        (["--key", "user-7", "--partitioner", "murmur2", "--topic", "u"], "no topic here is u"),
    ],
)
def test_partitioners_that_cannot_be_exit_2(
    kseg: Kseg, tmp_path: Path, words: list[object], message: str
) -> None:
    ran = kseg("read", sent(tmp_path / "data", counts=(3,)), *words)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("more", [[], ["--isolation", "read_committed"], ["--limit", "3"]])
def test_read_steps_over_damage_where_it_is_asked_to(
    kseg: Kseg, tmp_path: Path, jobs: int, more: list[str]
) -> None:
    log = tmp_path / "orders-0"
    nested = wrapper([record(b"x")] * 2, magic=1, codec=GZIP)
    parts = [
        batch([record()] * 2),
        batch([record()] * 2, base_offset=2, crc=5),
        batch([record()], base_offset=4),
        wrapper([record()], magic=1, codec=GZIP, base_offset=5, inner=nested),
        batch([record()], base_offset=6),
    ]
    path = write_segment(log, 0, *parts)
    ran = kseg("read", "--format", "jsonl", "--jobs", jobs, *more, "--on-corrupt", "skip", log)
    offsets = [0, 1, 4, 6]
    is_whole = "--limit" not in more
    assert [row["offset"] for row in ran.rows] == (offsets if is_whole else offsets[:3])
    assert f"kseg: {path} @ {len(parts[0])}, offset 2" in ran.err
    assert ("a compressed message inside a compressed message" in ran.err) == is_whole
    assert ran.code == 1
    stopped = kseg("read", "--format", "jsonl", "--jobs", jobs, log)
    assert (stopped.code, [row["offset"] for row in stopped.rows]) == (1, offsets[:2])
    assert kseg("read", "--follow", "--on-corrupt", "skip", log).code == 2
