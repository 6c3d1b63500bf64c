from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kseg.files import io
from kseg.log.config import LogConfig
from kseg.log.producers.state import ProducerState
from kseg.log.recovery.sweep import Swept, sweep_segment, write_indexes
from kseg.log.segment.reader import Segment
from tests.builders import ABORT, COMMIT, batch, control_batch, record, write_segment
from tests.segments import batch_of, txn_entries
from tests.stopping import failing_at, stopping_at

BASE = 40
CONFIG = LogConfig(index_interval_bytes=100, segment_index_bytes=1000)


def sweep(path: Path, *, producers: bool = True) -> Swept:
    with Segment.open(path, is_last=True) as segment:
        state = ProducerState() if producers else None
        return sweep_segment(segment, config=CONFIG, producers=state)


def plain(count: int) -> list[bytes]:
    return [batch_of(90, base_offset=BASE + i, timestamp=10 * (BASE + i)) for i in range(count)]


def transactional(offset: int) -> bytes:
    return batch(
        [record(b"v")], base_offset=offset, producer_id=5, producer_epoch=0, transactional=True
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    parts = [
        *plain(5),
        transactional(45),
        control_batch(ABORT, base_offset=46, producer_id=5),
        transactional(47),
        control_batch(COMMIT, base_offset=48, producer_id=5),
    ]
    return write_segment(tmp_path, BASE, *parts)


def suffixes(paths: tuple[Path, ...]) -> list[str]:
    return [path.suffix for path in paths]


def test_all_three_indexes_are_made_and_the_second_time_nothing_changes(path: Path) -> None:
    swept = sweep(path)
    for active, sizes in ((False, (32, 24)), (True, (1000, 996))):
        changed = write_indexes(path.parent, BASE, swept, config=CONFIG, active=active)
        expected = [".index", ".timeindex"] + [".txnindex"] * (not active)
        assert suffixes(changed) == expected
        before = {file.name: file.stat() for file in path.parent.iterdir()}
        assert write_indexes(path.parent, BASE, swept, config=CONFIG, active=active) == ()
        assert {file.name: file.stat() for file in path.parent.iterdir()} == before
        assert path.with_suffix(".index").stat().st_size == sizes[0]
        assert path.with_suffix(".timeindex").stat().st_size == sizes[1]
    assert path.with_suffix(".index").read_bytes() == swept.offset_entries.ljust(1000, b"\0")
    assert txn_entries(path.with_suffix(".txnindex")) == [(5, 45, 46, 47)]


def test_a_byte_in_the_empty_part_of_an_index_is_a_difference(path: Path) -> None:
    swept = sweep(path)
    write_indexes(path.parent, BASE, swept, config=CONFIG, active=True)
    index = path.with_suffix(".timeindex")
    index.write_bytes(index.read_bytes()[:-1] + b"\1")
    changed = write_indexes(path.parent, BASE, swept, config=CONFIG, active=True)
    assert suffixes(changed) == [".timeindex"]
    assert index.read_bytes()[-1] == 0


def test_an_active_index_has_room_for_its_entries_whatever_the_settings_say(path: Path) -> None:
    small = CONFIG.with_changes(segment_index_bytes=12)
    write_indexes(path.parent, BASE, sweep(path), config=small, active=True)
    assert path.with_suffix(".index").stat().st_size == 32
    assert path.with_suffix(".timeindex").stat().st_size == 24


def test_replaced_files_keep_their_permissions_and_times(path: Path) -> None:
    for suffix in (".index", ".timeindex", ".txnindex"):
        file = path.with_suffix(suffix)
        file.write_bytes(b"noise")
        file.chmod(0o640)
        os.utime(file, ns=(1, 1_234_567_890))
    changed = write_indexes(path.parent, BASE, sweep(path), config=CONFIG, active=False)
    assert suffixes(changed) == [".index", ".timeindex", ".txnindex"]
    for file in changed:
        assert file.stat().st_mode & 0o777 == 0o640
        assert file.stat().st_mtime_ns == 1_234_567_890


def test_without_aborted_transactions_a_file_for_them_is_emptied_and_none_is_made(
    tmp_path: Path,
) -> None:
    path = write_segment(tmp_path, BASE, *plain(3))
    index = path.with_suffix(".txnindex")
    swept = sweep(path)
    write_indexes(tmp_path, BASE, swept, config=CONFIG, active=False)
    assert not index.exists()
    index.write_bytes(bytes(34))
    changed = write_indexes(tmp_path, BASE, swept, config=CONFIG, active=False)
    assert (suffixes(changed), index.read_bytes()) == ([".txnindex"], b"")


def test_where_no_producers_were_asked_for_the_transaction_index_is_left_alone(path: Path) -> None:
    index = path.with_suffix(".txnindex")
    index.write_bytes(b"whatever")
    write_indexes(path.parent, BASE, sweep(path, producers=False), config=CONFIG, active=False)
    assert index.read_bytes() == b"whatever"


def test_each_index_is_the_old_one_or_the_new_one_wherever_the_disk_fails(path: Path) -> None:
    swept = sweep(path)
    names = [path.with_suffix(suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    new = {}
    write_indexes(path.parent, BASE, swept, config=CONFIG, active=False)
    for name in names:
        new[name] = name.read_bytes()
    for failing in range(1, 40):
        for name in names:
            name.write_bytes(b"old")
        try:
            with io.calls_replaced(_failing_at(failing)):
                write_indexes(path.parent, BASE, swept, config=CONFIG, active=False)
        except OSError:
            assert all(name.read_bytes() in (b"old", new[name]) for name in names)
            assert not list(path.parent.glob("*.tmp"))
        else:
            break
    else:
        raise AssertionError("there are fewer calls than that")
    assert failing > 15
    assert {name: name.read_bytes() for name in names} == new


def _failing_at(number: int) -> io.Calls:
    """Calls of which that one fails; taking the file beside away again does not."""
    counted = failing_at(number)
    usual = io.Calls()
    names = ("pwritev", "fdatasync", "rename", "fsync", "utime", "chmod")
    return io.Calls(
        open=_opening(usual.open, counted),
        **{name: counted(getattr(usual, name)) for name in names},
    )


def _opening(call: Any, counted: Any) -> Any:
    run = counted(call)

    def opened(path: Any, *rest: Any) -> Any:
        # What is there is only looked at; a failure there is that of any reading.
        return run(path, *rest) if str(path).endswith(".tmp") else call(path, *rest)

    return opened


def test_files_are_flushed_before_they_have_their_names_and_the_directory_at_the_end(
    path: Path,
) -> None:
    swept = sweep(path)
    names = ("fdatasync", "rename", "fsync")
    with stopping_at(None) as asked:
        write_indexes(path.parent, BASE, swept, config=CONFIG, active=False)
    assert [name for name in asked if name in names] == ["fdatasync", "rename"] * 3 + ["fsync"]
    with stopping_at(None) as asked:
        write_indexes(path.parent, BASE, swept, config=CONFIG, active=False)
    # What was right may never have reached the disk.
    assert [name for name in asked if name in names] == ["fdatasync"] * 3
