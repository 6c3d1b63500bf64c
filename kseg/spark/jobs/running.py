"""Work shared out to Spark's workers: packed into tasks, one a Spark partition, and remembered.

    items     the pieces of work, each with its cost
    pack      join small items: about four tasks a core, each of 64 MiB to 1 GiB; more bytes where
              the work is faster
    run       run every task in a worker: its answer comes back pickled, and is stored in the
              directory of the job, if there is one

Spark gets one row a task, with just the task's number; the lists travel with the function. A worker
returns an error of kseg as its answer. Once all other tasks are done, the driver raises that error,
as one process would. Nothing here imports pyspark.

The finished pieces of a job lie in a directory of the caller, so that a later run can go on:

    job.json                 which job, with which options, by which kseg
    <task>-<attempt>.done    one finished list of items: their marks, and the answer, as JSON

A file gets its name when it is complete. An item's mark has its name and the state of its files, so
an item that has changed since is done again. Two attempts of one task leave two files, of which one
counts. Every worker must see the directory. A directory that another user owns or may write to is
refused, since its answers are trusted. A job names the classes that its answers may have.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from kseg import errors
from kseg.constants import Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError
from kseg.files import atomic, io, ownership
from kseg.files.names import LeftOut
from kseg.frames import Table
from kseg.spark.options import SourceOptions
from kseg.spark.plan import list_logs, local_path, make_plan
from kseg.spark.reading import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Work = Callable[[Sequence[Any]], Any]


def to_json(value: object) -> str:
    """A value as JSON, the same text in each run.

    An array stands for a tuple, and `{name: [parts]}` for a value of the class with that name. A
    value whose parts are not known is its `repr`, which `from_json` cannot read.
    """
    return json.dumps(_as_json(value))


def from_json(data: bytes, classes: Iterable[type]) -> Any:
    """The value of `to_json`.

    Args:
        data: the text.
        classes: the classes of kseg that may occur in it; each is called with its parts.

    Raises:
        ValueError: it is not a value of these classes.
    """
    makers = _MAKERS | {kind.__name__: kind for kind in classes}

    def value_of(plain: Any) -> Any:
        """A value from parsed JSON: a list is a tuple, an object has a class and its parts."""
        if isinstance(plain, list):
            return tuple(map(value_of, plain))
        if not isinstance(plain, dict):
            return plain
        ((name, parts),) = plain.items()
        return makers[name](*value_of(parts))

    try:
        return value_of(json.loads(data))
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not an answer of a job: {error}") from error


def _as_json(value: Any) -> Any:
    """A value in the form of `to_json`, made only of JSON's types."""
    name = type(value).__name__
    match value:
        case Enum():
            parts: Iterable[Any] = [value.value]
        case None | bool() | int() | float() | str():
            return value
        case tuple() if name == "tuple":
            return list(map(_as_json, value))
        case list() | tuple():
            parts = value
        case set() | frozenset():
            parts = sorted(value, key=str)
        case Mapping():
            name, parts = "dict", sorted(value.items(), key=str)
        case bytes():
            parts = [value.hex()]
        case UUID():
            parts = [str(value)]
        case Path():
            name, parts = "Path", [str(value)]
        case np.ndarray():
            parts = [value.dtype.str, value.tobytes()]
        case KsegError():
            parts = [value.reason, {**vars(value), "path": value.path}]
        case _ if is_dataclass(value):
            parts = [getattr(value, field.name) for field in fields(value)]
        case _:
            parts = [repr(value)]
    return {name: list(map(_as_json, parts))}


#: Name of a class -> a function that makes a value from its parts, for errors of kseg and for
#: classes that are not kseg's.
_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    "list": lambda *parts: list(parts),
    "set": lambda *parts: set(parts),
    "frozenset": lambda *parts: frozenset(parts),
    "dict": lambda *parts: dict(parts),
    "bytes": bytes.fromhex,
    "UUID": UUID,
    "Path": Path,
    "ndarray": lambda dtype, data: np.frombuffer(data, dtype),
    **{
        name: partial(errors.rebuilt, kind)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, KsegError)
    },
}


