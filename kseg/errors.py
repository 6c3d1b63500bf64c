"""Every exception kseg raises, as one tree.

::

    KsegError
      FormatError(ValueError)      bytes break the format; .path .position .stop
        CorruptRecordError         Kafka's CorruptRecordException: length, magic or CRC
        InvalidRecordError         Kafka's InvalidRecordException: contents that break a rule
        UnsupportedFormatError     a magic or codec unknown, not allowed there or not installed
        DecompressionError         the codec refused the bytes
      CorruptIndexError            index, snapshot or checkpoint fails its check; rebuildable
      AppendError(ValueError)      the log refuses what is to be appended
        InvalidTimestampError      outside the bounds, or of the wrong kind; .record_errors
        RecordTooLargeError        one batch is larger than the largest allowed
        RecordBatchTooLargeError   all batches of one append are larger than a segment
        OffsetsOutOfOrderError     batches that bring their offsets are not in order
          UnexpectedAppendOffsetError  or begin before the log's end
        InconsistentTopicIdError   the topic's id is another than the one on disk
        OffsetOverflowError        an offset has no place in its segment
      BuilderStateError            a builder used after it was built or aborted
      LimitExceededError           a bound would be passed: inflated size, nesting, memory
      MissingFieldError(KeyError, AttributeError)  a column that was not read; names it
      OffsetOutOfRangeError(LookupError)
      NotALogError                 the path holds no Kafka files that kseg can name
      LogLockedError               another process, or another writer, holds the directory
      UncleanShutdownError         the log was not closed in good order; recover it first
      TierError                    a tier's metadata, manifest, key or name cannot be used
      UnreadableError              the disk cannot read bytes of a file
      SegmentInUseError            a reader maps bytes that a cut removes; no room for a copy
      StalePlanError               files have changed since the plan was made
      ConflictingCopiesError       copies of a partition contradict each other
      MisplacedKeyError(ValueError)  a key is in another partition than `partitioner` sends it to
      PoisonedFileError            a flush failed before; the file's contents are not known
      MissingExtraError(ImportError)  an optional package is not installed; names the pip command

`OSError` passes through untouched. Kernels report, `format` interprets, `files` and `log` add the
path with `at_path`, so each message is made in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from os import fspath
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from kseg.constants import StrPath

if TYPE_CHECKING:
    from kseg.constants import StopReason


class KsegError(Exception):
    """The root: catch this to catch everything kseg itself raises.

    Attributes:
        kafka_exception: the exception that Kafka raises instead, if it is known for this error.
    """

    kafka_exception: str | None = None

    def __init__(
        self,
        reason: str,
        *,
        path: StrPath | None = None,
        position: int | None = None,
        offset: int | None = None,
        stop: StopReason | None = None,
        record_index: int | None = None,
    ) -> None:
        """Make an error from the rule that is broken and, as far as known, the place.

        Args:
            reason: the rule and the values that break it, without file or position.
            path: the file.
            position: byte in the file where the batch or entry starts.
            offset: logical offset of the record or batch.
            stop: why the walk ended, for errors that come out of one.
            record_index: zero-based record within its batch.
        """
        super().__init__(reason)
        self.reason = reason
        self.path = None if path is None else fspath(path)
        self.position = position
        self.offset = offset
        self.stop = stop
        self.record_index = record_index

    def __str__(self) -> str:
        """`path @ position, offset n: reason`, each part only where it is known."""
        location = self.path or ""
        if self.position is not None:
            location += f" @ {self.position}"
        if self.offset is not None:
            location += f", offset {self.offset}" if location else f"offset {self.offset}"
        if self.record_index is not None:
            location += (
                f", record {self.record_index}" if location else f"record {self.record_index}"
            )
        return f"{location.strip()}: {self.reason}" if location else self.reason

    def as_kafka(self: _ErrorT, exception: str) -> _ErrorT:
        """Name the exception that Kafka raises; returns the same error."""
        self.kafka_exception = exception
        return self

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with every attribute, so that worker processes report fully."""
        # ImportError keeps a path of its own, outside of the dictionary.
        return (rebuilt, (type(self), self.reason, {**self.__dict__, "path": self.path}))


_ErrorT = TypeVar("_ErrorT", bound=KsegError)


def rebuilt(kind: type[_ErrorT], reason: str, state: dict[str, object]) -> _ErrorT:
    """An error with the attributes of another, which was pickled or sent by a task."""
    error = kind(reason)
    for name, value in state.items():
        setattr(error, name, value)
    return error


def at_path(error: _ErrorT, path: StrPath) -> _ErrorT:
    """Add the path to an error of a layer that knows only bytes; return the same error."""
    if error.path is None:
        error.path = fspath(path)
    return error


def os_reason(error: OSError) -> str:
    """The reason that the file system states, without the path."""
    return error.strerror or str(error)


def text_of(error: KsegError | OSError) -> str:
    """The text of an error, without the path if the file system made it."""
    return os_reason(error) if isinstance(error, OSError) else str(error)


class FormatError(KsegError, ValueError):
    """Bytes break the record format."""


class CorruptRecordError(FormatError):
    """A length, magic or CRC of a batch or message is wrong (Kafka's CorruptRecordException)."""


class RecordFault(NamedTuple):
    """One record that may not be appended: its zero-based number in its batch, and why."""

    record_index: int
    reason: str


