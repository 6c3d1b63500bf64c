"""Errors say where, and keep saying it when they come from another process."""

from __future__ import annotations

import inspect
import pickle

import pytest

from kseg import errors
from kseg.constants import StopReason
from kseg.errors import KsegError, at_path

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, KsegError) and kind.__module__ == errors.__name__
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_pickles_with_all_it_knows(kind: type[KsegError]) -> None:
    error = kind(
        "why",
        path="a/b.log",
        position=7,
        offset=9,
        stop=StopReason.BAD_CRC,
        record_index=2,
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error) == "a/b.log @ 7, offset 9, record 2: why"
    assert again.args == error.args


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({}, "why"),
        ({"path": "x"}, "x: why"),
        ({"position": 0}, "@ 0: why"),
        ({"offset": 0}, "offset 0: why"),
        ({"record_index": 1}, "record 1: why"),
        ({"path": "x", "offset": 3}, "x, offset 3: why"),
        ({"path": "x", "position": 1, "record_index": 0}, "x @ 1, record 0: why"),
    ],
)
def test_an_error_tells_the_place_as_far_as_it_is_known(
    where: dict[str, object], text: str
) -> None:
    assert str(KsegError("why", **where)) == text  # type: ignore[arg-type]


def test_the_first_path_named_stays() -> None:
    error = KsegError("why")
    assert at_path(error, "first") is error
    assert at_path(error, "second").path == "first"


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(errors.FormatError, ValueError)
    assert issubclass(errors.OffsetOutOfRangeError, LookupError)
    assert issubclass(errors.MissingExtraError, ImportError)
    assert not any(issubclass(kind, OSError) for kind in CLASSES)
