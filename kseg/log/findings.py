"""A fault of a file, as one value for verify, a load and a reindexing.

The codes are stable, so that programs can act on them. An error is damage, or a fault that makes a
broker lose records or refuse to start. A warning is a trace of a crash, a running broker or an old
release that Kafka repairs by itself.
"""

from __future__ import annotations

from os import fspath
from typing import Any, Final, Literal, Protocol

from kseg.constants import StrPath
from kseg.documents import frozen_dataclass

Severity = Literal["error", "warning"]


@frozen_dataclass
class Code:
    """The meaning of a code, its default severity, and the advice."""

    severity: Severity
    meaning: str
    advice: str


_RECOVER = (
    "restore the partition from a replica if you can; "
    "`kseg salvage` keeps sound batches after it, "
    "`kseg recover --unclean --recovery-point 0` shows the cost of a cut here"
)

_REINDEX = "rebuild with `kseg reindex`, or delete the file: a broker rebuilds it after a crash"

_INDEX_GONE = "rebuild with `kseg reindex`; a broker does so when it starts"

_TIME_INDEX_GONE = "rebuild with `kseg reindex`; a broker starts with an empty one"

_REPLICA = "restore the partition from a replica; `kseg dump` shows the readable part"

_COPY = (
    "restore the partition from a replica; `kseg salvage` copies the records that segments can hold"
)

_LOST = "the log was longer once: take the missing records from a replica, else a broker repairs it"

_NOTHING = "nothing to do: a broker repairs it at its start"

_NO_LOG = "take the segment from a replica or a backup: a broker only deletes the index"

_RESTART = "a broker repairs it at a start after a crash; `kseg recover` does the same"

_SNAPSHOT = "rebuild with `kseg reindex`; a broker that starts after a crash does so itself"

_SNAPSHOT_GONE = "no node starts with it, and none repairs it: `kseg doctor` says what to do"

_EPOCHS = "take it from a replica; after a crash, brokers repair the segments that they recover"

_DISK = (
    "check the disk; copy the readable files from a bad disk, and restore the others from a replica"
)

_AHEAD = (
    "retention.ms keeps the segment, and later ones, until that time has passed: "
    "`kseg explain` shows how long; message.timestamp.after.max.ms refuses such times"
)

_NEGATIVE = (
    "retention.ms uses the file's own time for a segment without timestamps; find out who wrote "
    "the batch"
)

_SECONDS = (
    "find out who wrote the batch: a time is in milliseconds, so that retention.ms deletes the "
    "segment as one of 1970"
)

_TIER = "restore the object from a backup of the store; consumers cannot read these offsets"

_WRITER = "find out who wrote the batch; consumers may refuse it"

_TOPIC_ID = (
    "copy the file from a replica or a backup: it is the same there; beside the metadata log "
    "`kseg doctor` prints its lines"
)

