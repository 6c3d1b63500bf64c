"""`Selection`: the partitions that callers choose."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from kseg.commands import suggestion
from kseg.constants import StrPath

StrPaths = StrPath | Iterable[StrPath]


class Selection(NamedTuple):
    """The chosen partitions: globs over topics, ranges over partitions; empty for all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[range, ...] = ()

    @classmethod
    def of(
        cls, topics: str | Iterable[str] | None, partitions: int | Iterable[int | range] | None
    ) -> Selection:
        """The selection that arguments of Python functions describe.

        Args:
            topics: a name or a glob, or several; None for all.
            partitions: a number, or several; ranges too, in a tuple; None for all.

        Raises:
            TypeError: a topic is not text, or a partition is not a whole number.
            ValueError: a partition is negative.
        """
        names = several("topics", topics, str, "a name, or several")
        ranges, other_parts = list[range](), partitions
        if isinstance(partitions, tuple):
            ranges = [part for part in partitions if isinstance(part, range)]
            other_parts = [part for part in partitions if not isinstance(part, range)]
        numbers = several("partitions", other_parts, int, "a number, or several")
        if min(numbers, default=0) < 0:
            raise ValueError(f"partitions has {min(numbers)}; partitions are numbered from 0 on")
        return cls(names, (*ranges, *(range(number, number + 1) for number in numbers)))

    def __bool__(self) -> bool:
        """Whether anything is left out at all."""
        return bool(self.topics or self.partitions)

    @property
    def choice(self) -> Callable[[str | None, int | None], bool] | None:
        """`takes`, or None if it accepts all partitions."""
        return self.takes if self else None

    def why_nothing(self, partitions: Iterable[tuple[str | None, int | None]]) -> str:
        """Say why no partition of a directory is selected.

        Args:
            partitions: topic and number of each partition of that place.
        """
        named = {(topic, n) for topic, n in partitions if topic is not None and n is not None}
        topics = Selection(self.topics)
        numbers = sorted({n for topic, n in named if topics.takes(topic, n)})
        if numbers:
            return f"no partition here is chosen by --partition; there are {some_of(numbers)}"
        topic_globs, topics_here = ", ".join(self.topics), sorted({topic for topic, _ in named})
        advice = suggestion(self.topics, topics_here, f"there are {some_of(topics_here)}")
        if any("," in topic for topic in self.topics):
            advice = f"; give --topic once for each; there are {some_of(topics_here)}"
        return f"no topic here is {topic_globs}{advice if topics_here else ''}"

    def takes(self, topic: str | None, partition: int | None) -> bool:
        """Whether a partition is selected; one without a name is if the selection is empty."""
        if self.topics and not any(fnmatchcase(topic or "", glob) for glob in self.topics):
            return False
        if not self.partitions:
            return True
        return partition is not None and any(partition in numbers for numbers in self.partitions)


#: All partitions.
ALL = Selection()
#: Whether a partition, by topic and number, is selected; None for a partition without a name.
Chosen = Callable[[str | None, int | None], bool]


class NothingChosenError(ValueError):
    """A path has partitions, and none of them is selected."""


def some_of(names: Sequence[object], most: int = 3) -> str:
    """The first names of a list, and how many more there are.

    >>> some_of(["a", "b"]), some_of(range(5))
    ('a, b', '0, 1, 2 and 2 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def several(name: str, value: Any, kind: type, expected: str) -> tuple[Any, ...]:
    """One value or several as a tuple, all of one kind.

    Raises:
        TypeError: a value is of another kind.
    """
    if value is None:
        return ()
    single = isinstance(value, (str, bytes)) or not isinstance(value, Iterable)
    values = (value,) if single else tuple(value)
    try:
        checked = values if kind is str else tuple(map(operator.index, values))
    except TypeError:
        checked = ()
    if len(checked) != len(values) or not all(
        isinstance(item, kind) and not isinstance(item, bool) for item in checked
    ):
        raise TypeError(f"{name} is {expected}, not {value!r}")
    return checked
