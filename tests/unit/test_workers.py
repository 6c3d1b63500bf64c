"""Work shared by threads: order, errors, ends, bounds, files that outlive their listing."""

from __future__ import annotations

import _thread
import dis
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

from kseg import workers
from kseg.errors import CorruptRecordError, KsegError, LimitExceededError
from kseg.workers import (
    ROOM,
    ROOM_BYTES,
    At,
    PerThread,
    Put,
    SharedUse,
    Work,
    at_file,
    each_at,
    in_order,
    putting,
    run_in_order,
)
from tests.shares import share as share_of
from tests.tracing import traced

THREADS = pytest.mark.parametrize("threads", [1, 2, 3, 8])


def taken(pieces: list[Work] | Iterator[Work], threads: int) -> list[Any]:
    results: list[Any] = []
    run_in_order(pieces, results.append, threads=threads)
    return results


@pytest.fixture(autouse=True)
def _before() -> None:
    """Note which threads the interpreter knows before a test, those of others among them."""
    BEFORE[:] = [_thread._count()]


BEFORE = [0]


def alive() -> int:
    """Threads that have not ended; one that has said so may still be on its last line."""
    for _ in range(100_000):
        if _thread._count() == BEFORE[0]:
            break
        os.sched_yield()
    return _thread._count() - BEFORE[0]


def gone_in_time() -> bool:
    """Whether threads end that were only told to: they look at times."""
    gone_by = time.monotonic() + 60
    while _thread._count() > BEFORE[0] and time.monotonic() < gone_by:
        time.sleep(0.001)
    return _thread._count() <= BEFORE[0]


def endless(put: Put) -> None:
    for number in itertools.count():
        put(number)


def failing(put: Put) -> None:
    put("in front")
    raise CorruptRecordError("no batch", path="00.log")


@THREADS
def test_results_come_in_the_order_of_the_pieces(threads: int) -> None:
    def piece(number: int) -> Work:
        return lambda put: [put((number, part)) for part in range(number % 3)]

    expected = [(number, part) for number in range(40) for part in range(number % 3)]
    assert taken([piece(number) for number in range(40)], threads) == expected


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_an_error_comes_behind_the_results_in_front_of_it_and_ends_the_others(threads: int) -> None:
    results: list[Any] = []
    with pytest.raises(CorruptRecordError, match=r"00\.log"):
        run_in_order([putting(1), failing, endless, endless], results.append, threads=threads)
    assert results == [1, "in front"]
    assert not alive()


@THREADS
def test_an_error_of_asking_for_the_next_comes_behind_what_is_under_way(threads: int) -> None:
    def pieces() -> Iterator[Work]:
        yield putting(1)
        yield putting(2)
        raise CorruptRecordError("the file shrank")

    results: list[Any] = []
    with pytest.raises(CorruptRecordError, match="shrank"):
        run_in_order(pieces(), results.append, threads=threads)
    assert results == [1, 2]


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_an_interrupt_and_a_closed_pipe_end_all_threads(error: type[BaseException]) -> None:
    def take(result: Any) -> None:
        if result == 3:
            raise error

    with pytest.raises(error):
        run_in_order([endless] * 5, take, threads=3)
    assert not alive()


def test_an_interrupt_while_a_thread_is_started_ends_that_thread_too() -> None:
    def interrupting(_put: Put) -> None:
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGINT)
        while True:
            workers.check()

    for threads in (2, 3, 8):
        with pytest.raises(KeyboardInterrupt):
            taken([interrupting] * 5, threads)
        assert not alive()


#: What CPython looks for interrupts behind.
CHECKED = ("CALL", "JUMP_BACKWARD", "RESUME")


@lru_cache(None)
def names_at(code: CodeType) -> dict[int, str]:
    return {step.offset: step.opname for step in dis.get_instructions(code)}


def steps_of(do: Callable[[], object], interrupted: int | None = None) -> int:
    """Do something; how often an interrupt could come while it shares work. One does, if wanted."""
    before: dict[FrameType, str] = {}
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != workers.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            name, before[frame] = before.get(frame, ""), names_at(frame.f_code)[frame.f_lasti]
            steps += name.startswith(CHECKED)
            if name.startswith(CHECKED) and steps == interrupted:
                raise KeyboardInterrupt
        return trace

    with traced(trace):
        do()
    return steps


