"""The finished pieces of a job, in a directory of the caller, so that a later run can go on.

    job.json                 which job, with which options, by which kseg
    <task>-<attempt>.done    one finished list of items: their marks, and the answer, as JSON
    <task>-<attempt>.rows    the same, where the answer is rows: an Arrow file

A file gets its name when it is complete. An item's mark names it and the state of its files, so an
item that has changed since is done again. Two attempts of one task leave two files, of which one
counts. Every worker must see the directory. One that another user owns or may write to is refused,
since its answers would be believed. Needs no pyspark.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from kseg.errors import KsegError
from kseg.files import atomic, io, ownership
from kseg.spark.jobs.answers import from_json, to_json
from kseg.spark.listing import local_path

_SCHEMA: Final = "kseg.job/2"
_NAME: Final = "job.json"
_DONE, _ROWS = ".done", ".rows"
_MARKS: Final = b"kseg.marks"


@dataclass(frozen=True, slots=True)
class Item:
    """Something to do, which one worker does at a time.

    Attributes:
        payload: what the work is given.
        cost: bytes to go through, roughly.
        mark: the item's name and state; any text if the run has no job directory.
    """

    payload: Any
    cost: int
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The answers of earlier runs, and the items left.

    Attributes:
        answers: one for each list of items.
        left: the items of which no answer is there.
    """

    answers: tuple[Any, ...]
    left: tuple[Item, ...]


def open_job(directory: str | os.PathLike[str], job: str, options: object) -> Path:
    """Begin a job in a directory, or go on with the one in it.

    Args:
        directory: made if it is absent.
        job: its name.
        options: all that answers depend on but the items; its `repr` is compared.

    Raises:
        ValueError: it is in a store.
        KsegError: another job is in it, or one with other options.
        PermissionError: another user owns it, or may write to it.
        OSError: it cannot be read or made.
    """
    path = Path(local_path(directory)).absolute()
    ownership.check_safe(path)
    told = {
        "schema": _SCHEMA,
        "job": job,
        "options": repr(options),
        "kseg": version("kseg"),
    }
    try:
        known = json.loads((path / _NAME).read_bytes())
    except FileNotFoundError:
        with ownership.private():
            io.make_directories(path)
        if os.listdir(path):
            raise KsegError("a job needs a directory of its own", path=path) from None
        atomic.replace_file(path / _NAME, json.dumps(told).encode())
        return path
    except ValueError:
        known = {}
    for name in told:
        if not isinstance(known, dict) or known.get(name) != told[name]:
            raise KsegError(f"in here is a job with another {name}; take another", path=path)
    return path


def keep_answer(directory: Path, marks: Sequence[str], answer: object) -> None:
    """Note the answer to a list of items; lasting when this returns."""
    atomic.replace_file(_place(directory, marks, _DONE), to_json([list(marks), answer]))


def finished(
    directory: Path, items: Iterable[Item], usable: Callable[[Any], bool] = lambda answer: True
) -> Finished:
    """The answers that earlier runs gave for these items.

    Args:
        directory: of the job.
        items: all that there is to do.
        usable: whether an answer still holds, by something else than the items.

    Raises:
        KsegError: a file is none of a job's.
        OSError: a file cannot be read.
    """
    left = {item.mark: item for item in items}
    answers = []
    for path in sorted(directory.glob(f"*{_DONE}")):
        try:
            marks, answer = from_json(path.read_bytes())
        except ValueError:
            raise KsegError("no answer of a job; remove it", path=path) from None
        if all(mark in left for mark in marks) and usable(answer):
            answers.append(answer)
            for mark in marks:
                del left[mark]
    return Finished(tuple(answers), tuple(left.values()))


def _place(directory: Path, marks: Sequence[str], suffix: str) -> Path:
    task = hashlib.sha256("\n".join(marks).encode()).hexdigest()[:16]
    return directory / f"{task}-{uuid.uuid4().hex[:8]}{suffix}"


__all__ = [
    "Finished",
    "Item",
    "finished",
    "keep_answer",
    "open_job",
]
