"""The values of a command line: ranges, times, sizes, settings, names, chosen partitions.

Each function parses the text of one option. It raises ValueError with the expected form. Nothing
here is slow to load, nor knows how options are declared: that is `kseg.cli.options`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import time_ns
from typing import Any, NamedTuple

from kseg.constants import Compression
from kseg.files.grammar import is_topic_name
from kseg.format.times import duration_ms
from kseg.records.query import Clock

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
    """The names, if each is one of the known ones and is there once.

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
    return Setting(name.strip(), _plain(name.strip(), value), topic if colon else None)


def _plain(name: str, value: str) -> str:
    """A value as Kafka spells it: of a time in ms, or a size in bytes, with a unit, the number."""
    text = value.strip()
    if not text[-1:].isalpha():
        return value
    duration = duration_ms(text) if name.endswith(".ms") else None
    if duration is not None:
        return str(duration)
    return str(parse_size(text)) if name.endswith(".bytes") and _SIZE.fullmatch(text) else value


def by_topic(settings: Sequence[Setting]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Settings for every topic, and settings of single topics; the last of a name counts."""
    plain: dict[str, str] = {}
    of_topics: dict[str, dict[str, str]] = {}
    for setting in settings:
        values = plain if setting.topic is None else of_topics.setdefault(setting.topic, {})
        values[setting.name] = setting.value
    return plain, of_topics


def clock_of(now_ms: int | None) -> Clock:
    """A clock in ms: the machine's, or one that always gives `--now`."""
    if now_ms is None:
        return lambda: time_ns() // 1_000_000
    return lambda: now_ms


class CommandSettings(NamedTuple):
    """The settings of a command line, and the time.

    Attributes:
        settings: of `--config`.
        broker_config: of `--broker-config`.
        metadata_dir: of `--metadata-dir`.
        now_ms: of `--now`; None for the clock's.
    """

    settings: tuple[Setting, ...] = ()
    broker_config: str | None = None
    metadata_dir: str | None = None
    now_ms: int | None = None

    @property
    def clock(self) -> Clock:
        """The time in ms."""
        return clock_of(self.now_ms)

    @property
    def arguments(self) -> dict[str, Any]:
        """All but the time, as arguments of `kseg.settings`, `kseg.doctor` and others."""
        plain, of_topics = by_topic(self.settings)
        return {
            "config": plain,
            "topic_config": of_topics,
            "broker_config": self.broker_config,
            "metadata_directory": self.metadata_dir,
        }
