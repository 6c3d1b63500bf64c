"""Adopting staged segments: the log goes on with them, at every interruption whole, once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kseg.analysis.verify import verify
from kseg.errors import AppendError, CorruptRecordError, OffsetsOutOfOrderError
from kseg.files.checkpoints import EpochEntry
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import FileKind
from kseg.format.encode import encode_batches
from kseg.format.header import scan as scan_batches
from kseg.format.options import BatchOptions
from kseg.log.adopt import StagedSegment, adopt
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import recover
from kseg.log.segment.writer import SegmentWriter
from kseg.records.scan import scan
from tests.stopping import Stopped, stopping_at
from tests.unit.log.logs import stored

CONFIG = LogConfig(index_interval_bytes=64, segment_index_bytes=4096)


def staged(tmp_path: Path, name: str, first: int, count: int) -> StagedSegment:
    """A segment of records `first` to `first + count - 1`, which their values say."""
    directory = tmp_path / "staging" / name
    directory.mkdir(parents=True)
    values = [b"%d" % number for number in range(first, first + count)]
    batches = list(encode_batches({"value": values}, BatchOptions(), base_offset=first,
                                  batch_records=3))  # fmt: skip
    with SegmentWriter.open(directory, first, CONFIG, create=True, now_ms=0) as writer:
        for one in batches:
            writer.append([one.data], scan_batches(one.data))
        size = writer.size
        writer.flush()
    return StagedSegment(str(directory), first, first, first + count - 1, size, count)


def records(path: Path) -> list[tuple[int, bytes | None]]:
    return [
        (int(offset), value)
        for columns in scan(path, columns=("offset", "value"))
        for offset, value in zip(columns.offset, columns.value, strict=True)
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Offsets 0 to 4, closed in good order."""
    path = tmp_path / "data" / "orders-0"
    values = [b"old"] * 5
    with Log.open(path, mode="append", create=True, config=CONFIG) as opened:
        for batch in encode_batches({"value": values}, BatchOptions(), batch_records=5):
            opened.append(batch, leader_epoch=3)
    return path


def test_segments_follow_the_end_of_a_log_in_order(log: Path, tmp_path: Path) -> None:
    parts = [staged(tmp_path, "a", 0, 10), staged(tmp_path, "b", 0, 4)]
    done = adopt(log, parts, config=CONFIG)
    assert (done.log_end_offset, done.segments) == (19, 2)
    values = [b"%d" % number for number in [*range(10), *range(4)]]
    assert records(log)[5:] == list(zip(range(5, 19), values, strict=True))
    assert verify(log, deep=True).findings == ()
    assert verify(log.parent).ok


def test_batches_are_of_the_logs_latest_epoch(log: Path, tmp_path: Path) -> None:
    adopt(log, [staged(tmp_path, "a", 0, 10)], config=CONFIG)
    with Log.open(log) as opened:
        assert opened.leader_epochs == (EpochEntry(3, 0),)
    epochs = {int(epoch) for columns in scan(log, columns=("leader_epoch",))
              for epoch in columns.leader_epoch}  # fmt: skip
    assert epochs == {3}
    adopt(log, [staged(tmp_path, "b", 0, 2)], leader_epoch=8, config=CONFIG)
    with Log.open(log) as opened:
        assert opened.leader_epochs == (EpochEntry(3, 0), EpochEntry(8, 15))


def test_an_older_epoch_is_refused_and_nothing_changes(log: Path, tmp_path: Path) -> None:
    with pytest.raises(AppendError, match="leader epoch 2 is older than the log's latest, 3"):
        adopt(log, [staged(tmp_path, "a", 0, 10)], leader_epoch=2, config=CONFIG)
    assert len(records(log)) == 5
    assert read_clean_shutdown(log.parent) is not None


def test_offsets_that_are_kept_may_leave_a_gap_and_not_go_back(log: Path, tmp_path: Path) -> None:
    late = staged(tmp_path, "a", 100, 6)
    adopt(log, [late], keep_offsets=True, config=CONFIG)
    assert [offset for offset, _value in records(log)] == [*range(5), *range(100, 106)]
    early = staged(tmp_path, "b", 105, 6)
    with pytest.raises(OffsetsOutOfOrderError, match=r"offsets 105 to 110 .* ends at 106"):
        adopt(log, [early], keep_offsets=True, config=CONFIG)
    assert early.is_waiting


