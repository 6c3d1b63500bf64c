"""The new records of a stream: whole batches up to a limit, and losses; its offsets in Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from kseg.errors import CorruptRecordError, OffsetOutOfRangeError
from kseg.records.scan import scan
from kseg.spark import watching
from kseg.spark.options import parse_options
from kseg.spark.watching import (
    Advance,
    Amount,
    StreamOffset,
    Watch,
    admit,
    offsets_document,
    stream_offsets_of,
)
from tests.builders import GZIP, batch, control_batch, record, wrapper, write_segment


def rows(first: int, count: int = 10, **more: object) -> bytes:
    records = [record(b"%d" % (first + n)) for n in range(count)]
    return batch(records, base_offset=first, **more)  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments of ten batches with ten records each."""
    path = tmp_path / "orders-0"
    for base in (0, 100, 200):
        write_segment(path, base, *(rows(base + 10 * n) for n in range(10)))
    return path


def watch(path: Path, **given: str) -> Watch:
    return Watch(parse_options({"path": str(path), **given}))


def end(path: Path, start: int = 0, limit: Amount | None = None, **given: str) -> int:
    seen = watch(path, **given)
    return seen.advance("orders-0", StreamOffset(start), limit or Amount()).stream_offset.offset


@pytest.mark.parametrize(
    ("start", "limit", "offset"),
    [
        (0, Amount(rows=35), 30),
        (0, Amount(rows=1), 10),
        (5, Amount(rows=15), 10),
        (95, Amount(rows=25), 110),
        (0, Amount(rows=10_000), 300),
        (0, Amount(segments=1), 100),
        (0, Amount(segments=2), 200),
        (0, Amount(bytes=1), 10),
        (300, Amount(rows=10), 300),
    ],
)
def test_a_limit_ends_in_front_of_the_batch_that_passes_it(
    log: Path, start: int, limit: Amount, offset: int
) -> None:
    assert end(log, start, limit) == offset


def test_limited_steps_take_each_batch_once(log: Path) -> None:
    seen, place, ends = watch(log), StreamOffset(0), []
    while not ends or place.offset < 300:
        step = seen.advance("orders-0", place, Amount(rows=70))
        assert step.taken.rows == step.stream_offset.offset - place.offset
        place = step.stream_offset
        ends.append(place.offset)
    assert ends == [70, 140, 210, 280, 300]


