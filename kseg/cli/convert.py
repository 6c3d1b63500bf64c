"""`kseg convert`: the records of files in another format or codec, elsewhere or in place."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from kseg import Segment
from kseg.catalog import Catalog
from kseg.change.recode import RecodingPlan, plan_recoding
from kseg.change.run import run
from kseg.cli import output
from kseg.cli.cleanup import logs_with_settings
from kseg.cli.closed import change_of, report, share_out
from kseg.cli.failures import Exit, complain, complain_of, one_line, usage_errors
from kseg.cli.options import CODECS, CommandSettings, Paths
from kseg.cli.output import owner_lines
from kseg.cli.paths import batch_files, catalog_of, have_damage, say_of_settings
from kseg.cli.records import stream_tiles
from kseg.commands import command_line
from kseg.constants import SEGMENT_BYTES_MAX, TAILS, WHOLE_ENDS, Compression
from kseg.documents import fields_of
from kseg.errors import (
    KsegError,
    LimitExceededError,
    NotALogError,
    UnsupportedFormatError,
    at_path,
)
from kseg.files.log_file import Tile
from kseg.files.names import (
    FileKind,
    file_name,
    list_partition,
    parse_name,
)
from kseg.files.selection import Selection
from kseg.files.whole_file import (
    check_replaceable,
    refuse_in_data_directory,
    whole_file,
)
from kseg.format.compress import check_level
from kseg.format.convert import Converter, Losses, Tally, Target
from kseg.format.header import BatchTable, stop_error
from kseg.stores.path import path_at
from kseg.workers import At, PerThread, Put, Work, run_in_order

#: Takes the bytes of a result.
_Write = Callable[[bytes | memoryview], object]
_STDIN = "-"
_SEGMENTS = (FileKind.LOG, FileKind.KAFKA07)
_WAYS_OUT = "--drop leaves these out, --codec names another codec"


def convert(
    paths: Paths,
    out: str | None,
    as_json: bool,
    force: bool,
    jobs: int,
    apply: bool,
    backup_dir: str | None,
    selection: Selection,
    command_settings: CommandSettings,
    **how: Any,
) -> int:
    """Run `kseg convert`; returns the exit code."""
    if out is not None and (apply or backup_dir is not None or len(paths) > 1):
        raise click.UsageError("-o takes one PATH, and neither --apply nor --backup-dir.")
    of_files = force or how["drop"] or how["magic"] is not None
    if out is None and (of_files or how["first_offset"] is not None):
        raise click.UsageError(
            "--magic, --drop, --first-offset and --force want -o OUT; in place the codec changes."
        )
    if out is None:
        return _recode(
            paths,
            how["codec"],
            how["level"],
            selection,
            backup_dir,
            command_settings,
            apply=apply,
            as_json=as_json,
        )
    how["magic"] = 2 if how["magic"] is None else how["magic"]
    return _to_files(paths[0], out, as_json, force, jobs, **how)


def _to_files(path: str, out: str, as_json: bool, force: bool, jobs: int, **how: Any) -> int:
    """Write converted files; returns the exit code."""
    catalog = Catalog(()) if path == _STDIN else catalog_of((path,), files="all")
    whole = path != _STDIN and not any(partition.is_file for partition in catalog)
    if whole:
        pairs = _of_directory(catalog, path, out, force=force)
    else:
        pairs = [(path, _target_path(path, out, force=force))]
    _check_offsets(pairs)
    if as_json and pairs[0][1] is None:
        raise click.UsageError("--json and -o - would both write to standard output.")
    codec = None if how["codec"] is None else Compression(CODECS.index(how["codec"]))
    with usage_errors():
        target = Target(how["magic"], codec, how["level"], how["drop"], how["batch_bytes"])
    runs = []
    for source, target_file in pairs:
        run = FileConversion(source, target, jobs, skip=how["on_corrupt"] == "skip")
        try:
            run.go(target_file, how["first_offset"])
        except UnsupportedFormatError as error:
            complain(f"kseg: {one_line(error)} ({_WAYS_OUT})")
            return Exit.FOUND
        run.say(target_file, quiet=as_json)
        runs.append((run, target_file))
    if as_json:
        documents = [run.document(target_file) for run, target_file in runs]
        document = {"path": path, "output": out, "files": documents} if whole else documents[0]
        output.write_document("convert/1", document)
    elif whole:
        complain(
            f"kseg: {out} has logs alone; this makes their indexes:",
            f"    {command_line('kseg', 'reindex', out, '--apply')}",
        )
    if not as_json:
        _say_owner([(run.path, target_file) for run, target_file in runs], whole=whole)
    return Exit.FOUND if any(run.faults for run, _ in runs) else Exit.OK


def _say_owner(pairs: list[tuple[str, Path | None]], *, whole: bool) -> None:
    """Say how the files get the owner of their sources, if they have another."""
    source, first = pairs[0]
    if source == _STDIN or first is None:
        return
    made = [target_file for _source, target_file in pairs if target_file is not None]
    places = dict.fromkeys(file.parent if whole else file for file in made)
    complain(*owner_lines(first, source, *places))


def _of_directory(
    catalog: Catalog, path: str, out: str, *, force: bool
) -> list[tuple[str, Path | None]]:
    """The segments of a partition or a data directory, each with its place under OUT.

    Raises:
        UsageError: OUT is not a directory, or is the name of a file.
        NotALogError: there are no logs.
        FileExistsError: a file exists, and `--force` was not given; nothing was written.
    """
    if out == "-" or Path(out).suffix == ".log":
        raise click.UsageError(f"-o has to be a directory where {path} is one.")
    with usage_errors():
        refuse_in_data_directory(out, is_data=True)
    files = [
        file
        for partition in catalog
        for file in batch_files(partition)
        if file.name.kind in _SEGMENTS
    ]
    if not files:
        raise NotALogError("no segments", path=path)
    pairs: list[tuple[str, Path | None]] = []
    for file in files:
        target_file = Path(out, file.directory or "", file.path.with_suffix(".log").name)
        _refuse_taken(target_file, file.path, force=force)
        pairs.append((str(file.path), target_file))
    return pairs


def _check_offsets(pairs: Sequence[tuple[str, Path | None]]) -> None:
    """Refuse a new file in a partition that has the same offsets in other segments.

    Raises:
        FileExistsError: a partition has them; nothing was written.
    """
    from kseg.analysis.info import info_of_file  # imported late: few outputs have other segments

    made = {target_file for _path, target_file in pairs}
    for path, target_file in pairs:
        if (
            target_file is None
            or path == _STDIN
            or not (target_file.stem.isdigit() and target_file.parent.is_dir())
        ):
            continue
        logs = [segment.log for segment in list_partition(target_file.parent).segments]
        neighbours = [info_of_file(log) for log in logs if log not in made]
        if not neighbours:
            continue
        source = info_of_file(Path(path))
        start = source.log_start_offset
        end = source.log_end_offset
        for neighbour in neighbours:
            if neighbour.log_start_offset < end and start < neighbour.log_end_offset:
                reason = f"{neighbour.path} has offsets out of {start} to {end - 1}, too"
                hint = f"{reason}; choose an empty directory"
                raise FileExistsError(errno.EEXIST, hint, str(target_file))


class FileConversion:
    """Converts one file, several tiles at a time; the result does not depend on their number.

    The work on a tile puts the converted bytes, and functions that count or report. These are
    written and called in the order of the file, in one thread.
    """

    def __init__(self, path: str, target: Target, jobs: int, *, skip: bool) -> None:
        """Start with nothing written and nothing found."""
        self.path = path
        self.target = target
        self.jobs = jobs
        self.skip = skip
        self.faults: list[KsegError] = []
        self.left_out = ""
        self.bytes_in = 0
        self.bytes_out = 0
        self.losses = Losses()
        self.tally = Tally()
        self._first_offset = 0
        self._converters = PerThread(lambda: Converter(target, self._first_offset))

    def go(self, target: Path | None, first_offset: int | None) -> None:
        """Convert the file.

        Args:
            target: the new file; None for standard output.
            first_offset: the offset of the first message of Kafka 0.7; None for that in the name of
                `target`.
        """
        if self.path == _STDIN:
            with _open_output(target, None) as write:
                self._tiles(stream_tiles(sys.stdin.buffer), write, stdin_fault, 0)
            return
        path = path_at(self.path)
        if not file_name(path).kind.holds_batches:
            raise NotALogError("a file without records", path=self.path)
        with Segment.open(path) as segment, _open_output(target, path) as write:
            if segment.kafka07:  # its messages are numbered one after the other
                self.jobs, self._first_offset = 1, _first_offset(first_offset, target)
            self._tiles(segment.walk(), write, segment.stop_fault, segment.size)

    def _tiles(
        self,
        tiles: Iterator[Tile],
        write: _Write,
        stop_fault: Callable[[BatchTable], KsegError | None],
        size: int,
    ) -> None:
        """Convert the tiles of a walk.

        Args:
            tiles: the tiles.
            write: writes the new bytes.
            stop_fault: returns the error of the walk's end; None if it ends without one.
            size: the size of the file, for the bar; 0 if not known.
        """
        table: BatchTable | None = None

        def pieces() -> Iterator[Work]:
            nonlocal table
            for tile in tiles:
                table = tile.table
                done = partial(bar.to, table.end_position, size)
                yield At(self.path, partial(self._tile, tile, done))

        with output.progress("convert", size) as bar:
            run_in_order(pieces(), output.taker(partial(self._write, write)), threads=self.jobs)
        assert table is not None
        self.bytes_in = table.end_position
        self._end(table, stop_fault)

    def _write(self, write: _Write, part: bytes | memoryview) -> None:
        """Write bytes; raises an error before the segment becomes too long."""
        self.bytes_out += len(part)
        if self.bytes_out > SEGMENT_BYTES_MAX:
            raise LimitExceededError(
                f"the result would pass the {SEGMENT_BYTES_MAX} bytes of a segment",
                path=self.path,
            )
        write(part)

    def _tile(self, tile: Tile, done: Callable[[], object], put: Put) -> None:
        """Put the converted batches of a tile, and its faults, in the order of the file."""
        with self._converters.one() as converter:
            converter.losses, converter.tally = Losses(), Tally()
            converter.on_error = partial(self._put_fault, put) if self.skip else None
            for part in converter.convert(tile.data, tile.table, tile.base):
                put(part)
            put(partial(self._count, converter.losses, converter.tally))
        put(done)

    def _put_fault(self, put: Put, error: KsegError) -> None:
        """Put a fault, which is noted in the order of the file."""
        put(partial(self._add_fault, error))

    def _count(self, losses: Losses, tally: Tally) -> None:
        """Add the counts of a tile."""
        self.losses += losses
        self.tally += tally

    def _end(self, table: BatchTable, stop_fault: Callable[[BatchTable], KsegError | None]) -> None:
        """Handle the end of the walk: the end of the file, a tail that is left out, or damage."""
        fault = stop_fault(table)
        if fault is None:
            if table.stop in TAILS:
                self.left_out = one_line(at_path(stop_error(table), self.path))
            return
        at_path(fault, self.path)
        if not self.skip:
            raise fault
        self._add_fault(fault)

    def _add_fault(self, error: KsegError) -> None:
        self.faults.append(at_path(error, self.path))

    def say(self, target: Path | None, *, quiet: bool) -> None:
        """Report drops and damage and, unless `quiet`, the result."""
        tally = self.tally
        complain_of(self.faults)
        if self.left_out:
            complain(f"kseg: warning: {self.left_out}; left out")
        complain(*(f"kseg: warning: {sentence}" for sentence in self.losses.sentences()))
        if not quiet:
            complain(
                f"{target or 'standard output'}: {self.bytes_out} bytes from {self.bytes_in}; "
                f"batches: {tally.copied_batches} copied, {tally.recoded_batches} recompressed, "
                f"{tally.converted_batches} converted with {tally.records_converted} records"
            )

    def document(self, target: Path | None) -> dict[str, Any]:
        """The result, for `--json`."""
        tally = self.tally
        target_format = self.target
        return {
            "path": self.path,
            "output": str(target),
            "magic": target_format.magic,
            "codec": None if target_format.compression is None else target_format.compression.label,
            "level": target_format.level,
            **fields_of(self, "bytes_in bytes_out"),
            **fields_of(
                tally,
                "copied_batches recompressed_batches=recoded_batches converted_batches"
                " converted_records=records_converted",
            ),
            "dropped": self.losses.as_dict(),
            "findings": [one_line(fault) for fault in self.faults],
        }


def stdin_fault(table: BatchTable) -> KsegError | None:
    """The error of a stream's end; None for a torn end, as the rest of its log may be elsewhere."""
    if table.stop in (*WHOLE_ENDS, *TAILS):
        return None
    return stop_error(table)


