from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kseg._kernels.placement import survey_rows
from kseg.constants import StopReason
from kseg.errors import (
    AppendError,
    InvalidRecordError,
    InvalidTxnStateError,
    LimitExceededError,
    UnsupportedFormatError,
)
from kseg.files.checkpoints import LeaderEpochs
from kseg.files.txn_index import AbortedTxn
from kseg.format.header import BatchHeader
from kseg.log.config import LogConfig
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.sweep import Swept, sweep_segment
from kseg.log.segment.reader import Segment
from tests.builders import (
    ABORT,
    batch,
    control_batch,
    record,
    write_segment,
)
from tests.producing import header, table
from tests.segments import batch_of, time_entries, write_indexes

BASE = 40
CONFIG = LogConfig(index_interval_bytes=100, segment_index_bytes=1000)


def sweep(path: Path, config: LogConfig = CONFIG, **how: Any) -> Swept:
    how = {"producers": ProducerState(), "epochs": LeaderEpochs(), **how}
    with Segment.open(path, is_last=True) as segment:
        return sweep_segment(segment, config=config, **how)


def plain(count: int, *, base: int = BASE, size: int = 90) -> list[bytes]:
    """Batches of one record, each with its offset times ten for its time."""
    return [batch_of(size, base_offset=base + i, timestamp=10 * (base + i)) for i in range(count)]


def transactional(offset: int, producer: int, *, count: int = 1) -> bytes:
    return batch(
        [record(b"v", timestamp=offset)] * count,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def test_a_magic_that_no_checksum_covers_ends_the_walk_but_not_a_brokers(tmp_path: Path) -> None:
    strange = batch([record(b"v", timestamp=900)], base_offset=45, magic=3)
    path = write_segment(tmp_path, BASE, *plain(5), strange)
    assert (sweep(path).valid_bytes, sweep(path).stop) == (450, StopReason.BAD_MAGIC)
    swept = sweep(path, careful=False)
    assert (swept.stop, swept.next_offset) == (StopReason.END, 46)


def test_a_full_index_takes_no_more_and_stops_a_broker(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=48)  # 6 and 4 slots
    path = write_segment(tmp_path, BASE, *plain(10))
    swept = sweep(path, config)
    assert (swept.error, swept.next_offset) == (None, 50)
    assert (swept.offset_entry_count, swept.time_entry_count) == (6, 4)
    write_indexes(path, swept)
    assert time_entries(path.with_suffix(".timeindex"), BASE)[-1] == (490, 49)
    swept = sweep(path, config, careful=False)
    assert isinstance(swept.error, LimitExceededError)
    assert swept.valid_bytes == 360
    fits = write_segment(tmp_path, BASE, *plain(4))
    assert sweep(fits, config, careful=False).error is None


def test_an_epoch_that_starts_in_front_of_zero_is_an_error_of_a_brokers_load(
    tmp_path: Path,
) -> None:
    odd = batch([record(b"v")], base_offset=-3, last_offset_delta=50, leader_epoch=2)
    swept = sweep(write_segment(tmp_path, BASE, *plain(1), odd), careful=False)
    assert type(swept.error) is AppendError
    assert swept.error.position == 90


def test_what_no_leader_would_have_taken_is_a_finding_and_an_error_for_a_broker(
    tmp_path: Path,
) -> None:
    outside = batch(
        [record(b"v")], base_offset=41, producer_id=5, producer_epoch=0, base_sequence=1
    )
    parts = [transactional(40, 5), outside, control_batch(ABORT, base_offset=42, producer_id=5)]
    path = write_segment(tmp_path, BASE, *parts, control_batch(9, base_offset=43, producer_id=5))
    swept = sweep(path)
    assert [type(finding) for finding in swept.findings] == [
        InvalidTxnStateError,
        InvalidRecordError,
    ]
    assert [finding.position for finding in swept.findings] == [
        len(parts[0]),
        sum(map(len, parts)),
    ]
    assert all(finding.path == str(path) for finding in swept.findings)
    assert (swept.error, swept.valid_bytes) == (None, path.stat().st_size)
    assert swept.aborted == (AbortedTxn(5, 40, 42, 43),)
    stopped = sweep(path, careful=False)
    assert isinstance(stopped.error, InvalidTxnStateError)
    assert stopped.error.position == len(parts[0])


def test_of_many_findings_the_first_hundred_are_kept(tmp_path: Path) -> None:
    parts = [control_batch(9, base_offset=BASE + i, producer_id=1) for i in range(150)]
    swept = sweep(write_segment(tmp_path, BASE, *parts))
    assert (len(swept.findings), swept.next_offset) == (100, BASE + 150)


def test_files_of_kafka_07_are_refused(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, b"", suffix=".kafka")
    with pytest.raises(UnsupportedFormatError, match=r"Kafka 0\.7"):
        sweep(path)


# ---- the kernel


def test_batches_are_looked_over_up_to_the_first_that_may_not_follow() -> None:
    def surveyed(*headers: BatchHeader, strict: bool = True, before: int = 9) -> list[int]:
        found = np.empty(5, np.int64)
        rows = table(headers).rows
        survey_rows(rows, base=5, before=before, strict=strict, epoch=3, found=found)
        return [int(value) for value in found]

    def at(first: int, last: int | None = None, **fields: int) -> BatchHeader:
        given = {"producer_id": -1, "record_count": 2, **fields}
        return header(base_offset=first, last_offset=first if last is None else last, **given)

    assert surveyed() == [0, 0, 0, 0, 0]
    assert surveyed(at(10), at(11, 14)) == [2, 4, 0, 0, 0]
    assert surveyed(at(10), at(10), at(11)) == [1, 2, 0, 0, 0]
    assert surveyed(at(10), at(10), at(11), strict=False) == [3, 6, 0, 0, 0]
    assert surveyed(at(9)) == surveyed(at(12, 11)) == [0, 0, 0, 0, 0]
    assert surveyed(at(-1, 12, magic=1, record_count=-1)) == [1, 0, 0, 0, 1]
    assert surveyed(at(10, leader_epoch=3), at(11, leader_epoch=4)) == [2, 4, 1, 0, 0]
    assert surveyed(at(10, producer_id=0), at(11, magic=0, leader_epoch=9)) == [2, 4, 0, 1, 1]
    for far in (5 + 2**31, 2**63 - 1, 4, -(2**63)):
        assert surveyed(at(10), at(10, far), strict=False)[0] == 1
    assert surveyed(at(10), at(10, 4 + 2**31), strict=False)[0] == 2


def test_the_kernel_refuses_arrays_of_other_shapes() -> None:
    rows, found = table([header()]).rows, np.empty(5, np.int64)
    wrong = ((-1, rows, found), (0, rows[:, :3].copy(), found), (0, rows, found[:4]))
    for base, headers, room in wrong:
        with pytest.raises(ValueError, match="right shape"):
            survey_rows(headers, base=base, before=-1, strict=True, epoch=-1, found=room)
