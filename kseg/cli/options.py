"""Options that several verbs share, and the meaning of their words: sizes, settings, names, times.

A function `parse_*` parses the text of one option. It raises ValueError with the expected form.
Nothing here is slow to load.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial, wraps
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import click

from kseg.cli.failures import usage_errors
from kseg.constants import BATCH_BYTES, Compression
from kseg.files.grammar import OFFSET_MAX, URL_REFUSAL, is_topic_name, is_url
from kseg.files.selection import Selection
from kseg.format.times import duration_ms
from kseg.records.query import (
    BY_NAME,
    KINDS,
    QUESTIONS,
    Clock,
    Question,
    check,
    parse_time,
    parse_time_range,
)
from kseg.records.query import Option as Asked

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
    _Choice = click.Choice[str]
else:
    _ParamType = click.ParamType  # no generic before click 8.5
    _Choice = click.Choice  # likewise, before 8.2

_F = TypeVar("_F", bound=Callable[..., Any])
#: Declares one or more options of a function.
Option = Callable[[Any], Any]

#: Where a context keeps the value of `--now`.
_NOW = "kseg.now_ms"


_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) *([KMGTP]?)(?:iB|B)?", re.ASCII | re.IGNORECASE)
#: The values of `--codec`.
CODECS = [codec.label for codec in Compression]
#: The values of `--decode`.
DECODED = (
    "offsets",
    "transactions",
    "metadata",
    "share",
    "remote",
    "connect-offsets",
    "offset-syncs",
    "checkpoints",
)
#: The paths of a command line, as they were typed.
Paths = tuple[str, ...]


def parse_size(text: str) -> int:
    """Bytes, in units of 1024.

    >>> parse_size("100G"), parse_size("1.5 KiB")
    (107374182400, 1536)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("a size is a number with K, M, G or T, such as 100G")
    return int(float(match[1]) * 1024 ** " KMGTP".index(match[2].upper() or " "))


