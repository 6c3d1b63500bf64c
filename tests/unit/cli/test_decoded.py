"""Records of internal topics in `dump` and `read`: by name or asked for, and bytes that lie."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from struct import pack

import pytest

from tests.builders import COMMIT, batch, control_batch, record, write_segment
from tests.internal_schemas import encode_message
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


def on_a_terminal(*words: object) -> bytes:
    """What `kseg` prints with standard output and standard error on one."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", "from kseg.cli.main import main; main()", *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower):
        os.close(follower)
        shown = b""
        while True:
            try:
                shown += (chunk := os.read(leader, 1 << 16))
            except OSError:  # nobody has the other end open any more
                break
            if not chunk:
                break
    os.close(leader)
    return shown


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
    ],
    ids=" ".join,
)
def test_nothing_that_steers_reaches_a_terminal(hostile: Path, words: tuple[str, ...]) -> None:
    shown = on_a_terminal(*words, hostile)
    assert len(shown) > 100
    text = re.sub("\r+\n", "", shown.decode())
    assert [one for one in text if unicodedata.category(one) in STEERS] == []
