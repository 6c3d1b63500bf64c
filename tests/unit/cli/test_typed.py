"""Records of internal topics in `dump` and `read`: by name or asked for, and bytes that lie."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import unicodedata
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kseg import lake
from kseg.cli.parsing import KINDS
from kseg.format.typed import KIND_NAMES
from tests.builders import COMMIT, batch, control_batch, record, write_segment
from tests.internal_schemas import encode_message
from tests.terminal import on_a_terminal
from tests.unit.cli.conftest import Kseg

KEY = pack(">h", 1) + encode_message(
    "OffsetCommitKey", 0, {"group": "g", "topic": "orders", "partition": 3}
)
VALUE = pack(">h", 3) + encode_message(
    "OffsetCommitValue",
    3,
    {"offset": 41, "leaderEpoch": -1, "metadata": "\x7f\x9b\n", "commitTimestamp": 9},
)
DECODED = (
    "OFFSET_COMMIT",
    {"group": "g", "topic": "orders", "partition": 3},
    {"offset": 41, "leaderEpoch": -1, "metadata": "\x7f\x9b\n", "commitTimestamp": 9},
)
VERBS = ("dump", "read")


@pytest.fixture
def offsets(tmp_path: Path) -> Path:
    """A commit, a tombstone, a type and a version that are not known, and a marker."""
    records = [
        record(VALUE, key=KEY, timestamp=5),
        record(None, key=KEY, timestamp=6),
        record(b"\0\0", key=b"\0\x63", timestamp=7),
        record(b"\0\x09abc", key=KEY, timestamp=8),
    ]
    directory = tmp_path / "data" / "__consumer_offsets-7"
    write_segment(directory, 0, batch(records), control_batch(COMMIT, base_offset=4))
    return directory


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    directory = tmp_path / "other" / "__consumer_offsets-0"
    records = [record(VALUE[:-1], key=KEY), record(VALUE, key=KEY)]
    write_segment(directory, 0, batch(records))
    return directory


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("whole", [True, False])
def test_an_internal_topic_is_decoded_by_its_name(
    kseg: Kseg, offsets: Path, verb: str, whole: bool
) -> None:
    path = offsets if whole else next(offsets.glob("*.log"))
    ran = kseg(verb, path, "--format", "jsonl")
    assert (ran.code, ran.err) == (0, "")
    rows = [row for row in ran.rows if not row["control"]]
    told = [(row["type"], row["type_id"], row["version"], row["tombstone"]) for row in rows]
    assert told == [
        ("OFFSET_COMMIT", 1, 3, False),
        ("OFFSET_COMMIT", 1, None, True),
        (None, 99, None, False),
        ("OFFSET_COMMIT", 1, 9, False),
    ]
    assert (rows[0]["type"], rows[0]["key"], rows[0]["value"]) == DECODED
    assert (rows[1]["key"], rows[1]["value"]) == (DECODED[1], None)
    assert (rows[2]["key"], rows[2]["value"]) == ("AGM=", "AAA=")
    assert (rows[3]["key"], rows[3]["value"]) == (DECODED[1], "AAlhYmM=")
    assert [row["reason"] for row in rows] == [
        None,
        None,
        "type 99 is not known",
        "version 9 of OFFSET_COMMIT is not known, only 0 to 4",
    ]


def test_a_marker_stays_bytes_and_says_what_it_is(kseg: Kseg, offsets: Path) -> None:
    (marker,) = kseg("dump", offsets, "--format", "jsonl", "--last", 1).rows
    assert (marker["control_type"], marker["key"]) == ("COMMIT", "AAAAAQ==")
    assert (marker["type"], marker["reason"], marker["tombstone"]) == (None, None, False)


@pytest.mark.parametrize("verb", VERBS)
def test_raw_leaves_the_bytes_and_the_lines_of_any_topic(
    kseg: Kseg, offsets: Path, orders: Path, verb: str
) -> None:
    raw = kseg(verb, offsets, "--format", "jsonl", "--raw").rows
    plain = kseg(verb, orders, "--format", "jsonl").rows
    assert raw[0].keys() == plain[0].keys()
    assert raw[1]["value"] is None


@pytest.mark.parametrize("verb", VERBS)
def test_decode_names_the_topic_of_files_whose_names_do_not(
    kseg: Kseg, offsets: Path, tmp_path: Path, verb: str
) -> None:
    directory = tmp_path / "copy-0"
    offsets.rename(directory)
    assert kseg(verb, directory, "--format", "jsonl").rows[1]["key"] != DECODED[1]
    ran = kseg(verb, directory, "--format", "jsonl", "--decode", "offsets")
    assert ran.rows[1]["key"] == DECODED[1]


def test_standard_input_is_decoded_only_if_asked_for(
    kseg: Kseg, offsets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(offsets)
    data = next(offsets.glob("*.log")).read_bytes()
    assert "type" not in kseg("dump", "-", "--format", "jsonl", stdin=data).rows[0]
    ran = kseg("dump", "-", "--format", "jsonl", "--decode", "offsets", stdin=data)
    assert ran.rows[0]["value"] == DECODED[2]


@pytest.mark.parametrize("verb", VERBS)
def test_a_record_that_is_damaged_keeps_its_bytes_and_is_a_finding(
    kseg: Kseg, damaged: Path, verb: str
) -> None:
    ran = kseg(verb, damaged, "--format", "jsonl", "--bytes", "hex")
    assert ran.code == 1
    assert re.fullmatch(r"kseg: .*\.log @ 0, offset 0: the value: .*\n", ran.err)
    first, second = ran.rows
    assert (first["key"], first["value"]) == (KEY.hex(), VALUE[:-1].hex())
    assert first["reason"].startswith("the value: commitTimestamp has 8 bytes, 7 are left, at ")
    assert second["value"] == DECODED[2]


@pytest.mark.parametrize("verb", VERBS)
def test_ranges_and_keys_choose_before_anything_is_decoded(
    kseg: Kseg, damaged: Path, offsets: Path, verb: str
) -> None:
    ran = kseg(verb, damaged, "--format", "jsonl", "--offset", "1..")
    assert (ran.code, [row["offset"] for row in ran.rows]) == (0, [1])
    key = f"hex:{KEY.hex()}"
    chosen = kseg(verb, offsets, "--format", "jsonl", "--key", key, "--limit", 2).rows
    assert [row["offset"] for row in chosen] == [0, 1]
    last = kseg(verb, offsets, "--format", "jsonl", "--key", key, "--last", 1).rows
    assert [row["offset"] for row in last] == [3]


@pytest.mark.parametrize("verb", VERBS)
def test_csv_has_one_head_so_that_decoding_by_name_is_all_or_nothing(
    kseg: Kseg, offsets: Path, orders: Path, verb: str
) -> None:
    alone = list(csv.DictReader(kseg(verb, offsets, "--format", "csv").text.splitlines()))
    assert json.loads(alone[0]["value"]) == DECODED[2]
    assert (alone[1]["value"], alone[1]["tombstone"]) == ("", "true")
    assert alone[2]["reason"] == "type 99 is not known"
    mixed = list(csv.DictReader(kseg(verb, offsets, orders, "--format", "csv").text.splitlines()))
    assert "reason" not in mixed[0]
    assert None not in mixed[-1]


@pytest.mark.parametrize("verb", VERBS)
def test_text_is_one_line_that_steers_no_terminal(kseg: Kseg, offsets: Path, verb: str) -> None:
    first = kseg(verb, offsets).out.splitlines()[0]
    assert b' type="OFFSET_COMMIT" type_id=1 version=3 key={"group":"g",' in first
    assert rb'"metadata":"\u007f\u009b\n"' in first
    assert b" reason=" not in first


def test_what_excludes_each_other_is_refused(kseg: Kseg, offsets: Path) -> None:
    for words in (
        ("dump", "--decode", "offsets", "--raw"),
        ("read", "--decode", "offsets", "--raw"),
        ("dump", "--decode", "offsets", "--batches"),
        ("dump", "--decode", "offsets", "--kafka"),
        ("dump", "--raw", "--kafka"),
    ):
        assert kseg(*words, offsets).code == 2, words


def test_a_hostile_count_takes_no_memory_on_its_word(kseg: Kseg, tmp_path: Path) -> None:
    directory = tmp_path / "__share_group_state-0"
    value = bytes(18) + b"\xff\xff\xff\xff\x07" + bytes(2**16)
    key = bytes.fromhex("0001000167") + bytes(20)
    write_segment(directory, 0, batch([record(value, key=key)]))
    ran = kseg("dump", directory, "--format", "jsonl")
    assert ran.code == 1
    assert "2147483646 items" in ran.rows[0]["reason"]


# ---- terminals -----------------------------------------------------------------------------------

STEERING = b"\x1b]0;owned\x07\x1b[2J\r\x9b1A\x7f\xc2\x9b\xe2\x80\xae\xe2\x80\xa8"
#: Controls, formats, separators, surrogates: what may steer a terminal, but for line ends.
STEERS = ("Cc", "Cf", "Cs", "Zl", "Zp")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose name, keys, values and headers all try to steer a terminal."""
    directory = tmp_path_factory.mktemp("\x1b[31mred") / "__consumer_offsets-0"
    text = STEERING.decode("latin-1")
    key = pack(">h", 2) + encode_message("GroupMetadataKey", 0, {"group": text})
    records = [
        record(STEERING, key=STEERING, headers=((STEERING, STEERING),)),
        record(None, key=key),
        record(STEERING, key=key),
        record(pack(">h", 9) + STEERING, key=key),
    ]
    # The last value does not fit its message, which ends Kafka's tool with an exception.
    write_segment(directory, 0, batch(records), batch([record(STEERING, key=b"\0")], base_offset=9))
    return directory


