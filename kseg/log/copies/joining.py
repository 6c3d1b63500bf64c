"""Which copies belong together: joined by topic, partition and topic id."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from kseg.catalog.catalog import Catalog, partition_at
from kseg.errors import NotALogError, os_reason
from kseg.files.io import StrPath
from kseg.files.names import list_partition
from kseg.files.selection import Chosen
from kseg.log.salvage.provable import topic_id_of
from kseg.stores.path import is_remote, name_of, path_at

#: Topic and number; both None for copies that are given as partition directories.
_Key = tuple[str | None, int | None]
_NO_KEY: _Key = (None, None)


@dataclass(frozen=True, slots=True)
class CopyPath:
    """A copy to compare.

    Attributes:
        path: its directory, or the data directory that lacks it.
        topic_id: as `partition.metadata` says; None without one.
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


@dataclass(frozen=True, slots=True)
class JoinedCopies:
    """The copies of one partition.

    Attributes:
        topic, partition: by the directories' names; None for copies whose names do not agree.
        copies: in their order, missing ones last.
    """

    topic: str | None
    partition: int | None
    copies: tuple[CopyPath, ...]

    @property
    def topic_id(self) -> UUID | None:
        """Of the topic; None where no copy says it."""
        return next((one.topic_id for one in self.copies if one.topic_id and not one.lacks), None)


@dataclass(frozen=True, slots=True)
class _Given:
    """A copy that was given, and the partitions in it."""

    places: tuple[Path, ...]
    is_partition: bool
    partitions: dict[_Key, Path]

    @property
    def path(self) -> str:
        """As it was given, or could have been."""
        return ",".join(map(str, self.places))


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
    places = tuple(Path(part) for part in text.split(",") if part)
    for place in places:
        os.stat(place)
    return places


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
    given = [_given(places_of(path)) for path in paths]
    _check(given)
    if all(each.is_partition for each in given):
        names = {key for each in given for key in each.partitions}
        name = names.pop() if len(names) == 1 else _NO_KEY
        given = [replace(each, partitions={_NO_KEY: each.places[0]}) for each in given]
        return list(_joined(name, given, _NO_KEY))
    keys = sorted({key for each in given for key in each.partitions}, key=str)
    wanted = [key for key in keys if chosen is None or chosen(*key)]
    if not wanted:
        raise NotALogError("no partition here is chosen", path=given[0].path)
    return [one for key in wanted for one in _joined(key, given, key)]


def _given(places: tuple[Path, ...]) -> _Given:
    """The live partitions of a copy: deleted, future and stray ones are no copies.

    Unreadable ones are among them, which the comparison says.
    """
    catalog = Catalog.of(places, replicas="all", on_error="skip", files="refuse")
    for path, _, error in catalog.skipped:
        if path in catalog.named and error is not None:
            raise error
    found = [*catalog, *(partition_at(entry.path) for entry in catalog.skipped)]
    alone = [entry.path for entry in found if entry.path in catalog.named]
    if alone and len(places) > 1:
        raise NotALogError(
            "a partition directory among the data directories of a broker", path=alone[0]
        )
    partitions: dict[_Key, Path] = {}
    for entry in found:
        if entry.name is not None and entry.kind is None:
            other = partitions.setdefault((entry.topic, entry.partition), entry.path)
            if other is not entry.path:
                raise NotALogError(f"the partition lies in {other}, too", path=entry.path)
    return _Given(places, bool(alone), partitions)


def _check(given: Sequence[_Given]) -> None:
    """Refuse to compare a directory with itself."""
    if len(given) < 2:
        raise ValueError("give two copies or more")
    seen: dict[str, Path] = {}
    for each in given:
        found = (*each.places, *each.partitions.values())
        places = {os.path.realpath(path): path for path in found}
        for place, path in places.items():
            if place in seen:
                raise ValueError(f"{seen[place]} and {path} are the same directory")
        seen |= places


def _joined(name: _Key, given: Sequence[_Given], key: _Key) -> Iterator[JoinedCopies]:
    """The copies of one partition, for each topic id that they have.

    A copy without an id belongs to the copies of the first one with an id.
    """
    found = [_copy(each.partitions.get(key), each.path) for each in given]
    ids = list(dict.fromkeys(each.topic_id for each in found if each.topic_id is not None))
    for topic_id in ids or (None,):
        home = topic_id is None or topic_id == ids[0]
        copies = [_as_of(each, topic_id, home=home) for each in found]
        copies.sort(key=lambda each: each.lacks is not None)
        yield JoinedCopies(*name, tuple(copies))


def _copy(path: Path | None, given: str) -> CopyPath:
    if path is None:
        return CopyPath(given, lacks="absent")
    try:
        listing = list_partition(path)
    except OSError as error:
        return CopyPath(name_of(path), error=os_reason(error))
    return CopyPath(name_of(path), topic_id_of(listing))


def _as_of(copy: CopyPath, topic_id: UUID | None, *, home: bool) -> CopyPath:
    """A copy, as one of the topic with an id or of another topic."""
    if copy.lacks is not None or copy.topic_id == topic_id or (copy.topic_id is None and home):
        return copy
    return replace(copy, lacks="absent" if copy.topic_id is None else "other-topic")