CODES: dict[str, Code] = {
    # The log.
    "batch-crc": Code("error", "a batch does not match its checksum", _RECOVER),
    "batch-length": Code("error", "a size field that no batch can have", _RECOVER),
    "batch-magic": Code("error", "a magic byte that no release wrote", _RECOVER),
    "batch-codec": Code("error", "a codec that the batch's format does not have", _WRITER),
    "batch-count": Code("error", "a record count that cannot be true", _WRITER),
    "batch-producer": Code("warning", "producer fields that contradict each other", _WRITER),
    "sequence-gap": Code(
        "warning",
        "with --sequences: batches of a producer are not here; compaction takes some, too",
        "`kseg diff` shows whether a replica has them",
    ),
    "sequence-double": Code(
        "warning",
        "with --sequences: a producer's batches are here twice",
        "leave them out where you read: producer, epoch and sequence name a record",
    ),
    "record-over-limit": Code(
        "warning",
        "a compressed record above max.decompressed.message.bytes: since Kafka 4.4 the partition"
        " is not compacted, and look-ups by time fail",
        "raise the topic's max.decompressed.message.bytes",
    ),
    "transaction-mixed": Code(
        "error",
        "a batch outside of its producer's open transaction: a broker that reads it does not start",
        _REPLICA,
    ),
    "control-record": Code("error", "a control batch whose record is not a marker", _WRITER),
    "torn-tail": Code(
        "error", "the last batch is incomplete; a warning at the end of a partition", _RESTART
    ),
    "zero-tail": Code(
        "error", "zeros follow the last batch; a warning at the end of a partition", _RESTART
    ),
    "offset-order": Code("error", "offsets do not grow from batch to batch", _REPLICA),
    "offset-range": Code("error", "an offset that its segment cannot hold", _COPY),
    "segment-gap": Code(
        "warning", "a segment may be missing, or the topic was compacted once", _REPLICA
    ),
    "leader-epoch-order": Code("warning", "leader epochs fall from batch to batch", _REPLICA),
    "record-structure": Code("error", "a record breaks the format (--deep: all)", _REPLICA),
    "record-crc": Code("error", "a message in a compressed one fails its checksum", _REPLICA),
    "record-offset": Code("error", "record offsets contradict their batch (--deep: all)", _WRITER),
    "record-codec": Code("error", "a batch does not decompress (--deep: all)", _REPLICA),
    "record-limit": Code("error", "a batch inflates beyond the limit (--deep: all)", _WRITER),
    "time-ahead": Code("warning", "times more than a day ahead of the clock", _AHEAD),
    "time-negative": Code("warning", "times before 1970, which a broker ignores", _NEGATIVE),
    "time-in-seconds": Code("warning", "times that look like seconds", _SECONDS),
    "max-timestamp": Code("warning", "the header's timestamp is not its records'", _WRITER),
    # Indexes.
    "index-missing": Code("error", "a segment has lost its offset index", _INDEX_GONE),
    "index-length": Code("error", "the length is not a whole number of entries", _REINDEX),
    "index-order": Code("error", "entries do not ascend, or lie below the base", _REINDEX),
    "index-tail": Code("error", "entries follow unused ones", _REINDEX),
    "index-unused": Code(
        "error", "unused entries in an index that a broker trusts: its records look old", _REINDEX
    ),
    "index-points-nowhere": Code("error", "an entry's position starts no batch", _REINDEX),
    "index-offset": Code("error", "an entry leads past the offset that it is for", _REINDEX),
    "time-index-missing": Code("warning", "a segment has lost its time index", _TIME_INDEX_GONE),
    "time-index-length": Code("error", "the length is not a whole number of entries", _REINDEX),
    "time-index-order": Code("error", "entries do not ascend, or lie below the base", _REINDEX),
    "time-index-tail": Code("error", "entries follow unused ones", _REINDEX),
    "time-index-points-nowhere": Code("error", "an entry's offset is in no batch", _REINDEX),
    "time-index-late": Code("error", "a lookup by time would pass over records", _REINDEX),
    "time-index-timestamp": Code("warning", "an entry's time is not its batch's", _REINDEX),
    "txn-index-torn": Code("error", "bytes after the last whole entry", _REINDEX),
    "txn-index-version": Code("error", "an entry of an unknown version", _REINDEX),
    "txn-index-order": Code("error", "entries out of order or with impossible offsets", _REINDEX),
    "txn-index-incomplete": Code("error", "an aborted transaction has no entry", _REINDEX),
    "txn-index-points-nowhere": Code("error", "an entry's offset is not an abort marker", _REINDEX),
    "orphan-index": Code("warning", "an index without its log", _NO_LOG),
    # Beside the log.
    "snapshot-crc": Code("error", "a producer snapshot does not match its checksum", _SNAPSHOT),
    "snapshot-format": Code("error", "a producer snapshot is cut short or not one", _SNAPSHOT),
    "snapshot-offset": Code("error", "a snapshot has offsets beyond its own", _SNAPSHOT),
    "snapshot-ahead": Code("error", "a snapshot lies beyond the end of the log", _LOST),
    "epochs-format": Code("error", "leader-epoch-checkpoint cannot be read", _REPLICA),
    "epochs-missing": Code("error", "leader-epoch-checkpoint is gone", _RESTART),
    "epochs-order": Code("warning", "leader epochs in the checkpoint do not ascend", _EPOCHS),
    "epochs-ahead": Code("error", "leader epochs beyond the end of the log", _LOST),
    "epochs-wrong": Code("error", "leader epochs contradict the log's batches", _EPOCHS),
    "metadata-format": Code("error", "partition.metadata cannot be read", _TOPIC_ID),
    "kraft-snapshot": Code("error", "a snapshot of KRaft that no node can read", _SNAPSHOT_GONE),
    "properties-format": Code("error", "meta.properties cannot be read", "restore the file"),
    "checkpoint-format": Code(
        "error",
        "an offset checkpoint cannot be read: the broker takes the directory offline",
        "delete the file with the broker stopped; it starts from what the logs say",
    ),
    "checkpoint-ahead": Code("error", "a checkpoint lies beyond the end of the log", _LOST),
    "log-start-ahead": Code(
        "error",
        "the log start lies beyond the log: a broker would delete every segment",
        "put the partition's line in log-start-offset-checkpoint right before you start a broker, "
        "unless its records were deleted up to there on purpose",
    ),
    "leftover": Code("warning", "left by a broker that stopped, or still at work", _NOTHING),
    "name": Code("error", "a name on which a broker's start would fail", "rename or move it away"),
    "name-digits": Code("warning", "an offset in a name that is not 20 digits", "rename it"),
    "foreign-directory": Code(
        "warning", "a folder in a data directory that no broker would start with", "move it away"
    ),
    "changed": Code("warning", "a file went or shrank while it was read", "run verify again"),
    # A tier.
    "tier-metadata": Code(
        "error", "metadata or a manifest of a tier that contradicts itself", _TIER
    ),
    "tier-object": Code("error", "an object that the tier should have, and lacks", _TIER),
    "tier-size": Code("error", "an object of another size than the metadata say", _TIER),
    "tier-hole": Code("error", "offsets that neither the log nor the tier has", _REPLICA),
    "tier-orphan": Code(
        "warning",
        "an object of a copy that failed, was replaced, or is being deleted",
        "nothing reads it; delete it from the store once no broker works on it",
    ),
    "unreadable": Code(
        "error",
        "the disk does not give its bytes, or the file is other than any of its kind",
        _DISK,
    ),
}


