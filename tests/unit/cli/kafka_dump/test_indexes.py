"""Index entries compared in bulk: the same lines and faults as one by one, and none looked at."""

from __future__ import annotations

import io
import random
from pathlib import Path
from struct import pack

import numpy as np
import pytest

from kseg.cli.kafka_dump import indexes
from kseg.cli.kafka_dump.indexes import print_offset_index, print_time_index
from kseg.cli.kafka_dump.options import IndexOptions
from kseg.errors import KsegError
from tests.builders import GZIP, batch, message, record, wrapper, write_segment


def indexed(directory: Path, base: int, seed: int | None = None) -> Path:
    """A log of batches with both of its indexes; some bytes of them changed, if there is a seed."""
    rng = random.Random(seed)
    times = [rng.randrange(-1, 50) if seed is not None else n for n in range(30)]
    parts, entries, time_entries, position = [], [], [], 0
    for n, time in enumerate(times):
        given = [record(b"v", timestamp=time), record(b"w", timestamp=time - 1)]
        first, last = base + 2 * n, 2 * n + 1
        if seed is not None and seed % 3 == 0:
            part = wrapper(given, magic=1, codec=GZIP, base_offset=first)
        elif seed is not None and seed % 3 == 1:
            part = message(given[0], magic=1, offset=base + last)
        else:
            part = batch(given, base_offset=first)
        entries.append(pack(">ii", last, position))
        time_entries.append(pack(">qi", time, last))
        parts.append(part)
        position += len(part)
    log = write_segment(directory, base, *parts)
    for suffix, slots in ((".index", entries), (".timeindex", time_entries)):
        data = bytearray(b"".join(slots))
        for _ in range(rng.randrange(4) if seed is not None else 0):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        log.with_suffix(suffix).write_bytes(data)
    if seed is not None and seed % 5 == 0:
        damaged = bytearray(log.read_bytes())
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        log.write_bytes(damaged)
    return log


def told(log: Path, options: IndexOptions) -> list[object]:
    """All that is printed and complained of for both indexes."""
    found: list[object] = []
    for print_index, suffix in ((print_offset_index, ".index"), (print_time_index, ".timeindex")):
        out = io.BytesIO()
        try:
            faults = print_index(log.with_suffix(suffix), options, out.write, lambda line: None)
            found += faults.lines("index")
        except KsegError as error:
            found.append(str(error))
        found.append(out.getvalue())
    return found


@pytest.mark.parametrize("size", [5 * 1024 * 1024, 90])
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_entries_in_bulk_are_told_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, size: int
) -> None:
    options = IndexOptions(max_message_size=size)
    for seed in range(first, first + 30):
        log = indexed(tmp_path / f"seed-{seed}", 0 if seed % 2 else 1000, seed)
        bulk = told(log, options)
        with monkeypatch.context() as patch:
            patch.setattr(
                indexes, "_known_ends", lambda _log, at, _size: np.full(len(at), -(2**63))
            )
            patch.setattr(indexes, "_doubtful", lambda *given: range(len(given[3])))
            assert bulk == told(log, options), seed


def test_entries_that_fit_are_not_looked_at_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = indexed(tmp_path, 7)
    for name in ("_last_offset", "_compare", "stored_position"):
        monkeypatch.setattr(indexes, name, None)
    found = told(log, IndexOptions())
    assert len(found) == 2
    assert [lines.count(b"\n") for lines in found if isinstance(lines, bytes)] == [30, 30]


def test_entries_that_all_lead_nowhere_are_told(tmp_path: Path) -> None:
    """No entry leads to a batch, so that none is left to compare in bulk."""
    log = indexed(tmp_path, 0)
    log.with_suffix(".index").write_bytes(pack(">iiii", 1, 7, 3, 8))
    log.with_suffix(".timeindex").write_bytes(pack(">qiqi", 5, -7, 6, 1 << 30))
    assert told(log, IndexOptions()) == [
        f"{log} @ 7: the index points to no whole batch",
        b"",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: -7, found log offset: 1",
        "Indexed offset: 1073741824, found log offset: -1",
        b"timestamp: 5 offset: -7\ntimestamp: 6 offset: 1073741824\n",
    ]


def test_indexes_beside_an_empty_log_are_told(tmp_path: Path) -> None:
    log = indexed(tmp_path, 0)
    log.write_bytes(b"")
    assert told(log, IndexOptions()) == [
        f"{log} @ 0: the index points to no whole batch",
        b"",
        "@ 77: the index points outside of the log",
        b"timestamp: 0 offset: 1\n",
    ]