@pytest.mark.parametrize(
    "words",
    [
        ("dump", "--kafka", "--deep-iteration"),
        ("dump", "--kafka", "--print-data-log"),
        ("dump", "--kafka", "--print-data-log", "--skip-record-metadata"),
        ("dump", "--kafka", "--print-data-log", "--kafka-version", "2.8"),
        ("dump", "--kafka", "--offsets-decoder"),
        ("dump", "--kafka", "--cluster-metadata-decoder"),
        ("dump", "--kafka", "--value-decoder-class", "long"),
        ("dump",),
        ("dump", "--raw"),
        ("dump", "--format", "jsonl"),
        ("dump", "--format", "csv", "--bytes", "utf8"),
        ("read",),
        ("read", "--format", "jsonl", "--bytes", "utf8"),
        ("info",),
        ("stats",),
        ("explain", "--segments"),
    ],
    ids=" ".join,
)
def test_nothing_that_steers_reaches_a_terminal(hostile: Path, words: tuple[str, ...]) -> None:
    shown = on_a_terminal(*words, hostile)
    assert len(shown) > 100
    text = re.sub("\r+\n|\x1b\\[[0-9;?]*[mKlhA]|\r(?=\x1b)", "", shown.decode())
    assert [one for one in text if unicodedata.category(one) in STEERS] == []


