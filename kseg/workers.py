"""Work shared by threads, with results in order: `--jobs N` and `threads=N` end here.

A piece of work is a function that calls `put` with each of its results. The threads of an executor
do pieces side by side, and each piece keeps its results in a queue. The caller takes them in the
order of the pieces, so they are the same for any number of threads. A piece waits while too many of
its results do, or too many bytes of all pieces. This module does not know the work.

The kernels release the GIL, so threads are enough, and data is not copied between processes.

An interrupt reaches the main thread between any two of its steps. So the caller waits at queues
that are written in C, and holds the lock only in `with` blocks.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition, Lock, current_thread, get_ident, local
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from kseg.constants import Progress, StrPath
from kseg.errors import KsegError, LimitExceededError, at_path

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Thread

#: Receives one result. It may keep the memory of a view of a `Buffer`; then it returns another.
Put = Callable[[Any], object]
#: Does one piece of work, and calls `put` with its results.
Work = Callable[[Put], object]
#: Returns the results of a piece of work, one after the other.
Read = Callable[[], Iterator[Any]]

#: The run whose piece a thread does at present.
_HERE: Final = local()

#: The runs that are not finished.
_runs: Final = WeakSet["_Run"]()

#: The most results that a piece keeps until those before it are received.
ROOM: Final = 64
#: The most bytes of all waiting results.
ROOM_BYTES: Final = 16 << 20

#: The size of a `Buffer` whose views wait: each hand-over may cost two threads a switch.
WAITING_BYTES: Final = 2 << 20

#: Seconds after which a waiting thread checks whether its wait has become useless.
_BEAT: Final = 0.2
#: Follows the results of a piece in its queue.
_END: Final = object()


class Buffer(bytearray):
    """Memory for results that are bytes: `put` keeps a view of it without a copy."""


def usable_cores() -> int:
    """The cores that this process may use, according to its affinity and its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, quota_of()))


