"""What a merged log takes: the original of damaged copies, the history of the last leader."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kseg
from kseg.errors import (
    ConflictingCopiesError,
    KsegError,
    NotALogError,
    StalePlanError,
)
from kseg.format.header import COLUMN
from kseg.log.copies import source
from kseg.log.copies.merge import PartitionMerge, plan_merge
from kseg.log.copies.source import COLUMNS, FIRST, LAST, windows
from tests.builders import write_segment
from tests.unit.analysis.copied import Told, told, write_copy

BASE = told(9)


def taken(merge: PartitionMerge) -> bytes:
    """The bytes of the merged log."""
    return b"".join(
        Path(one.path).read_bytes()[one.position : one.position + one.size] for one in merge.runs
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


def test_the_last_leader_is_not_outvoted(tmp_path: Path) -> None:
    stale = [*BASE[:5], *(replace(one, epoch=1, text="w") for one in told(6, start=10))]
    last = [*BASE[:5], *told(3, start=10, epoch=3)]
    copies = [write_copy(tmp_path / name / "t-0", stale) for name in "ab"]
    merge = planned(tmp_path, *copies, write_copy(tmp_path / "c" / "t-0", last))
    assert taken(merge) == b"".join(one.data for one in last)
    assert [one.diverges_at for one in merge.copies] == [None, 10, 10]
    assert {one.why for one in merge.left_out} == {"diverged"}


def test_what_no_copy_has_is_missing(tmp_path: Path) -> None:
    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "ab"]
    for copy in copies:
        damage(copy, BASE[4], 0)
    (missing,) = planned(tmp_path, *copies).missing
    assert (missing.first_offset, missing.last_offset, missing.at_most) == (8, 9, False)


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def three_damaged(root: Path) -> tuple[list[Path], Path]:
    """Copies that are damaged in other places, one of which lacks a segment; and the original."""
    copies = [write_copy(root / name / "t-0", BASE, topic_id=5) for name in "abc"]
    for copy, numbers in zip(copies, ((0, 4), (1, 8), (2, 5)), strict=True):
        for number in numbers:
            damage(copy, BASE[number], 3)
    (copies[0] / f"{6:020d}.log").unlink()
    return copies, write_copy(root / "original" / "t-0", BASE)


def test_the_output_has_the_segments_of_the_original_and_passes_verify(tmp_path: Path) -> None:
    copies, original = three_damaged(tmp_path)
    out = tmp_path / "out"
    report = plan_merge(*(copy.parent for copy in copies), out=out).apply()
    assert logs(out / "t-0") == logs(original)
    verified = kseg.verify(out, deep=True)
    assert verified.ok, verified
    assert report == tmp_path / "out.kseg-salvage" / "report.json"
    document = json.loads(report.read_bytes())
    (partition,) = document["partitions"]
    assert document["schema"] == "kseg.merge-report/1"
    assert (document["ok"], document["whole"]) == (True, True)
    assert (partition["topic"], partition["log_end_offset"], partition["missing"]) == ("t", 18, [])
    runs = [(run["first_offset"], run["last_offset"]) for run in partition["runs"]]
    assert (runs[0][0], runs[-1][1]) == (0, 17)
    assert all(before[1] + 1 == run[0] for before, run in pairwise(runs))
    assert sum(copy["batches"] for copy in partition["copies"]) == 9


def test_with_a_conflict_nothing_is_written(tmp_path: Path) -> None:
    a = write_copy(tmp_path / "a" / "t-0", BASE)
    b = write_copy(tmp_path / "b" / "t-0", [*BASE[:8], replace(BASE[8], text="w")])
    plan = plan_merge(a, b, out=tmp_path / "out")
    assert (plan.undecided, plan.ok) == (1, False)
    with pytest.raises(ConflictingCopiesError, match="same leader epoch") as caught:
        plan.apply()
    assert caught.value.offset == 16
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_copy_that_has_changed_since_leaves_no_output(tmp_path: Path) -> None:
    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "ab"]
    plan = plan_merge(*copies, out=tmp_path / "out")
    for copy in copies:
        damage(copy, BASE[7], 1)
    with pytest.raises(StalePlanError):
        plan.apply()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("out", "error"),
    [("a/t-0/out", KsegError), ("a", KsegError), (".", KsegError), ("full", FileExistsError)],
)
def test_a_place_that_is_not_free_is_refused(
    tmp_path: Path, out: str, error: type[Exception]
) -> None:
    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "ab"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(error):
        plan_merge(*copies, out=tmp_path / out)


def test_what_is_no_copy_of_one_partition_is_refused(tmp_path: Path) -> None:
    a, b = (write_copy(tmp_path / name, BASE) for name in ("a/t-0", "b/t-1"))
    with pytest.raises(NotALogError, match="not named as one partition"):
        plan_merge(a, b, out=tmp_path / "out")
    with pytest.raises(ValueError, match="same directory"):
        plan_merge(a, a, out=tmp_path / "out")
    with pytest.raises(ValueError, match="not among the copies"):
        plan_merge(a, b, out=tmp_path / "out", prefer=tmp_path)


def test_a_segment_is_cut_where_the_first_copy_cuts_it(tmp_path: Path) -> None:
    a = write_copy(tmp_path / "a" / "t-0", BASE, per_segment=4)
    b = write_copy(tmp_path / "b" / "t-0", BASE[:8], per_segment=3)
    damage(a, BASE[4], 0)
    plan = planned(tmp_path, a, b)
    assert [each.base_offset for each in plan.segments] == [0, 8, 16]
    assert [Path(run.path).parent for run in plan.segments[1].extents] == [b, a]


@pytest.mark.parametrize("base", [0, 18])
def test_an_empty_first_or_last_segment_stays(tmp_path: Path, base: int) -> None:
    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "ab"]
    for copy in copies:
        (copy / f"{base:020d}.log").write_bytes(b"")
    damage(copies[0], BASE[3], 0)
    plan = plan_merge(*copies, out=tmp_path / "out")
    assert plan.ok
    plan.apply()
    assert logs(tmp_path / "out" / "t-0") == logs(copies[1])


def test_logs_without_records_stay_where_they_were(tmp_path: Path) -> None:
    copies = [write_copy(tmp_path / name / "t-0", [], base=7) for name in "ab"]
    plan = plan_merge(*copies, out=tmp_path / "out")
    assert plan.ok
    plan.apply()
    with kseg.Log.open(tmp_path / "out" / "t-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def compacted(*numbers: int) -> list[Told]:
    return [replace(BASE[0], without=(1,)), *(BASE[number] for number in numbers)]


@pytest.mark.parametrize(
    ("copies", "damaged", "missing"),
    [
        # A gap that all have is none.
        ((compacted(2, 6), compacted(2, 6)), (None, None), []),
        # What one has lost, the other one gives, byte for byte.
        ((compacted(2, 3, 6), compacted(2, 3, 6)), (3, None), []),
        # The other one was compacted further: what is lost may be a tombstone.
        ((compacted(2, 3, 6), compacted(2, 6)), (3, None), [(6, 11)]),
        # Both have lost it.
        ((compacted(2, 3, 6), compacted(2, 3, 6)), (3, 3), [(6, 11)]),
    ],
)
def test_gaps_of_a_compacted_log_are_missing_only_where_damage_hides_what_was_there(
    copies: tuple[list[Told], ...],
    damaged: tuple[int | None, ...],
    missing: list[tuple[int, int]],
    tmp_path: Path,
) -> None:
    paths = []
    for name, batches, number in zip("ab", copies, damaged, strict=True):
        paths.append(write_copy(tmp_path / name / "t-0", batches, per_segment=9))
        if number is not None:
            damage(paths[-1], BASE[number], 0)
    merge = planned(tmp_path, *paths)
    assert [(one.first_offset, one.last_offset) for one in merge.missing] == missing
    assert all(one.at_most for one in merge.missing)


def test_a_hidden_end_is_missing_unless_another_copy_gives_it(tmp_path: Path) -> None:
    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "ab"]
    damage(copies[0], BASE[8], 0)
    assert planned(tmp_path, *copies).missing == ()
    damage(copies[1], BASE[8], 5)
    (missing,) = planned(tmp_path, *copies).missing
    assert (missing.first_offset, missing.last_offset) == (16, None)


def test_very_many_gaps_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kseg.log.copies.merge.MISSING_MAX", 3)
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


def test_the_high_watermark_is_the_highest_that_was_noted(tmp_path: Path) -> None:
    copies = [write_copy(tmp_path / name / "t-0", BASE) for name in "abc"]
    for copy, mark in zip(copies, (4, 12, 99), strict=True):
        (copy.parent / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {mark}\n")
    assert planned(tmp_path, *copies[:2]).high_watermark == 12
    assert planned(tmp_path, *copies).high_watermark == 18


def test_partitions_of_data_directories_are_merged_each_with_its_copies(tmp_path: Path) -> None:
    for name in "abc":
        for partition in range(4):
            if (name, partition) != ("b", 2):
                write_copy(tmp_path / name / f"t-{partition}", BASE[: 3 + partition])
    homes = [tmp_path / name for name in "abc"]
    for jobs in (1, 2):
        out = tmp_path / f"out{jobs}"
        plan = plan_merge(*homes, out=out, threads=jobs, chosen=lambda _topic, at: at != 3)
        assert [each.name for each in plan.partitions] == ["t-0", "t-1", "t-2"]
        assert [len(each.copies) for each in plan.partitions] == [3, 3, 2]
        plan.apply()
        for partition in range(3):
            name = f"t-{partition}"
            assert logs(out / name) == logs(tmp_path / "a" / name)


def test_the_preferred_copy_may_be_named_by_one_of_its_data_directories(tmp_path: Path) -> None:
    for name, text in (("a1", "v"), ("b2", "w")):
        batches = [replace(one, text=text) if n == 4 else one for n, one in enumerate(BASE)]
        write_copy(tmp_path / name / "t-0", batches)
    for name in ("a2", "b1"):
        write_copy(tmp_path / name / "t-1", BASE)
    brokers = [f"{tmp_path}/{name}1,{tmp_path}/{name}2" for name in "ab"]
    for prefer in (brokers[1], tmp_path / "b1", tmp_path / "b2"):
        plan = plan_merge(*brokers, out=tmp_path / "out", prefer=prefer)
        assert plan.undecided == 0
        assert plan.partitions[0].conflicts[0].batches[0].path.startswith(f"{tmp_path}/b2/t-0")
    with pytest.raises(KsegError, match="OUT must not lie"):
        plan_merge(*brokers, out=tmp_path / "b2" / "out")


def test_an_epoch_for_each_batch_takes_time_in_proportion(tmp_path: Path) -> None:
    """Ten thousand epochs: less than a second, if all are not gone through for each."""
    template = bytearray(BASE[0].data)
    batches = []
    for number in range(10_000):
        template[0:8] = (2 * number).to_bytes(8, "big")
        template[12:16] = number.to_bytes(4, "big")
        batches.append(bytes(template))
    for name in "ab":
        (tmp_path / name / "t-0").mkdir(parents=True)
        write_segment(tmp_path / name / "t-0", 0, *batches)
    started = time.process_time()
    merge = planned(tmp_path, tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    assert time.process_time() - started < 5
    assert (merge.log_end_offset, merge.copies[0].leader_epoch) == (20_000, 9_999)


# ---- batches that nothing proves in their copy ---------------------------------------------------


def behind_damage(root: Path, batches: list[Told], *, epochs: str | None = None) -> Path:
    """A copy whose second batch has no header any more, so that nothing proves what follows."""
    directory = write_copy(root / "t-0", batches, per_segment=99)
    path, size = directory / f"{0:020d}.log", len(batches[0].data)
    data = bytearray(path.read_bytes())
    data[size : size + 61] = b"\xee" * 61
    path.write_bytes(data)
    if epochs is not None:
        (directory / "leader-epoch-checkpoint").write_text(epochs)
    return directory


def test_a_batch_of_another_copy_proves_what_lies_behind_it(tmp_path: Path) -> None:
    a = behind_damage(tmp_path / "a", BASE)
    b = write_copy(tmp_path / "b" / "t-0", BASE[:3], per_segment=99)
    for order in ((a, b), (b, a)):
        merge = planned(tmp_path, *order)
        assert taken(merge) == b"".join(one.data for one in BASE)
        assert merge.missing == ()


@pytest.mark.parametrize(
    ("epochs", "undecided"), [(None, 0), ("0\n2\n0 0\n5 6\n", 0), ("0\n2\n0 0\n5 4\n", 1)]
)
def test_an_unproved_batch_of_a_higher_epoch_replaces_none(
    tmp_path: Path, epochs: str | None, undecided: int
) -> None:
    forged = [*BASE[:2], replace(BASE[2], epoch=5, text="w")]
    a = behind_damage(tmp_path / "a", forged, epochs=epochs)
    b = write_copy(tmp_path / "b" / "t-0", BASE[:3], per_segment=99)
    for order in ((a, b), (b, a)):
        plan = planned(tmp_path, *order)
        assert plan.undecided == undecided
        if not undecided:
            assert replace(BASE[2], epoch=5, text="w").data not in taken(plan)


def test_the_log_of_kraft_is_left_out_of_a_merge(tmp_path: Path) -> None:
    for name in "ab":
        write_copy(tmp_path / name / "t-0", BASE)
        write_copy(tmp_path / name / "__cluster_metadata-0", BASE)
    homes = [tmp_path / name for name in "ab"]
    plan = plan_merge(*homes, out=tmp_path / "out")
    assert [each.name for each in plan.partitions] == ["t-0"]
    assert plan.left_alone == tuple(str(home / "__cluster_metadata-0") for home in homes)
    plan.apply()
    with pytest.raises(NotALogError, match="not merged"):
        plan_merge(*(home / "__cluster_metadata-0" for home in homes), out=tmp_path / "other")


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
