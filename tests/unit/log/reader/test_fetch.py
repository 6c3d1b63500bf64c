"""A fetch answers the stored bytes from the right batch on, whatever happens beside it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptRecordError, OffsetOutOfRangeError, UnsupportedFormatError
from kseg.files import io
from kseg.format.builder import BatchBuilder
from kseg.log.log import Log
from kseg.log.reader import fetch as fetching
from kseg.log.reader import find
from kseg.log.reader.fetch import Fetched
from kseg.log.reader.version import Truncations
from kseg.log.validate.rules import AppendOrigin
from tests.builders import ABORT, COMMIT, batch, control_batch, messages07, record, write_segment
from tests.unit.log.made import Told, fill, new_log, offsets_of, stored, told


@pytest.fixture(scope="module", autouse=True, params=["in one call", "by steps"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test holds for both ways of a fetch; where reads are replaced, none is in one call."""
    if request.param == "in one call":
        yield
        return
    with io.reads_replaced(lambda fd, size, position: os.pread(fd, size, position)):
        yield


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A log of some segments, with gaps, that no test changes but for its high watermark."""
    log = new_log(tmp_path_factory.mktemp("fetch"), segment_bytes=2_000)
    chance = random.Random(5)
    for _ in range(40):
        fill(log, [chance.randint(1, 9)], gap=chance.choice([0, 0, 0, 4]))
    return log


def expected(
    batches: list[Told], start: int, limit: int, max_bytes: int, *, min_one: bool
) -> tuple[int, int, bytes]:
    """Segment, position and bytes that a fetch answers; by the rules, batch by batch."""
    first = next(each for each in batches if each.last_offset >= start)
    allowed = max(max_bytes, first.size) if min_one else max_bytes
    ends = [each for each in batches if each.last_offset >= limit]
    inside = [
        each
        for each in batches
        if each.segment == first.segment
        and each.position >= first.position
        and not any(end.segment == each.segment and each.position >= end.position for end in ends)
        and each.base_offset < limit
    ]
    data = b"".join(each.data for each in inside)[:allowed]
    return first.segment, first.position, data


@given(st.data())
def test_ul_051_to_054_056_fr_14_loc_14_16_any_fetch_gives_the_bytes_of_a_plain_walk(
    shared: Log, data: st.DataObject
) -> None:
    batches, end = told(shared.path), shared.log_end_offset
    limit = data.draw(st.integers(1, end))
    start = data.draw(st.integers(0, limit - 1))
    max_bytes = data.draw(st.sampled_from([0, 1, 70, 300, 1_000, 10_000]))
    min_one = data.draw(st.booleans())
    shared.update_high_watermark(limit)
    how: dict[str, Any] = {"max_bytes": max_bytes, "min_one_message": min_one}
    got = shared.fetch(start, **how)
    segment, position, stored_bytes = expected(batches, start, limit, max_bytes, min_one=min_one)
    assert (got.segment, got.position, bytes(got.data)) == (segment, position, stored_bytes)
    assert got.size == len(stored_bytes)
    place = shared.fetch(start, with_data=False, **how)
    assert (place.segment, place.position, place.size) == (segment, position, got.size)
    assert not place.data
    assert place.file is not None
    with open(place.file.path, "rb") as file:
        file.seek(place.file.position)
        assert file.read(place.file.size) == stored_bytes


def test_both_modes_answer_alike(shared: Log) -> None:
    shared.update_high_watermark(shared.log_end_offset)
    with Log.open(shared.path) as reading:
        for offset in range(shared.log_end_offset + 1):
            for isolation in fetching.ISOLATIONS:
                theirs = shared.fetch(offset, max_bytes=200, isolation=isolation)
                ours = reading.fetch(offset, max_bytes=200, isolation=isolation)
                assert (ours.segment, ours.position, bytes(ours.data), ours.aborted) == (
                    theirs.segment,
                    theirs.position,
                    bytes(theirs.data),
                    theirs.aborted,
                )


@pytest.mark.parametrize("bad", [{"max_bytes": -1}, {"isolation": "none"}])
def test_senseless_questions_are_refused(shared: Log, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_bytes|isolation"):
        shared.fetch(0, **bad)


def test_columns_begin_at_the_offset_and_leave_a_cut_batch_out(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        fill(log, [4, 4, 4])
        sizes = [each.size for each in told(log.path)]
        got = log.fetch(2, max_bytes=sizes[0] + sizes[1] + 10)
        assert offsets_of(got.columns(columns=("offset",))) == [2, 3, 4, 5, 6, 7]
        assert (got.next_offset, got.first_batch_incomplete) == (8, False)
        cut = log.fetch(2, max_bytes=30, min_one_message=False)
        assert cut.first_batch_incomplete
        assert (offsets_of(cut.columns()), cut.next_offset) == ([], 2)


def test_columns_find_the_damage_that_a_fetch_does_not_look_for(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, [2, 2, 2])
    log.close()
    path, second = log.segments[0].path, told(log.path)[1]
    with open(path, "r+b") as file:
        file.seek(second.position + second.size - 1)
        file.write(b"?")
    with Log.open(log.path) as reading:
        got = reading.fetch(0, isolation="log_end")
        assert got.size == path.stat().st_size
        pieces = got.columns(columns=("offset",))
        assert offsets_of([next(pieces)]) == [0, 1]
        with pytest.raises(CorruptRecordError) as caught:
            next(pieces)
        assert (caught.value.path, caught.value.position) == (str(path), second.position)


def test_no_batch_is_found_behind_a_length_that_lies(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=400)
    fill(log, [2] * 12)
    second = next(each for each in told(log.path) if each.segment and each.position)
    path = next(i.path for i in log.segments if i.base_offset == second.segment)
    data = bytearray(path.read_bytes())
    data[second.position + 8 : second.position + 12] = (5).to_bytes(4, "big")
    path.write_bytes(data)
    assert log.fetch(second.segment).size
    with pytest.raises(CorruptRecordError) as caught:
        log.fetch(second.base_offset)
    assert (caught.value.path, caught.value.position) == (str(path), second.position)
    with pytest.raises(CorruptRecordError):
        offsets_of(log.fetch(second.segment).columns())


INDEXES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2 + 3],
    "garbage": lambda data: random.Random(1).randbytes(len(data)),
    "ones": lambda data: b"\xff" * len(data),
    "positions past the end": lambda data: b"".join(
        data[at : at + 4] + b"\x7f\x00\x00\x00" for at in range(0, len(data), 8)
    ),
    "positions inside of batches": lambda data: b"".join(
        data[at : at + 4] + (int.from_bytes(data[at + 4 : at + 8], "big") + 1).to_bytes(4, "big")
        for at in range(0, len(data), 8)
    ),
    "positions too far": lambda data: b"".join(
        data[at : at + 4] + data[at + 12 : at + 16] for at in range(0, len(data) - 8, 8)
    ),
}


@pytest.mark.damages("an index is spoilt under the log")
@pytest.mark.parametrize("harm", INDEXES.values(), ids=INDEXES)
def test_a_bad_index_costs_time_but_no_answer(
    tmp_path: Path, harm: Callable[[bytes], bytes | None]
) -> None:
    with new_log(tmp_path) as log:
        fill(log, [3] * 20)
        index = log.segments[0].files.index
        assert index is not None
        used = index.read_bytes().rstrip(b"\0")
        good = [bytes(log.fetch(offset, max_bytes=1).data) for offset in range(60)]
        harmed = harm(used + bytes(-len(used) % 8))
        index.unlink()
        if harmed is not None:
            index.write_bytes(harmed)
        assert [bytes(log.fetch(offset, max_bytes=1).data) for offset in range(60)] == good


@pytest.mark.parametrize("megabytes", [3, 18])
def test_large_batches_come_whole(tmp_path: Path, megabytes: int) -> None:
    with new_log(tmp_path, max_message_bytes=2**30) as log:
        ends = [0]
        for _ in range(3):
            builder = BatchBuilder()
            builder.append(value=os.urandom(megabytes << 20))
            log.append(builder.build())
            ends.append(log.segments[0].size)
        data = log.segments[0].path.read_bytes()
        for offset in range(3):
            start, end = ends[offset : offset + 2]
            got = log.fetch(offset, max_bytes=10)
            assert (got.position, got.data == data[start:end]) == (start, True)
            assert log.fetch(offset, max_bytes=10, with_data=False).size == end - start


def test_a_small_answer_does_not_hold_on_to_what_was_read_with_it(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        fill(log, [1] * 500)
        got = log.fetch(3, max_bytes=1 << 20)
        log.update_high_watermark(4)
        small = log.fetch(3, max_bytes=1 << 20)
        assert (len(small.data), len(got.data) > 30_000) == (told(log.path)[3].size, True)
        assert len(small.data.obj) == small.size  # type: ignore[arg-type]


def test_logs_of_kafka_0_7_have_nothing_to_fetch(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", 0, messages07([b"a", b"b"]), suffix=".kafka")
    with Log.open(tmp_path / "t-0") as log, pytest.raises(UnsupportedFormatError):
        log.fetch(0)


# ---- transactions --------------------------------------------------------------------------------


def in_transaction(log: Log, producer_id: int, sequence: int, count: int = 2) -> None:
    given = [record(b"%d" % producer_id) for _ in range(count)]
    log.append(
        batch(
            given,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
    )


def decide(log: Log, producer_id: int, kind: int) -> None:
    log.append(control_batch(kind, producer_id=producer_id), origin=AppendOrigin.COORDINATOR)


@pytest.fixture
def transactions(tmp_path: Path) -> Log:
    """1 aborted over two segments, 2 committed among it, 3 aborted, 4 open."""
    log = new_log(tmp_path)
    in_transaction(log, 1, 0)  # 0, 1
    in_transaction(log, 2, 0)  # 2, 3
    log.roll()
    in_transaction(log, 1, 2)  # 4, 5
    decide(log, 1, ABORT)  # 6
    decide(log, 2, COMMIT)  # 7
    in_transaction(log, 3, 0)  # 8, 9
    log.roll()
    decide(log, 3, ABORT)  # 10
    in_transaction(log, 4, 0)  # 11, 12
    return log


#: What a log of another process tells begins where the fetch does, as a consumer needs it.
ABORTED = {
    "append": [[(1, 0)], [(1, 0), (3, 8)], [(3, 8)]],
    "read": [[(1, 0)], [(1, 4), (3, 8)], []],
}


@pytest.mark.parametrize("mode", ABORTED)
def test_committed_records_come_with_what_was_aborted(transactions: Log, mode: str) -> None:
    log = transactions if mode == "append" else Log.open(transactions.path)
    aborted, records = [], []
    offset = 0
    while (got := log.fetch(offset, isolation="read_committed")).size:
        aborted.append([tuple(each) for each in got.aborted or ()])
        records.append(offsets_of(got.columns()))
        offset = got.next_offset
    assert (aborted, records) == (ABORTED[mode], [[2, 3], [], []])
    assert offset == log.last_stable_offset == 11
    assert log.fetch(11, isolation="read_committed").aborted == ()


def test_a_foreign_log_is_asked_for_its_markers_not_for_its_index(transactions: Log) -> None:
    for path in transactions.path.glob("*.txnindex"):
        path.unlink()
    got = Log.open(transactions.path).fetch(0, isolation="read_committed")
    assert offsets_of(got.columns()) == [2, 3]


# ---- beside a writer -----------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> list[int]:
    """Do something the first time that a fetch has found its batch, and has not answered yet."""
    done: list[int] = []

    def acting(genuine: Callable[..., Any]) -> Callable[..., Any]:
        def find(*args: Any, **how: Any) -> Any:
            found = genuine(*args, **how)
            if not done:
                done.append(1)
                action()
            return found

        return find

    monkeypatch.setattr(fetching, "find_batch", acting(fetching.find_batch))
    return done


def test_what_was_cut_while_it_was_read_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_log(tmp_path) as log:
        fill(log, [2] * 10)

        def rewrite() -> None:
            log.truncate_to(4)
            log.append_as_follower(stored(4, 16, time=7))

        done = meanwhile(monkeypatch, rewrite)
        got = log.fetch(6, max_bytes=1)
        assert done
        (columns,) = got.columns(columns=("offset", "timestamp"))
        assert columns["timestamp_ms"].tolist() == list(range(9, 23))


def test_an_offset_that_is_cut_away_while_it_is_read_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_log(tmp_path) as log:
        fill(log, [2] * 10)
        meanwhile(monkeypatch, lambda: log.truncate_to(4))
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(6, max_bytes=1)


def test_a_segment_that_goes_while_it_is_looked_for_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_log(tmp_path, segment_bytes=300, retention_bytes=0) as log:
        fill(log, [2] * 10)
        done: list[str] = []

        def deleting(genuine: Callable[..., Any]) -> Callable[..., Any]:
            def opening(*args: Any) -> Any:
                if not done:
                    done.append("at first: who deletes opens files, too")
                    log.delete_old_segments()
                return genuine(*args)

            return opening

        monkeypatch.setattr(fetching.io, "open_read", deleting(fetching.io.open_read))
        with pytest.raises(OffsetOutOfRangeError):
            log.fetch(0)
        assert done


def test_an_index_of_transactions_that_goes_before_it_is_asked_is_missed(
    transactions: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove() -> None:
        transactions.delete_records_before(4)
        transactions.delete_old_segments()

    meanwhile(monkeypatch, remove)
    with pytest.raises(OffsetOutOfRangeError):
        transactions.fetch(0, isolation="read_committed")


def test_a_file_that_is_missing_for_good_is_reported(tmp_path: Path) -> None:
    with new_log(tmp_path) as log:
        fill(log, [1])
        os.rename(log.segments[0].path, tmp_path / "away")
        with pytest.raises(FileNotFoundError):
            log.fetch(0)
        os.rename(tmp_path / "away", log.segments[0].path)


class Restless:
    """A log that is cut at each look, unless the writer is kept out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncations = Truncations()
        self.held = 0
        self.lock = self

    def __enter__(self) -> None:
        self.held += 1

    def __exit__(self, *_: object) -> None:
        self.held -= 1

    @property
    def version(self) -> Any:
        if not self.held:
            self.truncations = self.truncations.cut_at(5)
        return SimpleNamespace(truncations=self.truncations)


