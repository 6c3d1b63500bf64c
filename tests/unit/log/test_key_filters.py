"""Filters of keys: what they leave unread, and that none of them hides a record."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kseg
from kseg import keyfilter, scan
from kseg.format.key_filters import HEAD_BYTES, parse_head, table_bytes
from kseg.log import key_filters
from kseg.log.segment.reader import Segment
from tests.builders import GZIP, ZSTD, record, records_of, write_segment

SEGMENTS = 4


@pytest.fixture(autouse=True)
def small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches that small logs have several of, and files that are settled at once."""
    monkeypatch.setattr(key_filters, "STRETCH_BYTES", 1024)
    monkeypatch.setattr(key_filters, "_SETTLED_NS", -(10**18))


def write_log(directory: Path, *, magic: int = 2, codec: int = 0, salt: int = 0) -> list[bytes]:
    """Some segments; returns the keys of their records."""
    rng = random.Random(salt)
    keys: list[bytes] = []
    for _ in range(SEGMENTS):
        first, parts = len(keys), []
        for _ in range(12):
            some = [rng.randbytes(rng.choice((0, 3, 8, 40))) for _ in range(9)]
            records = [record(rng.randbytes(30), key=key, timestamp=1) for key in some]
            parts.append(records_of(records, magic=magic, codec=codec, base_offset=len(keys)))
            keys += some
        write_segment(directory, first, *parts)
    return keys


def offsets(found: kseg.Scan) -> list[int]:
    return [offset for columns in found for offset in columns["offset"].tolist()]


def expect_all(
    directory: Path, place: Path, keys: list[bytes], *, step: int = 7, **options: Any
) -> None:
    """Each key, or every so many, is found where it is."""
    for key in dict.fromkeys([*keys[::step], b"absent"]):
        found = scan(directory, key=key, filters=place, columns=("offset",), **options)
        assert offsets(found) == [at for at, other in enumerate(keys) if other == key]


@pytest.mark.parametrize(("magic", "codec"), [(2, 0), (2, ZSTD), (1, 0), (1, GZIP), (0, GZIP)])
def test_every_key_is_found_and_no_other(tmp_path: Path, magic: int, codec: int) -> None:
    data, place = tmp_path / "data" / "t-0", tmp_path / "filters"
    keys = write_log(data, magic=magic, codec=codec)
    written = keyfilter(tmp_path / "data", place)
    assert [row["records"] for row in written.table_rows()] == [108] * (SEGMENTS - 1)
    expect_all(data, place, keys)
    expect_all(data, place, keys, step=40, threads=2)
    assert keyfilter(data, place, threads=2).rows == ()  # all fit


def test_a_key_that_is_rare_reads_two_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_filters, "STRETCH_BYTES", 256 << 10)
    rng = np.random.default_rng(5)
    data, place, total = tmp_path / "data" / "t-0", tmp_path / "filters", 0
    for number in range(11):
        keys = rng.bytes(16 * 8_000)
        each = [keys[at : at + 16] for at in range(0, len(keys), 16)]
        if number == 4:
            each[77] = b"rare"
        batches = kseg.encode_batches(
            {"key": each, "value": [bytes(1_000)] * len(each)}, base_offset=8_000 * number
        )
        path = write_segment(data, 8_000 * number, *(batch.data for batch in batches))
        total += path.stat().st_size
    keyfilter(tmp_path / "data", place)
    read: list[int] = []
    usual = Segment.read

    def counted(self: Segment, request: Any = None, **how: Any) -> Any:
        read.append((how["end_position"] or self.size) - (how["start_position"] or 0))
        return usual(self, request, **how)

    monkeypatch.setattr(Segment, "read", counted)
    (data / f"{80_000:020d}.log").write_bytes(b"")
    assert offsets(scan(data, key=b"rare", filters=place)) == [4 * 8_000 + 77]
    assert 0 < sum(read) <= 0.02 * total


