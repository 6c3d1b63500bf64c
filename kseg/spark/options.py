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
    key                 only records with this key: text, hex:00ff or base64:AP8=
    columns             names out of `schema.COLUMNS`, where the query brings no schema of its own
    includeHeaders      false; true adds the column headers
    decodeKey, decodeValue  the type of keys and values: text, json, int16, int32, int64, float,
                        double, uuid, or Kafka's name; adds keyError, valueError: why one is null;
                        registry, registry-json and others: structs by their schemas, see `scan`
    schemas             of a registry: data directories or files, by commas; the paths if not given
    subject, schemaVersion, record  choose the schema of the column
    includeControl      false; true gives transaction markers and other control records too
    isolation           read_uncommitted, or read_committed up to the last stable offset
    replicas            refuse two directories of one partition, where no column path tells them
                        apart; read the newest, the first that is named, or all
    openTransactions    wait: committed records end at the first open one; abort takes open ones as
                        aborted
    verifyCrc           true; false reads damaged batches as far as they parse
    onCorrupt           raise, or fail; skip damaged batches and say so in the worker's log; or
                        permissive: a row for each damage, with its text in the column corrupt
    reportPath          with skip or permissive: a directory for a report, see `damage`
    index               auto checks the entries of indexes, use believes them, ignore walks instead
    targetPartitionBytes  128m of log a task
    maxBatchRows        65536 rows of an Arrow batch

Of streams only:

    maxOffsetsPerTrigger    about so many records in a micro-batch; whole batches
    maxBytesPerTrigger      about so many bytes of log
    maxSegmentsPerTrigger   so many segments begun
    failOnDataLoss          true; false goes on after records that retention has removed
"""

from __future__ import annotations

import fnmatch
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from os import PathLike, fspath
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from kseg.commands import suggestion
from kseg.constants import (
    INT32_MAX,
    INT64_MAX,
    ISOLATIONS,
    OPEN_TRANSACTIONS,
    REPLICAS,
    SCHEMA_WORDS,
)
from kseg.documents import frozen_dataclass
from kseg.files.grammar import is_topic_name
from kseg.files.selection import StrPaths
from kseg.format.times import time_ms
from kseg.format.typed import has_schemas, kind_of
from kseg.records.query import (
    OF_SCHEMAS,
    ON_CORRUPT,
    QUESTIONS,
    check,
    parse_key,
    parse_partitions,
    refusal,
)
from kseg.stores.path import is_remote

#: Offsets with a special meaning in Spark's JSON form.
_EARLIEST, LATEST = -2, -1
#: More rows in a batch are slower in Spark, and hold hundreds of megabytes at both ends.
_BATCH_ROWS_MAX: Final = 1_048_576
#: The comment of a table's first column begins so; after it are the options of the table.
_COMMENT: Final = "kseg:"
_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)

#: By the name of each option, its field and the function that parses its text.
OptionTable = Mapping[str, tuple[str, Callable[[str], Any]]]
#: Offsets by topic and partition, those of all other partitions under None; no entry, or None as
#: the offset: unbounded.
Offsets = Mapping[tuple[str, int] | None, int | None]


@frozen_dataclass
class TopicChoice:
    """The chosen topics; with `assign` also their partitions.

    Attributes:
        option: the name of the option that chose; None without such an option: every topic.
        text: its value, for messages.
        names: the topics, where the option lists them.
        pattern: else the regular expression that a topic matches as a whole.
        assigned: the partitions of each topic.
    """

    option: str | None = None
    text: str = ""
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def wants_topic(self, topic: str | None) -> bool:
        """Whether a topic is chosen; a log without a topic only where every topic is."""
        if self.option is None:
            return True
        if topic is None:
            return False
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.names

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is chosen."""
        if not self.wants_topic(topic):
            return False
        return not self.assigned or any(
            name == topic and partition in numbers for name, numbers in self.assigned
        )

    def __str__(self) -> str:
        """The option and its value, for a message."""
        return f"{self.option}={self.text!r}"


