"""Coordinators' topics, column by column: the last value of each key, and committed offsets.

The last values take bounded memory. A record inside a transaction counts once its COMMIT marker is
there, at its own offset, and is dropped at ABORT. Until then it is pending, and beside the plain
value of its key. Of the values that count, the one with the highest offset is the last. A tombstone
is a value, and counts at once.

`ShareUpdate` records change the snapshot before them: all those after the last snapshot of their
key stay.

A committed offset is read out of a record of `__consumer_offsets`:

| version | value after the int16 version |
|---|---|
| 0, 2 | offset int64, metadata string, commit time int64 |
| 1 | the same, expiry time int64 |
| 3 | offset int64, leader epoch int32, metadata string, commit time int64 |
| 4 | the same with a compact string, and a topic id as tag 0, or no tag |

Records of other forms are left to `kseg.internal.decode`, which reads them or reports the fault.

Source: Kafka `OffsetMetadataManager.replay`, `replayEndTransactionMarker`, `ShareCoordinatorShard`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from kseg._kernels.offset_map import OffsetMap
from kseg.constants import NO_PRODUCER_ID, Bools, ControlType, Int64s, InternalTopic, Intps, Uint8s
from kseg.format.request import ROWS_MAX
from kseg.format.take import gather, join_rows, take_rows
from kseg.format.values import BinaryColumn, RecordColumns

#: In place of a number that a commit does not have.
NONE: Final = np.iinfo(np.int64).min
_TYPES: Final = (0, 1)
_VERSION_MAX: Final = 4
_EXPIRES: Final = 1
_COMPACT: Final = 4
#: Tags of version 4: one, number 0, of 16 bytes.
_TOPIC_ID_TAG: Final = (1, 0, 16)
_UUID_BYTES: Final = 16
#: No read goes further past the start of a key or value that is cut off.
_SLACK: Final = 64


def commit_rows(columns: RecordColumns) -> tuple[Bools, dict[str, Any]]:
    """Read the commits among the last values of `__consumer_offsets`.

    Args:
        columns: `offset`, `key`, `value` and `producer_id`, as `LastValues` has them.

    Returns:
        bool[n], the records that were read, tombstones of commits among them; and the columns of
        those that have a value: `group`, `topic` and `metadata` as object arrays of `str`, and
        int64 arrays `partition`, `offset`, `leader_epoch`, `commit_timestamp`, `expire_timestamp`,
        `record_offset` and `producer_id`. `NONE` stands for a number that is not there.
    """
    # A key: version (2 bytes), group and topic, each after its size (2), and partition (4).
    data, at, end = _pad_bytes(columns["key"])
    kind = _number(data, at, 2)
    group_bytes = _number(data, at + 2, 2)
    sound = (end - at >= 4) & np.isin(kind, _TYPES) & (group_bytes >= 0)
    topic_at = np.where(sound, at + 4 + group_bytes, at)
    sound &= end - topic_at >= 2
    topic_at = np.where(sound, topic_at, at)
    topic_bytes = _number(data, topic_at, 2)
    sound &= (topic_bytes >= 0) & (end - topic_at - 6 >= topic_bytes)
    with_key = np.flatnonzero(sound)
    group = _texts(data, at[with_key] + 4, group_bytes[with_key])
    topic = _texts(data, topic_at[with_key] + 2, topic_bytes[with_key])
    partition = _number(data, topic_at[with_key] + 2 + topic_bytes[with_key], 4)
    has_value = columns["value"].is_valid()[with_key]
    fields, read = _values(columns["value"], with_key, kind[with_key])
    sound[with_key[has_value & ~read]] = False
    commits = has_value & read
    rows = with_key[commits]
    commit_columns = {
        "group": group[commits],
        "topic": topic[commits],
        "partition": partition[commits],
    }
    commit_columns |= {name: values[commits] for name, values in fields.items()}
    return sound, commit_columns | {
        "record_offset": columns["offset"][rows],
        "producer_id": columns["producer_id"][rows],
    }


def _values(column: BinaryColumn, rows: Intps, kind: Int64s) -> tuple[dict[str, Any], Bools]:
    """Decode the values of `OffsetCommit` records, all at once.

    Args:
        column: the values.
        rows: the numbers of the rows to decode.
        kind: int64[n], the version of each row's key; values of a key of version 0 have version 0.

    Returns:
        An array for each field, and bool[n]: the rows that could be decoded.
    """
    # A value: version (2 bytes), offset (8), since version 3 leader epoch (4), metadata after its
    # size (2; a varint in version 4), commit time (8), in version 1 expiry (8), in 4 tags.
    data, starts, ends = _pad_bytes(column)
    at = starts[rows]
    end = ends[rows]
    version = _number(data, at, 2)
    sound = (end - at >= 16) & (version >= 0) & (version <= np.where(kind, _VERSION_MAX, 0))
    compact = version == _COMPACT
    has_epoch = version >= 3
    head = at + np.where(has_epoch, 14, 10)
    short = data[head].astype(np.int64)
    metadata_bytes = np.where(compact, short - 1, _number(data, head, 2))
    sound &= (metadata_bytes >= 0) & ~(compact & (short > 127))
    text_at = head + np.where(compact, 1, 2)
    time_at = text_at + metadata_bytes
    sound &= time_at + np.where(version == _EXPIRES, 16, 8) + compact <= end
    # From here on only sound rows are used; the others read the first bytes of the data.
    time_at = np.where(sound, time_at, 0)
    text_at = np.where(sound, text_at, 0)
    tags = data[np.minimum(time_at[:, None] + 8 + np.arange(3), len(data) - 1)]
    tagged = (tags == _TOPIC_ID_TAG).all(axis=1) & (time_at + 11 + _UUID_BYTES <= end)
    sound &= ~compact | (tags[:, 0] == 0) | tagged
    fields = {
        "offset": _number(data, at + 2, 8),
        "leader_epoch": np.where(has_epoch, _number(data, at + 10, 4), -1),
        "metadata": _texts(data, text_at, np.where(sound, metadata_bytes, 0)),
        "commit_timestamp": _number(data, time_at, 8),
        "expire_timestamp": np.where(version == _EXPIRES, _number(data, time_at + 8, 8), -1),
    }
    return {name: none_for_minus_one(name, values) for name, values in fields.items()}, sound


def _pad_bytes(column: BinaryColumn) -> tuple[Uint8s, Int64s, Int64s]:
    """The bytes with padding after them, and the starts and ends of the values."""
    data = np.concatenate((column.data, np.zeros(_SLACK, np.uint8)))
    ends = column.offsets.astype(np.int64)
    return data, ends[:-1], ends[1:]


def _number(data: Uint8s, at: Int64s, width: int) -> Int64s:
    """Big-endian numbers at these positions, which are in the data or in the padding."""
    digits = np.ascontiguousarray(data[at[:, None] + np.arange(width)])
    return digits.view(f">i{width}").reshape(-1).astype(np.int64)


def _texts(data: Uint8s, at: Int64s, sizes: Int64s) -> Any:
    """Decode texts as an object array, in which equal texts are one object."""
    raw = data.tobytes()
    text_of = dict[bytes, str]()
    texts = np.empty(len(at), object)
    for row, (start, size) in enumerate(zip(at.tolist(), sizes.tolist(), strict=True)):
        part = raw[start : start + size]
        text = text_of.get(part)
        if text is None:
            text = text_of[part] = part.decode("utf-8", "replace")
        texts[row] = text
    return texts


def none_for_minus_one(name: str, values: Any) -> Any:
    """The values of a column, with `NONE` for -1."""
    if name in ("leader_epoch", "expire_timestamp"):
        values[values == -1] = NONE
    return values


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of all parts; at least one part."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


_TEXTS: Final = ("group", "topic", "metadata")
_NUMBERS: Final = (
    "partition",
    "offset",
    "leader_epoch",
    "commit_timestamp",
    "expire_timestamp",
    "record_offset",
    "producer_id",
    "log_partition",
)
#: The columns of no commit, with the partition of the log that callers add.
NO_COMMITS: Final[dict[str, Any]] = {
    **{name: np.empty(0, object) for name in _TEXTS},
    **{name: np.empty(0, np.int64) for name in _NUMBERS},
}


#: The columns that `LastValues.feed` wants; control records must be among the records.
COLUMNS = ("offset", "key", "value", "producer_id", "transactional", "control", "control_type")
_FRESH_BYTES_MIN = 32 << 20
#: A map has two bits for each offset of a range of at most this size.
_SPAN_MAX = 1 << 28
_TYPE_BYTES = 2


class LastValues:
    """Keeps the last value of each key of one partition.

    Attributes:
        unkeyed: the records without a key, which are left out.
    """

    __slots__ = ("_chunks", "_fresh", "_markers", "_merged_bytes", "_topic", "unkeyed")

    def __init__(self, topic: InternalTopic) -> None:
        """Start without records."""
        self._topic = topic
        self._chunks: list[RecordColumns] = []
        self._markers: list[Int64s] = []
        self._fresh = self._merged_bytes = 0
        self.unkeyed = 0

    def feed(self, columns: RecordColumns) -> None:
        """Take records with `COLUMNS`, in the order of their offsets."""
        control = columns["control"]
        kind = columns["control_type"]
        producer_id = columns["producer_id"]
        marks = control & ((kind == ControlType.COMMIT) | (kind == ControlType.ABORT))
        if marks.any():
            commits = kind[marks] == ControlType.COMMIT
            marker_columns = (producer_id[marks], columns["offset"][marks], commits)
            self._markers.append(np.stack(marker_columns, axis=1).astype(np.int64))
        has_key = columns["key"].is_valid()
        self.unkeyed += int(np.count_nonzero(~has_key & ~control))
        # A pending record has its producer until a marker decides, any other record has none.
        waits = columns["transactional"] & columns["value"].is_valid() & (producer_id >= 0)
        waits_for = np.where(waits, producer_id, NO_PRODUCER_ID).astype(np.int64)
        arrays = {name: columns[name] for name in ("offset", "key", "value")}
        chunk = replace(columns, arrays={**arrays, "producer_id": waits_for})
        chunk = take_rows(chunk, np.flatnonzero(has_key & ~control))
        self._chunks.append(chunk)
        self._fresh += chunk.nbytes
        if self._fresh > max(_FRESH_BYTES_MIN, self._merged_bytes // 2):
            self._merge()

    def drain(self) -> Iterator[RecordColumns]:
        """The last values, sorted by offset, with tombstones and pending records; only once.

        Yields:
            Columns `offset`, `key`, `value` and `producer_id`: -1 if a record counts, else that of
            the open transaction that it waits for.
        """
        self._merge()
        while self._chunks:
            yield self._chunks.pop(0)

    def _merge(self) -> None:
        """Drop all records that have a later record with the same key."""
        self._decide_pending()
        count = sum(map(len, self._chunks))
        if count:
            first = self._chunks[0]["offset"][0]
            last = self._chunks[-1]["offset"][-1]
            span = min(max(int(last) - int(first) + 1, 0), _SPAN_MAX)
            if self._topic is InternalTopic.SHARE:
                # Only snapshots have bits in the map: for updates it is only read.
                span = 0
            slots = count + count // 2 + 2
            latest = OffsetMap(slots, count + 1, secrets.token_bytes(16), max(int(first), 0), span)
            for chunk in self._chunks:
                self._put_or_find_last(latest, chunk, put=True)
            chunks = (
                _where(chunk, self._put_or_find_last(latest, chunk, put=False))
                for chunk in self._chunks
            )
            self._chunks = _join_small_chunks([chunk for chunk in chunks if len(chunk)])
        self._fresh, self._merged_bytes = 0, sum(chunk.nbytes for chunk in self._chunks)

    def _put_or_find_last(self, latest: OffsetMap, chunk: RecordColumns, *, put: bool) -> Bools:
        """Put the records of a chunk into the map; or return which of them are the last."""
        names = self._identities(chunk)
        offsets = chunk["offset"]
        valid = np.ones(len(chunk), np.uint8)
        out = np.empty(len(chunk), np.uint8)
        if put:
            if self._topic is InternalTopic.SHARE:
                valid = _is_snapshot(chunk["key"])
            latest.put(names.data, names.offsets, valid, offsets)
        else:
            known_to = int(self._chunks[-1]["offset"][-1])
            latest.latest(names.data, names.offsets, valid, offsets, known_to, out)
        return out.view(np.bool_)

    def _identities(self, chunk: RecordColumns) -> BinaryColumn:
        """Bytes that must be equal for a later record to replace one: key, and 8 bytes after it.

        The bytes are the producer of a pending record, else -1. In the topic of share groups the
        type before a key does not count: a snapshot replaces the updates before it.
        """
        key = chunk["key"]
        count = len(chunk)
        skip = _TYPE_BYTES if self._topic is InternalTopic.SHARE else 0
        # For each record a part of its key and a producer: buffer, place and size, see `gather`.
        spans = np.zeros((2 * count, 3), np.int64)
        spans[0::2, 1] = key.offsets[:-1] + skip
        spans[0::2, 2] = np.maximum(key.sizes() - skip, 0)
        spans[1::2, 0] = 1
        spans[1::2, 1] = np.arange(count) * 8
        spans[1::2, 2] = 8
        producers = np.ascontiguousarray(chunk["producer_id"]).view(np.uint8)
        both = gather(key.data.data, producers.data, spans)
        return BinaryColumn(np.ascontiguousarray(both.offsets[::2]), both.data)

    def _decide_pending(self) -> None:
        """Keep or drop the pending records of transactions whose markers have come since."""
        if not self._markers:
            return
        markers = np.concatenate(self._markers)
        self._markers = []
        open_rows = [np.flatnonzero(chunk["producer_id"] >= 0) for chunk in self._chunks]
        pairs = zip(self._chunks, open_rows, strict=True)
        pending = np.concatenate(
            [
                np.stack((chunk["producer_id"][rows], chunk["offset"][rows]), axis=1)
                for chunk, rows in pairs
            ]
        )
        outcomes = iter(_outcomes(markers, pending).tolist())
        for at, (chunk, rows) in enumerate(zip(self._chunks, open_rows, strict=True)):
            outcome = np.fromiter(islice(outcomes, len(rows)), np.int8, len(rows))
            producer_id = chunk["producer_id"].copy()
            producer_id[rows[outcome == ControlType.COMMIT]] = NO_PRODUCER_ID
            stays = np.ones(len(chunk), np.bool_)
            stays[rows[outcome == ControlType.ABORT]] = False
            changed = replace(chunk, arrays={**chunk.arrays, "producer_id": producer_id})
            self._chunks[at] = _where(changed, stays)
        self._chunks = [chunk for chunk in self._chunks if len(chunk)]


def _outcomes(markers: Int64s, pending: Int64s) -> Int64s:
    """The `ControlType` of the first marker of its producer after each record; -1 if there is none.

    Args:
        markers: int64[m, 3], producer id, offset and whether it commits.
        pending: int64[n, 2], producer id and offset.
    """
    count = len(markers)
    total = len(markers) + len(pending)
    rows = np.concatenate((markers[:, :2], pending))
    order = np.lexsort((rows[:, 1], rows[:, 0]))
    marker_positions = np.where(order < count, np.arange(total), total)
    following = np.minimum.accumulate(marker_positions[::-1])[::-1]
    outcomes = np.full(total, -1, np.int64)
    followed = np.flatnonzero(following < total)
    marker = order[following[followed]]
    same = rows[marker, 0] == rows[order[followed], 0]
    outcomes[order[followed[same]]] = markers[marker[same], 2]
    return outcomes[count:]


def _is_snapshot(keys: BinaryColumn) -> Uint8s:
    """Whether a key of `__share_group_state` is that of a snapshot, type 0; uint8[n]."""
    is_snapshot = keys.sizes() >= _TYPE_BYTES
    starts = keys.offsets[:-1][is_snapshot]
    is_snapshot[is_snapshot] = (keys.data[starts] == 0) & (keys.data[starts + 1] == 0)
    return is_snapshot.astype(np.uint8)


def _where(chunk: RecordColumns, mask: Bools) -> RecordColumns:
    return chunk if mask.all() else take_rows(chunk, np.flatnonzero(mask))


def _join_small_chunks(chunks: list[RecordColumns]) -> list[RecordColumns]:
    """The same records in fewer chunks, if they are small."""
    groups: list[list[RecordColumns]] = []
    rows = ROWS_MAX
    for chunk in chunks:
        if rows + len(chunk) > ROWS_MAX:
            groups.append([])
            rows = 0
        groups[-1].append(chunk)
        rows += len(chunk)
    return [join_rows(group) for group in groups]
