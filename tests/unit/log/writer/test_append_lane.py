"""The lane of usual appends leaves what Kafka's steps leave, one by one, and answers the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg._kernels.placement import Places
from kseg.constants import Compression, TimestampType
from kseg.errors import KsegError, PoisonedFileError
from kseg.files.index import TimeIndexEntry
from kseg.files.log_writer import LogWriter
from kseg.format.header import scan
from kseg.log.log import Log
from kseg.log.producers.entry import BatchDescriptor, ProducerEntry
from kseg.log.segment.index_entries import Indexed
from kseg.log.validate.batches import inflate_records
from kseg.log.validate.rules import AppendOrigin, AppendRules
from kseg.log.writer import append
from kseg.log.writer.append import append_as_follower, append_as_leader
from tests.builders import GZIP, LZ4, SNAPPY, ZSTD
from tests.reference_codecs import crc32c
from tests.unit.log.logs import NOW_MS, Clock, failing, marker, one, open_log, stored

TRANSACTIONAL = 0x10
HEADER, COVERED = 61, 21
SMALL = {"segment_bytes": 2000, "index_interval_bytes": 100, "segment_index_bytes": 120}
Step = Callable[[Log], object]


class Producers:
    """Idempotent producers that mostly go on where they stopped."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._at: dict[int, list[int]] = {}

    def fields(self, count: int) -> dict[str, Any]:
        """The header of the next batch of one of them."""
        source = self._source
        producer_id = source.choice((7, 7, 7, 8, 9))
        at = self._at.setdefault(producer_id, [0, source.choice((0, 0, 3, 2**31 - 4)), 0])
        draw = source.random()
        if draw < 0.04:
            at[:2] = at[0] + 1, 0
        elif draw < 0.08:
            at[2] ^= TRANSACTIONAL
        epoch, first, kind = at
        first = max(first + source.choice((*[0] * 12, -count, 1)), 0)
        at[1] = (first + count) % 2**31
        given = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": first}
        return given | ({"attributes": kind} if kind else {})


def _random_batch(source: random.Random, producers: Producers, offset: int) -> tuple[bytes, int]:
    """A batch, mostly a sound one, and where the next one may begin."""
    count = source.choice((1, 1, 2, 5))
    fields: dict[str, Any] = {"time": NOW_MS + source.randint(-50, 50)}
    if source.random() < 0.05:
        fields["epoch"] = source.choice((0, 1, 2))
    if source.random() < 0.6:
        fields |= producers.fields(count)
    if source.random() < 0.5:
        fields["codec"] = source.choice((GZIP, SNAPPY, LZ4, ZSTD))
    if source.random() < 0.05:
        fields["time"] = -1
    batch = stored(offset, value=b"v" * source.choice((1, 30, 200)), count=count, **fields)
    if source.random() < 0.05:
        batch = _changed(source, batch)
    return batch, offset + count + source.choice((0, 0, 0, 0, 3))


def _changed(source: random.Random, batch: bytes) -> bytes:
    data = bytearray(batch)
    data[source.randrange(HEADER)] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
    if source.random() < 0.7:
        data[17:COVERED] = crc32c(bytes(data[COVERED:])).to_bytes(4, "big")
    return bytes(data)


def _follower_step(source: random.Random, producers: Producers, end: int) -> Step:
    batches, offset = [], end + source.choice((0, 0, 0, 0, 0, -1, 4))
    for _ in range(source.choice((1, 1, 1, 3, 12))):
        batch, offset = _random_batch(source, producers, max(offset, 0))
        batches.append(batch)
    data, epoch = b"".join(batches), source.choice((None, None, 0, 1))
    if source.random() < 0.05:
        data = data[: -source.randrange(1, 20)]
    return lambda log: append_as_follower(log.state, data, epoch)


def _leader_step(source: random.Random, producers: Producers) -> Step:
    data, _ = _random_batch(source, producers, 0)
    if source.random() < 0.1:
        data = marker(source.choice((0, 1)), producer=source.choice((7, 8)))
    epoch = source.choice((None, None, None, 0, 1))
    origin = source.choice((AppendOrigin.CLIENT, AppendOrigin.CLIENT, AppendOrigin.COORDINATOR))
    return lambda log: append_as_leader(log.state, data, epoch, origin)


def _done(log: Log, step: Step) -> object:
    try:
        return step(log)
    except KsegError as error:
        return type(error), str(error).replace(str(log.path), "")


def _left(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.is_file()}


def _places(log: Log) -> tuple[object, ...]:
    state, seen = log.state, log.version
    return (
        seen.log_end,
        seen.high_watermark,
        seen.last_stable,
        seen.recovery_point,
        [(info.base_offset, info.size) for info in seen.segments],
        state.producers.map_end_offset,
        state.epochs.entries,
        state.active.latest,
        dict(state.producers.entries),
        state.producers.ongoing,
    )


