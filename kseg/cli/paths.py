"""From the PATHs of a command line to the files that a verb goes through, in file order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from kseg.cli.options import Selection
from kseg.errors import NotALogError
from kseg.files.names import (
    FileKind,
    FileName,
    KnownPath,
    PathKind,
    classify_path,
    list_data_directory,
    list_partition,
    parse_name,
    parse_partition_dir,
)


@dataclass(frozen=True, slots=True)
class Source:
    """One file to go through.

    Attributes:
        path: the file.
        name: what its name says.
        directory: name of its partition directory, where a directory was asked for; else None.
        topic: by the partition directory's name, else None.
        partition: likewise.
    """

    path: Path
    name: FileName
    directory: str | None = None
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition directory and what its name says."""

    path: Path
    topic: str | None
    partition: int | None


def known_path(path: str) -> KnownPath:
    """What a path is.

    Raises:
        UsageError: standard input, which most verbs have no use for.
        NotALogError: nothing of Kafka's, or a segment's extension after what is no offset.
        OSError: missing, or not to be listed.
    """
    if path == "-":
        raise click.UsageError("- is standard input, which only dump and convert take for a PATH.")
    known = classify_path(path)
    if known.kind is PathKind.FILE and known.file is not None and known.file.base_offset is None:
        # The library is lenient with hand-made names; here a wrong one is told.
        try:
            parse_name(known.path.name)
        except NotALogError as error:
            raise NotALogError(
                f"{error.reason}; on standard input, as -, dump and convert take any", path=path
            ) from None
    return known


def sources(paths: Iterable[str], selection: Selection) -> Iterator[Source]:
    """The batch-holding files under the paths, and any file that was named itself."""
    for path in paths:
        known = known_path(path)
        if known.kind is PathKind.FILE:
            assert known.file is not None
            if _file_is_chosen(known.path, selection):
                yield Source(known.path, known.file)
            continue
        for partition in partitions((path,), selection):
            yield from batch_files(partition)


def batch_files(partition: Partition) -> Iterator[Source]:
    """Segments and KRaft snapshots of a partition directory, by file name."""
    listing = list_partition(partition.path)
    found = [
        (segment.log, FileName(_log_kind(segment.kafka07), segment.base_offset))
        for segment in listing.segments
    ]
    found += [(snapshot.path, snapshot.name) for snapshot in listing.kraft_snapshots]
    directory = partition.path.resolve().name
    for path, name in sorted(found, key=lambda pair: pair[0].name):
        yield Source(path, name, directory, partition.topic, partition.partition)


def partitions(paths: Iterable[str], selection: Selection) -> Iterator[Partition]:
    """The partition directories that the paths are, or hold, as far as they are chosen.

    Raises:
        NotALogError: a path is neither, or nothing in it is chosen.
    """
    for path in paths:
        known = known_path(path)
        if known.kind is PathKind.FILE:
            raise NotALogError("a file; this verb wants a directory", path=path)
        if known.kind is PathKind.PARTITION:
            found = [partition_at(known.path)]
        else:
            listing = list_data_directory(known.path)
            found = [partition_at(entry.path) for entry in listing.partitions]
        chosen = [one for one in found if selection.takes(one.topic, one.partition)]
        if not chosen and selection:
            raise NotALogError("no partition here is chosen by --topic and --partition", path=path)
        yield from chosen


def places(paths: Iterable[str], selection: Selection) -> Iterator[str]:
    """The paths themselves, or the partitions in them that are chosen.

    Raises:
        NotALogError: a path is nothing of Kafka's, or nothing in it is chosen.
    """
    for path in paths:
        known_path(path)
        if selection:
            yield from (str(partition.path) for partition in partitions((path,), selection))
        else:
            yield path


def partition_at(path: Path) -> Partition:
    """What a directory's name says; nothing for one under a name that Kafka would not take."""
    try:
        name = parse_partition_dir(path.resolve().name)
    except NotALogError:
        return Partition(path, None, None)
    return Partition(path, name.topic, name.partition)


def _file_is_chosen(path: Path, selection: Selection) -> bool:
    if not selection:
        return True
    parent = partition_at(path.absolute().parent)
    return selection.takes(parent.topic, parent.partition)


def _log_kind(kafka07: bool) -> FileKind:
    return FileKind.KAFKA07 if kafka07 else FileKind.LOG