DAY_MS = 24 * 60 * 60 * 1000
FIRST_MS = 20_000 * DAY_MS  # 2024-10-04
HARD = '{"a": "\\u0085 \u0085 \u202e ä\x7f",\r\n\t"b": [1.50, 1e400]}'
#: Keys are Kafka's integers, values JSON; the last two are neither.
ROWS: list[tuple[bytes | None, bytes | None]] = [
    (b"\0\0\0\x07", b'{"n": 1}'),
    (b"\xff\xff\xff\xff", HARD.encode()),
    (None, None),
    (b"seven", b"{'n': 1}"),
]


def written(tmp_path: Path, rows: list[tuple[bytes | None, bytes | None]]) -> Path:
    given = [record(value, key=key, timestamp=FIRST_MS) for key, value in rows]
    return write_segment(tmp_path / "data" / "typed-0", 0, batch(given)).parent


AS = ("--decode-key", "integer", "--decode-value", "json")


def test_the_names_of_kinds_are_told_once() -> None:
    assert KINDS == KIND_NAMES


def test_lines_of_json_have_values_and_reasons(kseg: Kseg, tmp_path: Path) -> None:
    log = written(tmp_path, ROWS)
    ran = kseg("read", log, "--format", "jsonl", *AS)
    assert ran.code == 0
    assert ran.text.isascii()
    assert len(ran.rows) == len(ROWS)
    assert [row["key"] for row in ran.rows] == [7, -1, None, None]
    assert [row["value"] for row in ran.rows] == [{"n": 1}, json.loads(HARD), None, None]
    assert ran.rows[3]["key_error"] == "int32 is 4 bytes, not 5"
    assert ran.rows[3]["value_error"].startswith("not JSON at character 1")
    assert [row["value_error"] for row in ran.rows[:3]] == [None] * 3
    assert b"1e400" in ran.out  # as it was stored, which a float is not


