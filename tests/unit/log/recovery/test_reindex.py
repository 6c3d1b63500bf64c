from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from kseg.errors import LogLockedError, NotALogError, StalePlanError
from kseg.files import io, metadata, producer_snapshot
from kseg.files.names import FileKind
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import AbortedTxn, TxnIndex, pack_entries
from kseg.log import data_directory
from kseg.log.config import LogConfig
from kseg.log.recovery.findings import Finding
from tests.builders import ABORT, COMMIT, control_batch, messages, record, write_segment
from tests.segments import offset_entries, time_entries, txn_entries
from tests.stopping import failing_at
from tests.unit.log.reindexed import (
    DAY_MS,
    END,
    SEGMENTS,
    apply,
    bare,
    contents,
    data,
    entry,
    name,
    plain,
    plan,
)


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A partition with all that belongs to it."""
    directory = bare(tmp_path)
    apply(directory)
    return directory


# ---- what is made --------------------------------------------------------------------------------


def test_logs_alone_get_all_that_belongs_to_them(tmp_path: Path) -> None:
    directory = bare(tmp_path)
    logs = contents(directory)
    found = plan(directory)
    assert contents(directory) == logs
    assert [(file.action, file.path.name, file.why) for file in found.files] == [
        ("create", name(base, suffix), "missing")
        for base, suffix in [
            (10, "index"),
            (10, "timeindex"),
            (16, "index"),
            (16, "timeindex"),
            (23, "index"),
            (23, "timeindex"),
            (23, "txnindex"),
            (16, "snapshot"),
            (23, "snapshot"),
            (END, "snapshot"),
        ]
    ]
    report = found.apply(keep=False)
    assert report.files == found.files
    after = contents(directory)
    assert {file: after[file] for file in logs} == logs
    assert after.keys() - logs.keys() == {file.path.name for file in found.files}
    assert offset_entries(directory / name(10, "index"), 10) == [(12, 180), (14, 360)]
    assert time_entries(directory / name(10, "timeindex"), 10)[-1] == (1015, 15)
    assert txn_entries(directory / name(23, "txnindex")) == [(5, 20, 23, 21)]
    entries = producer_snapshot.read(directory / name(23, "snapshot"))
    assert [(each.producer_id, each.current_txn_first_offset) for each in entries] == [
        (1, -1),
        (5, 20),
        (6, 21),
    ]
    assert producer_snapshot.read(directory / name(16, "snapshot")) == ()
    assert len(producer_snapshot.read(directory / name(END, "snapshot"))) == 3


def test_done_twice_nothing_changes(partition: Path) -> None:
    before = {path.name: path.stat() for path in partition.iterdir()}
    assert apply(partition) == []
    assert {path.name: path.stat() for path in partition.iterdir()} == before


def test_a_plan_says_what_each_segment_makes_and_survives_a_pickle(partition: Path) -> None:
    found = plan(partition)
    assert [
        (each.base_offset, each.index_entries, each.time_index_entries, each.aborted)
        for each in found.segments
    ] == [(10, 2, 3, 0), (16, 3, 3, 0), (23, 1, 1, 1)]
    assert [each.size for each in found.segments] == [
        sum(map(len, parts)) for parts in SEGMENTS.values()
    ]
    assert (found.findings, str(found)) == ((), f"{partition}: nothing to do")
    assert pickle.loads(pickle.dumps(found)) == found == plan(partition)


@pytest.mark.parametrize(
    ("file", "change", "why"),
    [
        (name(10, "index"), lambda old: b"", "lacks the last entries"),
        (name(10, "index"), lambda old: old + bytes(800), "is longer than its log can need"),
        (name(10, "index"), lambda old: old + bytes(16), "has room for entries"),
        (name(10, "index"), lambda old: old[:4] + b"\0\0\0\x07" + old[8:], "entry 0 is wrong"),
        (name(10, "index"), lambda old: b"\0\0\0\x01" + old[4:], "entry 0 is wrong"),
        (name(10, "index"), lambda old: old[:-3], "ends within an entry: 13 bytes"),
        (
            name(10, "index"),
            lambda old: old + b"\0\0\0\x09\0\0\xff\0",
            "entry 2 points past the last batch",
        ),
        (name(16, "timeindex"), lambda old: old[:-12], "does not end with the largest time"),
        (name(16, "timeindex"), lambda old: old[-12:], "differs from entry 0 on"),
        (name(16, "timeindex"), lambda old: old[12:24] + old[:12], "not in order"),
        (name(16, "timeindex"), lambda old: old[:7] + b"\xff" + old[8:], "entry 0 is wrong"),
        (name(16, "timeindex"), lambda old: old[:-1] + b"\x7f", "entry 2 lies past"),
        (name(23, "txnindex"), lambda old: b"", "lacks the last entries"),
        (name(23, "txnindex"), lambda old: old[:9] + b"\x09" + old[10:], "differs from entry 0"),
        (name(23, "txnindex"), lambda old: b"\x01" + old[1:], "differs from entry 0 on"),
        (name(23, "txnindex"), lambda old: old + b"torn", "has more entries than the log makes"),
        (name(16, "snapshot"), lambda old: old[:-1] + b"\x01", "snapshot CRC"),
        (name(END, "snapshot"), lambda old: b"", "0 bytes are too few"),
    ],
)
def test_what_is_not_what_the_log_says_is_replaced_and_nothing_else(
    partition: Path, file: str, change: Callable[[bytes], bytes], why: str
) -> None:
    right = contents(partition)
    path = partition / file
    path.write_bytes(change(right[file]))
    path.chmod(0o640)
    os.utime(path, ns=(1, 1_234_567_890))
    (found,) = plan(partition).files
    assert (found.action, found.path, found.bytes) == ("replace", path, len(right[file]))
    assert why in found.why
    assert apply(partition) == [("replace", file)]
    assert contents(partition) == right
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_mtime_ns == 1_234_567_890


def test_a_plan_counts_entries_before_and_after(partition: Path) -> None:
    index = partition / name(10, "index")
    index.write_bytes(bytes(24))
    (found,) = plan(partition).files
    assert (found.entries_before, found.entries_after) == (3, 2)
    (action,) = plan(partition).actions
    assert (action.action, action.bytes) == ("replace", 16)
    assert action.why.endswith("(3 entries before, 2 after)")
    index.unlink()
    (found,) = plan(partition).files
    assert (found.entries_before, found.entries_after) == (None, 2)


def test_only_kinds_that_are_asked_for_are_looked_at(tmp_path: Path) -> None:
    directory = bare(tmp_path)
    assert apply(directory, kinds=[FileKind.TXNINDEX]) == [("create", name(23, "txnindex"))]
    made = apply(directory, kinds=[FileKind.INDEX, FileKind.TIMEINDEX])
    assert {Path(file).suffix for _, file in made} == {".index", ".timeindex"}
    assert plan(directory, kinds=[FileKind.INDEX]).segments[0].aborted is None
    with pytest.raises(ValueError, match=r"LOG is not made from a log"):
        plan(directory, kinds=[FileKind.LOG])


def test_true_indexes_of_other_settings_stay_unless_every_byte_counts(partition: Path) -> None:
    other = LogConfig(index_interval_bytes=190)
    assert plan(partition, config=other).is_noop
    found = plan(partition, config=other, exact=True)
    assert {file.path.suffix for file in found.files} == {".index", ".timeindex"}
    found.apply(keep=False)
    assert plan(partition, config=other, exact=True).is_noop


def test_an_index_of_few_entries_is_not_enough(partition: Path) -> None:
    every = LogConfig(index_interval_bytes=0)
    found = plan(partition, config=every).segments[0].files
    assert [(file.entries_before, file.entries_after) for file in found] == [(2, 5)]


def test_room_behind_the_entries_is_cut_off(partition: Path) -> None:
    index = partition / name(10, "index")
    right = index.read_bytes()
    index.write_bytes(right + bytes(8))
    found = plan(partition, exact=True)
    assert [file.why for file in found.files] == ["has unused room after its entries"]
    assert apply(partition) == [("replace", index.name)]
    assert index.read_bytes() == right


def test_a_directory_without_segments_has_nothing_to_do(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    assert plan(directory).is_noop


# ---- what the log knows no more ------------------------------------------------------------------


def test_an_entry_whose_transaction_began_in_front_of_the_log_stays(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    parts = [
        data(10, 5),
        control_batch(ABORT, base_offset=11, producer_id=5),
        control_batch(ABORT, base_offset=12, producer_id=6),
    ]
    write_segment(directory, 10, *parts)
    apply(directory)
    index = directory / name(10, "txnindex")
    assert txn_entries(index) == [(5, 10, 11, 12)]
    known = (AbortedTxn(5, 3, 11, 4), AbortedTxn(6, 4, 12, 13))
    index.write_bytes(pack_entries(known))
    assert plan(directory).is_noop
    index.write_bytes(pack_entries((*known, AbortedTxn(7, 4, 13, 14))))
    assert apply(directory) == [("replace", index.name)]
    assert TxnIndex.open(index).entries() == known


def test_an_entry_whose_first_records_are_gone_stays_and_one_that_lies_does_not(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    parts = [
        data(10, 5),
        control_batch(COMMIT, base_offset=11, producer_id=5),
        data(15, 5, 1),
        control_batch(ABORT, base_offset=16, producer_id=5),
    ]
    write_segment(directory, 10, *parts)
    apply(directory)
    index = directory / name(10, "txnindex")
    index.write_bytes(pack_entries((AbortedTxn(5, 12, 16, 17),)))
    assert plan(directory).is_noop
    for first in (10, 11):
        index.write_bytes(pack_entries((AbortedTxn(5, first, 16, 17),)))
        assert apply(directory) == [("replace", index.name)]
        assert TxnIndex.open(index).entries() == (AbortedTxn(5, 15, 16, 17),)


def test_a_snapshot_stays_that_knows_producers_from_in_front_of_the_log(partition: Path) -> None:
    path = partition / name(23, "snapshot")
    stored = producer_snapshot.read(path)
    producer_snapshot.write(path, [*stored, entry(99, 4)])
    assert plan(partition).is_noop
    # Forgotten producers are no contradiction either: they had expired.
    producer_snapshot.write(path, [])
    assert plan(partition).is_noop


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (entry(5, 19), "producer 5 has written offset 20"),
        (entry(5, 20, sequence=7), "the last sequence of producer 5 is 0"),
        (entry(99, 23), "producer 99 cannot have written offset 23 by then"),
    ],
)
def test_a_snapshot_goes_that_contradicts_the_log(
    partition: Path, wrong: ProducerSnapshotEntry, why: str
) -> None:
    path = partition / name(23, "snapshot")
    right = path.read_bytes()
    producer_snapshot.write(path, [wrong])
    assert [file.why for file in plan(partition).files] == [why]
    assert apply(partition) == [("replace", path.name)]
    assert path.read_bytes() == right


def test_the_snapshot_at_the_first_segment_is_where_producers_begin(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    write_segment(directory, 10, control_batch(ABORT, base_offset=10, producer_id=5))
    begun = ProducerSnapshotEntry(5, 0, 0, 8, 0, DAY_MS, -1, 8)
    producer_snapshot.write(directory / name(10, "snapshot"), [begun, entry(6, 9)])
    apply(directory, now_ms=3 * DAY_MS)
    assert txn_entries(directory / name(10, "txnindex")) == [(5, 8, 10, 11)]
    # The other one has expired; an open transaction never does.
    entries = producer_snapshot.read(directory / name(11, "snapshot"))
    assert [each.producer_id for each in entries] == [5]


def test_an_unreadable_snapshot_at_no_segments_base_goes(partition: Path) -> None:
    stray = partition / name(18, "snapshot")
    stray.write_bytes(b"noise")
    assert apply(partition) == [("delete", stray.name)]
    producer_snapshot.write(stray, [])
    assert plan(partition).is_noop


# ---- damaged logs --------------------------------------------------------------------------------


def damage(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_a_damaged_segment_keeps_its_indexes_and_what_follows_its_producers(
    partition: Path,
) -> None:
    right = contents(partition)
    damage(partition / name(16, "log"), 300)
    for file in (name(16, "index"), name(23, "index"), name(23, "txnindex"), name(23, "snapshot")):
        (partition / file).write_bytes(b"noise")
    found = plan(partition)
    (finding,) = found.findings
    log_path = partition / name(16, "log")
    assert finding == Finding("", log_path, "the batch does not match its checksum", 270)
    assert [each.finding for each in found.segments] == [None, finding, None]
    assert found.segments[2].aborted is None
    assert f"left alone: {finding}" in str(found)
    log = (partition / name(16, "log")).read_bytes()
    report = found.apply(keep=False)
    assert [file.path.name for file in report.files] == [name(23, "index")]
    assert report.findings == (finding,)
    after = contents(partition)
    assert after[name(23, "index")] == right[name(23, "index")]
    assert after[name(16, "log")] == log
    assert after[name(16, "index")] == after[name(23, "txnindex")] == b"noise"


def test_a_torn_end_of_the_log_is_no_damage_and_stays(partition: Path) -> None:
    right = contents(partition)
    log = partition / name(23, "log")
    log.write_bytes(log.read_bytes() + b"torn")
    (partition / name(23, "index")).unlink()
    assert apply(partition) == [("create", name(23, "index"))]
    assert (partition / name(23, "index")).read_bytes() == right[name(23, "index")]
    assert log.read_bytes().endswith(b"torn")
    middle = partition / name(10, "log")
    middle.write_bytes(middle.read_bytes() + b"torn")
    assert [finding.path for finding in plan(partition).findings] == [middle]


def test_offsets_that_go_back_are_damage(partition: Path) -> None:
    log = partition / name(10, "log")
    log.write_bytes(log.read_bytes() + plain(11, 1)[0])
    (finding,) = plan(partition).findings
    assert finding.message == "offsets 11 to 11 of a batch are out of order after 15"


def test_what_is_no_partition_is_refused(partition: Path) -> None:
    for path in (partition.parent, partition / name(10, "log")):
        with pytest.raises(NotALogError, match="not a partition directory"):
            plan(path)
    with pytest.raises(FileNotFoundError):
        plan(partition.parent / "none-0")


def test_times_that_messages_of_magic_0_do_not_carry_are_believed(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    old = [messages([record(b"x" * 80, offset=offset)], magic=0) for offset in range(10, 16)]
    write_segment(directory, 10, *old)
    apply(directory)
    times = directory / name(10, "timeindex")
    assert times.read_bytes() == b""
    times.write_bytes(pack(">qi", 1234, 3))
    assert plan(directory).is_noop
    times.write_bytes(pack(">qi", 1234, 7))
    assert apply(directory) == [("replace", times.name)]


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: (directory / name(10, "log")).write_bytes(b""),
        lambda directory: os.utime(directory / name(16, "index"), ns=(0, 0)),
        lambda directory: (directory / name(16, "index")).unlink(),
        lambda directory: (directory / name(30, "log")).write_bytes(b""),
    ],
)
def test_a_plan_for_files_that_have_changed_is_stale(
    partition: Path, change: Callable[[Path], object]
) -> None:
    (partition / name(10, "index")).unlink()
    found = plan(partition)
    change(partition)
    before = contents(partition)
    with pytest.raises(StalePlanError):
        found.apply(keep=False)
    assert contents(partition) == before
    assert not (partition.parent / ".lock").exists()


def test_a_log_that_is_written_to_is_left_alone(partition: Path) -> None:
    (partition / name(10, "index")).unlink()
    found = plan(partition)
    home = data_directory.enter(partition.parent)
    home.claim(partition.name)
    try:
        with pytest.raises(LogLockedError):
            found.apply(keep=False)
    finally:
        home.leave()
    assert not (partition / name(10, "index")).exists()


def test_the_mark_of_a_good_end_is_away_only_while_something_changes(partition: Path) -> None:
    home = partition.parent
    metadata.write_clean_shutdown(home, 7)
    (partition / name(10, "index")).unlink()
    seen: list[bool] = []
    usual = io.Calls()

    def rename(*arguments: Any) -> None:
        seen.append(metadata.read_clean_shutdown(home) is not None)
        usual.rename(*arguments)

    with io.calls_replaced(io.Calls(rename=rename)):
        plan(partition).apply(keep=False)
    assert seen[0] is False
    mark = metadata.read_clean_shutdown(home)
    assert mark is not None
    assert mark.broker_epoch == -1  # something was repaired

    def failing(*_arguments: Any) -> None:
        raise OSError(5, "Input/output error")

    (partition / name(10, "index")).unlink()
    with io.calls_replaced(io.Calls(fdatasync=failing)), pytest.raises(OSError, match="error"):
        plan(partition).apply(keep=False)
    assert metadata.read_clean_shutdown(home) is None


def test_old_files_are_kept_beside_the_data_directory(partition: Path, tmp_path: Path) -> None:
    index, stray = partition / name(10, "index"), partition / name(18, "snapshot")
    index.write_bytes(b"old index")
    stray.write_bytes(b"old snapshot")
    report = plan(partition, now_ms=1000).apply()
    assert [(kept.path, kept.kept.read_bytes()) for kept in report.kept] == [
        (index, b"old index"),
        (stray, b"old snapshot"),
    ]
    backup = tmp_path / "data.kseg-backup"
    assert all(backup in kept.kept.parents for kept in report.kept)
    index.write_bytes(b"old again")
    report = plan(partition).apply(backup_directory=tmp_path / "elsewhere")
    (kept,) = report.kept
    assert kept.kept == tmp_path / "elsewhere" / "t-0" / index.name


def test_stopped_anywhere_and_done_again_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    expected = bare(tmp_path / "whole")
    apply(expected)
    for number in range(1, 400):
        directory = bare(tmp_path / f"stopped-{number}")
        counted, usual = failing_at(number), io.Calls()
        names = ("pwritev", "fdatasync", "rename", "fsync")
        found = plan(directory)
        try:
            with io.calls_replaced(io.Calls(**{n: counted(getattr(usual, n)) for n in names})):
                found.apply(keep=False)
        except OSError:
            apply(directory)
        else:
            break
        assert contents(directory) == contents(expected)
    assert 30 < number < 399


def test_progress_is_told_in_bytes_of_log(partition: Path) -> None:
    steps: list[tuple[int, int]] = []
    plan(partition, progress=lambda done, total: steps.append((done, total)))
    sizes = [sum(map(len, parts)) for parts in SEGMENTS.values()]
    assert steps == [(sum(sizes[: i + 1]), sum(sizes)) for i in range(3)]