@frozen_dataclass
class SourceOptions:
    """The options of one `load`. Times are milliseconds since 1970 in UTC; ranges are half open."""

    paths: tuple[str, ...]
    topics: TopicChoice = TopicChoice()
    mode: str = "records"
    partitions: tuple[range, ...] = ()
    starting_offsets: Offsets = field(default_factory=dict)
    ending_offsets: Offsets = field(default_factory=dict)
    key: bytes | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    columns: tuple[str, ...] = ()
    include_headers: bool = False
    decode_key: Any = None
    decode_value: Any = None
    schemas: tuple[str, ...] = ()
    subject: str | None = None
    schema_version: int | None = None
    record: str | None = None
    tier: str | None = None
    tier_keys: tuple[tuple[str, str], ...] = ()
    topic_id: str | None = None
    replicas: str = REPLICAS[0]
    include_control: bool = False
    isolation: str = ISOLATIONS[0]
    open_transactions: str = OPEN_TRANSACTIONS[0]
    verify_crc: bool = True
    on_corrupt: str = "raise"
    report_path: str | None = None
    index: str = "auto"
    target_partition_bytes: int = 128 << 20
    max_batch_rows: int = 65_536
    max_offsets_per_trigger: int = INT64_MAX
    max_bytes_per_trigger: int = INT64_MAX
    max_segments_per_trigger: int = INT64_MAX
    fail_on_data_loss: bool = True

    @property
    def kinds(self) -> dict[str, Any]:
        """The kinds that keys and values are decoded as."""
        kinds = {"key": self.decode_key, "value": self.decode_value}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    @property
    def permissive(self) -> bool:
        """Whether damage becomes rows."""
        return self.on_corrupt == "permissive"

    def check_batch(self) -> None:
        """Refuse options that only a stream can have.

        Raises:
            ValueError: reading is to start after the last record.
        """
        if LATEST in self.starting_offsets.values():
            raise ValueError("kseg: option startingOffsets: latest has no meaning at this end")

    def check_stream(self) -> None:
        """Refuse options that only a batch query can have.

        Raises:
            ValueError: an option sets an end, or a mode other than records; or a path is in a
                store, which does not announce new records.
        """
        for name, is_set in (
            ("endingOffsets", bool(self.ending_offsets)),
            ("endingTimestamp", self.ending_timestamp is not None),
            ("mode", self.mode != "records"),
            ("tier", self.tier is not None),
            ("openTransactions", self.open_transactions != "wait"),
            ("replicas", self.replicas != "refuse"),
        ):
            if is_set:
                raise ValueError(f"kseg: option {name} has no meaning for a stream")
        for path in self.paths:
            if is_remote(path):
                raise ValueError(f"kseg: {path}: a stream needs local files; use spark.read")

    def start_of(self, topic: str | None, partition: int | None) -> int | None:
        """Where `startingOffsets` begins a partition; None for its first record."""
        return _bound(self.starting_offsets, topic, partition)

    def end_of(self, topic: str | None, partition: int | None) -> int | None:
        """The offset before which `endingOffsets` ends a partition; None for its end."""
        return _bound(self.ending_offsets, topic, partition)

    def wants(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is chosen; one without a number only if no option names numbers."""
        numbered = not self.partitions or any(partition in numbers for numbers in self.partitions)
        return numbered and self.topics.wants(topic, partition)


def _bound(offsets: Offsets, topic: str | None, partition: int | None) -> int | None:
    key = None if topic is None or partition is None else (topic, partition)
    return offsets.get(key, offsets.get(None))


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Turn Spark's options into `SourceOptions`.

    Args:
        options: names in any case, values as strings, as `DataSource.__init__` receives them.

    Raises:
        ValueError: an unknown name, a value out of its domain, or no path; one line each.
    """
    texts = options_given(options)
    ignored = sorted(name for name in texts if name.startswith("kafka."))
    for name in ignored:
        del texts[name]
    if ignored:
        message = f"kseg reads files and asks no broker: ignored {', '.join(ignored)}"
        warnings.warn(message, UserWarning, stacklevel=2)
    if "pushdown" in texts:
        raise ValueError(
            "kseg: there is no option pushdown: Spark keeps the plan of a filtered query, so later "
            "queries of the DataFrame would lack rows; the options topic, partitions, "
            "startingOffsets, endingOffsets, startingTimestamp and endingTimestamp narrow a query"
        )
    result = SourceOptions(_paths(texts), **parse_table(OPTIONS, texts))
    if result.report_path is not None and result.on_corrupt == "raise":
        raise ValueError("kseg: option reportPath needs onCorrupt=skip; 'fail' reports by failing")
    if result.permissive and result.mode != "records":
        raise ValueError(f"kseg: onCorrupt=permissive is for records; mode={result.mode} shows all")
    if (result.kinds or result.key is not None) and result.mode != "records":
        raise ValueError(f"kseg: mode={result.mode} has no keys and values")
    of_schemas = {name: getattr(result, name, None) or None for name in OF_SCHEMAS}
    try:
        check({**of_schemas, "decode": result.kinds}, "spark")
    except ValueError as error:
        raise ValueError(f"kseg: option {error}") from None
    return _with_types(result) if has_schemas(result.kinds) else result


def _with_types(options: SourceOptions) -> SourceOptions:
    """The options with the types of values that have schemas; the driver reads the schemas."""
    from kseg import scan, schemas

    if any(map(is_remote, options.paths)):
        raise ValueError("kseg: values that have schemas are decoded from local paths")
    kinds = scan(
        list(options.paths),
        topics=sorted(options.topics.names) or None,
        decode=options.kinds,
        schemas=schemas(list(options.schemas or options.paths)),
        subject=options.subject,
        schema_version=options.schema_version,
        record=options.record,
        on_error="skip",
    ).kinds
    return replace(options, decode_key=kinds.get("key"), decode_value=kinds.get("value"))


def _decoded_as(text: str) -> str:
    """A kind, or a word for values that have schemas."""
    word = text.strip().lower()
    return word if word in SCHEMA_WORDS else kind_of(word)


def options_given(options: Mapping[str, str]) -> dict[str, str]:
    """The options that the user gave, keyed by their names in lower case.

    When Spark makes a table, its catalog adds properties such as `owner` and `provider`. It repeats
    each option under the name `option.NAME`, so only those count, and the table's location.
    """
    texts = {name.lower(): value for name, value in options.items()}
    if not _is_of_catalog(texts):
        return texts
    mark = "option."
    table = {name.removeprefix(mark): texts[name] for name in texts if name.startswith(mark)}
    location = texts.get("path", texts.get("location"))
    return table if location is None else {**table, "path": location}


def _is_of_catalog(texts: Mapping[str, str]) -> bool:
    """Whether options are the properties of a table in Spark's catalog."""
    return texts.get("provider", "").lower() == "kseg"


def table_comment(options: Mapping[str, str]) -> str | None:
    """The comment that keeps the options of a table that Spark makes; None for a plain load.

    When a query reads a table of the catalog, Spark passes a source no options, but the columns
    with their comments.
    """
    if not _is_of_catalog({name.lower(): value for name, value in options.items()}):
        return None
    return _COMMENT + urlencode(options_given(options), safe="/:,*")


def with_comments(options: Mapping[str, str], comments: Iterable[str | None]) -> dict[str, str]:
    """The options of a query, with those of its table if it names no path itself.

    Args:
        options: the options of the query.
        comments: the comments of its columns, one of which may have the options of a table.
    """
    texts = {name.lower(): value for name, value in options.items()}
    if "path" in texts or "paths" in texts:
        return texts
    table_comments = [text for text in comments if text is not None and text.startswith(_COMMENT)]
    return (
        {**dict(parse_qsl(table_comments[0].removeprefix(_COMMENT))), **texts}
        if table_comments
        else texts
    )


def source_options(paths: StrPaths, options: Mapping[str, str] | None) -> SourceOptions:
    """Options of the source for paths of this machine.

    Raises:
        ValueError: an option is unknown or out of its domain.
    """
    listed = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    places = json.dumps([fspath(path) for path in listed])
    return parse_options({**(options or {}), "paths": places})


def parse_table(table: OptionTable, texts: Mapping[str, str]) -> dict[str, Any]:
    """The fields that options set, with their values.

    Args:
        table: the options that exist.
        texts: the option values as text, keyed by option name in lower case.

    Raises:
        ValueError: an unknown name, two options for one field, or a value out of its domain.
    """
    names = {name.lower(): name for name in table}
    parsed: dict[str, Any] = {}
    for lower, text in texts.items():
        if lower not in names:
            hint = suggestion([lower], table, f"known: {', '.join(table)}")
            raise ValueError(f"kseg: unknown option {lower!r}{refusal('spark', lower) or hint}")
        name = names[lower]
        key, parse = table[name]
        if key in parsed:
            rivals = [rival for rival, (other, _parse) in table.items() if other == key]
            raise ValueError(f"kseg: one of {', '.join(rivals)} at most")
        try:
            parsed[key] = parse(text)
        except ValueError as error:
            raise ValueError(f"kseg: option {name}={text!r}: {error}") from None
    return parsed


def _paths(texts: dict[str, str]) -> tuple[str, ...]:
    """The paths of a load, removed from `texts`.

    `load(p)` arrives as `path`, `load([p, q])` as `paths`, a JSON array.
    """
    single, many = texts.pop("path", None), texts.pop("paths", None)
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
        raise ValueError(
            "kseg: no path: say .load('data-dir/orders-0'), or CREATE TABLE t USING kseg LOCATION "
            "'data-dir' without columns, which keep the path"
        )
    return tuple(paths)


def check_topic_name(name: str) -> str:
    """Return a name that Kafka accepts for a topic; it is safe as a part of a path.

    Raises:
        ValueError: Kafka does not accept it.
    """
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is not a name that Kafka accepts for a topic")
    return name


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text.strip()


def _names(text: str) -> tuple[str, ...]:
    return tuple(_name(part) for part in text.split(","))


def _columns(text: str) -> tuple[str, ...]:
    names = _names(text)
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("a name is there twice")
    return names


def _local_name(text: str) -> str:
    if is_remote(text):
        raise ValueError("a local directory is needed")
    return _name(text)


def _topic(text: str) -> TopicChoice:
    """A name or a glob."""
    name = _name(text)
    if any(mark in name for mark in "*?["):
        return TopicChoice("topic", name, pattern=fnmatch.translate(name))
    return TopicChoice("topic", name, names=(name,))


def _subscribe(text: str) -> TopicChoice:
    """Names with commas between them."""
    return TopicChoice("subscribe", text, names=_names(text))


def _pattern(text: str) -> TopicChoice:
    """A regular expression, in the language that Java and Python have in common."""
    try:
        re.compile(_name(text))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"no regular expression: {error}") from None
    return TopicChoice("subscribePattern", text, pattern=text.strip())