def quota_of(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Whole cores that the control group grants; a very large number if it sets no limit.

    Source: Linux cgroup-v2.rst, `cpu.max`; sched-bwc.rst, `cpu.cfs_quota_us`.
    """
    words = _words(root / "cpu.max") or [
        *_words(root / "cpu" / "cpu.cfs_quota_us"),
        *_words(root / "cpu" / "cpu.cfs_period_us"),
    ]
    quota, period = (int(word) if word.isdecimal() else 0 for word in [*words, "", ""][:2])
    return -(-quota // period) if quota and period else 1 << 20


def _words(path: Path) -> list[str]:
    """The words of a file; empty if it does not exist."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def run_in_order(pieces: Iterable[Work], take: Put, *, threads: int) -> None:
    """Do pieces of work; `take` gets all results, in order, in this thread.

    Args:
        pieces: the work; the next piece is requested, in this thread, when few are unfinished.
            Objects that several pieces use must be wrapped in `SharedUse`.
        take: is called with each result; if that is a view, its buffer is reused after `take`
            returns.
        threads: the number of threads; 1 does all the work in this thread.

    Raises:
        Exception: the first that a piece, or the iterator of pieces, raised, in the order of the
            pieces, after the results before it. The other pieces are stopped.
        LimitExceededError: a thread ran out of memory; the error names the file of its piece.
    """
    if threads == 1:
        for piece in pieces:
            piece(take)
        return
    with closing(in_order(pieces, threads=threads)) as results:
        for result in results:
            try:
                take(result)
            except MemoryError as error:
                results.throw(error)  # the error then names the file


def in_order(
    pieces: Iterable[Work], *, threads: int, window: int | None = None
) -> Generator[Any, None, None]:
    """The results of pieces of work, in order; see `run_in_order`.

    A view of bytes that is given to `put` arrives as a copy. A view of a `Buffer` is not copied:
    it is valid until the next result is requested. Closing the iterator, an error and an
    interrupt end all threads, each at its next result or its next `check`.

    Args:
        pieces: the work.
        threads: the number of threads, 1 or more.
        window: the most unfinished pieces; None for one more than threads. Use more if results
            are small, so that no thread waits for a long first piece.
    """
    run = _Run(threads)
    under_way: deque[_Piece] = deque()
    pieces_left = _until_error(pieces)
    try:
        while True:
            for work in islice(pieces_left, (window or threads + 1) - len(under_way)):
                under_way.append(run.begin(work))
            if not under_way:
                return
            yield from run.results_of(under_way[0])
            under_way.popleft()
    except MemoryError as error:
        path = under_way[0].path if under_way else None
        raise LimitExceededError("out of memory", path=path) from error
    finally:
        run.stopped = True  # first: an interrupt may end the rest
        run.stop()


def _until_error(pieces: Iterable[Work]) -> Iterator[Work]:
    """The pieces; if their iterator raises an error, a last piece that raises it."""
    try:
        yield from pieces
    except (KsegError, OSError) as error:
        yield partial(_raise, error)


def _raise(error: Exception, _queue_result: Put) -> None:
    raise error


class _Piece:
    """One unfinished piece.

    Attributes:
        path: the file that the work is about; None if unknown.
        results: the results that the caller has not received yet.
        waiting: the number of these results.
        error: the error that ended the piece; None if it goes on or ended well.
        thread: the thread that does the piece; None before it begins.
    """

    def __init__(self, work: Work) -> None:
        self.path: StrPath | None = getattr(work, "path", None)
        self.work = work
        self.results: SimpleQueue[Any] = SimpleQueue()
        self.waiting = 0
        self.error: BaseException | None = None
        self.thread: Thread | None = None


@cache
def _pool_type() -> type[ThreadPoolExecutor]:
    """The type of the executor, imported late: it imports `logging`, which slows a start.

    The interpreter joins all its threads when it ends. So `_end_runs` is registered after that,
    which makes it run before that.
    """
    from concurrent.futures import ThreadPoolExecutor

    threading._register_atexit(_end_runs)  # type: ignore[attr-defined]
    return ThreadPoolExecutor


def _end_runs() -> None:
    for run in list(_runs):
        run.stop()


class _Run:
    """The threads of one `in_order`, and what they share with the receiver of results."""

    def __init__(self, threads: int) -> None:
        """Start no thread yet."""
        self._pool = _pool_type()(threads)
        self.stopped = False
        self._process = os.getpid()
        # Guards what follows; is notified when results were received, or when the run stops.
        self._space = Condition(Lock())
        self._first: _Piece | None = None  # the piece whose results the caller receives now
        self._waiting_bytes = 0
        self._spare: SimpleQueue[Buffer] = SimpleQueue()  # buffers of results that were received
        _runs.add(self)

    def begin(self, work: Work) -> _Piece:
        """Submit a piece to the threads.

        Raises:
            LimitExceededError: the system has no thread left.
        """
        self._check_process()
        piece = _Piece(work)
        try:
            self._pool.submit(self._do, piece)
        except RuntimeError as error:
            if not self._pool._threads:
                raise LimitExceededError("the system gives no thread: work with one") from error
        return piece

    def _do(self, piece: _Piece) -> None:
        """Do a piece; its error waits for the taker."""
        _HERE.run, _HERE.piece = self, piece
        piece.thread = current_thread()
        # The piece drops its work, so that no reference cycle keeps the work after its end.
        work, piece.work = piece.work, putting(None)
        try:
            check()
            work(partial(self._queue_result, piece))
        except BaseException as error:
            piece.error = error
        _HERE.run = _HERE.piece = None  # a thread that waits keeps no run
        piece.results.put(_END)

    def _queue_result(self, piece: _Piece, result: Any) -> Buffer | None:
        """Queue a result; if it is a view of a `Buffer`, return another buffer to go on with."""
        next_buffer = None
        if isinstance(result, memoryview):
            if isinstance(result.obj, Buffer):
                next_buffer = self._buffer(max(len(result.obj), WAITING_BYTES))
            else:
                result = memoryview(bytes(result))
        with self._space:
            while not (self.stopped or self._has_room(piece)):
                self._space.wait(_BEAT)
            piece.waiting += 1
            self._waiting_bytes += _bytes_of(result)
        check()
        piece.results.put(result)
        return next_buffer

    def _has_room(self, piece: _Piece) -> bool:
        """Whether one more result of the piece may wait; the first piece may always have one."""
        if self._waiting_bytes < ROOM_BYTES:
            return piece.waiting < ROOM
        return piece is self._first and not piece.waiting

    def _buffer(self, size: int) -> Buffer:
        """A used buffer, else a new one: each 4 KiB of new memory costs a page fault."""
        try:
            buffer = self._spare.get_nowait()
        except Empty:
            return Buffer(size)
        return buffer if len(buffer) >= size else Buffer(size)

    def results_of(self, piece: _Piece) -> Iterator[Any]:
        """The results of a piece, as they are put.

        Raises:
            BaseException: the error that ended the piece.
            LimitExceededError: its thread died without memory.
            KsegError: another process began it.
        """
        with self._space:
            self._first = piece
            self._space.notify_all()
        while (result := self._next_of(piece)) is not _END:
            yield result
            if isinstance(result, memoryview) and isinstance(result.obj, Buffer):
                self._spare.put(result.obj)
            with self._space:
                had_room = self._has_room(piece)
                piece.waiting -= 1
                self._waiting_bytes -= _bytes_of(result)
                if not had_room:
                    self._space.notify_all()
        if piece.error is not None:
            raise piece.error

    def _next_of(self, piece: _Piece) -> Any:
        """The next result of a piece, or `_END`; checks regularly whether its thread has died."""
        while True:
            self._check_process()
            try:
                return piece.results.get(timeout=_BEAT)
            except Empty:
                check()
                if self.stopped:  # the interpreter ends: no thread does the piece
                    raise _StoppedError from None
                if piece.thread and not piece.thread.is_alive() and piece.results.empty():
                    raise LimitExceededError("out of memory", path=piece.path) from None

    def _check_process(self) -> None:
        """Refuse to go on in a forked process: the threads that have the pieces are not there."""
        if self._process != os.getpid():
            raise KsegError("another process began this, and its threads are not in this one")

    def stop(self) -> None:
        """Tell all threads that no more results are taken, and wait for their end."""
        self.stopped = True
        if self._process != os.getpid():
            return  # a thread that is not here may hold the lock
        with self._space:
            self._space.notify_all()
        # One of the threads may collect the iterator of the results as garbage.
        self._pool.shutdown(wait=getattr(_HERE, "run", None) is not self, cancel_futures=True)


def _bytes_of(result: Any) -> int:
    """The size of a result in memory; the size of the whole buffer if it is a view."""
    owner = result.obj if isinstance(result, memoryview) else None
    return len(owner) if isinstance(owner, (bytes, Buffer)) else getattr(result, "nbytes", 0)


_ThingT = TypeVar("_ThingT")


def sum_progress(progress: Progress | None, total: int) -> Callable[[int], None]:
    """A function to call with the size of each step; it reports the sum so far and `total`."""
    done = 0

    def note(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    return note


class PerThread(Generic[_ThingT]):
    """Objects for the use of one piece at a time; later pieces of the thread use them again.

    They stay with their thread: memory that another core has written to is slow to write to.
    """

    def __init__(self, make: Callable[[], _ThingT]) -> None:
        """Start empty; `make` makes an object when none is free."""
        self._make = make
        self._free_by_thread: dict[int, list[_ThingT]] = defaultdict(list)

    @contextmanager
    def one(self) -> Iterator[_ThingT]:
        """An object that no other block of this thread uses until this block ends."""
        free = self._free_by_thread[get_ident()]
        thing = free.pop() if free else self._make()
        yield thing
        free.append(thing)


class SharedUse:
    """Calls `close` once the block has ended and no piece uses the object any more.

    Objects of pieces that were never begun are closed when they are collected.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        """The block is the first user."""
        self._close = close
        self._users = 1
        self._lock = Lock()

    def __enter__(self) -> SharedUse:
        """Begin the use of the block, or of a piece that was counted before."""
        return self

    def __exit__(self, *_: object) -> None:
        """End one use; closes the object after the last."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self._close()

    def one_more(self) -> SharedUse:
        """Count one more user; it must end its use by a `with` of the returned object."""
        with self._lock:
            self._users += 1
        return self

    def to(self, work: Work) -> Work:
        """The same work, which counts as one more user until it is done."""
        return partial(self.one_more()._do, work)

    def _do(self, work: Work, put: Put) -> None:
        with self:
            work(put)


@contextmanager
def at_file(path: StrPath) -> Iterator[None]:
    """Name the file in an error of the block.

    Raises:
        KsegError: the error of the block, at the path.
        LimitExceededError: the block ran out of memory.
    """
    piece: _Piece | None = getattr(_HERE, "piece", None)
    if piece is not None:  # in case its thread dies without an error
        piece.path = path
    try:
        yield
    except KsegError as error:
        raise at_path(error, path) from error
    except MemoryError as error:
        raise LimitExceededError("out of memory", path=path) from error


class Results:
    """A piece of work on one file, as an iterable of its results.

    Attributes:
        path: the file, which its errors name.
    """

    __slots__ = ("_read", "path")

    def __init__(self, path: StrPath, read: Read) -> None:
        """Take the results of `read`."""
        self.path = path
        self._read = read

    def __iter__(self) -> Iterator[Any]:
        """The results.

        Raises:
            KsegError: as of `at_file`.
        """
        with at_file(self.path):
            yield from self._read()

    def __call__(self, put: Put) -> None:
        """Call `put` with each result.

        Raises:
            KsegError: as of `at_file`.
        """
        for result in self:
            put(result)

    def through(self, change: Callable[[Any], Any]) -> Results:
        """These results, each changed by `change`."""
        return Results(self.path, lambda: map(change, self._read()))

    def then(self, last: Any) -> Results:
        """These results and one more, `last`."""
        return Results(self.path, lambda: chain(self._read(), (last,)))


class At:
    """A piece of work on one file, which errors name.

    Attributes:
        path: the file.
    """

    __slots__ = ("_work", "path")

    def __init__(self, path: StrPath, work: Work) -> None:
        """Wrap the work."""
        self.path = path
        self._work = work

    def __call__(self, put: Put) -> None:
        """Do the work.

        Raises:
            KsegError: as of `at_file`.
        """
        with at_file(self.path):
            self._work(put)


def each_at(path: StrPath, pieces: Iterable[Work]) -> Iterator[Work]:
    """The same pieces of work; errors of each, and of their iterator, name the file."""
    with at_file(path):
        for work in pieces:
            yield At(path, work)


class _StoppedError(Exception):
    """No more results are received."""


def check() -> None:
    """End the piece that this thread does, if no more results are taken; else do nothing.

    Long loops without results call it every few milliseconds.
    """
    run = getattr(_HERE, "run", None)
    if run is not None and run.stopped:
        raise _StoppedError


def putting(result: Any) -> Work:
    """A piece of work whose only result is `result`."""
    return lambda put: put(result)