def _target_path(path: str, out: str, *, force: bool) -> Path | None:
    """The file for the result; None for standard output.

    Raises:
        FileExistsError: something is there, and `--force` was not given.
        OSError: it is a device, a pipe or a socket.
    """
    if out == "-":
        return None
    target = Path(out)
    if target.is_dir():
        if path == _STDIN:
            raise click.UsageError("-o has to be a file where PATH is standard input.")
        target /= Path(path).with_suffix(".log").name
    if target.exists():
        check_replaceable(target)
    _refuse_taken(target, None if path == _STDIN else Path(path), force=force)
    return target


def _refuse_taken(target: Path, source: Path | None, *, force: bool) -> None:
    """Refuse a target that is the source itself, and without `force` any existing target.

    Args:
        target: the new file.
        source: the file to convert; None for standard input.
        force: whether an existing file is replaced.
    """
    if not target.exists():
        return
    if source is not None and source.exists() and target.samefile(source):
        raise click.UsageError("OUT is PATH itself.")
    if not force:
        raise FileExistsError(errno.EEXIST, "exists already; --force replaces it", str(target))


@contextmanager
def _open_output(target: Path | None, source: Path | None) -> Iterator[_Write]:
    """A function that writes; the file gets its name when the block ends without an error."""
    if target is None:
        stdout = output.binary_stdout()
        yield stdout.write
        stdout.flush()
        return
    with whole_file(target, source=source) as sink:
        yield sink.write


