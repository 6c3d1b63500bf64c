from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTxnStateError,
    KsegError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    PoisonedFileError,
    RecordBatchTooLargeError,
    UnexpectedAppendOffsetError,
)
from kseg.files.checkpoints import EpochEntry
from kseg.log.log import Log
from kseg.log.validate.rules import AppendOrigin
from kseg.log.writer.append import AppendResult, append_as_leader
from kseg.log.writer.state import LogState
from tests.builders import COMMIT, GZIP
from tests.unit.log.logs import (
    NOW_MS,
    ONE,
    Clock,
    bases,
    failing,
    marker,
    offsets,
    one,
    open_log,
    stored,
)

COORDINATOR = AppendOrigin.COORDINATOR


def from_producer(sequence: int, **fields: Any) -> bytes:
    return one(**{"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence, **fields})


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with open_log(tmp_path / "t-0") as opened:
        yield opened


def test_without_an_epoch_a_leader_has_the_logs_latest(log: Log) -> None:
    log.append(one())
    assert log.leader_epochs == (EpochEntry(0, 0),)
    log.append(one(), leader_epoch=7)
    log.append(one())
    assert log.leader_epochs == (EpochEntry(0, 0), EpochEntry(7, 1))


def test_nothing_is_nothing_appended(log: Log) -> None:
    for result in (log.append(b""), log.append_as_follower(b""), log.append([]), log.append([b""])):
        assert result == AppendResult()
    assert (log.log_end_offset, log.leader_epochs) == (0, ())


TORN = [b"x", bytes(11), one()[:16], one()[:40], one()[:-3], one() + b"x", one() + one()[:-1]]


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, COORDINATOR, AppendOrigin.RAFT_LEADER])
@pytest.mark.parametrize("data", [*TORN, one(codec=GZIP) + bytes(5), from_producer(0) + b"x"])
def test_a_leader_refuses_what_it_would_leave_out(
    log: Log, data: bytes, origin: AppendOrigin
) -> None:
    if origin is AppendOrigin.RAFT_LEADER:
        data = _with_epoch(data)
    for given in (data, [data], [data, one()], bytearray(data)):
        with pytest.raises(CorruptRecordError, match="not a whole batch"):
            log.append(given, origin=origin)
    assert (log.log_end_offset, log.leader_epochs, log.segments[0].size) == (0, (), 0)


def _with_epoch(data: bytes) -> bytes:
    """The same bytes with leader epoch 0, which no checksum covers."""
    return data[:12] + bytes(len(data[12:16])) + data[16:]