# ---- findings ------------------------------------------------------------------------------------


#: Further findings of a code in one file are counted, not kept.
PER_CODE_MAX: Final = 100


@frozen_dataclass
class Finding:
    """A fault of a file.

    Attributes:
        code: a word of `kseg verify --codes`; empty where no code is needed.
        path: the file or directory.
        message: the fault, with the values that show it, and the action.
        position: byte in the file, if known.
        offset: logical offset, if known.
        severity: "error" or "warning"; that of the code unless the place says otherwise.
        why: the same in a few words, for a list of actions; may be empty.
    """

    code: str
    path: StrPath
    message: str
    position: int | None = None
    offset: int | None = None
    severity: Severity | None = None
    why: str = ""

    @property
    def kind(self) -> str:
        """How the file's name ends: "index", "log"."""
        return fspath(self.path).rpartition(".")[2]

    @property
    def advice(self) -> str:
        """The next step."""
        return CODES[self.code].advice

    @property
    def place(self) -> str:
        """The file, the byte and the offset, if they are known."""
        at = "" if self.position is None else f" @ {self.position}"
        offset = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.path}{at}{offset}"

    def __str__(self) -> str:
        """The finding as one line."""
        text = f"{self.place}: {self.message}"
        return f"{self.code}: {text}" if self.code else text

    def noted(self) -> dict[str, Any]:
        """The object for `kseg recover --json`."""
        names = ("code", "path", "message", "position", "offset")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """The object for `kseg verify --json`."""
        names = ("code", "severity", "path", "position", "offset", "message", "advice")
        return {name: getattr(self, name) for name in names}


class Sink(Protocol):
    """Takes findings."""

    def note(self, finding: Finding) -> None:
        """Receive one finding."""

    def count_more(self, code: str, path: str, number: int) -> None:
        """Count `number` more findings of a kind, beyond those received one by one."""
