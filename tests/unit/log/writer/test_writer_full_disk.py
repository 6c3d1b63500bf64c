"""A disk that is full to its last block is freed by what takes from a log, each at its first try.

On a small file system of its own where the machine lets the test make one, and everywhere on a shim
that counts blocks.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kseg.files import checkpoints
from kseg.files.checkpoints import TopicPartition
from kseg.files.metadata import read_clean_shutdown, remove_clean_shutdown
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery, recover
from tests import full_disk
from tests.unit.log.logs import NOW_MS, bases, offsets, one

CONFIG = LogConfig(
    segment_bytes=50_000, segment_index_bytes=4096, retention_bytes=60_000, retention_ms=-1
)
PARTITION = TopicPartition("orders", 0)


@dataclass(frozen=True)
class Disk:
    """Where a log lies, and how its disk is filled."""

    root: Path
    full: Callable[[], AbstractContextManager[object]]

    @property
    def home(self) -> Path:
        return self.root / "data"

    @property
    def path(self) -> Path:
        return self.home / "orders-0"

    def open(self, *, recover: bool = False, config: LogConfig = CONFIG) -> Log:
        return Log.open(
            self.path,
            mode="append",
            create=True,
            recover=recover,
            config=config,
            now_ms=lambda: NOW_MS,
        )

    def holds(self) -> dict[str, bytes]:
        """What there is, but for what fills it."""
        files = (each for each in self.root.rglob("*") if each.is_file())
        return {
            str(each.relative_to(self.root)): each.read_bytes()
            for each in files
            if not each.name.startswith("fill") and each.name != ".lock"
        }


@pytest.fixture(params=["shim", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A log of six segments, closed well: offsets 0 to 49."""
    if request.param == "shim":
        made = Disk(tmp_path, full_disk.full)
        _write(made)
        yield made
        return
    place = full_disk.mounted(tmp_path)
    if place is None:
        pytest.skip("no file system can be made and mounted here; the shim stands for it")
    try:
        made = Disk(place, lambda: _filled(place))
        _write(made)
        yield made
    finally:
        full_disk.unmount(place)


def _write(disk: Disk) -> None:
    disk.home.mkdir()
    with disk.open() as log:
        for number in range(50):
            log.append(one(b"%05d" % number * 1000))


@contextmanager
def _filled(place: Path) -> Iterator[None]:
    full_disk.fill(place)
    yield
    full_disk.unfilled(place)


def in_order(disk: Disk, *expected: int) -> None:
    """The log has these offsets, was closed well, and takes an append as soon as there is room."""
    assert read_clean_shutdown(disk.home) is not None
    plan = plan_recovery(disk.path, config=CONFIG, now_ms=NOW_MS)
    # Snapshots of no use stay until the next start, as they do where there is room.
    assert [each for each in plan.actions if each.path.endswith(("log", "index"))] == []
    assert (plan.findings, plan.error) == ((), None)
    with disk.open() as log:
        assert offsets(log) == list(expected)
        log.append(one(b"more"))
    assert not [name for name in disk.holds() if name.endswith((".deleted", ".tmp"))]


#: What frees the disk, and which offsets stay.
FREES: dict[str, tuple[Callable[[Log], object], range]] = {
    "retention": (lambda log: log.delete_old_segments(), range(36, 50)),
    **{
        f"records before {start}": (
            lambda log, start=start: log.delete_records_before(start),  # type: ignore[misc]
            range(start, 50),
        )
        for start in (18, 31)
    },
    **{
        f"a cut at {end}": (
            lambda log, end=end: log.truncate_to(end),  # type: ignore[misc]
            range(end),
        )
        for end in (22, 47, 0, 9)
    },
    "a new beginning": (lambda log: log.truncate_fully_and_start_at(100), range(0)),
}


@pytest.mark.parametrize("name", FREES)
def test_what_takes_from_a_log_frees_it(disk: Disk, name: str) -> None:
    change, left = FREES[name]
    with disk.full():
        with disk.open() as log:
            change(log)
            assert offsets(log) == list(left)
        in_order(disk, *left)


def test_retention_of_all_makes_the_new_segment_in_the_room_of_the_others(disk: Disk) -> None:
    with disk.full():
        with disk.open(config=LogConfig(segment_bytes=50_000, retention_ms=1)) as log:
            log.state.config = LogConfig(segment_bytes=50_000, retention_bytes=0)
            log.delete_old_segments()
            assert (bases(log), log.log_start_offset, log.log_end_offset) == ([50], 50, 50)
        in_order(disk)


