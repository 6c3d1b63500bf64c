"""`topics`: the topics of data directories, in a small table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kseg.analysis.units import Progress
from kseg.files.selection import Selection
from kseg.frames import Listed
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


@dataclass(frozen=True, slots=True, repr=False)
class Topics(Listed[TopicSize]):
    """The topics by name; a table with a row for each."""

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
    progress: Progress | None = None,
) -> Topics:
    """List the topics of data directories; no record is read.

    Args:
        paths: data directories and partitions, or globs.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
        progress: called with partitions done and partitions in all.

    Raises:
        NotALogError, ValueError, TypeError, OSError: as for `kseg.scan`.

    Example:
        >>> [(each.topic, each.partitions) for each in topics(".")]
        [('clicks', 2), ('orders', 2), ('payments', 1)]
    """
    found: dict[str, TopicSize] = {}
    chosen = sources(paths_of(paths), Selection.of(topics, partitions), replicas="all")
    directories = {one.directory: one for one in chosen}
    for done, (directory, source) in enumerate(directories.items(), 1):
        view = LogView.open(directory)
        name = source.topic or directory.name
        size = found.setdefault(name, TopicSize(name))
        size.partitions += 1
        size.segments += len(view.segments)
        size.bytes += sum(info.size for info in view.segments)
        size.offsets += view.log_end_offset - view.log_start_offset
        if progress is not None:
            progress(done, len(directories))
    return Topics(tuple(found[name] for name in sorted(found)))


__all__ = ["TopicSize", "Topics", "topics"]
