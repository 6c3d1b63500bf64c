"""The end of all offsets: what is refused there, what is read, and what mends a log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.constants import Compression
from kseg.errors import (
    AppendError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    UnexpectedAppendOffsetError,
)
from kseg.files.checkpoints import read_offset_checkpoint
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from kseg.log.log import Log
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery, recover
from kseg.log.recovery.reindex import plan_reindex
from kseg.log.validate.append import validate_append, validate_replica
from kseg.log.validate.rules import AppendOrigin, AppendRules
from tests.builders import messages, record, records_of, write_segment
from tests.fuzz.doors import Question, disagreements
from tests.unit.log.logs import NOW_MS, Clock, one, open_log, stored

LAST = 2**63 - 1
#: Ways in which a batch of two records comes as a producer sends it.
SENT: dict[str, Callable[[], bytes]] = {
    "plain": lambda: one(count=2),
    "compressed": lambda: one(count=2, codec=Compression.ZSTD),
    "of a producer": lambda: one(count=2, producer_id=7, producer_epoch=0, base_sequence=0),
    "messages": lambda: messages([record(timestamp=NOW_MS)] * 2, magic=1),
}


def log_near(path: Path, left: int, **settings: Any) -> Log:
    """A log that goes on where so many offsets are left, the last of all among them."""
    log = open_log(path / "data" / "t-0", **settings)
    log.append_as_follower(stored(LAST - left))
    assert log.log_end_offset == LAST - left + 1
    return log


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# ---- what is appended ----------------------------------------------------------------------------


@pytest.mark.parametrize("sent", SENT)
def test_a_leader_gives_every_offset_but_the_last_one(tmp_path: Path, sent: str) -> None:
    with log_near(tmp_path, 3) as log:
        taken = log.append(SENT[sent](), durable=True)
        assert (taken.first_offset, taken.last_offset, log.log_end_offset) == (
            LAST - 2,
            LAST - 1,
            LAST,
        )
        with pytest.raises(OffsetOverflowError, match="the largest offset that another can follow"):
            log.append(one())
        assert log.log_end_offset == LAST
    with open_log(tmp_path / "data" / "t-0", create=False) as log:
        assert log.log_end_offset == LAST


@pytest.mark.parametrize("sent", SENT)
def test_a_leader_refuses_what_would_take_the_last_offset(tmp_path: Path, sent: str) -> None:
    with log_near(tmp_path, 2) as log:
        before = files_of(log.path)
        with pytest.raises(OffsetOverflowError):
            log.append(SENT[sent]())
        assert files_of(log.path) == before
        assert log.append(one()).last_offset == LAST - 1


@pytest.mark.parametrize(
    "batches",
    [
        (stored(LAST),),
        (stored(LAST - 1, count=2),),
        (stored(LAST - 2), stored(LAST - 1), stored(LAST)),
        (stored(LAST, producer_id=7, producer_epoch=0, base_sequence=0),),
        (stored(LAST, epoch=3),),
    ],
)
def test_a_follower_refuses_what_takes_the_last_offset(
    tmp_path: Path, batches: tuple[bytes, ...]
) -> None:
    with log_near(tmp_path, 4) as log:
        before = files_of(log.path)
        with pytest.raises(OffsetOverflowError, match="offset 9223372036854775807"):
            log.append_as_follower(b"".join(batches))
        assert files_of(log.path) == before
        log.append_as_follower(b"".join((stored(LAST - 2), stored(LAST - 1))))
        assert log.log_end_offset == LAST
    points = read_offset_checkpoint(tmp_path / "data" / "replication-offset-checkpoint")
    assert set(points.values()) == {LAST}


@pytest.mark.parametrize("base_offset", [-1, -2, -(2**31), -(2**63)])
@pytest.mark.parametrize("behind", [b"", stored(0)], ids=["alone", "behind"])
def test_a_follower_refuses_offsets_below_zero(
    tmp_path: Path, base_offset: int, behind: bytes
) -> None:
    data = stored(base_offset, count=4)
    with open_log(tmp_path / "data" / "t-0") as log:
        with pytest.raises(AppendError):
            log.append_as_follower(behind + data)
        assert (log.log_end_offset, log.leader_epochs) == (0, ())
    if not behind and base_offset > -5:
        with pytest.raises(UnexpectedAppendOffsetError):
            validate_replica(data, AppendRules(), next_offset=0)


@pytest.mark.parametrize("delta", [-1, -(2**31)])
@pytest.mark.parametrize("behind", [b"", stored(2**33)], ids=["alone", "behind"])
def test_a_follower_refuses_a_batch_that_ends_before_it_begins(
    tmp_path: Path, delta: int, behind: bytes
) -> None:
    with open_log(tmp_path / "data" / "t-0") as log:
        with pytest.raises(OffsetsOutOfOrderError):
            log.append_as_follower(behind + stored(2**33 + 1, last_offset_delta=delta))
        assert log.log_end_offset == 0


#: Batches of a follower in which one lies over the one before it, though last offsets rise.
OVERLAPPING: dict[str, bytes] = {
    "over its end": stored(10, count=5) + stored(13, count=5),
    "around it": stored(12, count=2) + stored(10, count=5),
    "the third": stored(10) + stored(11, count=2) + stored(12, count=2),
    "of a later epoch": stored(10, count=5) + stored(13, count=5, epoch=1),
    "of a producer": stored(10, count=5)
    + stored(13, count=5, producer_id=7, producer_epoch=0, base_sequence=0),
    "compressed": stored(10, count=5) + stored(13, count=5, codec=Compression.ZSTD),
    "behind messages": messages([record(timestamp=NOW_MS)] * 3, magic=1, base_offset=10)
    + stored(12, count=5),
}


@pytest.mark.parametrize("known", [False, True], ids=["a new log", "a log of that epoch"])
@pytest.mark.parametrize("data", OVERLAPPING.values(), ids=OVERLAPPING)
def test_a_follower_refuses_batches_that_lie_over_each_other(
    tmp_path: Path, data: bytes, known: bool
) -> None:
    rules = AppendRules(origin=AppendOrigin.REPLICATION)
    assert validate_replica(data, rules, next_offset=0).to_bytes() == data  # as in Kafka
    with open_log(tmp_path / "data" / "t-0") as log:
        if known:  # which the shortest way asks for
            log.append_as_follower(stored(0))
        before, end = files_of(log.path), log.log_end_offset
        with pytest.raises(OffsetsOutOfOrderError):
            log.append_as_follower(data)
        assert (log.log_end_offset, files_of(log.path)) == (end, before)


@pytest.mark.parametrize(
    ("count", "delta"), [*((1, delta) for delta in (-1, -5, 1, 5, 2**31 - 1, -(2**31))), (0, 0)]
)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("behind", [0, 3])
def test_a_coordinator_writes_nothing_that_a_recovery_would_cut(
    tmp_path: Path, count: int, delta: int, codec: Compression, behind: int
) -> None:
    data = one(count=count, last_offset_delta=delta, codec=codec)
    with open_log(tmp_path / "data" / "t-0") as log:
        for _ in range(behind):
            log.append(one())
        with pytest.raises(InvalidRecordError, match=r"\d records, and -?\d+ offsets"):
            log.append(data, origin=AppendOrigin.COORDINATOR)
        assert log.log_end_offset == behind


@pytest.mark.parametrize("now_ms", [-1, 2**63])
def test_a_clock_has_63_bits(tmp_path: Path, now_ms: int) -> None:
    with pytest.raises(ValueError, match="now_ms is 0"):
        validate_append(one(), AppendRules(), next_offset=0, now_ms=now_ms)
    clock = Clock()
    with open_log(tmp_path / "data" / "t-0", clock) as log:
        log.append_as_follower(stored(0))
        clock.ms = now_ms
        for append, data in ((log.append, one()), (log.append_as_follower, stored(1, epoch=1))):
            with pytest.raises(ValueError, match="a clock answers 0"):
                append(data)
        assert (log.log_end_offset, [epoch for epoch, _ in log.leader_epochs]) == (1, [0])
        clock.ms = NOW_MS


# ---- what is there already -----------------------------------------------------------------------


def unfollowed(root: Path, *, first: int = LAST - 9) -> Path:
    """A directory whose last batch ends with all offsets, as earlier releases took it."""
    directory = root / "data" / "t-0"
    parts = [stored(first, count=2)] if first < LAST - 2 else []
    last = max(first, LAST - 2)
    data = encode_batch(
        {"value": [b"x"] * (LAST - last + 1), "timestamp": [NOW_MS] * (LAST - last + 1)},
        BatchOptions(leader_epoch=0),
        base_offset=last,
    ).data
    return write_segment(directory, first, *parts, data).parent


@pytest.mark.parametrize("first", [LAST - 9, LAST - 2, LAST])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("as_broker", [False, True])
def test_recovery_leaves_a_log_that_nothing_can_follow(
    tmp_path: Path, first: int, clean: bool, as_broker: bool
) -> None:
    directory = unfollowed(tmp_path, first=first)
    before = files_of(directory)
    plan = plan_recovery(directory, clean=clean, as_broker=as_broker)
    assert isinstance(plan.error, OffsetOverflowError)
    assert "truncate" in str(plan.error)
    assert plan.actions == ()
    for go in (RecoveryPlan.apply, lambda _plan: recover(directory, clean=clean)):
        with pytest.raises(OffsetOverflowError):
            go(plan)
    assert files_of(directory) == before
    assert not list(directory.parent.glob("*checkpoint"))


@pytest.mark.parametrize("first", [LAST - 9, LAST])
def test_indexes_of_a_log_that_nothing_can_follow_are_left_alone(
    tmp_path: Path, first: int
) -> None:
    plan = plan_reindex(unfollowed(tmp_path, first=first))
    assert plan.is_noop
    assert [finding.offset for finding in plan.findings] == [LAST]


@pytest.mark.parametrize(("first", "codec"), [(LAST - 9, 0), (LAST - 2, 1), (LAST, 0), (LAST, 1)])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_last_offset_comes_out_of_every_door(
    tmp_path: Path, first: int, magic: int, codec: int
) -> None:
    time = -1 if magic == 0 else LAST
    given = [record(timestamp=time)]
    bases = sorted({first, LAST})
    parts = (records_of(given, magic=magic, codec=codec, base_offset=base) for base in bases)
    directory = write_segment(tmp_path / "orders-0", first, *parts).parent
    everything = [(base, time) for base in bases]
    for asked in (
        Question(),
        Question((0, None)),
        Question((None, LAST)),
        Question((LAST, None)),
        Question((None, LAST + 1)),
        Question((None, LAST + 2)),
        Question(times=(time, None)),
        Question(times=(None, LAST)),
    ):
        wanted = [row for row in everything if asked.holds(*row)]
        assert list(disagreements(directory, asked, wanted)) == []
    with Log.open(directory) as log:
        assert log.log_end_offset == log.last_stable_offset == LAST + 1
        assert log.lookup(LAST).last_offset == LAST
        with pytest.raises(OffsetOutOfRangeError):
            log.lookup(LAST + 1)


@pytest.mark.parametrize("offset", [2**63, -1])
def test_no_log_begins_beyond_64_bits(tmp_path: Path, offset: int) -> None:
    with open_log(tmp_path / "data" / "t-0") as log:
        log.append(one())
        with pytest.raises(ValueError, match="cannot start"):
            log.truncate_fully_and_start_at(offset)
        assert log.log_end_offset == 1
        log.append(one())
    with open_log(tmp_path / "data" / "t-0", create=False) as log:
        assert log.log_end_offset == 2