_SCHEMA: Final = "kseg.job/3"
_NAME: Final = "job.json"
_DONE: Final = ".done"


@frozen_dataclass
class Item:
    """Something to do, which one worker does at a time.

    Attributes:
        payload: the argument of the work.
        cost: the bytes to read, roughly.
        mark: the item's name and state; any text if the run has no job directory.
    """

    payload: Any
    cost: int
    mark: str = ""


def open_job(directory: StrPath, job: str, options: object) -> Path:
    """Begin a job in a directory, or continue the job in it.

    Args:
        directory: the directory; made if it is missing.
        job: the name of the job.
        options: everything except the items that answers depend on.

    Raises:
        ValueError: it is in a store.
        KsegError: another job is in it, or one with other options.
        PermissionError: another user owns it, or may write to it.
        OSError: it cannot be read or made.
    """
    path = Path(local_path(directory)).absolute()
    ownership.check_safe(path)
    expected = {
        "schema": _SCHEMA,
        "job": job,
        "options": to_json(options),
        "kseg": version("kseg"),
    }
    try:
        present = json.loads((path / _NAME).read_bytes())
    except FileNotFoundError:
        with ownership.private():
            io.make_directories(path)
        if os.listdir(path):
            raise KsegError("a job needs a directory of its own", path=path) from None
        atomic.replace_file(path / _NAME, json.dumps(expected).encode())
        return path
    except ValueError:
        present = {}
    for name in expected:
        if not isinstance(present, dict) or present.get(name) != expected[name]:
            raise KsegError(f"in here is a job with another {name}; take another", path=path)
    return path


def keep_answer(directory: Path, marks: Sequence[str], answer: object) -> None:
    """Store the answer to a list of items durably."""
    task = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
    path = directory / f"{task}-{uuid.uuid4().hex[:8]}{_DONE}"
    atomic.replace_file(path, to_json((tuple(marks), answer)).encode())


def finished(
    directory: Path,
    items: Iterable[Item],
    classes: Iterable[type] = (),
    usable: Callable[[Any], bool] = lambda answer: True,
) -> tuple[tuple[Any, ...], tuple[Item, ...]]:
    """The answers that earlier runs gave for these items.

    Args:
        directory: the directory of the job.
        items: all items.
        classes: the classes of kseg that answers have.
        usable: whether an answer still holds, apart from the state of the items.

    Returns:
        The answers that still hold, each for a list of items; and the items without an answer.

    Raises:
        KsegError: a file does not belong to a job.
        OSError: a file cannot be read.
    """
    left = {item.mark: item for item in items}
    answers = []
    for path in sorted(directory.glob(f"*{_DONE}")):
        try:
            marks, answer = from_json(path.read_bytes(), classes)
        except ValueError:
            raise KsegError("no answer of a job; remove it", path=path) from None
        if all(mark in left for mark in marks) and usable(answer):
            answers.append(answer)
            for mark in marks:
                del left[mark]
    return tuple(answers), tuple(left.values())


TASKS_PER_CORE: Final = 4
TASK_BYTES_MIN: Final = 64 << 20
TASK_BYTES_MAX: Final = 1 << 30
#: How much faster it is to read only headers and checksums, or to parse only the offsets and times
#: of records, than to make keys and values. A task costs Spark some 50 ms.
PACE_OF_HEADERS: Final = 8
PACE_OF_PARSING: Final = 4
#: The bytes that can be checked in the time of opening a file.
_ITEM_BYTES: Final = 1 << 20
#: Where Spark does not say how many cores there are, as through Spark Connect.
_CORES_UNKNOWN: Final = 8
_POLL_SECONDS: Final = 0.25
_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@frozen_dataclass
class Ran:
    """The outcome of some items.

    Attributes:
        answers: one for each task, in any order, with those of earlier runs.
        tasks: the number of tasks that Spark ran now.
        skipped: the number of items that an earlier run had answered.
    """

    answers: tuple[Any, ...]
    tasks: int
    skipped: int


