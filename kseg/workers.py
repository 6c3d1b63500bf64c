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
import sys
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition, Lock, local
from typing import Any, Final, Generic, TypeVar
from weakref import ref

from kseg.errors import KsegError, LimitExceededError, at_path

#: Takes one result. Of a view of a `Buffer` it may keep the memory; then it answers another.
Put = Callable[[Any], object]
#: Does one piece of work, and puts its results.
Work = Callable[[Put], object]

#: The piece that a thread does at the moment.
_HERE: Final = local()

#: Results that a piece keeps until those in front of it are taken.
ROOM: Final = 64

#: Seconds after which a thread that waits looks whether those that it waits for are still there.
_BEAT: Final = 0.2


class Buffer(bytearray):
    """Memory for results that are bytes, which `put` keeps with what was written, uncopied."""


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


def run_in_order(
    pieces: Iterable[Work], take: Put, *, threads: int, straight: bool = False
) -> None:
    """Do pieces of work; `take` gets all results, in order, one at a time, in this thread.

    Args:
        pieces: the work; the next is asked for, in this thread, when fewer than
            `window_of(threads)` are under way. What pieces share is `Lent` to them.
        take: what becomes of a result; bytes are lent to it until it returns.
        threads: how many share the work; 1 does all of it here.
        straight: `take` is never blocked for long, and may be called in any thread: the piece in
            front hands it results while they are in the cache, and none of them waits.

    Raises:
        Exception: the first that a piece, or asking for one, raised, in the order of the pieces,
            after the results in front of it. No other piece goes on.
        LimitExceededError: a thread ran out of memory, at the file of its piece.
    """
    if threads == 1:
        for piece in pieces:
            piece(take)
        return
    run = _Run(pieces, threads, window_of(threads), ROOM, take if straight else None)
    try:
        with closing(run.results()) as results:
            for result in results:
                take(result)
                run.give_back(result)
    except MemoryError as error:  # of `take`
        raise LimitExceededError("out of memory", path=run.path) from error


def in_order(
    pieces: Iterable[Work], *, threads: int, room: int = ROOM, window: int | None = None
) -> Generator[Any, None, None]:
    """The results of pieces of work, in order; see `run_in_order`.

    Bytes that are lent to `put` arrive as a copy, those of a `Buffer` as they are. Closing the
    iterator, an error and an interrupt end all threads: each at its next result, or at its next
    `check`.

    Args:
        pieces: the work.
        threads: how many share it, 1 or more.
        room: results of one piece that may wait.
        window: pieces under way at the most; None for `window_of(threads)`. More where results are
            small, so that a long piece in front keeps no thread waiting.
    """
    return _Run(pieces, threads, window or window_of(threads), room).results()


