"""What is said where an optional package cannot be imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from kseg.errors import MissingExtraError
from kseg.extras import require


class Fails:
    """A finder that fails for one package."""

    def __init__(self, name: str, error: ImportError) -> None:
        self.name, self.error = name, error

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] == self.name:
            raise self.error
        return None


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (
            ModuleNotFoundError("No module named 'absent'", name="absent"),
            MissingExtraError,
            "absent is not installed; pip install",
        ),
        (
            ModuleNotFoundError("No module named 'beneath'", name="beneath.part"),
            MissingExtraError,
            "beneath is not installed; pip install",
        ),
        (ImportError("libx.so: failed to map segment from shared object"), MemoryError, "libx"),
        (ImportError("libx.so: Cannot allocate memory"), MemoryError, "libx"),
        (ImportError("numpy 1 is too old"), ImportError, "too old"),
        (MissingExtraError("pyarrow is not installed"), MissingExtraError, "pyarrow"),
    ],
)
def test_an_import_that_fails_is_not_taken_for_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
    error: ImportError,
    raised: type[Exception],
    said: str,
) -> None:
    monkeypatch.setattr(sys, "meta_path", [Fails("absent", error), *sys.meta_path])
    with pytest.raises(raised, match=said) as caught:
        require("absent.part", extra="arrow")
    assert type(caught.value) is raised


def test_a_package_that_no_extra_brings_is_named_itself() -> None:
    with pytest.raises(MissingExtraError, match="; pip install not_there brings it"):
        require("not_there")
