"""A log that another process holds and writes: whole batches are seen, and nothing crashes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kseg import CorruptRecordError, Log, Segment, scan
from kseg.constants import StopReason
from tests.builders import batch, record, write_segment
from tests.unit.log.brute import Whole, rows
from tests.unit.log.writing import writing

#: Plain, compressed and old batches, as a broker wrote them.
SOURCES = [
    "new/4.2.0-plain/plain-0",
    "new/4.2.0-lz4/lz4-mixed-0",
    "old/0.10.0.1-fmt-mixed/fmt-mixed-0",
]


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, fixtures_dir: Path) -> Path:
    """A segment of a fixture, to copy batches from."""
    segment: Path = sorted((fixtures_dir / request.param).glob("*.log"))[0]
    return segment


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The empty first segment of `data/live-0`."""
    return write_segment(tmp_path / "data" / "live-0", 0)


def offsets(log: Log) -> list[int]:
    return [row["offset"] for row in rows(log.read(fields=("offset",), control=True))]


def test_a_reader_sees_whole_batches_of_a_log_that_grows(source: Path, live: Path) -> None:
    whole = Whole.of(source)
    ends = (whole.table.position + whole.table.size).tolist()[:20]
    with writing(live.parent.parent, live) as writer:
        log, written = Log.open(live.parent), 0
        for end in ends:
            before = offsets(log)
            # Half a batch, then all of it: the first half is nobody's record yet.
            middle = (written + end) // 2
            writer.append(source, written, middle)
            assert offsets(log) == before
            log = log.refresh()
            assert offsets(log) == before
            writer.append(source, middle, end)
            written = end
            assert offsets(log) == before
            log = log.refresh()
            assert offsets(log) == whole.offsets[whole.positions < end].tolist()
            last = int(whole.table.last_offset[ends.index(end)])
            assert log.log_end_offset == log.last_stable_offset == last + 1
            assert log.lookup(last).position == int(whole.table.position[ends.index(end)])
        with Segment.open(live) as segment:
            assert not segment.mapped


def test_a_reader_goes_on_while_batches_are_appended_behind_its_snapshot(
    source: Path, live: Path
) -> None:
    whole = Whole.of(source)
    end = int(whole.table.position[len(whole.table) // 2])
    size = source.stat().st_size
    with writing(live.parent.parent, live) as writer:
        writer.append(source, 0, end)
        seen: list[int] = []
        for piece in Log.open(live.parent).read(fields=("offset",), max_rows=5, control=True):
            seen += piece.offset.tolist()
            if len(seen) == 5:
                writer.append(source, end, size - 3)
        assert seen == whole.offsets[whole.positions < end].tolist()


def test_a_log_that_is_cut_under_a_reader_is_an_error(live: Path) -> None:
    source = live.parent.parent / "source"
    source.write_bytes(b"".join(batch([record(bytes(3000))], base_offset=at) for at in range(400)))
    with writing(live.parent.parent, live) as writer:
        writer.append(source, 0, source.stat().st_size)
        reading = Log.open(live.parent).read(max_rows=1)
        assert len(next(reading)) == 1
        writer.cut(5000)
        with pytest.raises(CorruptRecordError, match="shrank") as caught:
            list(reading)
        assert caught.value.path == str(live)
        errors: list[CorruptRecordError] = []
        log = Log.open(live.parent)
        assert [row["offset"] for row in rows(log.read(on_error=errors.append))] == [0]  # type: ignore[arg-type]
        assert errors == []
        with Segment.open(live) as segment:
            assert segment.batches().stop is StopReason.TORN_TAIL


# A reader that maps the file would be killed here; a process of its own says what becomes of it.
READER = """
import sys, kseg
reading = kseg.scan(sys.argv[1], max_rows=1, fields=("value",)).to_reader()
print(len(reading.read_next_batch()), flush=True)
sys.stdin.readline()
try:
    for piece in reading:
        pass
except kseg.CorruptRecordError as error:
    print(type(error).__name__, error.position)
"""


def test_no_signal_kills_a_reader_whose_file_is_cut(live: Path) -> None:
    source = live.parent.parent / "source"
    source.write_bytes(batch([record(bytes(50_000))]) * 40)
    with writing(live.parent.parent, live) as writer:
        writer.append(source, 0, source.stat().st_size)
        command = [sys.executable, "-W", "error", "-c", READER, str(live.parent)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "1\n"
            writer.cut(0)
            out, _ = reader.communicate("\n")
        assert reader.returncode == 0
        assert out.startswith("CorruptRecordError ")


def test_retention_under_a_reader_is_a_missing_file_or_none(live: Path) -> None:
    partition = live.parent
    parts = [batch([record()], base_offset=at) for at in range(4)]
    live.write_bytes(b"".join(parts[:2]))
    write_segment(partition, 2, *parts[2:])
    with writing(partition.parent, live) as writer:
        log = Log.open(partition)
        begun = log.records(max_rows=1)
        assert next(begun).offset == 0
        writer.delete(live)
        # The one that is open is read to its end; what is opened later is gone.
        assert [got.offset for got in begun] == [1, 2, 3]
        with pytest.raises(FileNotFoundError):
            list(log.records())
        with pytest.raises(FileNotFoundError):
            list(scan(live))
        assert offsets(log.refresh()) == [2, 3]
        assert [row["offset"] for row in rows(scan(partition, fields=("offset",)))] == [2, 3]
