"""What a log is when it is opened for appending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kseg.errors import UnsupportedFormatError
from kseg.log.config import LogConfig
from kseg.log.recovery.load_result import Loaded, LoadedSegment, load
from tests.unit.log import damaged
from tests.unit.log.damaged import CONFIG, NOW, content, logs


def loaded(directory: Path, *, clean: bool = True, **how: Any) -> Loaded:
    known = {"recovery_point": 25 if clean else 0, "log_start_offset": 0, "now_ms": NOW, **how}
    return load(directory, config=CONFIG, clean=clean, **known)


def test_an_empty_directory_gets_an_empty_segment(tmp_path: Path) -> None:
    for clean in (False, True):
        found = loaded(tmp_path, clean=clean, log_start_offset=7, recovery_point=0)
        assert found.segments == (LoadedSegment(7, 0),)
        assert (found.log_start_offset, found.log_end_offset, found.recovery_point) == (7, 7, 7)
        assert content(tmp_path) == {f"{7:020d}.log": b""}


def test_after_a_clean_stop_no_byte_changes(partition: Path) -> None:
    before = content(partition)
    found = loaded(partition)
    assert content(partition) == before
    assert (found.log_start_offset, found.log_end_offset, found.recovery_point) == (0, 25, 25)
    assert [segment.base_offset for segment in found.segments] == [0, 3, 6, 10, 14, 17, 20, 23]
    assert [segment.size for segment in found.segments] == [
        path.stat().st_size for path in logs(partition)
    ]
    assert found.segments[-1].offset_entries is None
    assert [tuple(entry) for entry in found.epochs.entries] == [(1, 0), (2, 8)]
    assert found.producers.map_end_offset == 25
    assert found.producers.first_undecided_offset == 12
    assert found.snapshots.newest_offset == 25
    assert found.findings == ()


def test_after_a_crash_the_log_is_what_its_batches_say(partition: Path) -> None:
    damaged.torn(partition)
    damaged.no_indexes(partition)
    damaged.no_snapshots(partition)
    damaged.malformed_epochs(partition)
    found = loaded(partition, clean=False)
    assert (found.log_end_offset, found.recovery_point) == (24, 0)
    last = found.segments[-1]
    assert (last.size, last.offset_entries, last.time_entries) == (129, 0, 1)
    assert [tuple(entry) for entry in found.epochs.entries] == [(1, 0), (2, 8)]
    assert found.producers.first_undecided_offset == 12
    assert (partition / f"{10:020d}.txnindex").stat().st_size == 34
    assert [finding.code for finding in found.findings] == ["epochs-format", "torn-tail"]


def test_epochs_are_written_by_whoever_changes_them_later(partition: Path) -> None:
    found = loaded(partition)
    assert not found.epochs.dirty
    found.epochs.assign(3, 25)
    assert (partition / damaged.EPOCHS).read_text() == "0\n3\n1 0\n2 8\n3 25\n"


def test_only_what_cannot_be_had_again_is_kept_aside(partition: Path) -> None:
    damaged.torn(partition)
    loaded(partition, clean=False)
    (place,) = partition.parent.with_name("data.kseg-backup").iterdir()
    assert list(content(place / "t-0")) == [f"{23:020d}.log.from-129"]


def test_nothing_is_kept_aside_if_nobody_wants_it(partition: Path) -> None:
    damaged.torn(partition)
    loaded(partition, clean=False, keep_cut=False)
    assert not partition.parent.with_name("data.kseg-backup").exists()


def test_files_of_kafka_07_are_refused(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}.kafka").write_bytes(b"")
    with pytest.raises(UnsupportedFormatError):
        load(
            tmp_path,
            config=LogConfig(),
            clean=True,
            recovery_point=0,
            log_start_offset=0,
            now_ms=NOW,
        )