def _assign(text: str) -> TopicChoice:
    """JSON of topics and their partitions."""
    wrong = ValueError('not JSON such as {"orders": [0, 1]}')
    try:
        assignment = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(assignment, dict) or not assignment:
        raise wrong
    for numbers in assignment.values():
        if not isinstance(numbers, list) or not all(map(_is_partition, numbers)):
            raise wrong
    assigned = tuple((_name(topic), tuple(numbers)) for topic, numbers in assignment.items())
    return TopicChoice("assign", text, names=tuple(assignment), assigned=assigned)


def _is_partition(number: object) -> bool:
    return type(number) is int and 0 <= number <= INT32_MAX


def parse_word(*words: str) -> Callable[[str], str]:
    """A parser for one of these words, in upper or lower case."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError(f"not one of {', '.join(words)}")
        return word

    return parse


def _on_corrupt(text: str) -> str:
    """The words of `kseg.scan`, Spark's own word for "raise", and rows for damage."""
    word = parse_word(*ON_CORRUPT, "fail", "permissive")(text)
    return "raise" if word == "fail" else word


def _flag(text: str) -> bool:
    return parse_word("true", "false")(text) == "true"


def parse_integer(text: str, low: int, high: int) -> int:
    """A whole number within bounds, both of them included; ValueError otherwise."""
    if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text, re.ASCII):
        raise ValueError("not an integer")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"not within {low}..{high}")
    return value


