"""The questions that a reading of records answers, each declared once for all of its doors.

A *question* says which records are read, or how. A *door* is a place where a user asks: Python's
`scan`, `dataset` and `grep`, a verb of the command line, or Spark's source. Each question has one
name in Python, and its options at the other doors, or the words with which a door refuses it. The
signature of `scan`, the options of the verbs and of Spark, and the page of questions come from
`QUESTIONS`.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar

from kseg.commands import suggestion
from kseg.constants import (
    INT32_MAX,
    INT64_MAX,
    ISOLATIONS,
    OPEN_TRANSACTIONS,
    REPLICAS,
    SCHEMA_WORDS,
    StrPath,
)
from kseg.format.times import time_ms

if TYPE_CHECKING:
    from kseg.catalog import Replicas
    from kseg.constants import Progress
    from kseg.errors import KsegError
    from kseg.files.mapping import Mapping as FileMapping
    from kseg.format.request import OffsetBounds, TimeBounds
    from kseg.format.times import Time
    from kseg.internal.registry import Schema, Schemas
    from kseg.log.tier.tier import Tier

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


class QueryArgs(TypedDict, total=False):
    """The questions as keyword arguments of `scan`, `dataset` and `grep`; see `scan`."""

    topics: str | Iterable[str] | None
    partitions: int | Iterable[int | range] | None
    columns: str | Iterable[str] | None
    offset: OffsetBounds | Mapping[Any, OffsetBounds] | None
    time: TimeBounds | None
    key: Any
    partitioner: str | None
    limit: int | None
    last: int | None
    decode: Mapping[str, Any] | str | None
    schemas: Schemas | None
    subject: str | None
    schema_version: int | None
    schema: Schema | int | None
    record: str | None
    isolation: str
    open_transactions: str
    replicas: Replicas
    on_corrupt: str | Callable[[KsegError], object]
    on_error: str
    threads: int
    progress: Progress | None
    now: Time | None
    max_rows: int
    max_bytes: int
    control: bool
    verify_crc: bool
    inflated_max: int
    mapping: FileMapping
    tier: StrPath | Tier | None


class Option(NamedTuple):
    """An option of the command line.

    Attributes:
        flag: how it is spelled.
        help: one or two sentences.
        name: the name of its value; that of the question if empty.
        parse: makes the value from its text, or raises ValueError.
        metavar: stands for the value in the help.
        among: the only words it accepts; the first is the default if the question has one.
        low: the least value, if its values are whole numbers.
        is_flag: whether it has no value.
        repeated: whether it may be repeated.
        completed: the function of `kseg.cli.completion` that knows its values.
        short: its one-letter form in `kseg grep`.
    """

    flag: str
    help: str = ""
    name: str = ""
    parse: Callable[..., Any] | None = None
    metavar: str | None = None
    among: tuple[str, ...] = ()
    low: int | None = None
    is_flag: bool = False
    repeated: bool = False
    completed: str = ""
    short: str = ""


#: The interfaces that take these options ("doors"), in the order of the page of questions.
VERBS: Final = ("read", "dump", "grep", "export")
DOORS: Final = ("python", *VERBS, "spark")


class Question(NamedTuple):
    """One option of a reading, in every interface: Python, a verb, Spark's source.

    Attributes:
        name: the name of the argument in Python.
        default: the answer if the caller gives none.
        options: its options on the command line.
        spark: its options in Spark's source.
        refused: doors that do not have it, separated by spaces -> the reason.
    """

    name: str
    default: Any = None
    options: tuple[Option, ...] = ()
    spark: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}

    def refusal(self, door: str) -> str:
        """The reason for which a door does not have the question; empty if the door has it."""
        reasons = (text for doors, text in self.refused.items() if door in doors.split())
        return next(reasons, "")

    def spelled(self, door: str) -> tuple[str, ...]:
        """The names of the option in an interface: a keyword, flags, or options of Spark."""
        if door == "python":
            return (self.name,)
        if door == "spark":
            return self.spark or (re.sub("_(.)", lambda match: match[1].upper(), self.name),)
        flags = tuple(option.flag for option in self.options)
        return flags or ("--" + self.name.replace("_", "-"),)


# ---- the texts of options ------------------------------------------------------------------------

#: A clock in ms.
Clock = Callable[[], int]
Range = tuple[int | None, int | None]
ALL: Final[Range] = (None, None)
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_PARTITIONS: Final = re.compile(r"\s*([0-9]{1,10})\s*(?:-\s*([0-9]{1,10})\s*)?", re.ASCII)


def parse_offset_range(text: str) -> Range:
    """`A..B`, `A..`, `..B`, or `N` for the one offset; half open.

    >>> parse_offset_range("5..9"), parse_offset_range("7")
    ((5, 9), (7, 8))
    """
    if ".." not in text:
        if not _INTEGER.fullmatch(text):
            raise ValueError(
                f"{text!r} is neither an offset nor a range A..B that excludes B, such as 5..9"
            )
        offset = _integer(text)
        return (offset, offset + 1)
    return _check_order(_split(text, _integer))


def parse_time_range(text: str, now_ms: Clock | None = None) -> Range:
    """`A..B` with either side missing; each side as `parse_time` takes it; half open."""
    if ".." not in text:
        raise ValueError(
            f"a time range is A..B, where either side may be missing: {text}.. is from then on"
        )
    return _check_order(_split(text, lambda side: parse_time(side, now_ms)))


def parse_time(text: str, now_ms: Clock | None = None) -> int:
    """Milliseconds since 1970, as `kseg.format.times` has them, rounded up as bounds want it.

    >>> parse_time("2025-10-09T08:53:20Z"), parse_time("-1s", lambda: 1760000000000)
    (1760000000000, 1759999999000)
    """
    return time_ms(text, round_up=True, now_ms=now_ms)


def parse_partitions(text: str) -> tuple[range, ...]:
    """`0,3-5` as ranges, of the command line and of Spark.

    >>> parse_partitions("0,3-5")
    (range(0, 1), range(3, 6))
    """
    ranges = []
    for part in text.split(","):
        match = _PARTITIONS.fullmatch(part)
        if match is None:
            raise ValueError("partitions are numbers and ranges such as 0,3-5")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last > INT32_MAX:
            raise ValueError(f"{part.strip()!r} is not a range of partition numbers")
        ranges.append(range(first, last + 1))
    return tuple(ranges)


def parse_key(text: str) -> bytes:
    """The bytes of a key: UTF-8 text, or `hex:...`, or `base64:...`.

    >>> parse_key("user-1"), parse_key("hex:6162")
    (b'user-1', b'ab')
    """
    scheme, colon, digits = text.partition(":")
    try:
        if colon and scheme == "hex":
            return bytes.fromhex(digits)
        if colon and scheme == "base64":
            import base64  # few keys are given so

            return base64.b64decode(digits, validate=True)
    except ValueError:
        raise ValueError(f"{digits!r} is not {scheme}") from None
    return text.encode("utf-8", "surrogateescape")


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or abs(int(text)) > INT64_MAX:
        raise ValueError(f"{text!r} is not a 64-bit integer")
    return int(text)


def _split(text: str, parse: Callable[[str], int]) -> Range:
    first, _dots, end = text.partition("..")
    return (parse(first) if first else None, parse(end) if end else None)


def _check_order(bounds: Range) -> Range:
    first, end = bounds
    if first is not None and end is not None and end < first:
        raise ValueError("the range ends before it begins")
    return bounds


# ---- the table -----------------------------------------------------------------------------------

#: The names of kinds of keys and values at `--decode-key` and `--decode-value`.
KINDS: Final = (
    *("text", "json", "int16", "int32", "int64", "float", "double", "uuid"),
    *("string", "short", "integer", "long"),
)
PARTITIONERS: Final = ("murmur2", "crc32")
ON_CORRUPT: Final = ("raise", "skip")
_AS_STORED: Final = {"dump": "dump shows what the files hold, and leaves nothing out"}
_AS_BYTES: Final = {"dump": "dump shows the bytes; 'kseg read' and 'kseg export' decode them"}
_PYTHON_ALONE: Final = "read dump grep export spark"


def _decode_option(name: str) -> Option:
    """`--decode-key` or `--decode-value`."""
    return Option(
        f"--decode-{name}",
        f"The kind of each {name}. A {name} of another kind is null, and {name}_error has the "
        "reason.",
        f"decode_{name}",
        among=(*KINDS, *SCHEMA_WORDS),
    )


QUESTIONS: Final = (
    Question(
        "topics",
        options=(
            Option(
                "--topic",
                "Only topics that match; may be repeated.",
                metavar="GLOB",
                repeated=True,
                completed="topics",
            ),
        ),
        spark=("topic", "subscribe", "subscribePattern", "assign"),
    ),
    Question(
        "partitions",
        options=(
            Option(
                "--partition",
                "Only these partitions, such as 0,3-5.",
                parse=parse_partitions,
                metavar="N,N-M",
                completed="partitions",
            ),
        ),
        spark=("partitions",),
    ),
    Question(
        "columns",
        options=(
            Option(
                "--fields",
                "Only these, in this order.",
                metavar="NAME,...",
                parse=lambda text: tuple(name.strip() for name in text.split(",")),
                completed="fields",
            ),
        ),
        spark=("columns",),
        refused={"read dump grep": "a row has every field; 'kseg export --fields' chooses some"},
    ),
    Question(
        "offset",
        options=(
            Option(
                "--offset",
                "Only offsets in this range, B excluded; or one offset.",
                parse=parse_offset_range,
                metavar="A..B",
            ),
        ),
        spark=("startingOffsets", "endingOffsets"),
    ),
    Question(
        "time",
        options=(
            Option(
                "--time",
                "Only timestamps in this range, B excluded: ISO 8601, ms, now, today, yesterday, "
                "or such as -90s, -15m, -1h, -7d.",
                parse=parse_time_range,
                metavar="A..B",
            ),
        ),
        spark=("startingTimestamp", "endingTimestamp"),
    ),
    Question(
        "key",
        options=(
            Option(
                "--key",
                "Only records with exactly this key: text, hex:00ff or base64:AP8=.",
                parse=parse_key,
                metavar="KEY",
            ),
        ),
        spark=("key",),
    ),
    Question(
        "partitioner",
        options=(
            Option(
                "--partitioner",
                "The way in which producers chose the partition of --key; no other partition is "
                "read.",
                among=PARTITIONERS,
            ),
            Option(
                "--partitions",
                "The topic's number of partitions, if no metadata log has it; repeat it for each "
                "number that the topic had.",
                "counts",
                low=1,
                metavar="N",
                repeated=True,
            ),
        ),
        refused={
            "dump": "dump reads every file that is named; 'kseg read' finds the partition of a key",
            "spark": "the option partitions chooses the partition of a key, which 'kseg partition' "
            "names",
        },
    ),
    Question(
        "limit",
        options=(Option("--limit", "Stop after N.", low=0, metavar="N", short="-m"),),
        refused={"spark": "Spark's tasks share no count; DataFrame.limit ends a query"},
    ),
    Question(
        "last",
        options=(Option("--last", "Only the last N of each partition.", low=0, metavar="N"),),
        refused={"spark": "Spark's tasks share no count; startingOffsets says where to begin"},
    ),
    Question(
        "decode",
        options=(_decode_option("key"), _decode_option("value")),
        spark=("decodeKey", "decodeValue"),
        refused=_AS_BYTES,
    ),
    Question(
        "schemas",
        options=(
            Option(
                "--schemas",
                "The place of a registry's schemas: a data directory with its topic, a file, or "
                "its URL. The default is PATH.",
                metavar="PLACE",
                repeated=True,
            ),
        ),
        spark=("schemas",),
        refused=_AS_BYTES,
    ),
    Question(
        "subject",
        options=(
            Option(
                "--subject", "The subject whose schema is the type of the column.", metavar="NAME"
            ),
        ),
        spark=("subject",),
        refused=_AS_BYTES,
    ),
    Question(
        "schema_version",
        options=(
            Option(
                "--schema-version",
                "The version of the subject; the default is the latest one.",
                low=1,
                metavar="N",
            ),
        ),
        spark=("schemaVersion",),
        refused=_AS_BYTES,
    ),
    Question(
        "schema",
        refused={_PYTHON_ALONE: "a subject and a version name the schema"},
    ),
    Question(
        "record",
        options=(
            Option(
                "--record",
                "Only values of this record type or message; others are left out.",
                metavar="NAME",
            ),
        ),
        spark=("record",),
        refused=_AS_BYTES,
    ),
    Question(
        "isolation",
        ISOLATIONS[0],
        (
            Option(
                "--isolation",
                "Committed: no aborted records, none past the last stable offset.",
                among=ISOLATIONS,
            ),
        ),
        ("isolation",),
        _AS_STORED,
    ),
    Question(
        "open_transactions",
        OPEN_TRANSACTIONS[0],
        (
            Option(
                "--open-transactions",
                "wait: committed records end at the first open transaction. abort: treat open "
                "transactions as aborted, as after a broker's timeout.",
                among=OPEN_TRANSACTIONS,
            ),
        ),
        ("openTransactions",),
        _AS_STORED,
    ),
    Question(
        "replicas",
        REPLICAS[0],
        (
            Option(
                "--replicas",
                "Of several directories of one partition, read the newest, the first that is "
                "named, or all; or refuse them.",
                among=REPLICAS,
            ),
        ),
        ("replicas",),
        {"dump": "dump reads each directory that is named, but not two of one partition"},
    ),
    Question(
        "on_corrupt",
        ON_CORRUPT[0],
        (
            Option(
                "--on-corrupt",
                "Skip leaves damaged batches out, names them, and exits 1.",
                among=ON_CORRUPT,
            ),
        ),
        ("onCorrupt",),
        {"dump": "dump shows damaged batches, names them, and goes on"},
    ),
    Question(
        "on_error",
        "raise",
        refused={
            " ".join(VERBS): "of several paths, those that cannot be read are named, and the rest "
            "is read",
            "spark": "onCorrupt=permissive has a row for a path that cannot be read",
        },
    ),
    Question(
        "threads",
        1,
        (
            Option(
                "--jobs",
                "Number of parallel workers; the default is the number of usable cores. The "
                "output is the same for every N.",
                "jobs",
                low=1,
                metavar="N",
            ),
        ),
        refused={"spark": "Spark's tasks share the work"},
    ),
    Question(
        "progress",
        refused={
            " ".join(VERBS): "a terminal shows a bar where a run may take long",
            "spark": "Spark shows its tasks",
        },
    ),
    Question(
        "now",
        options=(Option("--now"),),
        refused={"spark": "times are ISO 8601 or ms: a plan means the same whenever it runs"},
    ),
    Question(
        "max_rows",
        65_536,
        spark=("maxBatchRows",),
        refused={" ".join(VERBS): "records are written as they come, whatever the size of a piece"},
    ),
    Question(
        "max_bytes",
        16 << 20,
        refused={_PYTHON_ALONE: "the size of a piece is chosen for the output"},
    ),
    Question(
        "control",
        default=False,
        options=(
            Option(
                "--control",
                "Also transaction markers and other control records.",
                is_flag=True,
            ),
        ),
        spark=("includeControl",),
        refused=_AS_STORED,
    ),
    Question(
        "verify_crc",
        default=True,
        spark=("verifyCrc",),
        refused={
            "read grep export": "'kseg dump' shows batches whose checksum is wrong",
            "dump": "dump compares each checksum, and shows the batch in any case",
        },
    ),
    Question(
        "inflated_max",
        INT32_MAX,
        refused={_PYTHON_ALONE: "the bound is that of Kafka, 2 GiB"},
    ),
    Question(
        "mapping",
        "auto",
        (
            Option(
                "--mapping",
                "Whether to map files. A bad sector under a map kills the process; with never, "
                "kseg reads files instead.",
                among=("auto", "always", "never"),
            ),
        ),
        refused={"spark": "Spark starts a worker again that a bad sector kills"},
    ),
    Question(
        "tier",
        options=(Option("--tier"), Option("--tier-key"), Option("--topic-id")),
        spark=("tier", "tierKeys", "topicId"),
    ),
)
BY_NAME: Final = {question.name: question for question in QUESTIONS}

#: Pairs of questions that cannot be asked together.
EXCLUDED: Final = (("last", "limit"), ("schema", "subject"), ("schema", "schema_version"))
#: Questions about values with schemas.
OF_SCHEMAS: Final = ("schemas", "subject", "schema_version", "schema", "record")


def check(query: Mapping[str, Any], door: str) -> None:
    """Refuse questions that exclude each other, and those that need another one.

    Args:
        query: name of a question -> the caller's answer; None, or missing, if there is none.
        door: the door, which decides how a message spells the questions.

    Raises:
        ValueError: two of them do not go together.
    """
    names = {name for name, value in query.items() if value is not None}

    def spelled(name: str) -> str:
        return BY_NAME[name].spelled(door)[-1]

    for first, second in EXCLUDED:
        if {first, second} <= names:
            raise ValueError(f"{spelled(first)} and {spelled(second)} exclude each other")
    of_schemas = [name for name in OF_SCHEMAS if name in names]
    if not of_schemas:
        return
    from kseg.format.typed import has_schemas  # imported late: few queries need it

    if not has_schemas(query.get("decode")):
        needed = f"{spelled('decode')} with a word for schemas, such as registry"
        raise ValueError(f"{spelled(of_schemas[0])} needs {needed}")


def refusal(door: str, name: str) -> str:
    """Why a door, such as the command line, lacks an option that another door has.

    The reason follows a semicolon, for the end of an error's text; empty for unknown names.

    Args:
        door: one of `DOORS`.
        name: as the user typed it; the case does not count.
    """
    for question in QUESTIONS:
        reason = question.refusal(door)
        if reason and name.lower() in (spelling.lower() for spelling in question.spelled(door)):
            return f"; {reason}"
    return ""


def answers(query: QueryArgs) -> dict[str, Any]:
    """The answer to every question: a caller's, or the default.

    Raises:
        TypeError: there is no such question.
        ValueError: two of them do not go together.
    """
    for name in query.keys() - BY_NAME.keys():
        raise TypeError(f"there is no argument {name!r}{suggestion([name], BY_NAME)}")
    check(query, "python")
    return {**{question.name: question.default for question in QUESTIONS}, **query}


def asks(function: _FunctionT) -> _FunctionT:
    """Let `help` and `inspect.signature` show each question in place of `**query`."""
    seen = inspect.signature(function)
    questions = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=BY_NAME[name].default,
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in QueryArgs.__annotations__.items()
    ]
    positional = [
        parameter
        for parameter in seen.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    function.__signature__ = seen.replace(parameters=[*positional, *questions])  # type: ignore[attr-defined]
    return function


def count_of(name: str, count: int | None) -> int | None:
    """The value of an argument that is a number of records; None stays None.

    Raises:
        TypeError: `count` is not a whole number.
        ValueError: it is negative.
    """
    if count is None:
        return None
    try:
        number = operator.index(count)
    except TypeError:
        raise TypeError(f"{name} is a whole number, not {count!r}") from None
    if number < 0:
        raise ValueError(f"{name} is 0 or more, not {number}")
    return number
