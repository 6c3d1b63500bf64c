"""What a tier has of a log, and what retention, truncation and recovery do to that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import kseg
from kseg.errors import TierError
from kseg.files.checkpoints import EpochEntry, LeaderEpochs, read_offset_checkpoint
from kseg.files.names import list_partition
from kseg.log.config import LogConfig
from kseg.log.tier.history import expired, tiered, unreferenced
from kseg.log.tier.lineage import SegmentState
from kseg.log.tier.tier import Tier, TierLike
from tests.conformance.test_tiered import case_of, rows

START = "log-start-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"


@pytest.fixture
def home(fixtures_dir: Path, tmp_path: Path) -> Path:
    """All that brokers wrote, before they deleted any local segment, and what the tier had then."""
    return copied(fixtures_dir / "tiered" / "4.2.0-local", tmp_path / "data")


def copied(case: Path, target: Path) -> Path:
    shutil.copytree(case / "original", target)
    for metadata in (case / "local").glob("__remote_log_metadata-*"):
        shutil.copytree(metadata, target / metadata.name, dirs_exist_ok=True)
    (target / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return target


def bases(directory: Path) -> list[int]:
    return [each.base_offset for each in list_partition(directory).segments]


# ---- retention -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "partition", "stays"),
    [("4.2.0-local", "plain-0", 0), ("4.2.0-local", "txn-0", 1), ("4.2.0-split", "split-0", 0)],
)
def test_local_segments_go_that_the_tier_has_and_no_record_is_lost(
    fixtures_dir: Path, tmp_path: Path, name: str, partition: str, stays: int
) -> None:
    case = case_of(fixtures_dir / "tiered" / name)
    home = copied(case.path, tmp_path / "data")
    log = home / partition
    before = (home / START).read_text(), (log / EPOCHS).read_text()
    highest = case.tier.log(log).highest_remote
    config = LogConfig(local_retention_ms=1).of_topic()
    plan = kseg.plan_retention(log, config=config, high_watermark="end")
    assert plan.remote is not None
    assert (plan.remote.source, plan.remote.highest_offset) == ("metadata", highest)
    assert (plan.remote.log_start_offset, plan.remote.new_log_start_offset) == (0, 0)
    assert plan.remote.uncopied_segments == stays
    assert plan.new_log_start_offset == highest + 1
    assert (not plan.rolls) == bool(stays)
    plan.apply()
    assert min(bases(log)) == highest + 1
    assert ((home / START).read_text(), (log / EPOCHS).read_text()) == before
    topic, _, number = partition.rpartition("-")
    for isolation in ("read_uncommitted", "read_committed"):
        found = rows(log, tier=case.tier, isolation=isolation, open_transactions="abort")
        wanted = case.records[isolation, topic, int(number)]
        assert found[: len(wanted)] == wanted
    again = kseg.plan_retention(log, config=config, high_watermark="end")
    assert again.is_noop


def test_an_open_log_deletes_nothing_that_the_tier_lacks(home: Path) -> None:
    before = (home / START).read_text()
    config = LogConfig(retention_ms=1, cleanup_policy=frozenset({"delete"})).of_topic()
    with kseg.Log.open(home / "txn-0", mode="append", config=config, high_watermark="end") as log:
        report = log.delete_old_segments()
        assert report.segments_count == 7
        assert log.log_start_offset == 420
    assert (home / START).read_text() == before


def test_a_tier_without_metadata_beside_says_the_same(fixtures_dir: Path, tmp_path: Path) -> None:
    case = case_of(fixtures_dir / "tiered" / "4.2.0-local")
    log = tmp_path / "plain-0"
    shutil.copytree(case.path / "original" / "plain-0", log)
    config = LogConfig(local_retention_bytes=0)
    plain = kseg.plan_retention(log, config=LogConfig(retention_bytes=0))
    assert plain.remote is None
    plan = kseg.plan_retention(log, config=config, tier=case.path / "remote")
    assert plan.remote is not None
    assert plan.remote.source == "names"
    assert [each.base_offset for each in plan.segments] == bases(log)
    assert "in the tier, by names" in str(plan)


def test_retention_of_both_parts_takes_what_the_broker_took(home: Path, fixtures_dir: Path) -> None:
    """`expired` had retention.bytes=6379: its first segment went, and the log starts at 67."""
    log = tiered(home / "expired-0", None)
    assert log is not None
    whole = {
        id_: copy._replace(segment=replace(copy.segment, state=SegmentState.COPY_SEGMENT_FINISHED))
        for id_, copy in log.copies.items()
    }
    then = replace(log, copies=whole)
    going, start = expired(then, LogConfig(retention_bytes=6379), 0)
    assert (len(going), start) == (1, 67)
    gone = [copy.segment.id for copy in log.copies.values() if copy.segment not in log.finished]
    assert [one.id for one in going] == gone
    assert expired(log, LogConfig(retention_bytes=6379), 0)[1] == 0
    ended = tiered(fixtures_dir / "tiered" / "4.2.0-local" / "local" / "expired-0", None)
    assert ended is not None
    assert expired(ended, LogConfig(retention_bytes=6379), 0) == ((), 67)


def test_a_time_limit_of_both_parts_ends_at_the_first_copy_that_is_younger(home: Path) -> None:
    log = tiered(home / "codec-0", None)
    assert log is not None
    times = sorted(one.max_timestamp for one in log.finished)
    limits = LogConfig(retention_ms=10)
    going, start = expired(log, limits, times[2] + 10)
    assert [one.max_timestamp for one in going] == times[:3]
    assert start == going[-1].end_offset + 1
    assert expired(log, limits, times[0] + 9) == ((), 0)
    unknown = {
        id_: copy._replace(segment=replace(copy.segment, max_timestamp=-1))
        for id_, copy in log.copies.items()
    }
    assert expired(replace(log, copies=unknown), limits, times[-1] + 99) == ((), 0)


def test_copies_out_of_the_lineage_are_passed_over(fixtures_dir: Path) -> None:
    case = fixtures_dir / "tiered" / "4.2.0-split"
    log = tiered(case / "local" / "split-0", case / "remote")
    assert log is not None
    assert log.lineage == (EpochEntry(0, 0), EpochEntry(2, 79))
    going, start = expired(log, LogConfig(retention_ms=0), 1 << 60)
    assert start == 281
    assert {one.end_offset for one in going}.isdisjoint({90, 241})


# ---- truncation and recovery ---------------------------------------------------------------------


def test_a_cut_says_what_the_tier_has_behind_it(home: Path, fixtures_dir: Path) -> None:
    plan = kseg.plan_truncation(home / "dated-0", 100)
    assert plan.remote is not None
    assert plan.remote.behind == (plan.log_end_offset, 208) == (98, 208)
    assert plan.remote.deleted_segments == 0
    assert "kseg read dated-0 --tier URL --offset 98..209" in str(plan)
    plan.apply(keep_cut=False)
    assert "dated 0 0" in (home / START).read_text()
    ended = fixtures_dir / "tiered" / "4.2.0-local" / "local" / "plain-0"
    whole = kseg.plan_truncation(ended, 100).remote
    assert whole is not None
    assert (whole.deleted_segments, whole.new_log_start_offset) == (4, 100)


def test_recovery_says_what_the_tier_has_of_a_damaged_tail(
    home: Path, fixtures_dir: Path, tmp_path: Path
) -> None:
    log = home / "plain-0"
    path = next(log.glob("*129.log"))
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    plan = kseg.plan_recovery(log, clean=False, recovery_point=0)
    assert plan.log_end_offset == 129
    assert plan.remote is not None
    assert plan.to_json()["remote"]["behind"] == [129, 219]
    assert "kseg read plain-0 --tier URL --offset 129..220" in str(plan)
    tier = Tier.of(fixtures_dir / "tiered" / "4.2.0-local" / "remote")
    assert rows(tmp_path / "plain-0", tier=tier, offset=(129, 220))[0][0] == 129


def test_a_log_without_a_tier_has_no_history(home: Path, fixtures_dir: Path) -> None:
    case = fixtures_dir / "tiered" / "4.2.0-local"
    assert tiered(home / "gone-0", None) is None
    assert tiered(home / "__remote_log_metadata-0", None) is None
    empty = home / "empty-0"
    empty.mkdir()
    assert tiered(empty, case / "remote") is None
    with pytest.raises(FileNotFoundError):
        tiered(home / "plain-0", case / "nowhere")


# ---- epochs that only the tier knows -------------------------------------------------------------


#: Checkpoints that a repair may find; None for none.
CHECKPOINTS = {"whole": "", "missing": None, "malformed": "x", "empty": "0\n0\n"}
CHECKPOINTS["of the local part"] = "0\n1\n{epoch} {base}\n"


def ended(case: Path, target: Path, partition: str) -> Path:
    """A log whose closed segments are in the tier alone, with the metadata of all."""
    log = copied(case, target) / partition
    config = LogConfig(local_retention_ms=1).of_topic()
    kseg.plan_retention(log, config=config, high_watermark="end").apply()
    return log


def salvaged(log: Path, tier: TierLike | None = None) -> Path:
    kseg.plan_salvage(log, out=log.parents[1] / "out", tier=tier).apply()
    return log.parents[1] / "out" / log.name


def merged(log: Path, tier: TierLike | None = None) -> Path:
    other = log.parents[1] / "other" / log.name
    shutil.copytree(log, other)
    kseg.plan_merge(other, log, out=log.parents[1] / "out", tier=tier).apply()
    return log.parents[1] / "out" / log.name


def recovered(log: Path, tier: TierLike | None = None) -> Path:
    kseg.recover(log, tier=tier or Tier.beside())
    return log


def recovered_after_a_crash(log: Path, tier: TierLike | None = None) -> Path:
    (log.parent / ".kafka_cleanshutdown").unlink()
    return recovered(log, tier)


def spoil(log: Path, text: str | None) -> tuple[EpochEntry, ...]:
    """Put another text into the checkpoint; gives the entries that it had."""
    path = log / EPOCHS
    before = LeaderEpochs.load(path).entries
    path.unlink()
    if text is not None:
        path.write_text(text.format(epoch=before[-1].epoch, base=bases(log)[0]))
    return before


@pytest.mark.parametrize("repair", [salvaged, merged, recovered, recovered_after_a_crash])
@pytest.mark.parametrize(
    ("partition", "kind"), [*(("plain-0", kind) for kind in CHECKPOINTS), ("txn-0", "whole")]
)
def test_a_repair_keeps_the_epochs_of_the_tier(
    fixtures_dir: Path, tmp_path: Path, repair: Callable[[Path], Path], kind: str, partition: str
) -> None:
    log = ended(fixtures_dir / "tiered" / "4.2.0-local", tmp_path / "data", partition)
    before = LeaderEpochs.load(log / EPOCHS).entries
    if kind != "whole":
        spoil(log, CHECKPOINTS[kind])
    assert LeaderEpochs.load(repair(log) / EPOCHS).entries == before


def test_a_salvaged_log_starts_in_its_tier(fixtures_dir: Path, tmp_path: Path) -> None:
    source = fixtures_dir / "tiered" / "4.2.0-local" / "local"
    kseg.plan_salvage(source, out=tmp_path / "out").apply()
    starts = [read_offset_checkpoint(home / START) for home in (source, tmp_path / "out")]
    deleted = {partition: start for partition, start in starts[0].items() if start}
    assert len(deleted) == 2
    assert {partition: starts[1].get(partition) for partition in deleted} == deleted


@pytest.mark.parametrize("repair", [salvaged, merged, recovered, recovered_after_a_crash])
@pytest.mark.parametrize("name", ["metadata", "several leaders"])
def test_a_repair_that_lacks_them_is_refused_without_the_tier(
    fixtures_dir: Path, tmp_path: Path, repair: Callable[..., Path], name: str
) -> None:
    case, partition = fixtures_dir / "tiered" / "4.2.0-local", "plain-0"
    if name == "several leaders":
        case, partition = fixtures_dir / "tiered" / "4.2.0-split", "split-0"
    log = ended(case, tmp_path / "data", partition)
    before = spoil(log, None)
    if name == "metadata":
        for directory in log.parent.glob("__remote_log_metadata-*"):
            shutil.rmtree(directory)
    with pytest.raises(TierError, match="Name the tier"):
        repair(log)
    assert not (log / EPOCHS).exists()
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    (log.parent / ".kafka_cleanshutdown").touch()
    result = LeaderEpochs.load(repair(log, tier=case / "remote") / EPOCHS).entries
    assert result == before


def test_a_load_as_a_broker_would_delete_from_the_tier_and_is_not_applied(
    fixtures_dir: Path, tmp_path: Path
) -> None:
    log = ended(fixtures_dir / "tiered" / "4.2.0-local", tmp_path / "data", "plain-0")
    spoil(log, None)
    plan = kseg.plan_recovery(log, as_broker=True, clean=False)
    with pytest.raises(TierError, match="deletes 4 segments of the tier"):
        plan.apply()


@pytest.mark.parametrize(
    ("first", "start", "ends"),
    [((0, 0), 0, []), ((4, 90), 0, [63]), ((6, 220), 0, [63, 128]), ((6, 220), 64, [128])],
)
def test_copies_of_earlier_epochs_alone_go(
    home: Path, first: tuple[int, int], start: int, ends: list[int]
) -> None:
    log = tiered(home / "plain-0", None)
    assert log is not None
    assert [one.end_offset for one in unreferenced(log, [EpochEntry(*first)], start)] == ends
