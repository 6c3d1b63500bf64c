"""The answers of a job as JSON, and back. Reading them runs no code that they name.

Numbers, text, booleans, null and lists stand for themselves; any other value is an object of one
name, its kind. Of classes only those of kseg that hold values are known: dataclasses, named tuples,
enumerations and errors. They are filled in as they were, without their constructors. Files are read
by the release that wrote them.
"""

from __future__ import annotations

import base64
import json
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import numpy as np

from kseg.errors import KsegError

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


__all__ = ["from_json", "to_json"]