class _Run:
    """Pieces under way, in order, those still to come, and the threads that do them.

    A thread for which there is no memory may fail to start, or end at any of its lines, the first
    included, without a word. So nothing waits for what a thread has promised without looking, once
    in a `_BEAT`, whether the thread lives. What none has begun is done by the taker of results.
    """

    def __init__(
        self,
        pieces: Iterable[Work],
        threads: int,
        window: int,
        room: int,
        straight: Put | None = None,
    ) -> None:
        self.stopped = False
        self.straight = straight
        self.bell = Condition(Lock())
        self.todo: SimpleQueue[_Piece | None] = SimpleQueue()
        self._buffers: list[Buffer] = []
        self._under_way: deque[_Piece] = deque()
        self._failed: KsegError | OSError | None = None
        self._left: Iterator[Work] | None = iter(pieces)
        self._workers: list[_Worker] = []
        self._threads = threads
        self._window = window
        self._room = room

    @property
    def path(self) -> str | PathLike[str] | None:
        """The file of the piece whose results are taken; None where there is none."""
        return self._under_way[0].path if self._under_way else None

    def results(self) -> Generator[Any, None, None]:
        """All results, in order; once."""
        try:
            while self._fill():
                yield from self._results_of(self._under_way[0])
                self._under_way.popleft()
        except MemoryError as error:
            raise LimitExceededError("out of memory", path=self.path) from error
        finally:
            self._stop()
        if self._failed is not None:
            raise self._failed

    def buffer(self, size: int) -> Buffer:
        """Memory for so many bytes, some that was given back where there is any.

        New memory for each is a page fault for every 4 KiB, which takes longer than what is
        written.
        """
        try:
            buffer = self._buffers.pop()
        except IndexError:
            buffer = Buffer(size)
        return buffer if len(buffer) >= size else Buffer(size)

    def give_back(self, result: Any) -> None:
        """Take back the memory of a result."""
        if isinstance(result, memoryview) and isinstance(result.obj, Buffer):
            self._buffers.append(result.obj)

    def _fill(self) -> bool:
        """Take up as many pieces as may be under way; whether there are any."""
        while self._left is not None and len(self._under_way) < self._window:
            work = self._next(self._left)
            if work is None:
                self._left = None
                break
            piece = _Piece(self, work, self._room)
            self._under_way.append(piece)
            self.todo.put(piece)
            self._hire()
        return bool(self._under_way)

    def _next(self, left: Iterator[Work]) -> Work | None:
        try:
            return next(left, None)
        except (KsegError, OSError) as error:  # the results in front of it come first
            self._failed = error
            return None

    def _hire(self) -> None:
        """Start one more thread, if all are busy and it may be had."""
        busy = sum(not piece.ended for piece in self._under_way)
        if len(self._workers) >= min(busy, self._threads):
            return
        try:
            self._workers.append(_Worker(self))
        except (RuntimeError, MemoryError):  # those that there are share the work
            self._threads = len(self._workers)

    def _results_of(self, piece: _Piece) -> Iterator[Any]:
        """Take results as they come, until the work has ended."""
        while True:
            if self._is_left(piece):
                taken = self.todo.get_nowait()
                assert taken is piece
                piece.run_here()
            results = piece.taken()
            if not results:
                break
            yield from results
        if piece.error is not None:
            raise piece.error

    def _is_left(self, piece: _Piece) -> bool:
        """Wait until there is something to take; whether that will never be, for lack of a thread.

        Raises:
            LimitExceededError: the thread that had the piece has died.
        """
        with self.bell:
            piece.awaited = True
            while not (piece.waiting or piece.ended):
                piece.straight = self.straight  # from here on nothing of it waits
                if piece.worker is None:
                    if not any(worker.lives for worker in self._workers):
                        return True
                elif not piece.worker.lives:
                    raise LimitExceededError("out of memory", path=piece.path)
                self.bell.wait(_BEAT)
        return False

    def _stop(self) -> None:
        """Tell all threads that no more results are taken, and wait for their end."""
        self.stopped = True
        for _ in self._workers:
            self.todo.put(None)
        with self.bell:
            self.bell.notify_all()
            while any(worker.lives and not worker.ended for worker in self._workers):
                self.bell.wait(_BEAT)


class _Life:
    """What only a thread holds: it is gone when the thread is, however that ended."""

    __slots__ = ("__weakref__",)


class _Worker:
    """A thread that does pieces, one after another.

    `threading.Thread` waits for ever for one that ends before its first line (CPython, up to 3.14
    at least), hence the plain one of `_thread`.

    Attributes:
        ended: it has nothing more to do.
    """

    def __init__(self, run: _Run) -> None:
        """Start it.

        Raises:
            RuntimeError: the system has no thread to give.
            MemoryError: there is no memory for one.
        """
        life = _Life()
        self.ended = False
        self._life = ref(life)
        start_new_thread(self._serve, (run, life))

    @property
    def lives(self) -> bool:
        """Whether the thread has not ended."""
        return self._life() is not None

    def _serve(self, run: _Run, _life: _Life) -> None:
        try:
            while not run.stopped:
                try:
                    piece = run.todo.get(timeout=_BEAT)
                except Empty:
                    continue
                if piece is not None:
                    piece.worker = self
                    piece.run()
                    del piece
            with run.bell:
                self.ended = True
                run.bell.notify_all()
        except MemoryError:  # the taker of the results of its piece sees that
            return


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
    piece: _Piece | None = getattr(_HERE, "piece", None)
    if piece is not None:  # should its thread die without a word
        piece.path = path
    try:
        yield
    except KsegError as error:
        raise at_path(error, path) from error
    except MemoryError as error:
        raise LimitExceededError("out of memory", path=path) from error


