"""Base offsets and leader epochs, which no checksum covers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kseg import apply_salvage, plan_salvage
from kseg.log.salvage.provable import read_provable
from kseg.log.salvage.values import ProvablePartition
from tests.builders import GZIP, batch, message, messages, record, wrapper, write_segment
from tests.unit.analysis.copied import Told, told, write_copy

BASE = told(6)
SIZE = len(BASE[0].data)


def kept(found: ProvablePartition) -> list[int]:
    """Each offset that a run covers."""
    return [at for run in found.runs for at in range(run.first_offset, run.last_offset + 1)]


def overwrite(directory: Path, batch: int, at: int, data: bytes) -> None:
    """Write over bytes of a batch; each segment has three."""
    path = directory / f"{batch // 3 * 6:020d}.log"
    content = bytearray(path.read_bytes())
    start = sum(len(one.data) for one in BASE[batch // 3 * 3 : batch]) + at
    content[start : start + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize("batch", range(5))
@pytest.mark.parametrize("wrong", [1 << 6, 1 << 20])
def test_a_batch_with_another_base_offset_is_not_placed_where_that_says(
    tmp_path: Path, batch: int, wrong: int
) -> None:
    write_copy(tmp_path / "t-0", BASE)
    overwrite(tmp_path / "t-0", batch, 0, wrong.to_bytes(8, "big"))
    found = read_provable(tmp_path / "t-0")
    assert kept(found) == [at for at in range(12) if at // 2 != batch]
    assert [(one.reason, one.size) for one in found.unprovable] == [
        ("offset-order", len(BASE[batch].data))
    ]
    assert [(one.first_offset, one.last_offset) for one in found.lost] == [
        (2 * batch, 2 * batch + 1)
    ]


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (0, 2), (1, 4), (0, 5), (2, 3)])
def test_two_batches_that_are_swapped_are_both_kept(tmp_path: Path, one: int, other: int) -> None:
    order = list(range(6))
    order[one], order[other] = other, one
    batches = [BASE[number].data for number in order]
    write_segment(tmp_path / "t-0", 0, *batches[:3])
    write_segment(tmp_path / "t-0", 6, *batches[3:])
    found = read_provable(tmp_path / "t-0")
    assert kept(found) == list(range(12))
    assert (found.unprovable, found.lost) == ((), ())


@pytest.mark.parametrize("batch", range(5))
@pytest.mark.parametrize("epoch", [7, 2])
def test_a_batch_with_another_leader_epoch_is_left_out(
    tmp_path: Path, batch: int, epoch: int
) -> None:
    batches = told(6, epoch=4)
    write_copy(tmp_path / "t-0", batches)
    overwrite(tmp_path / "t-0", batch, 12, epoch.to_bytes(4, "big"))
    found = read_provable(tmp_path / "t-0")
    first = batch == 0 and epoch < 4  # nothing falls
    assert kept(found) == [at for at in range(12) if first or at // 2 != batch]
    assert [one.reason for one in found.unprovable] == ([] if first else ["epoch-order"])


def test_epochs_that_fall_for_more_than_one_batch_leave_all_of_them(tmp_path: Path) -> None:
    write_copy(tmp_path / "t-0", [*told(3, epoch=5), *told(3, epoch=3, start=6)])
    assert kept(read_provable(tmp_path / "t-0")) == list(range(12))


def test_epochs_that_rise_are_in_order(tmp_path: Path) -> None:
    write_copy(tmp_path / "t-0", [*told(3, epoch=3), *told(3, epoch=5, start=6)])
    assert kept(read_provable(tmp_path / "t-0")) == list(range(12))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("begin", [0, 5])
def test_a_message_whose_offset_is_zeros_is_not_placed_at_0(
    tmp_path: Path, magic: int, begin: int
) -> None:
    parts = [
        messages([record(b"v%d" % at, offset=at)], magic=magic) for at in range(begin, begin + 6)
    ]
    whole = b"".join(parts)
    parts[3] = bytes(8) + parts[3][8:]
    write_segment(tmp_path / "t-0", 0, *parts)
    found = read_provable(tmp_path / "t-0")
    assert kept(found) == [at for at in range(begin, begin + 6) if at != begin + 3]
    assert [one.reason for one in found.unprovable] == ["offset-order"]
    plan = plan_salvage(tmp_path / "t-0", out=tmp_path / "out")
    assert [one.first_offset for one in plan.partitions[0].mended] == [begin + 3]
    apply_salvage(plan)
    assert (tmp_path / "out" / "t-0" / f"{0:020d}.log").read_bytes() == whole


def test_messages_in_a_compressed_one_that_is_torn_are_none_of_the_logs(tmp_path: Path) -> None:
    front = messages([record(b"v%d" % at, offset=at) for at in range(3)], magic=1)
    inner = messages([record(b"inner", offset=at) for at in range(5, 10)], magic=1)
    holding = message(record(inner), magic=1, attributes=GZIP, offset=9)
    size = len(messages([record(b"inner", offset=5)], magic=1))
    # It is cut just where an inner message ends.
    torn = holding[: holding.index(inner[:size]) + 2 * size]
    write_segment(tmp_path / "t-0", 0, front, torn)
    assert kept(read_provable(tmp_path / "t-0")) == [0, 1, 2]


def test_a_batch_whose_length_is_wrong_is_mended_and_those_behind_it_count(tmp_path: Path) -> None:
    parts = [one.data for one in BASE]
    for number, wrong in ((2, 5_000), (4, 13)):
        parts[number] = parts[number][:8] + wrong.to_bytes(4, "big") + parts[number][12:]
    write_segment(tmp_path / "t-0", 0, *parts[:5], b"\xee" * 61 + parts[5][61:])
    plan = plan_salvage(tmp_path / "t-0", out=tmp_path / "out")
    (partition,) = plan.partitions
    # Behind the second one nothing sound begins, so its end is not known.
    assert [one.first_offset for one in partition.mended] == [4]
    assert [(one.said_size, one.size) for one in partition.mended] == [(5_012, len(parts[2]))]
    apply_salvage(plan)
    whole = b"".join(one.data for one in BASE[:4])
    assert (tmp_path / "out" / "t-0" / f"{0:020d}.log").read_bytes() == whole


@pytest.mark.parametrize("number", [0, 3, 5])
@pytest.mark.parametrize("wrong", [0, 13, 70, 2**31 - 1])
def test_of_a_length_alone_nothing_is_lost(tmp_path: Path, number: int, wrong: int) -> None:
    parts = [one.data for one in BASE]
    whole = b"".join(parts)
    parts[number] = parts[number][:8] + wrong.to_bytes(4, "big") + parts[number][12:]
    write_segment(tmp_path / "t-0", 0, *parts)
    plan = plan_salvage(tmp_path / "t-0", out=tmp_path / "out")
    assert plan.ok
    apply_salvage(plan)
    assert (tmp_path / "out" / "t-0" / f"{0:020d}.log").read_bytes() == whole


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_of_the_length_of_a_message_alone_nothing_is_lost(
    tmp_path: Path, magic: int, number: int
) -> None:
    parts = [
        messages([record(b"v0", offset=0)], magic=magic),
        wrapper([record(b"v%d" % at, offset=at) for at in range(1, 4)], magic=magic, codec=GZIP),
        messages([record(b"v4", offset=4)], magic=magic),
    ]
    whole = b"".join(parts)
    parts[number] = parts[number][:8] + b"\x7f" + parts[number][9:]
    write_segment(tmp_path / "t-0", 0, *parts)
    plan = plan_salvage(tmp_path / "t-0", out=tmp_path / "out")
    assert plan.ok
    apply_salvage(plan)
    assert (tmp_path / "out" / "t-0" / f"{0:020d}.log").read_bytes() == whole


def test_batches_between_a_cut_and_other_damage_count_if_the_index_names_two(
    tmp_path: Path,
) -> None:
    batches = told(10, size=1)
    parts = [one.data for one in batches]
    entries, position = [], 0
    for one in batches:
        entries.append(struct.pack(">ii", one.first, position))
        position += len(one.data)
    cut = parts[1][:40]
    damaged = b"\xee" * 61 + parts[6][61:]
    write_segment(tmp_path / "t-0", 0, parts[0], cut, *parts[2:6], damaged, *parts[7:])
    for count, kept_too in ((0, []), (3, []), (4, [2, 3, 4, 5])):
        path = tmp_path / "t-0" / f"{0:020d}.index"
        path.write_bytes(b"".join(entries[1:count]))
        assert kept(read_provable(tmp_path / "t-0")) == [0, *kept_too, 7, 8, 9], count


def test_batches_that_an_index_names_are_kept_in_any_order(tmp_path: Path) -> None:
    first, second, third = Told(0, 2), Told(5, 2), Told(11, 2)
    write_segment(tmp_path / "t-0", 0, third.data, second.data, first.data)
    assert len(kept(read_provable(tmp_path / "t-0"))) < 6
    size = len(first.data)
    entries = struct.pack(">iiii", 6, size, 12, 2 * size)
    (tmp_path / "t-0" / f"{0:020d}.index").write_bytes(entries)
    assert kept(read_provable(tmp_path / "t-0")) == [0, 1, 5, 6, 11, 12]


@pytest.mark.parametrize("left", [12, 40, 61, 80])
def test_a_chain_to_a_batch_that_is_cut_off_may_lie_in_a_larger_one(
    tmp_path: Path, left: int
) -> None:
    values = [one.data for one in told(3, start=4)]
    holding = batch([record(b"".join(values), offset=3)], base_offset=3)
    torn = holding[: holding.index(values[2]) + left]
    cut = batch([record(b"cut", offset=2)], base_offset=2)[:-4]
    write_segment(tmp_path / "t-0", 0, BASE[0].data, cut, torn)
    found = read_provable(tmp_path / "t-0")
    assert kept(found) == [0, 1]
    assert [one.batches for one in found.unprovable if one.reason == "not-anchored"] == [2]
