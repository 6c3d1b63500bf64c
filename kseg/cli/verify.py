"""`kseg verify`: `kseg.analysis.verify` on a command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.cli import output
from kseg.cli.failures import Exit
from kseg.cli.internal import mention
from kseg.cli.parsing import Paths
from kseg.cli.paths import catalog_of, tier_of_run
from kseg.files.selection import Selection
from kseg.format.times import iso_text
from kseg.stores.path import is_remote

if TYPE_CHECKING:
    from kseg.analysis.doctor import DoctorReport
    from kseg.analysis.values import Examined, Report
    from kseg.files.mapping import Mapping
    from kseg.log.recovery import Lost


def verify(
    paths: Paths,
    deep: bool,
    sequences: bool,
    complete: bool,
    jobs: int,
    selection: Selection,
    mapping: Mapping,
    now_ms: int | None,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.checks import VerifyOptions
    from kseg.analysis.verify import verify_of

    is_tiered = tier_of_run() is not None
    options = VerifyOptions(deep=deep, mapping=mapping, now_ms=now_ms, sequences=sequences)
    catalog = catalog_of(paths, selection, files="all")
    left_out = tuple(entry for entry in catalog.left_out if str(entry.path) not in paths)
    catalog = replace(catalog, left_out=left_out)  # no finding is about a wrong command line
    if is_tiered:  # of a partition that is only there, nothing is here
        local_partitions = tuple(
            partition
            for partition in catalog
            if is_remote(str(partition.path)) or os.path.lexists(partition.path)
        )
        catalog = replace(catalog, partitions=local_partitions)
    with output.progress("verify", 0) as bar:
        report = verify_of(
            catalog,
            options,
            threads=jobs,
            progress=bar.to,
            skipped=list(catalog.skipped),
            more=_of_tier(paths, selection, deep, jobs, now_ms) if is_tiered else (),
        )
    if not (as_json or is_tiered):
        mention(catalog)
    if complete:
        from kseg.analysis.doctor import doctor

        with output.progress("complete", 0) as bar:
            outlook = doctor(paths, threads=jobs, progress=bar.to)
        return _write_completeness(report, outlook, as_json=as_json)
    if as_json:
        output.write_json(report.to_json())
    else:
        _print(report)
    return Exit.OK if report.ok else Exit.FOUND


def _write_completeness(report: Report, outlook: DoctorReport, *, as_json: bool) -> Exit:
    """Print the findings, and as of when all is there or what is not; returns the exit code."""
    gaps = sum(finding.code == "segment-gap" for finding in report.findings)
    ok = report.ok and not (gaps or outlook.lacking)
    if as_json:
        lacks = [finding.to_dict() for finding in outlook.lacking]
        document = {**report.to_json(), "complete": ok, "as_of": outlook.as_of_ms, "lacks": lacks}
        output.write_json(document)
        return Exit.OK if ok else Exit.FOUND
    _print(report)
    output.write_lines(f"lacks: {finding.path}: {finding.message}" for finding in outlook.lacking)
    as_of = None if outlook.as_of_ms is None else iso_text(outlook.as_of_ms)
    when = f"as of {as_of}" if as_of else "without a metadata log that would say as of when"
    why = [output.counted(len(outlook.lacking), "thing") + " lacking"] if outlook.lacking else []
    why += [output.counted(gaps, "gap")] if gaps and not outlook.lacking else []
    why += [] if report.ok else ["there are errors"]
    output.write_line(f"complete {when}" if ok else f"not complete: {', '.join(why)}")
    return Exit.OK if ok else Exit.FOUND


def _of_tier(
    paths: Paths, selection: Selection, deep: bool, jobs: int, now_ms: int | None
) -> Iterator[Examined]:
    """Examine what the tier has of the partitions."""
    from kseg.analysis.tiers import examine_tier
    from kseg.log.clock import now_of

    tier = tier_of_run()
    assert tier is not None
    for partition in catalog_of(paths, selection):
        yield examine_tier(tier.log(partition.path), deep=deep, now_ms=now_of(now_ms), threads=jobs)


def _print(report: Report) -> None:
    output.write_lines(
        f"{finding.severity}: {finding}; {finding.advice}" for finding in report.findings
    )
    output.write_lines(map(_lost_line, report.lost))
    errors = sum(finding.severity == "error" for finding in report.findings)
    warnings = len(report.findings) - errors
    output.write_line(
        f"{output.counted(report.files, 'file')}, {output.human_bytes(report.bytes)}, "
        f"{output.counted(report.batches, 'batch', 'batches')}, "
        f"{output.counted(report.records, 'record')}: "
        f"{output.counted(errors, 'error')}, {output.counted(warnings, 'warning')}"
    )


def _lost_line(lost: Lost) -> str:
    text = f"lost: {lost.path} @ {lost.position}: {lost.extent} cannot be read"
    if lost.sound_behind:
        text += f"; {lost.sound_batches} after it: a recovery cuts them, too, if it reads this file"
        text += " ('kseg recover' shows that); 'kseg salvage' keeps them"
    return text
