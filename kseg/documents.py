"""Frozen values and their JSON documents: one encoder for `--json` and for reports in files.

`frozen_dataclass` makes a class of values: no field changes, and there is no dictionary. Such a
class may derive from `Documented`. Its document has all fields of the dataclass, in their order; or
those that `DOCUMENT` names, which may be properties too. `name=attribute` renames one.

An id is as Kafka prints it: 16 bytes in URL-safe base64 without padding.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, cast, dataclass_transform
from uuid import UUID


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen_dataclass(made: type | None = None, /, **how: bool) -> Any:
    """Decorate a class; with arguments, give the decorator.

    Args:
        made: the class.
        how: more arguments of `dataclasses.dataclass`.
    """
    return dataclass(made, frozen=True, slots=True, **how)


class Documented:
    """A value with a JSON document."""

    __slots__ = ()
    DOCUMENT: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields as in `--json`."""
        return fields_of(self, _words(cast("Any", type(self))))


class VerbReport(Documented):
    """A value that is the document of a verb."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The document of the verb's `--json`."""
        return self.to_dict()


def fields_of(value: Any, words: str) -> dict[str, Any]:
    """Some attributes of a value, in the form that documents have.

    Args:
        value: any value, not only a `Documented`.
        words: the names, as in `DOCUMENT`.
    """
    return {name: document(get(value)) for name, get in _getters(words)}


@cache
def _words(kind: Any) -> str:
    return kind.DOCUMENT or " ".join(field.name for field in fields(kind))


@cache
def _getters(words: str) -> tuple[tuple[str, attrgetter[Any]], ...]:
    """The names of fields, each with the function that gets its value."""
    pairs = (word.partition("=") for word in words.split())
    return tuple((name, attrgetter(attribute or name)) for name, _, attribute in pairs)


def document(value: Any) -> Any:
    """A value in the form that JSON has: text, a number, a list, a dict, or None."""
    match value:
        case object(to_dict=to_dict):
            return to_dict()
        case Enum():
            return value.value
        case None | str() | int() | float():
            return value
        case UUID():
            return id_text(value)
        case Path():
            return str(value)
        case Mapping():
            return {name: document(item) for name, item in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return document(value._asdict())
        case Iterable():
            return [document(item) for item in value]
    raise TypeError(f"a {type(value).__name__} has no JSON document")


def id_text(uuid: UUID) -> str:
    """An id as text of 22 characters.

    >>> id_text(UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def id_of(text: str) -> UUID:
    """Parse an id.

    Raises:
        ValueError: it is not 16 bytes in base64.
    """
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
