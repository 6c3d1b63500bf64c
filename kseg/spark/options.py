"""The options of `format("kseg")`: parsed once, checked, and named in every error.

Spark passes options as strings under lower-cased names. Here they become one frozen
`SourceOptions`. The names are those of Spark's own Kafka source where it has them. So you can move
a query by changing the format and the path. Its `kafka.*` settings have no meaning for files and
are ignored with a warning. Any other unknown name is refused. Nothing here imports pyspark or opens
a file.

    topic               a name or a glob; of a data directory, only these topics
    subscribe, subscribePattern, assign    the same choice as Spark's Kafka source has it
    mode                records, batches (a row a record batch) or segments (a row a file)
    partitions          numbers and inclusive ranges: 0,3-5
    startingOffsets     earliest, one offset for all, or {"orders": {"0": 23}}; -2 is the earliest;
                        of a stream also latest, -1
    endingOffsets       latest, an offset not to reach, or the same JSON; -1 is the latest
    startingTimestamp   milliseconds or ISO 8601: records of this time and later
    endingTimestamp     records before this time; records need not be in order of time
    columns             names out of `schema.COLUMNS`, where the query brings no schema of its own
    includeHeaders      false; true adds the column headers
    decodeKey, decodeValue  what keys and values are: text, json, int16, int32, int64, float,
                        double, uuid, or Kafka's name; adds keyError, valueError: why one is null
    includeControl      false; true gives transaction markers and other control records too
    isolation           read_uncommitted, or read_committed up to the last stable offset
    verifyCrc           true; false reads what is left of damaged batches
    onCorrupt           fail; skip damaged batches and say so in the worker's log; or permissive:
                        a row for each damage, with the column corrupt saying what it is
    reportPath          with skip or permissive: a directory for a report, see `damage`
    index               auto checks what indexes say, use believes them, ignore walks instead
    pushdown            auto takes filters where Spark hands them over; on and off insist
    targetPartitionBytes  128m of log a task
    maxBatchRows        65536 rows of an Arrow batch

Of streams only:

    maxOffsetsPerTrigger    about so many records in a micro-batch; whole batches
    maxBytesPerTrigger      about so many bytes of log
    maxSegmentsPerTrigger   so many segments begun
    failOnDataLoss          true; false goes on behind records that retention has removed
"""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike, fspath
from typing import Any, Final

from kseg.files.grammar import is_topic_name
from kseg.format.times import time_ms
from kseg.format.typed import kind_of
from kseg.format.values import Kind
from kseg.spark.remote import is_remote

PARTITION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Topics, and with `assign` partitions, that are asked for.

    Attributes:
        option: the name of the option that chose; None where none did and everything is wanted.
        text: its value, for messages.
        names: the topics, where they are listed.
        glob: what a topic is to match, for a `topic` with wildcards.
        pattern: what a topic is to match as a whole.
        assigned: the partitions of each topic.
    """

    option: str | None = None
    text: str = ""
    names: tuple[str, ...] = ()
    glob: str | None = None
    pattern: str | None = None
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def listed(self) -> bool:
        """Whether topics are named one by one, so that a path to another is a mistake."""
        return bool(self.names)

    def wants_topic(self, topic: str | None) -> bool:
        """Whether a topic is asked for; an unnamed one only where every topic is."""
        if self.option is None:
            return True
        if topic is None:
            return False
        if self.glob is not None:
            return fnmatchcase(topic, self.glob)
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.names

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is asked for."""
        if not self.wants_topic(topic):
            return False
        return not self.assigned or any(
            name == topic and partition in numbers for name, numbers in self.assigned
        )

    def __str__(self) -> str:
        """As a message names it."""
        return f"{self.option}={self.text!r}"


#: Where no option chooses.
EVERY_TOPIC: Final = TopicChoice()


def parse_topic(text: str) -> TopicChoice:
    """A name or a glob.

    Raises:
        ValueError: it is empty.
    """
    name = _stripped(text)
    if any(mark in name for mark in "*?["):
        return TopicChoice("topic", name, glob=name)
    return TopicChoice("topic", name, names=(name,))


def parse_subscribe(text: str) -> TopicChoice:
    """Names with commas between them.

    Raises:
        ValueError: one of them is empty.
    """
    return TopicChoice("subscribe", text, names=tuple(_stripped(part) for part in text.split(",")))


