"""Kill a process at one call of the seam: in front of it, behind it, or in the middle of a write.

The parent has everything imported; a child is a fork of it, which takes a millisecond or two. What
the workload says it has done is counted in shared memory, so that it outlives the child.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kseg.files import io

Remarks = Callable[[Any], None]
Workload = Callable[[Path, Remarks], None]
How = Literal["before", "after", "torn"]
HOWS: tuple[How, ...] = ("before", "after", "torn")

NAMES = tuple(io.Calls.__dataclass_fields__)
_DONE, _FAILED = 0, 70
_COUNTERS = struct.Struct("<qq")


@dataclass(frozen=True, slots=True)
class Kill:
    """When: at which call, counted from 0, and where in it."""

    call: int
    how: How
    part: float = 0.5  # of the bytes, for a torn write


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a child.

    Attributes:
        killed: it came to the call and died there.
        remarks: how many it made.
        calls: how many calls of the seam it came to.
        error: what it failed of, as text.
    """

    killed: bool
    remarks: int
    calls: int
    error: str = ""


def counted(
    inner: io.Calls, at_call: Callable[[int, str, tuple[Any, ...], dict[str, Any]], None]
) -> io.Calls:
    """Calls that tell their number and name before they are made."""
    number = -1

    def wrapped(name: str) -> Callable[..., Any]:
        call = getattr(inner, name)

        def made(*args: Any, **kwargs: Any) -> Any:
            nonlocal number
            number += 1
            at_call(number, name, args, kwargs)
            return call(*args, **kwargs)

        return made

    return io.Calls(**{name: wrapped(name) for name in NAMES})


def calls_of(workload: Workload, root: Path) -> list[str]:
    """Run a workload to its end; answers the names of the calls it makes, in order."""
    names: list[str] = []
    calls = counted(io.Calls(), lambda _number, name, *_rest: names.append(name))
    with io.calls_replaced(calls):
        workload(root, lambda _value: None)
    return names


def run_killed(workload: Workload, root: Path, kill: Kill | None) -> Outcome:
    """Run a workload in a child that dies at `kill`; None to let it live."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _in_child(workload, root, kill, shared, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        error = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    remarks, calls = _COUNTERS.unpack_from(shared)
    shared.close()
    killed = os.WIFSIGNALED(status)
    if killed and os.WTERMSIG(status) != signal.SIGKILL:
        error += f"signal {os.WTERMSIG(status)}"
    return Outcome(killed, remarks, calls, error)


def _in_child(
    workload: Workload, root: Path, kill: Kill | None, shared: mmap.mmap, writing: int
) -> None:
    """Never returns."""
    remarks = calls = 0

    def remark(_value: Any) -> None:
        nonlocal remarks
        remarks += 1
        _COUNTERS.pack_into(shared, 0, remarks, calls)

    def at_call(number: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal calls
        calls = number + 1
        _COUNTERS.pack_into(shared, 0, remarks, calls)
        if kill is None or number != kill.call:
            return
        if kill.how == "after":
            with suppress(OSError):
                getattr(plain, name)(*args, **kwargs)
        elif kill.how == "torn" and name == "pwritev":
            _write_part(*args, kill.part)
        os.kill(os.getpid(), signal.SIGKILL)

    plain = io.Calls()
    code = _FAILED
    try:
        with io.calls_replaced(counted(plain, at_call)):
            workload(root, remark)
        code = _DONE
    except BaseException:
        os.write(writing, traceback.format_exc()[-4000:].encode())
    finally:
        os._exit(code)


def _write_part(fd: int, parts: Sequence[io.Buffer], position: int, part: float) -> None:
    data = b"".join(map(bytes, parts))
    os.pwrite(fd, data[: int(len(data) * part)], position)


def every_kill(names: Sequence[str]) -> Iterator[Kill]:
    """Each call, in each way that makes a difference for it."""
    for number, name in enumerate(names):
        for how in HOWS:
            if how == "torn" and name != "pwritev":
                continue
            if how == "after" and name in ("fsync", "fdatasync"):
                continue  # what a flush did shows nothing to whoever finds the page cache
            yield Kill(number, how)
