"""The files that sessions begin with, each made in the current directory by a function."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from struct import pack
from uuid import UUID

import kseg
from kseg.documents import id_text
from kseg.files import producer_snapshot
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.txn_index import AbortedTxn, pack_entries
from kseg.log.config import LogConfig
from kseg.log.directory import LogDirectory
from kseg.log.log import Log
from tests.builders import (
    ABORT,
    COMMIT,
    GZIP,
    LZ4,
    ZSTD,
    batch,
    control_batch,
    message,
    messages,
    messages07,
    record,
    records_of,
    wrapper,
    write_segment,
)
from tests.coordinators import OFFSETS, TRANSACTIONS, LogWriter, commit
from tests.fixture_archives import unpacked
from tests.internal_schemas import encode_message
from tests.unit.analysis import healthy
from tests.unit.analysis.copied import Told, told, write_copy
from tests.unit.analysis.test_groups import CONSUMER, classic, member, modern, plain_log
from tests.unit.analysis.test_schemas import write_registry
from tests.unit.analysis.test_transactions import DATA as PAIRS
from tests.unit.analysis.test_transactions import ONGOING, state
from tests.unit.log import damaged, reindexed
from tests.unit.log.settings.made import (
    FIRST,
    NEWER_BROKER,
    SECOND,
    Broker,
    Said,
    batches,
    partition,
    partition_metadata,
    setting,
    topic,
)
from tests.unit.log.settings.made import scram as scram_user
from tests.unit.log.settings.made import token as delegation_token

NOW_MS = 1_760_000_000_000  # 2025-10-09T08:53:20Z
DAY_MS = 86_400_000
DATA = Path("data")


def orders() -> None:
    """`data/orders-0`: two segments, ten records at offsets 0 to 9, one second apart."""
    given = [
        record(b"value %d" % n, key=b"key %d" % (n % 3), timestamp=NOW_MS + 1000 * n)
        for n in range(10)
    ]
    given[3] = record(None, key=None, timestamp=given[3].timestamp)
    given[4] = record(b"", key=b"", headers=[(b"h", b"x"), (b"n", None)], timestamp=1)
    parts = batch(given[:2]), batch(given[2:6], base_offset=2, codec=ZSTD)
    write_segment(DATA / "orders-0", 0, *parts)
    write_segment(DATA / "orders-0", 6, batch(given[6:], base_offset=6, leader_epoch=1))


def payments() -> None:
    """`data/payments-0`: offsets 0 committed, 2 aborted, 4 open, and the two markers 1 and 3."""

    def data(offset: int) -> bytes:
        value = [record(b"paid %d" % offset, timestamp=5)]
        who = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        return batch(value, base_offset=offset, transactional=True, **who)

    parts = (
        data(0),
        control_batch(COMMIT, base_offset=1, producer_id=7),
        data(2),
        control_batch(ABORT, base_offset=3, producer_id=7),
        data(4),
    )
    write_segment(DATA / "payments-0", 0, *parts)


def overlapping() -> None:
    """`data/orders-0`: segments of offsets 0 to 7 and 5 to 9, a batch each."""
    for base, count in ((0, 8), (5, 5)):
        parts = [batch([record(b"of %d" % base)], base_offset=base + n) for n in range(count)]
        write_segment(DATA / "orders-0", base, *parts)


def overlong() -> None:
    """`data/orders-0`: segment 5 begins with the offsets 0 to 7, a batch; `small-0` in eight."""
    write_segment(DATA / "orders-0", 5, batch([record(b"x")] * 8))
    write_segment(DATA / "small-0", 5, *(batch([record(b"x")], base_offset=n) for n in range(8)))


def faulty() -> None:
    """`data/crc-0`, `count-0`, `torn-0`, `size-0`, `magic-0`: offset 1 is wrong in one way each."""
    first, last = batch([record(b"a")]), batch([record(b"c")], base_offset=2)
    write_segment(DATA / "crc-0", 0, first, batch([record(b"b")], base_offset=1, crc=7), last)
    write_segment(DATA / "count-0", 0, first, batch([record(b"x")], base_offset=1, count=5), last)
    write_segment(DATA / "torn-0", 0, first, batch([record(b"x")], base_offset=1)[:-1])
    write_segment(DATA / "size-0", 0, first, b"\0" * 8 + b"\0\0\0\1" + b"x" * 60)
    write_segment(DATA / "magic-0", 0, first, batch([record(b"x")], magic=9))


def eras() -> None:
    """`data/orders-0` of magic 0, 1 and 2, as upgrades leave it, and `old-0` of Kafka 0.7."""
    write_segment(
        DATA / "orders-0",
        0,
        messages([record(b"a"), record(b"b", offset=1)], magic=0),
        records_of([record(b"c", timestamp=4)], magic=1, codec=GZIP, base_offset=2),
        batch([record(b"d", timestamp=5)], base_offset=3, codec=ZSTD, leader_epoch=-1),
    )
    write_segment(Path("old-0"), 4096, messages07([b"a", b"b"]), suffix=".kafka")


def wrappers() -> None:
    """`data/t-0`: wrappers of magic 1, one of them without records, and `u-0` with a wrong one."""
    good = wrapper([record(b"a"), record(b"b")], magic=1, codec=GZIP, base_offset=8)
    broken = wrapper([record(b"c")], magic=1, codec=GZIP, inner=b"nothing", offset=12)
    write_segment(DATA / "t-0", 8, good, broken, message(record(b"d"), magic=1, offset=13))
    wrong = bytearray(good)
    wrong[12] ^= 1  # the checksum
    write_segment(DATA / "u-0", 8, bytes(wrong))
    parts = (
        message(record(b"a"), magic=0),
        wrapper([record(b"b", timestamp=9), record(b"c")], magic=1, codec=GZIP, base_offset=1),
    )
    write_segment(DATA / "v-0", 0, *parts)


def stamped() -> None:
    """`data/t-0`: a batch with the time of its append; `empty-0` begins at 17."""
    data = batch([record(timestamp=5)], log_append=True, max_timestamp=77, codec=LZ4)
    write_segment(DATA / "t-0", 0, data)
    write_segment(DATA / "empty-0", 17)


def nested() -> None:
    """`data/orders-0`: a wrong checksum at offset 2, a wrapper inside a wrapper at 5."""
    inner = wrapper([record(b"x")] * 2, magic=1, codec=GZIP)
    write_segment(
        DATA / "orders-0",
        0,
        batch([record()] * 2),
        batch([record()] * 2, base_offset=2, crc=5),
        batch([record()], base_offset=4),
        wrapper([record()], magic=1, codec=GZIP, base_offset=5, inner=inner),
        batch([record()], base_offset=6),
    )


def numbered() -> None:
    """`data` with the partitions 0, 1, 2 and 10 of `orders`, a record each, closed cleanly."""
    DATA.mkdir()
    with kseg.LogDirectory.open(DATA, mode="append") as directory:
        for number in (0, 1, 2, 10):
            log = directory.create("orders", number)
            log.append({"value": ["x"], "timestamp": [NOW_MS]})


def lengthy() -> None:
    """`data/t-0`: twenty batches of three; the length of the fifth is far too large."""
    parts = [bytearray(batch([record(b"x" * 20)] * 3, base_offset=3 * at)) for at in range(20)]
    parts[4][8:12] = (2**30).to_bytes(4, "big")
    write_segment(DATA / "t-0", 0, *map(bytes, parts))
    few = [bytearray(batch([record(b"x")] * 3, base_offset=3 * at)) for at in range(3)]
    few[1][57:61] = bytes(4)  # the count; the checksum is that of before
    write_segment(Path("few-0"), 0, *map(bytes, few))


def times() -> None:
    """`a-0` to `d-0`: batches with times that hold retention, and some that do not."""
    for name, given in {
        "a-0": [NOW_MS, NOW_MS + DAY_MS],
        "b-0": [NOW_MS + DAY_MS + 1, NOW_MS + 9 * DAY_MS],
        "c-0": [NOW_MS, 2**63 - 1],
        "d-0": [-2, -DAY_MS],
        "e-0": [NOW_MS, -(2**63)],
        "f-0": [NOW_MS, -1],
    }.items():
        parts = [batch([record(b"", timestamp=ms)], base_offset=at) for at, ms in enumerate(given)]
        write_segment(Path(name), 0, *parts)


def words() -> None:
    """`data` with `a-0`, `a-1` and `b-0`: a batch for each word."""
    for name, text in (("a-0", b"one two three four"), ("a-1", b"five six"), ("b-0", b"two")):
        parts = [
            batch([record(word, key=b"k%d" % at)], base_offset=at, codec=ZSTD)
            for at, word in enumerate(text.split())
        ]
        write_segment(DATA / name, 0, *parts)


def escapes() -> None:
    """`red-0`: values and keys that would steer a terminal; `open-0`: an open transaction."""
    write_segment(
        Path("red-0"), 0, batch([record(b"\x1b[31mred", key=b"\x1b[2J"), record(key=bytes(24))])
    )
    made = batch([record(b"red")], producer_id=5, producer_epoch=0, transactional=True)
    write_segment(Path("open-0"), 0, made)


def aged() -> None:
    """`orders-0`, of segments that are 9, 8, 1 and 0 days old, and `clicks-3` with one."""
    DATA.mkdir()
    config = LogConfig(segment_bytes=400)
    with LogDirectory.open(DATA, mode="append", config=config, now_ms=lambda: NOW_MS) as directory:
        orders, clicks = directory.create("orders", 0), directory.create("clicks", 3)
        for days in (9, 8, 1, 0):
            given = [record(bytes(200), key=b"k", timestamp=NOW_MS - days * DAY_MS)]
            orders.append(batch(given, producer_id=days, producer_epoch=0, base_sequence=0))
        clicks.append(batch([record(b"", timestamp=NOW_MS)]))


def of_broker() -> None:
    """Those of `aged` as a broker's, whose replicas have the first record of `orders-0`."""
    aged()
    (DATA / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    marks = "0\n2\nclicks 3 0\norders 0 1\n"
    (DATA / "replication-offset-checkpoint").write_text(marks)


def beside(policy: str | None, *, cluster: str = "c", node: int = 1) -> None:
    of_broker()
    (DATA / "orders-0" / "partition.metadata").write_text(partition_metadata(FIRST))
    said = [setting("cleanup.policy", policy)] if policy else []
    Broker(Path("disk1"), cluster=cluster, node_id=node).says([topic("orders"), *said])


def beside_compact() -> None:
    """The same as a second disk: the first one has the policy of the topic."""
    beside("compact")


def beside_delete() -> None:
    """The same, and the policy is to delete."""
    beside("delete")


def beside_silent() -> None:
    """The same, and the policy is not said."""
    beside(None)


def beside_another() -> None:
    """The same, and the other disk is another broker's."""
    beside("delete", node=2)


def beside_elsewhere() -> None:
    """The same, and the other disk is another cluster's."""
    beside("delete", cluster="other")


def keyed() -> None:
    """`users-0`, of which three records of forty are the last of a key, and `users-1`."""
    DATA.mkdir()
    config = LogConfig(
        segment_bytes=1000, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    with LogDirectory.open(DATA, mode="append", config=config, now_ms=lambda: NOW_MS) as directory:
        for number, count, keys in ((0, 40, 3), (1, 4, 4)):
            log = directory.create("users", number)
            for at in range(count):
                given = record(b"%d" % at, key=b"%d" % (at % keys), timestamp=NOW_MS)
                log.append(batch([given], leader_epoch=-1))
            log.roll()


def keyless() -> None:
    """`witness-0` of a broker: three records without a key."""
    DATA.mkdir()
    with LogDirectory.open(DATA, mode="append", now_ms=lambda: NOW_MS) as directory:
        log = directory.create("witness", 0)
        log.append(batch([record(b"v", key=None, timestamp=NOW_MS)] * 3, leader_epoch=-1))
        log.roll()
    (DATA / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")


def configured() -> None:
    """`users-0` of `keyed`, and a metadata log that has its policies, with a newer record."""
    keyed()
    broker = Broker(DATA)
    (DATA / "users-0" / "partition.metadata").write_text(partition_metadata(FIRST))
    compacted = [topic("users"), setting("cleanup.policy", "compact", "users")]
    broker.says(compacted, [setting("cleanup.policy", "compact,delete", "users"), NEWER_BROKER])


def small_segments() -> None:
    """`orders-0` of a broker, empty, with smaller segments and more index entries than usual."""
    broker = Broker(DATA)
    own = [setting("segment.bytes", "4000"), setting("index.interval.bytes", "100")]
    broker.says([topic("orders"), *own, NEWER_BROKER])
    broker.has()


def disks() -> None:
    """`orders-0` and `orders-1` on a disk each; the first has the metadata log."""
    roots = Path("disk 1"), Path("disk2")
    config = LogConfig(segment_bytes=400)
    for number, root in enumerate(roots):
        root.mkdir()
        with LogDirectory.open(root, mode="append", config=config, now_ms=lambda: NOW_MS) as home:
            log = home.create("orders", number)
            for days in (9, 8, 1, 0):
                given = record(bytes(200), key=b"k", timestamp=NOW_MS - days * DAY_MS)
                log.append(batch([given]))
        (root / f"orders-{number}" / "partition.metadata").write_text(partition_metadata(FIRST))
        Broker(root)
        (root / "replication-offset-checkpoint").write_text(f"0\n1\norders {number} 4\n")
    Broker(roots[0]).says([topic("orders"), setting("cleanup.policy", "delete")])
    named = ",".join(map(str, roots))
    Path("server.properties").write_text(f"log.dirs={named}\nnode.id=7\n")


def torn() -> None:
    """`data` with a torn `t-0` and a sound `t-1`, not shut down cleanly."""
    written = damaged.write(Path("written"))
    for name in ("t-0", "t-1"):
        shutil.copytree(written, DATA / name)
    shutil.rmtree("written")
    damaged.torn(DATA / "t-0")


def out_of_order() -> None:
    """The same, and the first two segments of `t-1` have the same offsets."""
    torn()
    first, second = damaged.logs(DATA / "t-1")[:2]
    shutil.copy(first, second)


def bare() -> None:
    """`data` with `a-0` and `b-1`: logs without a file beside them."""
    for name in ("a-0", "b-1"):
        parts = [
            batch(
                [record(b"v" * 3000, timestamp=offset)],
                base_offset=offset,
                leader_epoch=-1,
                producer_id=5,
                producer_epoch=0,
                base_sequence=offset,
            )
            for offset in range(5)
        ]
        write_segment(DATA / name, 0, *parts)


def cut() -> None:
    """`data/orders-0`: batches of two records at 0, 2 | 4, 6 | 8, in segments at 0, 4 and 8."""
    config = LogConfig(segment_bytes=500)
    path = DATA / "orders-0"
    with Log.open(path, mode="append", create=True, config=config, now_ms=lambda: NOW_MS) as log:
        for number in range(5):
            given = [record(bytes(80), timestamp=NOW_MS)] * 2
            data = batch(given, producer_id=7, producer_epoch=0, base_sequence=2 * number)
            log.append(data, leader_epoch=number // 2)


def recodable() -> None:
    """`data` with `a-0` and `b-0`: two segments of three records each, shut down cleanly."""
    for name in ("a-0", "b-0"):
        for base in (0, 3):
            records = [record(b"value " * 50, timestamp=NOW_MS + at) for at in range(3)]
            write_segment(DATA / name, base, batch(records, base_offset=base))
        kseg.recover(DATA / name, clean=False)
    (DATA / ".kafka_cleanshutdown").write_bytes(b"")


def diverged() -> None:
    """`a` and `b`: u-0 is the same, t-0 diverges at offset 10 from epoch 1 to epoch 3."""
    base = told(9)
    mine = [replace(one, epoch=1) for one in told(4, start=10)]
    theirs = [Told(10 + n, 1, epoch=3, text="w") for n in range(3)]
    for name, tail in (("a", mine), ("b", theirs)):
        write_copy(Path(name) / "t-0", [*base[:5], *tail])
        write_copy(Path(name) / "u-0", base, per_segment=2 if name == "a" else 5)


def compacted_copy() -> None:
    """`a`, and `b` without the record at offset 1; of `c` and `d`, `d` lacks every other batch."""
    base, many = told(9), told(20, size=1)
    write_copy(Path("a"), base)
    write_copy(Path("b"), [replace(base[0], without=(1,)), *base[1:]])
    write_copy(Path("c"), many, per_segment=30)
    write_copy(Path("d"), many[::2], per_segment=30)


def conflicting() -> None:
    """`a/t-0`; `b/t-0` has another record at offset 16, `c/t-0` lacks it; `d`, `e`: topics."""
    base = told(9)
    write_copy(Path("a/t-0"), base)
    write_copy(Path("b/t-0"), [*base[:8], replace(base[8], text="w")])
    write_copy(Path("c/t-0"), [*base[:8], replace(base[8], without=(16,))])
    for number, name in enumerate("de", 1):
        write_copy(Path(name) / "t-0", base, topic_id=number)


def two_damaged() -> None:
    """`a` and `b`: copies of `t-0`, damaged in other segments."""
    for name, base in (("a", 6), ("b", 12)):
        path = write_copy(Path(name) / "t-0", told(9)) / f"{base:020d}.log"
        data = bytearray(path.read_bytes())
        data[80] ^= 1
        path.write_bytes(data)


def salvageable() -> None:
    """`in`: `t-0` has a damaged batch of offsets 8 and 9, `u-0` is sound."""
    base = told(9)
    for name in ("t-0", "u-0"):
        write_copy(Path("in") / name, base)
    path = Path("in/t-0") / f"{6:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(base[3].data) + 70] ^= 1
    path.write_bytes(content)


def many_damaged() -> None:
    """`in/t-0`: every other of twenty batches is damaged; `un/t-0`: no length leads on in two."""
    base = told(20, size=1)
    path = write_copy(Path("in/t-0"), base, per_segment=30) / f"{0:020d}.log"
    content, at = bytearray(path.read_bytes()), 0
    for number, one in enumerate(base):
        content[at + 70] ^= number % 2
        at += len(one.data)
    path.write_bytes(content)
    few = told(9)
    path, size = write_copy(Path("un/t-0"), few, per_segment=9) / f"{0:020d}.log", len(few[0].data)
    content = bytearray(path.read_bytes())
    for at in (size, 4 * size):  # a header, noise: how far these reach is not known
        content[at : at + 61] = b"\xee" * 61
    path.write_bytes(content)


def groups() -> None:
    """`data`: a classic group, a newer one with a member, and a log of the topic they read."""
    log = LogWriter(DATA / f"{OFFSETS}-0")
    log.add([classic("old", "t"), commit("old", "t", 0, 4, metadata="\x1b[2J")], 1000)
    log.add(modern(CONSUMER, "new", 2, 2) + member(CONSUMER, "new", "m", epoch=2, state=0), 2000)
    log.add([commit("new", "t", 0, 7, commitTimestamp=60_000)], 3000).write()
    plain_log(DATA / "t-0")
    (DATA / "replication-offset-checkpoint").unlink(missing_ok=True)


def late_commits() -> None:
    """`late`: commits before and behind a time; `share`: a share group and one of streams."""
    log = LogWriter(Path("late") / f"{OFFSETS}-0").add([commit("g", "t", 2, 5)], 1000)
    log.add([commit("new\nline", "t", 2, 5)], 1000)
    log.add([commit("g", "t", number, 9) for number in (0, 1, 2)], 3000).write()
    said = [*modern("SHARE_GROUP", "s", 1, 1), *modern("STREAMS_GROUP", "x", 1, 1)]
    LogWriter(Path("share") / f"{OFFSETS}-0").add([*said, commit("x", "t", 0, 3)]).write()


def transactions() -> None:
    """`data`: a transaction that hangs, one that is open, one committed; `plain` has none."""
    log = LogWriter(DATA / "t-0").add(PAIRS, 1000, producer_id=1)
    log.end_transaction(1, 2000, commits=True).add(PAIRS, 3000, producer_id=2).write()
    LogWriter(DATA / "t-1").add(PAIRS, 1000, producer_id=1).write()
    LogWriter(DATA / f"{TRANSACTIONS}-0").add([state("a", 1, ONGOING, 1)], 1000).write()
    LogWriter(Path("plain/t-0")).add(PAIRS).write()


def registry() -> None:
    """`data` with the topic of a registry."""
    write_registry(DATA)


def cluster() -> None:
    """`data` with a metadata log: a topic, two users, secrets; `other` and `c2` are others."""
    secret = "hunter2-secret"
    made = [topic("orders"), partition(FIRST, 0, [1, 2]), setting("retention.ms", "1")]
    users = [scram_user("alice", secret.encode()), delegation_token("t1")]
    password = setting("ssl.key.password", f"{secret}-1", "7", 4)
    changed = setting("ssl.key.password", f"{secret}-2", "7", 4)
    told = [*made, *users, password], [setting("retention.ms", "2"), changed]
    Broker(DATA).says(*told, times=[1_700_000_000_000, 1_700_000_060_000]).votes(7)
    Broker(Path("other")).says([topic("orders")])
    Broker(Path("c2"), cluster="c2").says([topic("orders")])


def complete() -> None:
    """`data` with the metadata log and all that it names, shut down cleanly."""
    broker = Broker(DATA)
    broker.says([topic("orders"), partition(FIRST, 0, [7])])
    broker.has()
    (DATA / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')


def topics() -> None:
    """`topics`: `t` with three partitions of four records, `u` with one; two keys in each."""
    days = (1_728_000_000_000, 1_728_086_400_000)
    for number, name in enumerate(("t-0", "t-1", "t-10", "u-0")):
        given = [
            record(b"%s %d" % (name.encode(), n), key=b"k%d" % (n % 2), timestamp=days[n % 2])
            for n in range(4)
        ]
        write_segment(Path("topics") / name, 0, batch(given, base_offset=number))


def pending() -> None:
    """`data/txn-0`: producer 4 never ends its transaction, that of 7 behind it is committed."""

    def of(producer_id: int, offset: int, value: bytes) -> bytes:
        given = [record(value, timestamp=1_760_000_001_000)]
        who = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
        return batch(given, base_offset=offset, **who)

    given = [
        batch([record(b"plain", timestamp=NOW_MS)]),
        of(4, 1, b"never"),
        of(7, 2, b"yes"),
        control_batch(COMMIT, base_offset=3, producer_id=7),
        batch([record(b"end")], base_offset=4),
    ]
    write_segment(DATA / "txn-0", 0, *given)


def tiered() -> None:
    """`case`: the fixture of a tier, and `data` with its local part as a broker would load it."""
    from tests.unit.log.tier.test_history import copied

    case = unpacked() / "tiered" / "4.2.0-local"
    shutil.copytree(case, "case")
    copied(case, DATA)


def txn() -> None:
    """`txn`: what a 4.2.0 broker left, with every kind of file beside its logs."""
    shutil.copytree(unpacked() / "new" / "4.2.0-txn", "txn")


def retained() -> None:
    """`data` with segments of a 3.9 broker for retention, `metadata` with its settings."""
    shutil.copytree(unpacked() / "new" / "3.9.1-retention", DATA)
    shutil.copytree(unpacked() / "new" / "3.9.1-internal", "metadata")


def kraft() -> None:
    """`data` of a KRaft broker, not shut down cleanly, without the metadata log's indexes."""
    shutil.copytree(unpacked() / "new" / "4.2.0-internal", DATA)
    (DATA / ".kafka_cleanshutdown").unlink()
    for index in (DATA / "__cluster_metadata-0").glob("*.index"):
        index.unlink()


def elsewhere() -> None:
    """`data/t-0` begins at offset 7; its checkpoint says that the log starts at 2."""
    write_segment(DATA / "t-0", 7, batch([record()], base_offset=7))
    (DATA / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")


def sound() -> None:
    """`data` with one partition, all right and shut down cleanly; a broker of ZooKeeper's era."""
    whole = healthy.make(DATA)
    producer = healthy.snapshot((7, 0, -1, -1, 0, 1003, 0, -1))
    whole.file(11, ".snapshot").write_bytes(producer)
    for suffix, room in ((".index", 32), (".timeindex", 48)):
        index = whole.file(healthy.LAST, suffix)
        os.truncate(index, index.stat().st_size - room)
    (DATA / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    (DATA / "meta.properties").write_text("version=0\ncluster.id=c\nbroker.id=1\n")


def gapped() -> None:
    """The same without offsets 11 to 19, of a topic that no cleaner knows."""
    sound()
    (DATA / "cleaner-offset-checkpoint").unlink()
    whole = healthy.Data(DATA)
    later = batch([record(b"v", timestamp=1010)], base_offset=20, leader_epoch=1)
    whole.write_log(20, later)
    whole.write_log(healthy.LAST, *healthy.LAST_BATCHES)
    times = healthy.time_index((1010, 20), base_offset=20)
    whole.file(20, ".timeindex").write_bytes(times)
    times = healthy.time_index((1009, 10), base_offset=7)
    whole.file(healthy.LAST, ".timeindex").write_bytes(times)


def brokers() -> None:
    """`b1` and `b2` with replicas of orders-0, and each with a partition of its own."""
    for broker, mine in (("b1", "orders-1"), ("b2", "orders-2")):
        for name in ("orders-0", mine):
            write_segment(Path(broker) / name, 0, batch([record(b"one"), record(b"two")]))


def commits() -> None:
    """`data/__consumer_offsets-7`: a commit, a tombstone, unknown ones, a marker."""
    fields = {"group": "g", "topic": "orders", "partition": 3}
    key = pack(">h", 1) + encode_message("OffsetCommitKey", 0, fields)
    fields = {"offset": 41, "leaderEpoch": -1, "metadata": "\x7f\x9b\n", "commitTimestamp": 9}
    value = pack(">h", 3) + encode_message("OffsetCommitValue", 3, fields)
    records = [
        record(value, key=key, timestamp=5),
        record(None, key=key, timestamp=6),
        record(b"\0\0", key=b"\0\x63", timestamp=7),
        record(b"\0\x09abc", key=key, timestamp=8),
    ]
    marker = control_batch(COMMIT, base_offset=4)
    write_segment(DATA / "__consumer_offsets-7", 0, batch(records), marker)
    wrong = [record(value[:-1], key=key), record(value, key=key)]
    write_segment(Path("other/__consumer_offsets-0"), 0, batch(wrong))


def typed() -> None:
    """`data/typed-0`: keys are integers of Kafka's, values JSON; the last two are neither."""
    hard = '{"a": "\\u0085 \u0085 \u202e \u00e4\x7f",\r\n\t"b": [1.50, 1e400]}'
    rows = (
        (b"\0\0\0\x07", b'{"n": 1}'),
        (b"\xff\xff\xff\xff", hard.encode()),
        (None, None),
        (b"seven", b"{'n': 1}"),
    )
    given = [record(value, key=key, timestamp=20_000 * DAY_MS) for key, value in rows]
    write_segment(DATA / "typed-0", 0, batch(given))


def home(path: str, directory_id: int | None = None) -> Broker:
    """A data directory of node 7; ids of directories below 100 are words."""
    broker = Broker(Path(path))
    if directory_id is not None:
        with (broker.path / "meta.properties").open("a") as file:
            file.write(f"directory.id={id_text(UUID(int=directory_id))}\n")
    return broker


def roles(kind: str, voters: str = "", directories: str = "data") -> None:
    """`server.properties` of a node with these roles and voters."""
    lines = [f"process.roles={kind}", f"controller.quorum.voters={voters}"] if kind else []
    lines = [f"log.dirs={directories}", "node.id=7", *lines]
    Path("server.properties").write_text("\n".join(lines) + "\n")


def forgetful() -> None:
    """`data`, whose metadata log is damaged in its second batch: two topics are behind that."""
    third = UUID(int=5)
    given = {"orders": FIRST, "payments": SECOND, "__consumer_offsets": third}
    said = [[topic(name, own), partition(own, 0, [7])] for name, own in given.items()]
    broker = Broker(DATA).says(*said, [setting("retention.ms", "1")])
    for name, own in given.items():
        broker.has(f"{name}-0", own)
    content = bytearray((broker.log / f"{0:020d}.log").read_bytes())
    content[len(batches(said[:1])) + 70] = ord("?")
    (broker.log / f"{0:020d}.log").write_bytes(content)


def ordered(*said: Sequence[Said | bytes], topic_id: UUID | None = FIRST, at: int = 0) -> Broker:
    """`data` with a metadata log that says so from an offset on, and `orders-0` with a record."""
    shutil.rmtree(DATA, ignore_errors=True)
    broker = Broker(DATA)
    if said:
        broker.says(*said, base_offset=at)
    write_segment(broker.has("orders-0", topic_id), 0, batch([record(b"v", timestamp=NOW_MS)]))
    return broker


def copy(name: str, batches: Sequence[Told], **how: int) -> None:
    """A partition of these batches, three in a segment."""
    write_copy(Path(name), batches, **how)


def over(name: str, number: int, at: int, data: bytes) -> None:
    """Write over bytes of a batch of `told`, where three make a segment."""
    parts = [one.data for one in told(number + 1)]
    path = Path(name) / f"{number // 3 * 6:020d}.log"
    content = bytearray(path.read_bytes())
    start = sum(map(len, parts[number // 3 * 3 : number])) + at
    content[start : start + len(data)] = data
    path.write_bytes(content)


def hurt(name: str, one: Told) -> None:
    """Flip a bit in the records of a batch, wherever it lies."""
    for path in Path(name).glob("*.log"):
        data = bytearray(path.read_bytes())
        if (found := data.find(one.data)) >= 0:
            data[found + 62] ^= 1
            path.write_bytes(data)


def headless(name: str, batches: Sequence[Told]) -> None:
    """A copy whose second batch has no header any more, so that nothing proves what follows."""
    path = write_copy(Path(name), batches, per_segment=99) / f"{0:020d}.log"
    data, size = bytearray(path.read_bytes()), len(batches[0].data)
    data[size : size + 61] = b"\xee" * 61
    path.write_bytes(data)


def paid(first: int, producer: int, sequence: int = 0, *, hurt: bool = False) -> bytes:
    """A batch of a transaction."""
    who = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    given = [record(b"v", offset=first)]
    data = bytearray(batch(given, base_offset=first, transactional=True, **who))
    data[65] ^= hurt
    return bytes(data)


def ended(first: int, producer: int, kind: int = COMMIT, *, hurt: bool = False) -> bytes:
    """A marker."""
    given = control_batch(kind, base_offset=first, producer_id=producer, coordinator_epoch=5)
    data = bytearray(given)
    data[65] ^= hurt
    return bytes(data)


def indexed() -> None:
    """`data/t-0` of `reindexed` with all that belongs to it, and the same in `right`."""
    reindexed.apply(reindexed.bare(Path()), now_ms=DAY_MS + 1000)
    shutil.copytree(DATA, "right")


def edit(path: str, change: Callable[[bytes], bytes]) -> None:
    """Replace the bytes of a file of `data/t-0`."""
    file = DATA / "t-0" / path
    file.write_bytes(change(file.read_bytes() if file.exists() else b""))


def known(base: int, *entries: ProducerSnapshotEntry, more: bool = False) -> None:
    """Write the producers of a snapshot of `data/t-0`, or some more of them."""
    path = DATA / "t-0" / f"{base:020d}.snapshot"
    before = producer_snapshot.read(path) if more else ()
    producer_snapshot.write(path, [*before, *entries])


def aborted(*entries: tuple[int, int, int, int]) -> bytes:
    """The bytes of a transaction index."""
    return pack_entries([AbortedTxn(*one) for one in entries])


def written() -> None:
    """`data/t-0`: six segments with transactions, not shut down cleanly, as in `damaged`."""
    shutil.copytree(damaged.write(Path("whole")), DATA / "t-0")
    shutil.rmtree("whole")
