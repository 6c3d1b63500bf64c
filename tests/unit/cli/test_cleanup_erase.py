"""`kseg erase`: options, exit codes, documents, and reports that are checked later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kseg as kseg_package
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of a topic, and one of Kafka's own."""
    home = tmp_path / "data"
    for name in ("orders-0", "orders-1", "__consumer_offsets-0"):
        with kseg_package.Log.open(home / name, mode="append", create=True) as log:
            log.append({"key": [b"a", b"b", None], "value": [b"1", b"2", b"3"]})
    return home


def test_a_plan_an_erasure_and_its_report(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    planned = kseg("erase", data, "--key", "a")
    assert planned.code == 1
    assert "left as they are: __consumer_offsets: topics of Kafka itself" in planned.err
    assert kseg("erase", data, "--key", "a", "--key", "b", "--json").document["records"] == 4
    secret = tmp_path / "secret"
    secret.write_bytes(b"0" * 32)
    done = kseg("erase", data, "--key", "a", "--apply", "--json", "--secret", secret)
    document = done.document
    assert (done.code, document["records"], len(document["keys"])) == (0, 2, 1)
    assert "a" not in document["keys"]
    report = tmp_path / "report.json"
    report.write_bytes(done.out)
    again = kseg("erase", data, "--key", "a", "--apply")
    assert (again.code, again.text) == (1, "no such record, nothing to do\n")
    checked = kseg("erase", data, "--check", report, "--key", "a", "--json")
    states = {row["state"] for row in checked.document["segments"]}
    assert (checked.code, states) == (0, {"equal"})
    with kseg_package.Log.open(data / "orders-0", mode="append") as log:
        log.append({"key": [b"a"], "value": [b"back"]})
    checked = kseg("erase", data, "--check", report, "--key", "a", "--json")
    assert (checked.code, checked.document["records_back"]) == (1, 1)


@pytest.mark.parametrize(
    ("encoding", "lines"), [("text", b"a\r\n\nb\n"), ("hex", b"61\n62"), ("base64", b"YQ==\nYg==")]
)
def test_keys_of_a_file(
    kseg: Kseg, data: Path, tmp_path: Path, encoding: str, lines: bytes
) -> None:
    keys = tmp_path / "keys"
    keys.write_bytes(lines)
    ran = kseg("erase", data, "--keys", keys, "--keys-format", encoding, "--null-key", "--json")
    assert ran.document["records"] == 6


WRONG = {
    "no record": ([], "by their keys, or by their offsets"),
    "an offset of two partitions": (["--offset", "1"], "An offset belongs to one partition"),
    "half a range": (["--partition", "0", "--topic", "orders", "--offset", "1.."], "both ends"),
    "a file without keys": (["--keys", "empty"], "empty has no keys"),
    "a line that is not hex": (
        ["--keys", "wrong", "--keys-format", "hex"],
        "wrong, line 1: not hex",
    ),
    "a report of something else": (["--check", "wrong"], "is not a report"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_changes_nothing(
    kseg: Kseg, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").write_bytes(b"\n")
    Path("wrong").write_bytes(b"xyz\n")
    options, words = WRONG[name]
    ran = kseg("erase", data, *options)
    assert (ran.code, words in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("damaged", [lambda log: log[:-1] + b"\xff", lambda log: 2 * log])
def test_damage_is_left_with_the_command_that_helps(
    kseg: Kseg, data: Path, damaged: Callable[[bytes], bytes]
) -> None:
    log = data / "orders-1" / "00000000000000000000.log"
    log.write_bytes(damaged(log.read_bytes()))
    ran = kseg("erase", data, "--key", "a", "--apply")
    assert ran.code == 1
    assert f"kseg salvage {data / 'orders-1'} -o OUT" in ran.err
    assert "the record at offset 0 goes" in ran.text
