"""LogSegment.recover, one claim a test: what a segment says is found again from its log alone.

The claims are those of Kafka's LogSegmentTest on recovery. Segments start at 0 or 100, as there,
with small indexes and an entry every 10 bytes.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kseg.files import io
from kseg.files.checkpoints import EpochEntry, LeaderEpochs
from kseg.files.names import list_partition
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import AbortedTxn
from kseg.log.config import LogConfig
from kseg.log.pending_deletes import remove_segment
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.sweep import Swept, sweep_segment
from kseg.log.segment.reader import Segment
from kseg.log.segment.writer import SegmentWriter
from tests.builders import ABORT, COMMIT, batch, control_batch, record
from tests.segments import append, messages_at, txn_entries, write_indexes

CONFIG = LogConfig(index_interval_bytes=10, segment_index_bytes=1000)


def written(directory: Path, base_offset: int, *parts: bytes, config: LogConfig = CONFIG) -> Path:
    """A segment with these batches, each appended by itself, closed."""
    with SegmentWriter.open(directory, base_offset, config, create=True, now_ms=0) as segment:
        for data in parts:
            append(segment, data)
        return segment.path


def recovered(
    path: Path,
    producers: ProducerState | None = None,
    epochs: LeaderEpochs | None = None,
    *,
    config: LogConfig = CONFIG,
) -> Swept:
    """What the segment says; it has the indexes for that, and no byte more of log, afterwards."""
    with Segment.open(path, mapping="never", is_last=True) as segment:
        swept = sweep_segment(
            segment, config=config, producers=producers, epochs=epochs, careful=False
        )
    assert swept.error is None
    with io.WriteFile.open(path) as file:
        file.truncate(swept.valid_bytes)
    write_indexes(path, swept)
    return swept


def noise(path: Path, position: int, size: int, seed: int = 0) -> None:
    """Other bytes from a position on."""
    data = path.read_bytes()
    path.write_bytes(data[:position] + random.Random(seed).randbytes(size))


def test_seg_21_each_offset_is_found_behind_an_index_that_was_noise(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=10)
    path = written(tmp_path, 0, *(messages_at(i) for i in range(100)), config=config)
    noise(path.with_suffix(".index"), 5, 1000)
    recovered(path, config=config)
    with Segment.open(path) as segment:
        for offset in range(100):
            found = segment.lookup(offset)
            assert found is not None
            assert (found.base_offset, found.last_offset) == (offset, offset)
            assert segment.start_for_offset(offset).position == (found.position if offset else 0)


def transactional(offset: int, producer: int) -> bytes:
    return batch(
        [record(b"a"), record(b"b")],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


TRANSACTIONS = (
    transactional(100, 5),
    transactional(102, 10),
    batch([record(b"a"), record(b"b")], base_offset=104),
    control_batch(ABORT, base_offset=106, producer_id=10),
    control_batch(COMMIT, base_offset=107, producer_id=5),
)


def test_seg_22_the_aborted_transaction_is_found_again(tmp_path: Path) -> None:
    path = written(tmp_path, 100, *TRANSACTIONS)
    producers = ProducerState()
    swept = recovered(path, producers)
    assert producers.map_end_offset == 108
    assert swept.aborted == (AbortedTxn(10, 102, 106, 100),)
    assert txn_entries(path.with_suffix(".txnindex")) == [(10, 102, 106, 100)]


def test_seg_23_a_transaction_that_began_before_the_segment_keeps_its_beginning(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, 100, *TRANSACTIONS)
    producers = ProducerState()
    stored = ProducerSnapshotEntry(
        producer_id=10,
        producer_epoch=0,
        last_sequence=0,
        last_offset=75,
        offset_delta=0,
        last_timestamp=0,
        coordinator_epoch=0,
        current_txn_first_offset=75,
    )
    producers.load([stored], 100)
    swept = recovered(path, producers)
    assert producers.map_end_offset == 108
    assert swept.aborted == (AbortedTxn(10, 75, 106, 100),)
    assert txn_entries(path.with_suffix(".txnindex")) == [(10, 75, 106, 100)]


def test_seg_24_epochs_are_found_again(tmp_path: Path) -> None:
    parts = [
        batch([record(b"a"), record(b"b")], base_offset=offset, leader_epoch=epoch)
        for offset, epoch in ((104, 0), (106, 1), (108, 1), (110, 2))
    ]
    path = written(tmp_path, 100, *parts)
    epochs = LeaderEpochs(path=tmp_path / "leader-epoch-checkpoint")
    recovered(path, ProducerState(), epochs)
    assert epochs.entries == (EpochEntry(0, 104), EpochEntry(1, 106), EpochEntry(2, 110))
    epochs.flush()
    assert epochs.path is not None
    assert LeaderEpochs.load(epochs.path).entries == epochs.entries


def test_seg_25_each_time_is_found_behind_a_time_index_that_was_noise(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=10)
    parts = [messages_at(i, timestamp=10 * i) for i in range(100)]
    path = written(tmp_path, 0, *parts, config=config)
    noise(path.with_suffix(".timeindex"), 5, 1000)
    recovered(path, config=config)
    with Segment.open(path) as segment:
        for i in range(99):
            for timestamp, offset in ((10 * i, i), (10 * i + 1, i + 1)):
                found = segment.lookup_time(timestamp)
                assert found is not None
                assert found.offset == offset


@pytest.mark.parametrize("seed", range(10))
def test_seg_26_what_lies_in_front_of_noise_stays_and_no_more(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    parts = [messages_at(i) for i in range(20)]
    path = written(tmp_path, 0, *parts)
    kept = chance.randrange(20)
    begin = sum(map(len, parts[:kept])) + chance.randrange(len(parts[kept]))
    # Kafka's test, too, leaves it to chance that noise is no message.
    noise(path, begin, path.stat().st_size - begin, seed)
    swept = recovered(path)
    assert swept.next_offset == kept
    assert path.read_bytes() == b"".join(parts[:kept])
    with Segment.open(path) as segment:
        assert [entry.offset for entry in segment.records()] == list(range(kept))
    remove_segment(list_partition(tmp_path).segments[0])
    assert list(tmp_path.iterdir()) == []