class At:
    """A piece of work on one file, which its errors name.

    Attributes:
        path: the file.
    """

    __slots__ = ("_work", "path")

    def __init__(self, path: str | PathLike[str], work: Work) -> None:
        """The same work."""
        self.path = path
        self._work = work

    def __call__(self, put: Put) -> None:
        """Do it.

        Raises:
            KsegError: as of `at_file`.
        """
        with at_file(self.path):
            self._work(put)


def each_at(path: str | PathLike[str], pieces: Iterable[Work]) -> Iterator[Work]:
    """The same pieces of work, each `At` the file, which an error of asking for one names too."""
    with at_file(path):
        for work in pieces:
            yield At(path, work)


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
    """One piece under way: what it has put and the taker has not taken yet.

    Attributes:
        path: the file that the work is about, if it says so.
        worker: the thread that has begun it.
        waiting: what it has put.
        awaited: the taker waits for this piece.
        straight: takes results at once; None as long as they wait for the taker.
        ended: no more comes.
        error: what ended it.
    """

    def __init__(self, run: _Run, work: Work, room: int) -> None:
        self.path: str | PathLike[str] | None = getattr(work, "path", None)
        self.worker: _Worker | None = None
        self.waiting: deque[Any] = deque()
        self.awaited = False
        self.straight: Put | None = None
        self.ended = False
        self.error: BaseException | None = None
        self._run = run
        self._work: Work | None = work
        self._room = room

    @property
    def stopped(self) -> bool:
        """Whether no more results are taken."""
        return self._run.stopped

    def run(self) -> None:
        """Do the work; what ends it waits for the taker."""
        try:
            _HERE.piece = self
            check()
            assert self._work is not None
            self._work(self._put)
        except BaseException as error:
            self.error = error
        finally:
            self._work = None
        _HERE.piece = None
        with self._run.bell:
            self.ended = True
            self._run.bell.notify_all()

    def run_here(self) -> None:
        """Do the work in the thread of the taker: all results wait for it."""
        self._room = sys.maxsize
        self.run()

    def _put(self, result: Any) -> Buffer | None:
        with self._run.bell:
            while not (self.stopped or self.straight) and len(self.waiting) >= self._room:
                self._run.bell.wait(_BEAT)
            if self.stopped:
                raise _StoppedError
            if self.straight is None:
                return self._keep(result)
        self.straight(result)
        return None

    def _keep(self, result: Any) -> Buffer | None:
        """Let a result wait; what replaces its memory, if that is kept with it."""
        other = None
        if isinstance(result, memoryview):
            if isinstance(result.obj, Buffer):
                other = self._run.buffer(len(result.obj))
            else:
                copy = memoryview(self._run.buffer(len(result)))[: len(result)]
                copy[:] = result
                result = copy
        self.waiting.append(result)
        # The taker is woken when there is much to take, or all: a thread that wakes another and
        # goes to sleep in its turn costs more than most results. What comes slowly is taken once in
        # a `_BEAT`. The taker may also be busy with a piece in front.
        if self.awaited and len(self.waiting) >= self._room:
            self._run.bell.notify_all()
        return other

    def taken(self) -> list[Any]:
        """Take what waits."""
        with self._run.bell:
            results = list(self.waiting)
            self.waiting.clear()
            if len(results) >= self._room:
                self._run.bell.notify_all()
        return results


def putting(result: Any) -> Work:
    """A piece of work that has its result already."""
    return lambda put: put(result)


__all__ = [
    "ROOM",
    "At",
    "Buffer",
    "Kept",
    "Lent",
    "Put",
    "Work",
    "at_file",
    "check",
    "each_at",
    "in_order",
    "putting",
    "run_in_order",
    "usable_cores",
    "window_of",
]
