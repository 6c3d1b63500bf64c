"""Which copies belong together: joined by topic, partition and topic id."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from kseg.catalog import Catalog, partition_at
from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import NotALogError, os_reason
from kseg.files.metadata import stored_topic_id
from kseg.files.names import list_partition
from kseg.files.selection import Chosen
from kseg.stores.path import is_remote, name_of, path_at

#: Topic and number; both None for copies that are given as partition directories.
_Key = tuple[str | None, int | None]
_NO_KEY: _Key = (None, None)


@frozen_dataclass
class CopyPath:
    """A copy to compare.

    Attributes:
        path: its directory, or the data directory that lacks it.
        topic_id: from `partition.metadata`; None if that has none.
        error: why it cannot be listed; None if it can.
        lacks: "absent" or "other-topic" where there is nothing to compare.
    """

    path: str
    topic_id: UUID | None = None
    error: str | None = None
    lacks: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether there is something to compare."""
        return self.error is None and self.lacks is None


@frozen_dataclass
class JoinedCopies:
    """The copies of one partition.

    Attributes:
        topic, partition: from the directories' names; None if the names of the copies differ.
        copies: in their order, missing ones last.
    """

    topic: str | None
    partition: int | None
    copies: tuple[CopyPath, ...]

    @property
    def topic_id(self) -> UUID | None:
        """The id of the topic; None if no copy has it."""
        return next(
            (copy.topic_id for copy in self.copies if copy.topic_id and not copy.lacks), None
        )


@frozen_dataclass
class _NamedCopy:
    """A copy that the caller named, and the partitions in it."""

    directories: tuple[Path, ...]
    is_partition: bool
    partitions: dict[_Key, Path]

    @property
    def path(self) -> str:
        """The name of the copy: its directories with commas between them."""
        return ",".join(map(str, self.directories))


def places_of(copy: StrPath) -> tuple[Path, ...]:
    """The directories of a copy: one, or several of one broker, with commas as in `log.dirs`.

    If the whole name exists, it is one directory, commas or not.

    Raises:
        OSError: a directory is missing.
    """
    text = os.fspath(copy)
    if is_remote(text):
        return (path_at(copy),)
    if "," not in text or os.path.lexists(text):
        return (Path(text),)
    directories = tuple(Path(part) for part in text.split(",") if part)
    for directory in directories:
        os.stat(directory)
    return directories


def join_copies(paths: Sequence[StrPath], chosen: Chosen | None = None) -> list[JoinedCopies]:
    """The partitions under some paths, each with its copies, and once for each topic id.

    Args:
        paths: partition directories, copies of one partition whatever their names; or data
            directories, and partition directories among them by their names. Two or more. The data
            directories of one broker are one copy, with commas between them as in `log.dirs`.
        chosen: leaves out partitions of data directories.

    Raises:
        ValueError: fewer than two paths, or the same directory twice.
        NotALogError: a path is not Kafka's, or is a file; or nothing is chosen.
        OSError: a path is missing or cannot be listed.
    """
    named_copies = [_named_copy(places_of(path)) for path in paths]
    _check(named_copies)
    if all(copy.is_partition for copy in named_copies):
        names = {key for copy in named_copies for key in copy.partitions}
        # All are copies of one partition; it has a name only if their names agree.
        name = names.pop() if len(names) == 1 else _NO_KEY
        named_copies = [
            replace(copy, partitions={_NO_KEY: copy.directories[0]}) for copy in named_copies
        ]
        return list(_copies_by_topic_id(name, named_copies, _NO_KEY))
    keys = sorted({key for copy in named_copies for key in copy.partitions}, key=str)
    chosen_keys = [key for key in keys if chosen is None or chosen(*key)]
    if not chosen_keys:
        raise NotALogError("no partition here is chosen", path=named_copies[0].path)
    return [joined for key in chosen_keys for joined in _copies_by_topic_id(key, named_copies, key)]


def _named_copy(directories: tuple[Path, ...]) -> _NamedCopy:
    """A named copy with its live partitions: deleted, future and stray ones do not count.

    Unreadable partitions are among them; the comparison reports them.
    """
    catalog = Catalog.of(directories, replicas="all", on_error="skip", files="refuse")
    for path, _, error in catalog.skipped:
        if path in catalog.named and error is not None:
            raise error
    entries = [*catalog, *(partition_at(entry.path) for entry in catalog.skipped)]
    named_partitions = [entry.path for entry in entries if entry.path in catalog.named]
    if named_partitions and len(directories) > 1:
        raise NotALogError(
            "a partition directory among the data directories of a broker", path=named_partitions[0]
        )
    partitions: dict[_Key, Path] = {}
    for entry in entries:
        if entry.name is not None and entry.kind is None:
            other = partitions.setdefault((entry.topic, entry.partition), entry.path)
            if other is not entry.path:
                raise NotALogError(f"the partition lies in {other}, too", path=entry.path)
    return _NamedCopy(directories, bool(named_partitions), partitions)


def _check(named_copies: Sequence[_NamedCopy]) -> None:
    """Refuse fewer than two copies, and the same directory in two copies."""
    if len(named_copies) < 2:
        raise ValueError("give two copies or more")
    seen: dict[str, Path] = {}
    for copy in named_copies:
        paths = (*copy.directories, *copy.partitions.values())
        directories = {os.path.realpath(path): path for path in paths}
        for real_path, path in directories.items():
            if real_path in seen:
                raise ValueError(f"{seen[real_path]} and {path} are the same directory")
        seen |= directories


def _copies_by_topic_id(
    name: _Key, named_copies: Sequence[_NamedCopy], key: _Key
) -> Iterator[JoinedCopies]:
    """The copies of one partition, keyed by topic id.

    A copy without an id belongs to the copies of the first one with an id.
    """
    copy_paths = [_copy_path(copy.partitions.get(key), copy.path) for copy in named_copies]
    ids = list(dict.fromkeys(copy.topic_id for copy in copy_paths if copy.topic_id is not None))
    for topic_id in ids or (None,):
        is_first = topic_id is None or topic_id == ids[0]
        copies = [_as_of(copy, topic_id, takes_unknown=is_first) for copy in copy_paths]
        copies.sort(key=lambda copy: copy.lacks is not None)
        yield JoinedCopies(*name, tuple(copies))


def _copy_path(path: Path | None, named_path: str) -> CopyPath:
    """The partition in one of the named copies; marked "absent" if the copy lacks it."""
    if path is None:
        return CopyPath(named_path, lacks="absent")
    try:
        listing = list_partition(path)
    except OSError as error:
        return CopyPath(name_of(path), error=os_reason(error))
    return CopyPath(name_of(path), stored_topic_id(listing.metadata))


def _as_of(copy: CopyPath, topic_id: UUID | None, *, takes_unknown: bool) -> CopyPath:
    """A copy, marked as one of the topic with an id or as one of another topic.

    Args:
        copy: the copy, with its own topic id, if it has one.
        topic_id: the topic's.
        takes_unknown: whether copies without an id count as this topic's.
    """
    is_unknown = copy.topic_id is None
    if copy.lacks is not None or copy.topic_id == topic_id or (is_unknown and takes_unknown):
        return copy
    return replace(copy, lacks="absent" if is_unknown else "other-topic")
