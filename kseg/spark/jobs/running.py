"""Work shared out to Spark's workers: packed into tasks, one a Spark partition, and remembered.

    items     what there is to do, each with its cost
    pack      small ones together, about four tasks a core, each of 64 MiB to 1 GiB; more of what
              is gone through faster
    run       every task in a worker: its answer comes back pickled, and is kept where asked

Spark gets one row a task, with just the task's number; the lists travel with the function. A worker
returns an error of kseg as its answer. Once all other tasks are done, the driver raises that error,
as one process would. Nothing here imports pyspark.
"""

from __future__ import annotations

import os
import pickle
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from kseg import errors
from kseg.errors import KsegError
from kseg.spark.jobs.job_directory import (
    Item,
    finished,
    keep_answer,
)
from kseg.spark.options import SourceOptions
from kseg.spark.plan import LogEntry, list_logs, make_plan
from kseg.spark.reading import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    #: `progress(done, total)`: tasks that are finished, and all of them.
    Progress = Callable[[int, int], None]
    Work = Callable[[Sequence[Any]], Any]
    RowWork = Callable[[Sequence[Any]], Iterator[pa.RecordBatch]]

Answer = TypeVar("Answer")
Options = TypeVar("Options")

TASKS_PER_CORE: Final = 4
TASK_BYTES_MIN: Final = 64 << 20
TASK_BYTES_MAX: Final = 1 << 30
#: How much faster than making keys and values it is to go through headers and checksums alone, or
#: to parse records for no more than their offsets and times. A task costs Spark some 50 ms.
PACE_OF_HEADERS: Final = 8
PACE_OF_PARSING: Final = 4
#: Opening a file takes as long as checking about so much of one.
_ITEM_BYTES: Final = 1 << 20
#: Where Spark does not say how many cores there are, as through Spark Connect.
_CORES_UNKNOWN: Final = 8
_POLL_SECONDS: Final = 0.25
_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of some items.

    Attributes:
        answers: one for each task, in no order that matters; those of earlier runs among them.
        tasks: how many Spark ran now.
        skipped: items that an earlier run had answered.
    """

    answers: tuple[Any, ...]
    tasks: int
    skipped: int


@dataclass(frozen=True, slots=True)
class _Failed:
    """A task's answer where it has none."""

    error: KsegError | OSError