class InvalidRecordError(FormatError):
    """The contents of a batch break a rule (Kafka's InvalidRecordException).

    Attributes:
        record_errors: each refused record of the batch, if records were refused one by one.
    """

    record_errors: tuple[RecordFault, ...] = ()


class UnsupportedFormatError(FormatError):
    """A magic or codec that kseg does not know, or whose library is not installed."""


class DecompressionError(FormatError):
    """The codec refused the bytes, or they ended early."""


class CorruptIndexError(KsegError):
    """An index, snapshot or checkpoint fails its check; it can be rebuilt from the log."""

    kafka_exception = "KafkaStorageException"


class UnreadableError(KsegError):
    """The disk cannot read bytes of a file (EIO); they may or may not be sound.

    Attributes:
        end: the first position after `position` that it can read again; 0 if not known.
    """

    end: int = 0


class AppendError(KsegError, ValueError):
    """The log refuses an append."""


class InvalidTimestampError(AppendError):
    """A timestamp is out of bounds, or of a kind that the topic does not accept.

    Attributes:
        record_errors: each refused record of the batch, those refused for other reasons among them.
    """

    record_errors: tuple[RecordFault, ...] = ()


class RecordTooLargeError(AppendError):
    """One batch is larger than the largest allowed (Kafka's RecordTooLargeException)."""


class RecordBatchTooLargeError(AppendError):
    """One append is larger than a segment (Kafka's RecordBatchTooLargeException)."""


class OffsetsOutOfOrderError(AppendError):
    """Batches that have offsets of their own are not in order."""


class UnexpectedAppendOffsetError(OffsetsOutOfOrderError):
    """A follower's batches begin before the log's end (UnexpectedAppendOffsetException).

    Attributes:
        first_offset, last_offset: the bounds of the refused batches, if their headers state them.
    """

    first_offset: int = -1
    last_offset: int = -1


class InconsistentTopicIdError(AppendError):
    """The topic id differs from that of the partition (InconsistentTopicIdException)."""


class OffsetOverflowError(AppendError):
    """An offset is below its segment's base, 2^31 or more above it, or is the last of all.

    No offset is left beyond 2^63 - 1.

    Source: Kafka LogSegmentOffsetOverflowException, IndexOffsetOverflowException.
    """


class ProducerError(KsegError):
    """A batch does not follow its producer's previous batch."""


class OutOfOrderSequenceError(ProducerError):
    """The sequence is not the next one (Kafka's OutOfOrderSequenceException)."""


class InvalidProducerEpochError(ProducerError):
    """A newer instance of the producer has written (Kafka's InvalidProducerEpochException)."""


class InvalidTxnStateError(ProducerError):
    """The transaction is not in the state that the batch needs (InvalidTxnStateException)."""


class TransactionCoordinatorFencedError(ProducerError):
    """The marker is of a coordinator that another has replaced."""


class BuilderStateError(KsegError, RuntimeError):
    """A builder was used in a state that does not allow it (Kafka's IllegalStateException)."""


class SchemaError(KsegError, ValueError):
    """A schema cannot be parsed, its values have no Arrow type, or several could be meant."""


class LimitExceededError(KsegError):
    """A bound would be passed: inflated size, nesting depth, memory."""


class MissingFieldError(KsegError, KeyError, AttributeError):
    """A column is asked for that was not read; the message says how to read it."""


class OffsetOutOfRangeError(KsegError, LookupError):
    """The offset is before the log's start or beyond its end."""


class NotALogError(KsegError):
    """The path has nothing that kseg recognizes as Kafka's."""


class LogLockedError(KsegError):
    """Another process, or another writer of this one, has locked the directory."""


class TierError(KsegError):
    """A tier contradicts itself, or lacks a key or an object."""


class UncleanShutdownError(KsegError):
    """The log was not closed in good order, so it has to be recovered before it is appended to."""


class SegmentInUseError(KsegError):
    """A reader maps bytes that a cut removes, and the disk has no room for a copy of the rest.

    Try again when its readers are done.
    """


class StalePlanError(KsegError):
    """Files have changed since the plan was made; plan again."""


class ConflictingCopiesError(KsegError):
    """Copies of a partition have different sound batches in one leader epoch."""


class MisplacedKeyError(KsegError, ValueError):
    """A key is in another partition than the partitioner that was named sends it to."""


class PoisonedFileError(KsegError):
    """A flush or an undoing failed before, so the file's contents are not known; open it again."""


class MissingExtraError(KsegError, ImportError):
    """An optional package is missing; the message is the pip command that installs it."""


__all__ = [
    "AppendError",
    "BuilderStateError",
    "ConflictingCopiesError",
    "CorruptIndexError",
    "CorruptRecordError",
    "DecompressionError",
    "FormatError",
    "InconsistentTopicIdError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "KsegError",
    "LimitExceededError",
    "LogLockedError",
    "MisplacedKeyError",
    "MissingExtraError",
    "MissingFieldError",
    "NotALogError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "PoisonedFileError",
    "ProducerError",
    "RecordBatchTooLargeError",
    "RecordFault",
    "RecordTooLargeError",
    "SchemaError",
    "SegmentInUseError",
    "StalePlanError",
    "TierError",
    "TransactionCoordinatorFencedError",
    "UncleanShutdownError",
    "UnexpectedAppendOffsetError",
    "UnreadableError",
    "UnsupportedFormatError",
    "at_path",
    "os_reason",
    "text_of",
]


#: Takes an error instead of raising it.
OnError: TypeAlias = Callable[[KsegError], None]
