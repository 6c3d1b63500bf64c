"""Work shared by threads, its results in order: the one place that `--jobs N` and `threads=N` mean.

A piece of work is a function that is given `put`, and calls it with each of its results. With one
thread, `put` hands a result to its taker at once. With several, pieces run side by side, each with
a room for its results; the results come in the order of the pieces, the same for any number of
threads. A piece whose room is full waits until all in front of it are taken, so memory is bounded
by the rooms. Nothing here knows what the work is.

The kernels release the GIL, so threads are enough: what they share costs no copy between processes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Condition, Lock, local
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kseg.errors import KsegError, LimitExceededError, at_path

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

#: Takes one result.
Put = Callable[[Any], object]
#: Does one piece of work, and puts its results.
Work = Callable[[Put], object]

#: The piece that a thread does at the moment.
_HERE: Final = local()

#: Results that a piece keeps until those in front of it are taken.
ROOM: Final = 64


def usable_cores() -> int:
    """Cores that this process may use: by its affinity, and by the quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, quota_of()))


def quota_of(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Whole cores that the control group grants; very many where it sets no bound.

    Source: Linux cgroup-v2.rst, `cpu.max`; sched-bwc.rst, `cpu.cfs_quota_us`.
    """
    quota, period = _first_numbers(root / "cpu.max")
    if quota is None:
        quota, _ = _first_numbers(root / "cpu" / "cpu.cfs_quota_us")
        period, _ = _first_numbers(root / "cpu" / "cpu.cfs_period_us")
    if quota is None or not period or quota <= 0:
        return 1 << 20
    return -(-quota // period)


def _first_numbers(path: Path) -> tuple[int | None, int | None]:
    """The first two numbers of a file; None for each that is not there."""
    try:
        words = [*path.read_text().split(), "", ""]
    except OSError:
        words = ["", ""]
    first, second = (int(word) if word.isdecimal() else None for word in words[:2])
    return first, second


def window_of(threads: int) -> int:
    """Pieces that are taken up before the first of them is finished, at the most."""
    return 1 if threads == 1 else threads + 1


def run_in_order(pieces: Iterable[Work], take: Put, *, threads: int) -> None:
    """Do pieces of work; `take` gets all results, in order, in this thread.

    Args:
        pieces: the work; the next is asked for, in this thread, when fewer than
            `window_of(threads)` are under way. What pieces share is `Lent` to them.
        take: what becomes of a result; bytes are lent to it until it returns.
        threads: how many share the work; 1 does all of it here.

    Raises:
        Exception: the first that a piece, or asking for one, raised, in the order of the pieces,
            after the results in front of it. No other piece goes on.
    """
    if threads == 1:
        for piece in pieces:
            piece(take)
        return
    with closing(in_order(pieces, threads=threads)) as results:
        for result in results:
            take(result)


def in_order(
    pieces: Iterable[Work], *, threads: int, room: int = ROOM, window: int | None = None
) -> Generator[Any, None, None]:
    """The results of pieces of work, in order; see `run_in_order`.

    Bytes that are lent to `put` arrive as a copy. Closing the iterator, an error and an interrupt
    end all threads: each at its next result, or at its next `check`.

    Args:
        pieces: the work.
        threads: how many share it, 1 or more.
        room: results of one piece that may wait.
        window: pieces under way at the most; None for `window_of(threads)`. More where results are
            small, so that a long piece in front keeps no thread waiting.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to load, and only needed here

    run = _Run(pieces, window or window_of(threads), room)
    with ThreadPoolExecutor(threads, "kseg") as pool:
        try:
            while run.fill(pool):
                yield from run.under_way[0].results()
                run.under_way.popleft()
        finally:
            run.stop()
            pool.shutdown(cancel_futures=True)
    if run.failed is not None:
        raise run.failed


class _Run:
    """Pieces under way, in order, and those still to come."""

    def __init__(self, pieces: Iterable[Work], window: int, room: int) -> None:
        self.under_way: deque[_Piece] = deque()
        self.failed: KsegError | OSError | None = None
        self._left: Iterator[Work] | None = iter(pieces)
        self._window = window
        self._room = room
        self._bell = Condition()

    def fill(self, pool: ThreadPoolExecutor) -> bool:
        """Take up as many pieces as may be under way; whether there are any."""
        while self._left is not None and len(self.under_way) < self._window:
            work = self._next(self._left)
            if work is None:
                self._left = None
                break
            piece = _Piece(self._bell, self._room)
            piece.future = pool.submit(piece.run, work)
            self.under_way.append(piece)
        return bool(self.under_way)

    def _next(self, left: Iterator[Work]) -> Work | None:
        try:
            return next(left, None)
        except (KsegError, OSError) as error:  # the results in front of it come first
            self.failed = error
            return None

    def stop(self) -> None:
        """Tell all pieces that no more results are taken."""
        with self._bell:
            for piece in self.under_way:
                piece.stopped = True
            self._bell.notify_all()


_ThingT = TypeVar("_ThingT")


class Kept(Generic[_ThingT]):
    """Things that a piece has for itself while it is done, used again by later pieces."""

    def __init__(self, make: Callable[[], _ThingT]) -> None:
        """Start with none; `make` makes one where none is free."""
        self._make = make
        self._free: list[_ThingT] = []

    @contextmanager
    def one(self) -> Iterator[_ThingT]:
        """One of them, for the block."""
        try:
            thing = self._free.pop()
        except IndexError:
            thing = self._make()
        yield thing
        self._free.append(thing)


class Lent:
    """Something to be closed once the block has ended and no piece uses it any more.

    What pieces that were never begun had in use is closed when it is collected.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        """The block is the first user."""
        self._close = close
        self._users = 1
        self._lock = Lock()

    def __enter__(self) -> Lent:
        """Begin to lend."""
        return self

    def __exit__(self, *_: object) -> None:
        """End; pieces may still be under way."""
        self._give_back()

    def to(self, work: Work) -> Work:
        """The same work, as one more user."""
        with self._lock:
            self._users += 1
        return partial(self._do, work)

    def _do(self, work: Work, put: Put) -> None:
        try:
            work(put)
        finally:
            self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self._close()


@contextmanager
def at_file(path: str | PathLike[str]) -> Iterator[None]:
    """Name the file in an error of the block.

    Raises:
        KsegError: that of the block, at the path.
        LimitExceededError: the block ran out of memory.
    """
    try:
        yield
    except KsegError as error:
        raise at_path(error, path) from error
    except MemoryError as error:
        raise LimitExceededError("out of memory", path=path) from error


class _StoppedError(Exception):
    """No more results are taken."""


def check() -> None:
    """End the piece that this thread does, if no more results are taken; else do nothing.

    For loops that go on for long without a result, once in some milliseconds.
    """
    piece = getattr(_HERE, "piece", None)
    if piece is not None and piece.stopped:
        raise _StoppedError


class _Piece:
    """One piece under way: what it has put and `results` has not taken yet."""

    def __init__(self, bell: Condition, room: int) -> None:
        self.stopped = False
        self.awaited = False
        self.future: Future[None] | None = None
        self._bell = bell
        self._room = room
        self._waiting: deque[Any] = deque()
        self._ended = False

    def run(self, work: Work) -> None:
        """In a thread: do the work; an error waits in the future."""
        _HERE.piece = self
        try:
            check()
            work(self._put)
        finally:
            _HERE.piece = None
            with self._bell:
                self._ended = True
                self._bell.notify_all()

    def _put(self, result: Any) -> None:
        if isinstance(result, memoryview):
            result = bytes(result)
        with self._bell:
            self._bell.wait_for(lambda: self.stopped or len(self._waiting) < self._room)
            if self.stopped:
                raise _StoppedError
            self._waiting.append(result)
            if self.awaited:  # else the taker is busy with a piece in front
                self._bell.notify_all()

    def results(self) -> Iterator[Any]:
        """Take results as they come, until the work has ended."""
        while True:
            with self._bell:
                self.awaited = True
                self._bell.wait_for(lambda: self._waiting or self._ended)
                taken = list(self._waiting)
                self._waiting.clear()
                if len(taken) >= self._room:
                    self._bell.notify_all()
            if not taken:
                assert self.future is not None
                self.future.result()
                return
            yield from taken


def putting(result: Any) -> Work:
    """A piece of work that has its result already."""
    return lambda put: put(result)


__all__ = [
    "ROOM",
    "Kept",
    "Lent",
    "Put",
    "Work",
    "at_file",
    "check",
    "in_order",
    "putting",
    "run_in_order",
    "usable_cores",
    "window_of",
]
