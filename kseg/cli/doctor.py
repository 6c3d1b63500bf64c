"""`kseg verify`, `doctor` and `report`: what is wrong with data directories.

`verify` compares every byte; `doctor` predicts a broker's start, its changes and losses, and the
repairs; `report` writes one HTML page about data directories, or its numbers as JSON.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.internal import mention
from kseg.cli.options import CommandSettings, Paths, Setting
from kseg.cli.paths import catalog_of, check_settings, data_directories, tier_of_run
from kseg.files.selection import Selection, some_of
from kseg.files.whole_file import refuse_in_data_directory
from kseg.format.times import iso_text
from kseg.stores.path import is_remote

if TYPE_CHECKING:
    from kseg.analysis.doctor import BrokerFinding, DirectoryOutlook, DoctorReport, PartitionOutlook
    from kseg.analysis.values import Examined, Report
    from kseg.files.mapping import Mapping
    from kseg.log.recovery import Lost

#: The kind of the metadata log, which each start reads again.
_OF_KRAFT = "cluster metadata"
#: The most lines of one code that are printed for a directory; others are counted.
_LINES_MAX = 10
_SAID = {
    "starts": "the broker starts",
    "directory-offline": "the broker starts without a directory",
    "broker-fails": "the broker does not start",
    "unknown": "whether the broker starts is not known",
}
_OF_DIRECTORY = {
    "starts": "starts",
    "directory-offline": "goes offline",
    "broker-fails": "stops the broker",
    "unknown": "unknown",
}


def doctor(
    directories: Paths,
    release: str | None,
    jobs: int,
    command_settings: CommandSettings,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.doctor import doctor as run

    for path in directories:
        with suppress(PermissionError):  # a finding
            os.stat(path)  # a broker makes a directory that is not there; here it is a wrong name
    directories, command_settings = data_directories(directories, command_settings)
    if not directories:
        raise click.UsageError("Missing argument 'DIR...'.")
    with usage_errors(), output.progress("doctor", 0) as bar:
        report = run(
            directories,
            release=release,
            **command_settings.arguments,
            now=command_settings.clock(),
            threads=jobs,
            progress=bar.to,
        )
    _check(command_settings.settings, (report,))
    if as_json:
        output.write_document("doctor/1", {"path": list(directories), **report.to_json()})
    else:
        output.write_lines(_page(report))
    return Exit.OK if report.ok else Exit.FOUND


def write_reports(
    reports: Sequence[DoctorReport],
    directories: Sequence[str],
    settings: Sequence[Setting],
    *,
    as_json: bool,
) -> Exit:
    """Print the predictions for the brokers of a fleet; returns the exit code.

    Raises:
        UsageError: a setting was given for a topic that is not here.
    """
    _check(settings, reports)
    if as_json:
        brokers = [
            {
                "cluster_id": report.cluster_id,
                "node_id": report.node_id,
                "path": [directory.path for directory in report.directories],
                **report.to_json(),
            }
            for report in reports
        ]
        document = {"path": list(directories), "ok": all(report.ok for report in reports)}
        output.write_document("doctor-fleet/1", {**document, "brokers": brokers})
    else:
        for number, report in enumerate(reports):
            title = (
                "broker"
                if report.node_id is None
                else f"broker {report.node_id} of {report.cluster_id}"
            )
            output.write_lines((*([""] if number else ()), f"{title}:", *_page(report)))
    return Exit.OK if all(report.ok for report in reports) else Exit.FOUND


def _check(settings: Sequence[Setting], reports: Sequence[DoctorReport]) -> None:
    """Refuse settings of topics that are not here."""
    topics = {
        partition.topic
        for report in reports
        for directory in report.directories
        for partition in directory.partitions
    }
    check_settings(settings, topics)


def _page(report: DoctorReport) -> Iterator[str]:
    """The answer, then each directory, then findings about all of them."""
    counts = Counter(finding.severity for finding in report.all_findings())
    errors = output.counted(counts["error"], "error")
    warnings = output.counted(counts["warning"], "warning")
    outcome = f"{_SAID[report.outcome.value]}{_loss(report)}"
    yield f"Kafka {report.release}: {outcome}; {errors}, {warnings}"
    yield from _of_release(report)
    for directory in report.directories:
        yield ""
        yield from _of_directory(directory, report.rate)
    if report.findings:
        yield ""
        yield from _lines(report.findings)


def _of_release(report: DoctorReport) -> Iterator[str]:
    """Lines about a release for which the outcome is not known."""
    from kseg.internal.releases import COMPARED, FOLLOWED

    compared = [release for release in COMPARED if release not in FOLLOWED]
    release = f"{report.release}."
    is_followed = any(release.startswith(f"{minor}.") for minor in FOLLOWED)
    if report.outcome.value != "unknown" or is_followed:
        return
    followed = " and ".join(FOLLOWED)
    yield f"the answer below is that of Kafka {followed}, the releases of which all is known"
    if any(release.startswith(f"{minor}.") for minor in compared):
        yield f"Kafka {report.release} cuts the same; whether it starts here was not compared"
    else:
        yield (
            f"Kafka {report.release} was not compared; these releases were, and cut the same: "
            f"{', '.join(compared)}"
        )


def _loss(report: DoctorReport) -> str:
    """The records that readers lose if the broker starts now; empty if it loses none."""
    losing = report.losing
    if not losing or report.outcome.value not in ("starts", "directory-offline"):
        return ""
    records = report.lost_records
    many = "records" if records is None else output.counted(records, "record")
    named = (finding.partitions or (os.path.basename(finding.path),) for finding in losing)
    names = sorted({name for partition_names in named for name in partition_names})
    of = names[0] if len(names) == 1 else f"{len(names)} partitions"
    is_aside = all(finding.code not in ("records-cut", "log-start-ahead") for finding in losing)
    return f" and LOSES {many} of {of}{' from service' if is_aside else ''}"


def _of_directory(directory: DirectoryOutlook, rate: float | None) -> Iterator[str]:
    """The outcome of a directory, how much is read again, and its findings.

    Args:
        directory: a directory of the report.
        rate: the bytes a second that were measured; None if too few were read.
    """
    stop = "clean stop" if directory.clean else "no clean stop"
    size = output.human_bytes(sum(partition.bytes for partition in directory.partitions))
    partitions = output.counted(len(directory.partitions), "partition")
    yield (
        f"{directory.path}: {_OF_DIRECTORY[directory.outcome.value]}; {stop}, {partitions}, {size}"
    )
    swept = [
        partition
        for partition in directory.partitions
        if partition.swept_bytes and partition.kind != _OF_KRAFT
    ]
    if swept:
        yield f"  {_reading(swept, directory, rate)}"
    inside = [finding for partition in directory.partitions for finding in partition.findings]
    if not directory.clean:  # the reason is the same for all of them
        swept_paths = [
            finding.path.removeprefix(f"{directory.path}/")
            for finding in inside
            if _is_swept(finding)
        ]
        inside = [finding for finding in inside if not _is_swept(finding)]
        if swept_paths:
            warnings = output.counted(len(swept_paths), "warning")
            yield f"  {warnings}: no clean stop, so that a start reads {some_of(swept_paths)} again"
    for findings in (directory.findings, inside):
        yield from _lines(findings, "  ", home=f"{directory.path}/")


def _is_swept(finding: BrokerFinding) -> bool:
    """Whether a finding is that a start reads a partition again."""
    return finding.code == "swept"


def _reading(
    swept: Sequence[PartitionOutlook], directory: DirectoryOutlook, rate: float | None
) -> str:
    """How much of some partitions is read again, and how long that takes, in words."""
    count = output.counted(len(swept), "partition")
    size = output.human_bytes(sum(partition.swept_bytes for partition in swept))
    text = f"loading reads {size} of {count} again"
    threads = output.counted(directory.threads, "thread")
    if directory.seconds is None or rate is None:
        return f"{text}, with {threads}"
    return (
        f"{text}: about {max(directory.seconds, 0.1):.1f} s with {threads}, at the "
        f"{output.human_bytes(int(rate))} a second that were measured here"
    )


def _lines(findings: Sequence[BrokerFinding], indent: str = "", home: str = "") -> Iterator[str]:
    """Lines about findings, the worst first; of many findings of one code, only the first ones.

    Args:
        findings: the findings.
        indent: the text before each line.
        home: a prefix that is removed from paths.
    """
    order = ("error", "warning", "note")
    shown: Counter[str] = Counter()
    for finding in sorted(findings, key=lambda item: order.index(item.severity)):
        shown[finding.code] += 1
        if shown[finding.code] <= _LINES_MAX:
            yield from _with_mend(finding, home, indent)
    for code, count in shown.items():
        if count > _LINES_MAX:
            yield f"{indent}{code}: {count - _LINES_MAX} more; --json has all of them"


def _with_mend(finding: BrokerFinding, home: str, indent: str) -> Iterator[str]:
    """A line about a finding, then the lines of its advice."""
    exception = f" ({finding.exception})" if finding.exception else ""
    path = finding.path.removeprefix(home)
    yield f"{indent}{finding.severity}: {path}: {finding.message}{exception}"
    for line in (finding.mend or "").splitlines():
        yield f"{indent}    {line}"


# ---- report --------------------------------------------------------------------------------------


def report(
    directories: Paths,
    out: str | None,
    keys: bool,
    jobs: int,
    command_settings: CommandSettings,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.report import report as run

    if (out is None) is not as_json:
        raise click.UsageError("Give -o FILE for a page, or --json.")
    if out is not None:
        if Path(out).suffix not in (".html", ".htm"):
            raise click.UsageError(f"{out}: the page is HTML; give a name that ends with .html.")
        with usage_errors():
            refuse_in_data_directory(out)
        if os.path.lexists(out):
            raise click.UsageError(f"{out} is there already; choose a new name.")
        if not Path(out).absolute().parent.is_dir():
            raise click.UsageError(f"{Path(out).absolute().parent} is no directory.")
    directories, command_settings = data_directories(directories, command_settings)
    with usage_errors(), output.progress("report", 0) as bar:
        broker_report = run(
            directories,
            keys=keys,
            **command_settings.arguments,
            now=command_settings.now_ms,
            threads=jobs,
            progress=bar.to,
        )
    check_settings(
        command_settings.settings,
        {partition.topic for partition in broker_report.explain.partitions},
    )
    if out is None:
        output.write_document("report/1", {"path": list(directories), **broker_report.to_json()})
    else:
        broker_report.write(out)
        faults = len(broker_report.verify.findings) + len(
            tuple(broker_report.doctor.all_findings())
        )
        size = output.human_bytes(os.path.getsize(out))
        held = "names of topics and files, and keys" if keys else "names of topics and files"
        output.write_line(f"{out}: {size}, {output.counted(faults, 'finding')}; it holds {held}")
    return Exit.OK if broker_report.ok else Exit.FOUND


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
    if is_tiered:  # a partition that is only in the tier has no files here to verify
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
    from kseg.analysis.verify import examine_tier
    from kseg.log.clock import now_of

    tier = tier_of_run()
    assert tier is not None
    for partition in catalog_of(paths, selection):
        yield examine_tier(tier.log(partition.path), deep=deep, now_ms=now_of(now_ms), threads=jobs)


def _print(report: Report) -> None:
    """Print each finding, each damaged place, and the numbers."""
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
    """A damaged place of a log, and what becomes of the sound batches after it."""
    text = f"lost: {lost.path} @ {lost.position}: {lost.extent} cannot be read"
    if lost.sound_behind:
        text += f"; {lost.sound_batches} after it: a recovery cuts them, too, if it reads this file"
        text += " ('kseg recover' shows that); 'kseg salvage' keeps them"
    return text
