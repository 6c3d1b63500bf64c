"""Copies against each other: made pairs, each with its relation; held to a plain comparison."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kseg import diff
from kseg.analysis.diff import Diff
from kseg.analysis.pairs import Compared
from kseg.log.copies import Copy, DoubtError
from tests.bad_sectors import bad_sectors
from tests.builders import NONE, record, records_of
from tests.unit.analysis.copied import Told, told, write_copy

BASE = told(9)


def only(found: Diff) -> Compared:
    """The one pair of the answer."""
    (partition,) = found.partitions
    (pair,) = partition.compared
    return pair


# ---- damage --------------------------------------------------------------------------------------


def test_bytes_that_the_disk_does_not_give_are_unknown(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_copy(tmp_path / name, BASE)
    at = len(BASE[3].data)
    with bad_sectors(tmp_path / "b" / f"{6:020d}.log", (at + 5, at + 20)):
        assert only(diff(tmp_path / "a", tmp_path / "b", mapping="never")).relation == "unknown"


# ---- a copy that changes -------------------------------------------------------------------------


def test_a_segment_that_goes_on_the_way_is_read_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_copy(tmp_path / "a", BASE)
    write_copy(tmp_path / "b", BASE)
    from kseg.log.copies import source

    plain = source.Copy.tables

    def losing(copy: source.Copy) -> object:
        (tmp_path / "b" / f"{0:020d}.log").unlink(missing_ok=True)
        return plain(copy)

    monkeypatch.setattr(source.Copy, "tables", losing)
    found = only(diff(tmp_path / "a", tmp_path / "b"))
    assert (found.relation, found.copy.log_start_offset) == ("start", 6)


# ---- against a plain comparison ------------------------------------------------------------------


def varied(rng: random.Random, batches: list[Told]) -> list[Told]:
    """A copy with a few changes."""
    found = list(batches)
    for change in rng.choices(
        ["drop", "text", "epoch", "cut", "start", "split"], k=rng.randrange(4)
    ):
        at = rng.randrange(len(found)) if found else 0
        if not found:
            break
        if change == "drop":
            del found[at]
        elif change == "text":
            found[at] = replace(found[at], text="w")
        elif change == "epoch":
            found[at:] = [replace(one, epoch=one.epoch + 1) for one in found[at:]]
        elif change == "cut":
            found = found[: at + 1]
        elif change == "start":
            found = found[at:]
        elif found[at].count > 1:
            one = found[at]
            halves = (replace(one, count=1), replace(one, first=one.first + 1, count=one.count - 1))
            found[at : at + 1] = halves
    return found


def plainly(first: list[Told], other: list[Told]) -> str:
    """The relation, offset by offset."""
    start = max(first[0].first, other[0].first)
    ends = (first[-1].last + 1, other[-1].last + 1)
    sides = [{o: one for one in each for o in range(one.first, one.last + 1)}
             for each in (first, other)]  # fmt: skip
    words = set()
    for offset in range(start, max(ends)):
        one, two = sides[0].get(offset), sides[1].get(offset)
        if one == two or (one or two).last < start:  # type: ignore[union-attr]
            continue
        if one is not None and two is not None:
            words.add("epochs" if replace(one, epoch=0) == replace(two, epoch=0) else "diverged")
            continue
        there = one or two
        assert there is not None
        gap = not any(side.get(o) for o in range(there.first, there.last + 1)
                      for side in sides if side.get(offset) is None)  # fmt: skip
        behind = there.first >= ends[0 if one is None else 1]
        words.add("prefix" if behind else "holes" if gap else "diverged")
    return next(
        (word for word in ("diverged", "epochs", "holes", "prefix") if word in words),
        "same" if first[0].first == other[0].first else "start",
    )


@pytest.mark.parametrize("seed", range(60))
def test_relations_are_those_of_a_plain_comparison(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    base, at = [], 0
    for _ in range(rng.randrange(3, 14)):
        count = rng.randrange(1, 4)
        base.append(Told(at, count, epoch=at // 9))
        at += count + (rng.random() < 0.1)
    first, other = varied(rng, base), varied(rng, base)
    if not first or not other:
        return
    for name, each in (("a", first), ("b", other)):
        write_copy(tmp_path / name, each, per_segment=rng.randrange(1, 5))
    found = diff(tmp_path / "a", tmp_path / "b")
    assert only(found).relation == plainly(first, other), seed
    assert found == carefully(tmp_path / "a", tmp_path / "b"), seed


# ---- sound copies are read once ------------------------------------------------------------------


def carefully(*copies: Path) -> Diff:
    """The answer where no copy is taken for sound."""

    def doubted(path: str, _mapping: str) -> Copy:
        raise DoubtError("it may not be sound", path=path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copy, "assumed", doubted)
        return diff(*copies)


def unread(path: str, _mapping: str) -> Copy:
    raise AssertionError(f"{path} is read twice")


def attributes(data: bytearray) -> None:
    data[21] |= 0x40  # a bit that no release has set


def magic(data: bytearray) -> None:
    data[:] = records_of([record(b"v")], magic=1, codec=NONE, base_offset=0)


def torn(data: bytearray) -> None:
    del data[-1]


def checksum(data: bytearray) -> None:
    data[70] ^= 1


def epoch(data: bytearray) -> None:
    data[15] = 9


def zeros(data: bytearray) -> None:
    data += bytes(100)


@pytest.mark.parametrize("change", [attributes, magic, torn, checksum, epoch, zeros])
@pytest.mark.parametrize("segment", [0, 6, 12])
def test_a_copy_in_doubt_is_told_as_with_care(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[bytearray], None],
    segment: int,
) -> None:
    for name in "ab":
        write_copy(tmp_path / name, BASE)
    path = tmp_path / "b" / f"{segment:020d}.log"
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    careful = carefully(tmp_path / "a", tmp_path / "b")
    assert diff(tmp_path / "a", tmp_path / "b") == careful
    monkeypatch.setattr(Copy, "read", unread)
    with pytest.raises(AssertionError, match="read twice"):
        diff(tmp_path / "a", tmp_path / "b")


def test_an_index_that_lies_about_the_end_changes_no_answer(tmp_path: Path) -> None:
    for name in "ab":
        write_copy(tmp_path / name, BASE, per_segment=9)
    (tmp_path / "b" / f"{0:020d}.index").write_bytes(bytes([0, 0, 0, 3, 0, 0, 0, 9]) * 2)
    assert diff(tmp_path / "a", tmp_path / "b") == carefully(tmp_path / "a", tmp_path / "b")
    assert only(diff(tmp_path / "a", tmp_path / "b")).relation == "same"
