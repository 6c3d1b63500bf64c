"""A follower sees each record once, as it is written, and what may be shown only."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kseg.errors import (
    CorruptRecordError,
    KsegError,
    NotALogError,
    OffsetOutOfRangeError,
    PoisonedFileError,
)
from kseg.files.metadata import write_partition_metadata
from kseg.log.log import Log
from kseg.log.reader import follow as following
from kseg.log.reader.follow import ExternalLog
from tests.unit.log.made import fill, new_log, offsets_of, stored

#: What no test waits for, unless it fails.
LONG_S = 20.0


class Follower:
    """A thread that follows a log, and what it has seen."""

    def __init__(self, log: Log, *args: Any, **how: Any) -> None:
        self.seen: queue.Queue[Any] = queue.Queue()
        self.stop = threading.Event()
        self.thread = threading.Thread(
            target=self._run, args=(log.follow(*args, stop=self.stop, **how),)
        )
        self.thread.start()

    def _run(self, pieces: Iterator[Any]) -> None:
        try:
            for piece in pieces:
                for offset in piece["offset"].tolist():
                    self.seen.put(offset)
            self.seen.put("end")
        except BaseException as error:
            self.seen.put(error)

    def next(self, count: int) -> list[Any]:
        return [self.seen.get(timeout=LONG_S) for _ in range(count)]

    def ended(self) -> Any:
        self.stop.set()
        self.thread.join(LONG_S)
        return self.next(self.seen.qsize())[-1]


@contextmanager
def follower(log: Log, *args: Any, **how: Any) -> Iterator[Follower]:
    made = Follower(log, *args, **how)
    try:
        yield made
    finally:
        made.stop.set()
        made.thread.join(LONG_S)
        assert not made.thread.is_alive()


@pytest.fixture(params=["own", "foreign"])
def seen_by(request: pytest.FixtureRequest) -> Callable[[Log], Log]:
    """How a follower has the log: as its own process appends to it, or by its files."""
    if request.param == "own":
        return lambda log: log
    return lambda log: Log.open(log.path)


def test_without_an_offset_it_begins_with_what_is_to_come(
    tmp_path: Path, seen_by: Callable[[Log], Log]
) -> None:
    with new_log(tmp_path) as log:
        fill(log, [3])
        with follower(seen_by(log)) as other:
            fill(log, [2])
            assert other.next(2) == [3, 4]


def test_it_ends_when_nothing_new_came_for_so_long(
    tmp_path: Path, seen_by: Callable[[Log], Log]
) -> None:
    with new_log(tmp_path) as log:
        fill(log, [3, 3])
        assert offsets_of(seen_by(log).follow(2, timeout=0.05, columns=("offset",))) == [2, 3, 4, 5]
        assert offsets_of(seen_by(log).follow(timeout=0)) == []


def test_it_ends_when_it_is_told_to(tmp_path: Path, seen_by: Callable[[Log], Log]) -> None:
    with new_log(tmp_path) as log:
        with follower(seen_by(log)) as other:
            assert other.ended() == "end"
        pieces = seen_by(log).follow()
        pieces.close()  # type: ignore[attr-defined]
        assert list(pieces) == []


def test_it_ends_with_the_log_that_is_closed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    with follower(log, 0) as other:
        fill(log, [2])
        log.close()
        assert other.next(3) == [0, 1, "end"]


def test_it_ends_with_the_error_of_a_log_that_failed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, [2])
    with follower(log, 0) as other:
        assert other.next(2) == [0, 1]
        log.state.fail(OSError("made to fail"))
        assert isinstance(other.next(1)[0], PoisonedFileError)
    with pytest.raises(PoisonedFileError):
        fill(log, [1])


def test_what_lies_above_the_watermark_waits(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        fill(log, [2])
        log.update_high_watermark(0)
        with follower(log, 0) as other:
            fill(log, [2])
            log.update_high_watermark(2)
            assert other.next(2) == [0, 1]
            log.update_high_watermark(4)
            assert other.next(2) == [2, 3]


@pytest.mark.parametrize("offset", [-1, 2, 9])
def test_it_cannot_begin_outside_of_the_log(
    tmp_path: Path, seen_by: Callable[[Log], Log], offset: int
) -> None:
    with new_log(tmp_path) as log:
        fill(log, [4, 4])
        log.delete_records_before(4)
        with pytest.raises(OffsetOutOfRangeError):
            seen_by(log).follow(offset)


def pulled(pieces: Iterator[Any], count: int) -> list[int]:
    """The next offsets, of pieces that end with them."""
    got: list[int] = []
    while len(got) < count:
        got += next(pieces)["offset"].tolist()
    assert len(got) == count
    return got


def test_what_retention_took_is_passed_over(tmp_path: Path, seen_by: Callable[[Log], Log]) -> None:
    with new_log(tmp_path, segment_bytes=300, retention_bytes=0) as log:
        fill(log, [2])
        pieces = seen_by(log).follow(0, timeout=LONG_S)
        assert pulled(pieces, 2) == [0, 1]
        fill(log, [2] * 10)
        log.delete_old_segments()
        start = log.log_start_offset
        assert start > 2
        fill(log, [2])
        assert pulled(pieces, 2) == [start, start + 1]


def test_after_a_cut_it_goes_on_where_the_log_was_cut(tmp_path: Path) -> None:
    with new_log(tmp_path, segment_bytes=300) as log:
        fill(log, [2] * 10)
        pieces = log.follow(16, timeout=LONG_S)
        assert pulled(pieces, 4) == [16, 17, 18, 19]
        log.truncate_to(10)
        fill(log, [2])
        assert pulled(pieces, 2) == [10, 11]
        log.truncate_fully_and_start_at(40)
        fill(log, [2])
        assert pulled(pieces, 2) == [40, 41]


def test_cuts_that_it_slept_through_are_not_missed(tmp_path: Path) -> None:
    with new_log(tmp_path, segment_bytes=300) as log:
        fill(log, [2] * 10)
        pieces = log.follow(16, timeout=LONG_S)
        assert pulled(pieces, 4) == [16, 17, 18, 19]
        log.truncate_to(6)
        fill(log, [2] * 10)
        log.truncate_to(18)
        fill(log, [2] * 3)
        assert next(pieces)["offset"][0] == 6


# ---- another process -----------------------------------------------------------------------------


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """The log file of a directory that nobody of this process writes to."""
    path = tmp_path / "data" / "t-0" / f"{0:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(stored(0, 2))
    return path


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def test_a_batch_that_is_written_into_room_made_before_is_shown_when_it_is_sound(
    foreign: Path,
) -> None:
    log = ExternalLog(foreign.parent)
    data, end = stored(2, 2), foreign.stat().st_size
    with open(foreign, "r+b") as file:
        file.truncate(end + 1_000)
        log.look()
        file.seek(end)
        for piece in (data[:70], data[70:]):
            assert log.version.log_end.offset == 2
            file.write(piece)
            file.flush()
            log.look()
    assert log.version.log_end.offset == 4


def test_a_batch_that_stays_unsound_is_damage(foreign: Path) -> None:
    position = foreign.stat().st_size
    append(foreign, stored(2, 2, crc=1))
    log = ExternalLog(foreign.parent)
    for _ in range(9):
        log.look()
        assert log.version.log_end.offset == 2
    with pytest.raises(CorruptRecordError) as caught:
        log.look()
    assert (caught.value.path, caught.value.position) == (str(foreign), position)


def test_a_batch_with_others_behind_it_is_not_waited_for(foreign: Path) -> None:
    position = foreign.stat().st_size
    append(foreign, stored(2, 2, crc=1) + stored(4, 2) + stored(6, 2, crc=1))
    log = ExternalLog(foreign.parent)
    assert log.version.log_end.offset == 6
    pieces = following.follow(log, log.wait, 0, timeout=0)
    assert next(pieces)["offset"].tolist() == [0, 1]
    with pytest.raises(CorruptRecordError) as caught:
        next(pieces)
    assert (caught.value.path, caught.value.position) == (str(foreign), position)


def test_a_log_that_does_not_change_is_only_asked_for_its_size(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ExternalLog(foreign.parent)
    log.look()
    assert not log.look()
    monkeypatch.setattr("kseg.log.reader.follow.Segment", None)
    assert not log.look()
    append(foreign, stored(2, 1))
    with pytest.raises(AttributeError):
        log.look()


def test_a_log_that_begins_anew_is_followed_into_its_new_beginning(foreign: Path) -> None:
    log = ExternalLog(foreign.parent)
    foreign.rename(f"{foreign}.deleted")
    assert not log.look()  # between two files
    new = foreign.with_name(f"{50:020d}.log")
    new.write_bytes(stored(50, 1))
    assert log.look()
    assert (log.version.log_end.offset, log.version.truncations.number) == (51, 0)


def test_a_log_without_a_file_is_gone(foreign: Path) -> None:
    log = ExternalLog(foreign.parent)
    foreign.unlink()
    for _ in range(10):
        log.look()
    with pytest.raises(NotALogError):
        log.look()


def made_again(foreign: Path, topic_id: UUID | None, count: int) -> None:
    """The topic as a broker deletes it, and makes it again with other records."""
    foreign.parent.rename(foreign.parent.with_name(f"t-0.{'0' * 32}-delete"))
    foreign.parent.mkdir()
    if topic_id is not None:
        write_partition_metadata(foreign.parent / "partition.metadata", topic_id)
    foreign.write_bytes(stored(0, count))


IDS = [UUID(int=1 << 70), UUID(int=2 << 70)]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("ids", [IDS, [None, None], [None, IDS[1]]], ids=str)
def test_a_topic_that_is_made_again_ends_a_follower_or_is_read_from_its_start(
    foreign: Path, ids: list[UUID | None], count: int, caplog: pytest.LogCaptureFixture
) -> None:
    if ids[0] is not None:
        write_partition_metadata(foreign.parent / "partition.metadata", ids[0])
    pieces = {
        word: Log.open(foreign.parent).follow(0, recreated=word, timeout=20)
        for word in ("raise", "start")
    }
    for follower in pieces.values():
        assert pulled(follower, 2) == [0, 1]
    made_again(foreign, ids[1], count)
    with pytest.raises(KsegError, match="the topic was made again"):
        next(pieces["raise"])
    assert pulled(pieces["start"], count) == list(range(count))
    assert len(caplog.messages) == 1


def test_a_topic_that_is_gone_is_waited_for_where_that_is_asked_for(foreign: Path) -> None:
    logs = [ExternalLog(foreign.parent), ExternalLog(foreign.parent, restarts=True)]
    foreign.parent.rename(foreign.parent.with_name("away"))
    with pytest.raises(FileNotFoundError):
        logs[0].look()
    assert not logs[1].look()


def test_a_log_that_was_moved_to_another_disk_is_the_same_by_its_id(foreign: Path) -> None:
    write_partition_metadata(foreign.parent / "partition.metadata", IDS[0])
    log = ExternalLog(foreign.parent)
    made_again(foreign, IDS[0], 5)
    assert log.look()
    assert (log.version.log_end.offset, log.version.truncations.number) == (5, 0)


def test_an_answer_to_a_topic_made_again_is_a_word(foreign: Path) -> None:
    with pytest.raises(ValueError, match="recreated"):
        Log.open(foreign.parent).follow(0, recreated="later")


def test_an_option_that_follow_does_not_have_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        for name, value in (("offset", (0, 1)), ("open_transactions", "abort")):
            with pytest.raises(TypeError, match=f"follow has no option {name}"):
                next(log.follow(0, timeout=0, **{name: value}))  # type: ignore[misc]
