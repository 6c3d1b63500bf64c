"""From the PATHs of a command line to the files that a verb goes through, in file order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import click

from kseg.cli.failures import Exit, complain, has_passed_over, pass_over, usage_errors
from kseg.errors import NotALogError
from kseg.files.names import (
    FileKind,
    FileName,
    KnownPath,
    PartitionDirectory,
    PartitionFiles,
    PathKind,
    Unreadable,
    classify_path,
    find_replicas,
    is_new,
    list_partition,
    parse_name,
    parse_partition_dir,
    readable_partitions,
    without_set_aside,
)
from kseg.files.selection import Selection
from kseg.stores.path import is_remote, place

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.log.reader import LogView
    from kseg.log.tier import Tier


class InputFile(NamedTuple):
    """One file to go through.

    Attributes:
        path: the file.
        name: its parsed name.
        directory: name of its partition directory, where a directory was asked for; else None.
        topic: by the partition directory's name, else None.
        partition: likewise.
    """

    path: Path
    name: FileName
    directory: str | None = None
    topic: str | None = None
    partition: int | None = None


class Partition(NamedTuple):
    """A partition directory and its parsed name."""

    path: Path
    topic: str | None
    partition: int | None


def tier_of_run() -> Tier | None:
    """The tier that `--tier` names, made once; None without that option.

    Raises:
        UsageError: `--tier-key` or `--topic-id` is malformed, or stands alone.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    meta = context.meta
    url, given = meta.get("kseg.tier"), meta.get("kseg.tier_key") or ()
    topic_id = meta.get("kseg.topic_id")
    if url is None:
        if given or topic_id:
            raise click.UsageError("--tier-key and --topic-id need --tier.")
        return None
    if not isinstance(url, str):
        return cast("Tier", url)
    from kseg.log.tier import Tier  # few runs have one

    pairs = [one.partition("=") for one in given]
    if not all(id_ and file for id_, _, file in pairs):
        raise click.UsageError("--tier-key is ID=FILE.")
    with usage_errors():
        tier = Tier.of(url, keys={id_: file for id_, _, file in pairs}, topic_id=topic_id)
    meta["kseg.tier"] = tier
    return tier


def tier_of_plans() -> Tier:
    """The tier of this run, or the metadata topics beside the partitions; each is read once."""
    from kseg.log.tier import Tier

    return tier_of_run() or Tier.beside()


def view_of(path: Path, mapping: Mapping = "auto") -> LogView:
    """A partition with its segments in the tier of this run.

    Raises:
        KsegError, OSError: as `LogView.open` and `Tier.log` raise them.
    """
    from kseg.catalog.sources import ScanSource  # a dump of files does without

    name = partition_at(path)
    return ScanSource(path, False, name.topic, name.partition, tier_of_run()).view(mapping)


def known_path(path: str) -> KnownPath:
    """Classify a path.

    Raises:
        UsageError: standard input, which most verbs do not read.
        NotALogError: not a file of Kafka's, or a segment's extension after text that is not an
        offset.
        OSError: missing, or not to be listed.
    """
    if path == "-":
        raise click.UsageError("- is standard input, which only dump and convert take for a PATH.")
    with usage_errors():
        where = place(path)
    if tier_of_run() is not None and not is_remote(path) and not os.path.lexists(where):
        name = parse_partition_dir(Path(where).name)
        files = PartitionFiles(Path(where), name)
        return KnownPath(Path(where), PathKind.PARTITION, partition=name, listing=files)
    known = classify_path(where)
    if known.kind is PathKind.FILE and known.file is not None and known.file.base_offset is None:
        # The library is lenient with hand-made names; here a wrong one is an error.
        try:
            parse_name(known.path.name)
        except NotALogError as error:
            raise NotALogError(
                f"{error.reason}; on standard input, as -, dump and convert take any", path=path
            ) from None
    return known


def is_one_log(paths: Sequence[str]) -> bool:
    """Whether one partition directory was given, so that all settings are given for it."""
    return len(paths) == 1 and known_path(paths[0]).kind is PathKind.PARTITION


def known_paths(paths: Sequence[str]) -> Iterator[tuple[str, KnownPath]]:
    """Classify each path; of several, report and skip a path that cannot be read.

    Raises:
        OSError: the only one is missing, or not to be listed.
        UsageError, NotALogError: as `known_path` has it.
    """
    for path in paths:
        try:
            known = known_path(path)
        except OSError as error:
            if len(paths) == 1:
                raise
            pass_over(error)
        else:
            yield path, known


def sources(paths: Sequence[str], selection: Selection) -> Iterator[InputFile]:
    """The files of batches under the paths, and every path that is a file itself."""
    for path, known in known_paths(paths):
        if known.kind is PathKind.FILE:
            assert known.file is not None
            if _file_is_chosen(known.path, selection):
                yield InputFile(known.path, known.file)
            continue
        for partition in partitions((path,), selection):
            yield from batch_files(partition)


def batch_files(partition: Partition) -> Iterator[InputFile]:
    """Segments and KRaft snapshots of a partition directory, by file name."""
    remote = tier_of_run()
    listing = list_partition(partition.path) if remote is None else view_of(partition.path).files
    found = [
        (
            segment.log,
            FileName(FileKind.KAFKA07 if segment.kafka07 else FileKind.LOG, segment.base_offset),
        )
        for segment in listing.segments
    ]
    found += [(snapshot.path, snapshot.name) for snapshot in listing.kraft_snapshots]
    directory = partition.path.resolve().name
    for path, name in sorted(found, key=lambda pair: pair[0].name):
        yield InputFile(path, name, directory, partition.topic, partition.partition)


