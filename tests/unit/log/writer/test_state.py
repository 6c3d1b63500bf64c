from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import KsegError, PoisonedFileError
from kseg.log.log import Log
from kseg.log.producers.entry import OffsetMetadata
from tests.unit.log.logs import ONE, bases, one, open_log


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with open_log(tmp_path / "t-0", segment_bytes=2 * ONE) as opened:
        yield opened


def test_what_was_published_does_not_change(log: Log) -> None:
    log.append([one(), one()])
    before = log.version
    told = (before.log_end, before.segments, before.size, before.high_watermark)
    log.append([one(), one(), one()])
    assert (before.log_end, before.segments, before.size, before.high_watermark) == told
    assert log.version.log_end == OffsetMetadata(5, 4, ONE)
    assert [(info.base_offset, info.size, info.is_last) for info in log.segments] == [
        (0, 2 * ONE, False),
        (2, 2 * ONE, False),
        (4, ONE, True),
    ]


def test_readers_take_no_lock(log: Log) -> None:
    log.append(one())
    done = threading.Event()

    def read() -> None:
        if log.version.log_end_offset == 1 and [r.offset for r in log.records()] == [0]:
            done.set()

    with log.state.lock:
        reader = threading.Thread(target=read)
        reader.start()
        assert done.wait(10)
    reader.join()


def test_appends_of_many_threads_lie_one_behind_the_other(tmp_path: Path) -> None:
    results: list[Any] = []
    with open_log(tmp_path / "t-0", segment_bytes=40 * ONE) as log:

        def append() -> None:
            results.extend([log.append(one(count=2)) for _ in range(50)])

        threads = [threading.Thread(target=append) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(r.first_offset for r in results) == list(range(0, 400, 2))
        assert [r.offset for r in log.records()] == list(range(400))


def test_the_first_failure_is_the_one_that_is_told(log: Log) -> None:
    state = log.state
    with pytest.raises(OSError, match="first"), state.all_or_poison():
        raise OSError("first")
    state.fail(ValueError("second"))
    with pytest.raises(PoisonedFileError, match="first"), state.changing():
        pass
    assert (state.failed, state.may_change) == (True, False)


def test_a_child_may_look_and_not_touch(log: Log) -> None:
    log.append(one())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"changed"
        try:
            log.append(one())
        except KsegError as error:
            told = str(error).encode()
        log.close()
        os.write(write, told + f" {log.log_end_offset}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    told = os.read(read, 1000)
    os.close(read)
    assert b"before a fork" in told
    assert told.endswith(b" 1")
    assert log.append(one()).first_offset == 1
    assert (log.path.parent / ".lock").exists()


def test_settings_hold_from_the_next_append_on(log: Log) -> None:
    log.append(one())
    log.update_config(log.config.with_changes(segment_bytes=ONE, max_message_bytes=ONE))
    log.append(one())
    assert bases(log) == [0, 1]
    with pytest.raises(ValueError, match=f"allows {ONE}"):
        log.append(one(count=2))
