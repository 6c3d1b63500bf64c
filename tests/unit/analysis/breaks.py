"""Each thing that can be wrong with a healthy directory, done to it, and what verify must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.builders import GZIP, batch, record, wrapper
from tests.unit.analysis.healthy import (
    FIRST,
    FIRST_BATCHES,
    LAST,
    LAST_BATCHES,
    Data,
    index,
    records,
    snapshot,
    starts,
    time_index,
    txn_index,
)

AT, LAST_AT = starts(FIRST_BATCHES), starts(LAST_BATCHES)
SIZE, LAST_SIZE = AT[-1], LAST_AT[-1]


@dataclass(frozen=True)
class Break:
    """What is done to the directory, and what must be said of it, among other things."""

    do: Callable[[Data], object]
    code: str
    path: str
    position: int | None = None
    severity: str = "error"
    deep: bool = False


def patch(path: Path, position: int, new: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(new)] = new
    path.write_bytes(content)


def grow(path: Path, tail: bytes) -> None:
    path.write_bytes(path.read_bytes() + tail)


def first(*batches: bytes) -> Callable[[Data], None]:
    return lambda data: data.write_log(FIRST, *batches)


def last(*batches: bytes) -> Callable[[Data], None]:
    return lambda data: data.write_log(LAST, *batches)


def _of_producer(base_offset: int, transactional: bool) -> bytes:
    return batch(
        records(1),
        base_offset=base_offset,
        producer_id=9,
        producer_epoch=0,
        base_sequence=base_offset,
        transactional=transactional,
    )


def patched(base_offset: int, suffix: str, position: int, new: bytes) -> Callable[[Data], None]:
    return lambda data: patch(data.file(base_offset, suffix), position, new)


def written(base_offset: int, suffix: str, content: bytes) -> Callable[[Data], object]:
    return lambda data: data.file(base_offset, suffix).write_bytes(content)


def text(name: str, content: str) -> Callable[[Data], object]:
    return lambda data: (data.root / name).write_text(content)


LOG, LAST_LOG = "orders-0/00000000000000000000.log", "orders-0/00000000000000000007.log"
INDEX, TIME_INDEX = LOG.replace(".log", ".index"), LOG.replace(".log", ".timeindex")
TXN_INDEX = LOG.replace(".log", ".txnindex")
LAST_INDEX, LAST_TIME_INDEX = LAST_LOG.replace(".log", ".index"), LAST_LOG[:-3] + "timeindex"
SNAPSHOT = LAST_LOG.replace(".log", ".snapshot")
EPOCHS = "orders-0/leader-epoch-checkpoint"

BREAKS = {
    "a bit of a batch": Break(patched(0, ".log", AT[1] + 65, b"\xff"), "batch-crc", LOG, AT[1]),
    "a size of 5": Break(patched(0, ".log", AT[2] + 8, b"\0\0\0\5"), "batch-length", LOG, AT[2]),
    "a size below a header": Break(
        patched(0, ".log", AT[3] + 8, b"\0\0\0\x20"), "batch-length", LOG, AT[3]
    ),
    "magic 9": Break(patched(0, ".log", AT[2] + 16, b"\x09"), "batch-magic", LOG, AT[2]),
    "codec 6": Break(
        last(batch(records(1), base_offset=7, attributes=6)), "batch-codec", LAST_LOG, 0
    ),
    "more records than room": Break(
        last(batch(records(1), base_offset=7, count=40, last_offset_delta=39)),
        "batch-count",
        LAST_LOG,
        0,
    ),
    "more records than offsets": Break(
        last(batch(records(1, 2), base_offset=7, last_offset_delta=0)), "batch-count", LAST_LOG, 0
    ),
    "a negative count": Break(
        last(batch(records(1), base_offset=7, count=-1)), "batch-count", LAST_LOG, 0
    ),
    "a transaction of nobody": Break(
        last(batch(records(1), base_offset=7, transactional=True)),
        "batch-producer",
        LAST_LOG,
        0,
        "warning",
    ),
    "plain records inside of their producer's transaction": Break(
        last(*(_of_producer(7 + number, number == 0) for number in range(2))),
        "transaction-mixed",
        LAST_LOG,
        len(_of_producer(7, True)),
    ),
    "times in seconds": Break(
        last(batch(records(1_700_000_000), base_offset=7)),
        "time-in-seconds",
        LAST_LOG,
        0,
        "warning",
    ),
    "a control batch without a type": Break(
        last(batch([record(b"", key=b"")], base_offset=7, control=True)),
        "control-record",
        LAST_LOG,
        0,
    ),
    "a torn tail at the end": Break(
        last(LAST_BATCHES[0], LAST_BATCHES[1][:-1]), "torn-tail", LAST_LOG, LAST_AT[1], "warning"
    ),
    "a segment in the middle that was cut": Break(
        first(*FIRST_BATCHES[:-1], FIRST_BATCHES[-1][:-1]), "batch-length", LOG, AT[3]
    ),
    "a length past the end of the log": Break(
        patched(0, ".log", AT[1] + 8, b"\x00\x7f"), "batch-length", LOG, AT[1]
    ),
    "zeros at the end": Break(
        last(*LAST_BATCHES, bytes(5000)), "zero-tail", LAST_LOG, LAST_SIZE, "warning"
    ),
    "zeros in the middle": Break(first(*FIRST_BATCHES, bytes(30)), "zero-tail", LOG, SIZE),
    "offsets that fall": Break(
        first(FIRST_BATCHES[1], FIRST_BATCHES[0]), "offset-order", LOG, len(FIRST_BATCHES[1])
    ),
    "offsets that repeat": Break(
        first(FIRST_BATCHES[0], FIRST_BATCHES[0]), "offset-order", LOG, len(FIRST_BATCHES[0])
    ),
    "offsets below the base": Break(
        last(batch(records(1), base_offset=6)), "offset-range", LAST_LOG, 0
    ),
    "offsets too far from the base": Break(
        last(batch(records(1), base_offset=7 + 2**31)), "offset-range", LAST_LOG, 0
    ),
    "a negative last offset": Break(
        last(batch(records(1), base_offset=7, last_offset_delta=-3)), "offset-range", LAST_LOG, 0
    ),
    "offsets beyond the next segment": Break(
        first(batch(records(1), base_offset=7)), "offset-order", LAST_LOG, 0
    ),
    "epochs that fall": Break(
        last(batch(records(1), base_offset=7, leader_epoch=0)),
        "leader-epoch-order",
        LAST_LOG,
        None,
        "warning",
    ),
    # Records, which only `deep` looks at.
    "a record cut short": Break(
        last(batch(base_offset=7, count=1, body=b"\x20\0\0")),
        "record-structure",
        LAST_LOG,
        0,
        deep=True,
    ),
    "bytes behind the records": Break(
        last(batch(base_offset=7, count=1, body=b"\x0c\0\0\0\1\1\0" * 2)),
        "record-structure",
        LAST_LOG,
        0,
        deep=True,
    ),
    "offsets of records beyond the batch": Break(
        last(batch([record(offset=9)], base_offset=7, last_offset_delta=0)),
        "record-offset",
        LAST_LOG,
        0,
        deep=True,
    ),
    "offsets of records that repeat": Break(
        last(batch([record(offset=7), record(offset=7)], base_offset=7, last_offset_delta=1)),
        "record-offset",
        LAST_LOG,
        0,
        deep=True,
    ),
    "a time that no record has": Break(
        last(batch(records(5), base_offset=7, max_timestamp=9)),
        "max-timestamp",
        LAST_LOG,
        0,
        "warning",
        deep=True,
    ),
    "a time that records of a compressed set exceed": Break(
        last(wrapper(records(5), magic=1, codec=GZIP, base_offset=7, timestamp=0)),
        "max-timestamp",
        LAST_LOG,
        0,
        "warning",
        deep=True,
    ),
    "a body that is no gzip": Break(
        last(batch(base_offset=7, count=1, attributes=GZIP, body=b"plain")),
        "record-codec",
        LAST_LOG,
        0,
        deep=True,
    ),
    "a body that inflates without end": Break(
        last(batch([record(bytes(1 << 20))], base_offset=7, codec=GZIP)),
        "record-limit",
        LAST_LOG,
        0,
        deep=True,
    ),
    # Indexes.
    "no index in the middle": Break(
        lambda data: data.file(0, ".index").unlink(), "index-missing", LOG
    ),
    "no index at the end": Break(
        lambda data: data.file(7, ".index").unlink(), "index-missing", LAST_LOG, None, "warning"
    ),
    "half an index entry": Break(
        lambda data: grow(data.file(0, ".index"), b"abc"), "index-length", INDEX, 16
    ),
    "index entries that fall": Break(
        written(0, ".index", index((5, AT[3]), (3, AT[1]))), "index-order", INDEX, 8
    ),
    "index positions that fall": Break(
        written(0, ".index", index((3, AT[3]), (5, AT[1]))), "index-order", INDEX, 8
    ),
    "a negative index offset": Break(
        written(0, ".index", index((-3, AT[1]))), "index-order", INDEX, 0
    ),
    "index entries behind empty ones": Break(
        written(
            7,
            ".index",
            index((10, LAST_AT[1]), base_offset=7) + bytes(8) + b"\0\0\0\0\0\0\0\1" + bytes(8),
        ),
        "index-tail",
        LAST_INDEX,
        16,
    ),
    "an index never trimmed, of a segment that was flushed": Break(
        lambda data: (
            data.write_checkpoint("recovery-point-offset-checkpoint", 7),
            written(0, ".index", bytes(800))(data),
        ),
        "index-unused",
        INDEX,
        0,
    ),
    "an index never trimmed, of the last segment under the mark": Break(
        lambda data: (
            text(".kafka_cleanshutdown", '{"version":0,"brokerEpoch":-1}')(data),
            grow(data.file(7, ".timeindex"), bytes(24)),
        ),
        "index-unused",
        LAST_TIME_INDEX,
    ),
    "an index into the middle of a batch": Break(
        written(0, ".index", index((3, AT[1] + 1))), "index-points-nowhere", INDEX, 0
    ),
    "an index beyond the log": Break(
        written(0, ".index", index((6, SIZE))), "index-points-nowhere", INDEX, 0
    ),
    "an index beyond the last log": Break(
        written(7, ".index", index((10, LAST_SIZE + 40), base_offset=7)),
        "index-points-nowhere",
        LAST_INDEX,
        0,
    ),
    "an index past its offset": Break(
        written(0, ".index", index((3, AT[2]))), "index-offset", INDEX, 0
    ),
    "no time index": Break(
        lambda data: data.file(0, ".timeindex").unlink(), "time-index-missing", LOG, None, "warning"
    ),
    "half a time index entry": Break(
        lambda data: grow(data.file(0, ".timeindex"), b"abc"), "time-index-length", TIME_INDEX, 24
    ),
    "times that fall": Break(
        written(0, ".timeindex", time_index((1005, 3), (1003, 6))),
        "time-index-order",
        TIME_INDEX,
        12,
    ),
    "time index entries behind empty ones": Break(
        written(
            7, ".timeindex", time_index((1007, 8), base_offset=7) + bytes(12) + b"\1" + bytes(23)
        ),
        "time-index-tail",
        LAST_TIME_INDEX,
        24,
    ),
    "times beyond the log": Break(
        written(0, ".timeindex", time_index((1005, 60))), "time-index-points-nowhere", TIME_INDEX, 0
    ),
    "a time earlier than those before it": Break(
        written(0, ".timeindex", time_index((1001, 6))), "time-index-late", TIME_INDEX, 0
    ),
    "a time that its batch has not": Break(
        written(0, ".timeindex", time_index((1004, 3))),
        "time-index-timestamp",
        TIME_INDEX,
        0,
        "warning",
    ),
    "half a transaction": Break(
        lambda data: grow(data.file(0, ".txnindex"), b"abc"), "txn-index-torn", TXN_INDEX, 34
    ),
    "a transaction of version 256": Break(
        written(0, ".txnindex", txn_index((7, 2, 4, 5), version=256)),
        "txn-index-version",
        TXN_INDEX,
        0,
    ),
    "a transaction that ends before it begins": Break(
        written(0, ".txnindex", txn_index((7, 6, 4, 5))), "txn-index-order", TXN_INDEX, 0
    ),
    "a transaction without a marker": Break(
        written(0, ".txnindex", txn_index((7, 2, 4, 5), (7, 5, 6, 7))),
        "txn-index-points-nowhere",
        TXN_INDEX,
        34,
    ),
    "an aborted transaction unsaid": Break(
        written(0, ".txnindex", b""), "txn-index-incomplete", TXN_INDEX
    ),
    "no transaction index": Break(
        lambda data: data.file(0, ".txnindex").unlink(), "txn-index-incomplete", LOG
    ),
    "an index without a log": Break(
        written(99, ".index", b""),
        "orphan-index",
        "orders-0/00000000000000000099.index",
        None,
        "warning",
    ),
    # Beside the log.
    "a bit of a snapshot": Break(patched(7, ".snapshot", 12, b"\xff"), "snapshot-crc", SNAPSHOT, 2),
    "an empty snapshot": Break(written(7, ".snapshot", b""), "snapshot-format", SNAPSHOT, 0),
    "a snapshot of later offsets": Break(
        written(7, ".snapshot", snapshot((7, 0, 3, 8, 0, 1, 0, -1))),
        "snapshot-offset",
        SNAPSHOT,
        10,
    ),
    "a snapshot beyond the log": Break(
        written(50, ".snapshot", snapshot()),
        "snapshot-ahead",
        "orders-0/00000000000000000050.snapshot",
        None,
    ),
    "epochs that are none": Break(text(EPOCHS, "0\n2\nzero 0\n"), "epochs-format", EPOCHS, 4),
    "no epochs": Break(lambda data: (data.root / EPOCHS).unlink(), "epochs-missing", "orders-0"),
    "no entry of epochs": Break(text(EPOCHS, ""), "epochs-missing", "orders-0"),
    "epochs out of order": Break(
        text(EPOCHS, "0\n3\n5 0\n0 0\n1 5\n"), "epochs-order", EPOCHS, None, "warning"
    ),
    "epochs beyond the log": Break(
        text(EPOCHS, "0\n3\n0 0\n1 5\n2 12\n"), "epochs-ahead", EPOCHS, None
    ),
    "epochs of another log": Break(text(EPOCHS, "0\n2\n0 0\n1 6\n"), "epochs-wrong", EPOCHS),
    "no topic id": Break(
        text("orders-0/partition.metadata", "version: 0\ntopic_id: short"),
        "metadata-format",
        "orders-0/partition.metadata",
    ),
    "a version of properties": Break(
        text("meta.properties", "version=9\n"), "properties-format", "meta.properties"
    ),
    "a checkpoint that is none": Break(
        text("replication-offset-checkpoint", "0\n2\norders 0 5\n"),
        "checkpoint-format",
        "replication-offset-checkpoint",
    ),
    "a recovery point beyond the log": Break(
        lambda data: data.write_checkpoint("recovery-point-offset-checkpoint", 12),
        "checkpoint-ahead",
        "recovery-point-offset-checkpoint",
    ),
    "a log start beyond the log": Break(
        lambda data: data.write_checkpoint("log-start-offset-checkpoint", 12),
        "log-start-ahead",
        "log-start-offset-checkpoint",
    ),
    "a swap file": Break(
        written(7, ".log.swap", b""),
        "leftover",
        "orders-0/00000000000000000007.log.swap",
        None,
        "warning",
    ),
    "a log without an offset": Break(text("orders-0/x.log", ""), "name", "orders-0/x.log"),
    "a log of few digits": Break(
        text("orders-0/11.log", ""), "name-digits", "orders-0/11.log", None, "warning"
    ),
    "a second log of an offset": Break(text("orders-0/7.log", ""), "name", "orders-0/7.log"),
    "a folder that is no partition": Break(
        lambda data: (data.root / "backup").mkdir(), "foreign-directory", "backup", None, "warning"
    ),
    "a huge file of ids": Break(
        text("meta.properties", "#" * (2**20 + 1)), "unreadable", "meta.properties"
    ),
}