def test_text_and_csv_have_the_same(kseg: Kseg, tmp_path: Path) -> None:
    log = written(tmp_path, ROWS)
    lines = kseg("read", log, *AS).text.splitlines()
    assert len(lines) == len(ROWS)
    assert ' key=7 value={"n": 1} ' in lines[0]
    assert " key=null value=null " in lines[2]
    assert ' key_error="int32 is 4 bytes, not 5" value=null value_error="not JSON' in lines[3]
    found = list(csv.DictReader(io.StringIO(kseg("read", log, "--format", "csv", *AS).text)))
    assert [row["key"] for row in found] == ["7", "-1", "", ""]
    assert json.loads(found[1]["value"]) == json.loads(HARD)
    assert found[3]["key_error"] == "int32 is 4 bytes, not 5"


NUMBERS: list[tuple[str, bytes, Any]] = [
    ("long", struct.pack(">q", -(2**63)), -(2**63)),
    ("short", struct.pack(">h", -2), -2),
    ("double", struct.pack(">d", 0.1), 0.1),
    ("double", struct.pack(">d", float("nan")), "NaN"),
    ("float", struct.pack(">f", 0.1), 0.1),
    ("float", struct.pack(">f", float("-inf")), "-Infinity"),
    ("uuid", b"0123ABCD-89ef-4567-89ab-cdef01234567", "0123abcd-89ef-4567-89ab-cdef01234567"),
    ("text", 'a"\\\nä'.encode(), 'a"\\\nä'),
]


@pytest.mark.parametrize(("kind", "stored", "meant"), NUMBERS)
def test_each_kind_is_what_json_has_for_it(
    kseg: Kseg, tmp_path: Path, kind: str, stored: bytes, meant: Any
) -> None:
    log = written(tmp_path, [(None, None), (None, stored)])
    rows = kseg("read", log, "--format", "jsonl", "--decode-value", kind).rows
    assert [row["value"] for row in rows] == [None, meant]


def test_keys_are_chosen_by_their_bytes(kseg: Kseg, tmp_path: Path) -> None:
    log = written(tmp_path, ROWS)
    rows = kseg("read", log, "--format", "jsonl", "--key", "hex:00000007", *AS).rows
    assert [row["key"] for row in rows] == [7]
    rows = kseg("read", log, "--format", "jsonl", "--last", "1", *AS).rows
    assert [row["offset"] for row in rows] == [3]


