"""Enumerations and sentinels shared by every layer, in Kafka's own words.

The numbers are those on disk; nothing here computes. Source: Kafka `RecordBatch`,
`CompressionType`, `TimestampType`, `ControlRecordType`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum, StrEnum
from os import PathLike
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt


#: A path as callers name it.
StrPath: TypeAlias = str | PathLike[str]
#: Bytes that a function reads.
Buffer: TypeAlias = bytes | bytearray | memoryview
#: Arrays by the type of their values. They are texts, because this module loads no numpy.
Array: TypeAlias = "npt.NDArray[Any]"
Bools: TypeAlias = "npt.NDArray[np.bool_]"
Int8s: TypeAlias = "npt.NDArray[np.int8]"
Int32s: TypeAlias = "npt.NDArray[np.int32]"
Int64s: TypeAlias = "npt.NDArray[np.int64]"
Intps: TypeAlias = "npt.NDArray[np.intp]"
Uint8s: TypeAlias = "npt.NDArray[np.uint8]"
Uint64s: TypeAlias = "npt.NDArray[np.uint64]"
#: Called with how much is done, and with all that there is to do: bytes if nothing else is said.
Progress: TypeAlias = Callable[[int, int], None]

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1

#: The isolation levels of readers.
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
#: Unfinished transactions, for a reader of committed records: wait, or treat as aborted.
OPEN_TRANSACTIONS: Final = ("wait", "abort")
#: Which of several directories of one partition are read.
REPLICAS: Final = ("refuse", "newest", "first", "all")
#: The files that an export writes, by their extensions, and the columns of Hive's layout.
EXTENSIONS: Final = ("parquet", "arrow", "jsonl", "csv")
PARTITION_KEYS: Final = ("day", "topic", "partition")
#: The largest offset, and the largest time.
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
#: The numbers of 32 and of 64 bits.
INT32S: Final = range(-INT32_MAX - 1, INT32_MAX + 1)
INT64S: Final = range(INT64_MIN, INT64_MAX + 1)
#: Bytes of offset and size before every batch or message since Kafka 0.8.
LOG_OVERHEAD = 12
#: The least any message has: magic 0 with neither key nor value.
MESSAGE_BYTES_MIN = 14
#: Bytes of a magic 2 batch header, the 12 of offset and size among them.
BATCH_HEADER_BYTES = 61
#: Kafka keeps positions in a signed 32-bit integer, so no segment is longer.
SEGMENT_BYTES_MAX = INT32_MAX
#: Compressed messages inside compressed messages, no deeper than this (Kafka 0.7 allowed any
#: depth).
NESTING_MAX = 8

#: The default size at which Kafka's producers close a batch.
BATCH_BYTES: Final = 16384
#: Memory of the offset map in bytes; Kafka's `log.cleaner.dedupe.buffer.size`.
COMPACTION_MAP_BYTES: Final = 128 << 20
#: The newest release of Kafka whose records, settings and rules kseg knows.
NEWEST_RELEASE: Final = "4.4"
#: Releases whose compaction differs: until 3.9 a batch keeps its magic, since 4.0 all become 2.
#: Until 4.0 an emptied batch stays at the end of a pass, since 4.4 at the high watermark only.
COMPACTION_RULES: Final = ("3.9", "4.0", "4.4")


class Compression(IntEnum):
    """The codec of a batch: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's lower-case name: `none gzip snappy lz4 zstd`."""
        return self.name.lower()

    @classmethod
    def _missing_(cls, value: object) -> Compression | None:
        """The codec with a label, so that `Compression("zstd")` works; ValueError for others."""
        if not isinstance(value, str):
            return None
        codec = {codec.label: codec for codec in cls}.get(value)
        if codec is None:
            raise ValueError(f"no codec {value!r}; there are: {', '.join(c.label for c in cls)}")
        return codec


#: A codec, or its name; see `codec_of`.
Codec: TypeAlias = Compression | Literal["none", "gzip", "snappy", "lz4", "zstd"]


