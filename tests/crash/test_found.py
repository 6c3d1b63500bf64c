"""States in which the crash runs found something wrong, made by hand, so that they stay found."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kseg.files import io, producer_snapshot
from kseg.log.log import Log
from kseg.log.recovery.recover import recover
from tests.builders import ABORT
from tests.crash.checks import MARK, Checker
from tests.crash.faults import Fault, Faulty
from tests.crash.history import History, ViolationError
from tests.crash.kills import calls_of
from tests.crash.knowledge import check_producers
from tests.crash.oplog import Name, Recorder, Rename, SyncNames, Unname
from tests.crash.reading import found_in
from tests.crash.runs import Tally, faults, fresh, kills_in_recovery
from tests.crash.states import Contents, materialise, points, snapshot
from tests.crash.stories import (
    CONFIG,
    Abandon,
    Append,
    DeleteRecords,
    Flush,
    NewEpoch,
    Restart,
    Roll,
    Step,
    Story,
    Teller,
    Truncate,
    marker,
    now_ms,
    placed,
    plain,
    produced,
)
from tests.shares import WHOLE

#: Of one recovery.
KILLS = 1000 if WHOLE else 25
ENTRY = producer_snapshot.ProducerSnapshotEntry(7, 0, 0, 3, 0, now_ms(), -1, -1)
LOG = "data/orders-0/{:020d}.log"

STATES: dict[str, Contents] = {
    "a directory without a segment": {"data/orders-0": None},
    "an empty segment without indexes": {"data/orders-0": None, LOG.format(0): b""},
    "a log that ends in front of its start": {
        "data/log-start-offset-checkpoint": b"0\n1\norders 0 9\n",
        "data/orders-0": None,
        LOG.format(0): placed(plain(1), 0, 0),
        "data/orders-0/leader-epoch-checkpoint": b"0\n1\n0 0\n",
    },
    "an epoch before the start of a log that lost its end": {
        "data/log-start-offset-checkpoint": b"0\n1\norders 0 2\n",
        "data/orders-0": None,
        LOG.format(0): placed(plain(1), 0, 0),
        LOG.format(2): b"",
        "data/orders-0/leader-epoch-checkpoint": b"0\n1\n0 0\n",
    },
    "a producer of segments that are gone": {
        "data/orders-0": None,
        LOG.format(4): placed(produced(1, 8, 0), 4, 0),
        "data/orders-0/00000000000000000004.snapshot": producer_snapshot.to_bytes([ENTRY]),
        "data/orders-0/leader-epoch-checkpoint": b"0\n1\n0 4\n",
    },
}


@pytest.mark.parametrize("name", STATES)
def test_recovering_again_changes_nothing(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    materialise({"data": None, **STATES[name]}, root)
    recover(root / "data" / "orders-0", config=CONFIG, now_ms=now_ms())
    after = snapshot(root)
    recover(root / "data" / "orders-0", config=CONFIG, now_ms=now_ms())
    assert snapshot(root) == after


def test_a_start_that_could_not_be_written_down_takes_no_epochs_away(tmp_path: Path) -> None:
    teller = begun(tmp_path)
    broken = Faulty(Fault(0, "EIO", forever=True))
    with io.calls_replaced(broken.calls), pytest.raises(OSError, match="Input"):
        teller.take(DeleteRecords(1))
    teller.take(NewEpoch())
    teller.take(Append((plain(3),)))
    assert (teller.path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 4\n"
    teller.close()


def test_a_start_that_could_not_be_written_down_is_written_the_next_time(tmp_path: Path) -> None:
    teller = begun(tmp_path)
    broken = Faulty(Fault(0, "EIO"))
    with io.calls_replaced(broken.calls), pytest.raises(OSError, match="Input"):
        teller.take(DeleteRecords(1))
    teller.take(DeleteRecords(1))
    starts = (tmp_path / "data" / "log-start-offset-checkpoint").read_text()
    assert starts == "0\n1\norders 0 2\n"
    teller.close()


def begun(root: Path) -> Teller:
    (root / "data").mkdir()
    teller = Teller(root, lambda _told: None)
    teller.open()
    teller.take(Append((plain(1), plain(2))))
    return teller


def test_a_producer_whose_records_are_gone_is_known_after_a_second_crash(tmp_path: Path) -> None:
    root = tmp_path / "root"
    materialise({"data": None, **STATES["a producer of segments that are gone"]}, root)
    for _ in range(2):
        recover(root / "data" / "orders-0", config=CONFIG, now_ms=now_ms())
    with Log.open(
        root / "data" / "orders-0", mode="append", config=CONFIG, recover=True, now_ms=now_ms
    ) as log:
        assert {7, 8} <= set(log.state.producers.entries)
    assert len(found_in(snapshot(root), "data/orders-0").batches) == 1


def test_a_directory_that_was_made_but_not_flushed_is_flushed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    recorder = Recorder(tmp_path, Faulty(Fault(2, "ENOSPC")).calls)
    teller = Teller(tmp_path, recorder.remark)
    with io.calls_replaced(recorder.calls):
        with pytest.raises(OSError, match="space"):
            teller.open()
        teller.open()
        teller.close()
    last = points(recorder.before, recorder.ops)[-1]
    assert [op for op in last.open if isinstance(op, Name) and op.is_directory] == []


def test_a_start_that_was_not_written_down_may_go_back_when_the_process_dies(
    tmp_path: Path,
) -> None:
    steps = (Append((plain(1), plain(2)), durable=True), DeleteRecords(1), Flush(), Abandon())
    story = Story("no room for a checkpoint", steps)
    names = calls_of(story.run, fresh(tmp_path / "run"))
    tally = Tally()
    full = [Fault(at, "ENOSPC") for at, name in enumerate(names) if name == "open"]
    faults(story, tmp_path, full, "found", tally)
    assert (tally.faults, tally.violations) == (len(full), [])


def test_a_log_whose_flush_failed_is_opened_again_with_what_the_disk_has(tmp_path: Path) -> None:
    end = (Flush(), Abandon(), Append((plain(20),), durable=True), Roll())
    tally, tried = Tally(), 0
    for count in range(1, 6):  # so that each flush has each number that makes a difference
        story = Story("a failed flush", (*(Append((plain(n),)) for n in range(count)), *end))
        names = calls_of(story.run, fresh(tmp_path / "run"))
        flushes = [at for at, name in enumerate(names) if name == "fdatasync" and at % 6 == 0]
        faults(story, tmp_path, [Fault(at, "EIO") for at in flushes], "found", tally)
        tried += len(flushes)
    assert (tally.faults, tally.violations) == (tried, [])


def test_files_go_on_the_word_of_a_checkpoint_that_is_lasting(tmp_path: Path) -> None:
    begun = (Append((plain(1),)), Flush(), Roll(), Append((plain(2), plain(3))))
    story = Story("a start beyond the end", (*begun, Restart(7), Abandon(), Flush()))
    names = calls_of(story.run, fresh(tmp_path / "run"))
    gone = 0
    for fault in [Fault(at, "ENOSPC") for at, name in enumerate(names) if name == "fsync"]:
        recorder = Recorder(fresh(tmp_path / "run"), Faulty(fault).calls, drop=True)
        with io.calls_replaced(recorder.calls):
            story.run_on(tmp_path / "run", recorder.remark)
        in_memory = set()
        for op in recorder.ops:
            match op:
                case Rename(to_directory=directory, to_name="log-start-offset-checkpoint"):
                    in_memory.add(directory)
                case SyncNames(directory):
                    in_memory.discard(directory)
                case Unname(name=name) if name.endswith(".log"):
                    assert not in_memory, fault
                    gone += 1
    assert gone


def test_what_a_full_disk_has_left_of_a_segment_is_not_the_logs_end(tmp_path: Path) -> None:
    steps = (Append((plain(1), plain(2))), Roll(), Truncate(1), Flush())
    story = Story("short of room", steps, replace(CONFIG, preallocate=True))
    names = calls_of(story.run, fresh(tmp_path / "run"))
    tally = Tally()
    full = [Fault(at, "ENOSPC") for at, name in enumerate(names) if name in ("open", "ftruncate")]
    faults(story, tmp_path, full, "found", tally)
    assert (tally.faults, tally.violations) == (len(full), [])


def closed_well(root: Path, *steps: Step) -> History:
    (root / "data").mkdir()
    told: list[object] = []
    Story("closed well", steps).run(root, told.append)
    return History.of(told, log="orders-0")


@pytest.mark.parametrize(("older", "start"), [((), 1), ((plain(1),), 3)])
def test_a_log_that_starts_in_a_gap_at_its_end_was_closed_well(
    tmp_path: Path, older: tuple[bytes, ...], start: int
) -> None:
    steps = Append((*older, plain(2, records=3))), Truncate(1, inside=True), DeleteRecords(0)
    history = closed_well(tmp_path, *steps)
    found = found_in(Checker(tmp_path, CONFIG).check(history), "data/orders-0")
    assert (found.batches, found.start, found.end) == ((), start, start)


def test_a_mark_beside_a_log_with_records_that_begins_anew_is_seen(tmp_path: Path) -> None:
    history = closed_well(tmp_path, Append((plain(1),)))
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 9\n")
    with pytest.raises(ViolationError, match="mark of a clean stop"):
        Checker(tmp_path, CONFIG).check(history)


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_log_that_begins_anew_is_recovered_the_same_though_the_first_recovery_is_killed(
    tmp_path: Path, snapshots: bool
) -> None:
    closed_well(tmp_path, Append((plain(1),)), Restart(0), Append((produced(2, 8, 0),)))
    closed = snapshot(tmp_path)
    if not snapshots:
        closed = {path: data for path, data in closed.items() if not path.endswith("snapshot")}
    closed["data/orders-0/" + "0" * 20 + ".log.deleted"] = b""
    tally = Tally()
    rng = random.Random("found")
    kills_in_recovery(Checker(tmp_path, CONFIG), closed, rng, KILLS, tally, "begun again")
    assert tally.second_kills > 10
    assert tally.violations == []


def aborted_over_the_start(root: Path) -> History:
    return closed_well(
        root,
        Append((produced(1, 8, 0, records=1, transactional=True),)),
        Append((produced(2, 8, 1, records=1, transactional=True),)),
        DeleteRecords(1),
        marker(ABORT, 8),
    )


def test_a_transaction_that_began_before_the_start_is_indexed_from_its_begin(
    tmp_path: Path,
) -> None:
    history = aborted_over_the_start(tmp_path)
    Checker(tmp_path, CONFIG).check(history)
    closed = snapshot(tmp_path)
    check_producers(closed, "data/orders-0", found_in(closed, "data/orders-0"))
    (row,) = struct.iter_unpack(">hqqqq", closed["data/orders-0/" + "0" * 20 + ".txnindex"] or b"")
    assert row[1:4] == (8, 0, 2)


@pytest.mark.parametrize("row", [None, (0, 8, 0, 3, 0), (0, 9, 0, 2, 0), (0, 8, 2, 2, 0)])
def test_a_transaction_that_began_before_the_start_has_to_be_indexed(
    tmp_path: Path, row: tuple[int, ...] | None
) -> None:
    aborted_over_the_start(tmp_path)
    closed = snapshot(tmp_path)
    entry = struct.pack(">hqqqq", *row) if row else b""
    closed["data/orders-0/" + "0" * 20 + ".txnindex"] = entry
    with pytest.raises(ViolationError, match="not indexed"):
        check_producers(closed, "data/orders-0", found_in(closed, "data/orders-0"))


@pytest.mark.parametrize("missing", ["timeindex", "txnindex"])
def test_what_made_a_recovery_walk_a_segment_is_mended_last(tmp_path: Path, missing: str) -> None:
    aborted = produced(1, 8, 0, records=1, transactional=True)
    closed_well(
        tmp_path,
        *(Append((one,)) for one in (aborted, plain(2), plain(3), plain(4))),
        marker(ABORT, 8),
        Roll(),
        Append((plain(5),)),
    )
    closed = {path: data for path, data in snapshot(tmp_path).items() if path != MARK}
    first = "data/orders-0/" + "0" * 20
    index = closed[f"{first}.index"] or b""
    assert len(index) >= 16
    closed[f"{first}.index"] = index[:-8]  # says less, and nothing that is not so
    assert closed.pop(f"{first}.{missing}")
    tally = Tally()
    rng = random.Random("found")
    kills_in_recovery(Checker(tmp_path, CONFIG), closed, rng, KILLS, tally, missing)
    assert tally.second_kills > 10
    assert tally.violations == []