def test_a_start_inside_the_first_segment_has_no_room_and_changes_nothing(disk: Disk) -> None:
    with disk.full(), disk.open() as log:
        before = disk.holds()
        with pytest.raises(OSError, match=r"no room on the disk: \d+ bytes are needed") as refused:
            log.delete_records_before(5)
        assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(disk.path))
        assert (log.log_start_offset, log.state.failed) == (0, False)
        assert disk.holds() == before
        log.delete_records_before(9)  # the first segment goes whole


@pytest.mark.parametrize("name", ["retention", "records before 18"])
def test_files_with_a_second_name_are_no_room(disk: Disk, name: str) -> None:
    (disk.root / "second").mkdir()
    for path in disk.path.iterdir():
        os.link(path, disk.root / "second" / path.name)
    with disk.full(), disk.open() as log:
        before = disk.holds()
        with pytest.raises(OSError, match="gives back 0; nothing was changed"):
            FREES[name][0](log)
        assert disk.holds() == before
        assert (log.log_start_offset, log.state.failed) == (0, False)
    in_order(disk, *range(50))


def torn(disk: Disk) -> None:
    """The process died as the disk became full: no mark, and half a batch at the end."""
    remove_clean_shutdown(disk.home)
    last = max(disk.path.glob("*.log"))
    last.write_bytes(last.read_bytes() + one(b"." * 40_000)[:30_000])


def test_recovery_frees_it(disk: Disk) -> None:
    torn(disk)
    with disk.full():
        done = recover(disk.path, config=CONFIG, now_ms=NOW_MS, keep_cut=False)
        assert done.truncated_bytes == 30_000
        assert done.freed_bytes >= 24_000
        assert done.kept_in_backup_bytes == 0
        in_order(disk, *range(50))


def test_recovery_writes_what_it_makes_anew_in_the_room_of_what_it_cuts(disk: Disk) -> None:
    torn(disk)
    for path in [*sorted(disk.path.glob("*.index"))[:2], max(disk.path.glob("*.snapshot"))]:
        path.write_bytes(b"")
    with disk.full():
        recover(disk.path, config=CONFIG, now_ms=NOW_MS, keep_cut=False)
        in_order(disk, *range(50))


def test_a_recovery_that_frees_too_little_is_refused_and_changes_nothing(disk: Disk) -> None:
    remove_clean_shutdown(disk.home)
    for path in disk.path.glob("*.index"):
        path.write_bytes(b"")
    with disk.full():
        before = disk.holds()
        with pytest.raises(OSError, match=r"\d+ bytes are needed .* gives back 0") as refused:
            recover(disk.path, config=CONFIG, now_ms=NOW_MS, keep_cut=False)
        assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(disk.path))
        assert disk.holds() == before


def test_what_a_recovery_is_to_keep_has_no_room_and_nothing_changes(disk: Disk) -> None:
    torn(disk)
    with disk.full():
        before = disk.holds()
        with pytest.raises(OSError, match=r"--backup-dir.*--no-backup") as refused:
            recover(disk.path, config=CONFIG, now_ms=NOW_MS)
        assert refused.value.errno == errno.ENOSPC
        assert disk.holds() == before


def test_an_opening_that_has_no_room_to_keep_a_torn_end_says_what_mends_the_log(disk: Disk) -> None:
    torn(disk)
    with disk.full():
        before = disk.holds()
        with pytest.raises(OSError, match="no room to back up 30000 bytes") as refused:
            disk.open(recover=True)
        assert "kseg recover --apply --no-backup" in str(refused.value)
        assert refused.value.errno == errno.ENOSPC
        assert Path(refused.value.filename).parent == disk.path
        logs = {name: data for name, data in disk.holds().items() if name.endswith(".log")}
        assert logs == {name: data for name, data in before.items() if name.endswith(".log")}
        recover(disk.path, config=CONFIG, now_ms=NOW_MS, keep_cut=False)
        in_order(disk, *range(50))


def test_a_log_whose_recovery_point_is_taken_back_opens_and_then_frees_it(disk: Disk) -> None:
    point = disk.home / "recovery-point-offset-checkpoint"
    checkpoints.write_offset_checkpoint(point, {PARTITION: 60})
    remove_clean_shutdown(disk.home)
    with disk.full():
        with disk.open(recover=True) as log:
            told = checkpoints.read_offset_checkpoint(point) if point.exists() else {}
            assert told.get(PARTITION, 0) <= log.log_end_offset
            log.delete_old_segments()
        in_order(disk, *range(36, 50))
