"""Nothing that a killed broker would have kept goes after verbs of kseg, in any order.

The broker has Kafka's default settings, timers aside: it takes room for 10 MB of index entries, and
deletes what is older than a week. It is killed once. Then each order of verbs begins with a copy of
its data, and the broker starts on what the verbs left. Retention, compaction, a lookup by time, an
append that rolls and a restart follow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest

from kseg.files import checkpoints, producer_snapshot
from kseg.files.metadata import read_clean_shutdown
from kseg.log import index_rules
from tests.builders import batch, record
from tests.interop.broker.broker import Broker, Row, wait_until
from tests.interop.kafka import needed
from tests.shares import share

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_800)]

_KSEG: Final = "import sys; from kseg.cli.main import main; sys.exit(main())"
MARK: Final = ".kafka_cleanshutdown"
#: Timers alone; a setting of None is Kafka's default.
SETTINGS: Final = {
    "log.retention.ms": None,
    "log.segment.delete.delay.ms": None,
    "log.cleaner.dedupe.buffer.size": None,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 200,
    "log.flush.start.offset.checkpoint.interval.ms": 500,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
}
#: Bytes of a value: an index entry for many batches, for some, and for each one.
SIZES: Final = (100, 2_000, 5_000)
BATCHES, PARTITIONS, ROLLED_AT = 40, 3, 28
#: Topics that show when retention and the cleaner have run.
WITNESS, CLEANED = "old", "again"
#: Empty, for batches without times: there the age of a segment is that of its file.
TIMELESS: Final = "timeless"
DELETED_TO: Final = 15


@dataclass(slots=True)
class Kept:
    """What the broker alone keeps of a partition: records by isolation, and the log's start."""

    start: int = 0
    rows: dict[str, list[Row]] = field(default_factory=dict)


