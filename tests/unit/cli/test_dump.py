"""`kseg dump`: what is there, in file order; findings on standard error; ranges, keys, tails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kseg.cli import dump
from kseg.cli.kafka_dump import run as kafka_run
from tests.builders import (
    COMMIT,
    GZIP,
    ZSTD,
    batch,
    control_batch,
    message,
    messages,
    messages07,
    record,
    wrapper,
    write_segment,
)
from tests.builders import write_segment as segment
from tests.inner_faults import ERAS, wrong_inner_message
from tests.unit.cli.conftest import Kseg, Ran

LOG = "00000000000000000000.log"


def test_a_data_directory_is_dumped_partition_by_partition(
    kseg: Kseg, orders: Path, payments: Path
) -> None:
    ran = kseg("dump", "--format", "jsonl", orders.parent)
    assert [row["dir"] for row in ran.rows] == ["orders-0"] * 10 + ["payments-0"] * 5


def test_choosing_nothing_exits_3(kseg: Kseg, orders: Path) -> None:
    ran = kseg("dump", "--topic", "nothing", orders.parent)
    assert (ran.code, ran.out) == (3, b"")


RANGES = {
    "offsets": (["--offset", "3..8"], [3, 4, 5, 6, 7]),
    "one offset": (["--offset", "7"], [7]),
    "offsets from": (["--offset", "8.."], [8, 9]),
    "offsets to": (["--offset", "..2"], [0, 1]),
    "offsets of the second segment": (["--offset", "6..7"], [6]),
    "times": (["--time", "2025-10-09T08:53:27..2025-10-09T08:53:29"], [7, 8]),
    "times in ms": (["--time", "0..1760000001000"], [0, 4]),
    "key": (["--key", "key 1"], [1, 7]),
    "empty key": (["--key", ""], [4]),
    "key in hex": (["--key", "hex:6b65792031"], [1, 7]),
    "limit": (["--limit", "3"], [0, 1, 2]),
    "limit over a segment": (["--limit", "7"], [0, 1, 2, 3, 4, 5, 6]),
    "limit 0": (["--limit", "0"], []),
    "last": (["--last", "2"], [8, 9]),
    "last over a segment": (["--last", "5"], [5, 6, 7, 8, 9]),
    "last of more than all": (["--last", "99"], list(range(10))),
    "last 0": (["--last", "0"], []),
    "last with a key": (["--last", "1", "--key", "key 1"], [7]),
    "last in a range": (["--last", "2", "--offset", "..6"], [4, 5]),
    "key and limit": (["--key", "key 2", "--limit", "1"], [2]),
}


@pytest.mark.parametrize("name", RANGES)
def test_records_are_chosen(kseg: Kseg, orders: Path, name: str) -> None:
    words, offsets = RANGES[name]
    ran = kseg("dump", "--format", "jsonl", *words, orders)
    assert ran.code == 0
    assert [row["offset"] for row in ran.rows] == offsets


def test_last_counts_per_partition(kseg: Kseg, orders: Path, payments: Path) -> None:
    ran = kseg("dump", "--format", "jsonl", "--last", "2", orders.parent)
    assert [(row["dir"], row["offset"]) for row in ran.rows] == [
        ("orders-0", 8),
        ("orders-0", 9),
        ("payments-0", 3),
        ("payments-0", 4),
    ]


@pytest.mark.parametrize(
    ("words", "bases"),
    [
        (["--offset", "3..6"], [2]),
        (["--offset", "6.."], [6]),
        (["--limit", "2"], [0, 2]),
        (["--last", "2"], [2, 6]),
        (["--last", "1", "--offset", "..6"], [2]),
        (["--time", "1760000006000.."], [6]),
    ],
)
def test_batches_are_chosen_by_what_they_can_hold(
    kseg: Kseg, orders: Path, words: list[str], bases: list[int]
) -> None:
    ran = kseg("dump", "--batches", "--format", "jsonl", *words, orders)
    assert [row["base_offset"] for row in ran.rows] == bases


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("rows", ["--records", "--batches"])
def test_a_wrong_checksum_inside_a_sound_wrapper_is_found(
    kseg: Kseg, tmp_path: Path, era: str, rows: str
) -> None:
    ran = kseg("dump", rows, "--format", "jsonl", wrong_inner_message(tmp_path, era))
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert "a message inside does not match its checksum" in ran.err
    if rows == "--records" and era != "Kafka 0.7":  # that format's offsets lie in no message
        assert [(row["offset"], row["valid"]) for row in ran.rows] == [
            (0, True),
            (1, False),
            (2, True),
        ]


def test_wrappers_are_looked_into_for_their_count(kseg: Kseg, tmp_path: Path) -> None:
    good = wrapper([record(b"a"), record(b"b")], magic=1, codec=GZIP, base_offset=8)
    broken = wrapper([record(b"c")], magic=1, codec=GZIP, inner=b"nothing", offset=12)
    plain = message(record(b"d"), magic=1, offset=13)
    path = write_segment(tmp_path, 8, good, broken, plain)
    ran = kseg("dump", "--batches", "--format", "jsonl", path)
    assert [(row["base_offset"], row["last_offset"], row["count"]) for row in ran.rows] == [
        (8, 9, 2),
        (None, 12, None),
        (13, 13, 1),
    ]


def test_kafka_07_says_where_the_next_message_starts(kseg: Kseg, tmp_path: Path) -> None:
    data = messages07([b"one", b"three"])
    path = write_segment(tmp_path, 100, data, suffix=".kafka")
    rows = kseg("dump", "--format", "jsonl", path).rows
    assert [row["offset"] for row in rows] == [100, 113]
    assert [row["next_offset"] for row in rows] == [113, 100 + len(data)]
    batches = kseg("dump", "--batches", "--format", "jsonl", path).rows
    assert [row["count"] for row in batches] == [1, 1]


# Damage.


def test_a_wrong_checksum_is_passed_and_said(kseg: Kseg, tmp_path: Path) -> None:
    good = batch([record(b"a")])
    bad = batch([record(b"b")], base_offset=1, crc=7)
    path = write_segment(tmp_path, 0, good, bad, batch([record(b"c")], base_offset=2))
    ran = kseg("dump", "--format", "jsonl", path)
    assert ran.code == 1
    assert [(row["offset"], row["valid"]) for row in ran.rows] == [(0, True), (1, False), (2, True)]
    assert ran.err.count("\n") == 1
    assert f"{path} @ {len(good)}, offset 1" in ran.err


STOPS = {
    "a torn batch": batch([record(b"x")], base_offset=1)[:-1],
    "a size that no batch has": b"\0" * 8 + b"\0\0\0\1" + b"x" * 60,
    "an unknown magic": batch([record(b"x")], magic=9),
}


@pytest.mark.parametrize("name", STOPS)
def test_what_follows_the_last_batch_is_said_once(kseg: Kseg, tmp_path: Path, name: str) -> None:
    good = batch([record(b"a")])
    path = write_segment(tmp_path, 0, good, STOPS[name])
    ran = kseg("dump", "--format", "jsonl", path)
    assert ran.code == 1
    assert len(ran.rows) == 1
    assert ran.err.count("\n") == 1
    assert f"{path} @ {len(good)}: " in ran.err


def test_zeros_at_the_end_are_preallocation_in_the_last_segment(kseg: Kseg, orders: Path) -> None:
    last = orders / "00000000000000000006.log"
    last.write_bytes(last.read_bytes() + bytes(1000))
    ran = kseg("dump", "--format", "jsonl", orders)
    assert (ran.code, len(ran.rows)) == (0, 10)
    assert "warning" in ran.err


def test_zeros_at_the_end_of_an_earlier_segment_are_damage(kseg: Kseg, orders: Path) -> None:
    first = orders / LOG
    first.write_bytes(first.read_bytes() + bytes(1000))
    ran = kseg("dump", "--format", "jsonl", orders)
    assert (ran.code, len(ran.rows)) == (1, 10)
    assert "warning" not in ran.err


def test_a_batch_that_cannot_be_decoded_is_said_and_the_next_go_on(
    kseg: Kseg, tmp_path: Path
) -> None:
    broken = batch([record(b"x")], base_offset=1, count=5)
    path = write_segment(
        tmp_path, 0, batch([record(b"a")]), broken, batch([record(b"c")], base_offset=2)
    )
    ran = kseg("dump", "--format", "jsonl", path)
    assert ran.code == 1
    offsets = [row["offset"] for row in ran.rows]
    assert (offsets[0], offsets[-1]) == (0, 2)
    assert ran.err.count("\n") == 1


# Standard input.


def test_a_stream_of_batches_is_read_from_standard_input(kseg: Kseg, orders: Path) -> None:
    data = b"".join(path.read_bytes() for path in sorted(orders.glob("*.log")))
    ran = kseg("dump", "--format", "jsonl", "-", stdin=data)
    assert (ran.code, ran.err) == (0, "")
    assert [row["offset"] for row in ran.rows] == list(range(10))
    assert {row["file"] for row in ran.rows} == {"-"}


def test_a_stream_longer_than_its_window_is_read_whole(kseg: Kseg) -> None:
    many = [batch([record(b"x" * 100_000)], base_offset=n) for n in range(30)]
    many.insert(7, batch([record(b"y" * 3_000_000)], base_offset=7))
    ran = kseg("dump", "--batches", "--format", "jsonl", "-", stdin=b"".join(many))
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.rows) == 31
    starts = [sum(map(len, many[:n])) for n in range(31)]
    assert [row["position"] for row in ran.rows] == starts


@pytest.mark.parametrize(
    ("tail", "code"), [(bytes(3_000_000), 0), (bytes(3_000_000) + b"x", 1), (b"torn", 1)]
)
def test_the_end_of_a_stream_is_judged_when_it_has_come(kseg: Kseg, tail: bytes, code: int) -> None:
    ran = kseg("dump", "--format", "jsonl", "-", stdin=batch([record(b"a")]) + tail)
    assert (ran.code, len(ran.rows)) == (code, 1)
    assert ran.err.count("\n") == 1


def test_an_empty_stream_has_nothing(kseg: Kseg) -> None:
    ran = kseg("dump", "--format", "jsonl", "-")
    assert (ran.code, ran.out, ran.err) == (0, b"", "")


# Text and CSV.


def test_text_of_the_last_rows_names_the_partition(kseg: Kseg, orders: Path) -> None:
    for words in (["--last", "5"], ["--last", "5", "--offset", "1.."]):
        lines = kseg("dump", *words, orders).text.splitlines()
        assert lines[0] == f"# {orders}"
        assert [line.split()[0] for line in lines[1:]] == [f"offset={n}" for n in range(5, 10)]


# The files beside the logs.


@pytest.fixture
def txn(fixtures_dir: Path, tmp_path: Path) -> Path:
    """A partition that a 4.2.0 broker left, with every kind of file beside its logs."""
    return Path(shutil.copytree(fixtures_dir / "new" / "4.2.0-txn", tmp_path / "case"))


ENTRIES = {
    "txn-0/00000000000000000061.index": {"entry", "offset", "position"},
    "txn-0/00000000000000000061.timeindex": {"entry", "timestamp", "offset"},
    "txn-0/00000000000000000061.txnindex": {
        "entry",
        "producer_id",
        "first_offset",
        "last_offset",
        "last_stable_offset",
    },
    "txn-0/00000000000000000061.snapshot": {
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_offset",
        "offset_delta",
        "last_timestamp",
        "coordinator_epoch",
        "current_txn_first_offset",
    },
    "txn-0/leader-epoch-checkpoint": {"epoch", "start_offset"},
    "txn-0/partition.metadata": {"version", "topic_id"},
    "recovery-point-offset-checkpoint": {"topic", "partition", "offset"},
    "meta.properties": {"name", "value"},
}


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_of_other_files_are_shown(kseg: Kseg, txn: Path, name: str) -> None:
    path = txn / name
    rows = kseg("dump", "--format", "jsonl", path).rows
    assert rows
    assert {frozenset(row) - {"file"} for row in rows} == {frozenset(ENTRIES[name])}
    assert {row["file"] for row in rows} == {path.name}
    assert len(kseg("dump", path).text.splitlines()) == len(rows)
    csv_lines = kseg("dump", "--format", "csv", path).text.splitlines()
    assert len(csv_lines) == len(rows) + 1


def test_a_broken_index_is_a_finding(kseg: Kseg, txn: Path) -> None:
    path = txn / "txn-0" / "00000000000000000061.snapshot"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    ran = kseg("dump", path)
    assert ran.code == 1
    assert ran.err.count("\n") == 1


def test_a_damaged_wrapper_is_named_by_the_offset_that_its_header_has(
    kseg: Kseg, tmp_path: Path
) -> None:
    data = bytearray(wrapper([record(b"a"), record(b"b")], magic=1, codec=GZIP, base_offset=8))
    data[12] ^= 1  # the checksum
    ran = kseg("dump", "--format", "jsonl", write_segment(tmp_path, 8, bytes(data)))
    assert ran.code == 1
    assert ", offset 9: " in ran.err
    assert [(row["offset"], row["valid"]) for row in ran.rows] == [(8, False), (9, False)]


DEEP = ("--kafka", "--deep-iteration", "--print-data-log")
FORMS = {
    "text": (),
    "text of batches": ("--batches",),
    "lines of JSON": ("--format", "jsonl"),
    "lines of JSON, a key": ("--format", "jsonl", "--key", "k1"),
    "lines of JSON, a range": ("--format", "jsonl", "--offset", "5..40"),
    "the first rows": ("--format", "jsonl", "--limit", "7"),
    "the last rows": ("--format", "jsonl", "--last", "7"),
    "csv": ("--format", "csv", "--bytes", "utf8"),
    "read, not mapped": ("--mapping", "never"),
    "kafka": ("--kafka",),
    "kafka, deep": DEEP,
    "kafka 0.11": (*DEEP, "--kafka-version", "0.11"),
}


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Partitions of several eras and segments, sound and damaged, cut into many pieces."""
    monkeypatch.setattr(dump, "PIECE_BYTES", 200)
    monkeypatch.setattr(kafka_run, "PIECE_BYTES", 200)
    data = tmp_path / "data"
    batches = [
        batch(
            [record(b"\xff%d" % n, key=b"k%d" % (n % 3), headers=[(b"h", b"x")])] * 3,
            base_offset=3 * n,
            codec=ZSTD if n % 2 else 0,
        )
        for n in range(12)
    ]
    batches[4] = batches[4][:-1] + b"?"
    segment(data / "a-0", 0, *batches, control_batch(COMMIT, base_offset=36, producer_id=7))
    segment(data / "a-0", 40, batch([record(b"y")], base_offset=42), b"\0" * 90)
    entries = [record(b"m%d" % n, timestamp=n) for n in range(9)]
    segment(data / "b-0", 0, messages(entries, magic=1))
    wrapped = wrapper(entries, magic=1, codec=GZIP, base_offset=3)
    segment(data / "c-0", 0, wrapped, b"tail")
    return data


