"""`kseg export`: records into files that other programs read, one a partition or one a segment."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kseg import Segment
from kseg.cli import output
from kseg.cli.export_files import (
    FileFormat,
    PartitionedFiles,
    Selected,
    open_target,
    refuse_loss,
)
from kseg.cli.failures import Exit, complain, one_line, tell_left_out, usage_errors
from kseg.cli.owners import owner_lines
from kseg.cli.parsing import EXTENSIONS, Range
from kseg.cli.paths import Partition, known_paths, logs_once, partition_at, refuse_replicas
from kseg.cli.typed import PLACE_FIELDS, kinds_from
from kseg.errors import KsegError, NotALogError
from kseg.files.names import OFFSET_MAX, PathKind, is_new
from kseg.files.output_names import fitting_name
from kseg.files.selection import Selection
from kseg.format.request import Request
from kseg.format.typed import BYTES, ERRORS, read_fields
from kseg.format.workspace import Workspace
from kseg.log.log import Log
from kseg.log.reader import LogView, first_offsets, log_pieces, read_pieces, segment_pieces
from kseg.workers import At, PerThread, Put, check, in_order

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping
    from kseg.format.values import RecordColumns


def export(
    paths: tuple[str, ...],
    out: str,
    form: str | None,
    per: str,
    by: tuple[str, ...],
    decode_key: str | None,
    decode_value: str | None,
    fields: tuple[str, ...] | None,
    keep_bytes: bool,
    replace_files: bool,
    no_formulas: bool,
    encoding: str,
    on_corrupt: str,
    isolation: str,
    open_transactions: str,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    offsets: Range,
    times: Range,
    mapping: Mapping,
    jobs: int,
) -> int:
    """Run the verb; returns the exit code."""
    if out == "-":
        raise click.UsageError("OUT is a file or a directory; 'kseg read' has standard output.")
    _refuse_other_files(Path(out))
    form = form or _form_of(out)
    kinds = kinds_from(decode_key, decode_value)
    if keep_bytes and not kinds:
        raise click.UsageError("--keep-bytes goes with --decode-key or --decode-value.")
    file_format = FileFormat(
        form,
        fields,
        encoding,
        kinds=kinds,
        by=by,
        keep_bytes=keep_bytes,
        replace=replace_files,
        formulas=not no_formulas,
    )
    _check(file_format)
    chosen = Selection(topics, partitions)
    found = list(_inputs(paths, chosen, per, offsets[0], mapping))
    targets = _targets(found, Path(out), form, by)
    request = Request(
        offset=offsets,
        time=times,
        isolation=isolation,
        open_transactions=open_transactions,
        on_corrupt=on_corrupt,
        threads=max(1, jobs // (len(found) or 1)),
    )
    if not by and not replace_files:
        for one, target in zip(found, targets, strict=True):
            _refuse_loss(one, target, form, request)
    code = _write_all(found, targets, file_format, request, jobs)
    if found:
        _say_owner(found[0].path, targets[0], Path(out))
    return code


def _write_all(
    found: list[Input], targets: list[Path], file_format: FileFormat, request: Request, jobs: int
) -> Exit:
    """Write the file of each input; returns the exit code."""
    works = [
        At(one.path, partial(_write, one, target, file_format, request))
        for one, target in zip(found, targets, strict=True)
    ]
    faults, undecoded = list[KsegError](), Undecoded()
    total = sum(one.size for one in found)
    threads = min(jobs, len(works)) or 1
    with (
        output.progress("export", total) as bar,
        closing(in_order(works, threads=threads, window=len(works))) as written,
    ):
        for one, target, (count, files, damage, others) in zip(
            found, targets, written, strict=True
        ):
            faults += damage
            undecoded.merge(others)
            bar.by(one.size)
            inside = f" in {output.counted(files, 'file')}" if file_format.by else ""
            complain(f"{target}: {output.counted(count, 'record')}{inside}")
    complain(*(f"kseg: {one_line(fault)}" for fault in faults), *undecoded.lines(file_format))
    return Exit.FOUND if faults or undecoded.counts else Exit.OK


def _say_owner(source: Path, target: Path, out: Path) -> None:
    """Say how the files get the owner of the logs, if they have another."""
    made = [target] if target.exists() else list(out.glob(os.path.relpath(target, out)))
    complain(*(owner_lines(made[0], source, out) if made else ()))


def _check(file_format: FileFormat) -> None:
    if not file_format.formulas and file_format.form != "csv":
        raise click.UsageError("--no-formulas goes with --format csv.")
    with usage_errors():
        empty = not file_format.fields
    if empty:
        raise click.UsageError("--fields names only what --partition-by leaves out.")


#: Ends of names that people give to files of records, and to no directory.
_OTHERS = {"json", "ndjson", "pq", "feather", "ipc", "orc", "avro", "tsv", "txt", "xlsx"}


@dataclass(frozen=True, slots=True)
class Input:
    """The source of one file: a partition, or one segment of it.

    Attributes:
        partition: the directory that it lies in.
        name: what the output is named after, relative to OUT, without an extension.
        segment: the one segment wanted, else None for all.
        size: bytes of log, for the progress bar.
        directory: name of the partition directory, if one was asked for.
        first_offset: what the log gives of the segment begins here; None for a file by itself.
        mapping: how files are opened.
    """

    partition: Partition
    name: Path
    segment: Path | None
    size: int
    directory: str | None = None
    first_offset: int | None = None
    mapping: Mapping = "auto"

    @property
    def path(self) -> Path:
        """The segment, or the directory of the partition."""
        return self.segment or self.partition.path


def _inputs(
    paths: tuple[str, ...], selection: Selection, per: str, start: int | None, mapping: Mapping
) -> Iterator[Input]:
    refuse_replicas(paths, selection)
    seen: set[str] = set()
    for path, known in known_paths(paths):
        if known.kind is PathKind.FILE:
            if not is_new(path, seen) or os.path.dirname(os.path.realpath(path)) in seen:
                continue
            if known.file is None or not known.file.kind.holds_batches:
                raise NotALogError("a file without records", path=path)
            size = known.path.stat().st_size
            parent = partition_at(known.path.absolute().parent)
            yield Input(parent, Path(known.path.stem), known.path, size, mapping=mapping)
            continue
        for partition in logs_once(path, known, selection, seen):
            name = Path(partition.path.resolve().name)
            with Log.open(partition.path, mapping=mapping) as log:
                if per == "partition":
                    size = sum(info.size for info in log.segments)
                    yield Input(partition, name, None, size, name.name, mapping=mapping)
                    continue
                firsts = _first_offsets(log, start)
                for info in log.segments:
                    stem = name / info.path.stem
                    first = firsts.get(info.path, OFFSET_MAX + 1)
                    yield Input(partition, stem, info.path, info.size, name.name, first, mapping)


def _first_offsets(log: Log, start: int | None) -> dict[Path, int]:
    """The first offset that a read of the log takes from each segment, from `start` on."""
    view = log.view
    firsts = first_offsets(view, max(view.log_start_offset, start or 0))
    return {info.path: first for info, first in firsts}


def _refuse_other_files(out: Path) -> None:
    """Refuse the name of a file that is not written, as if it were one of a directory."""
    if out.suffix[1:].lower() in _OTHERS and not out.is_dir():
        raise click.UsageError(
            f"{out} is no name of a file that is written: those end in "
            f"{', '.join(f'.{each}' for each in EXTENSIONS)}."
        )


def _form_of(out: str) -> str:
    extension = Path(out).suffix[1:]
    return extension if extension in EXTENSIONS else "parquet"


def _targets(found: list[Input], out: Path, form: str, by: tuple[str, ...]) -> list[Path]:
    """The file for each input; with `by`, names of directories are patterns such as `day=*`."""
    if by:
        if out.suffix[1:] in EXTENSIONS and not out.is_dir():
            raise click.UsageError(f"With --partition-by -o must be a directory, not {out}.")
        layout = out.joinpath(*(f"{key}=*" for key in by))
        targets = [
            layout / fitting_name(f"part-{'-'.join(one.name.parts)}", f".{form}") for one in found
        ]
    elif out.suffix[1:] in EXTENSIONS and not out.is_dir():
        if len(found) != 1:
            raise click.UsageError(
                f"{len(found)} files would be written, so -o must be a directory, not {out}."
            )
        return [out]
    else:
        targets = [
            out / one.name.with_name(fitting_name(one.name.name, f".{form}")) for one in found
        ]
    if len(set(targets)) < len(targets):
        raise click.UsageError("Two of the paths have the same name; export them one by one.")
    return targets


def _write(one: Input, target: Path, file_format: FileFormat, request: Request, put: Put) -> None:
    """Write the files of one input; puts how many records and files, and the damage passed over."""
    count, faults, undecoded = 0, list[KsegError](), Undecoded()
    if request.on_corrupt == "skip":
        request = replace(request, on_corrupt=faults.append)
    view = None if one.segment is not None else LogView.open(one.path, mapping=one.mapping)
    selected = _selected(one, view, request)
    file_format = replace(file_format, directory=one.directory, source=one.path, selected=selected)
    files = PartitionedFiles(target, file_format, faults) if file_format.by else None
    opened = open_target(target, file_format, faults) if files is None else files
    with opened as write:
        for columns in _pieces(one, view, file_format, request):
            check()
            decoded = file_format.decoded(columns)
            undecoded.note(decoded)
            write(decoded)
            count += len(columns)
    put((count, 1 if files is None else files.count, faults, undecoded))


class Undecoded:
    """Counts of keys and values that are null because their bytes are of another kind."""

    def __init__(self) -> None:
        """None yet."""
        self.counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def note(self, columns: RecordColumns) -> None:
        """Count those of a piece."""
        for name, error in ERRORS.items():
            reasons = columns.arrays.get(error)
            if reasons is None or reasons.null_count == len(columns):
                continue
            self.counts[name] += len(columns) - reasons.null_count
            first = next(reason for reason in reasons.to_pylist() if reason is not None)
            self._first.setdefault(name, first)

    def merge(self, other: Undecoded) -> None:
        """Add what another one counted behind this one."""
        self.counts += other.counts
        self._first = other._first | self._first

    def lines(self, file_format: FileFormat) -> Iterator[str]:
        """A line for keys, and one for values, if there are such."""
        for name, count in self.counts.items():
            are = "is" if count == 1 else "are"
            kept = f"their bytes are in {BYTES[name]}"
            yield (
                f"kseg: {output.counted(count, name)} {are} not {file_format.kinds[name].value} "
                f"(the first: {self._first[name]}) and {are} null in what was written; "
                + (kept if BYTES[name] in file_format.fields else "--keep-bytes keeps their bytes")
            )


def _refuse_loss(one: Input, target: Path, form: str, request: Request) -> None:
    """Refuse an existing target that may have records which its export does not take."""
    if target.exists():
        view = None if one.segment is not None else LogView.open(one.path, mapping=one.mapping)
        refuse_loss(target, form, _selected(one, view, request))


def _selected(one: Input, view: LogView | None, request: Request) -> Selected:
    """The records that an input gives; the end of a single segment is not looked up."""
    (start, end), (earliest, latest) = request.bounds
    has_bounds = (start, end, earliest, latest) != (None,) * 4
    if view is not None:
        committed = request.isolation == "read_committed" and request.open_transactions == "wait"
        last = view.last_stable_offset if committed else view.log_end_offset
        start, end = max(view.log_start_offset, start or 0), last if end is None else min(end, last)
    elif one.first_offset is not None:
        start = max(one.first_offset, start or 0)
    return Selected((start, end), (earliest, latest), request.isolation, has_bounds)


def _pieces(
    one: Input, view: LogView | None, file_format: FileFormat, request: Request
) -> Iterator[RecordColumns]:
    """The records of an input, each piece saying where it belongs."""
    extra = ("timestamp",) if "day" in file_format.by else ()
    wanted = (name for name in (*file_format.fields, *extra) if name not in PLACE_FIELDS)
    request = replace(request, columns=read_fields(wanted) or ("offset",))
    if view is not None:
        tell_left_out(view.path, view.left_out(request))
        works = log_pieces(view, PerThread(Workspace), request)
    else:
        assert one.segment is not None
        if request.isolation != "read_uncommitted":
            raise click.UsageError("--isolation read_committed wants whole partitions.")
        if one.first_offset is not None:
            start = max(one.first_offset, request.offset_start)
            request = replace(request, offset=(start, request.offset_end))
        segment = Segment.open(one.segment, mapping=one.mapping)
        works = segment_pieces(segment, PerThread(Workspace), request)
    topic, partition = one.partition.topic, one.partition.partition
    # Where pieces end does not depend on the threads, so that the files are the same.
    for columns in read_pieces(works, request.threads, request.on_error):
        yield replace(columns, topic=topic, partition=partition)