def kseg(*words: object, cwd: Path) -> str:
    """The output of a verb that must succeed."""
    command = [sys.executable, "-c", _KSEG, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


# ---- what the broker writes ----------------------------------------------------------------------


def groups(size: int, now_ms: int, keys: int) -> list[dict[str, Any]]:
    """Batches of one record each, or transactions, of which every fifth is aborted."""
    return [
        {
            "end": "commit" if n % 5 else "abort",
            "records": [
                {
                    "key": b"k%d" % (n % keys),
                    "value": b"%d" % n + bytes(size),
                    "timestamp": now_ms + n,
                }
            ],
        }
        for n in range(BATCHES)
    ]


def fill(broker: Broker) -> None:
    """Twelve partitions: three kinds of batches, compacted, in transactions, with deletions."""
    now = int(time.time() * 1000) - 60_000
    for topic, configs in (
        ("plain", {}),
        ("compacted", {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01}),
        ("transactions", {}),
        # Room in the log as well as in its indexes.
        ("deleted", {"preallocate": "true", "segment_bytes": 4 << 20}),
    ):
        broker.create(topic, PARTITIONS, **configs)
        written = [groups(size, now, 7 if topic == "compacted" else BATCHES) for size in SIZES]

        def send(begin: int, end: int, topic: str = topic, written: list[Any] = written) -> None:
            for partition, batches in enumerate(written):
                how = {"transactional_id": f"t{partition}"} if topic == "transactions" else {}
                how |= {"linger_ms": "0", "batch_size": "1"}
                broker.produce(topic, batches[begin:end], partition, **how)

        if topic == "plain":  # no closed segment in front, which retention would stop at
            send(0, BATCHES)
            continue
        send(0, ROLLED_AT)
        broker.ask("configure", topic, configs={"segment.ms": "1"})  # the next batch rolls
        send(ROLLED_AT, ROLLED_AT + 1)
        broker.ask("configure", topic, configs={"segment.ms": None})
        send(ROLLED_AT + 1, BATCHES)
    broker.create(TIMELESS, PARTITIONS)
    broker.create(WITNESS, 1, retention_ms=1)
    broker.create(
        CLEANED, 1, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_ms=1
    )
    for partition in range(PARTITIONS):
        broker.ask("delete_records", "deleted", partition=partition, before=DELETED_TO)
    starts = broker.data / "log-start-offset-checkpoint"
    wait_until(lambda: starts.read_text().count(f" {DELETED_TO}\n") == PARTITIONS)


def settle(broker: Broker) -> None:
    """Wait until retention has looked at all logs since, and the cleaner at all that are dirty.

    Each pass of retention deletes the records of one topic, which are older than it keeps them. One
    of two passes began behind the start.
    """
    for _pass in range(2):
        begin = broker.log_bytes
        broker.produce(WITNESS, [{"records": [{"value": b"old", "timestamp": 1_000}]}])
        wait_until(partial(said, broker, begin, f"{WITNESS}-0", "due to log retention"))
    begin = broker.log_bytes
    for number in range(3):
        now = int(time.time() * 1000) + 10 * number
        broker.produce(CLEANED, [{"records": [{"key": b"k", "value": b"v", "timestamp": now}]}])
    wait_until(lambda: said(broker, begin, f"cleaned log {CLEANED}-0"))


def said(broker: Broker, begin: int, *words: str) -> bool:
    """Whether the broker has logged a line with these words; some have several lines."""
    lines = (broker.home / "broker.log").read_bytes()[begin:].decode(errors="replace").splitlines()
    return any(all(word in line for word in words) for line in lines)


TOPICS: Final = ("plain", "compacted", "transactions", "deleted")
PLACES: Final = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
ISOLATIONS: Final = ("read_uncommitted", "read_committed")


def seen(broker: Broker, places: Iterable[tuple[str, int]] = PLACES) -> dict[tuple[str, int], Kept]:
    """What consumers see of each partition."""
    found = {}
    for topic, partition in places:
        ((start, _),) = broker.offsets(topic, partition, "earliest")
        rows = {each: broker.consume(topic, partition, each) for each in ISOLATIONS}
        found[topic, partition] = Kept(start, rows)
    return found


def check(now: dict[tuple[str, int], Kept], alone: dict[tuple[str, int], Kept], cut: int) -> None:
    """Nothing is missing that the broker alone keeps, but for what a truncation took."""
    for place, kept in alone.items():
        assert now[place].start == kept.start, place
        for isolation, rows in kept.rows.items():
            wanted = [row for row in rows if not (place == CUT and row.offset >= cut)]
            found = now[place].rows[isolation]
            if place[0] == "compacted":  # the last of each key; older ones may be there or not
                last = {row.key: row for row in wanted}
                assert set(last.values()) <= set(found), place
            else:
                assert found == wanted, (place, isolation)


# ---- orders of verbs -----------------------------------------------------------------------------

#: Where the truncation takes the last five records.
CUT: Final = ("plain", 2)
CUT_AT: Final = BATCHES - 5


def truncate(data: str) -> list[Any]:
    return ["truncate", f"{data}/{CUT[0]}-{CUT[1]}", "--to", CUT_AT, "--apply"]


VERBS: Final[dict[str, Callable[[str], list[Any]]]] = {
    "recover": lambda data: ["recover", data, "--apply"],
    "as broker": lambda data: ["recover", data, "--apply", "--as-broker"],
    "reindex": lambda data: ["reindex", data, "--apply"],
    "retain": lambda data: ["retain", data, "--apply", "--config", "retention.ms=604800000"],
    "compact": lambda data: ["compact", data, "--apply"],
    "truncate": truncate,
}


def orders() -> Iterator[tuple[str, ...]]:
    """Orders that make sense: what asks for a clean stop comes behind a recovery."""
    yield ("recover",)
    yield ("reindex",)  # no mark: the broker recovers the rest
    for recover in ("recover", "as broker"):
        yield ("reindex", recover)
        yield (recover, "reindex")
        for later in permutations(("retain", "compact", "truncate")):
            yield ("reindex", recover, *later)
            yield (recover, *later, "reindex")
            yield (recover, *later)


ORDERS: Final = share(orders(), 1, "after a kill")


@dataclass(slots=True)
class Killed:
    """A broker that was killed once.

    Attributes:
        broker: to be started on copies of its data.
        saved: its data at that moment.
        alone: what it keeps by itself.
    """

    broker: Broker
    saved: Path
    alone: dict[tuple[str, int], Kept]

    def again(self) -> None:
        """Bring its data back."""
        shutil.rmtree(self.broker.data)
        copy(self.saved, self.broker.data)


def copy(source: Path, target: Path) -> None:
    """Copy a directory, with holes and times."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    home = tmp_path_factory.mktemp("killed")
    with needed():
        broker = Broker(home, SETTINGS)
    with broker:
        broker.start()
        fill(broker)
        broker.kill()
        copy(broker.data, home / "saved")
        for topic, partition in PLACES:  # what this is about
            *closed, last = sorted((home / "saved" / f"{topic}-{partition}").glob("*.timeindex"))
            assert bool(closed) == (topic != "plain")
            assert last.stat().st_size == 10_485_756
            if topic == "deleted":
                assert last.with_suffix(".log").stat().st_size == 4 << 20
        broker.start()
        at_work(broker)
        alone = seen(broker)
        broker.kill()
        yield Killed(broker, home / "saved", alone)


def at_work(broker: Broker) -> None:
    """Wait until the partitions are led, retention looked at them, and the cleaner cleaned."""
    for topic in (*TOPICS, WITNESS, CLEANED):
        broker.wait_for_leaders(topic)
    settle(broker)


def is_swept(broker: Broker, begin: int) -> list[str]:
    """Partitions that the start reads again; the log of KRaft is always one."""
    lines = [line.text for line in broker.said(begin).lines if "ecovering unflushed" in line.text]
    assert any("__cluster_metadata-0" in line for line in lines)
    return [line for line in lines if "__cluster_metadata-0" not in line]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_nothing_is_lost_in_any_order_of_verbs(killed: Killed, order: tuple[str, ...]) -> None:
    killed.again()
    broker = killed.broker
    for verb in order:
        kseg(*VERBS[verb]("data"), cwd=broker.home)
    marked = (broker.data / MARK).exists()
    assert marked == (order != ("reindex",))
    if marked:
        logs = [each for each in broker.data.iterdir() if each.is_dir()]
        unfit = [each.name for each in logs if not index_rules.is_as_closed(each)]
        assert [name for name in unfit if name != "__cluster_metadata-0"] == []
    begin = broker.log_bytes
    try:
        broker.start()
        assert (is_swept(broker, begin) == []) == marked
        at_work(broker)
        gone = [line.text for line in broker.said(begin).lines if "log retention" in line.text]
        assert [text for text in gone if f"{WITNESS}-0" not in text] == []
        cut = CUT_AT if "truncate" in order else BATCHES
        check(seen(broker), killed.alone, cut)
        by_time(broker, killed.alone, cut)
    finally:
        broker.kill()


def by_time(broker: Broker, alone: dict[tuple[str, int], Kept], cut: int) -> None:
    """Each record's time leads to the record, and the latest time is found."""
    for place in (("plain", 0), ("plain", 1), ("plain", 2), ("deleted", 2)):
        rows = alone[place].rows["read_uncommitted"]
        rows = [row for row in rows if not (place == CUT and row.offset >= cut)]
        some = [rows[0], rows[len(rows) // 2], rows[-1]]
        times = [row.timestamp for row in some]
        answer = broker.offsets(*place, *times, "max")
        assert answer == [(row.offset, row.timestamp) for row in [*some, rows[-1]]]


def test_a_log_goes_on_rolls_and_restarts_behind_a_recovery(killed: Killed) -> None:
    killed.again()
    broker = killed.broker
    kseg("recover", "data", "--apply", cwd=broker.home)
    begin = broker.log_bytes
    try:
        broker.start()
        at_work(broker)
        broker.ask("configure", "plain", configs={"segment.bytes": str(1 << 20)})
        now = int(time.time() * 1000)
        more = groups(40_000, now, 1)
        for partition in range(PARTITIONS):
            broker.produce("plain", more, partition, linger_ms=0, batch_size=1)
        logs = sorted((broker.data / "plain-2").glob("*.log"))
        assert len(logs) > 1
        assert int(logs[1].stem) > BATCHES + 1  # the index of the last one was not full
        broker.stop()
        assert all(index_rules.is_as_closed(broker.data / f"plain-{n}") for n in range(3))
        begin = broker.log_bytes
        broker.start()
        assert is_swept(broker, begin) == []
        at_work(broker)
        for partition in range(PARTITIONS):
            offsets = [row.offset for row in broker.consume("plain", partition)]
            assert offsets == list(range(2 * BATCHES))
    finally:
        broker.kill()


@pytest.mark.parametrize("verb", share(["recover", "reindex"], 1, "marked wrongly"))
def test_a_directory_that_was_marked_wrongly_is_put_right(killed: Killed, verb: str) -> None:
    killed.again()
    broker = killed.broker
    kseg("recover", "data", "--apply", cwd=broker.home)
    for topic, partition in PLACES:  # as a recovery left it that did not look at unused entries
        for index in (broker.data / f"{topic}-{partition}").glob("*.timeindex"):
            os.truncate(index, 10_485_756)
    kseg(verb, "data", "--apply", cwd=broker.home)
    begin = broker.log_bytes
    try:
        broker.start()
        assert is_swept(broker, begin) == []
        at_work(broker)
        check(seen(broker), killed.alone, BATCHES)
    finally:
        broker.kill()


# ---- what else a mark makes Kafka believe --------------------------------------------------------

_SUFFIX: Final = "0123456789abcdef0123456789abcdef"
_DAY: Final = 24 * 3600
ALL_PLACES: Final = [*PLACES, *((TIMELESS, number) for number in range(PARTITIONS))]


def mislead(data: Path) -> None:
    """Change what a start takes as it lies where there is a mark; each partition in one way.

    Epochs that are missing or beyond the end, snapshots that are missing or beyond the end, lists
    of aborted transactions, the cleaner's position, times of files, a log that was being copied,
    one that was put aside.
    """
    for partition, (torn, days) in enumerate(((b"", 1), (b"torn", 30), (b"", 30))):
        (path,) = (data / f"{TIMELESS}-{partition}").glob("*.log")
        path.write_bytes(batch([record(b"v")], base_timestamp=-1, max_timestamp=-1) + torn)
        age = time.time() - days * _DAY
        os.utime(path, (age, age))
    (data / "plain-0" / "leader-epoch-checkpoint").unlink()
    (data / "plain-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 100000\n")
    copy(data / "plain-0", data / f"orders-7.{_SUFFIX}-stray")
    (data / "plain-2").rename(data / f"plain-2.{_SUFFIX}-future")
    cleaned = data / "cleaner-offset-checkpoint"
    cleaned.write_text("0\n1\ncompacted 0 100000\n")
    _newest(data / "transactions-0", "txnindex").write_bytes(b"")
    _newest(data / "transactions-1", "txnindex").unlink()
    snapshot = _newest(data / "transactions-2", "snapshot")
    shutil.copy2(snapshot, snapshot.with_name(f"{100_000:020}.snapshot"))
    for path in (data / "deleted-0").glob("*.snapshot"):
        path.unlink()
    _newest(data / "deleted-1", "snapshot").write_bytes(b"")
    (data / "deleted-2" / "leader-epoch-checkpoint").write_bytes(b"")


def _newest(partition: Path, kind: str) -> Path:
    return max(partition.glob(f"*.{kind}"))


def beside(data: Path) -> dict[str, tuple[object, ...]]:
    """What lies beside each partition's records behind a stop, but for times of its own."""
    found = {}
    for topic, number in ALL_PLACES:
        place = data / f"{topic}-{number}"
        epochs = checkpoints.read_leader_epochs(place / "leader-epoch-checkpoint")
        snapshot = _newest(place, "snapshot")
        found[place.name] = (
            epochs,
            snapshot.name,
            sorted(producer_snapshot.read(snapshot), key=lambda one: one.producer_id),
            {path.name: path.read_bytes() for path in place.glob("*.txnindex")},
        )
    return found


def test_a_mark_makes_kafka_believe_nothing_that_it_would_have_mended(killed: Killed) -> None:
    broker, found, kept = killed.broker, [], []
    try:
        for verb in (None, "recover"):
            killed.again()
            mislead(broker.data)
            if verb is not None:
                kseg(verb, "data", "--apply", cwd=broker.home)
                mark = read_clean_shutdown(broker.data)
                assert mark is not None
                assert mark.broker_epoch == -1  # the controller is told of an unclean stop
            begin = broker.log_bytes
            broker.start()
            assert (is_swept(broker, begin) == []) == (verb is not None)
            at_work(broker)
            found.append(seen(broker, ALL_PLACES))
            broker.stop()
            kept.append(beside(broker.data))
            assert (broker.data / f"orders-7.{_SUFFIX}-stray").is_dir()
            assert not (broker.data / f"plain-2.{_SUFFIX}-future").exists()
    finally:
        broker.kill()
    alone, ours = found
    found_there = [len(alone[TIMELESS, n].rows["read_uncommitted"]) for n in range(PARTITIONS)]
    assert found_there == [1, 1, 0]  # a start that cuts a file makes it young
    check(ours, alone, BATCHES)
    check(ours, {place: killed.alone[place] for place in PLACES}, BATCHES)
    assert kept[1] == kept[0]