def pack(items: Iterable[Item], cores: int, *, pace: int = 1) -> list[tuple[Item, ...]]:
    """Neighbours share tasks of about the same size; the largest come first.

    Args:
        items: in an order in which neighbours belong together.
        cores: how many Spark has.
        pace: how much faster the work is than making keys and values; so much larger are tasks.
    """
    items = list(items)
    total = sum(_weight(item) for item in items)
    share = total // (TASKS_PER_CORE * max(cores, 1))
    target = min(max(share, pace * TASK_BYTES_MIN), pace * TASK_BYTES_MAX)
    count = -(-total // target)
    tasks: dict[int, list[Item]] = {}
    done = 0
    for item in items:
        middle = done + _weight(item) // 2
        tasks.setdefault(middle * count // total, []).append(item)
        done += _weight(item)
    ordered = sorted(tasks.values(), key=lambda task: sum(map(_weight, task)), reverse=True)
    return [tuple(task) for task in ordered]


def _weight(item: Item) -> int:
    return item.cost + _ITEM_BYTES


def cores_of(spark: SparkSession) -> int:
    """How many tasks Spark runs at a time."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:
        return _CORES_UNKNOWN


def run(
    spark: SparkSession,
    items: Sequence[Item],
    work: Work,
    *,
    job: Path | None = None,
    usable: Callable[[Any], bool] = lambda answer: True,
    pace: int = 1,
    progress: Progress | None = None,
) -> Ran:
    """Run the work on every item once.

    Args:
        spark: the session.
        items: what there is to do.
        work: takes the payloads of a task, in a worker, and answers something small; pickles.
        job: directory of what was done before, from `open_job`; finished tasks are noted there.
        usable: whether such an answer still holds.
        pace: see `pack`.
        progress: called now and then while Spark works.

    Raises:
        KsegError, OSError: a task raised it; all others were completed.
    """
    before = finished(job, items, usable) if job is not None else None
    left = items if before is None else before.left
    known = () if before is None else before.answers
    tasks = pack(left, cores_of(spark), pace=pace)
    if not tasks:
        return Ran(known, 0, len(items))
    act = partial(_answers, tasks=_packed(tasks), work=work, job=job, place=os.getcwd())
    frame = _frame(spark, len(tasks), act, "answer BINARY")
    with watched(spark, len(tasks), progress):
        rows = frame.collect()
    answers = [pickle.loads(row.answer) for row in rows]
    failed = [answer.error for answer in answers if isinstance(answer, _Failed)]
    if failed:
        raise min(failed, key=str)
    return Ran((*known, *answers), len(tasks), len(items) - len(left))


def _frame(spark: SparkSession, count: int, act: Callable[..., Any], ddl: str) -> DataFrame:
    """One row a partition, and what the function makes of it."""
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(act, ddl)


def _packed(tasks: Iterable[tuple[Item, ...] | str]) -> tuple[bytes, ...]:
    """Each task by itself, so that a worker unpacks no more than its own."""
    return tuple(zlib.compress(pickle.dumps(task, pickle.HIGHEST_PROTOCOL), 1) for task in tasks)


# ---- in a worker ---------------------------------------------------------------------------------


def _answers(
    batches: Iterable[pa.RecordBatch],
    *,
    tasks: tuple[bytes, ...],
    work: Work,
    job: Path | None,
    place: str,
) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` runs: the answer of each task that is asked for."""
    for number in _numbers(batches):
        items: tuple[Item, ...] = _unpacked(tasks[number])
        try:
            with _where(place):
                answer = work([item.payload for item in items])
                if job is not None and not getattr(answer, "unread", ()):
                    keep_answer(job, [item.mark for item in items], answer)
        except (KsegError, OSError) as error:
            answer = _Failed(error)
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        yield pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["answer"])


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    settle()
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _unpacked(task: bytes) -> Any:
    return pickle.loads(zlib.decompress(task))


def _where(place: str) -> Any:
    """In the driver's directory, if it is here too: paths are as the caller spelled them."""
    if not os.path.isdir(place):
        return nullcontext()
    try:
        os.getcwd()
    except FileNotFoundError:  # Spark's Python goes on where its JVM began, be that gone or not
        os.chdir(place)
    return chdir(place)


# ---- progress ------------------------------------------------------------------------------------


@contextmanager
def watched(spark: SparkSession, total: int, progress: Progress | None) -> Iterator[None]:
    """Report the progress of Spark's jobs in this block, from a thread that asks now and then.

    Args:
        spark: the session; Spark Connect reports no progress.
        total: tasks to expect.
        progress: what to call; None tells nothing.
    """
    context = getattr(spark, "_sc", None)
    if progress is None or context is None:
        yield
        return
    kept = [context.getLocalProperty(name) for name in _GROUP]
    group = f"kseg-{uuid.uuid4().hex}"
    context.setJobGroup(group, "kseg")
    done = threading.Event()
    tracker = context.statusTracker()

    def tell() -> None:
        while not done.wait(_POLL_SECONDS):
            progress(min(_finished_tasks(tracker, group), total), total)

    watcher = threading.Thread(target=tell, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        for name, value in zip(_GROUP, kept, strict=True):
            context.setLocalProperty(name, value)
    progress(total, total)


def _finished_tasks(tracker: Any, group: str) -> int:
    """Tasks that have ended in all stages of a group's jobs."""
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    stages = [
        tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds
    ]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


# ---- items ---------------------------------------------------------------------------------------


def mark_of(state: object) -> str:
    """What an item depends on as text: the same in each run, as the order of a set is not.

    Dataclasses, sets, mappings and tuples are taken apart; of all else the `repr` counts.
    """
    return repr(_in_order(state))


def _in_order(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        named = [(each.name, _in_order(getattr(value, each.name))) for each in fields(value)]
        return (type(value).__name__, *named)
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return [(name, _in_order(value[name])) for name in sorted(value)]
    if isinstance(value, tuple | list):
        return [_in_order(each) for each in value]
    return value


def state_of(path: str) -> tuple[int, int, int] | None:
    """Size, time of modification and inode of a file; None without one."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def splits_of(options: SourceOptions, *, marked: bool) -> tuple[tuple[LogEntry, ...], list[Item]]:
    """The logs that the source would read, and its splits as items.

    Args:
        options: of the source.
        marked: whether to say what state the files are in.

    Raises:
        NotALogError: the paths hold no segment.
        OSError: a path cannot be read.
    """
    logs = list_logs(options)
    splits = (split for task in make_plan(logs, options).tasks for split in task)
    items = [
        Item(split, split.split_bytes, repr((split, state_of(split.path))) if marked else "")
        for split in splits
    ]
    return logs, items


@contextmanager
def refusals_named() -> Iterator[None]:
    """Say in the message of a ValueError that kseg refuses something, as Spark's users see it."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, KsegError):
            raise
        raise ValueError(f"kseg: {str(error).removeprefix('kseg: ')}") from None


def error_of(lines: str) -> KsegError:
    """The error of a worker, out of the many lines that Spark makes of it.

    Args:
        lines: the message of Spark's exception, with the worker's traceback in it or not.

    Returns:
        An error of the class that was raised, if that is one of kseg's.
    """
    told = [line.strip() for line in lines.splitlines() if line.strip()]
    for line in reversed(told):
        name, colon, text = line.partition(": ")
        kind = getattr(errors, name.removeprefix(f"{errors.__name__}."), None)
        if colon and isinstance(kind, type) and issubclass(kind, KsegError):
            return kind(text)
    named = [line for line in told if line.partition(": ")[0].endswith("Error")]
    return KsegError(f"Spark failed: {(named or told or ['it does not say why'])[-1]}")


__all__ = [
    "PACE_OF_HEADERS",
    "PACE_OF_PARSING",
    "Ran",
    "cores_of",
    "error_of",
    "mark_of",
    "pack",
    "refusals_named",
    "run",
    "splits_of",
    "state_of",
    "watched",
]
