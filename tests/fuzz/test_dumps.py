"""Some of the rounds that `python -m tests.fuzz.fuzz_dumps` runs, and what they must reach."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

from kseg.cli import row_writer
from kseg.format.reader import End
from tests.fuzz.fuzz_columns import Kept
from tests.fuzz.fuzz_dumps import search

ROUNDS = 400


def test_lines_straight_from_batches_are_those_from_columns() -> None:
    ends: Counter[int] = Counter()
    write_records = row_writer._text.write_records

    def counted(*given: Any, **more: Any) -> Any:
        end = write_records(*given, **more)
        ends[end.why] += 1
        return end

    with mock.patch.object(row_writer._text, "write_records", counted):
        assert search(Kept("suite"), ROUNDS) > 100 * ROUNDS
    assert all(ends[why] > ROUNDS / 8 for why in (End.END, End.FULL, End.ODD))