@pytest.mark.parametrize("keep_offsets", [True, False])
@pytest.mark.parametrize(
    "lying",
    [
        stored(100, last_offset_delta=8) + stored(107, last_offset_delta=3),
        stored(100) + stored(110, last_offset_delta=-2),
        stored(99, last_offset_delta=11),
        stored(100, last_offset_delta=2**20),
    ],
    ids=["over each other", "backwards", "below its base", "over the next segment"],
)
def test_batches_that_a_recovery_would_cut_are_not_adopted(
    log: Path, tmp_path: Path, lying: bytes, keep_offsets: bool
) -> None:
    parts = [staged(tmp_path, "a", 100, 10), staged(tmp_path, "b", 110, 10)]
    parts[0].path(FileKind.LOG).write_bytes(lying)
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    try:
        adopt(log, parts, keep_offsets=keep_offsets, config=CONFIG)
    except OffsetsOutOfOrderError:
        assert {path.name: path.read_bytes() for path in log.iterdir()} == before
    else:
        assert not keep_offsets
    held = sum(path.stat().st_size for path in log.glob("*.log"))
    assert recover(log, clean=False, recovery_point=0).truncated_bytes == 0
    assert sum(path.stat().st_size for path in log.glob("*.log")) == held


def test_a_new_log_begins_where_the_offsets_that_it_keeps_do(tmp_path: Path) -> None:
    path = tmp_path / "data" / "orders-0"
    parts = [staged(tmp_path, "a", 70, 6), staged(tmp_path, "b", 90, 6)]
    adopt(path, parts, keep_offsets=True, leader_epoch=4, config=CONFIG)
    assert sorted(one.name for one in path.glob("*.log")) == [f"{70:020}.log", f"{90:020}.log"]
    # Of a log's start a broker keeps no snapshot.
    assert sorted(int(one.stem) for one in path.glob("*.snapshot")) == [90, 96]
    with Log.open(path) as opened:
        assert (opened.log_start_offset, opened.log_end_offset) == (70, 96)
        assert opened.leader_epochs == (EpochEntry(4, 70),)
    assert [one.code for one in verify(path, deep=True).findings] == ["segment-gap"]
    assert read_clean_shutdown(path.parent) is not None


def test_an_interruption_anywhere_leaves_a_whole_log_that_can_go_on(
    log: Path, tmp_path: Path
) -> None:
    values = [b"old"] * 5 + [b"%d" % number for number in [*range(10), *range(4)]]
    step = finished = 0
    while not finished:
        here = tmp_path / f"step-{step}"
        path = here / "data" / "orders-0"
        os.makedirs(here)
        shutil.copytree(log.parent, here / "data")
        parts = [staged(here, "a", 0, 10), staged(here, "b", 0, 4)]
        try:
            with stopping_at(step):
                adopt(path, parts, config=CONFIG)
            finished = 1
        except Stopped:
            found = records(path)
            assert [value for _offset, value in found] == values[: len(found)]
            assert len(found) in (5, 15, 19)
        adopt(path, parts, recover=True, config=CONFIG)
        assert records(path) == list(enumerate(values)), step
        assert verify(path, deep=True).ok
        step += 7
    assert step > 20


def test_an_interruption_anywhere_leaves_a_new_log_that_begins_where_it_should(
    tmp_path: Path,
) -> None:
    step = finished = 0
    while not finished:
        here = tmp_path / f"step-{step}"
        path = here / "data" / "orders-0"
        parts = [staged(here, "a", 70, 6), staged(here, "b", 90, 4)]
        try:
            with stopping_at(step):
                adopt(path, parts, keep_offsets=True, config=CONFIG)
            finished = 1
        except Stopped:
            adopt(path, parts, keep_offsets=True, recover=True, config=CONFIG)
        assert [offset for offset, _value in records(path)] == [*range(70, 76), *range(90, 94)]
        with Log.open(path) as opened:
            assert opened.log_start_offset == 70, step
        assert verify(path, deep=True).ok
        assert not path.joinpath(f"{0:020}.log").exists()
        step += 7
    assert step > 50


def test_a_staged_segment_cut_short_is_refused_and_the_log_has_not_changed(
    log: Path, tmp_path: Path
) -> None:
    parts = [staged(tmp_path, "a", 0, 10), staged(tmp_path, "b", 0, 4)]
    cut = Path(parts[1].directory, f"{0:020d}.log")
    cut.write_bytes(cut.read_bytes()[:-3])
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    with pytest.raises(CorruptRecordError, match="incomplete"):
        adopt(log, parts, leader_epoch=7, config=CONFIG)
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before