def parse_names(text: str, noun: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """`NAME,...`: names out of the known ones, each at most once.

    >>> parse_names("day, topic", "key", ("day", "topic"))
    ('day', 'topic')
    """
    return check_names(tuple(name.strip() for name in text.split(",")), noun, allowed)


def check_names(names: tuple[str, ...], noun: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Check that each name is one of the known ones, and occurs only once; returns the names.

    Raises:
        ValueError: one is unknown, or there twice.
    """
    unknown = [name or repr(name) for name in names if name not in allowed]
    if unknown:
        raise ValueError(f"no {noun} {', '.join(unknown)}; there are: {', '.join(allowed)}")
    if len(set(names)) < len(names):
        raise ValueError("a name is there twice")
    return names


class Setting(NamedTuple):
    """A topic setting in Kafka's spelling; for every topic if `topic` is None."""

    name: str
    value: str
    topic: str | None = None


def parse_setting(text: str) -> Setting:
    """`NAME=VALUE` for every topic, or `TOPIC:NAME=VALUE` for one.

    >>> parse_setting("segment.bytes=1048576")
    Setting(name='segment.bytes', value='1048576', topic=None)
    >>> parse_setting("orders:retention.ms=7d")
    Setting(name='retention.ms', value='604800000', topic='orders')
    """
    left, equals, value = text.partition("=")
    topic, colon, name = left.rpartition(":")
    if not (name.strip() and equals):
        raise ValueError("a setting is [TOPIC:]NAME=VALUE, such as segment.bytes=1048576")
    if colon and not is_topic_name(topic):
        raise ValueError(f"{topic!r} is not the name of a topic")
    return Setting(name.strip(), _without_unit(name.strip(), value), topic if colon else None)


def _without_unit(name: str, value: str) -> str:
    """A time or size with a unit, such as 7d or 1GiB, in ms or bytes; other values unchanged."""
    text = value.strip()
    if not text[-1:].isalpha():
        return value
    duration = duration_ms(text) if name.endswith(".ms") else None
    if duration is not None:
        return str(duration)
    return str(parse_size(text)) if name.endswith(".bytes") and _SIZE.fullmatch(text) else value


def by_topic(settings: Sequence[Setting]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Settings for all topics, and topic -> its settings; the last value of a name counts."""
    plain: dict[str, str] = {}
    of_topics: dict[str, dict[str, str]] = {}
    for setting in settings:
        values = plain if setting.topic is None else of_topics.setdefault(setting.topic, {})
        values[setting.name] = setting.value
    return plain, of_topics


class CommandSettings(NamedTuple):
    """The settings of a command line, and the time.

    Attributes:
        settings: the settings of `--config`.
        broker_config: the path of `--broker-config`.
        metadata_dir: the path of `--metadata-dir`.
        now_ms: the time of `--now`; None for the time of the clock.
    """

    settings: tuple[Setting, ...] = ()
    broker_config: str | None = None
    metadata_dir: str | None = None
    now_ms: int | None = None

    @property
    def clock(self) -> Clock:
        """The time in ms: the machine's, or always that of `--now`."""
        now_ms = self.now_ms
        return (lambda: time_ns() // 1_000_000) if now_ms is None else (lambda: now_ms)

    @property
    def arguments(self) -> dict[str, Any]:
        """All settings except the time, as arguments of `kseg.settings`, `kseg.doctor` etc."""
        plain, of_topics = by_topic(self.settings)
        return {
            "config": plain,
            "topic_config": of_topics,
            "broker_config": self.broker_config,
            "metadata_directory": self.metadata_dir,
        }


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
        """As `Parsed.convert`; the function also gets the clock."""
        now_ms = None if ctx is None else ctx.meta.get(_NOW)
        parse = partial(self.parse, now_ms=CommandSettings(now_ms=now_ms).clock)
        return Parsed(self.name, parse).convert(value, param, ctx)


#: The verbs that take URLs of stores.
STORE_VERBS: Final = (
    "info",
    "read",
    "dump",
    "verify",
    "grep",
    "export",
    "stats",
    "lookup",
    "diff",
    "groups",
    "transactions",
    "metadata",
    "schemas",
    "adopt",
)


class LocalPath(click.Path):
    """A parameter type for a path of this machine; a URL is refused.

    Attributes:
        refusal: the reason, in words.
    """

    def __init__(self, refusal: str) -> None:
        """Take the words."""
        super().__init__(path_type=str, readable=False)
        self.refusal = refusal

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as it was typed."""
        if is_url(os.fspath(value)):
            self.fail(f"{value} is {self.refusal}", param, ctx)
        return super().convert(value, param, ctx)


class WholeNumber(click.IntRange):
    """A parameter type for whole numbers in a range, which errors call so."""

    name = "whole number"


#: A path as typed: the verb opens it and reports the file system's error (exit 3). Click would call
#: a path without permission a wrong command line.
PATH = click.Path(path_type=str, readable=False)
#: The same for verbs that change files, or predict a broker's changes to them.
LOCAL_PATH = LocalPath(
    "a URL, and a path of this machine is wanted here; these verbs read stores: "
    + ", ".join(STORE_VERBS)
)
#: The same for output paths.
NEW_PATH = LocalPath(URL_REFUSAL)
OFFSET = WholeNumber(min=0, max=OFFSET_MAX)
TIME = ParsedTime("TIME", parse_time)
SETTING = Parsed("[TOPIC:]NAME=VALUE", parse_setting)


def completed(name: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """The completion of an option: the function of `kseg.cli.completion` with a name."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from kseg.cli import completion  # it is loaded for a shell only

        values: list[str] = getattr(completion, name)(ctx, parameter, incomplete)
        return values

    return complete


def together(*options: Option) -> Option:
    """Several options as one decorator; help lists them in this order."""

    def declare(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return declare


def flag(*names: str, help_text: str) -> Option:
    """An option without a value."""
    return click.option(*names, is_flag=True, help=help_text)


def choice(*names: str, among: Sequence[str], help_text: str) -> Option:
    """An option with one of some values, by default the first of them."""
    kind = click.Choice(among)
    return click.option(*names, type=kind, default=among[0], show_default=True, help=help_text)


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Keep a value in the context, under `kseg.` and the name of its parameter.

    So code that asks for it finds it, and no function of a verb has to hand it on.
    """
    ctx.meta[f"kseg.{parameter.name}"] = value
    return value


def now_option(*, expose: bool = True) -> Option:
    """`--now` as `now_ms`, which times are counted from; not a parameter unless `expose`."""
    return click.option(
        "--now",
        "now_ms",
        type=TIME,
        is_eager=True,  # it is known before the times that are counted from it
        expose_value=expose,
        callback=_keep,
        help=(
            "Use this time as the present, in the same forms as other times; the "
            "default is the clock."
        ),
    )


plain_option = click.option(
    "--plain",
    is_flag=True,
    expose_value=False,
    callback=_keep,
    help="Draw no bars on a terminal.",
)


class _InternalTopics(_Choice):
    """The values of `--decode`; the error for a value of `--decode-value` names that option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name of an internal topic."""
        if isinstance(value, str) and value.lower() in KINDS:
            self.fail(
                f"records of internal topics are decoded by it; for {value} in other topics "
                f"read and export have --decode-value {value} and --decode-key {value}",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


def _jobs(_ctx: click.Context, _parameter: click.Parameter, value: int | None) -> int:
    """The number of threads; the number of cores if none is given, or 0."""
    from kseg.workers import usable_cores

    return value or usable_cores()


# ---- options of several verbs --------------------------------------------------------------------


#: The store with older segments; `kseg.cli.paths.tier_of_run` makes it of them.
tier_options = together(
    click.option(
        "--tier",
        metavar="URL",
        expose_value=False,
        callback=_keep,
        help=(
            "Also read older segments from here: a URL or a directory to which "
            "brokers copy segments. Name a partition that exists only there as a "
            "path: orders-0."
        ),
    ),
    click.option(
        "--tier-key",
        metavar="ID=FILE",
        multiple=True,
        expose_value=False,
        callback=_keep,
        help="The private key of a key pair that encrypts the tier; may be repeated.",
    ),
    click.option(
        "--topic-id",
        metavar="ID",
        expose_value=False,
        callback=_keep,
        help="The topic's id in the tier, if it was deleted and made again.",
    ),
)


def topics_option(help_text: str) -> Option:
    """`--topic`, which may be repeated, as `topics`."""
    return click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="GLOB",
        shell_complete=completed("topics"),
        help=help_text,
    )


#: The options of several questions that no verb gets as its parameters.
_READY: Final[dict[str, Option]] = {"now": now_option(expose=False), "tier": tier_options}
_COUNTED_FROM_NOW: Final = (parse_time_range,)


def _declare_option(question: Question, option: Asked, verb: str = "") -> Option:
    """One option of the table of questions; only `grep` has short forms."""
    kind: Any = None
    if option.among:
        kind = _Choice(option.among, case_sensitive=False)
    elif option.low is not None:
        kind = WholeNumber(option.low)
    elif option.parse is not None:
        parsed = ParsedTime if option.parse in _COUNTED_FROM_NOW else Parsed
        kind = parsed(option.metavar or "", option.parse)
    has_default = question.default is not None and not option.is_flag
    return click.option(
        *([option.short] if option.short and verb == "grep" else []),
        option.flag,
        option.name or question.name,
        type=kind,
        metavar=None if option.parse else option.metavar,
        multiple=option.repeated,
        is_flag=option.is_flag,
        default=question.default if has_default and option.among else None,
        show_default=has_default,
        callback=_jobs if question.name == "threads" else None,
        shell_complete=completed(option.completed) if option.completed else None,
        help=option.help,
    )


def asked(name: str, verb: str = "") -> Option:
    """The options of the question with a name in Python; for one verb, or for all verbs."""
    question = BY_NAME[name]
    if name in _READY:
        return _READY[name]
    return together(*(_declare_option(question, option, verb) for option in question.options))


def query_options(verb: str) -> Option:
    """The options of all questions that a verb has; it gets their values as `query`.

    Args:
        verb: one of `kseg.records.query.VERBS`.
    """
    questions = [
        question for question in QUESTIONS if question.options and not question.refusal(verb)
    ]
    exposed = [question for question in questions if question.name not in _READY]
    names = [option.name or question.name for question in exposed for option in question.options]

    def declare(function: Any) -> Any:
        @wraps(function)
        def ask(*args: Any, **words: Any) -> Any:
            query = _query({name: words.pop(name) for name in names}, verb)
            return function(*args, query=query, **words)

        return together(*(asked(question.name, verb) for question in questions))(ask)

    return declare


def _query(words: dict[str, Any], verb: str) -> dict[str, Any]:
    """The keyword arguments of `kseg.scan` for the values of a command line's options.

    Args:
        words: the values by the names of options; None and () stand for options not used.
        verb: the command.

    Raises:
        UsageError: options do not go together.
    """
    query = {name: value for name, value in words.items() if value not in (None, ())}
    kinds = {name: query.pop(f"decode_{name}", None) for name in ("key", "value")}
    if any(kinds.values()):
        query["decode"] = {name: kind for name, kind in kinds.items() if kind}
    query["threads"] = query.pop("jobs")
    counts = query.pop("counts", None)
    if (counts and "partitioner" not in query) or ("partitioner" in query and "key" not in query):
        raise click.UsageError("--partitions wants --partitioner, which wants --key.")
    if "partitioner" in query:
        if "partitions" in query:
            raise click.UsageError("--partition and --partitioner exclude each other.")
        query["partitions"] = counts
    with usage_errors():
        check(query, verb)
    return query


_selection_options = together(asked("topics"), asked("partitions"))
offset_and_time_options = together(asked("offset"), asked("now"), asked("time"))
#: The form of records of internal topics, by names of `kseg.cli.records`.
decode_options = together(
    click.option(
        "--decode",
        "decode_as",
        type=_InternalTopics(DECODED),
        help=(
            "Decode the records as those of this internal topic. A directory with "
            "such a name (__consumer_offsets-0) is decoded by default, unless "
            "--raw is given."
        ),
    ),
    flag("--raw", help_text="Print keys and values of internal topics as bytes."),
)
isolation_option = together(asked("isolation"), asked("open_transactions"))
format_option = choice(
    "--format", "form", among=["text", "jsonl", "csv"], help_text="The format of the output."
)
#: None leaves the choice to the format.
bytes_option = click.option(
    "--bytes",
    "encoding",
    type=click.Choice(["base64", "utf8", "hex"]),
    help=(
        "The form of keys, values and header values (text: utf8, else base64). In "
        'jsonl, bytes that are not UTF-8 appear as {"base64": "..."}.'
    ),
)
#: A moment of the past, and one to compare with; batches count by their times.
at_since_options = together(
    click.option(
        "--at",
        type=TIME,
        help=(
            "The state at this time, by the batches up to it: ISO 8601, ms, or "
            "such as yesterday, -1h."
        ),
    ),
    click.option(
        "--since", type=TIME, help=("Also show the changes since then; a time as for --at.")
    ),
)
moment_options = together(now_option(expose=False), at_since_options)
jobs_option = asked("threads")
mapping_option = asked("mapping")
on_corrupt_option = asked("on_corrupt")
json_option = flag("--json", "as_json", help_text="One JSON document.")
codes_option = flag("--codes", help_text="List every code of a finding with its meaning.")


level_option = click.option(
    "--level", type=int, metavar="N", help="The codec's level, if not Kafka's default."
)
#: Copies of one partition or of data directories.
copies_argument = click.argument("copies", nargs=-1, required=True, metavar="A B...", type=PATH)

#: The places of a broker's settings.
broker_options = together(
    click.option(
        "--broker-config",
        metavar="FILE",
        type=PATH,
        help=(
            "The broker's server.properties. Its settings of topics override --config "
            "NAME=VALUE, and the cluster's own settings override them. 'kseg doctor' "
            "checks its other settings, too."
        ),
    ),
    click.option(
        "--metadata-dir",
        metavar="DIR",
        type=PATH,
        help="The data directory with __cluster_metadata-0, if it is elsewhere.",
    ),
)
#: The options of `CommandSettings`, one parameter each.
_settings_options = together(
    click.option(
        "--config",
        "settings",
        type=SETTING,
        multiple=True,
        help=(
            "A topic setting in Kafka's spelling, such as retention.ms=86400000 "
            "or =1d, or retention.bytes=10GiB; with TOPIC: for that topic alone, "
            "which overrides the others. Repeatable."
        ),
    ),
    now_option(),
    broker_options,
)


def gathered(name: str, kind: Any, options: Option) -> Option:
    """Options whose values a function takes as one.

    Args:
        name: the name of the function's parameter.
        kind: a named tuple with a field for each option.
        options: they declare the options.
    """

    def declare(function: _F) -> _F:
        @wraps(function)
        def gather(**words: Any) -> Any:
            value = getattr(kind, "of", kind)(**{field: words.pop(field) for field in kind._fields})
            return function(**{name: value}, **words)

        return cast("_F", options(gather))

    return declare


#: The chosen partitions, as `selection`.
selection_options = gathered("selection", Selection, _selection_options)
#: `--config`, `--broker-config`, `--metadata-dir` and `--now`, all of them as `command_settings`.
settings_options = gathered("command_settings", CommandSettings, _settings_options)


# ---- options of the verbs that change logs -------------------------------------------------------

apply_option = flag("--apply", help_text="Apply the plan; without it, only print the plan.")
output_option = click.option(
    "-o",
    "--output",
    "output_dir",
    metavar="DIR",
    type=NEW_PATH,
    help="Change a copy in this directory, and leave the original alone.",
)
#: For verbs that rewrite segments, and keep a backup only if asked to.
segments_backup_option = click.option(
    "--backup-dir",
    metavar="DIR",
    type=NEW_PATH,
    help="Keep the old segments here; without it, they are not kept.",
)
#: The arguments of `kseg.cli.closed.change_of`.
change_options = together(
    apply_option,
    output_option,
    click.option(
        "--backup-dir",
        metavar="DIR",
        type=NEW_PATH,
        help=(
            "Keep the cut, replaced or deleted bytes here; the default is beside "
            "the data directory."
        ),
    ),
    flag("--no-backup", help_text="Keep no copy of cut, replaced or deleted bytes."),
)


# ---- options whose help differs ------------------------------------------------------------------


def paths_argument(*, required: bool = True, stores: bool = True) -> Option:
    """PATH..., which the verb opens; without `stores` a URL is refused."""
    kind = PATH if stores else LOCAL_PATH
    return click.argument("paths", nargs=-1, required=required, metavar="PATH...", type=kind)


def directories_argument(*, required: bool, stores: bool = False) -> Option:
    """The data directories DIR... of a broker; with `stores` they may be URLs."""
    return click.argument(
        "directories",
        nargs=-1,
        required=required,
        metavar="DIR...",
        type=PATH if stores else LOCAL_PATH,
    )


def out_option(help_text: str, *, required: bool = True, stores: bool = False) -> Option:
    """`-o OUT`; with `stores` it may be a URL."""
    names = ("-o", "--output", "out")
    kind = PATH if stores else NEW_PATH
    return click.option(*names, required=required, metavar="OUT", type=kind, help=help_text)


def batch_bytes_option(help_text: str) -> Option:
    """`--batch-bytes`."""
    return click.option(
        "--batch-bytes",
        type=WholeNumber(min=1),
        default=BATCH_BYTES,
        show_default=True,
        metavar="N",
        help=help_text,
    )


def json_bytes_option(help_text: str) -> Option:
    """`--bytes base64|utf8|hex` with the default base64."""
    return choice("--bytes", "encoding", among=["base64", "utf8", "hex"], help_text=help_text)


def high_watermark_option(help_text: str) -> Option:
    """`--high-watermark end`."""
    return click.option("--high-watermark", type=click.Choice(["end"]), help=help_text)
