"""A segment reads the same whether its file is mapped or read through windows of any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kseg.errors import KsegError
from kseg.files import log_file
from kseg.format.request import FIELDS
from kseg.log.segment import pieces
from kseg.log.segment.reader import Segment
from tests import builders
from tests.builders import record
from tests.property.oracle import flat, rows_of
from tests.property.strategies import logs, tails

ONE = builders.batch([record(b"x" * 40)])


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Windows of a size that the test sets; every larger batch is then checked in windows first."""
    return monkeypatch


def read(
    path: Path, mapping: str, **how: Any
) -> tuple[list[dict[str, Any]], tuple[str, str] | None]:
    """Rows up to the first error, and that error without its wording's numbers."""
    rows: list[dict[str, Any]] = []
    with Segment.open(path, mapping=mapping, is_last=False) as segment:  # type: ignore[arg-type]
        try:
            for piece in segment.read(columns=FIELDS, control=True, **how):
                rows.extend(flat(iter([piece])))
        except KsegError as error:
            return rows, (type(error).__name__, error.reason)
    return rows, None


@given(data=logs, tail=tails, window_bytes=st.integers(17, 600))
@example(data=ONE, tail=b"\x01" * 11, window_bytes=len(ONE))
@example(data=ONE, tail=bytes(200) + b"\x01", window_bytes=len(ONE) + 50)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mapped_and_windowed_segments_read_alike(
    tmp_path: Path,
    small_windows: pytest.MonkeyPatch,
    data: bytes,
    tail: bytes,
    window_bytes: int,
) -> None:
    small_windows.setattr(log_file, "WINDOW_BYTES", window_bytes)
    small_windows.setattr(log_file, "BATCH_BYTES_TRUSTED", window_bytes * 2)
    path = builders.write_segment(tmp_path, 0, data, tail)
    mapped, mapped_error = read(path, "always")
    windowed, windowed_error = read(path, "never")
    assert windowed == mapped == rows_of(data + tail)
    assert windowed_error == mapped_error


@given(data=logs, first=st.integers(0, 4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_from_a_batch_s_position_gives_the_rest(
    tmp_path: Path, data: bytes, first: int
) -> None:
    path = builders.write_segment(tmp_path, 0, data)
    with Segment.open(path) as segment:
        starts = [*segment.batches().position.tolist(), len(data)]
        start = starts[min(first, len(starts) - 1)]
        pieces: Iterator[Any] = segment.read(columns=FIELDS, control=True, start_position=start)
        rest = flat(pieces)
    assert rest == [row for row in rows_of(data) if row["position"] >= start]


@given(data=logs, tail=tails, window_bytes=st.integers(17, 600), salt=st.integers(0, 2**20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_keep_leaves_out_is_missing_and_nothing_else(
    tmp_path: Path,
    small_windows: pytest.MonkeyPatch,
    data: bytes,
    tail: bytes,
    window_bytes: int,
    salt: int,
) -> None:
    def stays(position: Any) -> Any:
        return (position ^ salt) % 5 % 2 == 0

    small_windows.setattr(log_file, "WINDOW_BYTES", window_bytes)
    small_windows.setattr(log_file, "BATCH_BYTES_TRUSTED", window_bytes * 2)
    small_windows.setattr(pieces, "_BATCHES_AHEAD", 1 + salt % 4)
    small_windows.setattr(pieces, "_BYTES_AHEAD", window_bytes)
    path = builders.write_segment(tmp_path, 0, data, tail)
    everything, error = read(path, "always")
    expected = [row for row in everything if stays(row["position"])]
    for mapping in ("always", "never"):
        assert read(path, mapping, keep=lambda table: table.take(stays(table.position))) == (
            expected,
            error,
        )
