"""A read shared by threads: the same records, faults and errors as one thread gives, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg import KsegError, scan
from kseg.format.request import FIELDS, Request
from kseg.log.reader import view
from tests.builders import batch, record, write_segment

THREADS = (1, 2, 5)
WHERE: dict[str, dict[str, Any]] = {
    "all": {},
    "skip": {"on_corrupt": "skip"},
    "control": {"control": True, "on_corrupt": "skip"},
    "unchecked": {"verify_crc": False, "on_corrupt": "skip"},
    "offsets": {"offset": (3, 40)},
    "times": {"time": (1_000, None)},
    "committed": {"isolation": "read_committed"},
}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "PIECE_BYTES", 200)


def told(paths: Any, **where: Any) -> tuple[list[Any], list[str], str | None]:
    """The records, the faults that were skipped, and the error that ended it."""
    found, error = scan(paths, columns=("topic", "partition", *FIELDS), **where), None
    records: list[Any] = []
    try:
        for columns in found:
            rows = zip(*(_values(columns[name]) for name in FIELDS), strict=True)
            records += [(columns.topic, columns.partition, columns.source, *row) for row in rows]
    except KsegError as fault:
        error = f"{type(fault).__name__}: {fault}"
    return records, [str(fault) for fault in found.errors], error


def _values(column: Any) -> list[Any]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


@pytest.mark.one_case_in(15)
@pytest.mark.filterwarnings("ignore:kseg. .* read_committed ends")
@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
def test_any_number_of_threads_gives_the_same(fixture_case: Path, where: dict[str, Any]) -> None:
    directories = sorted({log.parent for log in fixture_case.rglob("*.log")})
    for directory in directories:
        one, *others = [told(directory, threads=threads, **where) for threads in THREADS]
        for other in others:
            assert other == one


def test_a_file_is_cut_where_batches_begin(tmp_path: Path) -> None:
    parts = [batch([record(b"v" * 50)], base_offset=at) for at in range(100)]
    path = write_segment(tmp_path / "t-0", 0, *parts)
    (log,) = tmp_path.rglob("*.log")
    assert path
    for threads in THREADS:
        offsets = [o for c in scan(log, threads=threads) for o in c["offset"].tolist()]
        assert offsets == list(range(100))
    with kseg.Segment.open(log) as segment:
        cuts = list(view._cuts(segment, Request()))
    assert len(cuts) > 20
    assert cuts[0] is None


def test_a_scan_that_is_left_ends_its_threads(tmp_path: Path) -> None:
    parts = [batch([record(b"v" * 50)], base_offset=at) for at in range(500)]
    write_segment(tmp_path / "t-0", 0, *parts)
    reading = iter(scan(tmp_path / "t-0", threads=3))
    assert next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert not [each for each in threading.enumerate() if each.name.startswith("kseg")]


@pytest.mark.parametrize("end", [OSError, MemoryError])
def test_faults_in_front_of_any_error_are_told(end: type[Exception]) -> None:
    fault = KsegError("damage")

    def read(request: Request) -> Iterator[Any]:
        yield "columns"
        assert request.on_error is not None
        request.on_error(fault)
        raise end

    results = view._results(read, Request(on_corrupt=print))
    assert [next(results), next(results)] == ["columns", fault]
    with pytest.raises(end):
        next(results)


@pytest.mark.parametrize("threads", [0, -1])
def test_fewer_threads_than_one_are_refused(tmp_path: Path, threads: int) -> None:
    with pytest.raises(ValueError, match="threads"):
        scan(tmp_path, threads=threads)
