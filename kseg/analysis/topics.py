"""`topics`: the topics of data directories, in a small table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kseg.files.selection import Selection
from kseg.frames import Table
from kseg.log.reader import LogView
from kseg.log.sources import StrPaths, paths_of, sources


@dataclass(slots=True)
class TopicSize:
    """The size of one topic, over all partitions that are here.

    Attributes:
        topic: its name.
        partitions: the number of its directories.
        segments, bytes: of their logs.
        offsets: from the start to the end of each log; compaction and transactions leave gaps, so
            the records may be fewer.
    """

    topic: str
    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    offsets: int = 0


class Topics(Table, tuple[TopicSize, ...]):
    """The topics by name; a table with a row for each."""

    __slots__ = ()

    @property
    def title(self) -> str:
        """The names."""
        return ", ".join(each.topic for each in self)

    def table_rows(self) -> Sequence[Mapping[str, Any]]:
        """The attributes of each topic."""
        return [asdict(each) for each in self]


def topics(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
) -> Topics:
    """List the topics of data directories; no record is read.

    Args:
        paths: data directories and partitions, or globs.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.

    Raises:
        NotALogError, ValueError, TypeError, OSError: as for `kseg.scan`.

    Example:
        >>> [(each.topic, each.partitions) for each in topics(".")]
        [('clicks', 2), ('orders', 2), ('payments', 1)]
    """
    found: dict[str, TopicSize] = {}
    chosen = sources(paths_of(paths), Selection.of(topics, partitions), replicas="all")
    for directory, source in {one.directory: one for one in chosen}.items():
        view = LogView.open(directory)
        name = source.topic or directory.name
        size = found.setdefault(name, TopicSize(name))
        size.partitions += 1
        size.segments += len(view.segments)
        size.bytes += sum(info.size for info in view.segments)
        size.offsets += view.log_end_offset - view.log_start_offset
    return Topics(found[name] for name in sorted(found))


__all__ = ["TopicSize", "Topics", "topics"]
