"""Calls of the seam that fail: once, or from one of them on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kseg.files import io
from tests.crash.kills import NAMES

What = Literal["EIO", "ENOSPC", "short", "EINTR"]

#: What can happen to which calls. Names cannot be flushed apart, a flush has no short form.
_GROWING = (
    *("open", "pwritev", "ftruncate", "fallocate", "mkdir", "link", "rename"),
    *("fsync", "fdatasync"),
)
APPLIES: dict[What, tuple[str, ...]] = {
    "EIO": NAMES,
    "ENOSPC": _GROWING,
    "short": ("pwritev",),
    "EINTR": ("pwritev",),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Which call, counted from 0, what happens to it, and whether to all that follow, too."""

    call: int
    what: What
    forever: bool = False


class Faulty:
    """The calls of the seam with one fault in them.

    Attributes:
        calls: for `io.calls_replaced`.
        hits: how often it struck.
    """

    def __init__(self, fault: Fault, inner: io.Calls | None = None) -> None:
        self.fault = fault
        self.hits = 0
        self._number = -1
        plain = inner or io.Calls()
        self.calls = io.Calls(**{name: self._wrapped(name, getattr(plain, name)) for name in NAMES})

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            self._number += 1
            if self._strikes(name):
                self.hits += 1
                return self._fail(name, call, args)
            return call(*args, **kwargs)

        return made

    def _strikes(self, name: str) -> bool:
        fault = self.fault
        if self._number < fault.call or name not in APPLIES[fault.what]:
            return False
        return fault.forever or self.hits == 0

    def _fail(self, name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self.fault.what == "short":
            return _short(call, *args)
        if self.fault.what == "EINTR":
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        number = errno.EIO if self.fault.what == "EIO" else errno.ENOSPC
        if name == "pwritev" and self.fault.call % 2:
            _short(call, *args)  # some of it may be there all the same
        raise OSError(number, os.strerror(number))


def _short(call: Callable[..., int], fd: int, parts: Sequence[io.Buffer], position: int) -> int:
    data = b"".join(map(bytes, parts))
    return call(fd, [data[: max(1, len(data) // 2)]], position)


def every_fault(names: Sequence[str]) -> Iterator[Fault]:
    """Each call, with each thing that can happen to it, once and from there on."""
    for number, name in enumerate(names):
        for what, applies in APPLIES.items():
            if name not in applies:
                continue
            yield Fault(number, what)
            if what not in ("EINTR",):
                yield Fault(number, what, forever=True)
