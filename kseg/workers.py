"""Work shared by threads, with results in order: `--jobs N` and `threads=N` end here.

A piece of work is a function that calls `put` with each of its results. With one thread, `put`
hands a result to its taker at once. With several threads, pieces run side by side, and each keeps
its results in a bounded queue. The taker gets the results in the order of the pieces, the same for
any number of threads. A piece whose queue is full waits until the taker comes to it. This module
does not know the work.

The kernels release the GIL, so threads are enough, and data is not copied between processes.

An interrupt reaches the main thread between any two of its steps. So the taker holds plain locks
only, by `with`, and waits for a plain lock: the methods of a `Condition` are Python code, and an
interrupt in one of them may leave its lock taken. `concurrent.futures` waits by a `Condition`, for
ever if a thread dies without memory, and its import of `logging` slows every start.
"""

from __future__ import annotations

import os
from _thread import get_ident, start_new_thread
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition, Lock, local
from typing import Any, Final, Generic, TypeVar
from weakref import ref

from kseg.errors import KsegError, LimitExceededError, at_path

#: Takes one result. It may keep the memory behind a view of a `Buffer`; then it returns another.
Put = Callable[[Any], object]
#: Does one piece of work, and puts its results.
Work = Callable[[Put], object]
#: Gives the results of a piece of work, one after the other.
Read = Callable[[], Iterator[Any]]

#: The piece that a thread does at the moment.
_HERE: Final = local()

#: Results that a piece keeps until those in front of it are taken.
ROOM: Final = 64
#: Memory of all of them together, by their `nbytes`; no more are kept above it.
ROOM_BYTES: Final = 32 << 20

#: Bytes of a `Buffer` whose views wait: they leave the cache in any case, and each that is handed
#: over may cost two threads a switch.
WAITING_BYTES: Final = 2 << 20

#: Seconds after which a waiting thread checks whether the threads it waits for still live.
_BEAT: Final = 0.2


class Buffer(bytearray):
    """Memory for results that are bytes, which `put` keeps with the result, without a copy."""


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

    This thread works on pieces, too: its results for the piece in front are taken while they are in
    the cache.

    Args:
        pieces: the work; the next piece is requested, in this thread, when few are unfinished.
            Things that pieces share have a `SharedUse`.
        take: called with each result; bytes may change after it returns.
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
    _OrderedWork(pieces, threads, window_of(threads), helps=True).hand_to(take)


def in_order(
    pieces: Iterable[Work], *, threads: int, window: int | None = None, helps: bool = False
) -> Generator[Any, None, None]:
    """The results of pieces of work, in order; see `run_in_order`.

    Borrowed bytes given to `put` arrive as a copy, bytes of a `Buffer` uncopied. Closing the
    iterator, an error and an interrupt end all threads: each at its next result, or at its next
    `check`.

    Args:
        pieces: the work.
        threads: how many share it, 1 or more.
        window: the most unfinished pieces; None for `window_of(threads)`. Use more where results
            are small, so that a long piece in front keeps no thread waiting.
        helps: whether this thread does pieces, too, as for `run_in_order`; with 2 threads or more.
    """
    return _OrderedWork(pieces, threads, window or window_of(threads), helps=helps).results()