def test_bytes_of_a_filter_that_changed_hide_nothing(tmp_path: Path) -> None:
    data, place = tmp_path / "data" / "t-0", tmp_path / "filters"
    keys = write_log(data)
    keyfilter(data, place)
    path = place / "t-0" / f"{0:020d}.keys"
    sound = path.read_bytes()
    rng = random.Random(3)
    some = keys[:108:20]
    for round_ in range(1_500 if os.environ.get("KSEG_WHOLE") else 60):
        changed = bytearray(sound)
        if round_ % 3 == 0:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        elif round_ % 3 == 1:
            at = rng.randrange(len(changed))
            changed[at : at + rng.choice((1, 60, 64, 500))] = bytes(rng.choice((1, 64, 300)))
        else:
            del changed[rng.randrange(len(changed)) :]
        path.write_bytes(changed)
        wanted = rng.choice(some)
        assert keys.index(wanted) in offsets(scan(data, key=wanted, filters=place))
    for other in (b"", bytes(len(sound)), (place / "t-0" / f"{108:020d}.keys").read_bytes()):
        path.write_bytes(other)
        for key in some[:3]:
            assert keys.index(key) in offsets(scan(data, key=key, filters=place))


def test_counts_that_a_filter_claims_allocate_nothing() -> None:
    head = bytearray(HEAD_BYTES)
    head[:8] = b"KSEGKEY1"
    head[64:68] = b"\xff" * 4
    assert table_bytes(bytes(head), 1 << 20) == 0
    assert parse_head(bytes(head), 1 << 20, b"") is None
    assert parse_head(b"KSEG", 4, b"") is None


@pytest.mark.parametrize("same_file", [False, True])
def test_a_segment_that_changed_since_is_searched_whole(tmp_path: Path, same_file: bool) -> None:
    """Also if its size, its name and its time of modification are as they were."""
    data, place = tmp_path / "data" / "t-0", tmp_path / "filters"
    write_log(data)
    keyfilter(data, place)
    other = write_log(tmp_path / "other" / "t-0", salt=1)
    for log in sorted(data.glob("*.log")):
        status, source = log.stat(), tmp_path / "other" / "t-0" / log.name
        if same_file:
            log.write_bytes(source.read_bytes())
        else:
            os.replace(source, log)
        os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    expect_all(data, place, other)


def test_a_copy_uses_the_filters_of_the_original(tmp_path: Path) -> None:
    """The headers tell that the bytes are the same."""
    data, place = tmp_path / "data" / "t-0", tmp_path / "filters"
    keys = write_log(data)
    keyfilter(data, place)
    shutil.copytree(data, tmp_path / "copy" / "t-0")
    filters = key_filters.KeyFilters(place).spans_for(b"absent")
    with Segment.open(tmp_path / "copy" / "t-0" / f"{0:020d}.log") as segment:
        assert filters(segment) == []
    expect_all(tmp_path / "copy" / "t-0", place, keys, step=30)


def test_damage_is_read_as_it_was_without_filters(tmp_path: Path) -> None:
    data, place = tmp_path / "data" / "t-0", tmp_path / "filters"
    keys = write_log(data)
    log = data / f"{0:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[-1] ^= 1  # the last batch: its records have keys that no filter can know
    log.write_bytes(damaged)
    keyfilter(data, place)
    with pytest.raises(kseg.CorruptRecordError):
        offsets(scan(data, key=b"absent", filters=place))
    found = scan(data, key=keys[0], filters=place, on_corrupt="skip")
    assert offsets(found)[0] == 0
    assert len(found.errors) == 1


def test_places_that_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "data" / "t-0"
    write_log(data)
    for place in (data, tmp_path / "data", tmp_path / "data" / "filters", data / "filters"):
        with pytest.raises(ValueError, match="lies in a data directory"):
            keyfilter(data, place)
    unsafe = tmp_path / "unsafe"
    unsafe.mkdir()
    unsafe.chmod(0o777)
    with pytest.raises(PermissionError):
        keyfilter(data, unsafe)
    with pytest.raises(PermissionError):
        scan(data, key=b"a", filters=unsafe)
    with pytest.raises(FileNotFoundError):
        scan(data, key=b"a", filters=tmp_path / "absent")
    assert not list((tmp_path / "data").rglob("*.keys"))


def test_a_log_without_closed_segments_has_no_filters(tmp_path: Path) -> None:
    data, place = tmp_path / "data" / "t-0", tmp_path / "filters"
    write_segment(data, 0, records_of([record(b"v", key=b"k")], magic=2, codec=0, base_offset=0))
    assert keyfilter(data, place).rows == ()
    assert offsets(scan(data, key=b"k", filters=place)) == [0]
