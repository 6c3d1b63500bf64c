"""Records of internal topics, one by one, out of record columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from kseg.constants import ConnectTopic, InternalTopic
from kseg.errors import InvalidRecordError
from kseg.format.values import RecordColumns
from kseg.internal.ids import id_text
from kseg.internal.records import InternalRecord, decode

ON_ERROR = ("raise", "raw")


class InternalRow(NamedTuple):
    """One record of a log, decoded.

    Attributes:
        partition: that it comes from, where a scan knows it.
        offset: of the record.
        timestamp: in ms; -1 for none.
        record: the decoded record.
    """

    partition: int | None
    offset: int
    timestamp: int
    record: InternalRecord


class Readable(Protocol):
    """A log: it has a topic and can be read."""

    @property
    def topic(self) -> str | None:
        """Its topic, by the name of its directory."""

    @property
    def partition(self) -> int | None:
        """Its partition, by the name of its directory."""

    def read(self) -> Iterator[RecordColumns]:
        """Its records."""


#: Where records come from: one piece, many (as `kseg.scan` gives them), or a log.
Source = RecordColumns | Iterable[RecordColumns] | Readable


def pieces_of(source: Source, topic: str | None) -> Iterator[tuple[RecordColumns, InternalTopic]]:
    """The pieces of a source, each with the internal topic that it belongs to.

    Raises:
        ValueError: a piece's topic is unknown, or not one of Kafka's internal topics.
    """
    if isinstance(source, RecordColumns):
        pieces: Iterable[RecordColumns] = (source,)
    elif isinstance(source, Iterable):
        pieces = source  # type: ignore[assignment]  # columns, which iterate too, came first
    else:
        topic = topic or source.topic
        pieces = source.read()
    for columns in pieces:
        name = topic or columns.topic
        if name is None:
            raise ValueError("which topic the records belong to is not known: name it as `topic`")
        yield columns, InternalTopic(name)


def decode_or_keep(
    topic: InternalTopic | ConnectTopic, key: bytes | None, value: bytes | None
) -> tuple[InternalRecord, InvalidRecordError | None]:
    """`decode`; a record that does not fit its schema stays bytes, and the error says why."""
    try:
        return decode(topic, key, value), None
    except InvalidRecordError as error:
        reason = error.reason if error.position is None else f"{error.reason}, at {error.position}"
        return InternalRecord(topic, None, None, None, key, value, reason), error


def rows(
    source: Source, topic: str | None = None, *, on_error: str = "raise"
) -> Iterator[InternalRow]:
    """Decode the records of an internal topic, one after the other; control records are left out.

    Args:
        source: a scan, a log, or record columns with `offset`, `timestamp`, `key` and `value`.
        topic: of the records; taken from the source if None.
        on_error: "raise" where a record does not fit its schema, or "raw" to keep its bytes, with
            the reason.

    Raises:
        ValueError: `on_error` is neither, or the topic is not known or not internal.
        InvalidRecordError: of "raise", with the segment and the offset.
        MissingFieldError: a column was not read.

    Example:
        >>> import pyarrow
        >>> from kseg.arrow import from_record_batch
        >>> fields = {"offset": [5], "timestamp": [0], "value": [None]}
        >>> gone = pyarrow.record_batch({**fields, "key": [bytes.fromhex("0002000141")]})
        >>> for row in rows(from_record_batch(gone), "__consumer_offsets"):
        ...     print(row.offset, row.record.name, row.record.key, row.record.is_tombstone)
        5 GROUP_METADATA {'group': 'A'} True
    """
    check_on_error(on_error)
    return _rows(source, topic, on_error)


def _rows(source: Source, topic: str | None, on_error: str) -> Iterator[InternalRow]:
    for columns, internal_topic in pieces_of(source, topic):
        yield from piece_rows(columns, internal_topic, on_error)


def piece_rows(
    columns: RecordColumns, topic: InternalTopic, on_error: str
) -> Iterator[InternalRow]:
    """The rows of one piece; see `rows`."""
    numbers = columns["offset"].tolist(), columns["timestamp_ms"].tolist()
    control: list[bool] = [False] * len(columns)
    if "control" in columns.fields:
        control = columns["control"].tolist()
    parts = zip(*numbers, columns["key"], columns["value"], control, strict=True)
    for offset, timestamp, key, value, is_control in parts:
        if is_control:
            continue
        record, error = decode_or_keep(topic, key, value)
        if error is not None and on_error == "raise":
            # The position of the error is not that of the file.
            raise InvalidRecordError(error.reason, path=columns.source, offset=offset) from error
        yield InternalRow(columns.partition, offset, timestamp, record)


def check_on_error(on_error: str) -> None:
    """Refuse an `on_error` that does not exist.

    Raises:
        ValueError: it does not.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error is raise or raw, not {on_error!r}")


def plain(value: Any) -> Any:
    """A decoded value without types of Python's own: ids as Kafka prints them, arrays as lists."""
    kind = type(value)
    if kind is dict:
        return {name: plain(member) for name, member in value.items()}
    if kind is tuple:
        return [plain(item) for item in value]
    return id_text(value) if kind is UUID else value
