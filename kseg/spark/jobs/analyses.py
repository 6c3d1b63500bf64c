"""The analyses of kseg, with Spark's workers to share the work.

Each of verify, stats, doctor, explain and diff has its plan, its examination, its report and its
options in `kseg.analysis`, where threads run it. `SparkRunner` takes the place of the threads, and
`ANALYSES` names the function of each, and the columns of its rows. Any free worker examines a unit.
Answers that are kept in a job directory hold until the files of a unit change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cache, partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from kseg.analysis import stats as stats_
from kseg.analysis.diff import Diff, diff_of
from kseg.analysis.doctor import RELEASES, DoctorReport, chosen_of
from kseg.analysis.doctor import examine as examine_start
from kseg.analysis.doctor import plan as plan_start
from kseg.analysis.doctor import report as report_start
from kseg.analysis.explain import ExplainReport
from kseg.analysis.explain import explain as run_explain
from kseg.analysis.units import Threads, Unit, UnitKind, plan, run_units
from kseg.analysis.values import Report
from kseg.analysis.verify import VerifyOptions, verify_of
from kseg.catalog.sources import places_of
from kseg.constants import Progress
from kseg.files.names import FileKind, Unreadable
from kseg.files.selection import Selection
from kseg.log.recovery import look_at
from kseg.log.settings import SettingSources, group_by_broker
from kseg.spark.jobs.running import (
    PACE_OF_HEADERS,
    PACE_OF_PARSING,
    Item,
    mark_of,
    open_job,
    refusals_named,
    run,
    state_of,
)
from kseg.spark.options import source_options
from kseg.spark.plan import LogEntry, list_logs, local_paths
from kseg.stores.path import RemotePath, is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The chosen topics and partitions: one, or several; None for all.
Names: TypeAlias = str | Iterable[str] | None
Numbers: TypeAlias = int | Iterable[int] | None
#: Files beside partitions that an examination depends on.
_CHECKPOINTS: Final = (FileKind.CLEANER, FileKind.LOG_START, FileKind.REPLICATION)


@dataclass(frozen=True, slots=True)
class AnalysisResult:
    """The answer of an analysis.

    Attributes:
        name: of the analysis.
        reports: one; for a fleet of brokers one for each.
        tasks: how many Spark ran.
        skipped: units that an earlier run had examined.
    """

    name: str
    reports: tuple[Any, ...]
    tasks: int
    skipped: int

    @property
    def report(self) -> Any:
        """The answer that one process gives; the first one of a fleet."""
        return self.reports[0]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, by all reports."""
        return all(one.ok for one in self.reports)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows of the reports."""
        from pyspark.sql.types import StructType

        entry = ANALYSES[self.name]
        schema = cast("StructType", StructType.fromDDL(entry.columns))
        rows: list[Any] = [row for one in self.reports for row in entry.rows(one)]
        return spark.createDataFrame(rows, schema)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answers of one task, and the units whose files cannot be read.

    Attributes:
        now_ms: the clock of the task's first unit; None if units have none.
        answers: of the units, or all of them merged.
        unread: is not kept: a later run tries again.
    """

    now_ms: int | None
    answers: tuple[Any, ...]
    unread: tuple[Unreadable, ...] = ()


