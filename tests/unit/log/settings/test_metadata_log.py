"""Where the records of a metadata log lie, and how many of them a majority of the voters has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kseg.errors import CorruptRecordError, OffsetOutOfRangeError
from kseg.log.settings import certain_end, end_at, log_batches, read_cluster, voters_of
from tests.unit.log.settings.made import Broker, Said, batches, setting, snapshot, topic

RETENTION = "retention.ms"


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def values_of(broker: Broker, **given: int) -> tuple[str, int, int]:
    """The value of the topic's setting, the offset of its change, and that of the snapshot."""
    cluster = read_cluster(broker.log, history=True, **given)
    found = cluster.configs[2, "orders"][RETENTION]
    return found.value, found.place.offset, cluster.snapshot_end


def limit(value: int) -> Said:
    return setting(RETENTION, str(value))


# ---- from where the records are read -------------------------------------------------------------


def test_history_goes_back_as_far_as_the_log_does(broker: Broker) -> None:
    broker.says([topic("orders"), limit(1)], [limit(2)], [limit(3)])
    broker.has_snapshot(3, snapshot([[topic("orders"), limit(2)]]))
    assert values_of(broker) == ("3", 3, 0)
    assert values_of(broker, end_offset=3) == ("2", 2, 0)
    assert values_of(broker, end_offset=2) == ("1", 1, 0)


def test_history_begins_with_the_oldest_snapshot_where_the_log_does(broker: Broker) -> None:
    broker.says([limit(3)], [limit(4)], base_offset=3)
    broker.has_snapshot(3, snapshot([[topic("orders"), limit(2)]]))
    broker.has_snapshot(4, snapshot([[topic("orders"), limit(3)]]))
    assert values_of(broker) == ("4", 4, 3)
    assert values_of(broker, end_offset=3) == ("2", -1, 3)
    with pytest.raises(OffsetOutOfRangeError, match="not known"):
        values_of(broker, end_offset=2)


def test_damage_before_a_snapshot_costs_the_history_and_not_the_state(broker: Broker) -> None:
    broker.says([topic("orders"), limit(1)], [limit(2)], [limit(3)])
    path = broker.log / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(batches([[topic("orders"), limit(1)]])) - 1] ^= 1
    path.write_bytes(data)
    broker.has_snapshot(3, snapshot([[topic("orders"), limit(2)]]))
    cluster = read_cluster(broker.log, history=True)
    assert (cluster.configs[2, "orders"][RETENTION].value, cluster.end_offset) == ("3", 4)
    assert [type(each) for each in cluster.findings] == [CorruptRecordError]


def test_a_snapshot_ahead_of_the_log_has_the_state(broker: Broker) -> None:
    broker.says([topic("orders"), limit(1)])
    broker.has_snapshot(9, snapshot([[topic("orders"), limit(2)]]))
    assert values_of(broker) == ("2", -1, 9)
    assert values_of(broker, end_offset=2) == ("1", 1, 0)


def test_a_log_without_records_says_so(broker: Broker) -> None:
    broker.log.mkdir()
    assert not read_cluster(broker.log).trusted
    with pytest.raises(OffsetOutOfRangeError):
        read_cluster(broker.log, history=True)
    broker.has_snapshot(9, snapshot([[topic("orders")]], footer=False))
    with pytest.raises(CorruptRecordError, match="no footer"):
        read_cluster(broker.log, history=True)


# ---- moments and majorities ----------------------------------------------------------------------


def rows(*told: tuple[int, int, int, int]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Batches: first and last offset, epoch, time; the checksum is made of them."""
    return np.array([(*each, hash(each) % 2**31) for each in told], np.int64).reshape(-1, 5)


A, B, C = (0, 4, 1, 10), (5, 9, 1, 20), (10, 14, 2, 30)
OTHER = (10, 14, 1, 25)


@pytest.mark.parametrize(
    ("copies", "voters", "end"),
    [
        ([rows(A, B, C)], 1, 15),
        ([rows(A, B, C)], 3, 0),
        ([rows(A, B, C), rows(A, B, C)], 3, 15),
        ([rows(A, B), rows(A, B)], 3, 10),
        ([rows(A, B), rows(A)], 3, 5),
        ([rows(A, B, C), rows(A, B)], 3, 0),  # none of the newest epoch
        ([rows(A, B, C), rows(A, B, OTHER)], 3, 0),
        ([rows(A, B, C), rows(A, B, OTHER), rows(A, B, C)], 3, 15),
        ([rows(A, B, C), rows(B, C)], 3, 15),  # one begins later
        ([rows(B, C), rows(A, B, C)], 3, 15),
        ([rows(A, B, C), rows()], 3, 0),
        ([rows()], 1, 0),
        ([], 0, 0),
        ([rows(A, B, C), rows(A, B, C)], 4, 0),
    ],
)
def test_a_record_is_certain_that_a_majority_has(
    copies: list[np.ndarray[tuple[int, int], np.dtype[np.int64]]], voters: int, end: int
) -> None:
    assert certain_end(copies, voters) == end


def test_a_moment_ends_before_the_first_later_batch() -> None:
    found = rows(A, C, B)
    assert [end_at(found, time) for time in (9, 10, 29, 30)] == [0, 10, 10, None]


def test_batches_are_told_by_their_headers(broker: Broker) -> None:
    broker.says([topic("orders"), limit(1)], [limit(2)])
    assert log_batches(broker.log)[:, :2].tolist() == [[0, 1], [2, 2]]


@pytest.mark.parametrize(
    ("text", "voters"),
    [
        ('{"currentVoters":[{"voterId":3},{"voterId":5}],"data_version":0}', (3, 5)),
        ('{"leaderId":1,"data_version":1}', ()),
        ('{"currentVoters":7}', ()),
        ("[" * 5_000, ()),
        ("", ()),
    ],
)
def test_voters_are_those_of_the_quorum_state(
    broker: Broker, text: str, voters: tuple[int, ...]
) -> None:
    broker.says([topic("orders")])
    (broker.log / "quorum-state").write_text(text)
    assert voters_of(None, broker.log) == voters
    assert voters_of(read_cluster(broker.log), broker.log) == voters
