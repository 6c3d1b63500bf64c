"""`transactions`: statuses, the rules of find-hanging, what is held, and moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import kseg
from kseg.files.checkpoints import TopicPartition, write_offset_checkpoint
from kseg.reports import Transactions
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


def test_the_first_open_transaction_holds_the_others(tmp_path: Path) -> None:
    log(tmp_path).add(DATA, 1, producer_id=2).add(DATA, 1, producer_id=1).write()
    write_offset_checkpoint(tmp_path / "cleaner-offset-checkpoint", {TopicPartition("t", 0): 0})
    found = asked(tmp_path)
    assert [each.holds for each in found] == ["last-stable-offset, cleaner", ""]
    with kseg.Log.open(tmp_path / "t-0") as opened:
        assert found[0].first_offset == opened.last_stable_offset
    assert pl.DataFrame(found)["first_offset"].to_list() == [0, 2]
