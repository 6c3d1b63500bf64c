"""What is wrong with a directory is a typed error, or a repair that a plan lists; nothing else.

Not a list of Kafka's: what happens to directories that people copy, edit and fill up.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import LogLockedError, NotALogError
from kseg.files import io
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery
from tests.conformance.logs import ONE, Logs, bases, offsets, one
from tests.segments import offset_entries

CONFIG = LogConfig(segment_bytes=2 * ONE, index_interval_bytes=1)


def made(logs: Logs, count: int = 6) -> Path:
    """Segments of two records each, closed well."""
    log = logs.new(config=CONFIG)
    for _ in range(count):
        log.append(one())
    log.close()
    return log.path


def held(path: Path) -> dict[str, bytes]:
    """Every log's bytes, and those alone."""
    return {each.name: each.read_bytes() for each in path.glob("*.log")}


@pytest.mark.parametrize("name", ["orders", "orders-x", "-1", "orders-0.deleted"])
def test_a_directory_whose_name_is_no_partitions_is_not_appended_to(logs: Logs, name: str) -> None:
    path = logs.directory().with_name(name)
    with pytest.raises(NotALogError):
        logs.open(path, create=True)
    assert not path.exists()


def test_a_file_is_no_partition(logs: Logs) -> None:
    path = logs.directory()
    path.write_bytes(b"x")
    with pytest.raises((NotALogError, OSError)):
        logs.open(path, create=True)
    assert path.read_bytes() == b"x"


def test_a_missing_directory_is_not_made_unasked(logs: Logs) -> None:
    path = logs.directory()
    with pytest.raises(FileNotFoundError):
        logs.open(path)
    assert list(path.parent.glob("t-*")) == []


@pytest.mark.damages("a strange file stays")
@pytest.mark.parametrize("name", ["abc.log", "12x.log", ".log"])
def test_a_log_without_an_offset_in_its_name_changes_no_other(logs: Logs, name: str) -> None:
    path = made(logs)
    (path / name).write_bytes(b"x" * 100)
    before = held(path)
    log = logs.open(path)
    assert (bases(log), offsets(log)) == ([0, 2, 4], list(range(6)))
    log.close()
    assert held(path) == before


def test_an_index_that_points_past_its_log_is_listed_and_made_anew(logs: Logs) -> None:
    path = made(logs)
    before = held(path)
    index = path / f"{2:020d}.index"
    index.write_bytes((1).to_bytes(4, "big") + (10**6).to_bytes(4, "big"))
    plan = plan_recovery(path, config=CONFIG)
    assert [Path(action.path).name for action in plan.actions] == [index.name]
    assert [Path(finding.path).name for finding in plan.findings] == [index.name]
    log = logs.open(path, config=CONFIG)
    assert offsets(log) == list(range(6))
    assert (offset_entries(index, 2), held(path)) == ([(3, ONE)], before)


@pytest.mark.parametrize("text", ["0\n-1\n", "0\n1\nt 0\n", "7\n0\n", "x", "0\n1\nt 0 -5\n"])
@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
def test_a_malformed_checkpoint_counts_as_one_that_says_nothing(
    logs: Logs, name: str, text: str
) -> None:
    path = made(logs)
    before = held(path)
    (path.parent / f"{name}-offset-checkpoint").write_text(text)
    copy = logs.as_it_lies(path)
    (copy.parent / f"{name}-offset-checkpoint").write_text(text)
    for log in (logs.open(path), logs.open(copy, recover=True)):
        assert (log.log_start_offset, offsets(log)) == (0, list(range(6)))
        log.close()
        assert held(log.path) == before
        assert offsets(logs.open(log.path)) == list(range(6))


def refusing(number: int) -> io.Calls:
    """A disk that takes nothing."""

    def refuse(*_given: Any, **_more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    def open_file(path: Any, flags: int, *rest: int, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse()
        return os.open(path, flags, *rest, **more)

    names = ("pwritev", "ftruncate", "rename", "link", "unlink", "mkdir", "rmdir", "utime", "chown")
    return io.Calls(open=open_file, **dict.fromkeys(names, refuse))


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
@pytest.mark.parametrize("recover", [False, True])
def test_a_disk_that_takes_nothing_is_told_and_nothing_is_changed(
    logs: Logs, number: int, recover: bool
) -> None:
    path = made(logs)
    if recover:
        path = logs.as_it_lies(path)
        (path / f"{2:020d}.index").unlink()
    names = sorted(each.name for each in path.iterdir())
    before, told = held(path), os.strerror(number)
    with io.calls_replaced(refusing(number)), pytest.raises(OSError, match=told):
        logs.open(path, recover=recover)
    assert (sorted(each.name for each in path.iterdir()), held(path)) == (names, before)
    assert offsets(logs.open(path, recover=True)) == list(range(6))


def test_a_full_disk_refuses_one_append_and_takes_the_next(logs: Logs) -> None:
    path = made(logs)
    log = logs.open(path)

    def pwritev(fd: int, parts: Any, position: int) -> int:
        os.pwritev(fd, [bytes(parts[0])[:5]], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with io.calls_replaced(io.Calls(pwritev=pwritev)), pytest.raises(OSError, match="space"):
        log.append(one())
    assert (log.log_end_offset, offsets(log)) == (6, list(range(6)))
    assert log.append(one()).first_offset == 6
    log.close()
    assert offsets(logs.open(path)) == list(range(7))


def test_two_writers_are_one_too_many_also_through_another_name(logs: Logs) -> None:
    path = made(logs)
    log = logs.open(path)
    link = path.parent.with_name("link")
    link.symlink_to(path.parent)
    with pytest.raises(LogLockedError):
        Log.open(link / path.name, mode="append")
    log.append(one())
    log.close()
    assert offsets(logs.open(link / path.name)) == list(range(7))
