"""Records of logs into files: the part that `kseg export` and `Scan.to_parquet` share.

An `Export` is one file, or one file of each directory of Hive's layout; `lake` knows how these
look. Where pieces end does not depend on the threads, so the files do not either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kseg.errors import KsegError
from kseg.files import io, ownership
from kseg.files.mapping import Mapping
from kseg.files.whole_file import claimed
from kseg.format.take import first_rows, take_equal
from kseg.format.typed import read_fields
from kseg.format.workspace import Workspace
from kseg.log.reader.pieces import log_pieces, read_pieces, segment_pieces
from kseg.log.reader.view import LogView
from kseg.log.segment.reader import Segment
from kseg.records.lake import FileFormat, Files, Selected, Undecoded, refuse_loss
from kseg.stores.path import RemotePath
from kseg.workers import At, PerThread, Put, at_file, check, in_order

if TYPE_CHECKING:
    from kseg.catalog.sources import ScanSource
    from kseg.format.request import Request
    from kseg.format.values import RecordColumns

#: Takes the path of a partition, and lines about the records that a reader does not get of it.
Warn = Callable[[Path, Iterable[str]], object]
#: The fields that are not columns of a log.
_PLACE = ("topic", "partition", "directory")


class Part(NamedTuple):
    """A partition, or a segment, whose records go into a file.

    Attributes:
        source: the partition or the segment.
        request: the records; its columns do not count.
        first_offset: the first offset to export from the segment; None for a file by itself.
    """

    source: ScanSource
    request: Request
    first_offset: int | None = None

    @property
    def bounded(self) -> Request:
        """The request, without the records that the log does not give of the segment."""
        if self.first_offset is None:
            return self.request
        start = max(self.first_offset, self.request.offset_start)
        return replace(self.request, offset=(start, self.request.offset_end))


@dataclass(frozen=True, slots=True)
class Export:
    """One file of an export.

    Attributes:
        name: the name of the file, relative to the output, without an extension.
        parts: its parts, in order.
        key: only records with this key.
        limit: no more records than this.
        size: bytes of log.
        mapping: how files are opened.
        is_file: whether it is of a single file that was asked for.
        warn: takes the lines about records that a reader does not get.
    """

    name: Path
    parts: tuple[Part, ...]
    key: bytes | None = None
    limit: int | None = None
    size: int = 0
    mapping: Mapping = "auto"
    is_file: bool = False
    warn: Warn = lambda _path, _lines: None

    @property
    def path(self) -> Path:
        """The partition or the segment that is first."""
        return self.parts[0].source.path

    def with_threads(self, threads: int) -> Export:
        """The same, with so many threads that share each part."""
        parts = (
            part._replace(request=replace(part.request, threads=threads)) for part in self.parts
        )
        return replace(self, parts=tuple(parts))

    def refuse_loss(self, target: Path, form: str) -> None:
        """Refuse an existing file that may have records which this export does not take.

        Raises:
            FileExistsError: it may.
        """
        if target.exists():
            refuse_loss(target, form, self._selected(self._views()))

    def write(self, target: Path, look: FileFormat) -> Written:
        """Write the file, or the files of Hive's layout.

        Args:
            target: as `Files` takes it.
            look: how files are to look.

        Raises:
            FileExistsError: there is a file with records that the new one may not have.
            KsegError, OSError: a log cannot be read, or a file not be written.
        """
        count, faults, undecoded, views = 0, list[KsegError](), Undecoded(), self._views()
        selected = self._selected(views)
        here = self.path if os.path.lexists(self.path) else None  # else all is in a store
        look = replace(look, source=here, selected=selected, is_file=self.is_file)
        files = Files(target, look, faults)
        with files.opened() as write:
            for columns in first_rows(self._all(views, look, faults), self.limit):
                check()
                decoded = look.decoded(columns)
                undecoded.note(decoded)
                write(decoded)
                count += len(columns)
        rows = tuple((str(path), n, io.size_at(path)) for path, n in files.records.items())
        return Written(count, rows, faults, undecoded)

    def _views(self) -> list[LogView | None]:
        """The partitions at this moment; None for a segment."""
        return [None if source.is_file else source.view(self.mapping) for source, *_ in self.parts]

    def _selected(self, views: Sequence[LogView | None]) -> Selected:
        """The records that the file gets; the end of a single segment is not looked up."""
        key = None if self.key is None else self.key.hex()
        bounds = [_offsets(*each) for each in zip(self.parts, views, strict=True)]
        first = self.parts[0].request
        has_bounds = bool(self.key is not None or self.limit is not None) or any(
            part.request.bounds != ((None, None), (None, None)) for part in self.parts
        )
        found = Selected(bounds[0], first.bounds[1], first.isolation, has_bounds, key, self.limit)
        if len(self.parts) == 1:
            return found
        names = [part.source.directory.resolve().name for part in self.parts]
        logs = tuple(zip(names, bounds, strict=True))
        return found._replace(offsets=(None, None), logs=logs)

    def _all(
        self, views: Sequence[LogView | None], look: FileFormat, faults: list[KsegError]
    ) -> Generator[RecordColumns]:
        """The records of each part, without a limit."""
        for part, view in zip(self.parts, views, strict=True):
            yield from self._pieces(part, view, look, faults)

    def _pieces(
        self, part: Part, view: LogView | None, look: FileFormat, faults: list[KsegError]
    ) -> Generator[RecordColumns]:
        """The records of a part, each piece with the names of its place."""
        source, request = part.source, part.bounded
        extra = ("timestamp",) * ("day" in look.by) + ("key",) * (self.key is not None)
        wanted = (name for name in (*look.fields, *extra) if name not in _PLACE)
        request = replace(request, columns=read_fields(wanted, look.kinds) or ("offset",))
        if request.on_corrupt == "skip":
            request = replace(request, on_corrupt=faults.append)
        memory = PerThread(Workspace)
        if view is not None:
            self.warn(view.path, view.left_out(request))
            works = log_pieces(view, memory, request)
        else:
            works = segment_pieces(Segment.open(source.path, mapping=self.mapping), memory, request)
        directory = str(source.directory) if "directory" in look.fields else None
        for columns in read_pieces(works, request.threads, request.on_error):
            chosen = columns if self.key is None else take_equal(columns, self.key)
            yield chosen.placed(source.topic, source.partition, directory)


def _offsets(part: Part, view: LogView | None) -> tuple[int | None, int | None]:
    """The offsets that a part gives."""
    request = part.request
    start, end = request.bounds[0]
    if view is not None:
        committed = request.isolation == "read_committed" and request.open_transactions == "wait"
        last = view.last_stable_offset if committed else view.log_end_offset
        return max(view.log_start_offset, start or 0), last if end is None else min(end, last)
    return start if part.first_offset is None else max(part.first_offset, start or 0), end


class Written(NamedTuple):
    """The result of an export.

    Attributes:
        records: their number.
        files: path, number of records, and bytes of each.
        faults: the damage that was passed over.
        undecoded: keys and values of other kinds.
    """

    records: int
    files: tuple[tuple[str, int, int], ...]
    faults: list[KsegError]
    undecoded: Undecoded


def write_all(
    exports: Sequence[Export],
    targets: Sequence[Path],
    look: FileFormat,
    *,
    threads: int,
    limit: int | None = None,
    out: Path | None = None,
) -> Generator[Written]:
    """Write the files of exports, side by side; gives each when it is written, in order.

    Args:
        exports: the files.
        targets: the path of each.
        look: how files are to look.
        threads: how many share the work.
        limit: the number of records of all files together; the first ones have them. New files
            behind it are not written.
        out: the directory of all these files, or the only file.

    Raises:
        FileExistsError: another run writes to the directory; or a file is there with records that
            the new one may not have; nothing is written, as far as it can be known before.
        KsegError, OSError: a log cannot be read, or a file not be written.
    """
    shared = threads // (len(exports) or 1) if limit is None else threads
    exports = [one.with_threads(max(1, shared)) for one in exports]
    pairs = list(zip(exports, targets, strict=True))
    if not look.by and not look.replace:
        for one, target in pairs:
            replace(one, limit=limit).refuse_loss(target, look.form)
    with ExitStack() as stack:
        if pairs and out is not None and out not in targets and not isinstance(out, RemotePath):
            here = os.path.lexists(exports[0].path)
            above = ownership.of_copied_directory(exports[0].path) if here else None
            io.make_directories(out, like=above)
            stack.enter_context(claimed(out))
        yield from _written(pairs, look, threads, limit)


def _written(
    pairs: Sequence[tuple[Export, Path]], look: FileFormat, threads: int, limit: int | None
) -> Generator[Written]:
    if limit is None:
        works = [At(one.path, partial(_put, one, target, look)) for one, target in pairs]
        window, used = max(1, len(works)), min(threads, len(works)) or 1
        with closing(in_order(works, threads=used, window=window)) as written:
            yield from written
        return
    for one, target in pairs:
        if not limit and one is not pairs[0][0] and not target.exists():
            yield Written(0, (), [], Undecoded())
            continue
        with at_file(one.path):
            found = replace(one, limit=limit).write(target, look)
        yield found
        limit -= found.records


def _put(one: Export, target: Path, look: FileFormat, put: Put) -> None:
    put(one.write(target, look))


def by_topic(exports: Iterable[Export]) -> list[Export]:
    """The same with one file for all partitions of a topic.

    A partition that is deleted, stray or moving has a file of its own.
    """
    found: dict[tuple[str | None, Path], list[Export]] = {}
    for one in exports:
        source = one.parts[0].source
        is_plain = source.directory.resolve().name == f"{source.topic}-{source.partition}"
        name = Path(source.topic) if is_plain and source.topic else one.name
        found.setdefault((source.topic, name), []).append(one)
    return [
        replace(
            group[0],
            name=name,
            parts=tuple(part for one in group for part in one.parts),
            size=sum(one.size for one in group),
        )
        for (_topic, name), group in found.items()
    ]
