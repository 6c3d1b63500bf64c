"""The finished pieces of a job, in a directory of the caller, so that a later run can go on.

    job.json                 which job, with which options, by which kseg
    <task>-<attempt>.done    one finished list of items: their marks, and the answer, as JSON

A file gets its name when it is complete. An item's mark names it and the state of its files, so an
item that has changed since is done again. Two attempts of one task leave two files, of which one
counts. Every worker must see the directory. One that another user owns or may write to is refused,
since its answers would be believed. Reading an answer runs no code: it names only classes of kseg
that hold values, which are filled in without their constructors. Needs no pyspark.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

from kseg.errors import KsegError
from kseg.files import atomic, io, ownership
from kseg.spark.plan import local_path

_PACKAGE: Final = "kseg."


def to_json(answer: object) -> bytes:
    """An answer as JSON.

    Raises:
        TypeError: it holds a value of another kind.
    """
    return json.dumps(_encoded(answer)).encode()


def from_json(data: bytes) -> Any:
    """The answer of `to_json`.

    Raises:
        ValueError: it is not one.
    """
    try:
        return _decoded(json.loads(data))
    except (LookupError, TypeError, AttributeError, ImportError, RecursionError) as error:
        raise ValueError(f"not an answer of a job: {error}") from error


def _encoded(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_encoded(each) for each in value]
    for kind, known in _KINDS.items():
        if type(value) is known:
            return {kind: _ENCODERS[kind](value)}
    if isinstance(value, Enum):
        return {"enum": [_name(value), value.value]}
    if isinstance(value, KsegError):
        state = {**value.__dict__, "path": value.path}
        return {"error": [_name(value), value.reason, _encoded(state)]}
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        data = base64.b64encode(array.tobytes()).decode()
        return {"array": [array.dtype.str, list(array.shape), data, isinstance(value, np.generic)]}
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if hasattr(value, each.name)]
        return {"value": [_name(value), {name: _encoded(getattr(value, name)) for name in names}]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"named": [_name(value), [_encoded(each) for each in value]]}
    if isinstance(value, Path):
        return {"path": str(value)}
    raise TypeError(f"{type(value).__name__} is not a value of an answer")


def _name(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _items(value: Any) -> list[Any]:
    return [_encoded(each) for each in value]


_KINDS: Final[dict[str, type]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "bytes": bytes,
    "uuid": UUID,
}
_ENCODERS: Final[dict[str, Any]] = {
    "tuple": _items,
    "set": _items,
    "frozenset": _items,
    "dict": lambda value: [[_encoded(key), _encoded(each)] for key, each in value.items()],
    "bytes": lambda value: base64.b64encode(value).decode(),
    "uuid": str,
}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    return _DECODERS[kind](inner)


def _array(inner: Any) -> Any:
    kind, shape, data, is_scalar = inner
    dtype = np.dtype(kind)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    array = np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
    return array[()] if is_scalar else array


def _error(inner: Any) -> KsegError:
    name, reason, state = inner
    kind = _class(name)
    if not issubclass(kind, KsegError):
        raise ValueError(f"{name} is not an error of kseg")
    error = kind(reason)
    for each, value in _decoded(state).items():
        setattr(error, each, value)
    return error


def _value(inner: Any) -> Any:
    name, state = inner
    kind = _class(name)
    if not is_dataclass(kind):
        raise ValueError(f"{name} holds no values")
    made: Any = object.__new__(kind)
    known = {each.name for each in fields(kind)}
    for each, value in state.items():
        if each not in known:
            raise ValueError(f"{name} has no field {each}")
        object.__setattr__(made, each, _decoded(value))
    return made


def _named(inner: Any) -> Any:
    name, items = inner
    kind = _class(name)
    if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        raise ValueError(f"{name} is not a named tuple")
    return tuple.__new__(kind, [_decoded(each) for each in items])


def _enum(inner: Any) -> Any:
    name, value = inner
    kind = _class(name)
    if not issubclass(kind, Enum):
        raise ValueError(f"{name} is not an enumeration")
    return kind(value)


def _class(name: str) -> type:
    """A class of kseg by its module and name."""
    module, _, place = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise ValueError(f"{name} is not of kseg")
    found: Any = import_module(module)
    for part in place.split("."):
        found = getattr(found, part)
    if not isinstance(found, type) or found.__module__ != module:
        raise ValueError(f"{name} is not a class of kseg")
    return found


_DECODERS: Final[dict[str, Any]] = {
    "tuple": lambda inner: tuple(map(_decoded, inner)),
    "set": lambda inner: set(map(_decoded, inner)),
    "frozenset": lambda inner: frozenset(map(_decoded, inner)),
    "dict": lambda inner: {_decoded(key): _decoded(each) for key, each in inner},
    "bytes": base64.b64decode,
    "uuid": UUID,
    "path": Path,
    "array": _array,
    "error": _error,
    "value": _value,
    "named": _named,
    "enum": _enum,
}


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


__all__ = ["Finished", "Item", "finished", "from_json", "keep_answer", "open_job", "to_json"]