def partitions(
    paths: Sequence[str], selection: Selection, *, strict: bool = False, set_aside: bool = False
) -> Iterator[Partition]:
    """The chosen partition directories among the paths and in them.

    Reports an unreadable path on standard error and skips it: the verb goes on with the rest, and
    exits with 1 if it finds damage, else with 3.

    Args:
        paths: partition directories and data directories.
        selection: of topics and partitions.
        strict: skip nothing, for verbs that remove records.
        set_aside: also the partitions of data directories that no broker serves.

    Raises:
        NotALogError: a path is neither, or nothing in all of them is chosen.
        OSError: the only path cannot be read; with `strict`, any of them.
    """
    known_ones = ((path, known_path(path)) for path in paths) if strict else known_paths(paths)
    here: list[PartitionDirectory] = []
    is_any = False
    for path, known in known_ones:
        if known.kind is PathKind.FILE:
            raise NotALogError(
                f"a file; this verb needs a directory, such as {os.path.dirname(path) or '.'}",
                path=path,
            )
        found = _entries(known, selection, strict=strict, set_aside=set_aside)
        chosen = [one for one in found if _is_chosen(one, selection)]
        here.extend(found)
        is_any |= bool(chosen)
        skipped = list[Unreadable]()
        readable = chosen if strict else list(readable_partitions(chosen, skipped))
        for one in skipped:
            pass_over(one.error)
        yield from (partition_at(entry.path) for entry in readable)
    if not is_any and selection:
        every = (partition_at(one.path) for one in here)
        reason = selection.why_nothing((one.topic, one.partition) for one in every)
        raise NotALogError(reason, path=", ".join(paths))


def logs_once(path: str, selection: Selection, seen: set[str]) -> Iterator[Partition]:
    """The chosen partitions of a path for verbs that give records: each once.

    Args:
        path: as it was typed, of a directory.
        selection: of topics and partitions.
        seen: the directories so far, under any path; the directories of this path are added.
    """
    for partition in partitions((path,), selection):
        if is_new(partition.path, seen):
            yield partition


def refuse_replicas(paths: Sequence[str], selection: Selection, *, files: bool = True) -> None:
    """Refuse two directories of one partition: their records would count twice.

    Args:
        paths: of any kind; unreadable ones are left to the verb.
        selection: of topics and partitions.
        files: whether single files count, too.

    Raises:
        Exit: there are two, which was reported, with the ways out.
    """
    directories: list[Path] = []
    for path in paths if len(paths) > 1 else ():
        with suppress(OSError, NotALogError), usage_errors():
            known = classify_path(place(path))
            if known.kind is not PathKind.FILE:
                entries = _entries(known, selection, strict=True)
                chosen = (entry for entry in entries if _is_chosen(entry, selection))
                directories += [entry.path for entry in chosen]
            elif files and _file_is_chosen(known.path, selection):
                directories.append(known.path.absolute().parent)
    replicas = find_replicas(directories)
    if replicas is not None:
        complain(f"kseg: {replicas.reason}:")
        complain(f"  {replicas.command}")
        raise click.exceptions.Exit(Exit.USAGE)


def one_partition(paths: Sequence[str], selection: Selection, *, strict: bool = False) -> Partition:
    """The chosen partition, for verbs that take exactly one.

    Raises:
        UsageError: there is none, or several.
        Exit: it cannot be read, which was reported.
        NotALogError, OSError: as `partitions` has it.
    """
    found = list(partitions(paths, selection, strict=strict))
    if not found and has_passed_over():
        raise click.exceptions.Exit(Exit.FILES)
    if len(found) != 1:
        raise click.UsageError(
            f"{len(found)} partitions here, and one is wanted; --topic and --partition choose it."
        )
    return found[0]


def _entries(
    known: KnownPath, selection: Selection, *, strict: bool, set_aside: bool = False
) -> list[PartitionDirectory]:
    if known.kind is PathKind.PARTITION:
        return [PartitionDirectory(known.path, known.partition, known.partition_files)]
    listing = known.data_directory
    assert listing is not None
    entries = [*listing.partitions, *(() if strict else listing.lost)]
    if set_aside:
        return entries
    return without_set_aside(entries, partial(_is_chosen, selection=selection))


def _is_chosen(entry: PartitionDirectory, selection: Selection) -> bool:
    one = partition_at(entry.path)
    return selection.takes(one.topic, one.partition)


def places(paths: Sequence[str], selection: Selection) -> Iterator[str]:
    """The paths themselves, or the partitions in them that are chosen; see `partitions`.

    Raises:
        NotALogError: a path is not Kafka's, or nothing in it is chosen.
        OSError: the only path cannot be read.
    """
    seen: set[str] = set()
    for path, _known in known_paths(paths):
        chosen = (str(one.path) for one in partitions((path,), selection)) if selection else (path,)
        yield from (one for one in chosen if is_new(one, seen))


def partition_at(path: Path) -> Partition:
    """A directory with its parsed name; None for a name that Kafka would not accept."""
    try:
        # `resolve` would not take a link in a circle.
        name = parse_partition_dir(os.path.basename(os.path.realpath(path)))
    except NotALogError:
        return Partition(path, None, None)
    return Partition(path, name.topic, name.partition)


def _file_is_chosen(path: Path, selection: Selection) -> bool:
    if not selection:
        return True
    parent = partition_at(path.absolute().parent)
    return selection.takes(parent.topic, parent.partition)