def parse_pattern(text: str) -> TopicChoice:
    """A regular expression, in what Java and Python have in common.

    Raises:
        ValueError: Python's `re` does not take it.
    """
    try:
        re.compile(_stripped(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"no regular expression: {error}") from None
    return TopicChoice("subscribePattern", text, pattern=text.strip())


def parse_assign(text: str) -> TopicChoice:
    """JSON of topics and their partitions.

    Raises:
        ValueError: it is no such JSON, or empty.
    """
    wrong = ValueError('not JSON such as {"orders": [0, 1]}')
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(given, dict) or not given:
        raise wrong
    for numbers in given.values():
        if not isinstance(numbers, list) or not all(map(_is_partition, numbers)):
            raise wrong
    assigned = tuple((_stripped(topic), tuple(numbers)) for topic, numbers in given.items())
    return TopicChoice("assign", text, names=tuple(given), assigned=assigned)


def check_topic_name(name: str) -> str:
    """A name that Kafka takes for a topic, and so nothing that leads out of a directory.

    Raises:
        ValueError: it is none.
    """
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is no name that Kafka takes for a topic")
    return name


def _is_partition(number: object) -> bool:
    return type(number) is int and 0 <= number <= PARTITION_MAX


def _stripped(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text.strip()


TARGET_PARTITION_BYTES: Final = 128 << 20
BATCH_ROWS: Final = 65_536
#: More rows than this in a batch are slower in Spark and hold hundreds of megabytes at both ends.
BATCH_ROWS_MAX: Final = 1_048_576
OFFSET_MAX: Final = 2**63 - 1

#: Offsets with a special meaning in Spark's JSON form.
_EARLIEST, LATEST = -2, -1
_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """One end of the offsets to read: for every partition, or partition by partition.

    `each` lists `(topic, partition, offset)`; `every` counts for all other partitions. None means
    unbounded.
    """

    every: int | None = None
    each: tuple[tuple[str, int, int | None], ...] = ()

    def of(self, topic: str | None, partition: int | None) -> int | None:
        """The bound of one partition."""
        for named_topic, named_partition, offset in self.each:
            if named_topic == topic and named_partition == partition:
                return offset
        return self.every


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Partition numbers as inclusive ranges; no ranges at all means every partition."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __contains__(self, partition: int | None) -> bool:
        """Whether a partition is wanted; one without a number only if there are no ranges."""
        if not self.ranges:
            return True
        return partition is not None and any(a <= partition <= b for a, b in self.ranges)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one `load`. Times are milliseconds since 1970 in UTC; ranges are half open."""

    paths: tuple[str, ...]
    topics: TopicChoice = EVERY_TOPIC
    mode: str = "records"
    partitions: PartitionChoice = PartitionChoice()
    starting_offsets: OffsetBound = OffsetBound()
    ending_offsets: OffsetBound = OffsetBound()
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    columns: tuple[str, ...] = ()
    include_headers: bool = False
    decode_key: Kind | None = None
    decode_value: Kind | None = None
    include_control: bool = False
    isolation: str = "read_uncommitted"
    verify_crc: bool = True
    on_corrupt: str = "fail"
    report_path: str | None = None
    index: str = "auto"
    pushdown: str = "auto"
    target_partition_bytes: int = TARGET_PARTITION_BYTES
    max_batch_rows: int = BATCH_ROWS
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_segments_per_trigger: int | None = None
    fail_on_data_loss: bool = True

    @property
    def kinds(self) -> dict[str, Kind]:
        """What keys and values are decoded as."""
        given = {"key": self.decode_key, "value": self.decode_value}
        return {name: kind for name, kind in given.items() if kind is not None}

    @property
    def permissive(self) -> bool:
        """Whether damage becomes rows."""
        return self.on_corrupt == "permissive"

    def check_batch(self) -> None:
        """Refuse options that only a stream can have.

        Raises:
            ValueError: reading is to start behind the last record.
        """
        starts = self.starting_offsets
        if LATEST in (starts.every, *(offset for _topic, _number, offset in starts.each)):
            raise ValueError("kseg: option startingOffsets: latest has no meaning at this end")

    def check_stream(self) -> None:
        """Refuse options that only a batch query can have.

        Raises:
            ValueError: an option sets an end, or a mode other than records; or a path is in a
                store, which does not tell what is new.
        """
        ends = self.ending_offsets
        for name, given in (
            ("endingOffsets", ends.every is not None or bool(ends.each)),
            ("endingTimestamp", self.ending_timestamp is not None),
            ("mode", self.mode != "records"),
        ):
            if given:
                raise ValueError(f"kseg: option {name} has no meaning for a stream")
        for path in self.paths:
            if is_remote(path):
                raise ValueError(f"kseg: {path}: a stream needs local files; use spark.read")

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is asked for."""
        return partition in self.partitions and self.topics.wants(topic, partition)


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Turn Spark's options into `SourceOptions`.

    Args:
        options: names in any case, values as strings, as `DataSource.__init__` receives them.

    Raises:
        ValueError: an unknown name, a value out of its domain, or no path; one line each.
    """
    given = {name.lower(): value for name, value in options.items()}
    _ignore_kafka(given)
    parsed: dict[str, Any] = {"paths": _paths(given)}
    for name, text in given.items():
        option = _OPTIONS.get(name)
        if option is None:
            raise ValueError(_unknown(name))
        if option.field == "topics" and "topics" in parsed:
            raise ValueError(f"kseg: one of {', '.join(_TOPIC_OPTIONS)} at most")
        try:
            parsed[option.field] = option.parse(text)
        except ValueError as error:
            raise ValueError(f"kseg: option {option.name}={text!r}: {error}") from None
    result = SourceOptions(**parsed)
    if result.report_path is not None and result.on_corrupt == "fail":
        raise ValueError("kseg: option reportPath needs onCorrupt=skip; 'fail' reports by failing")
    if result.permissive and result.mode != "records":
        raise ValueError(f"kseg: onCorrupt=permissive is for records; mode={result.mode} shows all")
    if result.kinds and result.mode != "records":
        raise ValueError(f"kseg: mode={result.mode} has no keys and values to decode")
    return result


def source_options(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]], options: Mapping[str, str] | None
) -> SourceOptions:
    """Options of the source for paths of this machine.

    Raises:
        ValueError: an option is unknown or out of its domain.
    """
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    places = json.dumps([fspath(path) for path in given])
    return parse_options({**(options or {}), "paths": places})


def _ignore_kafka(given: dict[str, str]) -> None:
    ignored = sorted(name for name in given if name.startswith("kafka."))
    for name in ignored:
        del given[name]
    if ignored:
        message = f"kseg reads files and asks no broker: ignored {', '.join(ignored)}"
        warnings.warn(message, UserWarning, stacklevel=3)


def _paths(given: dict[str, str]) -> tuple[str, ...]:
    """`load(p)` arrives as `path`, `load([p, q])` as `paths`, a JSON array."""
    single, many = given.pop("path", None), given.pop("paths", None)
    paths = [] if single is None else [single]
    if many is not None:
        try:
            listed = json.loads(many)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise ValueError(f"kseg: option paths={many!r}: not a JSON array of strings")
        paths += listed
    if not paths or not all(paths):
        raise ValueError("kseg: no path: say .load('data-dir/orders-0')")
    return tuple(paths)


def _unknown(name: str) -> str:
    known = {option: spec.name for option, spec in _OPTIONS.items()}
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {known[close[0]]!r}?" if close else f"known: {', '.join(known.values())}"
    return f"kseg: unknown option {name!r}; {hint}"


def parse_word(*words: str) -> Callable[[str], str]:
    """A parser for one of these words, in upper or lower case."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"not one of {', '.join(words)}")
        return word

    return parse


def _flag(text: str) -> bool:
    return parse_word("true", "false")(text) == "true"


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text.strip()


def _local_name(text: str) -> str:
    if is_remote(text):
        raise ValueError("a local directory is needed")
    return _name(text)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(_name(part) for part in text.split(","))
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("a name is there twice")
    return names


def parse_integer(text: str, low: int, high: int) -> int:
    """A whole number within bounds, both of them included; ValueError otherwise."""
    if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text, re.ASCII):
        raise ValueError("not an integer")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"not within {low}..{high}")
    return value