def _first_offset(first_offset: int | None, target: Path | None) -> int:
    """The offset of the first message of Kafka 0.7: as given, or from the new file's name, or 0."""
    if first_offset is not None or target is None:
        return first_offset or 0
    try:
        name = parse_name(target.name)
    except NotALogError:
        return 0
    return 0 if name is None else name.base_offset or 0


# ---- in place ------------------------------------------------------------------------------------


def _recode(
    directories: Paths,
    codec: str | None,
    level: int | None,
    selection: Selection,
    backup_dir: str | None,
    command_settings: CommandSettings,
    *,
    apply: bool,
    as_json: bool,
) -> int:
    """Plan, and with `apply` change; returns the exit code."""
    if codec is None:
        raise click.UsageError("Give --codec, for segments in place; or -o OUT.")
    options = change_of(
        command_settings, apply=apply, backup_dir=backup_dir, no_backup=backup_dir is None
    )
    kind = Compression(CODECS.index(codec))
    if level is not None:
        with usage_errors():
            check_level(kind, level)
    directories, settings, of_settings, alone = logs_with_settings(
        directories, selection, command_settings
    )
    plans = [
        plan_recoding(
            path, of_partition.retention_rules(of_one_log=alone), kind, level, options.now_ms
        )
        for path, of_partition in settings.items()
    ]
    share = partial(share_out, verb="convert", jobs=1)
    try:
        reports = run(plans, options, RecodingPlan.planned, share=share)
    except KeyboardInterrupt:
        complain("kseg: interrupted: finished segments stay, the others are as they were")
        raise
    plans = [done.plan for done in reports]
    damage = [one_line(error) for plan in plans for error in plan.findings]
    findings = [*of_settings, *(finding for plan in plans for finding in plan.findings)]
    if not as_json:
        say_of_settings(of_settings, settings.values())
        output.write_lines(
            f"left alone: {plan.path}: {plan.left_alone}" for plan in plans if plan.left_alone
        )
    complain(*(f"kseg: not changed: {line}" for line in damage))
    code = report(
        "convert",
        output.path_field(directories),
        options,
        reports,
        actions=[action for plan in plans for action in plan.actions],
        as_json=as_json,
        remedy="--apply does it",
        codec=codec,
        level=level,
        partitions=[_partition_document(plan) for plan in plans],
        findings=[one_line(error) for error in findings],
    )
    return Exit.FOUND if have_damage(findings) else code


def _partition_document(plan: RecodingPlan) -> dict[str, object]:
    """A partition in the document."""
    return {
        "path": str(plan.path),
        "left_alone": plan.left_alone or None,
        "segments": [
            {
                **fields_of(segment, "base_offset bytes new_bytes=kept_bytes"),
                "why": segment.why or None,
            }
            for segment in plan.segments
        ],
    }