def parse_size(text: str) -> int:
    """Bytes, such as 134217728, 128m or 1 GiB; raises ValueError for other text."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or len(match[1]) > 19:
        raise ValueError("not a size such as 134217728, 128m or 1g")
    value = int(match[1]) << (10 * " kmgt".index((match[2] or " ").lower()))
    if not 1 <= value <= INT64_MAX:
        raise ValueError(f"not within 1..{INT64_MAX}")
    return value


def _offsets(text: str, *, ends: bool) -> Offsets:
    """Parse a word, one offset for every partition, or Spark's JSON `{"topic": {"0": 23}}`.

    Args:
        text: the value of the option.
        ends: whether these are ends, not starts.

    Source: Spark `JsonUtils.partitionOffsets`, `KafkaOffsetRangeLimit`.
    """
    text = text.strip()
    word = text.lower()
    if word == ("latest" if ends else "earliest"):
        return {}
    if word == "latest":
        return {None: LATEST}
    if word == "earliest":
        raise ValueError("earliest has no meaning at this end")
    if not text.startswith("{"):
        return {None: parse_integer(text, 0, INT64_MAX)}
    try:
        return {
            (topic, parse_integer(partition, 0, INT32_MAX)): _offset(offset, ends=ends)
            for topic, offsets in json.loads(text).items()
            for partition, offset in offsets.items()
        }
    except (json.JSONDecodeError, AttributeError, RecursionError):
        raise ValueError('not JSON such as {"orders": {"0": 23}}') from None


def _offset(value: object, *, ends: bool) -> int | None:
    """One offset of Spark's JSON; None for the word of this end."""
    if type(value) is not int or (ends and value == _EARLIEST):
        raise ValueError(f"{value!r} is not an offset for this place")
    if value == (LATEST if ends else _EARLIEST):
        return None
    if value != LATEST and not 0 <= value <= INT64_MAX:
        raise ValueError(f"{value} is not within 0..{INT64_MAX}")
    return value