def pack(items: Iterable[Item], cores: int, *, pace: int = 1) -> list[tuple[Item, ...]]:
    """Join neighbouring items into tasks of about the same size; returns the largest first.

    Args:
        items: the items, in an order in which neighbours belong together.
        cores: the number of Spark's cores.
        pace: how much faster the work is than making keys and values; tasks are as much larger.
    """
    items = list(items)
    total = sum(_weight(item) for item in items)
    share = total // (TASKS_PER_CORE * max(cores, 1))
    target = min(max(share, pace * TASK_BYTES_MIN), pace * TASK_BYTES_MAX)
    count = -(-total // target)
    tasks: dict[int, list[Item]] = {}
    done = 0
    for item in items:
        middle = done + _weight(item) // 2  # decides the task of the item
        tasks.setdefault(middle * count // total, []).append(item)
        done += _weight(item)
    ordered = sorted(tasks.values(), key=lambda task: sum(map(_weight, task)), reverse=True)
    return [tuple(task) for task in ordered]


def _weight(item: Item) -> int:
    """The cost of an item, with that of opening its file."""
    return item.cost + _ITEM_BYTES


def cores_of(spark: SparkSession) -> int:
    """The number of tasks that Spark runs at a time."""
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
    classes: Iterable[type] = (),
    usable: Callable[[Any], bool] = lambda answer: True,
    pace: int = 1,
    progress: Progress | None = None,
) -> Ran:
    """Run the work on every item once.

    Args:
        spark: the session.
        items: the work.
        work: is called in a worker with the payloads of a task, and returns a small tuple; it
            pickles.
        job: the directory with the answers of earlier runs, from `open_job`; new answers are stored
            there, except for those with a `LeftOut` in them.
        classes: the classes of kseg that answers have.
        usable: whether an earlier answer is still valid.
        pace: see `pack`.
        progress: called now and then while Spark works.

    Raises:
        KsegError, OSError: a task raised it; all others were completed.
    """
    earlier, left = finished(job, items, classes, usable) if job is not None else ((), tuple(items))
    tasks = pack(left, cores_of(spark), pace=pace)
    if not tasks:
        return Ran(earlier, 0, len(items))
    # Each task is packed by itself, so that a worker unpacks only its own.
    packed = [zlib.compress(pickle.dumps(task, pickle.HIGHEST_PROTOCOL), 1) for task in tasks]
    act = partial(_answers, tasks=packed, work=work, job=job, directory=os.getcwd())
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(act, "answer BINARY")
    with watched(spark, len(tasks), progress):
        rows = frame.collect()
    answers = [pickle.loads(row.answer) for row in rows]
    failed = [answer for answer in answers if isinstance(answer, KsegError | OSError)]
    if failed:
        raise min(failed, key=str)
    return Ran((*earlier, *answers), len(tasks), len(items) - len(left))


class Framed(Table):
    """A base class of the results of jobs: their rows are also a frame of Spark's."""

    __slots__ = ()

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows of `to_arrow`."""
        return spark.createDataFrame(self.to_arrow())


# ---- in a worker ---------------------------------------------------------------------------------


def _answers(
    batches: Iterable[pa.RecordBatch],
    *,
    tasks: Sequence[bytes],
    work: Work,
    job: Path | None,
    directory: str,
) -> Iterator[pa.RecordBatch]:
    """The function that `mapInArrow` runs: yields the answer, or the error, of each task.

    Args:
        batches: the numbers of tasks, from Spark.
        tasks: the packed items of every task.
        work, job: as for `run`.
        directory: the driver's working directory.
    """
    settle()
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        items: tuple[Item, ...] = pickle.loads(zlib.decompress(tasks[number]))
        try:
            with _in_directory(directory):
                answer = work([item.payload for item in items])
                if job is not None and not any(isinstance(part, LeftOut) for part in answer):
                    keep_answer(job, [item.mark for item in items], answer)
        except (KsegError, OSError) as error:
            answer = error
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        yield pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], names=["answer"])


def _in_directory(directory: str) -> Any:
    """A block in the driver's working directory, if this machine has it.

    Paths are as the caller spelled them, so relative paths begin there.
    """
    if not os.path.isdir(directory):
        return nullcontext()
    try:
        os.getcwd()
    except FileNotFoundError:  # the working directory was deleted, and `chdir` needs one
        os.chdir(directory)
    return chdir(directory)


# ---- progress ------------------------------------------------------------------------------------


@contextmanager
def watched(spark: SparkSession, total: int, progress: Progress | None) -> Iterator[None]:
    """Report the progress of Spark's jobs in this block, from a thread that checks it repeatedly.

    Args:
        spark: the session; Spark Connect reports no progress.
        total: the number of tasks to expect.
        progress: called with tasks done and tasks in all; None for no report.
    """
    context = getattr(spark, "_sc", None)
    if progress is None or context is None:
        yield
        return
    properties = [context.getLocalProperty(name) for name in _GROUP]
    group = f"kseg-{uuid.uuid4().hex}"
    context.setJobGroup(group, "kseg")
    done = threading.Event()
    tracker = context.statusTracker()

    def watch() -> None:
        """Report the finished tasks of the group now and then, until it is done."""
        while not done.wait(_POLL_SECONDS):
            jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
            stages = [
                tracker.getStageInfo(number)
                for job in jobs
                if job is not None
                for number in job.stageIds
            ]
            progress(
                min(sum(stage.numCompletedTasks for stage in stages if stage is not None), total),
                total,
            )

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        for name, value in zip(_GROUP, properties, strict=True):
            context.setLocalProperty(name, value)
    progress(total, total)


# ---- items ---------------------------------------------------------------------------------------


def state_of(path: str) -> tuple[int, int, int] | None:
    """Size, time of modification and inode of a file; None if it does not exist."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def splits_of(options: SourceOptions, *, marked: bool) -> list[Item]:
    """The splits that the source would read, as items.

    Args:
        options: the options of the source.
        marked: give items marks with the state of their files, for the directory of a job.

    Raises:
        NotALogError: the paths hold no segment.
        OSError: a path cannot be read.
    """
    return [
        Item(split, split.split_bytes, to_json((split, state_of(split.path))) if marked else "")
        for task in make_plan(list_logs(options), options)
        for split in task
    ]


@contextmanager
def refusals_named() -> Iterator[None]:
    """Prefix the message of a ValueError in this block with `kseg: `, if it is not one of kseg's.

    Spark's users then see which of their packages refuses something.
    """
    try:
        yield
    except ValueError as error:
        if isinstance(error, KsegError):
            raise
        raise ValueError(f"kseg: {str(error).removeprefix('kseg: ')}") from None


def error_of(lines: str) -> KsegError:
    """The error of a worker, found in the many lines that Spark makes of it.

    Args:
        lines: the message of Spark's exception, with the worker's traceback in it or not.

    Returns:
        An error of the class that was raised, if that is one of kseg's.
    """
    stripped = [line.strip() for line in lines.splitlines() if line.strip()]
    for line in reversed(stripped):
        name, colon, text = line.partition(": ")
        kind = getattr(errors, name.removeprefix(f"{errors.__name__}."), None)
        if colon and isinstance(kind, type) and issubclass(kind, KsegError):
            return kind(text)
    named = [line for line in stripped if line.partition(": ")[0].endswith("Error")]
    return KsegError(f"Spark failed: {(named or stripped or ['it does not say why'])[-1]}")
