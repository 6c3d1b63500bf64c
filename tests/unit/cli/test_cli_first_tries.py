"""What people type first, and get wrong: answers say what is wrong and what to type instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.cli.main import VERBS
from tests.unit.cli.conftest import Kseg
from tests.unit.cli.test_cli_damaged_input import WITHOUT, WORDS

#: Words, with DIR for a data directory of `orders-0` and `payments-0`; the code; what is said.
TRIES = [
    ("read DIR --topic order", 3, "no topic here is order; did you mean orders?"),
    ("info DIR --topic zzz", 3, "no topic here is zzz; there are orders, payments"),
    ("verify DIR --topic orders --partition 7", 3, "chosen by --partition; there are 0"),
    ("read DIR/orders-0 --decode json", 2, "--decode-value json and --decode-key json"),
    ("dump DIR/orders-0 --decode text", 2, "read and export have --decode-value text"),
    ("read DIR/orders-0 --decode topics", 2, "'topics' is not one of 'offsets', "),
    ("read DIR --topic orders,payments", 3, "give --topic once for each; there are orders, pay"),
    ("dump DIR/orders-0 --offset 5:8", 2, "'5:8' is neither an offset nor a range A..B"),
    ("retain DIR --config retention.msec=1", 2, "did you mean retention.ms? Try"),
    (
        "explain DIR --what-if order:retention.ms=1",
        2,
        "order:retention.ms: no topic here is order; ",
    ),
    ("demo -o DIR", 3, "it exists; give -o another name, or remove it first"),
    ("read DIR --time yesterday", 2, "yesterday.. is from then on"),
    ("export DIR/orders-0 -o DIR/out.json", 2, "use one of .parquet, .arrow, .jsonl, .csv."),
    ("export DIR/orders-0 -o DIR/out.pq --format jsonl", 2, "out.pq has an unknown extension"),
    ("lookup DIR/orders-0 --offset 99999999999999999999", 2, "--offset"),
    ("read DIR --follow", 2, "2 partitions here, and one is wanted; --topic and --partition"),
    ("truncate DIR --to 1", 2, "2 partitions here, and one is wanted"),
    ("info DIR --format json", 2, "where one document is the answer: --json."),
    ("spark diff DIR DIR/orders-0 --mater x", 2, "Did you mean"),
    ("info DIR/order-0", 3, "No such file or directory; did you mean DIR/orders-0?"),
    ("info DIR/zzz/y", 3, "No such file or directory; this lists the files: ls -la DIR"),
    ("info DIR/orders-0/none.log", 3, "; this lists the files: ls -la DIR/orders-0"),
    ("verify DIR/orders-0/none.txt", 3, "; this lists the files: ls -la DIR/orders-0"),
    ("convert s3://bucket/topics --codec zstd", 2, "is a URL, and a path of this machine"),
    ("info s4://bucket/topics", 2, "kseg: s4://bucket: neither a file nor in a store"),
    ("recover s3://bucket/topics", 2, "is a URL, and a path of this machine"),
    ("recover DIR/orders-0/00000000000000000000.log", 3, "a directory, such as DIR/orders-0"),
    ("lookup DIR/orders-0 --offset", 2, "Try 'kseg lookup --help'."),
]


@pytest.mark.parametrize(("words", "code", "said"), TRIES, ids=[words for words, *_ in TRIES])
def test_a_wrong_word_is_answered_with_what_is_there(
    kseg: Kseg, orders: Path, payments: Path, words: str, code: int, said: str
) -> None:
    given = [word.replace("DIR", str(orders.parent)) for word in words.split()]
    ran = kseg(*given)
    assert (ran.code, ran.out) == (code, b"")
    assert said.replace("DIR", str(orders.parent)) in ran.err
    assert ran.err.count("\n") == 1
    assert set(orders.parent.iterdir()) == {orders, payments}


def test_text_in_lines_is_answered_with_the_option_that_takes_it(
    kseg: Kseg, tmp_path: Path
) -> None:
    ran = kseg("append", tmp_path / "new-0", stdin=b'{"value": "x y"}\n')
    assert ran.code == 2
    assert ran.err.endswith("; --bytes utf8 takes text\n")


def test_a_directory_may_have_any_name(kseg: Kseg, orders: Path, tmp_path: Path) -> None:
    for name in ("out.2026", "out.d", "some.json"):
        if name.endswith("json"):
            (tmp_path / name).mkdir()
        assert kseg("export", orders, "-o", tmp_path / name, "--format", "csv").code == 0
        assert (tmp_path / name / "orders-0.csv").is_file()


#: Runs a command line as a user to whom modes of files apply; root's capabilities are dropped.
AS_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
os.execv(sys.argv[1], sys.argv[1:])
"""
KSEG = (
    "import sys; from kseg.cli.main import run\n"
    "sys.exit(max(run(words.split(chr(9))) != 3 for words in sys.argv[1:]))"
)