def _keys(text: str) -> tuple[tuple[str, str], ...]:
    """Files of private keys: `ID=FILE`, with commas between."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(id_ and file for id_, _, file in pairs):
        raise ValueError("expected ID=FILE, with commas between")
    return tuple((id_, file) for id_, _, file in pairs)


_time = partial(time_ms, round_up=True)
_positive = partial(parse_integer, low=1, high=INT64_MAX)
#: Name of an option -> a parser of its text, for options that answer questions.
_QUERY: Final[Mapping[str, Callable[[str], Any]]] = {
    "topic": _topic,
    "subscribe": _subscribe,
    "subscribePattern": _pattern,
    "assign": _assign,
    "partitions": parse_partitions,
    "columns": _columns,
    "startingOffsets": partial(_offsets, ends=False),
    "endingOffsets": partial(_offsets, ends=True),
    "startingTimestamp": _time,
    "endingTimestamp": _time,
    "key": parse_key,
    "decodeKey": _decoded_as,
    "decodeValue": _decoded_as,
    "schemas": lambda text: tuple(text.split(",")),
    "subject": str,
    "schemaVersion": partial(parse_integer, low=1, high=INT32_MAX),
    "record": str,
    "isolation": parse_word(*ISOLATIONS),
    "openTransactions": parse_word(*OPEN_TRANSACTIONS),
    "replicas": parse_word(*REPLICAS),
    "onCorrupt": _on_corrupt,
    "maxBatchRows": partial(parse_integer, low=1, high=_BATCH_ROWS_MAX),
    "includeControl": _flag,
    "verifyCrc": _flag,
    "tier": str,
    "tierKeys": _keys,
    "topicId": str,
}
#: Options that only Spark's source has.
_OTHERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "mode": parse_word("records", "batches", "segments"),
    "includeHeaders": _flag,
    "reportPath": _local_name,
    "index": parse_word("auto", "use", "ignore"),
    "targetPartitionBytes": parse_size,
    "maxOffsetsPerTrigger": _positive,
    "maxBytesPerTrigger": parse_size,
    "maxSegmentsPerTrigger": _positive,
    "failOnDataLoss": _flag,
}


def field_of(name: str) -> str:
    """The name in Python of an option or a column of Spark."""
    return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)


OPTIONS: Final[OptionTable] = {
    **{
        name: (question.name if question.name == "topics" else field_of(name), _QUERY[name])
        for question in QUESTIONS
        for name in question.spark
    },
    **{name: (field_of(name), parse) for name, parse in _OTHERS.items()},
}
