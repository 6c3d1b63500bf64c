"""`kseg spark VERB`: the jobs of `kseg.spark.jobs` on a command line, in a session of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kseg.cli import changing, output
from kseg.cli.escapes import printable
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.parsing import GivenSettings, Range, Selection, Setting, by_topic, parse_names
from kseg.cli.paths import partition_at, partitions, places
from kseg.cli.settings import check_given, say_of_findings
from kseg.errors import NotALogError

if TYPE_CHECKING:
    from kseg.spark.jobs import CompactionResult, CompactResult, ExportResult, ReindexResult

#: Runs a job with what it is given besides the session.
Run = Callable[..., Any]
#: How the jobs begin what they refuse, for Spark's users.
_MARK = "kseg: "
#: What an earlier run of a job may have finished.
_FILES, _PIECES = "files and directories", "pieces of logs"


@contextmanager
def _session(
    cores: int, verb: str, job: str | None, noun: str = "partitions"
) -> Iterator[tuple[Any, Run]]:
    """The jobs, and what runs one in a session, with a progress bar on a terminal.

    Args:
        cores: of this machine.
        verb: as the bar has it.
        job: of `--job`.
        noun: what an earlier run may have finished; said when the session has ended.
    """
    from kseg.spark.demo import quiet_spark

    skipped = 0
    with quiet_spark(cores) as session, output.progress(f"spark {verb}", 0) as bar:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from kseg.spark import jobs
        from kseg.spark.jobs import error_of

        def run(work: Callable[..., Any], *given: Any, **how: Any) -> Any:
            nonlocal skipped
            progress = bar.to if output.wants_progress() else None
            found = work(session, *given, job=job, progress=progress, **how)
            skipped = found.skipped
            return found

        try:
            with usage_errors(marked=_MARK):
                yield jobs, run
        except (PySparkException, Py4JError) as error:
            raise error_of(str(error)) from error
    if skipped:
        complain(f"kseg: {skipped} {noun} were finished by an earlier run")


def chosen_paths(
    paths: tuple[str, ...], selection: Selection, *, stores: bool = False
) -> list[str]:
    """The paths, or the chosen partitions in them; also in stores, if the job reads those.

    Raises:
        UsageError: a path is in a store, and the job reads no stores.
        NotALogError: a path is nothing of Kafka's, or nothing in it is chosen.
        OSError: the store refuses.
    """
    from kseg.spark.listing import local_path
    from kseg.spark.remote import is_remote

    if not stores:
        _refuse_stores(paths)
    found: list[str] = []
    for path in paths:
        if not is_remote(path):
            found += places((local_path(path),), selection)
        else:
            found += _chosen_there(path, selection) if selection else [path]
    return found


def _chosen_there(path: str, selection: Selection) -> list[str]:
    """The partitions under a URL that are chosen."""
    from kseg.spark.listing import list_logs
    from kseg.spark.options import parse_options

    logs = list_logs(parse_options({"path": path}))
    found = [log.directory for log in logs if selection.takes(log.topic, log.partition)]
    if not found:
        reason = selection.why_nothing((log.topic, log.partition) for log in logs)
        raise NotALogError(reason, path=path)
    return found


def _refuse_stores(paths: tuple[str, ...]) -> None:
    from kseg.spark.listing import local_path

    for path in paths:
        with usage_errors(marked=_MARK):
            local_path(path)


def verify(
    paths: tuple[str, ...],
    deep: bool,
    cores: int,
    job: str | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.analysis.verify import VerifyOptions
    from kseg.cli.verify import write_report

    chosen = chosen_paths(paths, Selection(topics, partitions))
    with _session(cores, "verify", job, _FILES) as (jobs, run):
        found = run(jobs.verify, chosen, options=VerifyOptions(deep=deep))
    return write_report(found.report, as_json=as_json)


def diff(
    copies: tuple[str, ...],
    records: bool,
    cores: int,
    job: str | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.cli.diff import write_report

    _refuse_stores(copies)
    takes = Selection(topics, partitions).choice
    with _session(cores, "diff", job) as (jobs, run):
        found = run(jobs.diff, copies, records=records, chosen=takes)
    return write_report(found.report, copies, as_json=as_json)


def doctor(
    directories: tuple[str, ...],
    fleet: bool,
    release: str,
    given: GivenSettings,
    cores: int,
    job: str | None,
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.cli.doctor import write_report, write_reports

    _refuse_stores(directories)
    with _session(cores, "doctor", job) as (jobs, run):
        found = run(
            jobs.doctor,
            directories,
            fleet=fleet,
            release=release,
            **given.arguments,
            now_ms=given.now_ms,
        )
    if fleet:
        return write_reports(found.reports, directories, given.settings, as_json=as_json)
    return write_report(found.report, directories, given.settings, as_json=as_json)


def explain(
    directories: tuple[str, ...],
    supposed: tuple[Setting, ...],
    free_bytes: int | None,
    segments: bool,
    given: GivenSettings,
    cores: int,
    job: str | None,
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.cli.explain import write_report

    _refuse_stores(directories)
    what_if, topic_what_if = by_topic(supposed)
    with _session(cores, "explain", job) as (jobs, run):
        found = run(
            jobs.explain,
            directories,
            **given.arguments,
            what_if=what_if,
            topic_what_if=topic_what_if,
            free_bytes=free_bytes,
            now_ms=given.now_ms,
        )
    settings = (*given.settings, *supposed)
    return write_report(found.report, directories, settings, segments=segments, as_json=as_json)


def stats(
    paths: tuple[str, ...],
    top: int,
    headers: bool,
    encoding: str,
    cores: int,
    job: str | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.analysis.stats import StatsOptions
    from kseg.cli.stats import write_report

    chosen = chosen_paths(paths, Selection(topics, partitions))
    options = StatsOptions(records=not headers, top=top)
    with _session(cores, "stats", job, _FILES) as (jobs, run):
        found = run(jobs.stats, chosen, options=options)
    return write_report(found.report, paths, encoding, as_json=as_json)


def export(
    paths: tuple[str, ...],
    out: str,
    by: str,
    fields: str | None,
    codec: str,
    on_corrupt: str,
    overwrite: bool,
    cores: int,
    job: str | None,
    isolation: str,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    offsets: Range,
    times: Range,
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    chosen = chosen_paths(paths, Selection(topics, partitions), stores=True)
    source = _range_options(offsets, times)
    source |= {"isolation": isolation, "onCorrupt": "skip" if on_corrupt == "skip" else "fail"}
    with _session(cores, "export", job, _PIECES) as (jobs, run):
        with usage_errors("--fields"):
            known = jobs.EXPORT_FIELD_NAMES
            names = None if fields is None else parse_names(fields, "field", known)
        written = run(
            jobs.export,
            chosen,
            out,
            by=by,
            fields=jobs.EXPORT_FIELDS if names is None else names,
            compression=codec,
            options=source,
            overwrite=overwrite,
        )
    return _write_export(written, as_json=as_json)


def _range_options(offsets: Range, times: Range) -> dict[str, str]:
    """Ranges as options of the source."""
    given = {
        "startingOffsets": offsets[0],
        "endingOffsets": offsets[1],
        "startingTimestamp": times[0],
        "endingTimestamp": times[1],
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _write_export(written: ExportResult, *, as_json: bool) -> Exit:
    if as_json:
        output.write_json({**written.manifest(), "out": written.out})
    else:
        rows = [(file.path, file.records, file.bytes) for file in written.files]
        output.write_table(("file", "records", "bytes"), rows)
    for fault in written.faults:
        complain(f"kseg: {printable(fault)}")
    return Exit.FOUND if written.fault_count else Exit.OK


def compaction(
    paths: tuple[str, ...],
    given: GivenSettings,
    cores: int,
    job: str | None,
    isolation: str,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    chosen = chosen_paths(paths, Selection(topics, partitions), stores=True)
    with _session(cores, "compaction", job, _PIECES) as (jobs, run):
        plan = jobs.CompactOptions(
            **given.arguments,
            now_ms=given.now_ms,
        )
        found = run(jobs.compaction, chosen, options={"isolation": isolation}, plan=plan)
    return _write_compaction(found, paths, as_json=as_json)


def _write_compaction(found: CompactionResult, paths: tuple[str, ...], *, as_json: bool) -> Exit:
    from kseg.cli import compact as planning

    rows = [one.document() for one in found.partitions]
    planned = () if found.planned is None else found.planned.partitions
    say_of_findings(() if found.planned is None else found.planned.settings_findings)
    if as_json:
        plans = {str(one.path): planning.document(one) for one in planned}
        for row in rows:
            row["compaction"] = plans.get(row["path"])
        output.write_document(
            "compaction/1", {"path": output.path_field(paths), "partitions": rows}
        )
    else:
        names = ("log_bytes", "records", "keys", "tombstones", "null_keys")
        saved = ("saved_records", "saved_bytes", "next_saved_records", "next_saved_bytes")
        output.write_table(
            ("partition", *names, *saved),
            [
                (os.path.basename(row["path"]), *(row[name] for name in (*names, *saved)))
                for row in rows
            ],
        )
        planning.say_what_stays(planned)
    return Exit.FOUND if planning.say_findings(planned) else Exit.OK


def compact(
    paths: tuple[str, ...],
    backup_dir: str | None,
    apply: bool,
    given: GivenSettings,
    high_watermark: Literal["end"] | None,
    cores: int,
    job: str | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    as_json: bool,
    **how: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.log.compact_closed import CompactionOptions

    wanted = _directories(paths, Selection(topics, partitions))
    check_given([partition_at(Path(path)) for path in wanted], given)
    with _session(cores, "compact", job) as (jobs, run):
        options = jobs.CompactOptions(
            how=CompactionOptions(**how),
            **given.arguments,
            high_watermark=high_watermark,
            now_ms=given.now_ms,
            backup_directory=None if backup_dir is None else os.path.abspath(backup_dir),
        )
        found = run(jobs.compact, wanted, apply=apply, options=options)
    return _write_compact(found, paths, as_json=as_json)


def _write_compact(found: CompactResult, paths: tuple[str, ...], *, as_json: bool) -> Exit:
    from kseg.cli.compact import write_report

    say = partial(
        changing.say,
        "compact",
        output.path_field(paths),
        applied=found.applied,
        backups=found.backups,
        remedy="--apply does it",
        room=changing.Room(found.freed_bytes, found.kept_bytes),
    )
    return write_report(found.partitions, found.settings_findings, say, as_json=as_json)


def reindex(
    paths: tuple[str, ...],
    kinds: tuple[str, ...],
    exact: bool,
    apply: bool,
    backup_dir: str | None,
    no_backup: bool,
    cores: int,
    job: str | None,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    given: GivenSettings,
    as_json: bool,
) -> int:
    """Do what the verb says; returns the exit code."""
    from kseg.log.recovery import KINDS

    if no_backup and backup_dir is not None:
        raise click.UsageError("Give either --backup-dir or --no-backup.")
    wanted = _directories(paths, Selection(topics, partitions))
    check_given([partition_at(Path(path)) for path in wanted], given)
    with _session(cores, "reindex", job) as (jobs, run):
        options = jobs.ReindexOptions(
            kinds=tuple(kind for kind in KINDS if not kinds or kind.value in kinds),
            exact=exact,
            **given.arguments,
            now_ms=given.now_ms,
            keep=not no_backup,
            backup_directory=None if backup_dir is None else os.path.abspath(backup_dir),
        )
        found = run(jobs.reindex, wanted, apply=apply, options=options)
    return _write_reindex(found, paths, as_json=as_json)


def _directories(paths: tuple[str, ...], selection: Selection) -> list[str]:
    _refuse_stores(paths)
    found = changing.changeable(list(partitions(paths, selection)))
    return [str(partition.path) for partition in found]


def _write_reindex(found: ReindexResult, paths: tuple[str, ...], *, as_json: bool) -> Exit:
    from kseg.cli.reindex import document, say_left_alone

    say_of_findings(found.settings_findings)
    places = [partition_at(plan.path) for plan in found.plans]
    code = changing.say(
        "reindex",
        output.path_field(paths),
        found.actions,
        applied=found.applied,
        backups=found.backups,
        remedy="--apply does it",
        as_json=as_json,
        findings=[printable(str(finding)) for finding in found.findings],
        partitions=[
            document(plan, place.topic, place.partition)
            for plan, place in zip(found.plans, places, strict=True)
        ],
    )
    return Exit.FOUND if say_left_alone(found.findings) else code
