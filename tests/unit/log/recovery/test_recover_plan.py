"""What a plan says, and that it changes nothing. What is done is in `test_recovering.py`."""

from __future__ import annotations

import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.errors import NotALogError, OffsetsOutOfOrderError
from kseg.files.checkpoints import TopicPartition, write_offset_checkpoint
from kseg.log.recovery.load_context import LoadContext
from kseg.log.recovery.recover import RecoveryPlan, plan_recovery
from kseg.log.segment.reader import Segment
from tests.builders import batch, record, write_segment
from tests.unit.log import damaged
from tests.unit.log.damaged import CONFIG, HARMS, NOW, content, logs

Harm = Callable[[Path], None]


def plan(directory: Path, *, clean: bool | None = True, **how: Any) -> RecoveryPlan:
    return plan_recovery(directory, clean=clean, **{"config": CONFIG, "now_ms": NOW, **how})


def codes(made: RecoveryPlan) -> list[str]:
    return [finding.code for finding in made.findings]


def changed(made: RecoveryPlan) -> list[str]:
    return [f"{action.action} {Path(action.path).name.lstrip('0')}" for action in made.actions]


# ---- what a plan is ------------------------------------------------------------------------------


@pytest.mark.parametrize("as_broker", [False, True])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("harm", HARMS)
def test_a_plan_changes_nothing_and_comes_out_the_same_again(
    partition: Path, harm: Harm, clean: bool, as_broker: bool
) -> None:
    harm(partition)
    before = content(partition)
    first = plan(partition, clean=clean, as_broker=as_broker)
    assert plan(partition, clean=clean, as_broker=as_broker) == first
    assert content(partition) == before
    assert pickle.loads(pickle.dumps(first)) == first
    assert str(first).startswith(f"{partition}:\n  ")


def test_mark_and_checkpoints_beside_the_directory_count_unless_told(partition: Path) -> None:
    data = partition.parent
    ours = TopicPartition("t", 0)
    write_offset_checkpoint(data / "recovery-point-offset-checkpoint", {ours: 20})
    write_offset_checkpoint(data / "log-start-offset-checkpoint", {ours: 4})
    made = plan(partition, clean=None)
    assert (made.clean, made.recovery_point, made.log_start_offset) == (False, 20, 4)
    assert [segment.base_offset for segment in made.segments if segment.walked] == [20, 23]
    (data / ".kafka_cleanshutdown").write_bytes(b"")
    assert plan(partition, clean=None).clean
    given = plan(partition, clean=False, recovery_point=23, log_start_offset=0)
    assert (given.clean, given.recovery_point, given.log_start_offset) == (False, 23, 0)


def test_a_finished_log_without_its_index_gets_one_without_room_from_a_broker(
    partition: Path,
) -> None:
    log = sorted(partition.glob("*.log"))[-1]
    log.rename(f"{log}.swap")
    for kind in ("index", "timeindex"):
        log.with_suffix(f".{kind}").unlink(missing_ok=True)
    room = CONFIG.segment_index_bytes // 8
    for as_broker in (False, True):
        made = plan(partition, as_broker=as_broker)
        assert (made.segments[-1].index_entries == room) == as_broker
    plan(partition, as_broker=True).apply(keep_cut=False)
    assert log.with_suffix(".index").read_bytes() == bytes(8 * room)


@pytest.mark.parametrize("as_broker", [False, True])
def test_a_finished_index_that_is_longer_than_the_one_it_replaces_is_mended(
    partition: Path, as_broker: bool
) -> None:
    log = sorted(partition.glob("*.log"))[-1]
    index = log.with_suffix(".index")
    plan(partition, clean=False, as_broker=as_broker).apply(keep_cut=False)
    right = index.read_bytes()
    log.rename(f"{log}.swap")
    index.with_name(f"{index.name}.swap").write_bytes(right + b"\1" * 80)
    made = plan(partition, clean=False, as_broker=as_broker)
    made.apply(keep_cut=False)
    assert log.exists()
    assert index.read_bytes() == right


def test_a_sound_batch_over_the_next_segment_stays_and_is_told_of(partition: Path) -> None:
    first, second, *_ = logs(partition)
    late = batch([record(b"late", timestamp=NOW)], base_offset=int(second.stem) + 500)
    first.write_bytes(first.read_bytes() + late)
    before = [path.read_bytes() for path in logs(partition)]
    made = plan(partition, clean=False, recovery_point=0)
    (found,) = (one for one in made.findings if one.code == "offset-order")
    assert found.path == str(first)
    assert found.offset == int(second.stem)
    made.apply(keep_cut=False)
    assert [path.read_bytes() for path in logs(partition)] == before


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        plan(tmp_path / "t-0")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotALogError):
        plan(tmp_path / "file")