class SparkRunner:
    """Runs the units of an analysis in Spark's workers; `threads=` of an analysis takes it.

    Attributes:
        tasks: how many Spark ran.
        skipped: units that an earlier run had examined.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        name: str,
        *,
        now_ms: object = None,
        job: str | PathLike[str] | None = None,
    ) -> None:
        """Keep the arguments; nothing runs yet.

        Args:
            session: gives the session when there is work.
            name: of the analysis.
            now_ms: the present time, if the caller named one.
            job: a directory for notes about finished work; a later run goes on from it.
        """
        self._session = cache(session)
        self._name, self._now_ms, self._job = name, now_ms, job
        self.tasks = self.skipped = 0

    def run(
        self,
        units: Sequence[Any],
        work: Callable[[Any], Any],
        merge: Callable[[Iterable[Any]], Any] | None,
        progress: Progress | None,
    ) -> Iterator[Any]:
        """The answers to units, as `kseg.analysis.units.Runner` has them."""
        given = getattr(work, "keywords", {})
        key = mark_of([_timeless(value) for value in given.values()]), self._now_ms
        directory = None if self._job is None else open_job(self._job, self._name, key)
        items = [Item(unit, unit.cost, _mark(unit) if directory else "") for unit in units]
        ran = run(
            self._session(),
            items,
            partial(_examine, work=work, merge=merge),
            job=directory,
            usable=partial(_holds, now_ms=getattr(units[0], "now_ms", None) if units else None),
            pace=_pace(given.get("options")),
            progress=progress,
        )
        self.tasks += ran.tasks
        self.skipped = self.skipped or ran.skipped
        for answer in ran.answers:
            yield from answer.answers
            yield from answer.unread


def _examine(
    units: Sequence[Any],
    *,
    work: Callable[[Any], Any],
    merge: Callable[[Iterable[Any]], Any] | None,
) -> _Answer:
    """The answer of one task, in a worker."""
    answers, unread = [], []
    for unit in units:
        try:
            answers.append(work(unit))
        except OSError as error:
            unread.append(Unreadable(Path(unit.path), error))
    merged = answers if merge is None else [merge(answers)]
    return _Answer(getattr(units[0], "now_ms", None), tuple(merged), tuple(unread))


def _holds(answer: _Answer, *, now_ms: int | None) -> bool:
    """Whether an earlier answer still holds: none of its dates lies between then and now."""
    if answer.now_ms is None or now_ms is None:
        return True
    begin, end = sorted((answer.now_ms, now_ms))
    dates = (row.until_ms for one in answer.answers for row in getattr(one, "rows", ()))
    return not any(date is not None and begin < date <= end for date in dates)


def _pace(options: object) -> int:
    """How much faster the work is than making keys and values."""
    if getattr(options, "deep", False):
        return PACE_OF_PARSING
    return 1 if getattr(options, "records", False) else PACE_OF_HEADERS


def _mark(unit: Any) -> str:
    """Which unit, and names, sizes and times of all files that its examination reads."""
    if isinstance(unit, Unit) and unit.kind not in (UnitKind.PARTITION, UnitKind.DATA_DIRECTORY):
        files = (unit.path, unit.index, unit.time_index, unit.txn_index)
        seen: list[Any] = [state_of(path) for path in files if path is not None]
        return mark_of((unit, os.path.realpath(unit.path), seen))
    copies = [copy for copy in getattr(unit, "copies", (unit,)) if getattr(copy, "is_readable", 1)]
    places = [os.path.realpath(copy.path) for copy in copies]
    return mark_of((_timeless(unit), [(place, _seen(place)) for place in places]))


def _seen(directory: str) -> tuple[Any, ...]:
    """The files of a directory, and of the checkpoints beside it."""
    home = os.path.dirname(directory)
    beside = [state_of(os.path.join(home, kind.value)) for kind in _CHECKPOINTS]
    try:
        return beside, look_at(directory)
    except OSError:  # the answer says so
        return (beside,)


def _timeless(value: Any) -> Any:
    """A value whose clock counts for no mark."""
    has_clock = is_dataclass(value) and hasattr(value, "now_ms")
    return replace(cast("Any", value), now_ms=0) if has_clock else value


# ---- the registry --------------------------------------------------------------------------------


class Analysis(NamedTuple):
    """One analysis.

    Attributes:
        run: takes paths, `threads`, `progress` and the options; gives reports.
        columns: of its rows, in Spark's words.
        rows: of a report.
    """

    run: Callable[..., tuple[Any, ...]]
    columns: str
    rows: Callable[[Any], Iterable[Any]]


def _local(run: Callable[..., Any], paths: Sequence[str], **asked: Any) -> tuple[Any]:
    """An analysis of paths of this machine, with one report."""
    return (run(local_paths(paths), **asked),)


def _verify(
    paths: Sequence[str],
    *,
    options: VerifyOptions | None = None,
    topics: Names = None,
    partitions: Numbers = None,
    threads: Threads,
    progress: Progress | None,
    **asked: Any,
) -> tuple[Report]:
    chosen = options or VerifyOptions(**asked)
    places = places_of(local_paths(paths), Selection.of(topics, partitions))
    return (verify_of(places, chosen, threads=threads, progress=progress),)


def _diff(
    paths: Sequence[str], *, topics: Names = None, partitions: Numbers = None, **asked: Any
) -> tuple[Diff]:
    selection = Selection.of(topics, partitions)
    return (diff_of(local_paths(paths), chosen=selection.takes, **asked),)


def _doctor(
    paths: Sequence[str],
    *,
    fleet: bool = False,
    topics: Names = None,
    partitions: Numbers = None,
    release: str = RELEASES[0],
    metadata_directory: str | PathLike[str] | None = None,
    broker_config: str | PathLike[str] | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    now_ms: Any = None,
    threads: Threads,
    progress: Progress | None,
) -> tuple[DoctorReport, ...]:
    """With `fleet`, for each pair of ids of cluster and node a report."""
    if fleet and broker_config is not None:
        raise ValueError("a server.properties is of one broker, and these are of a fleet")
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    homes = [Path(each) for each in local_paths(paths)]
    brokers = group_by_broker(homes) if fleet else [homes]
    plans = [plan_start(one, release=release, sources=sources, now_ms=now_ms) for one in brokers]
    units = {unit.path: unit for plan in plans for unit in plan.units}
    answers = run_units([*units.values()], examine_start, threads=threads, progress=progress)
    found = {one.path: one for one in answers}
    reports = [report_start(plan, (found[unit.path] for unit in plan.units)) for plan in plans]
    selection = Selection.of(topics, partitions)
    has_any = [each for each in reports if _has_chosen(each, selection)] if selection else []
    return tuple(chosen_of(each, selection) for each in has_any or reports)


def _has_chosen(report: DoctorReport, selection: Selection) -> bool:
    every = (one for directory in report.directories for one in directory.partitions)
    return any(selection.takes(one.topic, one.partition) for one in every)


def _stats(
    paths: Sequence[str],
    *,
    options: stats_.StatsOptions | None = None,
    topics: Names = None,
    partitions: Numbers = None,
    threads: Threads,
    progress: Progress | None,
    **asked: Any,
) -> tuple[stats_.StatsReport]:
    """Counts of logs on this machine and in stores."""
    chosen = options or stats_.StatsOptions(**asked)
    stored = [path for path in paths if is_remote(path)]
    selection = Selection.of(topics, partitions)
    listed = list_logs(source_options(stored, None)) if stored else ()
    logs = [log for log in listed if selection.takes(log.topic, log.partition)]
    here = local_paths(path for path in paths if path not in stored)
    units = stats_.countable(plan(places_of(here, selection) if here else ()))
    units += [unit for log in logs for unit in _stored_units(log)]
    work = partial(stats_.examine, options=chosen)
    answers = run_units(units, work, threads=threads, progress=progress, merge=stats_.merge_all)
    found = stats_.merge_all(answers)
    for log in logs:
        known = found.get(log.directory, stats_.PartitionStats())
        last = known.summary.last_offset
        found[log.directory] = replace(
            known,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_start_offset if last is None else last + 1,
        )
    return (stats_.report(found, chosen),)


@dataclass(frozen=True, slots=True)
class _StoredUnit(Unit):
    """A segment in a store, whose size its listing says."""

    size: int = 0

    @property
    def cost(self) -> int:
        """Bytes to read."""
        return self.size


def _stored_units(log: LogEntry) -> Iterator[_StoredUnit]:
    for each in log.segments:
        path = cast("str", RemotePath(each.path))  # it opens itself
        yield _StoredUnit(
            UnitKind.SEGMENT, path, log.directory, each.base_offset, each.is_last, size=each.size
        )


def _explained(found: ExplainReport) -> Iterator[tuple[Any, ...]]:
    for whose, row in found.rows_by_partition():
        yield (
            *((whose.topic, whose.partition) if whose else (None, None)),
            *(row.path, row.cause, row.bytes, row.size, row.base_offset, row.index_bytes),
            *(row.until_ms, row.why),
        )


def _compared(found: Diff) -> Iterator[tuple[Any, ...]]:
    for partition in found.partitions:
        first = partition.first
        for one in partition.compared:
            copy, divergence = one.copy, one.divergence
            batches = () if divergence is None else divergence.batches
            epochs: list[Any] = [batch.header.leader_epoch for batch in batches] or [None, None]
            yield (
                *(partition.topic, partition.partition, first.path, copy.path, one.relation),
                *(copy.log_start_offset, copy.log_end_offset),
                *(first.log_start_offset, first.log_end_offset, one.same_batches),
                None if divergence is None else divergence.first_offset,
                *(epochs[1], epochs[0], one.lacks[0].batches, one.lacks[1].batches),
                *(len(copy.unknown), copy.error),
            )


_STATS_COLUMNS: Final = (
    "path STRING, dir STRING, topic STRING, partition INT, log_start_offset BIGINT, "
    "log_end_offset BIGINT, segments BIGINT, bytes BIGINT, batches BIGINT, records BIGINT, "
    "min_timestamp BIGINT, max_timestamp BIGINT, codecs ARRAY<STRING>, magics ARRAY<INT>, "
    "faults BIGINT, record_bytes STRUCT<count: BIGINT, total: BIGINT, min: BIGINT, max: BIGINT, "
    "mean: DOUBLE, p50: BIGINT, p90: BIGINT, p99: BIGINT, quantile_error: DOUBLE>, "
    "null_keys BIGINT, null_values BIGINT, "
    "distinct_keys BIGINT, top_keys ARRAY<STRUCT<key: BINARY, records: BIGINT, bytes: BIGINT, "
    "bytes_error: BIGINT>>"
)
ANALYSES: Final[dict[str, Analysis]] = {
    "verify": Analysis(
        _verify,
        "code STRING, severity STRING, path STRING, position BIGINT, offset BIGINT, "
        "message STRING, advice STRING",
        lambda report: (tuple(one.to_dict().values()) for one in report.findings),
    ),
    "stats": Analysis(
        _stats,
        _STATS_COLUMNS,
        lambda report: (one.document() for one in report.partitions),
    ),
    "doctor": Analysis(
        _doctor,
        "cluster_id STRING, node_id INT, directory STRING, code STRING, severity STRING, "
        "path STRING, message STRING, outcome STRING, exception STRING, mend STRING, "
        "records BIGINT, partitions ARRAY<STRING>",
        lambda report: (
            (report.cluster_id, report.node_id, place, *findings.to_dict().values())
            for place, findings in report.findings_by_directory()
        ),
    ),
    "explain": Analysis(
        partial(_local, run_explain),
        "topic STRING, partition INT, path STRING, cause STRING, bytes BIGINT, size BIGINT, "
        "base_offset BIGINT, index_bytes BIGINT, until_ms BIGINT, why STRING",
        _explained,
    ),
    "diff": Analysis(
        _diff,
        "topic STRING, partition INT, first STRING, path STRING, relation STRING, "
        "log_start_offset BIGINT, log_end_offset BIGINT, first_log_start_offset BIGINT, "
        "first_log_end_offset BIGINT, same_batches BIGINT, differs_at BIGINT, leader_epoch INT, "
        "first_leader_epoch INT, lacks_batches BIGINT, first_lacks_batches BIGINT, "
        "unknown_ranges BIGINT, error STRING",
        _compared,
    ),
}


def analyse(
    name: str,
    spark: SparkSession,
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    job: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    **asked: Any,
) -> AnalysisResult:
    """Run an analysis; `kseg.spark.jobs.verify` is this function with the name "verify".

    Args:
        name: of `ANALYSES`.
        spark: the session.
        paths: one path or several, as every worker sees them; `stats` reads stores as well.
        job: a directory for notes about finished work; a later run goes on from it.
        progress: called now and then with tasks done and tasks in all.
        asked: the options of the function of this name in `kseg` or `kseg.analysis`. `doctor` takes
            `fleet`, too: the directories are those of several brokers, with a report for each.

    Raises:
        TypeError: the analysis has no option of this name.
        ValueError: a path is in a store, or an option is out of its domain.
        NotALogError: a path is not Kafka's.
        OSError: something is missing or cannot be read, here or by a worker.
        KsegError: `job` is of another job.
    """
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    now_ms = asked.get("now_ms", getattr(asked.get("options"), "now_ms", None))
    runner = SparkRunner(lambda: spark, name, now_ms=now_ms, job=job)
    with refusals_named():
        places = [fspath(each) for each in given]
        reports = ANALYSES[name].run(places, threads=runner, progress=progress, **asked)
    return AnalysisResult(name, reports, runner.tasks, runner.skipped)
