"""Readers beside a writer that rolls, deletes and cuts: no signal, no batch that was not there.

32,000 reads by two threads and two processes; `python -m tests.memory.beside 250000 SEED` makes a
million.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from kseg.format.columns import decode
from kseg.format.header import scan
from kseg.format.request import Request
from tests import places
from tests.memory import beside
from tests.memory.beside import Tally, batch_at

READS_EACH = 8_000


def test_thousands_of_reads_see_what_was_there() -> None:
    with tempfile.TemporaryDirectory(dir=places.in_memory()) as place:
        total, writer = beside.run(Path(place), reads=READS_EACH, threads=2, processes=2, seed=41)
    print(total.reads, total.batches, dict(writer.done), dict(total.refused))
    assert total.wrong == []
    assert total.reads >= 4 * READS_EACH
    # What was meant to be in their way was.
    assert all(writer.done[what] > 3 for what in ("append", "roll", "delete", "truncate"))


def looked_at(data: bytes) -> list[str]:
    """What the check says of some bytes."""
    tally = Tally()
    view = memoryview(data)
    pieces = decode(view, scan(view), Request(columns=("offset", "value")))
    beside.check_bytes(view, tally, deep=True, columns=pieces)
    return tally.wrong


def test_the_check_knows_a_batch_in_the_wrong_place() -> None:
    first, second = batch_at(5, 3, 0, 10), batch_at(8, 2, 0, 10)
    assert looked_at(first + second) == []
    assert looked_at(second + first) == ["offset 5 behind 9"]
    moved = (6).to_bytes(8, "big") + first[8:]
    assert looked_at(moved)[0] == f"{b'5 '.ljust(12, bytes(1))!r} at 6"


def test_the_check_knows_what_was_cut_away() -> None:
    ends = [100, 50, 70]
    assert beside._was_there(ends, 99, 0, 1)
    assert not beside._was_there(ends, 100, 0, 1)
    assert not beside._was_there(ends, 60, 0, 2)
    assert not beside._was_there(ends, 60, 2, 1)  # it was not written yet
    assert beside._was_there(ends, 60, 2, 3)
    assert not beside._was_there(ends, 70, 2, 3)
