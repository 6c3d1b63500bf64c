"""The partitions that a job is about, and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path

from kseg import Settings
from kseg.errors import NotALogError
from kseg.files.names import PathKind, classify_path, list_data_directory
from kseg.log.settings import SettingSources
from kseg.log.sub_directories import EntryKind, entry_of, refuse_cluster_metadata
from kseg.spark.jobs.running import refusals_named


def partitions_in(path: str | PathLike[str]) -> Iterator[Path]:
    """A partition directory itself, or those of a data directory but for the log of KRaft.

    Raises:
        NotALogError: it is neither, or the log of KRaft.
        OSError: it is missing, or cannot be listed.
    """
    known = classify_path(path)
    if known.kind is PathKind.FILE:
        raise NotALogError("a file; this job wants a directory", path=path)
    if known.kind is PathKind.PARTITION:
        refuse_cluster_metadata(known.path)
        yield known.path
    else:
        for entry in list_data_directory(known.path).partitions:
            if entry_of(entry.path).kind is not EntryKind.CLUSTER_METADATA:
                yield entry.path


def settings_of(paths: Iterable[Path], sources: SettingSources) -> dict[Path, Settings]:
    """The settings of partitions, by the data directory that each lies in.

    Raises:
        ValueError: a setting is none.
        OSError: a file cannot be read.
    """
    with refusals_named():
        sources.check()
        return sources.by_home(path.resolve().parent for path in paths)


__all__ = ["partitions_in", "settings_of"]
