"""A command line run in this process, and small logs to run it on."""

from __future__ import annotations

import io
import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.builders import ABORT, COMMIT, ZSTD, batch, control_batch, record, write_segment


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


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """`data/orders-0`: two segments, ten records at offsets 0 to 9, one second apart."""
    directory = tmp_path / "data" / "orders-0"
    given = [
        record(b"value %d" % n, key=b"key %d" % (n % 3), timestamp=1_760_000_000_000 + 1000 * n)
        for n in range(10)
    ]
    given[3] = record(None, key=None, timestamp=given[3].timestamp)
    given[4] = record(b"", key=b"", headers=[(b"h", b"x"), (b"n", None)], timestamp=1)
    write_segment(directory, 0, batch(given[:2]), batch(given[2:6], base_offset=2, codec=ZSTD))
    write_segment(directory, 6, batch(given[6:], base_offset=6, leader_epoch=1))
    return directory


@pytest.fixture
def payments(tmp_path: Path) -> Path:
    """`data/payments-0`: offsets 0 committed, 2 aborted, 4 open, and the two markers 1 and 3."""
    directory = tmp_path / "data" / "payments-0"

    def data(offset: int) -> bytes:
        value = [record(b"paid %d" % offset, timestamp=5)]
        return batch(
            value,
            base_offset=offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    parts = (
        data(0),
        control_batch(COMMIT, base_offset=1, producer_id=7),
        data(2),
        control_batch(ABORT, base_offset=3, producer_id=7),
        data(4),
    )
    write_segment(directory, 0, *parts)
    return directory


def overlapping(root: Path) -> Path:
    """Segments of offsets 0 to 7 and 5 to 9, a batch each."""
    directory = root / "data" / "orders-0"
    for base, count in ((0, 8), (5, 5)):
        given = [record(b"of %d" % base) for _ in range(count)]
        write_segment(
            directory, base, *(batch([one], base_offset=base + n) for n, one in enumerate(given))
        )
    return directory