def test_an_interrupt_at_any_step_of_the_taker_ends_all_threads() -> None:
    sizes = (1, 2 * ROOM, 0, 3, 1)

    def piece(size: int, put: Put) -> None:
        for number in range(size):
            put(number)

    def share() -> None:
        run_in_order([partial(piece, size) for size in sizes], lambda _: None, threads=2)

    last = steps_of(share)
    assert last > 500
    for step in share_of(range(1, last, max(1, last // 100)), 2, "taker"):
        with suppress(KeyboardInterrupt):  # it may be over sooner than before
            steps_of(share, step)
        gc.collect()  # idle threads end with their executor, which frames of the trace keep
        assert gone_in_time(), f"a thread goes on behind step {step}"


def test_closing_the_iterator_ends_all_threads() -> None:
    results = in_order([endless] * 5, threads=3)
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert not alive()


@pytest.mark.parametrize(
    ("room", "made"),
    [(ROOM, lambda number: number), (3, lambda _: np.zeros(ROOM_BYTES // 3 + 1, np.uint8))],
    ids=["results", "bytes"],
)
def test_a_piece_waits_when_its_room_is_full(room: int, made: Callable[[int], Any]) -> None:
    full = threading.Event()
    put_so_far: list[int] = []

    def head(put: Put) -> None:
        assert full.wait(60)
        put(len(put_so_far))

    def behind(put: Put) -> None:
        for number in range(3 * room):
            if number == room:
                full.set()
            put(made(number))
            put_so_far.append(number)

    first, *rest = taken([head, behind], 2)
    assert (first, len(rest)) == (room, 3 * room)
    assert all(np.array_equal(each, made(number)) for number, each in enumerate(rest))


def test_no_more_pieces_are_begun_than_the_window_holds() -> None:
    asked = []

    def pieces() -> Iterator[Work]:
        for number in range(20):
            asked.append(number)
            yield putting(number)

    results = in_order(pieces(), threads=2)
    assert next(results) == 0
    assert len(asked) == 3
    results.close()


def test_a_thread_that_the_system_refuses_leaves_its_pieces_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start
    allowed = [1]

    def refuse_all_but_one(thread: threading.Thread) -> None:
        if not allowed:
            raise RuntimeError("can't start new thread")
        allowed.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_all_but_one)
    pieces = [putting(number) for number in range(9)]
    assert taken(pieces, 3) == list(range(9))
    with pytest.raises(LimitExceededError, match="no thread"):
        taken(pieces, 3)
    assert taken(pieces, 1) == list(range(9))


def test_a_thread_that_dies_with_a_piece_is_an_error_with_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    do = workers._Run._do

    def die(run: workers._Run, piece: workers._Piece) -> None:
        if piece.path != "b.log":
            return do(run, piece)
        piece.thread = threading.Thread()  # which does not live
        return None

    monkeypatch.setattr(workers._Run, "_do", die)
    results: list[Any] = []
    with pytest.raises(LimitExceededError, match=r"b\.log.*out of memory"):
        run_in_order(
            [At(f"{name}.log", putting(name)) for name in "abc"], results.append, threads=2
        )
    assert results == ["a"]
    assert not alive()


def test_a_program_ends_with_results_that_nobody_took(tmp_path: Path) -> None:
    program = """
from kseg.workers import in_order
results = in_order([lambda put: [put(n) for n in range(1000)]] * 4, threads=2)
assert next(results) == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_run_that_the_end_of_the_interpreter_stops_lets_its_taker_go() -> None:
    results = in_order([putting(0)] * 20, threads=1)
    assert next(results) == 0
    workers._end_runs()
    with pytest.raises(workers._StoppedError):
        list(results)


@pytest.mark.parametrize("threads", [2, 3])
def test_a_run_in_a_piece_ends_with_the_run_around_it_and_not_as_if_it_were_done(
    threads: int,
) -> None:
    begun, went_on = threading.Event(), []

    def looping(_put: Put) -> None:
        begun.set()
        while True:
            workers.check()

    def around(_put: Put) -> None:
        run_in_order([looping, putting(1)], lambda _: None, threads=threads)
        went_on.append(1)

    def first(put: Put) -> None:
        assert begun.wait(60)
        failing(put)

    with pytest.raises(CorruptRecordError, match=r"00\.log"):
        list(in_order([first, around], threads=2))
    assert not went_on
    assert not alive()


def refuse(*_: object) -> None:
    raise MemoryError


def _in_a_fork(step: Callable[[], object]) -> int:
    """What a forked child exits with that does this and ends as a program does; -1 if it waits."""
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_REAL, 10)  # ends it
        try:
            step()
        except KsegError:
            os._exit(3)
        except BaseException:
            os._exit(4)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return -1 if status == -signal.SIGALRM else status


@pytest.mark.parametrize(("how", "status"), [("drop", 0), ("next", 3), ("all", 3), ("new", 0)])
def test_a_forked_process_waits_for_none_of_the_threads_that_it_does_not_have(
    how: str, status: int
) -> None:
    goes_on = threading.Event()

    def work(put: Put) -> None:
        put(1)
        goes_on.wait()
        put(2)

    results = in_order([work, work, work], threads=3)
    assert next(results) == 1
    steps: dict[str, Callable[[], object]] = {
        "drop": results.close,
        "next": lambda: next(results),
        "all": lambda: list(results),
        "new": lambda: list(in_order([putting(1)] * 3, threads=3)),
    }
    try:
        assert _in_a_fork(steps[how]) == status
    finally:
        goes_on.set()
    assert list(results) == [2, 1, 2, 1, 2]  # the parent's go on


def test_a_lack_of_memory_anywhere_is_an_error_with_the_file() -> None:
    def asking() -> Iterator[Work]:
        yield putting(1)
        raise MemoryError

    ways: list[tuple[Iterable[Work], Put]] = [
        ([At("a.log", refuse)], print),
        (each_at("a.log", asking()), print),
        ([At("a.log", putting(1)), At("b.log", putting(2))], refuse),
    ]
    for pieces, take in ways:
        with pytest.raises(LimitExceededError, match=r"a\.log.*out of memory"):
            run_in_order(pieces, take, threads=2)
    assert not alive()


@THREADS
def test_what_pieces_share_is_closed_behind_the_last_of_them(threads: int) -> None:
    seen: list[str] = []

    def pieces() -> Iterator[Work]:
        with SharedUse(lambda: seen.append("closed")) as lent:
            for _ in range(6):
                yield lent.to(lambda put: put("closed" in seen))

    assert taken(pieces(), threads) == [False] * 6
    assert seen == ["closed"]


def test_what_is_kept_is_used_by_one_piece_at_a_time() -> None:
    kept = PerThread(object)
    with kept.one() as first, kept.one() as second:
        assert first is not second
    with kept.one() as third:
        assert third in (first, second)


def test_an_error_names_its_file() -> None:
    with pytest.raises(CorruptRecordError, match=r"a\.log"), at_file("a.log"):
        raise CorruptRecordError("no batch")


def test_a_lack_of_memory_is_an_error_with_the_file() -> None:
    with (
        pytest.raises(LimitExceededError, match=r"a\.log.*out of memory") as found,
        at_file("a.log"),
    ):
        raise MemoryError
    assert isinstance(found.value, KsegError)


QUOTAS = {
    "none": ({}, 1 << 20),
    "unbounded": ({"cpu.max": "max 100000\n"}, 1 << 20),
    "two cores": ({"cpu.max": "200000 100000\n"}, 2),
    "a core and a half": ({"cpu.max": "150000 100000\n"}, 2),
    "a tenth": ({"cpu.max": "10000 100000\n"}, 1),
    "nonsense": ({"cpu.max": "much\n"}, 1 << 20),
    "first version": ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    "first version, unbounded": (
        {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
        1 << 20,
    ),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_the_quota_of_the_control_group_bounds_the_cores(name: str, tmp_path: Path) -> None:
    files, cores = QUOTAS[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    assert workers.quota_of(tmp_path) == cores


def test_there_is_a_core_at_least() -> None:
    assert workers.usable_cores() >= 1
