"""`kseg export`: records into files, one for each partition, segment or topic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kseg.catalog.sources import ScanSource
from kseg.cli import output
from kseg.cli.export_files import AnyFormat, fields_of
from kseg.cli.failures import (
    Exit,
    complain,
    one_line,
    tell_left_out,
    usage_errors,
)
from kseg.cli.owners import owner_lines
from kseg.cli.parsing import Paths, Range
from kseg.cli.paths import (
    Partition,
    known_paths,
    logs_once,
    partition_at,
    refuse_replicas,
    tier_of_run,
    view_of,
)
from kseg.cli.typed import kinds_from
from kseg.constants import EXTENSIONS
from kseg.errors import KsegError, NotALogError
from kseg.files import io
from kseg.files.names import OFFSET_MAX, PathKind, is_new
from kseg.files.selection import Selection
from kseg.format.request import Request, key_needle
from kseg.log.reader import LogView, first_offsets
from kseg.records.exports import Export, Part, by_topic, write_all
from kseg.records.lake import FileFormat, Undecoded, refuse_other_files, targets
from kseg.stores.path import RemotePath, out_path

if TYPE_CHECKING:
    from kseg.files.mapping import Mapping


def export(
    paths: Paths,
    out: str,
    form: str | None,
    per: str,
    by: tuple[str, ...],
    decode_key: str | None,
    decode_value: str | None,
    schemas: tuple[str, ...],
    subject: str | None,
    schema_version: int | None,
    record: str | None,
    fields: tuple[str, ...] | None,
    keep_bytes: bool,
    replace_files: bool,
    no_formulas: bool,
    encoding: str,
    on_corrupt: str,
    isolation: str,
    open_transactions: str,
    selection: Selection,
    offsets: Range,
    times: Range,
    key: bytes | None,
    limit: int | None,
    mapping: Mapping,
    jobs: int,
) -> int:
    """Run the verb; returns the exit code."""
    if out == "-":
        raise click.UsageError("OUT is a file or a directory; 'kseg read' has standard output.")
    with usage_errors():
        refuse_other_files(where := out_path(out))
    form = form or _form_of(where)
    kinds = kinds_from(
        *({"key": decode_key, "value": decode_value}, paths, selection.topics, schemas),
        subject=subject,
        schema_version=schema_version,
        record=record,
    )
    _check_words(keep_bytes and not kinds, no_formulas and form != "csv")
    with usage_errors():
        look = AnyFormat(
            *(form, fields_of(form, fields), kinds, by, keep_bytes),
            replace=replace_files,
            encoding=encoding,
            has_place=fields is None,
            formulas=not no_formulas,
        )
        look.check()
    request = Request(
        offset=offsets,
        time=times,
        isolation=isolation,
        open_transactions=open_transactions,
        on_corrupt=on_corrupt,
        contains=key_needle(key),
    )
    found = list(_exports(paths, selection, per == "segment", request, mapping))
    if per == "topic":
        found = by_topic(found)
    found = [replace(one, key=key) for one in found]
    with usage_errors():
        places = targets([one.name for one in found], where, form, by)
    code = _write_all(found, places, look, jobs, limit, where)
    if found:
        _say_owner(found[0].path, places[0], where)
    return code


def _check_words(lone_bytes: bool, lone_formulas: bool) -> None:
    """Refuse an option that needs another one which is missing.

    Raises:
        UsageError: there is one.
    """
    if lone_bytes:
        raise click.UsageError("--keep-bytes needs --decode-key or --decode-value.")
    if lone_formulas:
        raise click.UsageError("--no-formulas needs --format csv.")


def _write_all(
    found: list[Export],
    places: list[Path],
    look: FileFormat,
    jobs: int,
    limit: int | None,
    out: Path,
) -> Exit:
    """Write the file of each input; returns the exit code."""
    faults, undecoded = list[KsegError](), Undecoded()
    total = sum(one.size for one in found)
    with (
        output.progress("export", total) as bar,
        closing(write_all(found, places, look, threads=jobs, limit=limit, out=out)) as written,
    ):
        for one, target, (count, files, damage, others) in zip(found, places, written, strict=True):
            faults += damage
            undecoded.merge(others)
            bar.by(one.size)
            inside = f" in {output.counted(len(files), 'file')}" if look.by else ""
            if files or look.by:
                complain(f"{target}: {output.counted(count, 'record')}{inside}")
    complain(*(f"kseg: {one_line(fault)}" for fault in faults), *undecoded.lines(look))
    return Exit.FOUND if faults or undecoded.counts else Exit.OK


def _say_owner(source: Path, target: Path, out: Path) -> None:
    """Say how the files get the owner of the logs, if they have another."""
    if isinstance(out, RemotePath) or not os.path.lexists(source):
        return
    made = [target] if target.exists() else list(out.glob(os.path.relpath(target, out)))
    complain(*(owner_lines(made[0], source, out) if made else ()))


def _exports(
    paths: Paths,
    selection: Selection,
    per_segment: bool,
    request: Request,
    mapping: Mapping,
) -> Iterator[Export]:
    """The files to write: one for each partition, or for each segment."""
    refuse_replicas(paths, selection)
    seen: set[str] = set()

    def export_of(
        partition: Partition, name: Path, size: int, file: Path | None, first: int | None = None
    ) -> Export:
        if file is not None and request.isolation != "read_uncommitted":
            raise click.UsageError("--isolation read_committed wants whole partitions.")
        source = ScanSource(
            *(file or partition.path, file is not None, partition.topic, partition.partition),
            tier=tier_of_run() if file is None else None,
        )
        is_asked = file is not None and first is None
        parts = (Part(source, request, first),)
        return Export(name, parts, size=size, mapping=mapping, is_file=is_asked, warn=tell_left_out)

    for path, known in known_paths(paths):
        if known.kind is PathKind.FILE:
            if not is_new(path, seen) or os.path.dirname(os.path.realpath(path)) in seen:
                continue
            if known.file is None or not known.file.kind.holds_batches:
                raise NotALogError("a file without records", path=path)
            size = io.size_at(known.path)
            parent = partition_at(known.path.absolute().parent)
            yield export_of(parent, Path(known.path.stem), size, known.path)
            continue
        for partition in logs_once(path, selection, seen):
            name = Path(partition.path.resolve().name)
            view = view_of(partition.path, mapping)
            _say_where(view)
            if not per_segment:
                yield export_of(partition, name, sum(info.size for info in view.segments), None)
                continue
            if tier_of_run() is not None:
                raise click.UsageError("--per segment is for local segments, without --tier.")
            firsts = _first_offsets(view, request.offset_start)
            for info in view.segments:
                first = firsts.get(info.path, OFFSET_MAX + 1)
                yield export_of(partition, name / info.path.stem, info.size, info.path, first)


def _say_where(view: LogView) -> None:
    """Say how much is read from the tier, and how much from this machine."""
    if view.remote is None:
        return
    sizes = {is_tiered: 0 for is_tiered in (True, False)}
    for info in view.segments:
        sizes[info.end_offset is not None] += info.size
    complain(
        f"kseg: {view.path}: {output.human_bytes(sizes[True])} in the tier, "
        f"{output.human_bytes(sizes[False])} here"
    )


def _first_offsets(view: LogView, start: int) -> dict[Path, int]:
    """The first offset that a read of the log takes from each segment, from `start` on."""
    firsts = first_offsets(view, max(view.log_start_offset, start))
    return {info.path: first for info, first in firsts}


def _form_of(out: Path) -> str:
    extension = out.suffix[1:]
    return extension if extension in EXTENSIONS else "parquet"