def codec_of(codec: Codec) -> Compression:
    """A codec by number, name or itself.

    Raises:
        ValueError: there is no such number or name.
    """
    return Compression(codec)  # type: ignore[arg-type]  # names: see `Compression._missing_`


def codec_label(codec: int) -> str:
    """Kafka's name of the codec with a number; `unknown5`, for example, if it has no name."""
    try:
        return Compression(codec).label
    except ValueError:
        return f"unknown{codec}"


class TimestampType(IntEnum):
    """The meaning of a timestamp: bit 3 of the attributes; magic 0 has no timestamps."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def label(self) -> str:
        """Kafka's name: `NoTimestampType CreateTime LogAppendTime`."""
        return _TIMESTAMP_TYPE_LABELS[self]


_TIMESTAMP_TYPE_LABELS = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class ControlType(IntEnum):
    """The kind of a control record: the second int16 of its key."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


#: The markers that end a transaction.
END_MARKERS: Final = (ControlType.ABORT, ControlType.COMMIT)


class AppendOrigin(IntEnum):
    """The origin of an append. Source: Kafka AppendOrigin."""

    REPLICATION = 0  #: a follower, which keeps the leader's offsets
    COORDINATOR = 1  #: the group or transaction coordinator, which may write markers
    CLIENT = 2  #: a producer, checked the most strictly
    RAFT_LEADER = 3  #: a KRaft leader, whose batches have offsets and epochs


class StopReason(IntEnum):
    """Why a walk over batches ended. END and LIMIT are benign everywhere."""

    END = 0  #: every byte belongs to a whole batch
    LIMIT = 1  #: the caller's limit was reached; more may follow
    TORN_TAIL = 2  #: the bytes left are too few for the batch they announce
    ZERO_TAIL = 3  #: the bytes left are all zero, as preallocation leaves them
    BAD_LENGTH = 4  #: a size field that no batch can have
    BAD_MAGIC = 5  #: a magic byte that no release wrote
    BAD_CRC = 6  #: the batch is whole but its checksum does not match


#: Ends of a walk over whole batches, and those that an unfinished write leaves in a last segment.
WHOLE_ENDS: Final = (StopReason.END, StopReason.LIMIT)
TAILS: Final = (StopReason.TORN_TAIL, StopReason.ZERO_TAIL)


#: The words of `decode` for values that have schemas.
SCHEMA_WORDS: Final = (
    *("registry", "registry-json", "avro", "protobuf", "json-schema", "json:struct"),
    *("registry:no-indexes", "registry:unsigned-indexes"),
)


class InternalTopic(StrEnum):
    """Kafka's internal topics whose records are known."""

    OFFSETS = "__consumer_offsets"
    TRANSACTIONS = "__transaction_state"
    SHARE = "__share_group_state"
    METADATA = "__cluster_metadata"
    REMOTE = "__remote_log_metadata"


class ConnectTopic(StrEnum):
    """The topics of Connect and MirrorMaker whose records are known, by their usual names.

    See `topic_named` for all of their names.
    """

    OFFSETS = "connect-offsets"
    SYNCS = "mm2-offset-syncs.target.internal"
    CHECKPOINTS = "source.checkpoints.internal"


#: Names of topics: of the usual settings, and of MirrorMaker, which puts a cluster's name in.
_CONNECT_NAMES: Final = (
    (re.compile(r"(.*[.-])?connect-offsets"), ConnectTopic.OFFSETS),
    (re.compile(r"mm2-offset-syncs\..*\.internal"), ConnectTopic.SYNCS),
    (re.compile(r".*\.checkpoints\.internal"), ConnectTopic.CHECKPOINTS),
)


def topic_named(name: str | None) -> InternalTopic | ConnectTopic | None:
    """The topic whose records those of a topic with this name are; None for all others."""
    if name is None or name in set(InternalTopic):
        return InternalTopic(name) if name else None
    return next((topic for pattern, topic in _CONNECT_NAMES if pattern.fullmatch(name)), None)
