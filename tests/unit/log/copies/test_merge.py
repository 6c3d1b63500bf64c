"""What a merged log takes: the original of damaged copies, the history of the last leader."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from kseg.errors import InconsistentTopicIdError
from kseg.log.copies.merge import plan_merge
from kseg.log.copies.values import PartitionMerge
from tests.unit.analysis.copied import Told, told, write_copy

BASE = told(9)


def taken(merge: PartitionMerge) -> bytes:
    """The bytes of the merged log."""
    return b"".join(
        Path(one.path).read_bytes()[one.position : one.position + one.size] for one in merge.extents
    )


def planned(root: Path, *copies: Path, prefer: Path | None = None) -> PartitionMerge:
    (merge,) = plan_merge(*copies, out=root / "out", prefer=prefer).partitions
    return merge


def damage(copy: Path, one: Told, at: int) -> None:
    """Flip a bit in a batch of a copy."""
    for path in copy.glob("*.log"):
        data = bytearray(path.read_bytes())
        found = data.find(one.data)
        if found >= 0:
            data[found + 62 + at % (len(one.data) - 63)] ^= 1
            path.write_bytes(data)
            return


@pytest.mark.parametrize("seed", range(20))
def test_damaged_copies_that_are_whole_together_give_the_original(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    base, at, epoch = [], 0, 0
    for _ in range(rng.randrange(6, 25)):
        count = rng.randrange(1, 4)
        epoch += rng.random() < 0.15
        base.append(Told(at, count, epoch))
        at += count
    copies = [
        write_copy(tmp_path / name / "t-0", base, per_segment=rng.randrange(2, 7)) for name in "abc"
    ]
    for one in base:
        for copy in rng.sample(copies, 3)[1:]:
            if rng.random() < 0.15:
                damage(copy, one, rng.randrange(1000))
    merge = planned(tmp_path, *copies)
    assert taken(merge) == b"".join(one.data for one in base), seed
    assert (merge.missing, merge.undecided) == ((), 0)


def test_the_last_leader_is_not_outvoted(tmp_path: Path) -> None:
    stale = [*BASE[:5], *(replace(one, epoch=1, text="w") for one in told(6, start=10))]
    last = [*BASE[:5], *told(3, start=10, epoch=3)]
    copies = [write_copy(tmp_path / name / "t-0", stale) for name in "ab"]
    merge = planned(tmp_path, *copies, write_copy(tmp_path / "c" / "t-0", last))
    assert taken(merge) == b"".join(one.data for one in last)
    assert [one.diverges_at for one in merge.copies] == [None, 10, 10]
    assert {one.why for one in merge.left_out} == {"diverged"}


def test_one_epoch_with_other_bytes_is_a_conflict_that_only_prefer_decides(tmp_path: Path) -> None:
    other = [replace(one, text="w") if n == 4 else one for n, one in enumerate(BASE)]
    a = write_copy(tmp_path / "a" / "t-0", BASE)
    b = write_copy(tmp_path / "b" / "t-0", other)
    merge = planned(tmp_path, a, b)
    assert merge.undecided == 1
    assert [seen.path for seen in merge.conflicts[0].batches] == [
        str(copy / f"{6:020d}.log") for copy in (a, b)
    ]
    decided = planned(tmp_path, a, b, prefer=b)
    assert decided.undecided == 0
    assert taken(decided) == b"".join(one.data for one in other)


def test_what_no_copy_has_is_missing(tmp_path: Path) -> None:
    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "ab"]
    for copy in copies:
        damage(copy, BASE[4], 0)
    (missing,) = planned(tmp_path, *copies).missing
    assert (missing.first_offset, missing.last_offset, missing.at_most) == (8, 9, False)


def test_two_topics_of_one_name_are_refused(tmp_path: Path) -> None:
    copies = [write_copy(tmp_path / str(n) / "t-0", BASE, topic_id=n) for n in (1, 2)]
    with pytest.raises(InconsistentTopicIdError):
        planned(tmp_path, *copies)
