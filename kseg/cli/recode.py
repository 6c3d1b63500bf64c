"""`kseg convert DIR... --codec C`: closed segments in another codec, in place."""

from __future__ import annotations

from functools import partial

import click

from kseg.change.recode import RecodingPlan, plan_recoding
from kseg.change.run import run
from kseg.cli import output
from kseg.cli.cleanup import logs_with_settings
from kseg.cli.closed import change_of, report, share_out
from kseg.cli.failures import Exit, complain, one_line, usage_errors
from kseg.cli.parsing import CODECS, GivenSettings, Paths
from kseg.cli.settings import have_damage, say_of_settings
from kseg.constants import Compression
from kseg.documents import fields_of
from kseg.files.selection import Selection
from kseg.format.compress import check_level


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
    options = change_of(
        given, apply=apply, output_dir=None, backup_dir=backup_dir, no_backup=backup_dir is None
    )
    kind = Compression(CODECS.index(codec))
    if level is not None:
        with usage_errors():
            check_level(kind, level)
    directories, settings, of_settings, alone = logs_with_settings(directories, selection, given)
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
        partitions=[_document(plan) for plan in plans],
        findings=[one_line(error) for error in findings],
    )
    return Exit.FOUND if have_damage(findings) else code


def _document(plan: RecodingPlan) -> dict[str, object]:
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