class _OrderedWork:
    """Unfinished pieces in order, pieces still to come, and the threads that do them.

    A thread for which there is no memory may fail to start, or end silently at any of its lines. So
    every wait for a thread also checks, once in a `_BEAT`, whether it lives. Pieces that no thread
    has begun are done by the taker of results.
    """

    def __init__(
        self, pieces: Iterable[Work], threads: int, window: int, *, helps: bool = False
    ) -> None:
        self.stopped = False
        self._process = os.getpid()
        self.lock = Lock()
        self.space = Condition(self.lock)
        self.todo: SimpleQueue[_Piece | None] = SimpleQueue()
        self._bell = Lock()
        self._buffers: defaultdict[int, list[Buffer]] = defaultdict(list)
        self._under_way: deque[_Piece] = deque()
        self._error: BaseException | None = None
        self._left: Iterator[Work] | None = iter(pieces)
        self._workers: list[_Worker] = []
        self._helps = helps
        self._threads = threads - helps
        self._window = window

    def results(self) -> Generator[Any, None, None]:
        """All results, in order; once."""
        with self._ending():
            while self._fill():
                piece = self._claimed()
                if piece is None:
                    yield from self._of_front()
                    continue
                for result in piece.read():
                    yield from self._in_front_of(piece)
                    if piece is self._under_way[0]:
                        yield result
                    else:
                        piece.keep(result)
                    self._fill()

    def hand_to(self, take: Put) -> None:
        """Hand all results to `take`, in order; once."""

        def put(result: Any) -> Buffer | None:
            assert piece is not None
            hand_each(self._in_front_of(piece))
            other = None
            if piece is self._under_way[0]:
                hand(result)
            else:
                other = piece.keep(result)
            self._fill()
            return other

        def hand(result: Any) -> None:
            try:
                take(result)
            except BaseException as error:
                self._error = error
                raise _StoppedError from error

        def hand_each(results: Iterator[Any]) -> None:
            for result in results:
                hand(result)
                self._give_back(result)

        with self._ending():
            while self._fill():
                piece = self._claimed()
                if piece is None:
                    hand_each(self._of_front())
                else:
                    piece.do(put)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End all threads behind the block, or with it.

        Raises:
            Exception: the taker of results did, the piece in front, or asking for one.
            LimitExceededError: the block ran out of memory.
        """
        try:
            yield
        except MemoryError as error:
            self._error = error
        except _StoppedError as error:  # without another: by the run around this one
            self._error = self._error or error
        finally:
            self.stopped = True  # first: an interrupt may end the rest
            self._stop()
        if isinstance(self._error, MemoryError):
            path = self._under_way[0].path if self._under_way else None
            raise LimitExceededError("out of memory", path=path) from self._error
        if self._error is not None:
            raise self._error

    def buffer(self, size: int) -> Buffer:
        """Memory for so many bytes, some that was given back where there is any.

        New memory for each is a page fault for every 4 KiB, which takes longer than writing the
        bytes.
        """
        size = 1 << (size - 1).bit_length()
        try:
            return self._buffers[size].pop()
        except IndexError:
            return Buffer(size)

    def _give_back(self, result: Any) -> None:
        """Take back the memory of a result."""
        if isinstance(result, memoryview) and isinstance(result.obj, Buffer):
            self._buffers[1 << (len(result.obj).bit_length() - 1)].append(result.obj)

    def ring(self) -> None:
        """Wake the taker of results, should it wait."""
        with suppress(RuntimeError):  # it is awake
            self._bell.release()

    def _check_process(self) -> None:
        """Refuse to go on in a forked process: the threads that have the pieces are not there."""
        if self._process != os.getpid():
            raise KsegError("another process began this, and its threads are not in this one")

    def _fill(self) -> bool:
        """Start as many pieces as may be unfinished; returns whether there are any.

        Raises:
            KsegError: another process began them.
        """
        self._check_process()
        while self._left is not None and len(self._under_way) < self._window:
            work = self._next(self._left)
            if work is None:
                self._left = None
                break
            piece = _Piece(self, work)
            self._under_way.append(piece)
            self.todo.put(piece)
            self._hire()
        return bool(self._under_way)

    def _next(self, left: Iterator[Work]) -> Work | None:
        try:
            return next(left, None)
        except (KsegError, OSError) as error:  # the results in front of it come first
            self._error = error
            return None

    def _hire(self) -> None:
        """Start one more thread, if all are busy and the system allows it."""
        busy = sum(not piece.ended for piece in self._under_way) - self._helps
        if len(self._workers) >= min(busy, self._threads):
            return
        try:
            self._workers.append(_Worker(self))
        except (RuntimeError, MemoryError):  # the present threads share the work
            self._threads = len(self._workers)

    def _claimed(self) -> _Piece | None:
        """The next piece that none has begun, for this thread to do.

        None where results in front come first, or no piece is left to begin.
        """
        front = self._under_way[0]
        alone = not any(worker.lives for worker in self._workers)
        if (self._helps or alone) and not (front.waiting or front.ended):
            with suppress(Empty):
                return self.todo.get_nowait()
        return None

    def _of_front(self) -> Iterator[Any]:
        """Wait for results of the piece in front and take them; once it has ended, it is taken off.

        Raises:
            KsegError: another process began it.
            LimitExceededError: the thread that had the piece has died.
            _StoppedError: the piece ended with an error.
        """
        self._check_process()
        front = self._under_way[0]
        front.awaited = True
        while not (front.waiting or front.ended):
            having = self._workers if front.worker is None else [front.worker]
            if not any(worker.lives for worker in having):
                raise LimitExceededError("out of memory", path=front.path)
            self._bell.acquire(timeout=_BEAT)
            check()
        ended = front.ended
        yield from front.taken()
        if ended:
            if front.error is not None:
                self._error = front.error
                raise _StoppedError
            self._under_way.popleft()

    def _in_front_of(self, piece: _Piece) -> Iterator[Any]:
        """The results in front of a piece that this thread does; all of them, if its room is full.

        Its own waiting results follow, if it is in front then.
        """
        while (front := self._under_way[0]) is not piece:
            if not (front.waiting or front.ended or piece.is_full):
                return
            yield from self._of_front()
        yield from piece.taken()

    def _stop(self) -> None:
        """Tell all threads that no more results are taken, and wait for their end.

        A process forked from this one has no threads, and maybe a lock that one of them held.
        """
        if self._process != os.getpid():
            return
        for _ in self._workers:
            self.todo.put(None)
        if any(worker.ident == get_ident() for worker in self._workers):
            return  # garbage is collected here, the iterator of the results among it
        with self.lock:
            self.space.notify_all()
        while any(worker.lives for worker in self._workers):
            self._bell.acquire(timeout=_BEAT)


class _Life:
    """An object that only a thread holds: it goes when the thread ends, in whatever way."""

    __slots__ = ("__weakref__",)


class _Worker:
    """A thread that does pieces, one after another.

    `threading.Thread` waits for ever for a thread that ends before its first line (CPython, up to
    3.14 at least), so this uses `_thread`.

    Attributes:
        ident: of the thread, once it has begun.
    """

    def __init__(self, run: _OrderedWork) -> None:
        """Start it.

        Raises:
            RuntimeError: the system has no thread to give.
            MemoryError: there is no memory for a thread.
        """
        life = _Life()
        self.ident: int | None = None
        self._ended = False
        self._life = ref(life)
        start_new_thread(self._serve, (run, life))

    @property
    def lives(self) -> bool:
        """Whether the thread has not reported its end, and is not known to be gone."""
        return not self._ended and self._life() is not None

    def _serve(self, run: _OrderedWork, _life: _Life) -> None:
        try:
            self.ident = get_ident()
            while not run.stopped:
                try:
                    piece = run.todo.get(timeout=_BEAT)
                except Empty:
                    continue
                if piece is not None:
                    piece.worker = self
                    piece.run()
                    del piece
            self._ended = True
            run.ring()
        except MemoryError:
            # The taker of the results of its piece sees that: an error of another piece may keep
            # this frame, and the life in it.
            self._ended = True


_ThingT = TypeVar("_ThingT")


class PerThread(Generic[_ThingT]):
    """Things that a piece has for itself while it is done, used again by later pieces.

    A thread gets its former object back: memory that another core has written to is slow to write
    to.
    """

    def __init__(self, make: Callable[[], _ThingT]) -> None:
        """Start empty; `make` makes an object when none is free."""
        self._make = make
        self._of_threads: dict[int, list[_ThingT]] = defaultdict(list)

    @contextmanager
    def one(self) -> Iterator[_ThingT]:
        """One of them, for the block."""
        free = self._of_threads[get_ident()]
        thing = free.pop() if free else self._make()
        yield thing
        free.append(thing)


class SharedUse:
    """Something to be closed once the block has ended and no piece uses it any more.

    Objects of pieces that were never begun are closed when they are collected.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        """The block is the first user."""
        self._close = close
        self._users = 1
        self._lock = Lock()

    def __enter__(self) -> SharedUse:
        """Begin the use of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End; pieces may still be unfinished."""
        self._give_back()

    def to(self, work: Work) -> Work:
        """The same work, as one more user."""
        with self._lock:
            self._users += 1
        return partial(self._do, work)

    def to_reader(self, read: Read) -> Read:
        """The same for objects that are read result by result."""
        with self._lock:
            self._users += 1
        return partial(self._read, read)

    def _do(self, work: Work, put: Put) -> None:
        try:
            work(put)
        finally:
            self._give_back()

    def _read(self, read: Read) -> Iterator[Any]:
        try:
            yield from read()
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
        KsegError: the error of the block, at the path.
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
        """Take the results of `read`."""
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
        for result in self.read():
            put(result)

    def through(self, change: Callable[[Any], Any]) -> Results:
        """The same with each result changed."""
        return Results(self.path, lambda: map(change, self._read()))

    def then(self, last: Any) -> Results:
        """The same with one more result."""
        return Results(self.path, lambda: chain(self._read(), (last,)))


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
    if piece is not None and piece.order.stopped:
        raise _StoppedError


