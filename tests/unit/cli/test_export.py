"""`kseg export`: every format holds the records that dump shows; files appear whole or never."""

from __future__ import annotations

import base64
import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kseg import scan
from kseg.files.whole_file import claimed
from tests.builders import COMMIT, batch, control_batch, record, write_segment
from tests.unit.cli.conftest import Kseg, files_no_longer_than, overlapping


def decoded(row: dict[str, Any]) -> tuple[Any, ...]:
    """Offset, time, key and value of a JSON line, in Arrow's terms."""

    def raw(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return row["offset"], row["timestamp"], raw(row["key"]), raw(row["value"])


def shown(kseg: Kseg, path: Path) -> list[tuple[Any, ...]]:
    return [decoded(row) for row in kseg("read", "--format", "jsonl", path).rows]


def of_table(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("offset", "timestamp", "key", "value")
    times = table["timestamp"].cast(pa.int64())
    columns = [times if name == "timestamp" else table[name] for name in names]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_columnar_files_hold_the_records(
    kseg: Kseg, orders: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"out.{form}"
    assert kseg("export", orders, "-o", out).code == 0
    table = pq.read_table(out) if form == "parquet" else pa.ipc.open_file(out).read_all()
    assert of_table(table) == shown(kseg, orders)
    assert table["topic"].unique().to_pylist() == ["orders"]
    assert table["partition"].unique().to_pylist() == [0]
    assert table["headers"].to_pylist()[4] == [
        {"key": "h", "value": b"x"},
        {"key": "n", "value": None},
    ]


def test_csv_keeps_text_as_it_is(kseg: Kseg, tmp_path: Path) -> None:
    text = 'line\n"quoted", \\ tab\t'
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch([record(text.encode()), record(None)]))
    out = tmp_path / "out.csv"
    kseg("export", path, "-o", out, "--bytes", "utf8", "--fields", "offset,value")
    with out.open(newline="") as lines:
        assert list(csv.reader(lines)) == [["offset", "value"], ["0", text], ["1", ""]]


def test_a_directory_gets_one_file_a_partition(
    kseg: Kseg, orders: Path, payments: Path, tmp_path: Path
) -> None:
    out = tmp_path / "made" / "here"
    ran = kseg("export", orders.parent, "-o", out)
    assert ran.code == 0
    assert sorted(path.name for path in out.iterdir()) == ["orders-0.parquet", "payments-0.parquet"]
    assert ran.err == f"{out}/orders-0.parquet: 10 records\n{out}/payments-0.parquet: 3 records\n"


def test_two_exports_do_not_mix_in_a_directory(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with claimed(out):
        ran = kseg("export", orders, "-o", out)
        assert (ran.code, list(out.iterdir())) == (3, [])
        assert "another run writes there" in ran.err
        assert kseg("export", orders, "-o", out / "one.jsonl").code == 0
    assert kseg("export", orders, "-o", out).code == 0


def test_a_file_a_segment(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    kseg("export", orders, "-o", tmp_path / "out", "--per", "segment", "--format", "jsonl")
    found = sorted((tmp_path / "out" / "orders-0").iterdir())
    assert [path.name for path in found] == [
        "00000000000000000000.jsonl",
        "00000000000000000006.jsonl",
    ]
    assert [len(path.read_bytes().splitlines()) for path in found] == [6, 4]


def test_several_inputs_do_not_fit_one_file(
    kseg: Kseg, orders: Path, payments: Path, tmp_path: Path
) -> None:
    ran = kseg("export", orders.parent, "-o", tmp_path / "out.csv")
    assert ran.code == 2
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (["--offset", "3..5"], [3, 4]),
        (["--time", "1760000008000.."], [8, 9]),
        (["--isolation", "read_committed", "--offset", "8.."], [8, 9]),
    ],
)
def test_ranges_are_kept(
    kseg: Kseg, orders: Path, tmp_path: Path, words: list[str], offsets: list[int]
) -> None:
    out = tmp_path / "out.jsonl"
    kseg("export", orders, "-o", out, *words)
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["offset"] for row in rows] == offsets


def test_an_unknown_field_is_named(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    ran = kseg("export", orders, "-o", tmp_path / "x.csv", "--fields", "offset,color")
    assert ran.code == 2
    assert "color" in ran.err


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_damage_leaves_no_file(kseg: Kseg, orders: Path, tmp_path: Path, form: str) -> None:
    damage(orders)
    out = tmp_path / f"out.{form}"
    out.write_text("older")
    ran = kseg("export", orders, "-o", out)
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert out.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", out.name]


def test_damage_can_be_skipped_and_is_named(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    path = damage(orders)
    out = tmp_path / "out.jsonl"
    ran = kseg("export", orders, "-o", out, "--on-corrupt", "skip")
    assert ran.code == 1
    assert str(path) in ran.err
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["offset"] for row in rows] == [0, 1, 6, 7, 8, 9]


def damage(orders: Path) -> Path:
    """Flip a bit of the second batch; answers its file."""
    path = orders / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return path


def test_a_dash_for_an_output_makes_no_directory_of_that_name(
    kseg: Kseg, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(orders)
    ran = kseg("export", orders, "-o", "-")
    assert ran.code == 2
    assert "'kseg read' has standard output" in ran.err
    assert not (orders / "-").exists()


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_a_disk_that_refuses_is_told_with_the_files_name(
    kseg: Kseg, tmp_path: Path, form: str
) -> None:
    write_segment(tmp_path / "data" / "orders-0", 0, batch([record(os.urandom(200_000))]))
    target = tmp_path / f"o.{form}"
    with files_no_longer_than(4096):
        ran = kseg("export", tmp_path / "data" / "orders-0", "-o", target)
    assert (ran.code, ran.out) == (3, b"")
    assert ran.err.startswith(f"kseg: {target}: ")
    assert list(tmp_path.glob("o.*")) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], [list(range(8)), [8, 9]]),
        (["--offset", "3..7"], [[3, 4, 5, 6], []]),
        (["--offset", "6.."], [[], [6, 7, 8, 9]]),
    ],
)
def test_a_file_a_segment_has_what_the_log_gives_of_it(
    kseg: Kseg, tmp_path: Path, words: list[str], expected: list[list[int]]
) -> None:
    """Segments of offsets 0 to 7 and 5 to 9: together, the files hold each offset once."""
    directory = overlapping(tmp_path)
    kseg(
        "export", "--per", "segment", "-o", tmp_path / "out", "--format", "jsonl", *words, directory
    )
    files = sorted((tmp_path / "out").rglob("*.jsonl"))
    found = [
        [json.loads(line)["offset"] for line in file.read_text().splitlines()] for file in files
    ]
    assert found == expected


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_a_link_that_lies_where_a_file_is_written_is_not_followed(
    kseg: Kseg, orders: Path, tmp_path: Path, form: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    for name in (f"out.{form}", f"out.{form}.part", f"out.{form}.tmp"):
        (tmp_path / name).symlink_to(precious)
    assert kseg("export", orders, "-o", tmp_path / f"out.{form}").code == 0
    assert precious.read_bytes() == b"precious"
    assert not (tmp_path / f"out.{form}").is_symlink()
    assert (tmp_path / f"out.{form}.part").is_symlink()


# ---- what is there already -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ([], ["--offset", "3.."], True),
        ([], ["--time", "1760000003000.."], True),
        (["--offset", "..6"], ["--offset", "6.."], True),
        (["--offset", "2..6"], ["--offset", "1..7"], None),
        (["--time", "1760000003000.."], ["--time", "1760000002000.."], None),
        (["--offset", "2..6"], [], False),
        (["--time", "1760000003000.."], [], False),
        ([], [], False),
        ([], ["--isolation", "read_committed"], None),
    ],
)
def test_a_file_with_records_that_the_export_lacks_is_not_replaced(
    kseg: Kseg,
    orders: Path,
    tmp_path: Path,
    form: str,
    first: list[str],
    second: list[str],
    says: bool | None,
) -> None:
    """`says` is whether it is refused; None where that depends on what the file can say."""
    out, is_text = tmp_path / f"out.{form}", form in ("jsonl", "csv")
    assert kseg("export", orders, "-o", out, *first).code == 0
    before = out.read_bytes()
    ran = kseg("export", orders, "-o", out, *second)
    has_bounds = "--isolation" not in second
    refused = (is_text == has_bounds) if says is None else says
    assert ran.code == (3 if refused else 0)
    if refused:
        assert out.read_bytes() == before
        assert ran.err.startswith(f"kseg: {out}: not replaced: ")
        assert kseg("export", orders, "-o", out, *second, "--replace").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", out.name]