def test_a_path_without_permission_is_no_mistake_in_the_command_line(
    orders: Path, tmp_path: Path
) -> None:
    closed = orders.parent
    lines = []
    for words in WORDS:
        if words.split()[0] in ("doctor", "explain"):  # they tell of it in their answers
            continue
        places = {"DIR": closed, "PART": orders, "COPY": closed, "OUT": tmp_path / "out"}
        lines.append("\t".join(str(places.get(word, word)) for word in words.split()))
    assert {line.split("\t")[0] for line in lines} >= set(VERBS) - WITHOUT - {"doctor", "explain"}
    if os.geteuid() == 0:
        os.chown(closed, 65534, 65534)
    closed.chmod(0o000)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", AS_ANYBODY, sys.executable, "-c", KSEG, *lines],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        closed.chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("Permission denied") == len(lines) == len(ran.stderr.splitlines())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("retain", "--config", "retention.ms=1", "--high-watermark", "end"), 0),
        (("retain",), 0),
        (("explain", "--config", "retention.ms=1", "--segments"), 0),
        (("compact", "--config", "cleanup.policy=compact"), 0),
        (("stats",), 0),
        (("verify",), 0),
        (("reindex",), 0),
    ],
)
def test_a_partition_without_a_file_is_no_bug(
    kseg: Kseg, tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    (tmp_path / "data" / "t-0").mkdir(parents=True)
    ran = kseg(words[0], tmp_path / "data" / "t-0", *words[1:])
    assert (ran.code, "bug" in ran.err) == (code, False), ran.err


def test_doctor_asks_for_the_right_name_of_a_directory_that_is_not_there(
    kseg: Kseg, orders: Path
) -> None:
    data = orders.parent
    ran = kseg("doctor", data.with_name(f"{data.name}s"))
    assert (ran.code, ran.text) == (3, "")
    assert f"did you mean {data}?" in ran.err


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("4.2.1", ""),
        ("3.9", "Kafka 3.9 cuts the same; whether it starts here was not compared"),
        ("3.6", "Kafka 3.6 was not compared; these releases were, and cut the same: 3.9, 2.8, "),
        ("4.20", "Kafka 4.20 was not compared; these releases were"),
    ],
)
def test_doctor_says_what_is_known_of_a_release(
    kseg: Kseg, orders: Path, release: str, said: str
) -> None:
    (orders.parent / "lost+found").mkdir()
    text = kseg("doctor", orders.parent, "--for", release).text
    assert said in text
    followed = "that of Kafka 4.2, the only release of which all is known"
    assert (followed in text) == bool(said)


def test_doctor_takes_no_partition_for_a_data_directory(kseg: Kseg, orders: Path) -> None:
    ran = kseg("doctor", orders)
    told = f"kseg: {orders}: a partition directory; give the data directory that it is in\n"
    assert (ran.code, ran.text, ran.err) == (3, "", told)
    ran = kseg("doctor", orders / "00000000000000000000.log")
    assert (ran.code, ran.err.partition(": a ")[2]) == (
        3,
        "file; give the data directory that it is in\n",
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("read", "--limit", "x"), "'x' is not a valid whole number."),
        (("convert", "-o", "out", "--magic", "two"), "'two' is not a valid whole number."),
        (("dump", "--max-message-size", "x"), "'x' is not a valid whole number."),
        (
            ("retain", "--config", "segment.bytes=1"),
            "--config: segment.bytes is 14 to 2147483647, not 1.",
        ),
    ],
)
def test_a_wrong_number_is_told_in_words_of_the_command_line(
    kseg: Kseg, orders: Path, words: tuple[str, ...], told: str
) -> None:
    ran = kseg(words[0], orders, *words[1:])
    assert (ran.code, told in ran.err) == (2, True), ran.err
