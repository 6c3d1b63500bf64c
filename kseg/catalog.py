"""`Catalog`: the partitions at paths, each once, and what was left out of them.

Every verb, function and Spark task asks `Catalog.of`. Paths are files, partition directories and
data directories of this machine, URLs, and globs over all of these. The order is that of the paths,
then that of a data directory's listing. Left out are copies that a broker has set aside, replicas,
and what cannot be read. It knows names and directories alone: `kseg.files.names` sorts the names of
one directory, `kseg.log.reader.LogView.at` opens a partition.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

from kseg.commands import command_line, note
from kseg.documents import frozen_dataclass
from kseg.errors import NotALogError
from kseg.files.names import (
    DataDirectory,
    LeftOut,
    Partition,
    PartitionFiles,
    PartitionName,
    PathKind,
    classify_path,
    parse_partition_dir,
    partition_name,
    path_order,
)
from kseg.files.selection import ALL, Chosen, NothingChosenError, Selection, StrPaths
from kseg.format.request import check_word
from kseg.stores.path import RemotePath, is_remote, local_path_at, path_at
from kseg.stores.store import Store, check_url

#: Which directories of one partition are read.
Replicas = Literal["refuse", "newest", "first", "all"]
#: The files that may be named: none, files of batches, or all of Kafka's.
Files = Literal["refuse", "batches", "all"]
#: The treatment of paths that cannot be read.
OnError = Literal["raise", "skip"]

_SET_ASIDE: Final = {
    "delete": "left out: a broker deletes it; give this path to read it",
    "future": "left out: a broker was copying the log to here; give this path to read it",
    "stray": "left out: a broker put it aside; give this path to read it",
}
#: Directories that have a line each.
_LINES_MAX: Final = 5


class ReplicasError(ValueError):
    """Two directories are replicas of one partition, whose records would count twice.

    Attributes:
        reason: a sentence.
        command: the command that makes one log of both directories.
    """

    def __init__(self, name: str, first: Path, second: Path) -> None:
        """Store the name of the partition and its directories, as the caller spelled them."""
        self.reason = (
            f"{name} is both {first} and {second}: the records of replicas "
            "would count twice; read one of them, or make one log of both"
        )
        self.command = command_line("kseg", "merge", first, second, "-o", "OUT")
        ways = "replicas='newest', 'first' or 'all' reads them, or this joins them"
        super().__init__(f"{self.reason}: {ways}:\n{self.command}")


@frozen_dataclass
class Catalog:
    """The partitions at paths, as every reader of kseg finds them.

    Attributes:
        partitions: each once, in order.
        selection: the selection that chose them.
        left_out: the paths that are not read; a line was written about those that a broker has set
            aside, and about replicas.
        data_directories: the data directories among the paths.
        not_chosen: the partitions that the selection does not choose.
        named: the paths as they were given, but for globs.
    """

    partitions: tuple[Partition, ...]
    selection: Selection | Chosen = ALL
    left_out: tuple[LeftOut, ...] = ()
    data_directories: tuple[DataDirectory, ...] = ()
    not_chosen: tuple[Partition, ...] = ()
    named: frozenset[Path] = frozenset()

    @classmethod
    def of(
        cls,
        paths: StrPaths,
        selection: Selection | Chosen = ALL,
        *,
        tier: Any = None,
        replicas: str | Callable[[Path], Any] = "refuse",
        set_aside: bool = False,
        on_error: str = "raise",
        files: Files = "batches",
        may_be_empty: bool = False,
    ) -> Catalog:
        """List the partitions.

        Args:
            paths: one or several.
            selection: the chosen partitions; a function takes a topic and a number, which are None
                for a directory under another name, and says whether the partition is chosen.
            tier: a `kseg.log.tier.Tier` with further segments of the partitions; a partition that
                is only there is named by the directory that it would have.
            replicas: "refuse" several directories of one partition; or take the "first" that is
                named, "all", or that with the largest value of a function of the directory.
            set_aside: include the partitions of data directories that no broker serves. A path
                that names such a partition includes it anyway.
            on_error: "raise" the error of the first path that cannot be read, or "skip" it.
            files: the files that paths may name, beside directories: "refuse" all, accept those of
                "batches", or "all" files of Kafka.
            may_be_empty: accept that no partition is here, or that none is chosen.

        Raises:
            NotALogError: a path is nothing that kseg reads, or a glob names nothing else.
            NothingChosenError: nothing is chosen; the message lists the choices.
            ReplicasError: a partition has several directories, which are refused.
            TypeError, ValueError: a path is neither text nor a `Path`, or a malformed URL.
            OSError: a path is missing, or cannot be read.

        Example:
            >>> catalog = Catalog.of("orders-0")
            >>> [(each.topic, each.partition, len(each.files.segments)) for each in catalog]
            [('orders', 0, 5)]
        """
        check_word("on_error", on_error, ("raise", "skip"))
        if isinstance(replicas, str):
            check_word("replicas", replicas, ("refuse", "first", "all"))
        left_out, data_directories = list[LeftOut](), list[DataDirectory]()
        listed = list[Partition]()
        spelled = named_paths(paths)
        named, refusals = frozenset(spelled), list[NotALogError]()
        for path in _expand_globs(spelled, left_out, logs=files == "batches"):
            try:
                entries = _entries(path, tier, files, whole=not selection)
            except NotALogError as refusal:
                refusals.append(refusal)
                if path in named:
                    raise
            except OSError as error:
                if path not in named and partition_name(path) is not None:
                    # A glob's match counts only if it is chosen: `_readable_entries` meets the
                    # error again.
                    listed.append(partition_at(path))
                else:
                    _skip(path, error, left_out, on_error)
            else:
                if isinstance(entries, DataDirectory):
                    data_directories.append(entries)
                    # Links without a target, too: to choose one is an error, as it has no log.
                    listed_here = entries.partitions + entries.lost
                    inside = (_with_tier_and_name(partition, tier) for partition in listed_here)
                    listed += _served_partitions(inside, selection, left_out, set_aside=set_aside)
                else:
                    listed.append(_with_tier_and_name(entries, tier))
        chosen, not_chosen = list[Partition](), list[Partition]()
        for entry in listed:
            (chosen if _selects(selection, entry) else not_chosen).append(entry)
        # First a selection that misses all partitions; then matches of a glob that are refused;
        # then directories without partitions. An unreadable path may have had partitions.
        if not_chosen and not chosen and not may_be_empty:
            raise NothingChosenError(_why_nothing(selection, not_chosen))
        if not (listed or may_be_empty or any(entry.error for entry in left_out)):
            if refusals:
                raise refusals[0]
            if files == "batches" and data_directories:
                raise NotALogError("no partition is here", path=data_directories[0].path)
        # Commands for all kinds of files report by themselves what they cannot read.
        trusted = named if files == "all" else frozenset[Path]()
        readable = _without_doubles(_readable_entries(chosen, trusted, left_out, on_error), files)
        partitions = take_replicas(readable, replicas, left_out, files)
        _tell(left_out)
        return cls(
            tuple(partitions),
            selection,
            tuple(left_out),
            tuple(data_directories),
            tuple(not_chosen),
            named,
        )

    def __iter__(self) -> Iterator[Partition]:
        """The partitions."""
        return iter(self.partitions)

    def __len__(self) -> int:
        """How many partitions there are."""
        return len(self.partitions)

    @property
    def skipped(self) -> tuple[LeftOut, ...]:
        """The paths that are left out because they cannot be read."""
        return tuple(entry for entry in self.left_out if entry.error is not None)


def _entries(path: Path, tier: Any, files: Files, *, whole: bool) -> Partition | DataDirectory:
    """The partition at a path, or the partitions of a data directory."""
    if tier is not None and not isinstance(path, RemotePath) and not os.path.lexists(path):
        name = parse_partition_dir(path.name)
        return Partition(path, name, PartitionFiles(path, name))
    classified = classify_path(path, whole=whole)
    if classified.data_directory is not None:
        return classified.data_directory
    if classified.kind is PathKind.PARTITION:
        return Partition(path, classified.partition, classified.partition_files)
    if files == "refuse":
        parent = os.path.dirname(path) or "."
        raise NotALogError(f"a file; this needs a directory, such as {parent}", path=path)
    if files == "batches" and tier is not None:
        raise NotALogError("a tier has further segments of a partition, not of a file", path=path)
    if files == "batches" and (classified.file is None or not classified.file.kind.holds_batches):
        raise NotALogError("not a file of batches; 'kseg dump' shows it", path=path)
    return Partition(path, partition_name(path.absolute().parent), file=classified.file)


def partition_at(path: Path) -> Partition:
    """A partition directory, which need not exist."""
    return _with_tier_and_name(Partition(path, partition_name(path)))


def _with_tier_and_name(entry: Partition, tier: Any = None) -> Partition:
    """The entry with its tier; a link under another name has the name of its target.

    A copy under another name has no segments in the tier, and a file has none.
    """
    name = entry.name
    if name is None:
        name = partition_name(Path(real_path(entry.directory)))
    return replace(entry, name=name, tier=None if name is None or entry.is_file else tier)


def _selects(selection: Selection | Chosen, entry: Partition) -> bool:
    """Whether a selection, or a function, chooses a partition."""
    takes = selection.takes if isinstance(selection, Selection) else selection
    return takes(entry.topic, entry.partition)


def _why_nothing(selection: Selection | Chosen, here: Sequence[Partition]) -> str:
    """A sentence why none of the partitions is chosen."""
    if isinstance(selection, Selection):
        return selection.why_nothing((entry.topic, entry.partition) for entry in here)
    return "no partition here is chosen"


def _served_partitions(
    entries: Iterable[Partition],
    selection: Selection | Chosen,
    left_out: list[LeftOut],
    *,
    set_aside: bool = False,
) -> Iterator[Partition]:
    """The partitions that a broker serves, and copies under other names.

    Deleted, stray and future directories are left out, since their topic may exist again or has
    the same records.
    """
    for entry in entries:
        if set_aside or entry.kind is None:
            yield entry
        elif _selects(selection, entry):
            left_out.append(LeftOut(entry.path, _SET_ASIDE[entry.kind]))


def _tell(left_out: Iterable[LeftOut]) -> None:
    """Write a line for what is left out and could be read."""
    lines = [f"kseg: {path_left_out}" for path_left_out in left_out if path_left_out.error is None]
    if len(lines) > _LINES_MAX:
        lines[_LINES_MAX:] = [f"kseg: left out: {len(lines) - _LINES_MAX} more such directories"]
    for line in lines:
        note.get()(line)


# ---- what can be read ----------------------------------------------------------------------------


def _readable_entries(
    entries: Iterable[Partition], trusted: Collection[Path], left_out: list[LeftOut], on_error: str
) -> Iterator[Partition]:
    """The entries whose directory can be listed, and whose logs can be opened.

    Callers that accept files of all kinds report by themselves what they cannot read in a named
    directory: those entries are `trusted`.
    """
    for entry in entries:
        error = None if entry.path in trusted else _why_unreadable(entry)
        if error is None:
            yield entry
        else:
            _skip(entry.path, error, left_out, on_error)


def _skip(path: Path, error: OSError, left_out: list[LeftOut], on_error: str) -> None:
    """Note a path that cannot be read; if `on_error` is "raise", raise the error."""
    if on_error == "raise":
        raise error
    left_out.append(LeftOut.of(path, error))


def _why_unreadable(entry: Partition) -> OSError | None:
    """The error of reading a partition directory or one of its logs; None if both are readable.

    A log that is removed meanwhile, by retention for example, counts as readable.
    """
    if entry.is_file or isinstance(entry.path, RemotePath):
        return None  # opening it will show; the listing of a store showed the objects
    try:
        logs = [segment.raw_path for segment in entry.files.segments]
    except OSError as error:
        return error
    for log in logs:
        try:
            os.stat(log)
        except FileNotFoundError:
            continue
        except OSError as error:
            return error
        if not os.access(log, os.R_OK):
            return PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(log))
    return None


def _without_doubles(entries: Iterable[Partition], files: Files) -> list[Partition]:
    """Each partition and file once, however it is spelled; no file of a partition in the list."""
    by_place: dict[str, Partition] = {}
    for entry in entries:
        by_place.setdefault(real_path(entry.path), entry)
    return [
        entry
        for path, entry in by_place.items()
        if files == "all" or not entry.is_file or os.path.dirname(path) not in by_place
    ]


def real_path(path: Path) -> str:
    """The path without symbolic links, which identifies a file or directory; a URL as it is."""
    return str(path) if isinstance(path, RemotePath) else os.path.realpath(path)


def take_replicas(
    entries: list[Partition],
    replicas: str | Callable[[Path], Any],
    left_out: list[LeftOut] | None = None,
    files: Files = "batches",
) -> list[Partition]:
    """The entries, only one directory for each partition if there are several.

    Logs that a broker has set aside are not replicas.

    Raises:
        ReplicasError: a partition has several directories, which are refused.
    """
    # The directories of each partition, by their real paths.
    directories: dict[PartitionName, dict[str, Path]] = {}
    for entry in entries if replicas != "all" and len(entries) > 1 else ():
        if entry.name is not None and entry.kind is None and not (files == "all" and entry.is_file):
            places = directories.setdefault(entry.name, {})
            places.setdefault(real_path(entry.directory), entry.directory)
    replaced: dict[str, Path] = {}  # a directory that is not read -> the one that is
    for name, places in directories.items():
        first, *others = places.values()
        if not others:
            continue
        if replicas == "refuse":
            raise ReplicasError(f"{name.topic}-{name.partition}", first, others[0])
        best = first if isinstance(replicas, str) else max(places.values(), key=replicas)
        replaced |= {place: best for place, directory in places.items() if directory is not best}
    if not replaced:
        return entries
    if left_out is not None:
        left_out += [
            LeftOut(Path(directory), f"left out: a replica of {best}")
            for directory, best in replaced.items()
        ]
    return [entry for entry in entries if real_path(entry.directory) not in replaced]


# ---- paths that callers name ---------------------------------------------------------------------


def _expand_globs(
    named: Iterable[Path], left_out: list[LeftOut], *, logs: bool = False
) -> Iterator[Path]:
    """The paths; a glob is replaced by all paths that match it.

    Of the matches, those that a broker has set aside go to `left_out`, and with `logs` files that
    are no logs are passed over; unless a glob names nothing else.
    """
    for path in named:
        name = os.fspath(path)
        if not glob.has_magic(name) or (not is_remote(name) and os.path.lexists(name)):
            yield path
            continue
        matching = (
            matches(name)
            if is_remote(name)
            else [*map(Path, sorted(glob.glob(name, recursive=True), key=path_order))]
        )
        if not matching:
            raise FileNotFoundError(errno.ENOENT, "no path matches this pattern", name)
        set_aside = list[LeftOut]()
        entries = (Partition(match, partition_name(match)) for match in matching)
        served = [entry.path for entry in _served_partitions(entries, ALL, set_aside)]
        if served:
            left_out += set_aside
        readable = [match for match in served if not (logs and _is_no_log(match))]
        yield from readable or served or matching


def _is_no_log(path: Path) -> bool:
    """Whether a path is a file with another name than logs have."""
    is_here = not isinstance(path, RemotePath) and path.is_file()
    return is_here and path.suffix not in (".log", ".kafka")


def matches(url: str) -> list[Path]:
    """The paths that a URL names: itself, or all that match its pattern.

    Raises:
        OSError, KsegError, ValueError: as a listing raises them.
    """
    check_url(url)
    parts = str(RemotePath(url)).split("/")
    fixed = next((at for at, part in enumerate(parts) if at > 2 and glob.has_magic(part)), None)
    if fixed is None:
        return [RemotePath("/".join(parts))]
    top = "/".join(parts[:fixed])
    below = (stored.url.split("/")[: len(parts)] for stored in Store.of(top).listed(top))
    matching = {
        "/".join(names)
        for names in below
        if len(names) == len(parts) and all(map(fnmatchcase, names[fixed:], parts[fixed:]))
    }
    return [RemotePath(name) for name in sorted(matching, key=path_order)]


def named_paths(paths: StrPaths) -> list[Path]:
    """The paths that a caller names, as `Path`s; globs stay as they are.

    Raises:
        TypeError: a path is neither text nor a `Path`.
        ValueError: a URL has credentials, or there is no path.
    """
    several = [paths] if isinstance(paths, str | PathLike | bytes) else paths
    if hasattr(several, "read") or not isinstance(several, Iterable):
        raise TypeError(f"paths are names of files and directories, not {_kind(several)}")
    named = list[Path]()
    for path in several:
        if isinstance(path, bytes) or not isinstance(path, str | PathLike):
            raise TypeError(f"a path is text or a Path, not {_kind(path)}")
        named.append(path_at(path))
    if not named:
        raise ValueError("paths is empty")
    return named


def paths_of(paths: StrPaths) -> list[Path]:
    """The paths that a caller names, URLs among them; a glob stands for all that match it.

    Of the matches of a glob, partitions that a broker has set aside are left out, with a line.

    Raises:
        TypeError: a path is neither text nor a `Path`.
        ValueError: a URL has credentials, or there is no path.
        FileNotFoundError: no path matches a glob.
        KsegError, OSError: a store cannot be asked for a glob.
    """
    left_out = list[LeftOut]()
    expanded = list(_expand_globs(named_paths(paths), left_out))
    _tell(left_out)
    return expanded


def local_paths_of(paths: StrPaths) -> list[Path]:
    """As `paths_of`, for questions about files of this machine.

    Raises:
        ValueError: a path is a URL.
        TypeError, FileNotFoundError: as `paths_of` raises them.
    """
    return paths_of([local_path_at(path) for path in named_paths(paths)])


def _kind(value: Any) -> str:
    return "an open file" if hasattr(value, "read") else type(value).__name__
