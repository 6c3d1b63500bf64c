"""Records of logs into files: the part that `kseg export` and `Scan.to_parquet` share.

An `Export` is one file, or one file in each directory of Hive's layout; `lake` writes them. The
pieces do not depend on the number of threads, so the files do not either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kseg.constants import Progress
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError
from kseg.files import io, ownership
from kseg.files.grammar import OFFSET_MAX, file_name
from kseg.files.whole_file import claimed
from kseg.format.reader import PIECE_BYTES
from kseg.log.reader.view import LogView
from kseg.log.reader.visible import first_offsets
from kseg.records.lake import FileFormat, Files, Selected, Undecoded, refuse_loss, targets
from kseg.stores.path import RemotePath
from kseg.workers import At, Put, at_file, check, in_order, sum_progress

if TYPE_CHECKING:
    from kseg.format.request import Request
    from kseg.records.stream import Scan


@frozen_dataclass
class Export:
    """One file of an export.

    Attributes:
        name: the name of the file, relative to the output, without an extension.
        scan: the records of its sources, one source after the other.
        size: the bytes of log.
        has_bounds: whether the caller leaves out records of the sources.
        is_segment: whether the source is one segment of a partition.
    """

    name: Path
    scan: Scan
    size: int = 0
    has_bounds: bool = False
    is_segment: bool = False

    @property
    def path(self) -> Path:
        """The path of the first source, a partition or a segment."""
        return self.scan.sources[0].path

    def refuse_loss(self, target: Path, form: str) -> None:
        """Refuse to replace a file that may have records which this export does not have.

        Raises:
            FileExistsError: it may have such records.
        """
        if target.exists():
            refuse_loss(target, form, self._selection(self.scan._views_now()))

    def write(self, target: Path, look: FileFormat) -> Written:
        """Write the file, or the files of Hive's layout.

        Args:
            target: the path of the file; see `Files`.
            look: the format of the files.

        Raises:
            FileExistsError: the file is there, and the new one might lack some of its records.
            KsegError, OSError: a log cannot be read, or a file not be written.
        """
        count, undecoded, views = 0, Undecoded(), self.scan._views_now()
        selected = self._selection(views)
        columns = (*look.fields, *(("timestamp",) if "day" in look.by else ()))
        scan = self.scan.at(views, tuple(dict.fromkeys(columns)))
        log_path = self.path if os.path.lexists(self.path) else None  # None: all is in a store
        is_file = scan.sources[0].is_file and not self.is_segment
        look = replace(look, source=log_path, selected=selected, is_file=is_file)
        files = Files(target, look, scan.errors)
        with files.opened() as write:
            for piece in scan._read("held", PIECE_BYTES):  # the same for any number of threads
                check()
                undecoded.note(piece)
                write(piece)
                count += len(piece)
        rows = tuple((str(path), n, io.size_at(path)) for path, n in files.records.items())
        return Written(count, rows, scan.errors, undecoded)

    def _selection(self, views: Mapping[Path, LogView]) -> Selected:
        """The records that the file gets; the end of a single segment is not looked up."""
        scan = self.scan
        bounds = [
            _offsets(scan._request_for(source), views.get(source.path)) for source in scan.sources
        ]
        selected = Selected(
            bounds[0],
            scan._request.bounds[1],
            scan._request.isolation,
            self.has_bounds,
            None if scan._key is None else scan._key.hex(),
            *scan.counts,
        )
        if len(scan.sources) == 1:
            return selected
        names = [source.directory.resolve().name for source in scan.sources]
        logs = tuple(zip(names, bounds, strict=True))
        return selected._replace(offsets=(None, None), logs=logs)


def _offsets(request: Request, view: LogView | None) -> tuple[int | None, int | None]:
    """The bounds of the offsets that an export gets from a source.

    Args:
        request: the request for the source.
        view: its log as it is now; None for a single file, whose end is not looked up.
    """
    start, end = request.bounds[0]
    if view is None:
        return start, end
    committed = request.isolation == "read_committed" and request.open_transactions == "wait"
    last = view.last_stable_offset if committed else view.log_end_offset
    return max(view.log_start_offset, start or 0), last if end is None else min(end, last)


def exports_of(scan: Scan, per: str, out: Path, look: FileFormat) -> list[tuple[Export, Path]]:
    """The files of an export of all records of a scan, with the path of each.

    Args:
        scan: the scan; its limit, threads and progress are left to `write_all`.
        per: a file for each "partition", for each "segment", or for each "topic".
        out: the directory of all these files, or the only file.
        look: the format of the files.

    Raises:
        ValueError: segments cannot be told apart, or several files would have one name.
        KsegError, OSError: a partition cannot be read.
    """
    exports: list[Export] = []
    for source in scan.sources:
        source_scan = replace(scan, sources=(source,), _limit=None, _progress=None)
        if per == "segment" and not source.is_file:
            exports += _of_segments(source_scan, scan._has_bounds)
            continue
        name = Path(source.path.stem if source.is_file else source.path.resolve().name)
        size = sum(size for _path, size in scan._files(source))
        exports.append(Export(name, source_scan, size, scan._has_bounds))
    exports = _by_topic(exports) if per == "topic" else exports
    paths = targets([export.name for export in exports], out, look.form, look.by)
    return list(zip(exports, paths, strict=True))


def _of_segments(scan: Scan, has_bounds: bool) -> Iterator[Export]:
    """A file for each segment, with the records that a reader of the partition gets from it.

    Args:
        scan: a scan of one partition.
        has_bounds: see `Export`.
    """
    (source,), request = scan.sources, scan._request_for(scan.sources[0])
    if source.tier is not None or request.isolation != "read_uncommitted":
        raise ValueError("per segment is for local segments, without tier and read_committed")
    name, view = Path(source.path.resolve().name), LogView.at(source, scan._mapping)
    start = max(view.log_start_offset, request.offset_start)
    firsts = {info.path: first for info, first in first_offsets(view, start)}
    for info in view.segments:
        first = max(firsts.get(info.path, OFFSET_MAX + 1), request.offset_start)
        segment_scan = replace(
            scan,
            sources=(replace(source, path=info.path, file=file_name(info.path)),),
            _offsets={},
            _request=replace(request, offset=(first, request.offset_end)),
        )
        yield Export(name / info.path.stem, segment_scan, info.size, has_bounds, is_segment=True)


class Written(NamedTuple):
    """The result of an export.

    Attributes:
        records: the number of records.
        files: path, number of records, and bytes of each file.
        faults: the damage that was skipped.
        undecoded: the numbers of keys and values that did not decode.
    """

    records: int
    files: tuple[tuple[str, int, int], ...]
    faults: list[KsegError]
    undecoded: Undecoded


def write_all(
    scan: Scan,
    pairs: Sequence[tuple[Export, Path]],
    look: FileFormat,
    out: Path,
    on_file: Callable[[Export, Path, Written], object],
) -> Written:
    """Write the files of an export, side by side.

    Args:
        scan: its threads share the work; its limit is the number of records in all files together,
            so the first files get them, and no new files are written after that.
        pairs: as `exports_of` returns them.
        look: the format of the files.
        out: the directory of all these files, or the only file.
        on_file: is called, in order, with each written export, its path and its result.

    Raises:
        FileExistsError: another run writes to the directory; or a file is there with records that
            the new one may not have; nothing is written, as far as it can be known before.
        KsegError, OSError: a log cannot be read, or a file not be written.
    """
    threads, limit = scan._request.threads, scan._limit
    shared = threads // (len(pairs) or 1) if limit is None else threads
    pairs = [(_with_limits(export, threads=max(1, shared)), target) for export, target in pairs]
    if not look.by and not look.replace:  # the names of Hive's files depend on the records
        for export, target in pairs:
            _with_limits(export, limit=limit).refuse_loss(target, look.form)
    count, files, faults, undecoded = (
        0,
        list[tuple[str, int, int]](),
        list[KsegError](),
        Undecoded(),
    )
    with ExitStack() as stack:
        is_directory = out not in (target for _export, target in pairs)
        if pairs and is_directory and not isinstance(out, RemotePath):
            first = pairs[0][0].path
            above = ownership.of_copied_directory(first) if os.path.lexists(first) else None
            io.make_directories(out, like=above)
            stack.enter_context(claimed(out))
        written = stack.enter_context(closing(_write_in_order(pairs, look, threads, limit)))
        for (export, target), result in zip(pairs, written, strict=True):
            count += result.records
            files += result.files
            faults += result.faults
            undecoded.merge(result.undecoded)
            on_file(export, target, result)
    return Written(count, tuple(files), faults, undecoded)


def write_scan(
    scan: Scan, per: str, out: Path, look: FileFormat, progress: Progress | None
) -> Written:
    """Write the files of a scan; `progress` is called after each with the bytes of log so far.

    Arguments and errors are those of `exports_of` and `write_all`.
    """
    pairs = exports_of(scan, per, out, look)
    note = sum_progress(progress, sum(export.size for export, _target in pairs))
    return write_all(scan, pairs, look, out, lambda export, *_written: note(export.size))


def _write_in_order(
    pairs: Sequence[tuple[Export, Path]], look: FileFormat, threads: int, limit: int | None
) -> Generator[Written]:
    """Write the files side by side, or with a limit one after the other; yields results in order.

    Once the limit is reached, a file that exists is replaced by one without records, and no new
    file is written except the first.
    """
    if limit is None:
        works = [
            At(export.path, partial(_put_export, export, target, look)) for export, target in pairs
        ]
        window, used = max(1, len(works)), min(threads, len(works)) or 1
        with closing(in_order(works, threads=used, window=window)) as written:
            yield from written
        return
    for export, target in pairs:
        if not limit and export is not pairs[0][0] and not target.exists():
            yield Written(0, (), [], Undecoded())
            continue
        with at_file(export.path):
            result = _with_limits(export, limit=limit).write(target, look)
        yield result
        limit -= result.records


def _with_limits(export: Export, *, threads: int = 0, limit: int | None = None) -> Export:
    """An export with another limit and number of threads.

    Args:
        export: a file.
        threads: the number of threads that share each source; 0 keeps the number.
        limit: the most records; None for all.
    """
    scan = export.scan
    request = replace(scan._request, threads=threads or scan._request.threads)
    return replace(export, scan=replace(scan, _request=request, _limit=limit))


def _put_export(export: Export, target: Path, look: FileFormat, put: Put) -> None:
    put(export.write(target, look))


def _by_topic(exports: Iterable[Export]) -> list[Export]:
    """Join the exports of partitions, so that a topic has one file.

    A partition that is deleted, stray or being moved has a file of its own.
    """
    groups: dict[tuple[str | None, Path], list[Export]] = {}
    for export in exports:
        source = export.scan.sources[0]
        is_plain = source.directory.resolve().name == f"{source.topic}-{source.partition}"
        name = Path(source.topic) if is_plain and source.topic else export.name
        groups.setdefault((source.topic, name), []).append(export)
    return [
        replace(
            group[0],
            name=name,
            scan=replace(
                group[0].scan,
                sources=tuple(source for export in group for source in export.scan.sources),
            ),
            size=sum(export.size for export in group),
        )
        for (_topic, name), group in groups.items()
    ]
