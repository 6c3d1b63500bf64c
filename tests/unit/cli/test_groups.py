"""`kseg groups`: tables, JSON, the file for Kafka's tools, and the exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kseg as library
from tests.coordinators import OFFSETS, LogWriter, commit
from tests.unit.analysis.test_groups import CONSUMER, classic, member, modern, plain_log
from tests.unit.cli.conftest import Kseg

#: Partitions of members whose logs are not here; the topic of the first has an id and no name.
UNREAD = "AAAAAAAAAAAAAAAAAAAATQ-4, t-1"
AWAY = "not here; give the data directories of all brokers"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    log = LogWriter(directory / f"{OFFSETS}-0")
    log.add([classic("old", "t"), commit("old", "t", 0, 4, metadata="\x1b[2J")], 1000)
    log.add(modern(CONSUMER, "new", 2, 2) + member(CONSUMER, "new", "m", epoch=2, state=0), 2000)
    log.add([commit("new", "t", 0, 7, commitTimestamp=60_000)], 3000).write()
    plain_log(directory / "t-0")
    (directory / "replication-offset-checkpoint").unlink(missing_ok=True)
    return directory


def test_the_table_has_a_line_for_each_group(kseg: Kseg, data: Path) -> None:
    ran = kseg("groups", data)
    assert (ran.code, ran.err) == (0, f"no lag for {UNREAD}: {AWAY}\n")
    head, *lines = ran.text.splitlines()
    names = "group type state epoch members commits pending lag expires"
    assert head.split() == names.split()
    assert [line.split()[:8] for line in lines] == [
        ["new", "Consumer", "Stable", "2", "1", "1", "0", "-"],
        ["old", "Classic", "Stable", "3", "1", "1", "0", "-"],
    ]


def test_partitions_without_a_lag_are_named(kseg: Kseg, data: Path) -> None:
    shutil.rmtree(data / "t-0")
    ran = kseg("groups", data)
    assert ran.err == f"no lag for {UNREAD.replace(' t-1', ' t-0, t-1')}: {AWAY}\n"
    assert kseg("groups", data, "--group", "nobody").text == "no group here is nobody\n"


def test_a_glob_shows_members_and_commits(kseg: Kseg, data: Path) -> None:
    ran = kseg("groups", data, "--group", "old", "--at", "2500", "--since", "500")
    assert "t:0,1" in ran.text
    assert "\x1b" not in ran.text
    assert "offset" in ran.text
    assert "taken up to offset 5, 1970-01-01T00:00:02.000Z; the log ends at 7" in ran.text


def test_the_document_has_the_fields_of_the_report(kseg: Kseg, data: Path) -> None:
    document = kseg("groups", data, "--json").document
    assert document.pop("schema") == "kseg.groups/1"
    assert document.pop("path") == str(data)
    assert document == library.groups(data).to_json()
    assert [row["lag"] for row in document["commits"]] == [None, 3, 6, None]


def test_the_retention_of_the_broker_is_taken(kseg: Kseg, data: Path) -> None:
    config = ("--config", "offsets.retention.minutes=1")
    new, _old = kseg("groups", data, "--json", *config).document["groups"]
    assert new["expires_ms"] == 120_000
    for wrong in ("retention.ms=1", "offsets.retention.minutes=x", "t:offsets.retention.minutes=1"):
        ran = kseg("groups", data, "--config", wrong)
        assert (ran.code, "offsets.retention.minutes=N" in ran.err) == (2, True)


def test_a_file_for_the_tools_of_kafka_is_written(kseg: Kseg, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "offsets.csv"
    ran = kseg("groups", data, "--reset-commands", out)
    assert out.read_text() == "new,t,0,7\nold,t,0,4\n"
    assert ran.text.splitlines()[-1].split() == [
        *("kafka-consumer-groups.sh", "--bootstrap-server", "HOST:PORT"),
        *("--group", "new", "--group", "old", "--reset-offsets"),
        *("--from-file", str(out), "--dry-run"),
    ]
    ran = kseg("groups", data, "--group", "old", "--reset-commands", out, "--json")
    assert out.read_text() == "t,0,4\n"
    assert "--group old" in ran.err


def test_partitions_without_a_commit_at_that_time_are_listed(kseg: Kseg, tmp_path: Path) -> None:
    log = LogWriter(tmp_path / f"{OFFSETS}-0").add([commit("g", "t", 2, 5)], 1000)
    log.add([commit("new\nline", "t", 2, 5)], 1000)
    log.add([commit("g", "t", number, 9) for number in (0, 1, 2)], 3000).write()
    out = tmp_path / "offsets.csv"
    ran = kseg("groups", tmp_path, "--at", "2000", "--reset-commands", out)
    assert out.read_text() == "t,2,5\n"
    lines = ran.err.splitlines()
    assert "new\\u000aline: not in the file, since its name has a line break" in lines
    assert lines[-1].split() == [
        *("kafka-consumer-groups.sh", "--bootstrap-server", "HOST:PORT", "--delete-offsets"),
        *("--group", "g", "--topic", "t:0,1"),
    ]
    assert "--delete-offsets" not in kseg("groups", tmp_path, "--reset-commands", out).err


def test_what_the_tools_of_share_groups_take_is_said(kseg: Kseg, tmp_path: Path) -> None:
    LogWriter(tmp_path / f"{OFFSETS}-0").add(
        [
            *modern("SHARE_GROUP", "s", 1, 1),
            *modern("STREAMS_GROUP", "x", 1, 1),
            commit("x", "t", 0, 3),
        ]
    ).write()
    ran = kseg("groups", tmp_path, "--reset-commands", tmp_path / "o.csv")
    *_, streams, share = ran.text.splitlines()
    assert streams.split()[:5] == [
        *("kafka-streams-groups.sh", "--bootstrap-server", "HOST:PORT", "--group", "x")
    ]
    assert "kafka-share-groups.sh --reset-offsets takes --to-earliest" in share


def test_damage_is_said_and_exits_1(kseg: Kseg, data: Path) -> None:
    path = data / f"{OFFSETS}-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    ran = kseg("groups", data)
    assert (ran.code, "log-damaged" in ran.err) == (1, True)


def test_codes_are_listed_and_a_directory_is_needed(kseg: Kseg) -> None:
    assert "log-damaged" in kseg("groups", "--codes").text
    assert kseg("groups").code == 2
