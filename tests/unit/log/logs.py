"""Logs that are appended to, for tests of what a log does: a line each, on a clock of theirs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kseg.files import io
from kseg.log.config import LogConfig
from kseg.log.log import Log
from tests.builders import batch, record

NOW_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


def open_log(path: Path, clock: Callable[[], int] | None = None, **how: Any) -> Log:
    """A log for appending, made if it is not there; settings may be among the arguments."""
    settings = {name: how.pop(name) for name in list(how) if name in LogConfig.__slots__}
    given = {"create": True, "config": LogConfig(**settings), **how}
    return Log.open(path, mode="append", now_ms=clock or Clock(), **given)


def one(value: bytes = b"value", *, count: int = 1, time: int = NOW_MS, **fields: Any) -> bytes:
    """A batch as a producer sends it."""
    records = [record(value, key=b"k", timestamp=time) for _ in range(count)]
    return batch(records, **{"leader_epoch": -1, **fields})


def stored(offset: int, *, count: int = 1, epoch: int = 0, **fields: Any) -> bytes:
    """A batch as a leader has it."""
    return one(count=count, base_offset=offset, leader_epoch=epoch, **fields)


def marker(kind: int, *, producer: int = 9) -> bytes:
    """An end marker as a coordinator sends it."""
    key = b"\0\0" + kind.to_bytes(2, "big")
    control = record(b"\0" * 6, key=key, timestamp=NOW_MS)
    fields = {"attributes": 0x30, "producer_id": producer, "producer_epoch": 0}
    return batch([control], leader_epoch=-1, **fields)


ONE = len(one())


def offsets(log: Log, **where: Any) -> list[int]:
    return [found.offset for found in log.records(**where)]


def bases(log: Log) -> list[int]:
    return [info.base_offset for info in log.segments]


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


@contextmanager
def failing(*calls: str, error: BaseException, ends: str = "", after: int = 0) -> Iterator[None]:
    """Let calls of the seam fail on files whose names end so, once `after` of them went well."""
    left = [after]

    def instead(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **named: Any) -> Any:
            name = path_of(first) if isinstance(first, int) else os.fspath(first)
            if name.endswith(ends):
                if not left[0]:
                    raise error
                left[0] -= 1
            return real(first, *rest, **named)

        return call

    real = io.Calls()
    with io.calls_replaced(replace(real, **{name: instead(getattr(real, name)) for name in calls})):
        yield


@contextmanager
def noted() -> Iterator[list[str]]:
    """What is flushed, renamed and removed, by name, in order."""
    told: list[str] = []
    real = io.Calls()

    def fsync(fd: int) -> None:
        told.append(f"flush {Path(path_of(fd)).name}")
        real.fsync(fd)

    def rename(source: Any, target: Any) -> None:
        told.append(f"rename {Path(target).name}")
        real.rename(source, target)

    with io.calls_replaced(replace(real, fsync=fsync, fdatasync=fsync, rename=rename)):
        yield told
