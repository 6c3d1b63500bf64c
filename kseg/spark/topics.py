"""Which topics a query asks for: a glob, or the three ways of Spark's own Kafka source.

    topic               one name, or a glob
    subscribe           names with commas between them
    subscribePattern    a regular expression that a whole name matches
    assign              {"orders": [0, 1]}: topics and their partitions

One of them at most. Nothing here imports pyspark or touches a file.

Source: Spark `KafkaSourceProvider`, `ConsumerStrategy`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from kseg.files.grammar import is_topic_name

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
    name = _name(text)
    if any(mark in name for mark in "*?["):
        return TopicChoice("topic", name, glob=name)
    return TopicChoice("topic", name, names=(name,))


def parse_subscribe(text: str) -> TopicChoice:
    """Names with commas between them.

    Raises:
        ValueError: one of them is empty.
    """
    return TopicChoice("subscribe", text, names=tuple(_name(part) for part in text.split(",")))


def parse_pattern(text: str) -> TopicChoice:
    """A regular expression, in what Java and Python have in common.

    Raises:
        ValueError: Python's `re` does not take it.
    """
    try:
        re.compile(_name(text))
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
    assigned = tuple((_name(topic), tuple(numbers)) for topic, numbers in given.items())
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


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text.strip()
