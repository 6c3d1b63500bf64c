"""`transactions`: statuses, the rules of find-hanging, what is held, and moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kseg
from kseg.files.checkpoints import TopicPartition, write_offset_checkpoint
from kseg.reports import Transactions
from tests import builders
from tests.coordinators import TRANSACTIONS, LogWriter, Pair, pair

#: Ages count to here; transactions may take a minute.
NOW = 100_000
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, DEAD = 1, 2, 3, 4, 6


def state(name: str, producer_id: int, status: int, *partitions: int, version: int = 0) -> Pair:
    """A record of `__transaction_state`."""
    value = {
        "producerId": producer_id,
        "transactionStatus": status,
        "transactionPartitions": [{"topic": "t", "partitionIds": list(partitions)}],
        "clientTransactionVersion": version,
        "transactionStartTimestampMs": 5,
    }
    return pair(TRANSACTIONS, "TRANSACTION_LOG", {"transactionalId": name}, value, 1)


def asked(directory: Path, *states: Pair, **options: Any) -> Transactions:
    LogWriter(directory / f"{TRANSACTIONS}-0").add(states, 1000).write()
    options = {"now": NOW, "max_timeout_minutes": 1} | options
    return kseg.transactions(directory, **options)


def log(directory: Path, partition: int = 0) -> LogWriter:
    return LogWriter(directory / f"t-{partition}")


DATA: list[Pair] = [(b"k", b"v"), (b"k", b"w")]


def rows(found: Transactions) -> list[dict[str, Any]]:
    return list(found.transactions.rows())


def test_a_transaction_goes_from_its_first_batch_to_its_marker(tmp_path: Path) -> None:
    writer = log(tmp_path).add(DATA, 1000, producer_id=1).add(DATA, 2000, producer_id=2)
    writer.add(DATA).add(DATA, 3000, producer_id=1).end_transaction(1, 5000, commits=True)
    writer.end_transaction(2, 6000, commits=False).add(DATA, 7000, producer_id=1)
    writer.end_transaction(1, 8000, commits=True).write()
    found = asked(tmp_path, state("a", 1, COMPLETE_COMMIT))
    assert found.counts == {
        **dict.fromkeys(("hanging", "open", "prepared", "fenced"), 0),
        "aborted": 1,
        "committed": 2,
    }
    first, second, third = rows(found)
    names = ("status", "first_offset", "last_offset", "records", "marker_offset", "duration_ms")
    assert [first[name] for name in names] == ["committed", 0, 7, 4, 8, 4000]
    assert [second[name] for name in names] == ["aborted", 2, 3, 2, 9, 4000]
    assert [third[name] for name in names] == ["committed", 10, 11, 2, 12, 1000]
    assert [each["transactional_id"] for each in rows(found)] == ["a", None, "a"]
    size = sum(len(builders.batch([builders.record(b"v", key=b"k")] * 2)) for _ in range(2))
    assert first["bytes"] == size
    assert found.transactions.to_arrow().num_rows == 3
    assert len(found) == 0


STATES: dict[str, tuple[list[Pair], int, str, str]] = {
    # what the coordinator has, the time of the last batch, the status, the command
    "no id has the producer": ([], 30_000, "hanging", "abort"),
    "its id is of another producer": ([state("a", 9, ONGOING, 0)], 30_000, "hanging", "abort"),
    "its id is dead": ([state("a", 1, DEAD, 0)], 30_000, "hanging", "abort"),
    "its id lacks the partition": ([state("a", 1, ONGOING, 1)], 30_000, "hanging", "abort"),
    "its id has no transaction": ([state("a", 1, COMPLETE_COMMIT)], 30_000, "hanging", "abort"),
    "no id, but young": ([], 60_000, "open", ""),
    "its id has it": ([state("a", 1, ONGOING, 0)], 30_000, "open", "forceTerminateTransaction"),
    "it will be committed": ([state("a", 1, PREPARE_COMMIT, 0)], 30_000, "prepared", ""),
    "it will be aborted": ([state("a", 1, PREPARE_ABORT, 0)], 30_000, "prepared", ""),
}


@pytest.mark.parametrize("case", STATES)
def test_an_open_transaction_is_judged_as_kafka_does(case: str, tmp_path: Path) -> None:
    states, time, status, command = STATES[case]
    log(tmp_path).add(DATA, time, producer_id=1).write()
    tombstone = pair(TRANSACTIONS, "TRANSACTION_LOG", {"transactionalId": "gone"}, None, 1)
    (found,) = asked(tmp_path, *states, tombstone)
    assert (found.status, found.holds) == (status, "last-stable-offset")
    assert (found.command or "").split()[3:4] == ([command] if command else [])
    if command == "abort":
        assert str(found.command).endswith("abort --topic t --partition 0 --start-offset 0")


def test_without_the_whole_coordinator_s_log_nothing_hangs(tmp_path: Path) -> None:
    log(tmp_path).add(DATA, 30_000, producer_id=1).write()
    options: dict[str, Any] = {"now": NOW, "max_timeout_minutes": 1}
    (found,) = kseg.transactions(tmp_path, **options)
    assert (found.status, found.command) == ("open", None)
    assert "not here whole" in found.why
    LogWriter(tmp_path / f"{TRANSACTIONS}-1").add([state("a", 9, ONGOING, 0)]).write()
    report = kseg.transactions(tmp_path, **options)
    assert report[0].status == "open"
    assert [each.code for each in report.findings] == ["partition-missing"]


def test_a_fenced_producer_shows_where_markers_keep_the_epoch(tmp_path: Path) -> None:
    writer = log(tmp_path)
    for producer in (1, 2, 3):
        writer.add(DATA, 1000, producer_id=producer)
        writer.end_transaction(producer, 2000, commits=False, epoch=1)
    writer.write()
    states = [state("old", 1, COMPLETE_COMMIT), state("new", 2, COMPLETE_COMMIT, version=2)]
    found = asked(tmp_path, *states)
    assert [row["status"] for row in rows(found)] == ["fenced", "aborted", "aborted"]
    assert {each.transactional_id: each.client_transaction_version for each in found.ids} == {
        "old": 0,
        "new": 2,
    }


def test_the_first_open_transaction_holds_the_others(tmp_path: Path) -> None:
    log(tmp_path).add(DATA, 1, producer_id=2).add(DATA, 1, producer_id=1).write()
    write_offset_checkpoint(tmp_path / "cleaner-offset-checkpoint", {TopicPartition("t", 0): 0})
    found = asked(tmp_path)
    assert [each.holds for each in found] == ["last-stable-offset, cleaner", ""]
    with kseg.Log.open(tmp_path / "t-0") as opened:
        assert found[0].first_offset == opened.last_stable_offset
    assert pl.DataFrame(found)["first_offset"].to_list() == [0, 2]


def test_a_moment_takes_the_batches_until_then(tmp_path: Path) -> None:
    writer = log(tmp_path).add(DATA, 1000, producer_id=1).end_transaction(1, 2000, commits=True)
    writer.add(DATA, 3000, producer_id=1).end_transaction(1, 4000, commits=True).write()
    found = asked(tmp_path, state("a", 1, ONGOING, 0), at=1500)
    assert [(each.status, each.first_offset) for each in found] == [("open", 0)]
    assert rows(found)[0]["duration_ms"] == 500
    assert [row["first_offset"] for row in rows(asked(tmp_path, since=2500))] == [3]


def test_partitions_are_chosen_and_markers_alone_are_said(tmp_path: Path) -> None:
    for partition in (0, 1):
        log(tmp_path, partition).end_transaction(1, 10, commits=True).write()
    found = asked(tmp_path, topics="t", partitions=1)
    assert [(each.code, each.offset) for each in found.findings] == [("marker-alone", 0)]
    assert found.findings[0].path.endswith("t-1")
    assert found.title == ""


def test_damage_is_a_finding(tmp_path: Path) -> None:
    path = log(tmp_path).add(DATA, 30_000, producer_id=1).write() / f"{0:020}.log"
    (path.parent / f"{100:020}.log").write_bytes(path.read_bytes()[:50])
    found = asked(tmp_path)
    assert [each.code for each in found.findings] == []  # a torn end of the last segment is none
    (path.parent / f"{200:020}.log").write_bytes(b"")
    assert [each.code for each in asked(tmp_path).findings] == ["log-damaged"]