@pytest.mark.parametrize("form", FORMS)
def test_output_and_findings_are_the_same_for_every_number_of_jobs(
    kseg: Kseg, logs: Path, form: str
) -> None:
    files = sorted(map(str, logs.glob("*/*"))) if "--kafka" in FORMS[form] else [str(logs)]
    ran: list[Ran] = [kseg("dump", *FORMS[form], "--jobs", n, *files) for n in (1, 2, 3, 8)]
    assert ran[0].out
    assert ran == ran[:1] * 4


@pytest.mark.parametrize("words", [("--format", "jsonl"), DEEP])
def test_jobs_go_on_over_files_in_order_until_one_cannot_be_opened(
    kseg: Kseg, logs: Path, words: tuple[str, ...]
) -> None:
    files = [*sorted(logs.glob("b-0/*")), logs / "gone-0" / "00000000000000000000.log"]
    ran = [kseg("dump", *words, "--jobs", n, *files) for n in (1, 4)]
    assert ran[0].code == 3
    assert ran == ran[:1] * 2


def test_a_lack_of_memory_names_the_file_and_ends_the_others(
    kseg: Kseg, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(dump, "decode", decode)
    ran = kseg("dump", "--jobs", 3, logs)
    assert ran.code == 4
    assert "a-0/00000000000000000000.log" in ran.err
    assert "out of memory" in ran.err
