"""The last value of each key, held to a plain model of Kafka's replay."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kseg.internal import InternalTopic, coordinators, decode
from kseg.internal.coordinators import COLUMNS, LastValues
from kseg.log.log import Log
from tests.coordinators import OFFSETS, SHARE, LogWriter, commit, pair


def taken(directory: Path, topic: str = OFFSETS) -> list[tuple[int, int]]:
    """Offset and producer id of what is left."""
    values = LastValues(InternalTopic(topic))
    with Log.open(directory) as log:
        for columns in log.read(columns=COLUMNS, control=True, max_rows=7):
            values.feed(columns)
    return [
        pair
        for chunk in values.drain()
        for pair in zip(chunk["offset"].tolist(), chunk["producer_id"].tolist(), strict=True)
    ]


class Model:
    """`OffsetMetadataManager.replay`, word by word; tombstones are kept, to be compared."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.pending: dict[int, dict[int, int]] = {}

    def replay(self, offset: int, key: int, producer_id: int | None, *, tombstone: bool) -> None:
        if tombstone:
            self.offsets[key] = offset
            for each in self.pending.values():
                each.pop(key, None)
        elif producer_id is None:
            self.offsets[key] = offset
        else:
            self.pending.setdefault(producer_id, {})[key] = offset

    def end(self, producer_id: int, *, commits: bool) -> None:
        for key, offset in self.pending.pop(producer_id, {}).items():
            if commits and offset > self.offsets.get(key, -1):
                self.offsets[key] = offset


@pytest.mark.parametrize("seed", range(12))
def test_a_replay_is_that_of_kafka(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "_FRESH_BYTES_MIN", seed % 3 * 4000)
    rng, model, log = random.Random(seed), Model(), LogWriter(tmp_path / "t-0")
    for _ in range(250):
        producer_id = rng.choice([None, None, 5, 6, 7])
        if producer_id and rng.random() < 0.3:
            commits = rng.random() < 0.6
            model.end(producer_id, commits=commits)
            log.end_transaction(producer_id, commits=commits)
            continue
        tombstone = producer_id is None and rng.random() < 0.2
        key = rng.randrange(12)
        model.replay(log.end, key, producer_id, tombstone=tombstone)
        row = commit("g", "t", key, None if tombstone else log.end)
        log.add([row], **({} if producer_id is None else {"producer_id": producer_id}))
    found = taken(log.write())
    assert sorted(offset for offset, producer in found if producer == -1) == sorted(
        model.offsets.values()
    )
    behind = {
        (offset, producer)
        for producer, keys in model.pending.items()
        for key, offset in keys.items()
    }
    # A pending record in front of a tombstone of its key is still there, and loses to it.
    assert behind <= {(offset, producer) for offset, producer in found if producer != -1}


def test_a_key_with_bytes_behind_it_is_another_key_than_a_pending_one(tmp_path: Path) -> None:
    key, value = commit("g", "t", 0, 1)
    rows = LogWriter(tmp_path / "t-0").add([(key, value)], producer_id=5)
    rows.add([(key + (5).to_bytes(8, "little"), value)])
    assert taken(rows.write()) == [(0, 5), (1, -1)]


def test_updates_behind_the_last_snapshot_of_their_key_stay(tmp_path: Path) -> None:
    topic_id = UUID(int=7)

    def row(name: str, partition: int) -> Any:
        key = {"groupId": "s", "topicId": topic_id, "partition": partition}
        return pair(SHARE, name, key, {})

    names = ["SHARE_SNAPSHOT", "SHARE_UPDATE", "SHARE_UPDATE", "SHARE_SNAPSHOT", "SHARE_UPDATE"]
    log = LogWriter(tmp_path / "t-0").add([row(name, 0) for name in names])
    log.add([row("SHARE_UPDATE", 1)])
    assert [offset for offset, _ in taken(log.write(), SHARE)] == [3, 4, 5]


def test_records_without_a_key_are_counted(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "t-0").add([(None, b"x"), commit("g", "t", 0, 1)])  # type: ignore[list-item]
    values = LastValues(InternalTopic.OFFSETS)
    with Log.open(log.write()) as opened:
        for columns in opened.read(columns=COLUMNS, control=True):
            values.feed(columns)
    assert [len(chunk) for chunk in values.drain()] == [1]
    assert values.unkeyed == 1


def test_what_is_left_can_be_decoded(tmp_path: Path) -> None:
    directory = LogWriter(tmp_path / "t-0").add([commit("g", "t", 0, 1)]).write()
    values = LastValues(InternalTopic.OFFSETS)
    with Log.open(directory) as log:
        for columns in log.read(columns=COLUMNS, control=True):
            values.feed(columns)
    (chunk,) = values.drain()
    assert decode(OFFSETS, chunk["key"][0], chunk["value"][0]).name == "OFFSET_COMMIT"
