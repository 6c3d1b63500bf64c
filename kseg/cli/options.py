"""Options that several verbs share, and the values they become: ranges, selections, bounds."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kseg.cli.failures import usage_errors
from kseg.constants import Compression
from kseg.files.grammar import is_topic_name
from kseg.format.times import time_ms

if TYPE_CHECKING:
    from kseg.log.config import LogConfig

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # no generic before click 8.5

_F = TypeVar("_F", bound=Callable[..., Any])
_INT64_MAX = 2**63 - 1
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) *([KMGTP]?)(?:iB|B)?", re.ASCII | re.IGNORECASE)
_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)

#: Where a context keeps the value of `--now`.
_NOW = "kseg.now_ms"

Clock = Callable[[], int]
#: What `--codec` takes.
CODECS = [codec.label for codec in Compression]
#: What `--decode` takes.
DECODED = ("offsets", "transactions", "metadata", "share", "remote")
#: What `--decode-key` and `--decode-value` take: the names of `kseg.format.typed`.
KINDS = (
    *("text", "json", "int16", "int32", "int64", "float", "double", "uuid"),
    *("string", "short", "integer", "long"),
)
#: What `kseg export --partition-by` takes.
PARTITION_KEYS = ("day", "topic", "partition")
#: The files that `kseg export` writes, by their extensions.
EXTENSIONS = ("parquet", "arrow", "jsonl", "csv")

Range = tuple[int | None, int | None]
ALL: Range = (None, None)


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen partitions: globs over topics, ranges over partitions; empty for all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is left out at all."""
        return bool(self.topics or self.partitions)

    def takes(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is chosen; one without a name is, if the selection is empty."""
        if self.topics and not any(fnmatchcase(topic or "", glob) for glob in self.topics):
            return False
        if not self.partitions:
            return True
        number = -1 if partition is None else partition
        return any(first <= number <= last for first, last in self.partitions)


def parse_offset_range(text: str) -> Range:
    """`A..B`, `A..`, `..B`, or `N` for the one offset; half open.

    >>> parse_offset_range("5..9"), parse_offset_range("7")
    ((5, 9), (7, 8))
    """
    if ".." not in text:
        offset = _integer(text)
        return (offset, offset + 1)
    return _ordered(_split(text, _integer))


def parse_time_range(text: str, now_ms: Clock | None = None) -> Range:
    """`A..B` with either side missing; each side as `parse_time` takes it; half open."""
    if ".." not in text:
        raise ValueError("a time range is A..B, where either side may be missing")
    return _ordered(_split(text, lambda side: parse_time(side, now_ms)))


def parse_time(text: str, now_ms: Clock | None = None) -> int:
    """Milliseconds since 1970, as `kseg.format.times` has them, rounded up as bounds want it.

    >>> parse_time("2025-10-09T08:53:20Z"), parse_time("-1s", lambda: 1760000000000)
    (1760000000000, 1759999999000)
    """
    return time_ms(text, round_up=True, now_ms=now_ms)


def parse_partitions(text: str) -> tuple[tuple[int, int], ...]:
    """`0,3-5` as inclusive ranges.

    >>> parse_partitions("0,3-5")
    ((0, 0), (3, 5))
    """
    ranges = []
    for part in text.split(","):
        first, _dash, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise ValueError("partitions are numbers and ranges such as 0,3-5")
        ranges.append((int(first), int(last or first)))
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
            return base64.b64decode(digits, validate=True)
    except ValueError:
        raise ValueError(f"{digits!r} is not {scheme}") from None
    return text.encode("utf-8", "surrogateescape")


def parse_size(text: str) -> int:
    """Bytes, in units of 1024.

    >>> parse_size("100G"), parse_size("1.5 KiB")
    (107374182400, 1536)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("a size is a number with K, M, G or T, such as 100G")
    return int(float(match[1]) * 1024 ** " KMGTP".index(match[2].upper() or " "))


class Setting(NamedTuple):
    """A topic setting in Kafka's spelling; for every topic if `topic` is None."""

    name: str
    value: str
    topic: str | None = None


def parse_setting(text: str) -> Setting:
    """`NAME=VALUE` for every topic, or `TOPIC:NAME=VALUE` for one.

    >>> parse_setting("segment.bytes=1048576")
    Setting(name='segment.bytes', value='1048576', topic=None)
    >>> parse_setting("orders:retention.ms=-1").topic
    'orders'
    """
    left, equals, value = text.partition("=")
    topic, colon, name = left.rpartition(":")
    if not (name.strip() and equals):
        raise ValueError("a setting is [TOPIC:]NAME=VALUE, such as segment.bytes=1048576")
    if not colon:
        return Setting(name.strip(), value)
    if not is_topic_name(topic):
        raise ValueError(f"{topic!r} is not the name of a topic")
    return Setting(name.strip(), value, topic)


def config_of(settings: Sequence[Setting], topic: str | None = None) -> LogConfig:
    """The settings of a topic's logs over Kafka's defaults; of one name the last counts.

    Raises:
        UsageError: a name is not known, or a value is out of its range.
    """
    from kseg.log.config import LogConfig  # slow to load, and most verbs do without it

    plain, own = by_topic(settings)
    with usage_errors("--config"):
        return LogConfig.from_kafka(plain, of_topic=own.get(topic or "", {}))


def by_topic(settings: Sequence[Setting]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Those for every topic, and those of each topic that has any; the last of a name counts."""
    plain: dict[str, str] = {}
    own: dict[str, dict[str, str]] = {}
    for each in settings:
        found = plain if each.topic is None else own.setdefault(each.topic, {})
        found[each.name] = each.value
    return plain, own


def check_settings(settings: Sequence[Setting], topics: Iterable[str | None]) -> None:
    """Refuse settings of a topic that is none of these, such as a misspelt one.

    Raises:
        UsageError: names it.
    """
    here = set(topics)
    for each in settings:
        if each.topic is not None and each.topic not in here:
            raise click.UsageError(f"--config: no topic {each.topic!r} here.")


def clock_of(now_ms: int | None) -> Clock:
    """A clock in ms: the machine's, or one that always gives `--now`."""
    if now_ms is None:
        return lambda: time_ns() // 1_000_000
    return lambda: now_ms


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text) or abs(int(text)) > _INT64_MAX:
        raise ValueError(f"{text!r} is no 64-bit integer")
    return int(text)


def _split(text: str, parse: Callable[[str], int]) -> Range:
    first, _dots, end = text.partition("..")
    return (parse(first) if first else None, parse(end) if end else None)


def _ordered(bounds: Range) -> Range:
    first, end = bounds
    if first is not None and end is not None and end < first:
        raise ValueError("the range ends before it begins")
    return bounds


class Parsed(_ParamType):
    """A parameter type from a parsing function that raises ValueError."""

    def __init__(self, name: str, parse: Callable[..., Any]) -> None:
        """Keep the function and the name that help shows."""
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value; a default that is parsed already passes through."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(f"{error}", param, ctx)


class ParsedTime(Parsed):
    """A parameter type for times, which may be counted from `--now`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As `Parsed` has it; the function gets the clock, too."""
        given = None if ctx is None else ctx.meta.get(_NOW)
        return Parsed(self.name, partial(self.parse, now_ms=clock_of(given))).convert(
            value, param, ctx
        )


OFFSET_RANGE = Parsed("A..B", parse_offset_range)
TIME_RANGE = ParsedTime("A..B", parse_time_range)
TIME = ParsedTime("TIME", parse_time)
KEY = Parsed("KEY", parse_key)
PARTITIONS = Parsed("N,N-M", parse_partitions)
SETTING = Parsed("[TOPIC:]NAME=VALUE", parse_setting)


def completed(name: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell completes, by the name of a function of `kseg.cli.completing`."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from kseg.cli import completing  # it is loaded for a shell only

        found: list[str] = getattr(completing, name)(ctx, parameter, incomplete)
        return found

    return complete


def selection_options(function: _F) -> _F:
    """`--topic` and `--partition`."""
    function = click.option(
        "--partition",
        "partitions",
        type=PARTITIONS,
        default=(),
        shell_complete=completed("partitions"),
        help="Only these partitions, such as 0,3-5.",
    )(function)
    return click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="GLOB",
        shell_complete=completed("topics"),
        help="Only topics that match; may be repeated.",
    )(function)


def offset_and_time_options(function: _F) -> _F:
    """`--offset` and `--time`."""
    function = click.option(
        "--time",
        "times",
        type=TIME_RANGE,
        default=ALL,
        help="Only timestamps in this range, B excluded: ISO 8601, ms, now, today, yesterday, or "
        "such as -90s, -15m, -1h, -7d.",
    )(function)
    function = now_option(expose=False)(function)
    return click.option(
        "--offset",
        "offsets",
        type=OFFSET_RANGE,
        default=ALL,
        help="Only offsets in this range, B excluded; or one offset.",
    )(function)


def now_option(*, expose: bool = True) -> Callable[[_F], _F]:
    """`--now` as `now_ms`, which times are counted from; not a parameter unless `expose`."""

    def note(ctx: click.Context, _parameter: click.Parameter, value: int | None) -> int | None:
        ctx.meta[_NOW] = value
        return value

    return click.option(
        "--now",
        "now_ms",
        type=TIME,
        is_eager=True,  # it is known before the times that are counted from it
        expose_value=expose,
        callback=note,
        help="The time to take for now, as other times; else the clock's.",
    )


def decode_options(function: _F) -> _F:
    """`--decode` by the names in `kseg.cli.decoded`, and `--raw`."""
    for option in (
        click.option(
            "--raw", is_flag=True, help="Keys and values of internal topics as the bytes they are."
        ),
        click.option(
            "--decode",
            "decode_as",
            type=click.Choice(DECODED),
            help="Decode the records of this internal topic. Those of a directory that is named "
            "like one (__consumer_offsets-0) are, unless --raw is given.",
        ),
    ):
        function = option(function)
    return function


def typed_options(function: _F) -> _F:
    """`--decode-key` and `--decode-value`, by the names in `kseg.format.typed`."""
    for name in ("value", "key"):
        function = click.option(
            f"--decode-{name}",
            type=click.Choice(KINDS, case_sensitive=False),
            help=f"What each {name} is. Where one is not, it is null, and {name}_error says why.",
        )(function)
    return function


def partition_keys(text: str) -> tuple[str, ...]:
    """`day,topic` as names out of `PARTITION_KEYS`.

    >>> partition_keys("day, topic")
    ('day', 'topic')
    """
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in PARTITION_KEYS]
    if unknown:
        raise ValueError(f"no {', '.join(unknown)}; there are: {', '.join(PARTITION_KEYS)}")
    if len(set(names)) < len(names):
        raise ValueError("a name is there twice")
    return names


