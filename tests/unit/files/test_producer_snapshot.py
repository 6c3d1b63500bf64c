from __future__ import annotations

import dataclasses
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg._core import crc32c
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import io, producer_snapshot
from kseg.files.producer_snapshot import (
    ProducerSnapshotEntry,
    flush,
    read,
    to_bytes,
    write,
)
from tests.crash.faults import Fault, Faulty

ENTRY = struct.Struct(">qhiqiqiq")
OPEN = ProducerSnapshotEntry(1, 2, 1, 2, 3, -1, 3, 100)
MARKER_ONLY = ProducerSnapshotEntry(11, 12, -1, -1, 0, 123456, 13, -1)


def snapshot(*entries: ProducerSnapshotEntry, version: int = 1, count: int | None = None) -> bytes:
    fields = [[getattr(entry, name) for name in entry.__slots__] for entry in entries]
    body = struct.pack(">i", len(entries) if count is None else count)
    body += b"".join(ENTRY.pack(*values) for values in fields)
    return struct.pack(">hI", version, crc32c(body)) + body


def test_a_flip_of_any_bit_is_corrupt() -> None:
    for bit in range(8 * len(snapshot(OPEN))):
        data = bytearray(snapshot(OPEN))
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptIndexError):
            read(bytes(data))


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1, -(2**31)])
def test_a_count_that_lies_under_a_good_crc_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptIndexError, match="do not fill"):
        read(snapshot(OPEN, MARKER_ONLY, count=count))


int16, int32, int64 = (st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (16, 32, 64))
entries = st.builds(ProducerSnapshotEntry, int64, int16, int32, int64, int32, int64, int32, int64)


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_corrupt(data: bytes) -> None:
    try:
        read(data)
    except CorruptIndexError as error:
        assert error.position in (0, 2, 6)  # noqa: PT017


# ---- writing -------------------------------------------------------------------------------------


@given(st.lists(entries, max_size=6))
def test_any_entries_are_written_as_the_plain_encoder_does(
    made: list[ProducerSnapshotEntry],
) -> None:
    assert to_bytes(made) == snapshot(*made)


@pytest.mark.parametrize("sync", [True, False])
def test_a_shorter_snapshot_leaves_nothing_of_a_longer_one(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "9.snapshot"
    for made in ((OPEN, MARKER_ONLY, OPEN), (MARKER_ONLY,), ()):
        write(path, made, sync=sync)
        assert path.read_bytes() == snapshot(*made)
    assert os.listdir(tmp_path) == ["9.snapshot"]


@pytest.mark.parametrize("sync", [True, False])
def test_a_copy_that_shares_the_bytes_keeps_them(tmp_path: Path, sync: bool) -> None:
    path, kept = tmp_path / "9.snapshot", tmp_path / "kept"
    write(path, [OPEN])
    kept.hardlink_to(path)
    write(path, [MARKER_ONLY], sync=sync)
    assert (read(kept), read(path)) == ((OPEN,), (MARKER_ONLY,))


@pytest.mark.parametrize("sync", [False, True])
def test_half_a_snapshot_does_not_stay(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / f"{7:020d}.snapshot"
    full = Faulty(Fault(2, "ENOSPC"))
    with io.calls_replaced(full.calls), pytest.raises(OSError, match="No space"):
        write(path, [OPEN], sync=sync)
    assert full.hits
    assert list(tmp_path.iterdir()) == []


def test_a_name_without_a_directory_is_one_in_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write("9.snapshot", [OPEN], sync=False)
    flush("9.snapshot")
    assert read("9.snapshot") == (OPEN,)


@pytest.mark.parametrize(
    "wrong", [{"producer_epoch": 2**15}, {"last_sequence": 2**31}, {"producer_id": -(2**63) - 1}]
)
def test_a_number_without_room_is_refused_and_nothing_written(
    tmp_path: Path, wrong: dict[str, int]
) -> None:
    path = tmp_path / "9.snapshot"
    write(path, [OPEN])
    with pytest.raises(ValueError, match="room"):
        write(path, [dataclasses.replace(OPEN, **wrong)])
    assert read(path) == (OPEN,)


def test_more_than_is_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_snapshot, "SNAPSHOT_BYTES_MAX", 10 + 2 * 46)
    assert len(to_bytes([OPEN] * 2)) == 10 + 2 * 46
    with pytest.raises(LimitExceededError):
        to_bytes([OPEN] * 3)