@pytest.mark.parametrize(
    "tail",
    [rows(300)[:-1], rows(300)[:20], b"\0" * 200, rows(300, crc=5), rows(300)[:70] + b"\0" * 500],
    ids=["torn", "head only", "zeros", "checksum to come", "contents to come"],
)
def test_an_unfinished_tail_is_left_alone_until_it_is_whole(log: Path, tail: bytes) -> None:
    path = max(log.glob("*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    seen = watch(log)
    place = seen.advance("orders-0", StreamOffset(0), Amount()).stream_offset
    assert place.offset == 300
    path.write_bytes(whole + rows(300))
    assert seen.advance("orders-0", place, Amount()).stream_offset.offset == 310


def test_a_damaged_batch_in_the_middle_of_the_last_segment_is_no_end(log: Path) -> None:
    write_segment(log, 300, rows(300), rows(310, crc=5), rows(320))
    assert end(log) == 330


def test_a_damaged_end_fails_or_is_waited_at(log: Path) -> None:
    path = write_segment(log, 300, rows(300), b"\0" * 8 + b"\0\0\0\1" + b"\7" * 90)
    with pytest.raises(CorruptRecordError, match=r"\[batch-length\]"):
        end(log)
    assert end(log, onCorrupt="skip") == 310
    assert path.exists()


def test_a_log_that_stands_still_is_not_opened(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SETTLED_NS", 0)
    seen = watch(log)
    place = seen.advance("orders-0", StreamOffset(0), Amount()).stream_offset
    seen.logs()
    monkeypatch.setattr(watching, "Segment", None)
    monkeypatch.setattr(watching, "list_logs", None)
    step = seen.advance("orders-0", place, Amount())
    assert (step.stream_offset, step.at_end) == (place, True)


def test_records_that_retention_removed_are_a_loss(log: Path) -> None:
    (log / f"{0:020}.log").unlink()
    with pytest.raises(OffsetOutOfRangeError, match="offsets 40 to 99 are gone; set failOnData"):
        end(log, 40)
    assert end(log, 40, Amount(rows=10), failOnDataLoss="false") == 110


def test_a_log_that_is_gone_is_a_loss(log: Path) -> None:
    write_segment(log.parent / "orders-1", 0, rows(0))
    for path in log.glob("*"):
        path.unlink()
    log.rmdir()
    with pytest.raises(OffsetOutOfRangeError, match="the log is gone"):
        end(log.parent, 40)
    assert end(log.parent, 40, failOnDataLoss="false") == 40


def test_a_log_that_was_cut_is_a_loss(log: Path) -> None:
    for base in (100, 200):
        (log / f"{base:020}.log").unlink()
    with pytest.raises(OffsetOutOfRangeError, match="ends at 100, and was read up to 250"):
        end(log, 250)
    assert end(log, 250, failOnDataLoss="false") == 100


def test_a_position_that_does_not_fit_any_more_is_not_believed(log: Path) -> None:
    path = max(log.glob("*.log"))
    seen = watch(log)
    for position in (1, 7, os.path.getsize(path) - 3, 10 * os.path.getsize(path)):
        step = seen.advance("orders-0", StreamOffset(250, 200, position), Amount())
        assert step.stream_offset.offset == 300
        assert step.taken.rows == 50


def test_committed_records_end_where_transactions_are_open(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    data = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    write_segment(path, 0, rows(0), rows(10, base_sequence=0, **data), rows(20))
    assert end(path) == 30
    assert end(path, isolation="read_committed") == 10
    marker = control_batch(1, base_offset=30, producer_id=7)
    write_segment(path, 0, rows(0), rows(10, base_sequence=0, **data), rows(20), marker)
    assert end(path, isolation="read_committed") == 31


def test_records_of_old_formats_are_counted_by_offset(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    bases = (0, 5, 10, 15)
    sets = [wrapper([record(b"v")] * 5, magic=1, codec=GZIP, base_offset=base) for base in bases]
    write_segment(path, 0, *sets)
    step = watch(path).advance("orders-0", StreamOffset(0), Amount(rows=12))
    assert step.stream_offset.offset == 15  # of the first one only the last offset is known
    assert sum(len(columns) for columns in scan(path)) == 20


def test_two_directories_of_one_name_are_refused(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "orders-0"
    write_segment(other, 0, rows(0))
    seen = Watch(parse_options({"paths": f'["{log}", "{other}"]'}))
    with pytest.raises(ValueError, match="one directory of orders-0"):
        seen.logs()


# ---- offsets and shares --------------------------------------------------------------------------


def test_offsets_survive_json_in_the_order_of_names() -> None:
    given = {"t-1": StreamOffset(5), "t-0": StreamOffset(1200, 1000, 81920)}
    text = json.dumps(offsets_document(given))
    assert text == (
        '{"v": 1, "topics": {"t-0": {"offset": 1200, "segment": 1000, "pos": 81920}, '
        '"t-1": {"offset": 5, "segment": -1, "pos": 0}}}'
    )
    assert stream_offsets_of(json.loads(text)) == given


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "version None"),
        ({"v": 2, "topics": {}}, "version 2"),
        ({"v": 1}, "no topics"),
        ({"v": 1, "topics": {"t-0": 5}}, "'t-0' is 5"),
        ({"v": 1, "topics": {"t-0": {"offset": 1, "segment": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": "1", "segment": 0, "pos": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": 2**63 + 1, "segment": 0, "pos": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": -5, "segment": 0, "pos": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": True, "segment": 0, "pos": 0}}}, "'t-0'"),
    ],
)
def test_a_checkpoint_of_another_making_is_refused(
    document: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        stream_offsets_of(document)


def batches_of(sizes: Mapping[str, int], rows: int = 10):
    """Logs of so many batches, each of `rows` records and 100 bytes."""

    def advance(name: str, place: StreamOffset, limit: Amount, *, at_least: bool = True) -> Advance:
        there = sizes[name] - place.offset // rows
        fits = min(there, limit.rows // rows, limit.bytes // 100)
        fits = max(fits, min(there, int(at_least)))
        taken = Amount(fits * rows, fits * 100, int(fits > 0))
        return Advance(StreamOffset(place.offset + fits * rows), taken, at_end=fits == there)

    return advance


def admitted(sizes: Mapping[str, int], limit: Amount) -> dict[str, int]:
    starts = {name: StreamOffset(0) for name in sizes}
    ends = admit(starts, limit, batches_of(sizes))
    return {name: place.offset for name, place in ends.items()}


def test_without_a_limit_everything_is_taken() -> None:
    assert admitted({"a": 3, "b": 7}, Amount()) == {"a": 30, "b": 70}


@pytest.mark.parametrize("sizes", [(1, 9, 9), (9, 1, 9), (9, 9, 1)])
def test_a_limit_is_shared_and_what_one_does_not_need_goes_to_others(
    sizes: tuple[int, int, int],
) -> None:
    found = admitted(dict(zip("abc", sizes, strict=True)), Amount(rows=90))
    assert sum(found.values()) == 90
    assert sorted(found.values())[0] == 10
    assert sorted(found.values())[1] >= 30


def test_a_limit_is_not_passed_once_there_is_something() -> None:
    assert sum(admitted({"a": 5, "b": 5, "c": 5}, Amount(rows=35)).values()) == 30
    assert admitted({"a": 9}, Amount(rows=35)) == {"a": 30}


def test_no_partition_waits_for_the_others_to_end() -> None:
    sizes = dict.fromkeys("abcde", 1000)
    places = {name: StreamOffset(0) for name in sizes}
    for _ in range(60):
        places = admit(places, Amount(rows=10), batches_of(sizes))
    assert min(place.offset for place in places.values()) > 0