class _Piece:
    """One unfinished piece: its results that the taker has not taken yet.

    Attributes:
        path: the file that the work is about, if it says so.
        worker: the thread that has begun it; None for the taker's, too.
        waiting: these results.
        order: the work that the piece is part of.
        awaited: the taker waits for this piece.
        ended: no more comes.
        error: the error that ended it.
    """

    def __init__(self, run: _OrderedWork, work: Work) -> None:
        self.path: str | PathLike[str] | None = getattr(work, "path", None)
        self.worker: _Worker | None = None
        self.waiting: deque[Any] = deque()
        self.awaited = False
        self.ended = False
        self.error: BaseException | None = None
        self.order = run
        self._work: Work | None = work
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further result may wait."""
        return len(self.waiting) >= ROOM or self._bytes >= ROOM_BYTES

    def run(self) -> None:
        """Do the work; its error waits for the taker."""
        try:
            _HERE.piece = self
            check()
            self._begun()(self._put)
        except BaseException as error:
            self.error = error
        _HERE.piece = None
        self.ended = True
        self.order.ring()

    def do(self, put: Put) -> None:
        """Do the work in the thread of the taker.

        Raises:
            _StoppedError: by `put`.
            BaseException: an interrupt.
        """
        with self._ending():
            self._begun()(put)

    def read(self) -> Iterator[Any]:
        """Do the work in the thread of the taker, result by result as it asks for them.

        Work that can only put its results is done at once, and they wait.
        """
        if isinstance(self._work, Results):
            work, self._work = self._work, None
            with self._ending():
                yield from work.read()
        else:
            self.do(self.keep)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """End with the block, or with its error; errors that end the process pass through."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, (_StoppedError, KeyboardInterrupt, GeneratorExit)):
                raise
            self.error = error
        self.ended = True

    def _begun(self) -> Work:
        """The work, which is begun once."""
        work, self._work = self._work, None
        assert work is not None
        return work

    def _put(self, result: Any) -> Buffer | None:
        with self.order.lock:
            while not self.order.stopped and self.is_full:
                self.order.space.wait(_BEAT)
            if self.order.stopped:
                raise _StoppedError
            other = self.keep(result, WAITING_BYTES)
        # The taker is woken when there is much to take, or everything: a thread that wakes another
        # and sleeps in its turn costs more than most results. Slow results are taken once in a
        # `_BEAT`. The taker may also be busy with a piece in front.
        if self.awaited and self.is_full:
            self.order.ring()
        return other

    def keep(self, result: Any, least: int = 0) -> Buffer | None:
        """Queue a result; returns memory in place of its own, if that is kept with the result.

        Args:
            result: a view is copied, unless it is of a `Buffer`.
            least: bytes that the other memory has at least.
        """
        other = None
        if isinstance(result, memoryview):
            if isinstance(result.obj, Buffer):
                other = self.order.buffer(max(len(result.obj), least))
            else:
                copy = memoryview(self.order.buffer(len(result)))[: len(result)]
                copy[:] = result
                result = copy
            self._bytes += len(result.obj)
        else:
            self._bytes += getattr(result, "nbytes", 0)
        self.waiting.append(result)
        return other

    def taken(self) -> list[Any]:
        """Take the waiting results."""
        with self.order.lock:
            results, was_full = list(self.waiting), self.is_full
            self.waiting.clear()
            self._bytes = 0
            if was_full:
                self.order.space.notify_all()
        return results


def putting(result: Any) -> Work:
    """A piece of work that has its result already."""
    return lambda put: put(result)


__all__ = [
    "ROOM",
    "At",
    "Buffer",
    "PerThread",
    "Put",
    "Read",
    "Results",
    "SharedUse",
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
