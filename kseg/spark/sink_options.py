"""The options of `write.format("kseg")`, parsed once and named in every complaint.

    path                the data directory; it is made if it is not there
    topic, partition    where rows go that have no such column, or a null in it; partition is 0
    offsets             assign gives new ones behind the log's end, preserve keeps the column offset
    codec               none, gzip, snappy, lz4, zstd
    batchBytes          1m: a record batch closes before it would be larger, uncompressed
    batchRecords        nor has it more records than this
    segmentBytes        1g: a log file closes before it would be larger
    leaderEpoch         of the batches; the log's latest if it is not given
    topicIds            JSON, {"orders": "the id of the topic"}: for partition.metadata
    jobId               of a batch write: the same id again changes nothing
    queryId             of a stream, if its checkpoint does not say

Nothing here imports pyspark or touches a file.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kseg.constants import Compression
from kseg.files.metadata import parse_topic_id
from kseg.spark.options import OFFSET_MAX, parse_integer, parse_size, parse_word
from kseg.spark.remote import is_remote
from kseg.spark.topics import PARTITION_MAX, check_topic_name

_BATCH_BYTES_MAX: Final = 2**31 - 1 - 4096
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What one `save` or `start` asked for."""

    path: str
    topic: str | None = None
    partition: int = 0
    offsets: str = "assign"
    codec: Compression = Compression.NONE
    batch_bytes: int = 1 << 20
    batch_records: int | None = None
    segment_bytes: int = 1 << 30
    leader_epoch: int | None = None
    topic_ids: tuple[tuple[str, UUID], ...] = ()
    job_id: str | None = None
    query_id: str | None = None
    checkpoint: str | None = None

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic, where one is given."""
        return dict(self.topic_ids).get(topic)

    @property
    def keeps_offsets(self) -> bool:
        """Whether rows bring their offsets."""
        return self.offsets == "preserve"


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Turn Spark's options into `SinkOptions`.

    Raises:
        ValueError: an unknown name, a value out of its domain, or no path; one line each.
    """
    given = {name.lower(): value for name, value in options.items()}
    path = given.pop("path", "")
    if not path or "paths" in given:
        raise ValueError("kseg: a sink writes to one data directory: say .save('data-dir')")
    if is_remote(path):
        raise ValueError(f"kseg: {path}: segments are written to local files only")
    parsed: dict[str, Any] = {"path": path}
    for name, text in given.items():
        known = _OPTIONS.get(name)
        if known is None:
            if name in _OF_SPARK or name.startswith("kafka."):
                continue
            raise ValueError(_unknown(name))
        try:
            parsed[known[0]] = known[1](text)
        except ValueError as error:
            raise ValueError(f"kseg: option {_SPELT[name]}={text!r}: {error}") from None
    return SinkOptions(**parsed)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, _SPELT, n=1)
    known = ", ".join(_SPELT.values())
    hint = f"did you mean {_SPELT[close[0]]!r}?" if close else f"known: {known}"
    return f"kseg: unknown option {name!r}; {hint}"


def _topic(text: str) -> str:
    return check_topic_name(text.strip())


def _topic_ids(text: str) -> tuple[tuple[str, UUID], ...]:
    try:
        given = json.loads(text)
        return tuple((check_topic_name(name), parse_topic_id(one)) for name, one in given.items())
    except (TypeError, AttributeError, RecursionError, json.JSONDecodeError):
        raise ValueError('JSON such as {"orders": "vVAkKxRlRnqTPUlbLjTmmQ"} is expected') from None


def _codec(text: str) -> Compression:
    return Compression[parse_word(*(codec.label for codec in Compression))(text).upper()]


def _id(text: str) -> str:
    if _ID.fullmatch(text) is None:
        raise ValueError("letters, digits, '.', '_' and '-' make an id, at most 100")
    return text


def _batch_bytes(text: str) -> int:
    size = parse_size(text)
    if size > _BATCH_BYTES_MAX:
        raise ValueError("a batch is below 2 GiB")
    return size


def _segment_bytes(text: str) -> int:
    size = parse_size(text)
    if size > 2**31 - 1:
        raise ValueError("a segment is below 2 GiB")
    return size


def _within(low: int, high: int) -> Callable[[str], int]:
    return lambda text: parse_integer(text, low, high)


_FIELDS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "topic": ("topic", _topic),
    "partition": ("partition", _within(0, PARTITION_MAX)),
    "offsets": ("offsets", parse_word("assign", "preserve")),
    "codec": ("codec", _codec),
    "batchBytes": ("batch_bytes", _batch_bytes),
    "batchRecords": ("batch_records", _within(1, OFFSET_MAX)),
    "segmentBytes": ("segment_bytes", _segment_bytes),
    "leaderEpoch": ("leader_epoch", _within(0, PARTITION_MAX)),
    "topicIds": ("topic_ids", _topic_ids),
    "jobId": ("job_id", _id),
    "queryId": ("query_id", _id),
    "checkpointLocation": ("checkpoint", str),
}
_SPELT: Final = {name.lower(): name for name in _FIELDS}
_OPTIONS: Final = {name.lower(): field for name, field in _FIELDS.items()}
#: What Spark hands over of its own.
_OF_SPARK: Final = frozenset(("header",))
