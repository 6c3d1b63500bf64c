"""Transactions that are open where a log is cut: their coordinator decides, then a marker."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg import BatchBuilder, BatchOptions
from kseg.broker import AppendOrigin
from kseg.catalog import Catalog
from kseg.change.adopted_log import AdoptedTransaction, decide
from kseg.control import ControlType
from kseg.log.log import Log
from kseg.log.reader.view import LogView
from tests.coordinators import TRANSACTIONS, LogWriter, pair

PRODUCER, BEGIN_MS = 7, 1_790_000_000_000
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMMITTED, ABORTED = 1, 2, 3, 4, 5
COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
#: A change of state: its epoch, its status, and its time after the begin.
State = tuple[int, int, int]
#: A marker: the partition, its epoch, its type and its time after the begin; None for a batch.
Marker = tuple[int, int, ControlType | None, int]


def made(home: Path, states: list[State], markers: list[Marker]) -> AdoptedTransaction:
    """A transaction that is open in partition 0, and markers of its producer."""
    home.mkdir()
    for number in range(3):
        with Log.open(home / f"orders-{number}", mode="append", create=True) as log:
            given = [(number, 3, None, 0)] if number < 2 else []
            for place, epoch, kind, after in [*given, *markers]:
                if kind is None and place == number:
                    options = BatchOptions(
                        producer_id=PRODUCER,
                        producer_epoch=epoch,
                        base_sequence=0,
                        transactional=True,
                    )
                    columns = {"value": [b"x"], "timestamp": [BEGIN_MS + after]}
                    log.append(kseg.encode_batch(columns, options))
                elif place == number:
                    assert kind is not None
                    builder = BatchBuilder(
                        producer_id=PRODUCER, producer_epoch=epoch, transactional=True, control=True
                    )
                    builder.append_end_marker(kind, 0, timestamp=BEGIN_MS + after)
                    log.append(builder.build(), origin=AppendOrigin.COORDINATOR)
    writer = LogWriter(home / f"{TRANSACTIONS}-0")
    for epoch, status, after in states:
        value = {
            "producerId": PRODUCER,
            "producerEpoch": epoch,
            "transactionStatus": status,
            "transactionLastUpdateTimestampMs": BEGIN_MS + after,
        }
        writer.add(
            [pair(TRANSACTIONS, "TRANSACTION_LOG", {"transactionalId": "mine"}, value, 1)],
            BEGIN_MS + after,
        )
    if states:
        writer.write()
    return AdoptedTransaction("orders-0", PRODUCER, 3, 0, 0, BEGIN_MS)


CASES: dict[str, tuple[list[State], list[Marker], int | None, bool | None]] = {
    "nothing tells": ([], [], None, None),
    "ongoing": ([(3, ONGOING, 0)], [], None, False),
    "prepared to commit": ([(3, ONGOING, 0), (3, PREPARE_COMMIT, 5)], [], None, True),
    "prepared to abort": ([(3, ONGOING, 0), (3, PREPARE_ABORT, 5)], [], None, False),
    "committed": ([(3, COMMITTED, 9)], [], None, True),
    "aborted": ([(3, ABORTED, 9)], [], None, False),
    "prepared later": ([(3, ONGOING, 0), (3, PREPARE_COMMIT, 5)], [], 4, False),
    "prepared at the moment": ([(3, ONGOING, 0), (3, PREPARE_COMMIT, 5)], [], 5, True),
    "the next epoch commits": ([(3, ONGOING, 0), (4, PREPARE_COMMIT, 5)], [], None, True),
    "the next one is open": (
        [(3, ONGOING, 0), (4, PREPARE_COMMIT, 5), (4, COMMITTED, 6), (4, ONGOING, 7)],
        [],
        None,
        True,
    ),
    "the next one alone": ([(4, ONGOING, 7)], [], None, None),
    "an earlier one": ([(3, COMMITTED, -4)], [], None, None),
    "an older state": ([(2, COMMITTED, 4)], [], None, None),
    "a marker commits": ([], [(1, 3, COMMIT, 5)], None, True),
    "a marker aborts": ([], [(1, 3, ABORT, 5)], None, False),
    "a marker of the next epoch": ([], [(1, 4, COMMIT, 5)], None, True),
    "a marker that fences": ([], [(1, 5, ABORT, 5)], None, False),
    "the marker of the one before": ([], [(2, 2, None, -9), (2, 3, COMMIT, 5)], None, None),
    "both": ([], [(2, 2, None, -9), (2, 3, ABORT, 5), (1, 4, COMMIT, 6)], None, True),
    "a marker without batches": ([], [(2, 3, COMMIT, 5)], None, None),
    "a marker in front": ([], [(1, 3, COMMIT, -5)], None, None),
    "a marker behind the moment": ([], [(1, 3, COMMIT, 5)], 4, None),
    "the first of two": ([], [(1, 4, COMMIT, 5), (1, 4, ABORT, 8)], None, True),
    "its own, behind a cut": ([], [(0, 3, COMMIT, 5)], None, True),
    "they agree": ([(3, PREPARE_COMMIT, 5)], [(1, 3, COMMIT, 6)], None, True),
    "they differ": ([(3, ONGOING, 0)], [(1, 3, COMMIT, 6)], None, None),
}


def views(home: Path) -> list[tuple[LogView, int]]:
    return [(LogView.at(each), 0) for each in Catalog.of(home)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("undecided", ["stop", "abort", "commit"])
def test_the_end_of_a_transaction(tmp_path: Path, name: str, undecided: str) -> None:
    states, markers, after, wanted = CASES[name]
    one = made(tmp_path / "data", states, markers)
    at_ms = None if after is None else BEGIN_MS + after
    found = decide([one], views(tmp_path / "data"), at_ms, undecided)[one]
    if wanted is None and undecided != "stop":
        wanted = undecided == "commit"
    assert found.commits == wanted
    assert wanted is None or found.why
    if wanted is None:
        assert ("contradicts" in found.question) == (name == "they differ")


def test_all_partitions_of_a_transaction_end_alike(tmp_path: Path) -> None:
    """A marker must not be older than the first record in any of them."""
    one = made(tmp_path / "data", [], [(1, 3, COMMIT, 5)])
    late = AdoptedTransaction("other-0", PRODUCER, 3, 0, 0, BEGIN_MS + 6)
    logs = views(tmp_path / "data")
    assert {each.commits for each in decide([one, late], logs, None, "stop").values()} == {None}
    both = [one, AdoptedTransaction("other-0", PRODUCER, 3, 0, 0, BEGIN_MS + 5)]
    assert {each.commits for each in decide(both, logs, None, "stop").values()} == {True}


def test_damage_in_the_coordinators_log_hides_what_is_behind(tmp_path: Path) -> None:
    one = made(tmp_path / "data", [(3, ONGOING, 0), (3, PREPARE_COMMIT, 5)], [])
    (path,) = (tmp_path / "data" / f"{TRANSACTIONS}-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert decide([one], views(tmp_path / "data"), None, "stop")[one].commits is None