def test_a_data_directory_is_no_partition(partition: Path) -> None:
    """A plan for it would make a first segment beside its partitions."""
    with pytest.raises(NotALogError, match="not a partition directory"):
        plan(partition.parent)


def test_progress_tells_of_all_bytes_walked(partition: Path) -> None:
    steps: list[tuple[int, int]] = []
    plan(partition, clean=False, progress=lambda done, total: steps.append((done, total)))
    size = sum(path.stat().st_size for path in logs(partition))
    assert steps[-1] == (size, size)
    assert len(steps) == len(logs(partition))


# ---- after a clean stop --------------------------------------------------------------------------


def test_zeros_at_the_end_are_cut_where_a_broker_fails(partition: Path) -> None:
    damaged.zeros(partition)
    assert codes(plan(partition)) == ["zero-tail"]
    assert changed(plan(partition)) == ["truncate 23.log"]
    assert plan(partition, as_broker=True).error is not None


@pytest.mark.parametrize("with_entries", [True, False])
def test_damage_in_front_of_a_cut_stays_and_so_do_the_batches_behind_it(
    partition: Path, with_entries: bool
) -> None:
    last = logs(partition)[-1]
    damaged.damage_in_front_of_garbage(partition)
    if with_entries:  # that lead into what goes
        with last.with_suffix(".index").open("ab") as index:
            index.write(struct.pack(">ii", 5, 258) + bytes(8))
        with last.with_suffix(".timeindex").open("ab") as times:
            times.write(struct.pack(">qi", NOW + 10**6, 5))
    kept = last.read_bytes()[:258]
    made = plan(partition)
    found = [one.position for one in made.findings if one.path.endswith(".log")]
    assert {0, 258} == set(found)
    assert (made.log_end_offset, made.truncated_bytes) == (25, 160)
    made.apply(keep_cut=False)
    assert last.read_bytes() == kept
    assert last.with_suffix(".index").read_bytes() == struct.pack(">ii", 1, 129)
    assert last.with_suffix(".timeindex").stat().st_size == 12
    again = plan(partition)
    assert (again.is_noop, again.log_end_offset) == (True, 25)


def test_an_index_that_leads_into_a_value_cuts_no_batch(tmp_path: Path) -> None:
    inner = batch([record(b"inner")], base_offset=1)
    data = b"".join(
        batch([record(value)], base_offset=offset)
        for offset, value in enumerate((b"first", b"in front" + inner + b"behind" * 30))
    )
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(data)
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 1, data.index(inner)))
    log.with_suffix(".timeindex").write_bytes(b"")
    made = plan(log.parent)
    assert (made.log_end_offset, made.truncated_bytes) == (2, 0)
    made.apply(keep_cut=False)
    assert log.read_bytes() == data
    assert plan(log.parent).is_noop


@pytest.mark.parametrize(
    ("harm", "code", "files"),
    [
        (damaged.garbled_indexes, "index-length", {"3.index", "3.timeindex"}),
        (damaged.zeroed_indexes, "index-unused", {"3.index", "3.timeindex"}),
        (damaged.no_offset_index, "index-missing", {"6.index"}),
        (damaged.txn_index_of_an_unknown_version, "txn-index-version", {"10.txnindex"}),
    ],
)
def test_indexes_that_do_not_fit_are_made_anew(
    partition: Path, harm: Harm, code: str, files: set[str]
) -> None:
    before = content(partition)
    harm(partition)
    made = plan(partition)
    assert codes(made) == [code]
    assert {line.split()[1] for line in changed(made)} == files
    assert content(partition) != before


def test_a_lost_transaction_index_comes_back_where_a_broker_never_misses_it(
    partition: Path,
) -> None:
    (lost,) = partition.glob("*.txnindex")
    wanted = lost.read_bytes()
    lost.unlink()
    assert plan(partition, as_broker=True).is_noop
    made = plan(partition)
    assert codes(made) == ["txn-index-incomplete"]
    assert changed(made) == ["create 10.txnindex"]
    made.apply(keep_cut=False)
    assert lost.read_bytes() == wanted
    assert plan(partition).is_noop


def test_a_missing_time_index_is_made_anew_where_a_broker_makes_an_empty_one(
    partition: Path,
) -> None:
    logs(partition)[1].with_suffix(".timeindex").unlink()
    sizes = [plan(partition, as_broker=way).actions[0].bytes for way in (False, True)]
    assert sizes == [24, 0]


