"""`kseg convert DIR... --codec C`: closed segments in another codec, in place."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kseg.cli import output
from kseg.cli.closed import change_of, say
from kseg.cli.failures import Exit, complain, one_line, usage_errors
from kseg.cli.parsing import CODECS, GivenSettings, Paths
from kseg.cli.paths import catalog_of
from kseg.cli.settings import data_directories, have_damage, known_settings, say_of_settings
from kseg.constants import Compression
from kseg.files.selection import Selection
from kseg.format.compress import check_level
from kseg.log.closed import has_segments
from kseg.log.recoding import RecodedPartition, Recoding
from kseg.log.recovery import Action, kept_bytes


def recode(
    directories: Paths,
    codec: str | None,
    level: int | None,
    selection: Selection,
    backup_dir: str | None,
    given: GivenSettings,
    *,
    apply: bool,
    as_json: bool,
) -> int:
    """Plan, and with `apply` change; returns the exit code."""
    if codec is None:
        raise click.UsageError("Give --codec, for segments in place; or -o OUT.")
    change = change_of(
        apply=apply, output_dir=None, backup_dir=backup_dir, no_backup=backup_dir is None
    )
    kind = Compression(CODECS.index(codec))
    if level is not None:
        with usage_errors():
            check_level(kind, level)
    how = Recoding(kind, level, given.clock())
    directories, given = data_directories(directories, given)
    catalog = catalog_of(directories, selection, strict=True)
    found = list(catalog)
    known = known_settings(found, given, directories)
    if len(found) > 1:
        found = [each for each in found if has_segments(each.path)]
    alone = len(catalog) == 1 and not catalog.data_directories
    settings = [known.of(each.path) for each in found]
    ones = [
        how.plan(each.path, one.retention_rules(of_one_log=alone))
        for each, one in zip(found, settings, strict=True)
    ]
    if apply:
        try:
            with output.progress("convert", 0, in_bytes=True) as bar:
                how.apply_all(ones, change, bar.to)
        except KeyboardInterrupt:
            complain("kseg: interrupted: finished segments stay, the others are as they were")
            raise
    findings = [*known.findings, *(each for one in ones for each in one.findings)]
    if not as_json:
        say_of_settings(known.findings, settings)
        output.write_lines(_left_alone(ones))
    complain(*(f"kseg: not changed: {one_line(error)}" for one in ones for error in one.findings))
    kept = [each for one in ones for each in one.kept]
    code = say(
        "convert",
        output.path_field(directories),
        [action for one in ones for action in _actions(one, codec)],
        applied=apply,
        backups=sorted({str(each.backup) for each in kept}),
        remedy="--apply does it",
        room=(max(0, sum(one.freed_bytes for one in ones)), kept_bytes(kept)),
        as_json=as_json,
        codec=codec,
        level=level,
        partitions=[_document(one) for one in ones],
        findings=[one_line(error) for error in findings],
    )
    return Exit.FOUND if have_damage(findings) else code


def _left_alone(ones: list[RecodedPartition]) -> Iterator[str]:
    for one in ones:
        if one.left_alone:
            yield f"left alone: {one.path}: {one.left_alone}"


def _actions(one: RecodedPartition, codec: str) -> Iterator[Action]:
    for each in one.going:
        why = f"its batches of magic 2 become {codec}"
        if each.kept_bytes is not None:
            why = f"it has {each.kept_bytes} bytes now, with batches in {codec}"
        yield Action("convert", str(each.path), each.bytes, why)


def _document(one: RecodedPartition) -> dict[str, object]:
    return {
        "path": str(one.path),
        "left_alone": one.left_alone or None,
        "segments": [
            {
                "base_offset": each.base_offset,
                "bytes": each.bytes,
                "new_bytes": each.kept_bytes,
                "why": each.why or None,
            }
            for each in one.segments
        ],
    }