def test_two_ways_to_decode_exclude_each_other(kseg: Kseg, tmp_path: Path) -> None:
    log = written(tmp_path, ROWS)
    ran = kseg("read", log, "--decode", "offsets", "--decode-key", "text")
    assert (ran.code, "exclude each other" in ran.err) == (2, True)
    ran = kseg("export", log, "-o", tmp_path / "o.csv", "--fields", "key", "--decode-value", "json")
    assert (ran.code, "not among the fields" in ran.err) == (2, True)


@pytest.mark.parametrize("form", ["parquet", "arrow", "jsonl", "csv"])
def test_every_file_has_decoded_columns(kseg: Kseg, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"out.{form}"
    ran = kseg("export", written(tmp_path, ROWS), "-o", out, *AS, "--keep-bytes")
    assert ran.code == 1
    assert "1 key does not decode as int32 (the first: int32 is 4 bytes, not 5)" in ran.err
    assert "1 value does not decode as json (the first: not JSON at character 1" in ran.err
    if form in ("jsonl", "csv"):
        lines = out.read_text().splitlines()
        assert "int32 is 4 bytes, not 5" in lines[-1]
        assert b64encode(b"{'n': 1}").decode() in lines[-1]
        return
    table = pq.read_table(out) if form == "parquet" else pa.ipc.open_file(out).read_all()
    assert table["key"].to_pylist() == [7, -1, None, None]
    assert table["value"].to_pylist() == [ROWS[0][1].decode(), HARD, None, None]  # type: ignore[union-attr]
    assert table["key_error"].to_pylist()[2:] == [None, "int32 is 4 bytes, not 5"]
    assert table["key_bytes"].to_pylist() == [None, None, None, b"seven"]
    assert table["value_bytes"].to_pylist() == [None, None, None, b"{'n': 1}"]


def test_values_that_do_not_decode_are_counted_over_all_files(kseg: Kseg, tmp_path: Path) -> None:
    log, out = written(tmp_path, ROWS * 5), tmp_path / "out"
    for words in ((), ("--partition-by", "topic"), ("--per", "segment")):
        ran = kseg("export", log, "-o", out, "--decode-value", "json", *words)
        assert (ran.code, ran.err.count("5 values do not decode as json")) == (1, 1)
        assert "--keep-bytes keeps their bytes" in ran.err
    ran = kseg("export", log, "-o", out, "--keep-bytes")
    assert (ran.code, "--keep-bytes needs --decode-key" in ran.err) == (2, True)


def test_reasons_alone_are_a_field_to_ask_for(kseg: Kseg, tmp_path: Path) -> None:
    out, log = tmp_path / "out.csv", written(tmp_path, ROWS)
    kseg("export", log, "-o", out, "--fields", "offset,key_error", "--decode-key", "integer")
    assert out.read_text().splitlines() == [
        *("offset,key_error", "0,", "1,", "2,"),
        '3,"int32 is 4 bytes, not 5"',
    ]


# ---- --partition-by ------------------------------------------------------------------------------


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Two topics, records of three days not in order, and one without a time."""
    times = [FIRST_MS, FIRST_MS + DAY_MS, FIRST_MS + 5, FIRST_MS + 2 * DAY_MS, -1]
    for name in ("orders-0", "users-3"):
        given = [record(b"%d" % n, timestamp=time) for n, time in enumerate(times)]
        write_segment(tmp_path / "data" / name, 0, batch(given))
    return tmp_path / "data"


def files_under(out: Path) -> list[str]:
    return sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())


NO_DAY = "day=__HIVE_DEFAULT_PARTITION__"


def test_directories_say_day_and_topic_as_hive_has_them(
    kseg: Kseg, days: Path, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    ran = kseg("export", days, "-o", out, "--partition-by", "day,topic")
    assert ran.code == 0
    assert ran.err.splitlines()[0].endswith("part-orders-0.parquet: 5 records in 4 files")
    known = ["day=2024-10-04", "day=2024-10-05", "day=2024-10-06", NO_DAY]
    assert files_under(out) == sorted(
        f"{day}/topic={topic}/part-{topic}-{number}.parquet"
        for day in known
        for topic, number in (("orders", 0), ("users", 3))
    )
    table = pq.ParquetFile(out / known[0] / "topic=orders" / "part-orders-0.parquet").read()
    assert table["value"].to_pylist() == [b"0", b"2"]
    assert "topic" not in table.column_names
    every = out / "day=2024-10-0*" / "**" / "*.parquet"
    frame = polars.read_parquet(every, hive_partitioning=True)
    assert set(frame["topic"]) == {"orders", "users"}
    assert frame["day"].dt.to_string().unique().sort().to_list() == [day[4:] for day in known[:3]]


def test_few_files_are_open_and_a_day_that_comes_again_has_another(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "OPEN_MAX", 2)
    for base, days in ((0, [0, 1, 2]), (3, [0, 0, 2])):
        given = [record(b"%d" % day, timestamp=FIRST_MS + day * DAY_MS) for day in days]
        log = write_segment(tmp_path / "t-0", base, batch(given, base_offset=base)).parent
    out = tmp_path / "lake"
    assert kseg("export", log, "-o", out, "--partition-by", "day", "--format", "csv").code == 0
    rows = {name: (out / name).read_text().count("\n") - 1 for name in files_under(out)}
    assert rows == {
        "day=2024-10-04/part-t-0.csv": 1,
        "day=2024-10-04/part-t-0.2.csv": 2,
        "day=2024-10-05/part-t-0.csv": 1,
        "day=2024-10-06/part-t-0.csv": 2,
    }


def test_times_that_mean_nothing_do_not_fill_the_disk_with_files(
    kseg: Kseg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "_FILES_MAX", 3)
    given = [record(b"", timestamp=number * DAY_MS) for number in range(9)]
    log = write_segment(tmp_path / "t-0", 0, batch(given)).parent
    out = tmp_path / "lake"
    ran = kseg("export", log, "-o", out, "--partition-by", "day")
    assert (ran.code, "more than 3 files; --time" in ran.err) == (4, True)
    assert files_under(out) == []
    assert kseg("export", log, "-o", out, "--partition-by", "topic").code == 0


def test_times_at_the_ends_of_64_bits_have_a_day(kseg: Kseg, tmp_path: Path) -> None:
    given = [record(b"", timestamp=time) for time in (2**62, -2, 0)]
    log = write_segment(tmp_path / "t-0", 0, batch(given)).parent
    out = tmp_path / "lake"
    assert kseg("export", log, "-o", out, "--partition-by", "day").code == 0
    far = str(datetime.fromtimestamp(0, UTC).date())
    assert {name.split("/")[0] for name in files_under(out)} >= {f"day={far}", "day=1969-12-31"}


def test_damage_leaves_no_file_of_a_layout(kseg: Kseg, days: Path, tmp_path: Path) -> None:
    path = next((days / "orders-0").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    out = tmp_path / "lake"
    assert kseg("export", days / "orders-0", "-o", out, "--partition-by", "day").code == 1
    assert files_under(out) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--partition-by", "week"), "no column week; there are: day, topic, partition"),
        (("--partition-by", "day,day"), "twice"),
        (("--fields", "offset,key,offset"), "twice"),
        (("--partition-by", "topic", "--fields", "topic"), "all left out by"),
    ],
)
def test_what_is_no_layout_is_refused(
    kseg: Kseg, days: Path, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    ran = kseg("export", days, "-o", tmp_path / "lake", *words)
    assert (ran.code, text in ran.err) == (2, True)
    ran = kseg("export", days, "-o", tmp_path / "lake.csv", "--partition-by", "day")
    assert (ran.code, "must be a directory" in ran.err) == (2, True)
