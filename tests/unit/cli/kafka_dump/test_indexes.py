"""Entries of indexes that do not fit the log: what is printed, and the complaints behind it."""

from __future__ import annotations

import io
from pathlib import Path
from struct import pack

import pytest

from kseg.cli.kafka_dump.indexes import complaints, print_offset_index, print_time_index
from kseg.cli.kafka_dump.lines import DumpOptions, style_of
from kseg.errors import KsegError
from tests.builders import batch, record, write_segment

#: The bytes of each batch of `log`.
SIZE = 77
OPTIONS = DumpOptions(style_of(terminal=False))
SANITY = OPTIONS._replace(sanity_only=True)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Batches of two records, with the times 0 and -1, 1 and 0, 2 and 1."""
    parts = [
        batch(
            [record(b"v", timestamp=time), record(b"w", timestamp=time - 1)], base_offset=2 * time
        )
        for time in range(3)
    ]
    return write_segment(tmp_path, 0, *parts)


def printed(
    log: Path, offsets: bytes, times: bytes, options: DumpOptions = OPTIONS
) -> list[object]:
    """The lines and the complaints of both indexes."""
    found: list[object] = []
    log.with_suffix(".index").write_bytes(offsets)
    log.with_suffix(".timeindex").write_bytes(times)
    for print_index, suffix in ((print_offset_index, ".index"), (print_time_index, ".timeindex")):
        out = io.BytesIO()
        try:
            faults = print_index(log.with_suffix(suffix), options, out.write, print)
            found += complaints(faults, "index")
        except KsegError as error:
            found.append(str(error))
        found.append(out.getvalue())
    return found


def test_entries_that_differ_from_the_log(log: Path) -> None:
    offsets = pack(">iiiiii", 1, 0, 2, SIZE, 4, 2 * SIZE)
    times = pack(">qiqiqiqi", 5, 1, 1, 3, 1, 5, 2, 4)
    assert printed(log, offsets, times) == [
        "Mismatches in :index",
        "  Index offset: 4, log offset: 5",
        "  Index offset: 2, log offset: 3",
        b"offset: 1 position: 0\noffset: 2 position: 77\noffset: 4 position: 154\n",
        "Found timestamp mismatch in :index",
        "  Index timestamp: 5, log timestamp: 0",
        "  Index timestamp: 1, log timestamp: 2",
        "Found out of order timestamp in :index",
        "  Index timestamp: 1, Previously indexed timestamp: 5",
        "  Index timestamp: 1, Previously indexed timestamp: 1",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 4, found log offset: 5",
        b"timestamp: 5 offset: 1\ntimestamp: 1 offset: 3\n"
        b"timestamp: 1 offset: 5\ntimestamp: 2 offset: 4\n",
    ]


def test_entries_that_lead_to_no_batch(log: Path) -> None:
    offsets, times = pack(">iiii", 1, 7, 3, 8), pack(">qiqi", 5, -7, 6, 1 << 30)
    assert printed(log, offsets, times) == [
        f"{log} @ 7: the index points to no whole batch",
        b"",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: -7, found log offset: 1",
        "Indexed offset: 1073741824, found log offset: -1",
        b"timestamp: 5 offset: -7\ntimestamp: 6 offset: 1073741824\n",
    ]


def test_entries_beside_an_empty_log(log: Path) -> None:
    log.write_bytes(b"")
    assert printed(log, pack(">iiii", 1, 0, 3, SIZE), pack(">qiqi", 0, 1, 1, 3)) == [
        f"{log} @ 0: the index points to no whole batch",
        b"",
        f"@ {SIZE}: the index points outside of the log",
        b"timestamp: 0 offset: 1\n",
    ]


def test_entries_beside_offsets_that_go_down(log: Path) -> None:
    """There the first batch that ends past an offset is searched one by one."""
    parts = [
        batch([record(b"v", timestamp=at)], base_offset=base) for at, base in enumerate((9, 0))
    ]
    log.write_bytes(b"".join(parts) + bytes(17))
    size = len(parts[0])
    offsets, times = pack(">iiii", 0, size, 9, 0), pack(">qiqi", 1, 0, 2, 10)
    assert printed(log, offsets, times) == [
        b"offset: 0 position: %d\noffset: 9 position: 0\n" % size,
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 10, found log offset: -1",
        b"timestamp: 1 offset: 0\ntimestamp: 2 offset: 10\n",
    ]
    log.write_bytes(b"".join(parts) + bytes(18))
    assert printed(log, offsets, times)[1:] == [
        f"{log} @ {2 * size}: a size of 0 is smaller than that of any batch",
        b"timestamp: 1 offset: 0\n",
    ]
    log.write_bytes(b"".join(parts))
    shifted = pack(">ii", 0, 1)
    assert printed(log, shifted, times)[:1] == [f"{log} @ 1: the index points to no whole batch"]


@pytest.mark.parametrize(
    ("offsets", "times", "complaints"),
    [
        (pack(">ii", 1, 0), pack(">qi", 0, 1), []),
        (
            pack(">ii", -1, 0),
            pack(">qiqi", 5, 1, 4, 3),
            [
                "the last offset, -1, is below 0",
                "the last timestamp, 4, is below the first, 5",
            ],
        ),
        (pack(">iib", 1, 0, 0), b"x", ["9 bytes are not a multiple of 8", "1 bytes are not a"]),
    ],
)
def test_a_sanity_check_reads_no_log(
    log: Path, offsets: bytes, times: bytes, complaints: list[str]
) -> None:
    found = [str(line) for line in printed(log, offsets, times, SANITY) if line]
    assert len(found) == len(complaints)
    assert all(words in line for words, line in zip(complaints, found, strict=True))
