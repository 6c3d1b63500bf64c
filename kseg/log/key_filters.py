"""Filters of keys beside a data directory, by which a search for one key reads little.

    PLACE/<partition>/<base offset>.keys

Each belongs to a closed segment; `kseg.format.key_filters` has its form. It counts only for the
bytes that it was made of. They are known by the inode, the size and the change time of the file,
which no program can set; else by the headers of all batches, which hold their checksums. Where they
differ, or the filter is damaged, the segment is searched without. Who can write in PLACE can hide
records, so it has to be safe from other users.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

import numpy as np

from kseg.errors import KsegError
from kseg.files import io, ownership
from kseg.files.atomic import replace_file
from kseg.files.log_file import PIECE_BYTES
from kseg.files.mapping import MappedFile
from kseg.files.output_names import refuse_in_data_directory
from kseg.files.selection import Selection, StrPaths
from kseg.format.header import COLUMN
from kseg.format.key_filters import (
    BUCKET_BYTES,
    DIGEST_BYTES,
    HEAD_BYTES,
    FilterHead,
    buckets_of,
    parse_head,
    seal,
    table_bytes,
)
from kseg.format.request import Request
from kseg.format.workspace import Workspace
from kseg.lake import WrittenFiles, output_path
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView
from kseg.log.segment.reader import Segment
from kseg.log.sources import sources
from kseg.stores.path import local_paths_of
from kseg.workers import At, PerThread, Put, in_order

#: Bytes of log for each filter; a batch belongs to the stretch in which it begins.
STRETCH_BYTES: Final = 256 << 10
#: A file that was changed less long ago may change again without another time.
_SETTLED_NS: Final = 100_000_000
#: The fields of a header that the digest covers.
_COVERED: Final = slice(0, COLUMN["crc_ok"])
#: Positions of the stretches that are read.
Spans = list[tuple[int, int]]


class KeyFilters:
    """The filters below a place, for searches."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        """Take a directory that `keyfilter` wrote.

        Raises:
            OSError: it is missing, or another user could change it.
        """
        self._place: Final = Path(place)
        os.stat(self._place)
        ownership.check_safe(self._place)

    def spans_for(self, key: bytes) -> Callable[[Segment], Spans | None]:
        """A function for the stretches of a segment that may hold a key; None for all of it."""
        return partial(self._spans, key)

    def _spans(self, key: bytes, segment: Segment) -> Spans | None:
        try:
            with MappedFile.open(_path_in(self._place, segment.path), "never") as file:
                head = _head_of(file)
                if head is None or not _fits(head, segment):
                    return None
                places = head.places(key)
                buckets = np.zeros((len(places), BUCKET_BYTES), np.uint8)
                for row in np.flatnonzero(places >= 0).tolist():
                    buckets[row] = np.frombuffer(file.read(places[row], BUCKET_BYTES), np.uint8)
        except (KsegError, OSError):
            return None
        spans: Spans = []
        for start, end in head.table[head.may_have(key, buckets, places), :2].tolist():
            if spans and spans[-1][1] == start and end - spans[-1][0] <= PIECE_BYTES:
                start = spans.pop()[0]
            spans.append((start, end))
        return spans


def keyfilter(
    paths: StrPaths,
    out: str | os.PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    chosen: Selection | None = None,
    threads: int = 1,
    progress: Callable[[int, int], object] | None = None,
) -> WrittenFiles:
    """Write filters of the keys in all closed segments, by which a search for a key reads little.

    A filter that fits its segment stays.

    Args:
        paths: partitions and data directories.
        out: a directory for the filters outside of all data directories; made if it is missing.
        topics, partitions: as for `kseg.scan`.
        chosen: in their place, the chosen partitions.
        threads: the number of segments that are read side by side.
        progress: called with the bytes of log that are done, and of all.

    Returns:
        A table with `path`, `records` and `bytes` of each filter that was written.

    Raises:
        ValueError: `out` is a URL or lies in a data directory, or nothing is chosen.
        NotALogError: a path is nothing that kseg reads.
        OSError: a path is missing, or a file cannot be read or written.
    """
    found = sources(local_paths_of(paths), chosen or Selection.of(topics, partitions))
    directories = [source.path for source in found if not source.is_file]
    place = output_path(out).absolute()
    homes = {directory.resolve().parent for directory in directories}
    refuse_in_data_directory(place, homes)
    ownership.check_safe(place)
    views = [LogView.open(directory) for directory in directories]
    closed = [
        (view, info) for view in views for info in view.segments[:-1] if not info.files.kafka07
    ]
    for view in views:
        io.make_directories(_path_in(place, view.path / "0").parent)
    memory = PerThread(Workspace)
    works = (At(info.path, partial(_write, view, info, place, memory)) for view, info in closed)
    rows, done, total = [], 0, sum(info.size for _, info in closed)
    for row, (_, info) in zip(
        in_order(works, threads=threads, helps=threads > 1), closed, strict=True
    ):
        rows += [] if row is None else [row]
        done += info.size
        if progress is not None:
            progress(done, total)
    return WrittenFiles(tuple(rows))


def _write(
    view: LogView, info: SegmentInfo, place: Path, memory: PerThread[Workspace], put: Put
) -> None:
    """Write the filter of a segment; puts its row, or None if its filter is current."""
    path = _path_in(place, info.path)
    with view.open_segment(info) as segment, memory.one() as workspace:
        with suppress(KsegError, OSError), MappedFile.open(path, "never") as file:
            head = _head_of(file)
            if head is not None and head.found == _found(info.path) and _fits(head, segment):
                put(None)
                return
        records, data = _filter_of(segment, workspace)
        replace_file(path, data)
    put((str(path), records, len(data)))


def _filter_of(segment: Segment, workspace: Workspace) -> tuple[int, bytes]:
    """The filter of a segment, and the number of records in it."""
    found = _found(segment.path)
    digest, starts = _look_at(segment)
    records, parts = 0, []
    request = Request(columns=("key",), control=True)
    ends = [*starts[1:], segment.size]
    for start, end in zip(starts, ends, strict=True):
        try:
            keys = [
                columns["key"]
                for columns in segment.read(
                    request, start_position=start, end_position=end, workspace=workspace
                )
            ]
            parts.append(buckets_of(keys))
            records += sum(map(len, keys))
        except KsegError:  # damaged batches may hold any key
            parts.append(np.empty((0, BUCKET_BYTES), np.uint8))
    table = np.array([starts, ends, [len(part) for part in parts]], np.int64).T
    buckets = np.concatenate(parts)
    seal(buckets, digest, len(table))
    head = FilterHead(segment.base_offset, segment.size, digest, found, table)
    return records, head.packed() + buckets.tobytes()


def _look_at(segment: Segment) -> tuple[bytes, list[int]]:
    """The digest of the headers of a segment, and where its stretches begin: the first at 0."""
    digest, starts, last = blake2b(digest_size=DIGEST_BYTES), [0], 0
    for table in segment.headers():
        digest.update(table.rows[:, _COVERED].tobytes())
        numbers = table.position // STRETCH_BYTES
        starts += table.position[np.flatnonzero(np.diff(numbers, prepend=last))].tolist()
        last = int(numbers[-1]) if len(numbers) else last
    return digest.digest(), starts


def _fits(head: FilterHead, segment: Segment) -> bool:
    """Whether a filter was made from the bytes of a segment."""
    if (head.base_offset, head.size) != (segment.base_offset, segment.size):
        return False
    found = _found(segment.path)
    return (any(found) and head.found == found) or _look_at(segment)[0] == head.digest


def _found(path: Path) -> tuple[int, int, int]:
    """The state of a file, by which a change is noticed; zeros where it was changed just now."""
    status = os.stat(path)
    if time.time_ns() - status.st_ctime_ns < _SETTLED_NS:
        return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _head_of(file: MappedFile) -> FilterHead | None:
    head = bytes(file.read(0, HEAD_BYTES))
    table = bytes(file.read(HEAD_BYTES, table_bytes(head, file.size)))
    return parse_head(head, file.size, table)


def _path_in(place: Path, segment: Path) -> Path:
    """The filter of a segment."""
    name = os.path.basename(os.path.realpath(segment.parent))
    return place / name / f"{segment.stem}.keys"


__all__ = ["KeyFilters", "keyfilter"]
