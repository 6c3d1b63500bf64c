"""The usual fetch answers in one call, or leaves the question to those who have words."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg._kernels.fetch import fetch_batches
from tests.segments import batch_of

SIZES = (300, 17_000, 70_000, 200)


def a_segment(directory: Path) -> tuple[Path, bytes]:
    """Batches of one record each, smaller and larger than a window, with an entry for the second
    and for the third.
    """
    parts = [batch_of(size, base_offset=at) for at, size in enumerate(SIZES)]
    path = directory / "00000000000000000000.log"
    path.write_bytes(b"".join(parts))
    entries = [(1, SIZES[0]), (2, SIZES[0] + SIZES[1])]
    path.with_suffix(".index").write_bytes(
        b"".join(number.to_bytes(4, "big") for entry in entries for number in entry)
    )
    return path, path.read_bytes()


def fetched(path: Path, offset: int, bytes_max: int = 1000, *, size: int | None = None) -> Any:
    size = path.stat().st_size if size is None else size
    files = os.fsencode(path), os.fsencode(path.with_suffix(".index"))
    return fetch_batches(*files, 0, size, offset, size, bytes_max, True, True)


@pytest.mark.parametrize("offset", range(len(SIZES)))
@pytest.mark.parametrize("bytes_max", [0, 1, 500, 20_000, 1 << 30])
def test_the_bytes_from_any_offset_on_are_those_of_the_file(
    tmp_path: Path, offset: int, bytes_max: int
) -> None:
    path, whole = a_segment(tmp_path)
    position = sum(SIZES[:offset])
    size = min(max(bytes_max, SIZES[offset]), len(whole) - position)
    found = fetched(path, offset, bytes_max)
    assert found[:3] == (position, SIZES[offset], size)
    assert found[3] == whole[position : position + size]
    assert len(found[3].obj) == size  # nothing else is kept alive, or shown


def gone(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def damaged(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(SIZES[0] + 100)
        file.write(b"\xff")


def of_wrong_lengths(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(SIZES[0] + 8)
        file.write((2**31 - 1).to_bytes(4, "big"))


@pytest.mark.parametrize("suffix", [".log", ".index"])
@pytest.mark.parametrize("spoil", [gone, a_directory, a_pipe])
def test_what_the_system_refuses_has_no_answer(
    tmp_path: Path, spoil: Callable[[Path], None], suffix: str
) -> None:
    path, whole = a_segment(tmp_path)
    spoil(path.with_suffix(suffix))
    before = os.listdir("/proc/self/fd")
    assert fetched(path, 2, size=len(whole)) is None
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("spoil", [shorter, damaged, of_wrong_lengths])
def test_a_log_that_is_not_whole_has_no_answer(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    path, whole = a_segment(tmp_path)
    spoil(path)
    assert fetched(path, 1, size=len(whole)) is None


def test_an_index_that_leads_astray_has_no_answer(tmp_path: Path) -> None:
    path, _ = a_segment(tmp_path)
    path.with_suffix(".index").write_bytes(b"\0\0\0\1\0\0\1\0")
    assert fetched(path, 2) is None


def test_no_memory_is_taken_for_what_was_asked_beyond_the_file(tmp_path: Path) -> None:
    path, whole = a_segment(tmp_path)
    assert len(fetched(path, 0, 2**62)[3].obj) == len(whole)