def places(
    indexed: Indexed | None = None,
    *,
    rooms: tuple[int, int] = (9, 9),
    end: int = 2**20,
    newest: int = 2**63 - 1,
    base: int = 0,
    interval: int = 4096,
    since: int = 0,
    latest: tuple[int, int] = (-1, 0),
) -> Places:
    """Where an empty segment with room stands, or another one."""
    indexed = indexed or Indexed(-1, TimeIndexEntry(-1, 0), *rooms)
    return Places(
        end=end,
        latest_max=newest,
        base=base,
        interval=interval,
        position=0,
        since=since,
        latest=latest,
        indexed=indexed.offset,
        offset_room=indexed.offset_room,
        indexed_time=indexed.time,
        time_room=indexed.time_room,
    )


def led(there: Places, data: bytes, offset: int, **rules: Any) -> Any:
    """What the kernel makes of a batch that gets that offset, without producers."""
    how = AppendRules(**rules)
    return there.lead(memoryview(data), how, offset, NOW_MS, {}, inflate_records)


def _nothing(*_caller_bytes: object) -> None:
    return None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "settings", [SMALL, {}, {"message_timestamp_type": TimestampType.LOG_APPEND_TIME}]
)
def test_random_appends_leave_the_same_bytes_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, settings: dict[str, Any]
) -> None:
    source = random.Random(seed)
    short = {name: getattr(append, name) for name in ("_follow_as_usual", "_lead_as_usual")}
    taken = 0
    producers = Producers(source)

    def counted(name: str) -> Callable[..., object]:
        def ask(*given: Any) -> object:
            nonlocal taken
            found = short[name](*given)
            taken += found is not None
            return found

        return ask

    with (
        open_log(tmp_path / "a" / "t-0", Clock(), **settings) as quick,
        open_log(tmp_path / "b" / "t-0", Clock(), **settings) as slow,
    ):
        for _ in range(60):
            end = slow.log_end_offset
            leads = source.random() < 0.5
            step = (
                _leader_step(source, producers) if leads else _follower_step(source, producers, end)
            )
            with monkeypatch.context() as patch:
                for name in short:
                    patch.setattr(append, name, counted(name))
                answer = _done(quick, step)
            with monkeypatch.context() as patch:
                for name in short:
                    patch.setattr(append, name, _nothing)
                assert answer == _done(slow, step)
            assert _places(quick) == _places(slow)
    assert taken > 15
    assert _left(tmp_path / "a" / "t-0") == _left(tmp_path / "b" / "t-0")


@pytest.mark.parametrize(
    "data",
    [
        stored(4),
        stored(5)[:-1],
        stored(5) + bytes(3),
        stored(5) + bytes(80),
        stored(5) + stored(5),
        stored(5) + stored(6, epoch=1),
        stored(5, epoch=-1),
        stored(5, producer_id=4, producer_epoch=-1, base_sequence=9),
        stored(5, producer_id=4, producer_epoch=0, base_sequence=-1),
        stored(5, count=2, producer_id=4, producer_epoch=0, base_sequence=2**31 - 1),
        stored(5, producer_id=4, producer_epoch=0, base_sequence=9)
        + stored(6, producer_id=4, producer_epoch=1, base_sequence=10),
        stored(5, attributes=6),
        stored(5, attributes=0x20),
        stored(2**63 - 5),
        stored(5) + stored(2**63 - 2**33 + 1),
        b"",
    ],
)
def test_whatever_is_unusual_is_not_kept_in_one_pass(data: bytes) -> None:
    assert places().follow(data, 5, 0, {}) is None


@pytest.mark.parametrize("at", range(HEADER + 5))
def test_a_wrong_bit_anywhere_is_not_kept(at: int) -> None:
    data = bytearray(stored(5) + stored(6))
    data[len(stored(5)) + at] ^= 0x10
    found = places().follow(data, 5, 0, {})
    # What lies in front of the checksum is not covered by it: here the offset alone is free, as
    # far as it has a 32-bit form.
    assert (found is None) == (at not in range(4, 8))


