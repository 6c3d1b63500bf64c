"""`kseg adopt`: what it prints, its document, and its exit codes."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.adopted import Source, served, target
from tests.coordinators import OFFSETS, LogWriter, commit
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def source(tmp_path: Path) -> Source:
    found = Source(tmp_path / "old", 2, Random(3))
    found.write(100)
    return found


def test_a_plan_is_printed_and_applied(kseg: Kseg, tmp_path: Path, source: Source) -> None:
    home = target(tmp_path / "data", 2).path
    words = ("adopt", source.home, "--into", home, "--topic", "old=orders")
    ran = kseg(*words)
    assert ran.code == 1
    assert re.search(r"^refused: old-0: nothing tells the end .* --undecided abort", ran.text, re.M)
    assert "--apply does it" not in ran.err
    ran = kseg(*words, "--undecided", "abort", "--at", source.now_ms)
    assert (ran.code, "nothing was changed; --apply does it" in ran.err) == (1, True)
    assert re.search(r"^orders-0: the transaction .* is aborted: the caller$", ran.text, re.M)
    assert re.search(r"^orders-1: 0 records of no later time lie after", ran.text, re.M)
    planned = kseg(*words, "--undecided", "abort", "--json").document
    assert planned["applied"] is False
    done = kseg(*words, "--undecided", "abort", "--apply", "--json")
    assert (done.code, done.document) == (0, planned | {"applied": True})
    for number, each in enumerate(done.document["partitions"]):
        wanted = source.expected(number, committed=True)
        assert served(Path(each["targets"][0]), "read_committed") == wanted
    again = kseg(*words, "--undecided", "abort", "--apply", "--json")
    assert (again.code, again.document["applied"]) == (1, False)
    assert "has or had records" in again.document["refused"][0]


def test_the_commands_that_keep_records(kseg: Kseg, tmp_path: Path, source: Source) -> None:
    home = target(tmp_path / "data", 2, retention=("retention.ms", "60000")).path
    words = ("adopt", source.home, "--into", home, "--topic", "old=orders", "--undecided", "abort")
    ran = kseg(*words)
    assert ran.code == 1
    before = ran.text.index("type before the adoption")
    assert "--add-config retention.ms=-1" in ran.text[before:]
    assert "type after the adoption" in ran.text[before:]
    assert kseg(*words, "--let-retention-delete", "--apply").code == 0


def test_a_target_that_is_no_brokers(kseg: Kseg, tmp_path: Path, source: Source) -> None:
    ran = kseg("adopt", source.home, "--into", tmp_path)
    assert ran.code == 3
    assert "no meta.properties" in ran.err


def test_damage_is_found_with_and_without_a_plan(
    kseg: Kseg, tmp_path: Path, source: Source
) -> None:
    """With --apply each checksum is compared once, as the bytes are copied."""
    home = target(tmp_path / "data", 2).path
    log = sorted((source.home / "old-1").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    words = ("adopt", source.home, "--into", home, "--topic", "old=orders", "--undecided", "abort")
    remedy = f"first make a sound copy: kseg salvage {source.home}/old-1 -o OUT"
    ran = kseg(*words)
    assert ran.code == 1
    assert remedy in ran.text
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ran = kseg(*words, "--apply")
    assert ran.code == 1
    assert f"{log} @ 0" in ran.err
    assert f"nothing was changed; {remedy}" in ran.err
    assert before == {path: path.read_bytes() for path in before}
    assert not home.with_name("data.kseg-adopt").exists()


def test_groups_go_on_where_they_stood(kseg: Kseg, tmp_path: Path, source: Source) -> None:
    at_ms = (source.notes[0].time_ms + source.now_ms) // 2
    offsets = LogWriter(source.home / f"{OFFSETS}-0")
    offsets.add([commit("g, 1", "old", 0, 7), commit("g, 1", "other", 0, 7)], at_ms - 1)
    offsets.add([commit("g, 1", "old", 1, 10**6), commit("g2", "old", 1, 3)], at_ms)
    offsets.add([commit("g, 1", "old", 0, 9)], at_ms + 1)
    offsets.write()
    home, file = target(tmp_path / "data", 2).path, tmp_path / "groups.csv"
    words = ("adopt", source.home, "--into", home, "--topic", "old=orders", "--at", at_ms)
    words = (*words, "--undecided", "abort", "--json")
    (plain,) = kseg(*words).document["after"]
    assert plain == f"kseg groups {source.home} --at {at_ms} --reset-commands offsets.csv"
    planned = kseg(*words, "--groups-csv", file).document
    (line,) = planned["after"]
    end = planned["partitions"][1]["log_end_offset"]
    assert 0 < end < 10**6
    with open(file, newline="") as lines:
        rows = [["g, 1", "orders", "0", "7"], ["g, 1", "orders", "1", str(end)]]
        assert sorted(csv.reader(lines)) == [*rows, ["g2", "orders", "1", "3"]]
    assert line.startswith("kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group 'g, 1' ")
    assert f"--from-file {file}" in line
    file.unlink()
    assert kseg(*words, "--groups-csv", file, "--apply").document["applied"]
    assert file.exists()
    shutil.rmtree(source.home / f"{OFFSETS}-0")
    empty = target(tmp_path / "more", 2).path
    ran = kseg(*words[:2], "--into", empty, *words[4:], "--groups-csv", tmp_path / "none.csv")
    assert "there is no file of groups" in ran.err
    assert not (tmp_path / "none.csv").exists()