def test_of_several_batches_those_before_a_refused_one_stay(log: Log) -> None:
    broken = bytearray(one())
    broken[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append([one(), bytes(broken), one()])
    assert offsets(log) == [0]


# ---- producers and transactions ------------------------------------------------------------------


def test_a_duplicate_may_bring_a_new_segment(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", segment_bytes=ONE + 20) as log:
        log.append(from_producer(0))
        assert log.append(from_producer(0)).duplicate
        assert bases(log) == [0, 1]


# ---- what is refused, and what fails -------------------------------------------------------------


GAP = 2**31
LEAD, FOLLOW = Log.append, Log.append_as_follower
BAD_CRC = stored(9, epoch=7)[:-1] + b"\xff"
#: How one of the calls is refused: who is asked, with what, the error.
REFUSED: dict[str, tuple[Callable[..., object], Any, type[KsegError]]] = {
    "larger than a segment": (LEAD, one(b"x" * 2000), RecordBatchTooLargeError),
    "many, larger than a segment": (
        FOLLOW,
        stored(9, epoch=7, value=b"x" * 900) + stored(10, epoch=7, value=b"x" * 900),
        RecordBatchTooLargeError,
    ),
    "a sequence that leaves a gap": (
        LEAD,
        from_producer(5, producer_epoch=1),
        OutOfOrderSequenceError,
    ),
    "a fenced producer": (LEAD, from_producer(1, producer_epoch=0), InvalidProducerEpochError),
    "a fenced producer, compressed": (
        LEAD,
        from_producer(1, producer_epoch=0, codec=GZIP),
        InvalidProducerEpochError,
    ),
    "a marker of a fenced producer": (
        partial(LEAD, origin=COORDINATOR),
        marker(COMMIT),
        InvalidProducerEpochError,
    ),
    "a wrong checksum": (FOLLOW, BAD_CRC, CorruptRecordError),
    "a wrong checksum behind a sound batch": (
        FOLLOW,
        stored(8, epoch=7) + BAD_CRC,
        CorruptRecordError,
    ),
    "a leaders wrong checksum": (LEAD, one()[:-1] + b"\xff", CorruptRecordError),
    "in front of the end": (FOLLOW, stored(1, epoch=7), UnexpectedAppendOffsetError),
    "out of order": (FOLLOW, stored(9, epoch=7) + stored(8, epoch=7), OffsetsOutOfOrderError),
    "without an epoch": (FOLLOW, stored(9, epoch=7) + stored(10, epoch=-1), InvalidRecordError),
    "too far apart": (FOLLOW, stored(9, epoch=7) + stored(9 + GAP, epoch=8), OffsetOverflowError),
    "cut short": (LEAD, one()[:-3], CorruptRecordError),
    "a transaction not verified": (LEAD, from_producer(2, attributes=0x10), InvalidTxnStateError),
}


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_append_changes_nothing_and_rolls_nothing(
    tmp_path: Path, case: str, rolls: bool
) -> None:
    call, data, error = REFUSED[case]
    clock = Clock()
    with open_log(tmp_path / "t-0", clock, segment_bytes=1000) as log:
        log.state.producers.verification_enabled = case.endswith("verified")
        log.append(from_producer(0, producer_epoch=1, count=2), leader_epoch=5)
        log.append(one(time=NOW_MS + 1), leader_epoch=6)
        if rolls:  # what is appended next needs another segment
            log.update_config(replace(log.config, segment_bytes=1000, segment_ms=1))
            clock.ms += 10**9
        before = _all_of(log)
        with pytest.raises(error):
            call(log, data, leader_epoch=8)
        assert _all_of(log) == before


def _all_of(log: Log) -> dict[str, object]:
    """What a log is, in memory and on the disk."""
    state = log.state
    files = {path.name: path.read_bytes() for path in sorted(log.path.iterdir())}
    return files | {
        "version": log.version,
        "epochs": (state.epochs.entries, state.epochs.dirty),
        "producers": dict(state.producers.entries),
        "map end": state.producers.map_end_offset,
        "transactions": state.producers.ongoing,
        "snapshot": state.producers.last_snapshot_offset,
        "segments": [(info.base_offset, info.size) for info in state.segments],
        "latest": state.active.latest,
    }


def test_a_full_disk_while_rolling_leaves_epochs_and_segments(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", segment_bytes=ONE + 20) as log:
        log.append(one(), leader_epoch=5)
        before = _all_of(log)
        error = OSError(errno.ENOSPC, "No space left on device")
        with failing("open", error=error, ends="1.log"), pytest.raises(OSError, match="No space"):
            log.append(one(), leader_epoch=6)
        after = _all_of(log)
        # What is sealed before the next segment can be made is sound, and will be sealed again.
        sealed = {name for name in before if name.endswith("index")}
        assert {name for name in before | after if after.get(name) != before.get(name)} <= sealed
        assert log.append(one(), leader_epoch=6).first_offset == 1
        assert log.leader_epochs == (EpochEntry(5, 0), EpochEntry(6, 1))


def test_epochs_that_cannot_be_taken_back_at_once_are_with_the_next_flush(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    with open_log(tmp_path / "t-0", segment_bytes=ONE + 20) as log:
        log.append(one(), leader_epoch=5)
        with failing("open", error=error, after=2), pytest.raises(OSError, match="No space"):
            log.append(one(), leader_epoch=6)
        assert log.leader_epochs == (EpochEntry(5, 0),)
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n5 0\n"


def test_a_follower_is_no_leader(log: Log) -> None:
    with pytest.raises(ValueError, match="append_as_follower"):
        log.append(one(), origin=AppendOrigin.REPLICATION)
    with pytest.raises(ValueError, match="leader_epoch is 0 or more"):
        log.append(one(), leader_epoch=-1)


def test_what_cannot_be_taken_back_fails_the_log(log: Log) -> None:
    log.append(one())
    error = OSError(errno.EIO, "Input/output error")
    with (
        failing("pwritev", "ftruncate", error=error, ends=".log"),
        pytest.raises(OSError, match="Input/output"),
    ):
        log.append(one())
    _refuses_all(log)
    assert offsets(log) == [0]


def _refuses_all(log: Log) -> None:
    for change in (
        lambda: log.append(one()),
        lambda: log.append_as_follower(stored(5)),
        log.flush,
        log.roll,
        lambda: log.update_high_watermark(0),
    ):
        with pytest.raises(PoisonedFileError, match="open it again") as caught:
            change()
        assert caught.value.path == str(log.path)


def test_an_interrupt_between_the_bytes_and_the_telling_fails_the_log(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append(one())

    def interrupted(*_of: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LogState, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        append_as_leader(log.state, one())
    monkeypatch.undo()
    assert (log.log_end_offset, offsets(log)) == (1, [0])
    _refuses_all(log)