def range_options(function: _F) -> _F:
    """`--offset`, `--time`, `--key`, `--limit`, `--last`."""
    count = click.IntRange(min=0)
    for option in (
        click.option("--last", type=count, metavar="N", help="Only the last N of each partition."),
        click.option("--limit", type=count, metavar="N", help="Stop after N."),
        click.option(
            "--key",
            type=KEY,
            help="Only records with exactly this key: text, hex:00ff or base64:AP8=.",
        ),
    ):
        function = option(function)
    return offset_and_time_options(function)


def isolation_option(function: _F) -> _F:
    """`--isolation`."""
    return click.option(
        "--isolation",
        type=click.Choice(["read_uncommitted", "read_committed"]),
        default="read_uncommitted",
        show_default=True,
        help="Committed: no aborted records, none past the last stable offset.",
    )(function)


def format_option(function: _F) -> _F:
    """`--format text|jsonl|csv`."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "jsonl", "csv"]),
        default="text",
        show_default=True,
        help="How rows are written.",
    )(function)


def bytes_option(function: _F) -> _F:
    """`--bytes base64|utf8|hex`; None leaves the choice to the format."""
    return click.option(
        "--bytes",
        "encoding",
        type=click.Choice(["base64", "utf8", "hex"]),
        help="How keys, values and header values are written (text: utf8, else base64). In jsonl "
        'bytes that are not UTF-8 stand as {"base64": "..."}.',
    )(function)


def stats_options(function: _F) -> _F:
    """`--top`, `--headers`, and `--bytes` for keys."""
    function = click.option(
        "--bytes",
        "encoding",
        type=click.Choice(["base64", "utf8", "hex"]),
        default="base64",
        show_default=True,
        help="How keys are written in JSON.",
    )(function)
    function = click.option(
        "--headers",
        is_flag=True,
        help="Read headers alone: quick, but no sizes of records and no keys.",
    )(function)
    return click.option(
        "--top",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        metavar="N",
        help="Name the N keys with most bytes in each partition.",
    )(function)


def deep_option(function: _F) -> _F:
    """`--deep`."""
    return click.option("--deep", is_flag=True, help="Decode every record too.")(function)


def records_option(function: _F) -> _F:
    """`--records` of `diff`."""
    return click.option(
        "--records",
        is_flag=True,
        help="Where batches differ, compare their records: for copies that were compacted apart or"
        " hold other codecs.",
    )(function)


def jobs_option(function: _F) -> _F:
    """`--jobs`: the usable cores where it is not given."""
    return click.option(
        "--jobs",
        type=click.IntRange(min=1),
        callback=_jobs,
        metavar="N",
        help="Threads to share the work; as many as there are usable cores. The output is the "
        "same for every N.",
    )(function)


def _jobs(_ctx: click.Context, _parameter: click.Parameter, value: int | None) -> int:
    from kseg.workers import usable_cores

    return value or usable_cores()


def mapping_option(function: _F) -> _F:
    """`--mapping auto|always|never`."""
    return click.option(
        "--mapping",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Whether to map files; a bad sector under a map ends the process, so never reads "
        "them instead.",
    )(function)


def on_corrupt_option(function: _F) -> _F:
    """`--on-corrupt raise|skip`."""
    return click.option(
        "--on-corrupt",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        help="Skip leaves damaged batches out, names them, and exits 1.",
    )(function)


def reindex_options(function: _F) -> _F:
    """`--only` as `kinds`, by the values of `kseg.log.recovery.reindex.KINDS`, and `--exact`."""
    function = click.option(
        "--exact",
        is_flag=True,
        help="Also replace right indexes that differ from the bytes that Kafka 4.2 writes.",
    )(function)
    return click.option(
        "--only",
        "kinds",
        type=click.Choice(["index", "timeindex", "txnindex", "snapshot"]),
        multiple=True,
        help="Only files of this kind; may be repeated.",
    )(function)


def config_options(function: _F) -> _F:
    """`--config` as pairs for `config_of`, and `--now` for `clock_of`."""
    function = now_option()(function)
    return click.option(
        "--config",
        "settings",
        type=SETTING,
        multiple=True,
        help="A topic setting in Kafka's spelling, such as retention.ms=86400000; with TOPIC: for"
        " that topic alone, which goes before the others. Repeatable.",
    )(function)


def explain_options(function: _F) -> _F:
    """`--what-if` as `supposed`, `--free` as `free_bytes`, and `--segments`."""
    for option in (
        click.option("--segments", is_flag=True, help="A line for each segment and file."),
        click.option(
            "--free",
            "free_bytes",
            type=Parsed("SIZE", parse_size),
            help="Propose how so much room could become free, such as 100G. Exits 1 if it is out of"
            " reach.",
        ),
        click.option(
            "--what-if",
            "supposed",
            type=SETTING,
            multiple=True,
            help="Say what would go, and when, by this setting. Repeatable.",
        ),
    ):
        function = option(function)
    return function


def release_option(function: _F) -> _F:
    """`--for` of `doctor`, as `release`."""
    return click.option(
        "--for",
        "release",
        default="4.2",
        show_default=True,
        metavar="RELEASE",
        help="The release of Kafka that is to start; what is not known of others is said so.",
    )(function)


def broker_options(function: _F) -> _F:
    """`--broker-config` and `--metadata-dir`, for `kseg.settings`."""
    function = click.option(
        "--metadata-dir",
        metavar="DIR",
        type=click.Path(path_type=str),
        help="The data directory with __cluster_metadata-0, if it is another one.",
    )(function)
    return click.option(
        "--broker-config",
        metavar="FILE",
        type=click.Path(path_type=str),
        help="The broker's server.properties: goes before --config NAME=VALUE, behind what the"
        " cluster has. Only its settings of topics are read.",
    )(function)


def json_option(function: _F) -> _F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document.")(function)


def paths_argument(function: _F) -> _F:
    """One or more PATHs; the verb checks that they exist when it opens them."""
    return click.argument(
        "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=str)
    )(function)


def directories_argument(*, required: bool) -> Callable[[_F], _F]:
    """The data directories DIR... of a broker."""
    return click.argument(
        "directories",
        nargs=-1,
        required=required,
        metavar="DIR...",
        type=click.Path(path_type=str),
    )


def check_ranges(*, last: int | None, limit: int | None) -> None:
    """Refuse `--last` with `--limit`: their order would be a guess."""
    if last is not None and limit is not None:
        raise click.UsageError("--last and --limit do not go together.")
