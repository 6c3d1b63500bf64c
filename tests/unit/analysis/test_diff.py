"""Copies against each other: made pairs, each with its relation; held to a plain comparison."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kseg import diff
from kseg.analysis.diff import RELATIONS, Compared, Diff, diff_of, examine, plan, report
from kseg.errors import NotALogError
from kseg.log.copies import Copy, DoubtError
from tests.bad_sectors import bad_sectors
from tests.builders import GZIP, NONE, ZSTD, record, records_of
from tests.unit.analysis.copied import Told, told, write_copy

BASE = told(9)


def only(found: Diff) -> Compared:
    """The one pair of the answer."""
    (partition,) = found.partitions
    (pair,) = partition.compared
    return pair


def offsets(ranges: object) -> list[tuple[int, int]]:
    return [(each.first_offset, each.last_offset) for each in ranges.listed]  # type: ignore[attr-defined]


def changed(at: int, **fields: object) -> list[Told]:
    """The usual copy with one batch changed."""
    return [replace(one, **fields) if n == at else one for n, one in enumerate(BASE)]  # type: ignore[arg-type]


def later(at: int, **fields: object) -> list[Told]:
    """The usual copy with each batch changed from one on: leader epochs never fall."""
    return [replace(one, **fields) if n >= at else one for n, one in enumerate(BASE)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    """A pair of copies and what they are to each other."""

    other: Sequence[Told]
    relation: str
    differs: tuple[tuple[int, int], ...] = ()
    lacks: tuple[tuple[int, int], ...] = ()
    first_lacks: tuple[tuple[int, int], ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    ahead: tuple[int, int] = (0, 0)
    first: Sequence[Told] = tuple(BASE)
    per_segment: int = 3


CASES = {
    "the same": Case(BASE, "same"),
    "segments cut at other places": Case(BASE, "same", per_segment=2),
    "the other begins later": Case(BASE[3:], "start"),
    "the first begins later": Case(BASE, "start", first=BASE[3:]),
    "the other ends earlier": Case(BASE[:7], "prefix", ahead=(2, 0)),
    "the first ends earlier": Case(BASE, "prefix", ahead=(0, 2), first=BASE[:7]),
    "one holds nothing": Case([], "prefix", ahead=(9, 0)),
    "another value": Case(changed(4, text="w"), "diverged", differs=((8, 9),)),
    "another codec": Case(changed(4, codec=GZIP), "diverged", differs=((8, 9),)),
    "another tail of a later epoch": Case(
        [*BASE[:5], *told(6, epoch=3, start=10, size=1)], "diverged", ((10, 15),), ahead=(1, 0)
    ),
    "batches cut otherwise": Case(
        [*BASE[:4], *told(4, start=8, size=1), *BASE[6:]], "diverged", differs=((8, 11),)
    ),
    "the same records under another epoch": Case(later(4, epoch=7), "epochs", epochs=((8, 17),)),
    "one batch of an epoch that cannot be": Case(changed(4, epoch=7), "unknown"),
    "the other lacks a batch": Case([*BASE[:4], *BASE[5:]], "holes", lacks=((8, 9),)),
    "the first lacks a batch": Case(
        BASE, "holes", first_lacks=((8, 9),), first=[*BASE[:4], *BASE[5:]]
    ),
    "each lacks another": Case(
        [*BASE[:4], *BASE[5:]],
        "holes",
        lacks=((8, 9),),
        first_lacks=((4, 5),),
        first=[*BASE[:2], *BASE[3:]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_pair_has_its_relation(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    first = write_copy(tmp_path / "a" / "t-0", case.first)
    other = write_copy(tmp_path / "b" / "t-0", case.other, per_segment=case.per_segment)
    found = only(diff(first, other))
    assert found.relation == case.relation
    assert tuple((d.first_offset, d.last_offset) for d in found.differences) == case.differs
    assert tuple(offsets(found.lacks[0])) == case.lacks
    assert tuple(offsets(found.lacks[1])) == case.first_lacks
    assert tuple(offsets(found.epochs)) == case.epochs
    assert found.ahead == case.ahead
    assert diff(first, other).ok is (case.relation == "same")


def test_a_divergence_names_the_batches_of_both(tmp_path: Path) -> None:
    first = write_copy(tmp_path / "a", BASE)
    tail = [replace(one, text="w") for one in told(4, epoch=3, start=10)]
    other = write_copy(tmp_path / "b", [*BASE[:5], *tail])
    divergence = only(diff(first, other)).divergence
    assert divergence is not None
    mine, theirs = divergence.batches
    assert (mine.header.leader_epoch, theirs.header.leader_epoch) == (0, 3)
    assert mine.path == str(first / f"{6:020d}.log")
    assert (theirs.header.base_offset, theirs.header.last_offset) == (10, 11)


def test_copies_without_anything_in_common_diverge_at_the_start(tmp_path: Path) -> None:
    first = write_copy(tmp_path / "a", BASE)
    other = write_copy(tmp_path / "b", [replace(one, text="w") for one in BASE])
    found = only(diff(first, other))
    assert (found.relation, found.same_batches, found.difference_count) == ("diverged", 0, 1)


# ---- damage --------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damaged", ["a", "b"])
def test_what_lies_in_damaged_bytes_is_unknown(tmp_path: Path, damaged: str) -> None:
    for name in ("a", "b"):
        write_copy(tmp_path / name, BASE)
    flip(tmp_path / damaged / f"{6:020d}.log", len(BASE[3].data) + 70)
    (partition,) = diff(tmp_path / "a", tmp_path / "b").partitions
    (pair,) = partition.compared
    assert pair.relation == "unknown"
    assert not pair.differences
    seen = partition.first if damaged == "a" else pair.copy
    assert [(lost.first_offset, lost.last_offset) for lost in seen.unknown] == [(8, 9)]


def test_a_difference_counts_more_than_damage(tmp_path: Path) -> None:
    write_copy(tmp_path / "a", BASE)
    write_copy(tmp_path / "b", changed(6, text="w"))
    flip(tmp_path / "b" / f"{0:020d}.log", 70)
    assert only(diff(tmp_path / "a", tmp_path / "b")).relation == "diverged"


def test_bytes_that_the_disk_does_not_give_are_unknown(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_copy(tmp_path / name, BASE)
    at = len(BASE[3].data)
    with bad_sectors(tmp_path / "b" / f"{6:020d}.log", (at + 5, at + 20)):
        assert only(diff(tmp_path / "a", tmp_path / "b", mapping="never")).relation == "unknown"


def test_a_copy_without_segments_is_told(tmp_path: Path) -> None:
    write_copy(tmp_path / "a" / "t-0", BASE)
    (tmp_path / "b" / "t-0").mkdir(parents=True)
    (tmp_path / "b" / "t-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    found = only(diff(tmp_path / "a", tmp_path / "b"))
    assert found.relation in ("unreadable", "prefix")


# ---- joining -------------------------------------------------------------------------------------


def test_partitions_are_joined_by_topic_number_and_id(tmp_path: Path) -> None:
    for name, topic_id in (("a", 1), ("b", 2)):
        write_copy(tmp_path / name / "t-0", BASE, topic_id=7)
        write_copy(tmp_path / name / "again-0", BASE, topic_id=topic_id)
    write_copy(tmp_path / "a" / "new-1", BASE)
    write_copy(tmp_path / "b" / "t-0.0123456789abcdef0123456789abcdef-delete", BASE[:3])
    found = diff(tmp_path / "a", tmp_path / "b")
    rows = [(each.topic, each.partition, one.copy.path, one.relation)
            for each in found.partitions for one in each.compared]  # fmt: skip
    assert rows == [
        ("again", 0, str(tmp_path / "b" / "again-0"), "other-topic"),
        ("again", 0, str(tmp_path / "a" / "again-0"), "other-topic"),
        ("new", 1, str(tmp_path / "b"), "absent"),
        ("t", 0, str(tmp_path / "b" / "t-0"), "same"),
    ]
    assert found.totals == {"same": 1, "other-topic": 2, "absent": 1}


def test_a_copy_without_an_id_is_one_of_the_first_topic(tmp_path: Path) -> None:
    write_copy(tmp_path / "a" / "t-0", BASE)
    write_copy(tmp_path / "b" / "t-0", BASE, topic_id=7)
    assert diff(tmp_path / "a", tmp_path / "b").ok


def test_three_copies_are_held_to_the_first(tmp_path: Path) -> None:
    write_copy(tmp_path / "a" / "t-0", BASE)
    write_copy(tmp_path / "b" / "t-0", BASE[:4])
    write_copy(tmp_path / "c" / "t-0", changed(8, text="w"))
    (partition,) = diff(*(tmp_path / name for name in "abc")).partitions
    assert [one.relation for one in partition.compared] == ["prefix", "diverged"]


def test_only_chosen_partitions_are_compared(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for topic in ("t-0", "u-0", "u-1"):
            write_copy(tmp_path / name / topic, BASE)
    found = diff(tmp_path / "a", tmp_path / "b", topics="u")
    assert [(each.topic, each.partition) for each in found.partitions] == [("u", 0), ("u", 1)]
    with pytest.raises(ValueError, match="no topic here is v; there are t, u"):
        diff(tmp_path / "a", tmp_path / "b", topics="v")
    with pytest.raises(NotALogError, match="chosen"):
        diff_of((tmp_path / "a", tmp_path / "b"), chosen=lambda topic, number: False)


def test_units_and_answers_travel_to_other_processes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_copy(tmp_path / name / "t-0", changed(4, text=name))
    (unit,) = plan((tmp_path / "a", tmp_path / "b"))
    answer = examine(pickle.loads(pickle.dumps(unit)))
    assert pickle.loads(pickle.dumps(answer)) == answer
    assert report([answer]) == diff(tmp_path / "a", tmp_path / "b")


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


# ---- records -------------------------------------------------------------------------------------

BY_RECORDS: dict[str, tuple[list[Told], str, dict[str, object]]] = {
    "another codec": (changed(4, codec=ZSTD), "same", {}),
    "batches cut otherwise": (told(18, size=1), "same", {}),
    "another value": (changed(4, text="w"), "diverged", {"differs": [(8, 9)]}),
    "thinned out": (changed(4, without=(8,)), "same", {"compacted": [(8, 8)]}),
    "a batch is gone": ([*BASE[:4], *BASE[5:]], "holes", {"lacks": [(8, 9)]}),
    "a later epoch": (later(4, epoch=2, codec=GZIP), "epochs", {"epochs": [(8, 17)]}),
    "cut otherwise, and shorter": (told(13, size=1), "prefix", {}),
}


@pytest.mark.parametrize("name", BY_RECORDS)
def test_records_are_compared_where_batches_differ(name: str, tmp_path: Path) -> None:
    batches, relation, rest = BY_RECORDS[name]
    write_copy(tmp_path / "a", BASE)
    write_copy(tmp_path / "b", batches)
    found = only(diff(tmp_path / "a", tmp_path / "b", records=True))
    assert found.relation == relation
    assert [(d.first_offset, d.last_offset) for d in found.differences] == rest.get("differs", [])
    assert offsets(found.lacks[0]) == rest.get("lacks", [])
    assert offsets(found.compacted[0]) == rest.get("compacted", [])
    assert offsets(found.epochs) == rest.get("epochs", [])


def test_what_lies_in_front_of_the_clean_offset_is_gone_by_compaction(tmp_path: Path) -> None:
    write_copy(tmp_path / "a" / "t-0", BASE)
    write_copy(tmp_path / "b" / "t-0", [*BASE[:4], *BASE[5:]])
    (tmp_path / "b" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 12\n")
    found = only(diff(tmp_path / "a", tmp_path / "b", records=True))
    assert (found.relation, offsets(found.compacted[0])) == ("same", [(8, 9)])


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


def test_sound_copies_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_copy(tmp_path / "a", BASE)
    write_copy(tmp_path / "b", BASE[:7], per_segment=2)
    monkeypatch.setattr(Copy, "read", unread)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert (only(found).relation, only(found).same_batches, found.batches) == ("prefix", 7, 16)


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


# ---- several data directories --------------------------------------------------------------------


def test_the_data_directories_of_one_broker_are_one_copy(tmp_path: Path) -> None:
    for name in ("a1/t-0", "a2/t-1", "b1/t-1", "b2/t-0"):
        write_copy(tmp_path / name, BASE)
    one, other = (f"{tmp_path}/{name}1,{tmp_path}/{name}2" for name in "ab")
    found = diff(one, other)
    assert found.totals == {"same": 2}
    lacking = diff(one, tmp_path / "b1")
    assert lacking.totals == {"same": 1, "absent": 1}
    assert diff(tmp_path / "b1", one).partitions[0].compared[0].copy.path == str(tmp_path / "b1")
    write_copy(tmp_path / "a2" / "t-0", BASE)
    with pytest.raises(NotALogError, match="lies in"):
        diff(one, other)
    with pytest.raises(NotALogError, match="a partition directory among"):
        diff(f"{tmp_path}/a1/t-0,{tmp_path}/a2", other)
    with pytest.raises(FileNotFoundError):
        diff(f"{tmp_path}/a1,{tmp_path}/none", other)


def test_a_directory_with_a_comma_in_its_name_is_one(tmp_path: Path) -> None:
    for name in ("a,b", "c"):
        write_copy(tmp_path / name / "t-0", BASE)
    assert diff(tmp_path / "a,b", tmp_path / "c").ok


def test_every_relation_has_a_meaning() -> None:
    assert {case.relation for case in CASES.values()} <= set(RELATIONS)
