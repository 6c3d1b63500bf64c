"""Committed offsets out of the records of `__consumer_offsets`, column by column.

| version | value behind the int16 version |
|---|---|
| 0, 2 | offset int64, metadata string, commit time int64 |
| 1 | the same, expiry time int64 |
| 3 | offset int64, leader epoch int32, metadata string, commit time int64 |
| 4 | the same with a compact string, and a topic id as tag 0, or no tag |

Records of other forms are left to `kseg.internal.decode`, which reads them or reports the fault.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kseg.constants import Bools, Int64s, Intps, Uint8s
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
        columns: with `offset`, `key`, `value` and `producer_id`, as `LastValues` has them.

    Returns:
        bool[n], the records that were read, tombstones of commits among them; and the columns of
        those that have a value: `group`, `topic` and `metadata` as object arrays of `str`, and
        int64 arrays `partition`, `offset`, `leader_epoch`, `commit_timestamp`, `expire_timestamp`,
        `record_offset` and `producer_id`. `NONE` stands for a number that is not there.
    """
    data, at, end = _padded(columns["key"])
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
        rows: those to be decoded.
        kind: int64[n], the version of each row's key; values of a key of version 0 have version 0.

    Returns:
        An array for each field, and bool[n]: the rows that could be decoded.
    """
    data, starts, ends = _padded(column)
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
    # From here on only sound rows are looked at; the others read the front of the data.
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


def _padded(column: BinaryColumn) -> tuple[Uint8s, Int64s, Int64s]:
    """The bytes with some behind them, and the starts and ends of the values."""
    data = np.concatenate((column.data, np.zeros(_SLACK, np.uint8)))
    ends = column.offsets.astype(np.int64)
    return data, ends[:-1], ends[1:]


def _number(data: Uint8s, at: Int64s, width: int) -> Int64s:
    """Big-endian numbers at these places, which lie in the data or in the bytes behind it."""
    digits = np.ascontiguousarray(data[at[:, None] + np.arange(width)])
    return digits.view(f">i{width}").reshape(-1).astype(np.int64)


def _texts(data: Uint8s, at: Int64s, sizes: Int64s) -> Any:
    """Texts as an object array; equal ones are one object."""
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
    """The values of a column with `NONE` where -1 stands for none."""
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