def _batch_rows(text: str) -> int:
    return parse_integer(text, 1, BATCH_ROWS_MAX)


def _positive(text: str) -> int:
    return parse_integer(text, 1, OFFSET_MAX)


def parse_size(text: str) -> int:
    """Bytes, such as 134217728, 128m or 1 GiB; ValueError otherwise."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(match[1]) > 19:
        raise ValueError("not a size such as 134217728, 128m or 1g")
    value = int(match[1]) << (10 * " kmgt".index((match[2] or " ").lower()))
    if not 1 <= value <= OFFSET_MAX:
        raise ValueError(f"not within 1..{OFFSET_MAX}")
    return value


def _partitions(text: str) -> PartitionChoice:
    """`0,3-5,9`: numbers and inclusive ranges."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", part, re.ASCII)
        if match is None:
            raise ValueError("not a list such as 0,3-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last > PARTITION_MAX:
            raise ValueError(f"{part.strip()!r} is no range of partition numbers")
        ranges.append((first, last))
    return PartitionChoice(tuple(ranges))


def _starting_offsets(text: str) -> OffsetBound:
    if text.strip().lower() == "latest":
        return OffsetBound(every=LATEST)
    return _offsets(text, word="earliest", other="", number=_EARLIEST, wrong=None)


def _ending_offsets(text: str) -> OffsetBound:
    return _offsets(text, word="latest", other="earliest", number=LATEST, wrong=_EARLIEST)


def _offsets(text: str, *, word: str, other: str, number: int, wrong: int | None) -> OffsetBound:
    """A word, one offset for every partition, or Spark's JSON `{"topic": {"0": 23}}`.

    Source: Spark `JsonUtils.partitionOffsets`, `KafkaOffsetRangeLimit`.
    """

    def bound(value: object) -> int | None:
        if not isinstance(value, int) or isinstance(value, bool) or value == wrong:
            raise ValueError(f"{value!r} is no offset to stand here")
        if value == LATEST != number:
            return LATEST
        if value != number and not 0 <= value <= OFFSET_MAX:
            raise ValueError(f"{value} is not within 0..{OFFSET_MAX}")
        return None if value == number else value

    text = text.strip()
    if text.lower() == word:
        return OffsetBound()
    if other and text.lower() == other:
        raise ValueError(f"{other} has no meaning at this end")
    if not text.startswith("{"):
        return OffsetBound(every=parse_integer(text, 0, OFFSET_MAX))
    try:
        topics = json.loads(text)
        each = tuple(
            (topic, parse_integer(partition, 0, PARTITION_MAX), bound(offset))
            for topic, offsets in topics.items()
            for partition, offset in offsets.items()
        )
    except (json.JSONDecodeError, AttributeError, RecursionError):
        raise ValueError('not JSON such as {"orders": {"0": 23}}') from None
    return OffsetBound(each=each)


def _time(text: str) -> int:
    """Milliseconds, or ISO 8601; a time without a zone is UTC."""
    return time_ms(text, round_up=True)


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    field: str
    parse: Callable[[str], Any]


_OPTIONS: Final[dict[str, _Option]] = {
    option.name.lower(): option
    for option in (
        _Option("topic", "topics", parse_topic),
        _Option("subscribe", "topics", parse_subscribe),
        _Option("subscribePattern", "topics", parse_pattern),
        _Option("assign", "topics", parse_assign),
        _Option("mode", "mode", parse_word("records", "batches", "segments")),
        _Option("partitions", "partitions", _partitions),
        _Option("startingOffsets", "starting_offsets", _starting_offsets),
        _Option("endingOffsets", "ending_offsets", _ending_offsets),
        _Option("startingTimestamp", "starting_timestamp", _time),
        _Option("endingTimestamp", "ending_timestamp", _time),
        _Option("columns", "columns", _names),
        _Option("includeHeaders", "include_headers", _flag),
        _Option("decodeKey", "decode_key", kind_of),
        _Option("decodeValue", "decode_value", kind_of),
        _Option("includeControl", "include_control", _flag),
        _Option("isolation", "isolation", parse_word("read_uncommitted", "read_committed")),
        _Option("verifyCrc", "verify_crc", _flag),
        _Option("onCorrupt", "on_corrupt", parse_word("fail", "skip", "permissive")),
        _Option("reportPath", "report_path", _local_name),
        _Option("index", "index", parse_word("auto", "use", "ignore")),
        _Option("pushdown", "pushdown", parse_word("auto", "on", "off")),
        _Option("targetPartitionBytes", "target_partition_bytes", parse_size),
        _Option("maxBatchRows", "max_batch_rows", _batch_rows),
        _Option("maxOffsetsPerTrigger", "max_offsets_per_trigger", _positive),
        _Option("maxBytesPerTrigger", "max_bytes_per_trigger", parse_size),
        _Option("maxSegmentsPerTrigger", "max_segments_per_trigger", _positive),
        _Option("failOnDataLoss", "fail_on_data_loss", _flag),
    )
}
_TOPIC_OPTIONS: Final = tuple(o.name for o in _OPTIONS.values() if o.field == "topics")