def test_no_epoch_or_offset_is_outside_of_its_range() -> None:
    assert places().follow(stored(5), 5, 2**31, {}) is None
    assert places().follow(stored(5), 5, -1, {}) is None
    assert places().follow(stored(5), -1, 0, {}) is None


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        ({}, True),
        ({"compression": Compression.ZSTD}, True),
        ({"compression": Compression.LZ4}, False),
        ({"zstd_allowed": False}, False),
        ({"compacted": True}, True),
        ({"batch_bytes_max": 80}, False),
        ({"append_bytes_max": 80}, False),
        ({"inflated_bytes_max": 20}, False),
        ({"magic": 1}, False),
    ],
)
def test_a_compressed_batch_is_usual_where_the_log_stores_it_as_it_is(
    rules: dict[str, Any], taken: bool
) -> None:
    assert (led(places(), one(count=9, codec=ZSTD), 5, **rules) is not None) == taken


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({}, True),
        ({"base_sequence": 3}, False),
        ({"base_sequence": 0}, False),
        ({"producer_epoch": 1, "base_sequence": 0}, False),
        ({"producer_id": 8, "base_sequence": 77}, True),
        ({"attributes": TRANSACTIONAL}, True),
    ],
)
def test_a_leader_takes_what_goes_on_as_its_producer_did(
    fields: dict[str, int], taken: bool
) -> None:
    known = {7: ProducerEntry(7, 0, -1, NOW_MS, None, (BatchDescriptor(1, 9, 1, NOW_MS),))}
    sent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2, **fields}
    data = memoryview(one(count=2, **sent))
    how = (AppendRules(), 10, NOW_MS)
    assert (places().lead(data, *how, known, inflate_records) is not None) == taken
    assert places().lead(data, *how, None, inflate_records) is None


def test_what_has_no_place_is_looked_at_by_others() -> None:
    data = stored(5)
    size = len(data)
    for fitting, too_tight in (
        ({"end": size}, {"end": size - 1}),
        ({"newest": NOW_MS}, {"newest": NOW_MS - 1}),
        ({"base": 5}, {"base": 6}),
        ({"rooms": (1, 1)}, {"rooms": (0, 1)}),
        ({"rooms": (1, 1)}, {"rooms": (1, 0)}),
    ):
        assert places(**fitting).follow(data, 5, 0, {})
        assert led(places(**fitting), stored(0), 5)
        assert places(**too_tight).follow(data, 5, 0, {}) is None
        assert led(places(**too_tight), stored(0), 5) is None
    assert led(places(), stored(0), 2**31 - 1)
    assert led(places(), stored(0), 2**31) is None


def test_what_was_only_looked_at_leaves_no_trace() -> None:
    there, data = places(interval=0, since=1), stored(5)
    assert there.follow(data, 5, 0, {}) == (5, 5, 1, NOW_MS, 5, None)
    assert (len(there.offsets), len(there.times)) == (8, 12)
    assert (there.position, there.since, there.latest) == (0, 1, (-1, 0))
    assert there.follow(data[:-1], 5, 0, {}) is None
    assert there.follow(data, 5, 0, {}) == (5, 5, 1, NOW_MS, 5, None)
    there.settle()
    assert (there.position, there.since, there.latest) == (len(data), len(data), (NOW_MS, 5))
    assert there.follow(data, 5, 0, {}) is None  # its entry would not be above the last


@pytest.mark.parametrize("ends", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("many", [1, 3])
def test_a_write_that_fails_leaves_the_log_as_it_was(
    tmp_path: Path, ends: str, follows: bool, many: int
) -> None:
    with open_log(tmp_path / "t-0", index_interval_bytes=0) as log:
        log.append_as_follower(stored(0) + stored(1))
        places = _places(log)
        given = b"".join(stored(2 + at, time=NOW_MS + at + 1) for at in range(many))
        with (
            failing("pwritev", error=OSError(28, "No space left on device"), ends=ends),
            pytest.raises(OSError, match="No space"),
        ):
            log.append_as_follower(given) if follows else log.append(one(time=NOW_MS + 1))
        assert _places(log) == places
        assert log.append_as_follower(given).last_offset == 1 + many


@pytest.mark.parametrize("follows", [True, False])
def test_an_interrupted_append_fails_the_log(tmp_path: Path, follows: bool) -> None:
    with open_log(tmp_path / "t-0") as log:
        log.append_as_follower(stored(0))
        with (
            failing("pwritev", error=KeyboardInterrupt(), ends=".log"),
            pytest.raises(KeyboardInterrupt),
        ):
            log.append_as_follower(stored(1)) if follows else log.append(one())
        with pytest.raises(PoisonedFileError):
            log.append(one())


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("usual", [False, True])
@pytest.mark.parametrize("given", [bytearray, lambda data: memoryview(bytearray(data))])
def test_what_is_written_is_what_was_checked_whatever_becomes_of_the_bytes_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leads: bool,
    usual: bool,
    given: Callable[[bytes], Any],
) -> None:
    data = given(one() if leads else stored(1))
    write = LogWriter.append_parts

    def spoil_and_write(log: LogWriter, parts: Any, size: int) -> int:
        data[70:] = bytes(len(data) - 70)
        return write(log, parts, size)

    with open_log(tmp_path / "t-0") as log:
        log.append_as_follower(stored(0))
        monkeypatch.setattr(LogWriter, "append_parts", spoil_and_write)
        if not usual:
            monkeypatch.setattr(append, "_lead_as_usual", _nothing)
            monkeypatch.setattr(append, "_follow_as_usual", _nothing)
        step = append_as_leader if leads else append_as_follower
        assert step(log.state, data).last_offset == 1
        assert len(scan(log.fetch(0).data)) == 2  # each with the checksum that it says
