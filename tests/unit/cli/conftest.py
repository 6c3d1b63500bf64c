"""A command line run in this process, and small logs to run it on."""

from __future__ import annotations

import io
import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.golden import made


@dataclass(frozen=True)
class Ran:
    """What one command line did."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document."""
        (line,) = self.out.splitlines()
        return json.loads(line)


Kseg = Callable[..., Ran]


@pytest.fixture
def kseg(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Kseg:
    """Run `kseg` with these words; bytes for `stdin` are what it reads there."""

    def go(*words: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([str(word) for word in words])
        captured = capsysbinary.readouterr()
        return Ran(code, captured.out, captured.err.decode())

    return go


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """A system that refuses whatever would make a file longer, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def made_in(home: Path, make: Callable[[], None]) -> Path:
    """Make the files that sessions begin with in a directory; answers its `data`."""
    with chdir(home):
        make()
    return home / "data"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.orders) / "orders-0"


@pytest.fixture
def payments(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.payments) / "payments-0"
