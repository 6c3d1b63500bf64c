"""The files and partitions that paths name, each once, with the topic and partition of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kseg.errors import NotALogError
from kseg.files.grammar import parse_partition_dir
from kseg.files.names import (
    PartitionDirectory,
    PartitionName,
    PathKind,
    Unreadable,
    classify_path,
    find_replicas,
    readable_partitions,
    without_set_aside,
)
from kseg.files.selection import NothingChosenError, Selection, StrPaths
from kseg.stores.path import RemotePath, paths_of

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.log.reader.view import LogView
    from kseg.log.tier.tier import Tier

#: The directories of one partition that are read.
Replicas = Literal["refuse", "newest", "first", "all"]


@dataclass(frozen=True, slots=True)
class ScanSource:
    """One thing to read: a file of batches or a partition directory, and where it belongs.

    Attributes:
        path: the file or the directory; with a tier it need not be there.
        is_file: whether it is a file.
        topic, partition: by the name of the directory.
        tier: where the partition has further segments.
    """

    path: Path
    is_file: bool
    topic: str | None
    partition: int | None
    tier: Tier | None = None

    def view(self, mapping: Mapping = "auto") -> LogView:
        """The partition at this moment, with its segments in the tier.

        Raises:
            KsegError, OSError: as `LogView.open` and `Tier.log` raise them.
        """
        if self.tier is not None:
            return self.tier.log(self.path, mapping=mapping).view
        from kseg.log.reader.view import LogView  # files are read without it

        return LogView.open(self.path, mapping=mapping)

    @property
    def directory(self) -> Path:
        """The partition directory."""
        return self.path.absolute().parent if self.is_file else self.path


def sources(
    paths: Sequence[Path],
    selection: Selection,
    *,
    replicas: str = "refuse",
    skipped: list[Unreadable] | None = None,
    tier: Tier | None = None,
) -> tuple[ScanSource, ...]:
    """Find the sources: each partition and file once, in the order of the paths.

    Args:
        paths: files, partitions and data directories.
        selection: the chosen partitions.
        replicas: "refuse" several directories of one partition; or read the "newest" (by its last
            leader epoch, then its end), the "first" that is named, or "all".
        skipped: takes the paths and partitions that cannot be read; None to raise the first error.
        tier: has further segments of the partitions; a partition that is only there is named by
            the directory that it would have.

    Raises:
        NotALogError: a path is nothing that kseg reads, or no partition is there.
        ValueError: nothing is chosen; the message lists the choices. Or a partition has several
            directories, which are refused.
        OSError: a path is missing, or cannot be read.
    """
    here: list[PartitionName | None] = []
    takes = partial(_chosen, selection=selection, here=here, tier=tier)
    readable = [one for path in paths for one in _readable(path, takes, skipped)]
    if not readable and any(not _is_chosen(selection, name) for name in here):
        there = ((name.topic, name.partition) for name in here if name is not None)
        raise NothingChosenError(selection.why_nothing(there))
    if not readable and not skipped:
        raise NotALogError("no partition is here", path=paths[0])
    places: dict[str, ScanSource] = {}
    for source in readable:
        places.setdefault(os.path.realpath(source.path), source)
    kept = tuple(
        source
        for place, source in places.items()
        if not (source.is_file and os.path.dirname(place) in places)
    )
    two = find_replicas(source.directory for source in kept)
    if two is None or replicas == "all":
        return kept
    if replicas == "refuse":
        ways = "replicas='newest', 'first' or 'all' reads them, or this joins them"
        raise ValueError(f"{two.reason}: {ways}:\n{two.command}")
    return tuple(_one_of_each(kept, newest=replicas == "newest"))


def places_of(
    paths: StrPaths, selection: Selection, skipped: list[Unreadable] | None = None
) -> list[Path]:
    """The paths that a caller names, for an analysis; with a selection, the chosen ones in them.

    Args:
        paths: files, partitions and data directories, or globs.
        selection: the chosen partitions.
        skipped: takes the paths and partitions that cannot be read; None to raise the first error.

    Raises:
        TypeError, ValueError, NotALogError, OSError: as `paths_of` and `sources` raise them.
    """
    found = paths_of(paths)
    if not selection:
        return found
    chosen = sources(found, selection, replicas="all", skipped=skipped)
    return [one.path for one in chosen]


def _one_of_each(kept: Sequence[ScanSource], *, newest: bool) -> Iterator[ScanSource]:
    """The sources in one directory of each partition."""
    directories: dict[tuple[str, int], dict[str, Path]] = {}
    for one in kept:
        if one.topic is not None and one.partition is not None:
            places = directories.setdefault((one.topic, one.partition), {})
            places.setdefault(os.path.realpath(one.directory), one.directory)
    best = {
        key: max(places, key=lambda place: _age(places[place])) if newest else next(iter(places))
        for key, places in directories.items()
    }
    for one in kept:
        key = (one.topic, one.partition)
        if key not in best or best[key] == os.path.realpath(one.directory):
            yield one


def _age(directory: Path) -> tuple[int, int]:
    """The last leader epoch of a log, and its end."""
    from kseg.log.reader.view import LogView  # only replicas are compared

    view = LogView.open(directory)
    epochs = view.leader_epochs
    return epochs[-1].epoch if epochs else -1, view.log_end_offset


def _readable(
    path: Path,
    chosen: Callable[[Path, list[Unreadable] | None], Iterator[ScanSource]],
    skipped: list[Unreadable] | None,
) -> Iterator[ScanSource]:
    """The chosen sources of a path; unreadable ones go to `skipped`, or raise their error."""
    try:
        yield from chosen(path, skipped)
    except OSError as error:
        if skipped is None:
            raise
        skipped.append(Unreadable(path, error))


def _chosen(
    path: Path,
    skipped: list[Unreadable] | None,
    *,
    selection: Selection,
    here: list[PartitionName | None],
    tier: Tier | None,
) -> Iterator[ScanSource]:
    """The chosen sources of a path, in order."""
    if tier is not None and not isinstance(path, RemotePath) and not os.path.lexists(path):
        here.append(parse_partition_dir(path.name))
        if _is_chosen(selection, here[-1]):
            yield _source(path, is_file=False, name=here[-1], tier=tier)
        return
    known = classify_path(path)
    if known.kind is PathKind.FILE:
        if tier is not None:
            raise NotALogError(
                "a tier has further segments of a partition, not of a file", path=path
            )
        if known.file is None or not known.file.kind.holds_batches:
            raise NotALogError("not a file of batches", path=path)
        here.append(_partition_around(path))
        if _is_chosen(selection, here[-1]):
            yield _source(path, is_file=True, name=here[-1])
        return

    def is_chosen(entry: PartitionDirectory) -> bool:
        return _is_chosen(selection, entry.name)

    if known.data_directory is None:
        found = [PartitionDirectory(path, known.partition, known.partition_files)]
    else:
        listing = known.data_directory
        found = without_set_aside((*listing.partitions, *listing.lost), is_chosen)
    here += [entry.name for entry in found]
    wanted = filter(is_chosen, found)
    for entry in readable_partitions(wanted, skipped):
        yield _source(entry.path, is_file=False, name=entry.name, tier=tier)


def _is_chosen(selection: Selection, name: PartitionName | None) -> bool:
    return selection.takes(name and name.topic, name and name.partition)


def _partition_around(file: Path) -> PartitionName | None:
    """The partition that a file's directory is named for."""
    try:
        return parse_partition_dir(file.absolute().parent.name)
    except NotALogError:
        return None


def _source(
    path: Path, *, is_file: bool, name: PartitionName | None, tier: Tier | None = None
) -> ScanSource:
    tier = None if name is None or is_file else tier  # a copy under another name has none
    return ScanSource(path, is_file, name and name.topic, name and name.partition, tier)


__all__ = ["Replicas", "ScanSource", "StrPaths", "paths_of", "places_of", "sources"]