def test_a_sealed_segment_with_damage_is_left_alone_with_its_indexes(partition: Path) -> None:
    damaged.flipped(partition)
    damaged.no_offset_index(partition)
    made = plan(partition)
    assert codes(made) == ["index-missing", "batch-crc"]
    assert made.is_noop
    assert plan(partition, as_broker=True).truncated_bytes == 420


# ---- after an unclean one ------------------------------------------------------------------------


def test_zeros_behind_a_segment_take_nothing_with_them_if_the_next_one_goes_on_there(
    partition: Path,
) -> None:
    damaged.zeros_in_the_middle(partition)
    ours = plan(partition, clean=False)
    brokers = plan(partition, clean=False, as_broker=True)
    assert (ours.log_end_offset, ours.truncated_bytes) == (25, 200)
    assert (brokers.log_end_offset, brokers.truncated_bytes) == (10, 1994)


def test_offsets_out_of_order_cut_the_log_in_front_of_the_batch(tmp_path: Path) -> None:
    sizes = []
    (tmp_path / f"{0:020d}.index").write_bytes(b"")
    for offset in (5, 6, 3, 4):
        data = batch([record(bytes(200))], base_offset=offset)
        sizes.append(len(data))
        with (tmp_path / f"{0:020d}.log").open("ab") as file:
            file.write(data)
    made = plan(tmp_path, clean=False)
    assert codes(made) == ["offset-order"]
    assert (made.log_end_offset, made.segments[0].keep_bytes) == (7, sum(sizes[:2]))
    assert plan(tmp_path, clean=False, as_broker=True).segments[0].keep_bytes == 0


def test_a_log_whose_first_batch_lies_in_front_of_its_base_is_refused_rather_than_emptied(
    partition: Path,
) -> None:
    first, second = logs(partition)[:2]
    shutil.copy(first, second)
    made = plan(partition, clean=False)
    assert isinstance(made.error, OffsetsOutOfOrderError)
    assert not made.is_noop
    assert "cannot be loaded" in str(made)
    assert made.actions == ()


def test_a_stale_epoch_does_not_hide_those_of_the_log(partition: Path) -> None:
    damaged.stale_epochs(partition)
    ours = plan(partition, clean=False)
    assert codes(ours) == ["epochs-ahead"]
    assert [tuple(entry) for entry in ours.epochs] == [(1, 0), (2, 8)]
    assert [tuple(e) for e in plan(partition, clean=False, as_broker=True).epochs] == [(0, 0)]


def test_a_start_beyond_the_end_is_said_and_the_log_begins_anew(partition: Path) -> None:
    made = plan(partition, clean=False, log_start_offset=1000)
    assert codes(made) == ["log-start-ahead"]
    assert (made.log_start_offset, made.log_end_offset, made.recovery_point) == (1000, 1000, 1000)
    assert made.epochs == made.snapshots == ()
    assert [segment.base_offset for segment in made.segments if not segment.goes] == [1000]


# ---- names ---------------------------------------------------------------------------------------


def test_a_log_with_a_short_name_is_renamed_where_a_broker_begins_an_empty_one(
    partition: Path,
) -> None:
    damaged.short_name(partition)
    ours, brokers = plan(partition), plan(partition, as_broker=True)
    assert codes(ours) == ["name-digits"]
    assert changed(ours) == ["rename 3.log"]
    assert "create 3.log" in changed(brokers)
    assert [s.keep_bytes for s in brokers.segments if s.base_offset == 3] == [0]


def test_a_log_without_an_offset_in_its_name_is_left_alone_where_a_broker_fails(
    partition: Path,
) -> None:
    damaged.unknown_name(partition)
    assert codes(plan(partition)) == ["name"]
    assert plan(partition).is_noop
    assert isinstance(plan(partition, as_broker=True).error, NotALogError)


def test_a_log_that_waits_for_its_deletion_is_refused(written: Path, tmp_path: Path) -> None:
    path = tmp_path / f"t-0.{'0' * 32}-delete"
    shutil.copytree(written, path)
    assert isinstance(plan(path, clean=False).error, NotALogError)
    brokers = plan(path, clean=False, as_broker=True)
    assert (brokers.log_end_offset, brokers.recovery_point, brokers.truncated_bytes) == (0, 0, 0)


@pytest.mark.parametrize("count", [20, 80])
def test_of_many_segments_each_is_opened_a_few_times_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    opened: list[int] = []
    plain = LoadContext.open

    def noted(self: LoadContext, base: int) -> Segment:
        opened.append(base)
        return plain(self, base)

    monkeypatch.setattr(LoadContext, "open", noted)
    path = tmp_path / "t-0"
    for base in range(count):
        write_segment(path, base, batch([record(b"v")], base_offset=base))
    plan_recovery(path, as_broker=True)
    assert 0 < len(opened) <= 5 * count