def test_a_reader_that_is_always_disturbed_keeps_the_writer_out(tmp_path: Path) -> None:
    source = Restless(tmp_path)
    looks = []

    def look(seen: Any) -> int:
        looks.append(source.held)
        return seen.truncations.number

    assert find.undisturbed(source, look) == source.truncations.number
    assert looks == [0] * (len(looks) - 1) + [1]


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(0, 60))
def test_the_lowest_end_since_a_cut_is_known(ends: list[int], number: int) -> None:
    truncations = Truncations()
    for end in ends:
        truncations = truncations.cut_at(end)
    since = ends[number:]
    lowest = truncations.lowest_end_since(number)
    assert (lowest is None) == (not since)
    if lowest is not None:
        # Older cuts are told apart no more; a reader goes back further then, never less far.
        assert lowest == min(since) or (lowest < min(since) and len(truncations.ends) >= 30)


def test_cuts_that_go_ever_less_far_are_counted_in_little_room() -> None:
    truncations = Truncations()
    for end in range(1_000):
        truncations = truncations.cut_at(end)
    assert truncations.number == 1_000
    assert len(truncations.ends) <= 32
    assert truncations.lowest_end_since(0) == 0
    assert truncations.lowest_end_since(995) == 995


def test_an_answer_is_not_changed(tmp_path: Path) -> None:
    got = Fetched(5)
    assert (got.columns(), got.file, got.next_offset)[1:] == (None, 5)
    with pytest.raises(AttributeError):
        got.size = 3  # type: ignore[misc]
