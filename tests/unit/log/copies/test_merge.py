"""What a merged log takes: the original of damaged copies, the history of the last leader."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kseg.format.header import COLUMN
from kseg.log.copies import source
from kseg.log.copies.merge import PartitionMerge, plan_merge
from kseg.log.copies.source import COLUMNS, FIRST, LAST, windows
from tests.builders import write_segment
from tests.unit.analysis.copied import told, write_copy

BASE = told(9)


def planned(root: Path, *copies: Path, prefer: Path | None = None) -> PartitionMerge:
    (merge,) = plan_merge(*copies, out=root / "out", prefer=prefer).partitions
    return merge


def test_very_many_gaps_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kseg.log.copies.choosing.MISSING_MAX", 3)
    base = told(30)
    copies = [write_copy(tmp_path / name / "t-0", base, per_segment=1) for name in "ab"]
    for copy in copies:
        for number in range(3, 27, 4):
            (copy / f"{base[number].first:020d}.log").unlink()
    merge = planned(tmp_path, *copies)
    assert [(one.first_offset, one.last_offset, one.at_most) for one in merge.missing] == [
        (6, 7, False),
        (14, 15, False),
        (22, 47, True),
    ]


def test_a_copy_that_cannot_be_read_is_told_and_the_others_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kseg.log.copies.source import Copy

    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "abc"]
    read = Copy.read

    def refused(path: str, **how: Any) -> Copy:
        if path == str(copies[1]):
            raise PermissionError(13, "Permission denied", path)
        return read(path, **how)

    monkeypatch.setattr(Copy, "read", refused)
    plan = plan_merge(*copies, out=tmp_path / "out")
    (merge,) = plan.partitions
    assert merge.copies[-1].error == "Permission denied"
    assert (merge.log_end_offset, plan.is_whole, plan.ok) == (18, True, False)


def test_an_epoch_for_each_batch_takes_time_in_proportion(tmp_path: Path) -> None:
    """Thousands of epochs: less than a second, if all are not gone through for each."""
    template = bytearray(BASE[0].data)
    batches = []
    for number in range(4_000):
        template[0:8] = (2 * number).to_bytes(8, "big")
        template[12:16] = number.to_bytes(4, "big")
        batches.append(bytes(template))
    for name in "ab":
        (tmp_path / name / "t-0").mkdir(parents=True)
        write_segment(tmp_path / name / "t-0", 0, *batches)
    started = time.process_time()
    merge = planned(tmp_path, tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    assert time.process_time() - started < 5
    assert (merge.log_end_offset, merge.copies[0].leader_epoch) == (8_000, 3_999)


# ---- batches that nothing proves in their copy ---------------------------------------------------


Pairs = Sequence[tuple[int, int]]


def rows(pairs: Pairs) -> Any:
    """Batches with these first and last offsets."""
    table = np.zeros((len(pairs), COLUMNS), np.int64)
    table[:, COLUMN["base_offset"]] = table[:, FIRST] = [first for first, _ in pairs]
    table[:, LAST] = [last for _, last in pairs]
    return table


class Tables:
    """A copy as tables of so many batches."""

    def __init__(self, pairs: Pairs, size: int = 2) -> None:
        self.pairs, self.size = pairs, size

    def tables(self) -> Iterator[Any]:
        for at in range(0, len(self.pairs), self.size):
            yield rows(self.pairs[at : at + self.size])


def walked(*copies: Tables) -> list[tuple[int, list[list[tuple[int, int]]]]]:
    """The end of each window, and the first and last offsets of each side."""
    return [
        (end, [[(int(r[FIRST]), int(r[LAST])) for r in side] for side in sides])
        for end, sides in windows(copies)  # type: ignore[arg-type]
    ]


def test_a_window_that_has_no_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "HELD_MAX", 3)
    one = [(10 * n, 10 * n + 9) for n in range(20)]
    other = [(10 * n + 5, 10 * n + 14) for n in range(20)]
    found = walked(Tables(one, 1), Tables(other, 1))
    assert len(found) > 3
    for side, pairs in enumerate((one, other)):
        assert [pair for _, sides in found for pair in sides[side]] == pairs