def test_records_that_the_log_has_deleted_are_not_lost_from_a_file(
    kseg: Kseg, orders: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.parquet"
    assert kseg("export", orders, "-o", out).code == 0
    (orders / f"{0:020d}.log").unlink()
    ran = kseg("export", orders, "-o", out)
    assert ran.code == 3
    assert "the file has offsets 0..10, this export has offsets 6..10" in ran.err
    assert pq.read_table(out).num_rows == 10


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_narrower_export_by_day_replaces_no_day(kseg: Kseg, tmp_path: Path, form: str) -> None:
    log, out, day = tmp_path / "t-0", tmp_path / "lake", 24 * 3_600_000
    log.mkdir()
    times = [at * day // 4 for at in range(12)]
    (log / f"{0:020d}.log").write_bytes(batch([record(b"x", timestamp=at) for at in times]))
    words = ("export", log, "-o", out, "--partition-by", "day", "--format", form)
    assert kseg(*words).code == 0
    before = {path: path.read_bytes() for path in out.rglob(f"*.{form}")}
    assert len(before) == 3
    ran = kseg(*words, "--time", f"{day + day // 2}..")
    assert (ran.code, "not replaced: " in ran.err) == (3, True)
    assert {path: path.read_bytes() for path in out.rglob(f"*.{form}")} == before
    assert kseg(*words).code == 0


def test_a_file_is_not_replaced_by_what_damage_has_left(
    kseg: Kseg, orders: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    assert kseg("export", orders, "-o", out).code == 0
    before = out.read_bytes()
    damage(orders)
    words = ("export", orders, "-o", out, "--on-corrupt", "skip")
    ran = kseg(*words)
    assert (ran.code, out.read_bytes()) == (3, before)
    assert "damaged in the log by now" in ran.err
    assert kseg(*words, "--replace").code == 1
    assert out.read_bytes() != before


FORMULAS = [b'=cmd|"/c calc"!A0', b"@SUM(1)", b"+h", b"-1+1", b"\t=1", b"\r=1", "\uff1d1".encode()]
HARMLESS = [b"a=1", b"-5", b"+1.5e3", b'say "=1"', b'"=1"', b"", b'a,"', b"x,\r\n=1"]


@pytest.mark.parametrize("large", [False, True])
def test_a_spreadsheet_finds_no_formula_where_none_is_asked_for(
    kseg: Kseg, tmp_path: Path, large: bool
) -> None:
    filler = b'x"' * 600_000 if large else b""
    values = [*FORMULAS, *HARMLESS]
    records = [record(value + filler, key=value, headers=((b"=h", b"=v"),)) for value in values]
    write_segment(tmp_path / "t-0", 0, batch(records))
    out = tmp_path / "out.csv"
    words = ("export", tmp_path / "t-0", "-o", out, "--bytes", "utf8")
    assert kseg(*words).code == 0
    plain = out.read_bytes()
    assert kseg(*words, "--no-formulas").code == 0
    with out.open(newline="", encoding="utf-8") as file:
        csv.field_size_limit(1 << 24)
        rows = list(csv.DictReader(file))
    keys = [b"'" + value for value in FORMULAS] + HARMLESS
    assert [row["key"].encode() for row in rows] == keys
    ends = [value + filler for value in values]
    marked = [value in FORMULAS or (value in (b"-5", b"+1.5e3") and large) for value in values]
    shown = [b"'" * mark + end for mark, end in zip(marked, ends, strict=True)]
    assert [row["value"].encode() for row in rows] == shown
    assert b'"=cmd|' in plain
    assert kseg("export", tmp_path, "-o", tmp_path / "o.jsonl", "--no-formulas").code == 2


def test_a_topic_of_the_longest_name_is_exported_beside_others(kseg: Kseg, tmp_path: Path) -> None:
    data = tmp_path / "data"
    names = ["t" * 249, "t" * 248 + "u", "orders"]
    for name in names:
        write_segment(data / f"{name}-0", 0, batch([record(b"v")]))
    for words, pattern in (
        ((), "*.parquet"),
        (("--per", "segment"), "*/*.parquet"),
        (("--partition-by", "topic"), "topic=*/*.parquet"),
    ):
        out = tmp_path / f"out{len(pattern)}"
        assert kseg("export", data, "-o", out, *words).code == 0
        assert len(list(out.glob(pattern))) == len(names)
        assert (kseg("export", data, "-o", out, *words).code, len(list(out.glob(pattern)))) == (
            0,
            3,
        )


def test_directories_are_escaped_as_hive_does(kseg: Kseg, tmp_path: Path) -> None:
    name = "a=b%2F\x1b'[x]"
    write_segment(tmp_path / "data" / f"{name}-0", 0, batch([record(b"v")]))
    out = tmp_path / "out"
    assert kseg("export", tmp_path / "data", "-o", out, "--partition-by", "topic").code == 0
    assert os.listdir(out) == ["topic=a%3Db%252F%1B%27%5Bx%5D"]
    assert pq.ParquetDataset(out).read()["topic"].unique().to_pylist() == [name]


# ---- what is left out ----------------------------------------------------------------------------


@pytest.fixture
def pending(tmp_path: Path) -> Path:
    """`data/txn-0`: producer 4 never ends its transaction, that of 7 behind it is committed."""
    directory = tmp_path / "data" / "txn-0"
    given = [
        batch([record(b"plain", timestamp=1_760_000_000_000)]),
        transactional(4, 1, b"never"),
        transactional(7, 2, b"yes"),
        control_batch(COMMIT, base_offset=3, producer_id=7),
        batch([record(b"end")], base_offset=4),
    ]
    write_segment(directory, 0, *given)
    return directory


def transactional(producer_id: int, offset: int, value: bytes) -> bytes:
    given = [record(value, timestamp=1_760_000_001_000)]
    return batch(
        given, base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=True
    )


@pytest.mark.parametrize("words", [("read", "--format", "jsonl"), ("export", "-o", "OUT")])
@pytest.mark.parametrize(("how", "count"), [((), 1), (("--open-transactions", "abort"), 3)])
def test_committed_records_that_end_at_an_open_transaction_say_so(
    kseg: Kseg, pending: Path, tmp_path: Path, words: tuple[str, ...], how: tuple[str], count: int
) -> None:
    out = tmp_path / "out.jsonl"
    given = (out if word == "OUT" else word for word in words)
    ran = kseg(*given, pending, "--isolation", "read_committed", *how)
    text = ran.out if words[0] == "read" else out.read_bytes()
    assert (ran.code, len(text.splitlines())) == (0, count)
    told = (
        f"kseg: warning: {pending}: read_committed ends at offset 1 of 5: a transaction of "
        "producer 4 is open since 2025-10-09T08:53:21.000Z; --open-transactions abort"
    )
    assert (told in ran.err) is not bool(how)
    assert ("warning" in ran.err) is not bool(how)


def test_python_warns_of_an_open_transaction_and_can_abort_it(pending: Path) -> None:
    found = scan(pending, isolation="read_committed", columns=("offset",))
    with pytest.warns(UserWarning, match="ends at offset 1 of 5: a transaction of producer 4"):
        assert found.to_arrow()["offset"].to_pylist() == [0]
    for threads in (1, 2):
        found = scan(
            pending,
            isolation="read_committed",
            open_transactions="abort",
            columns=("offset",),
            threads=threads,
        )
        assert found.to_arrow()["offset"].to_pylist() == [0, 2, 4]
    bounded = scan(pending, isolation="read_committed", offset=(0, 1), columns=("offset",))
    assert bounded.to_arrow().num_rows == 1
    with pytest.raises(ValueError, match="open_transactions is wait or abort"):
        scan(pending, isolation="read_committed", open_transactions="commit")


def test_a_topic_whose_older_segments_are_elsewhere_says_so(kseg: Kseg, tmp_path: Path) -> None:
    write_segment(tmp_path / "data" / "t-0", 7, batch([record()], base_offset=7))
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    told = "offsets 2 to 6 are not in this directory"
    path, out = tmp_path / "data" / "t-0", tmp_path / "out.jsonl"
    assert told in kseg("info", path).text
    (row,) = kseg("info", "--json", path).document["partitions"]
    assert (row["remote_start_offset"], row["log_start_offset"]) == (2, 7)
    for words in (("read",), ("export", "--replace", "-o", out)):
        ran = kseg(*words, path)
        assert (ran.code, told in ran.err) == (0, True)
        assert told not in kseg(*words, path, "--offset", "7..").err
    with pytest.warns(UserWarning, match=told):
        assert scan(path).to_arrow().num_rows == 1


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """`topics`: `t` with three partitions of four records, `u` with one; two keys in each."""
    root = tmp_path / "topics"
    for number, name in enumerate(("t-0", "t-1", "t-10", "u-0")):
        given = [
            record(b"%s %d" % (name.encode(), n), key=b"k%d" % (n % 2), timestamp=DAYS_MS[n % 2])
            for n in range(4)
        ]
        write_segment(root / name, 0, batch(given, base_offset=number))
    return root


DAYS_MS = (1_728_000_000_000, 1_728_086_400_000)


def test_a_file_a_topic_has_one_partition_after_the_other(
    kseg: Kseg, topics: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran = kseg("export", topics, "-o", out, "--per", "topic")
    assert ran.err == f"{out}/t.parquet: 12 records\n{out}/u.parquet: 4 records\n"
    table = pq.read_table(out / "t.parquet")
    assert table["partition"].to_pylist() == [0] * 4 + [1] * 4 + [10] * 4
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5]
    assert kseg("export", topics, "-o", tmp_path / "t.parquet", "--topic", "t", *PER).code == 0
    assert (tmp_path / "t.parquet").read_bytes() == (out / "t.parquet").read_bytes()
    assert kseg("export", topics, "-o", out, "--per", "topic").code == 0
    ran = kseg("export", topics, "-o", out, "--per", "topic", "--partition", "1")
    assert (ran.code, "the file has offsets t-0 0..4, t-1 0..5" in ran.err) == (3, True)


PER = ("--per", "topic")


def test_lines_of_a_topic_have_the_directory_of_each_record(
    kseg: Kseg, topics: Path, tmp_path: Path
) -> None:
    out = tmp_path / "t.jsonl"
    assert kseg("export", topics, "-o", out, "--topic", "t", *PER).code == 0
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["dir"] for row in rows[::4]] == ["t-0", "t-1", "t-10"]


def test_a_topic_by_day(kseg: Kseg, topics: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--partition-by", "day,partition", "--per", "topic")
    assert kseg("export", topics, "-o", out, "--topic", "t", *words).code == 0
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet"))
    assert found == sorted(
        f"day=2024-10-0{day}/partition={number}/part-t.parquet"
        for day in (4, 5)
        for number in (0, 1, 10)
    )


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_records_of_one_key(kseg: Kseg, topics: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"out.{form}"
    words = ("export", topics, "-o", out, "--topic", "t", *PER)
    assert kseg(*words, "--fields", "offset,value", "--key", "k1").err == f"{out}: 6 records\n"
    if form == "parquet":
        assert pq.read_table(out)["value"].to_pylist()[:3] == [b"t-0 1", b"t-0 3", b"t-1 1"]
        ran = kseg(*words, "--key", "k0")
        assert (ran.code, "the key hex:6b31" in ran.err) == (3, True)
    assert kseg(*words).code == 0
    ran = kseg(*words, "--key", "k1")
    assert (ran.code, "not replaced" in ran.err) == (3, True)


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_a_limit_is_of_all_files_together(
    kseg: Kseg, topics: Path, tmp_path: Path, jobs: str
) -> None:
    out = tmp_path / "out"
    words = ("export", topics, "-o", out, "--jobs", jobs)
    assert kseg(*words, "--limit", "6").code == 0
    counts = {path.stem: pq.read_metadata(path).num_rows for path in out.iterdir()}
    assert counts == {"t-0": 4, "t-1": 2}
    assert kseg(*words, "--limit", "6").err.count(" records\n") == 2
    assert kseg(*words).code == 0
    assert kseg(*words, "--limit", "6", "--replace").err.count(" records\n") == 4
    assert pq.read_metadata(out / "t-10.parquet").num_rows == 0
    shutil.rmtree(out)
    assert kseg(*words, "--limit", "0").err == f"{out / 't-0.parquet'}: 0 records\n"
    assert kseg(*words, "--limit", "6").code == 0
    ran = kseg(*words, "--limit", "5")
    assert (ran.code, "this export has offsets 0..4, the first 5 records" in ran.err) == (3, True)
    assert kseg(*words, "--limit", "20").code == 0
    assert kseg(*words, "--limit", "5", "--per", "topic", "--key", "k1").code == 0
    assert pq.read_metadata(out / "t.parquet").num_rows == 5


def test_committed_records_want_whole_partitions(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    words = ("--per", "segment", "--isolation", "read_committed")
    ran = kseg("export", orders, "-o", tmp_path / "out", *words)
    assert (ran.code, "wants whole partitions" in ran.err) == (2, True)


def test_a_deleted_partition_is_not_among_the_records_of_its_topic(
    kseg: Kseg, topics: Path, tmp_path: Path
) -> None:
    deleted = f"t-0.{'a' * 32}-delete"
    (topics / "t-0").rename(topics / deleted)
    out = tmp_path / "out"
    assert kseg("export", topics, "-o", out, *PER).code == 0
    assert pq.read_table(out / "t.parquet")["partition"].unique().to_pylist() == [1, 10]
    assert not (out / f"{deleted}.parquet").exists()
    assert kseg("export", topics / deleted, "-o", out).code == 0
    assert (out / f"{deleted}.parquet").exists()
