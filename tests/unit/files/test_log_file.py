"""LogFile: tiles of any size show the same batches, and a lying length takes no memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kseg import CorruptRecordError, Segment
from kseg.constants import StopReason
from kseg.files import log_file
from kseg.files.log_file import LogFile, Tile
from kseg.files.mapping import MappedFile
from kseg.format.header import join_tables
from tests.builders import (
    GZIP,
    batch,
    message07,
    messages,
    record,
    wrapper,
    write_segment,
)
from tests.fuzz import ahead
from tests.fuzz.ahead import same
from tests.unit.log.brute import rows

#: What stands for a window and a large batch here.
WINDOW = 200


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(log_file, "TILE_BYTES", 2 * WINDOW)
    monkeypatch.setattr(log_file, "CHECKED_TILE_BYTES", 2 * WINDOW)
    monkeypatch.setattr(log_file, "BATCH_BYTES_TRUSTED", WINDOW)


def sized(size: int, offset: int = 0) -> bytes:
    """A batch of about so many bytes."""
    return batch([record(b"v" * (size - 75))], base_offset=offset)


SMALL, LARGE, HUGE = sized(100), sized(350, 1), sized(1000, 2)


def tiles(path: Path, mapping: Any = "never", **where: Any) -> list[Tile]:
    with LogFile.open(path, mapping) as file:
        return [Tile(memoryview(bytes(t.data)), t.base, t.table) for t in file.walk(**where)]


def seen(found: list[Tile]) -> tuple[list[int], int, StopReason]:
    """Positions of the batches, where the walk ended and why."""
    positions = [at for tile in found for at in tile.table.position.tolist()]
    return positions, found[-1].table.end_position, found[-1].table.stop


def test_a_walk_begins_and_ends_where_it_is_told(tmp_path: Path) -> None:
    parts = [SMALL, HUGE, LARGE, SMALL]
    path = write_segment(tmp_path, 0, *parts)
    starts = [sum(map(len, parts[:at])) for at in range(5)]
    for mapping in ("never", "always"):
        for first in range(5):
            for limit in range(first, 5):
                got = seen(tiles(path, mapping, start=starts[first], limit=starts[limit]))
                assert got[0] == starts[first:limit]
                inside = seen(tiles(path, mapping, start=starts[first], limit=starts[limit] + 1))
                assert inside[0] == starts[first : min(limit + 1, 4)]
        cut = seen(tiles(path, mapping, end=starts[3] + 20))
        assert cut == (starts[:3], starts[3], StopReason.TORN_TAIL)
        assert seen(tiles(path, mapping, start=10**9)) == ([], starts[4], StopReason.END)


def flip(data: bytes, at: int = -1) -> bytes:
    place = at % len(data)
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def lie(data: bytes, size: int) -> bytes:
    """The batch with another size in its head, and a checksum that no longer fits."""
    return data[:8] + (size - 12).to_bytes(4, "big") + data[12:]


REST = SMALL * 20
#: A large batch that is not what it says: of the log's formats, and whether it is Kafka 0.7's.
LARGE_LIES: dict[str, tuple[bytes, bool]] = {
    "a flipped byte": (flip(HUGE), False),
    "a length that lies": (lie(SMALL, 11 * len(SMALL)) + REST, False),
    "a length that lies, to the end": (lie(SMALL, len(SMALL) + len(REST)) + REST, False),
    "a message": (flip(messages([record(bytes(900))], magic=1)), False),
    "a message of magic 0": (flip(messages([record(bytes(900))], magic=0)), False),
    "a wrapper": (flip(wrapper([record(bytes(range(256)) * 40)], magic=1, codec=GZIP)), False),
    "a message of 0.7": (flip(message07(bytes(900))), True),
    "a message of 0.7 and magic 0": (flip(message07(bytes(900), magic=0)), True),
}


@pytest.mark.parametrize("name", LARGE_LIES)
@pytest.mark.parametrize("on_bad_crc", ["stop", "note", "ignore"])
def test_a_large_batch_that_lies_is_shown_by_its_header_alone(
    tmp_path: Path, name: str, on_bad_crc: str
) -> None:
    data, kafka07 = LARGE_LIES[name]
    path = write_segment(tmp_path, 0, data, suffix=".kafka" if kafka07 else ".log")
    mapped = tiles(path, "always", on_bad_crc=on_bad_crc)
    windowed = tiles(path, "never", on_bad_crc=on_bad_crc)
    assert seen(windowed) == seen(mapped)
    assert max(len(tile.data) for tile in windowed) <= WINDOW
    rows_windowed = np.concatenate([tile.table.rows for tile in windowed])
    rows_mapped = np.concatenate([tile.table.rows for tile in mapped])
    crc_ok = mapped[0].table.crc_ok
    if on_bad_crc == "ignore":  # what is too large to be believed is looked at all the same
        assert rows_windowed[0, 14] == 0
        assert set(rows_mapped[:, 14]) == {-1}
        rows_windowed, rows_mapped = (
            np.delete(one, 14, axis=1) for one in (rows_windowed, rows_mapped)
        )
    elif on_bad_crc == "note":
        assert crc_ok[0] == 0
        assert sum(tile.table.bad_crc_count for tile in windowed) == 1
    else:
        assert seen(windowed) == ([], 0, StopReason.BAD_CRC)
        for name in ("needed", "attributes_seen", "magics_seen", "bad_crc_count"):
            assert getattr(windowed[-1].table, name) == getattr(mapped[-1].table, name), name
    assert (rows_windowed == rows_mapped).all()


@pytest.mark.parametrize("name", LARGE_LIES)
def test_readers_report_a_large_batch_that_lies_and_go_on(tmp_path: Path, name: str) -> None:
    data, kafka07 = LARGE_LIES[name]
    tail = message07(b"tail") if kafka07 else SMALL
    path = write_segment(tmp_path, 0, data, tail, suffix=".kafka" if kafka07 else ".log")
    answers = []
    for mapping in ("always", "never"):
        errors: list[Any] = []
        with Segment.open(path, mapping=mapping) as segment:  # type: ignore[arg-type]
            got = rows(segment.read(columns=("offset", "value"), on_corrupt=errors.append))
        answers.append((got, [str(error) for error in errors]))
        assert errors[0].position == 0
        assert errors[0].stop is StopReason.BAD_CRC
        # Without checksums a window still shows no record of it, a map whatever is left.
        with Segment.open(path, mapping=mapping) as segment:  # type: ignore[arg-type]
            list(segment.read(verify_crc=False, on_corrupt=errors.append))
    assert answers[0] == answers[1]
    assert answers[0][0][-1]["value"] == (b"tail" if kafka07 else b"v" * 25)


def test_a_file_that_shrinks_between_windows_is_an_error(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 0, *[SMALL] * 20)
    with LogFile.open(path, "never") as file:
        walk = file.walk()
        assert len(next(walk).table) == 2
        with path.open("r+b") as other:
            other.truncate(350)
        with pytest.raises(CorruptRecordError, match="shrank") as caught:
            list(walk)
        assert caught.value.path == str(path)
        assert file.refresh() == 350
        assert seen([Tile(t.data, t.base, t.table) for t in file.walk()])[2] is StopReason.TORN_TAIL


ENDS = {
    "whole": b"",
    "torn": SMALL[:-1],
    "torn header": SMALL[:15],
    "zeros": bytes(300),
    "a wrong length, a sound batch behind it": SMALL[:8] + b"\x7f" + SMALL[9:] + sized(100, 9),
    "magic 3": SMALL[:16] + b"\x03" + SMALL[17:],
}


@pytest.mark.disk
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("policy", ["strict", "file"])
@pytest.mark.parametrize("mapping", ["always", "never", "never, each alone"])
def test_headers_alone_are_those_of_a_walk(
    tmp_path: Path, end: str, policy: str, mapping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mapping == "never, each alone":
        mapping = "never"
        monkeypatch.setattr(log_file, "CACHED_BYTES_MIN", 0)
        monkeypatch.setattr(log_file, "CACHED_RETRY_BYTES", 20)
    monkeypatch.setattr(log_file, "HEADERS_FIRST", 2)
    monkeypatch.setattr(log_file, "HEADERS_MAX", 5)
    parts = [SMALL, HUGE, SMALL, LARGE, SMALL] * 4
    path = write_segment(tmp_path, 0, *parts, ENDS[end])
    with LogFile.open(path, mapping) as file:
        second = len(SMALL) + len(HUGE)
        wheres: list[dict[str, Any]] = [{}, {"start": second}, {"limit": 1500}, {"end": 2000}]
        for where in wheres:
            where["policy"] = policy
            walked = [tile.table for tile in file.walk(on_bad_crc="ignore", **where)]
            tables = list(file.headers(**where))
            same(join_tables(tables, 0), join_tables(walked, 0))


def test_tables_of_headers_grow_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the smallest batches takes no more memory than another."""
    smallest = bytes(8) + (49).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(44)
    monkeypatch.setattr(log_file, "HEADERS_MAX", 1000)
    path = write_segment(tmp_path, 0, smallest * 5000)
    with LogFile.open(path, "always") as file:
        lengths = [len(table) for table in file.headers()]
    assert lengths == [64, 512, 1000, 1000, 1000, 1000, 424]


def bytes_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes come through windows while headers are walked."""
    sizes = []
    read = MappedFile.read

    def counted(self: MappedFile, position: int, size: int) -> memoryview:
        data = read(self, position, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(MappedFile, "read", counted)
    with LogFile.open(path, "never") as file:
        assert sum(map(len, file.headers())) > 100
    return sum(sizes)


@pytest.mark.disk
def test_of_large_batches_headers_alone_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    path = write_segment(tmp_path, 0, sized(20_000) * 110)
    if not len(ahead.cached(path, limit=1)):
        pytest.skip("a file system that does not tell what is in memory")
    assert bytes_read(path, monkeypatch) == 0


def test_windows_of_small_batches_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table holds fewer batches than a window: that is no reason to read on behind them."""
    monkeypatch.setattr(log_file, "HEADERS_MAX", 3)
    monkeypatch.setattr(log_file, "WINDOW_BYTES", 20 * len(SMALL))
    monkeypatch.setattr(log_file, "BATCH_BYTES_TRUSTED", 1 << 20)
    path = write_segment(tmp_path, 0, SMALL * 400)
    assert bytes_read(path, monkeypatch) < 401 * len(SMALL)
