"""`kseg spark VERB`: the jobs of `kseg.spark.jobs` on a command line, in a session of their own.

An analysis is the verb itself, with Spark's workers in place of its threads. The other verbs choose
partitions, run a job and print its answer as the verb without Spark does.

This module needs pyspark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal

import click
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kseg.catalog import partition_at
from kseg.change.cleanup import CompactionOptions
from kseg.cli import closed, output
from kseg.cli.cleanup import write_compaction
from kseg.cli.demo import quiet_spark
from kseg.cli.doctor import write_reports
from kseg.cli.failures import MARK, Exit, complain, complain_of, usage_errors
from kseg.cli.options import CommandSettings, Paths, parse_names
from kseg.cli.paths import catalog_of, check_named
from kseg.files.selection import Selection
from kseg.records.query import ALL, Range
from kseg.spark import jobs
from kseg.spark.jobs import CompactOptions, ExportResult, ReindexOptions, SparkRunner
from kseg.spark.plan import local_paths

#: An earlier run of a job may have finished these; partitions, if the verb is not here.
_NOUNS = {
    "verify": "files and directories",
    "stats": "files and directories",
    "export": "pieces of logs",
}


@contextmanager
def _session(cores: int) -> Iterator[SparkSession]:
    """A session; an error of Spark's is one of kseg's."""
    with quiet_spark(cores) as session:
        try:
            yield session
        except (PySparkException, Py4JError) as error:
            raise jobs.error_of(str(error)) from error


def _say_skipped(verb: str, skipped: int) -> None:
    if skipped:
        noun = _NOUNS.get(verb, "partitions")
        complain(f"kseg: {skipped} {noun} were finished by an earlier run")


def _run(verb: str, cores: int, job: str | None, *arguments: Any, **how: Any) -> Any:
    """The result of a job, run in a session, with a progress bar on a terminal."""
    with _session(cores) as session, output.progress(f"spark {verb}", 0) as bar:
        progress = bar.to if output.wants_progress() else None
        with usage_errors(marked=MARK):
            result = getattr(jobs, verb)(session, *arguments, job=job, progress=progress, **how)
    _say_skipped(verb, result.skipped)
    return result


def analysis(
    verb: str, run: Callable[..., int], cores: int, job: str | None, words: dict[str, Any]
) -> int:
    """Run an analysis as its verb does, with Spark in place of threads; returns the exit code.

    Args:
        verb: the name of the verb.
        run: runs the verb.
        cores: the number of cores of this machine to use.
        job: the directory of `--job`; None if it was not given.
        words: the options and paths, as arguments of `run`.
    """
    with ExitStack() as stack:
        runner = SparkRunner(
            lambda: stack.enter_context(_session(cores)),
            verb,
            now_ms=words.get("now_ms"),
            job=job,
        )
        stack.enter_context(usage_errors(marked=MARK))
        code = run(**words, jobs=runner)
    _say_skipped(verb, runner.skipped)
    return code


def local(paths: Paths) -> tuple[str, ...]:
    """Paths of this machine.

    Raises:
        UsageError: one is in a store.
    """
    with usage_errors(marked=MARK):
        return tuple(local_paths(paths))


def chosen_paths(paths: Paths, selection: Selection) -> list[str]:
    """The paths, or the chosen partitions in them; also in stores.

    Raises:
        NotALogError: a path is not Kafka's, or nothing in it is chosen.
        OSError: the store refuses.
    """
    if not selection:
        return list(paths)
    return [str(partition.path) for partition in catalog_of(paths, selection, files="all")]


def doctor_of_fleet(
    directories: Paths,
    release: str | None,
    command_settings: CommandSettings,
    cores: int,
    job: str | None,
    as_json: bool,
) -> int:
    """Run `doctor --fleet`; returns the exit code."""
    how = {"fleet": True, "release": release, "now": command_settings.now_ms}
    result = _run("doctor", cores, job, directories, **command_settings.arguments, **how)
    return write_reports(result.reports, directories, command_settings.settings, as_json=as_json)


def export(
    paths: Paths,
    out: str,
    by: str,
    fields: str | None,
    codec: str,
    on_corrupt: str,
    overwrite: bool,
    cores: int,
    job: str | None,
    isolation: str,
    open_transactions: str,
    selection: Selection,
    offset: Range | None,
    time: Range | None,
    as_json: bool,
) -> int:
    """Run the job; returns the exit code."""
    chosen = chosen_paths(paths, selection)
    with usage_errors("--fields"):
        named = None if fields is None else parse_names(fields, "field", jobs.EXPORT_FIELD_NAMES)
    source = {
        "startingOffsets": (offset or ALL)[0],
        "endingOffsets": (offset or ALL)[1],
        "startingTimestamp": (time or ALL)[0],
        "endingTimestamp": (time or ALL)[1],
        "isolation": isolation,
        "openTransactions": open_transactions,
        "onCorrupt": on_corrupt,
    }
    written = _run(
        "export",
        cores,
        job,
        chosen,
        out,
        by=by,
        columns=named or jobs.EXPORT_FIELDS,
        compression=codec,
        options={name: str(value) for name, value in source.items() if value is not None},
        overwrite=overwrite,
    )
    return _write_export(written, as_json=as_json)


def _write_export(written: ExportResult, *, as_json: bool) -> Exit:
    """Print the files of an export, and the damage; returns the exit code."""
    if as_json:
        output.write_json({**written.manifest(), "out": written.out})
    else:
        rows = [(file.path, file.records, file.bytes) for file in written.files]
        output.write_table(("file", "records", "bytes"), rows)
    complain(*(f"kseg: {fault}" for fault in written.faults))
    return Exit.FOUND if written.fault_count else Exit.OK


def compact(
    paths: Paths,
    backup_dir: str | None,
    apply: bool,
    command_settings: CommandSettings,
    high_watermark: Literal["end"] | None,
    cores: int,
    job: str | None,
    selection: Selection,
    as_json: bool,
    **how: Any,
) -> int:
    """Run the job; returns the exit code."""
    options = CompactOptions(
        how=CompactionOptions(**how),
        **command_settings.arguments,
        high_watermark=high_watermark,
        now_ms=command_settings.now_ms,
        backup_directory=None if backup_dir is None else os.path.abspath(backup_dir),
    )
    directories = _directories(paths, selection, command_settings)
    result = _run("compact", cores, job, directories, apply=apply, options=options)
    say = partial(
        closed.say,
        "compact",
        output.path_field(paths),
        applied=result.applied,
        backups=result.backups,
        remedy="--apply does it",
        room=(result.freed_bytes, result.kept_bytes),
    )
    of_settings = [
        finding for partition in result.partitions for finding in partition.settings.findings
    ]
    findings = [*result.settings_findings, *of_settings]
    return write_compaction(result.partitions, findings, say, as_json=as_json)


def reindex(
    paths: Paths,
    kinds: tuple[str, ...],
    exact: bool,
    apply: bool,
    backup_dir: str | None,
    no_backup: bool,
    cores: int,
    job: str | None,
    selection: Selection,
    command_settings: CommandSettings,
    as_json: bool,
) -> int:
    """Run the job; returns the exit code."""
    if no_backup and backup_dir is not None:
        raise click.UsageError("Give either --backup-dir or --no-backup.")
    options = ReindexOptions(
        kinds=closed.kinds_named(kinds),
        exact=exact,
        **command_settings.arguments,
        now_ms=command_settings.now_ms,
        keep=not no_backup,
        backup_directory=None if backup_dir is None else os.path.abspath(backup_dir),
    )
    directories = _directories(paths, selection, command_settings)
    result = _run("reindex", cores, job, directories, apply=apply, options=options)
    complain_of(result.settings_findings)
    say = partial(
        closed.say,
        "reindex",
        output.path_field(paths),
        applied=result.applied,
        backups=result.backups,
        remedy="--apply does it",
    )
    plans = [(partition_at(plan.path), plan) for plan in result.plans]
    return closed.write_reindex(plans, say, as_json=as_json)


def _directories(
    paths: Paths, selection: Selection, command_settings: CommandSettings
) -> list[str]:
    """The chosen partitions that can be changed; the settings name none that is not here."""
    partitions = closed.changeable(catalog_of(local(paths), selection).partitions)
    check_named(partitions, command_settings)
    return [str(partition.path) for partition in partitions]
