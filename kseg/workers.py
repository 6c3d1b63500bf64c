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
from _thread import get_ident, start_new_thread
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from threading import Condition, Lock, local
from typing import Any, Final, Generic, TypeVar
from weakref import ref

from kseg.errors import KsegError, LimitExceededError, at_path

#: Takes one result. Of a view of a `Buffer` it may keep the memory; then it answers another.
Put = Callable[[Any], object]
#: Does one piece of work, and puts its results.
Work = Callable[[Put], object]
#: Gives the results of a piece of work, one after the other.
Read = Callable[[], Iterator[Any]]

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


def run_in_order(pieces: Iterable[Work], take: Put, *, threads: int) -> None:
    """Do pieces of work; `take` gets all results, in order, in this thread.

    This thread does pieces, too: those that are in front when it comes to them, whose results are
    taken while they are in the cache.

    Args:
        pieces: the work; the next is asked for, in this thread, when few are under way. What
            pieces share is `Lent` to them.
        take: what becomes of a result; bytes are lent to it until it returns.
        threads: how many share the work; 1 does all of it here.

    Raises:
        Exception: the first that a piece, or asking for one, raised, in the order of the pieces,
            after the results in front of it. No other piece goes on.
        LimitExceededError: a thread ran out of memory, at the file of its piece.
    """
    if threads == 1:
        for piece in pieces:
            piece(take)
        return
    run = _Run(pieces, threads - 1, window_of(threads) + 1, ROOM, take=take, helps=True)
    try:
        with closing(run.results()) as results:
            for result in results:
                take(result)
                run.give_back(result)
    except MemoryError as error:  # of `take`
        raise LimitExceededError("out of memory", path=run.path) from error


def read_in_order(
    pieces: Iterable[Results], *, threads: int, room: int
) -> Generator[Any, None, None]:
    """As `in_order`, where this thread does pieces, too, as for `run_in_order`.

    Args:
        pieces: the work.
        threads: how many share it, 2 or more.
        room: results of one piece that may wait.
    """
    return _Run(pieces, threads - 1, window_of(threads) + 1, room, helps=True).results()


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
        *,
        take: Put | None = None,
        helps: bool = False,
    ) -> None:
        lock = Lock()
        self.stopped = False
        self.bell = Condition(lock)
        self._take = take
        self._helps = helps
        self._busy = False
        self._todo: deque[_Piece] = deque()
        self._more = Condition(lock)
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
                piece = self._under_way[0]
                if self._helps and self._claim(piece):
                    self._busy = True
                    if self._take is None:
                        yield from piece.read()
                    else:
                        piece.run_into(self._take)
                    self._busy = False
                else:
                    yield from self._results_of(piece)
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
            with self.bell:
                self._todo.append(piece)
                self._more.notify()
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

    def next_for(self, worker: _Worker) -> _Piece | None:
        """The next piece for a thread; None if there will be none.

        A taker that does pieces comes to the first one next, and would wait for it. So that is left
        to it, unless the taker has one already and there is no other.
        """
        with self.bell:
            while not self.stopped:
                at = 1 if self._helps and not (self._busy and len(self._todo) == 1) else 0
                if at < len(self._todo):
                    piece = self._todo[at]
                    piece.worker = worker
                    del self._todo[at]
                    return piece
                self._more.wait(_BEAT)
        return None

    def _claim(self, piece: _Piece) -> bool:
        """Take up the first piece, unless a thread has; whether that is so."""
        with self.bell:
            if not self._todo or self._todo[0] is not piece:
                return False
            self._todo.popleft()
        return True

    def _results_of(self, piece: _Piece) -> Iterator[Any]:
        """Take results as they come, until the work has ended."""
        while True:
            if self._is_left(piece):
                assert self._claim(piece)
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
        with self.bell:
            self._more.notify_all()
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
            while (piece := run.next_for(self)) is not None:
                piece.run()
                del piece
            with run.bell:
                self.ended = True
                run.bell.notify_all()
        except MemoryError:  # the taker of the results of its piece sees that
            return


_ThingT = TypeVar("_ThingT")


class Kept(Generic[_ThingT]):
    """Things that a piece has for itself while it is done, used again by later pieces.

    A thread gets what it had before: memory that another core has written to is slow to write to.
    """

    def __init__(self, make: Callable[[], _ThingT]) -> None:
        """Start with none; `make` makes one where none is free."""
        self._make = make
        self._of_threads: dict[int, list[_ThingT]] = defaultdict(list)

    @contextmanager
    def one(self) -> Iterator[_ThingT]:
        """One of them, for the block."""
        free = self._of_threads[get_ident()]
        thing = free.pop() if free else self._make()
        yield thing
        free.append(thing)


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

    def to_reader(self, read: Read) -> Read:
        """The same for what is read result by result."""
        with self._lock:
            self._users += 1
        return partial(self._read, read)

    def _read(self, read: Read) -> Iterator[Any]:
        try:
            yield from read()
        finally:
            self._give_back()

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


class Results:
    """A piece of work on one file whose results may also be asked for one after the other.

    Attributes:
        path: the file, which its errors name.
    """

    __slots__ = ("_read", "path")

    def __init__(self, path: str | PathLike[str], read: Read) -> None:
        """What `read` gives."""
        self.path = path
        self._read = read

    def read(self) -> Iterator[Any]:
        """The results.

        Raises:
            KsegError: as of `at_file`.
        """
        with at_file(self.path):
            yield from self._read()

    def __call__(self, put: Put) -> None:
        """Put them.

        Raises:
            KsegError: as of `at_file`.
        """
        with at_file(self.path):
            for result in self._read():
                put(result)

    def through(self, change: Callable[[Any], Any]) -> Results:
        """The same with each result changed."""
        return Results(self.path, lambda: map(change, self._read()))


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
        ended: no more comes.
        error: what ended it.
    """

    def __init__(self, run: _Run, work: Work, room: int) -> None:
        self.path: str | PathLike[str] | None = getattr(work, "path", None)
        self.worker: _Worker | None = None
        self.waiting: deque[Any] = deque()
        self.awaited = False
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

    def run_into(self, take: Put) -> None:
        """Do the work in the thread of the taker, which gets each result at once."""
        work, self._work = self._work, None
        assert work is not None
        work(take)

    def read(self) -> Iterator[Any]:
        """Do the work in the thread of the taker, result by result as it asks for them."""
        work, self._work = self._work, None
        assert isinstance(work, Results)
        return work.read()

    def _put(self, result: Any) -> Buffer | None:
        with self._run.bell:
            while not self.stopped and len(self.waiting) >= self._room:
                self._run.bell.wait(_BEAT)
            if self.stopped:
                raise _StoppedError
            return self._keep(result)

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
    "Read",
    "Results",
    "Work",
    "at_file",
    "check",
    "each_at",
    "in_order",
    "putting",
    "read_in_order",
    "run_in_order",
    "usable_cores",
    "window_of",
]
