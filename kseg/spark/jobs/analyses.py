"""The analyses of kseg, with Spark's workers to share the work.

Each of verify, stats, doctor, explain and diff has its plan, its examination, its report and its
options in `kseg.analysis`, where threads run it. `SparkRunner` replaces the threads. Any free
worker examines a unit. Answers that are stored in a job directory hold until the files of a unit
change; `CLASSES` has the classes of their values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast

import pyarrow as pa

from kseg._door import renamed
from kseg.analysis import diff as diffs
from kseg.analysis import pairs, sketches, values
from kseg.analysis import stats as counts
from kseg.analysis.doctor import (
    BrokerFinding,
    DoctorReport,
    Outcome,
    PartitionOutlook,
    doctor_of,
)
from kseg.analysis.explain import KeptFile, NewestRecord, PartitionKeeps
from kseg.analysis.explain import explain as explain_here
from kseg.analysis.info import Summary
from kseg.analysis.units import Unit, UnitKind
from kseg.analysis.verify import verify as verify_here
from kseg.catalog import paths_of
from kseg.change.cleanup import PLAN_CLASSES
from kseg.constants import Progress, StrPath
from kseg.documents import frozen_dataclass
from kseg.files import io
from kseg.files.mapping import Mapping as FileMapping
from kseg.files.names import FileKind, LeftOut, list_partition
from kseg.files.producer_snapshot import ProducerSnapshotEntry
from kseg.files.selection import StrPaths
from kseg.format.header import BatchHeader
from kseg.format.times import Time
from kseg.log.copies import BatchSeen
from kseg.log.recovery import REINDEX_CLASSES, TRAIL_CLASSES, Finding, Lost, look_at
from kseg.log.salvage import LostOffsets
from kseg.log.settings import SettingSources, SettingValue, group_by_broker
from kseg.log.tier import RemoteHistory
from kseg.spark.jobs.running import (
    PACE_OF_HEADERS,
    PACE_OF_PARSING,
    Framed,
    Item,
    open_job,
    refusals_named,
    run,
    state_of,
    to_json,
)
from kseg.spark.plan import local_paths
from kseg.stores.path import is_remote, path_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Files beside partitions that an examination depends on.
_CHECKPOINTS: Final = (FileKind.CLEANER, FileKind.LOG_START, FileKind.REPLICATION)
#: Plans of changes.
_PLANS: Final = ("compact", "reindex")
#: Name of an analysis, or of a change -> the classes of the answers of its workers.
CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "verify": (
        *(values.Examined, values.SegmentSummary, values.PartitionSummary),
        *(values.CheckpointSummary, Finding, Lost, ProducerSnapshotEntry, *TRAIL_CLASSES),
    ),
    "stats": (
        *(counts.PartitionStats, Summary, counts.RecordStats, sketches.SizeHistogram),
        *(sketches.KeyTotals, sketches.DistinctCount, sketches.Timeline),
    ),
    "doctor": (PartitionOutlook, BrokerFinding, Outcome, Lost),
    "explain": (PartitionKeeps, KeptFile, NewestRecord, SettingValue, RemoteHistory),
    "diff": (
        *(diffs.PartitionDiff, pairs.CopySeen, pairs.Compared, pairs.Difference, pairs.Ranges),
        *(pairs.OffsetRange, BatchSeen, BatchHeader, LostOffsets),
    ),
    "compact": PLAN_CLASSES,
    "reindex": REINDEX_CLASSES,
}


@frozen_dataclass(repr=False)
class AnalysisResult(Framed):
    """The answer of an analysis: the rows of its reports.

    Attributes:
        name: the name of the analysis.
        reports: one report; for a fleet, one for each broker.
        tasks: the number of tasks that Spark ran.
        skipped: the number of units that an earlier run had examined.
    """

    name: str
    reports: tuple[Any, ...]
    tasks: int
    skipped: int

    @property
    def report(self) -> Any:
        """The report that one process would return; the first one of a fleet."""
        return self.reports[0]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, by all reports."""
        return all(report.ok for report in self.reports)

    def table_rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows of all reports."""
        return [row for report in self.reports for row in report.table_rows()]

    def to_arrow(self) -> pa.Table:
        """The tables of all reports, one after the other."""
        return pa.concat_tables(map(_table, self.reports))


def _table(report: Any) -> pa.Table:
    """The table of a report; that of `doctor` has the broker's ids in further columns."""
    table = report.to_arrow()
    if isinstance(report, DoctorReport):
        for name, kind in (("cluster_id", pa.string()), ("node_id", pa.int64())):
            cells = pa.array([getattr(report, name)] * table.num_rows, kind)
            table = table.append_column(name, cells)
    return table


class SparkRunner:
    """Runs the units of an analysis in Spark's workers; it is passed as `threads=` of an analysis.

    Attributes:
        tasks: the number of tasks that Spark ran.
        skipped: the number of units that an earlier run had examined.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        name: str,
        *,
        now_ms: object = None,
        job: StrPath | None = None,
    ) -> None:
        """Keep the arguments; nothing runs yet.

        Args:
            session: returns the session; called only when there is work.
            name: the name of the analysis.
            now_ms: the present time, if the caller named one.
            job: a directory for the answers of finished work; a later run goes on from it.
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
        """The answers to units; see `kseg.analysis.units.Runner.run`."""
        arguments = getattr(work, "keywords", {})
        key = ([_timeless(value) for value in arguments.values()], self._now_ms)
        directory = None if self._job is None else open_job(self._job, self._name, key)
        items = [Item(unit, unit.cost, _mark(unit) if directory else "") for unit in units]
        ran = run(
            self._session(),
            items,
            partial(_examine, work=work, merge=merge),
            job=directory,
            classes=CLASSES[self._name],
            usable=partial(
                _still_holds, now_ms=getattr(units[0], "now_ms", None) if units else None
            ),
            pace=_pace(self._name, arguments.get("options")),
            progress=progress,
        )
        self.tasks += ran.tasks
        self.skipped = self.skipped or ran.skipped
        for _now_ms, *answers in ran.answers:
            yield from answers


def _examine(
    units: Sequence[Any],
    *,
    work: Callable[[Any], Any],
    merge: Callable[[Iterable[Any]], Any] | None,
) -> tuple[Any, ...]:
    """Examine the units of a task, in a worker.

    Returns:
        The time of the units' clock, or None; their answers, or with `merge` one joined answer;
        and last a `LeftOut` for each unit that cannot be read.
    """
    answers, unreadable = [], []
    for unit in units:
        try:
            answers.append(work(unit))
        except OSError as error:
            unreadable.append(LeftOut.of(Path(unit.path), error))
    merged = answers if merge is None else [merge(answers)]
    return (getattr(units[0], "now_ms", None), *merged, *unreadable)


def _still_holds(answer: tuple[Any, ...], *, now_ms: int | None) -> bool:
    """Whether an earlier answer still holds: none of its dates is between then and now."""
    then_ms, *answers = answer
    if then_ms is None or now_ms is None:
        return True
    begin, end = sorted((then_ms, now_ms))
    dates = (row.until_ms for part in answers for row in getattr(part, "rows", ()))
    return not any(date is not None and begin < date <= end for date in dates)


def _pace(name: str, options: object) -> int:
    """How much faster an analysis is than making keys and values; see `pack`."""
    if getattr(options, "deep", False):
        return PACE_OF_PARSING
    decodes = name in _PLANS or getattr(options, "records", False)
    return 1 if decodes else PACE_OF_HEADERS


def _mark(unit: Any) -> str:
    """The mark of a unit: what it is, and the states of all files that its examination reads."""
    if isinstance(unit, Unit) and unit.kind not in (UnitKind.PARTITION, UnitKind.DATA_DIRECTORY):
        files = (unit.path, unit.index, unit.time_index, unit.txn_index)
        seen: list[Any] = [state_of(path) for path in files if path is not None]
        return to_json((unit, os.path.realpath(unit.path), seen))
    copies = [copy for copy in getattr(unit, "copies", (unit,)) if getattr(copy, "is_readable", 1)]
    return to_json((_timeless(unit), [_directory_state(copy.path) for copy in copies]))


def _directory_state(directory: str) -> tuple[Any, ...]:
    """The state of a partition directory: of its files, and of the checkpoints beside it."""
    if is_remote(directory):
        logs = [segment.log for segment in list_partition(path_at(directory)).segments]
        return tuple((str(log), io.size_at(log)) for log in logs)
    real_directory = os.path.realpath(directory)
    data_directory = os.path.dirname(real_directory)
    states = [state_of(os.path.join(data_directory, kind.value)) for kind in _CHECKPOINTS]
    try:
        return real_directory, states, look_at(real_directory)
    except OSError:  # the answer reports the error
        return real_directory, states


def _timeless(value: Any) -> Any:
    """A value without its clock, which does not belong in a mark."""
    has_clock = is_dataclass(value) and hasattr(value, "now_ms")
    return replace(cast("Any", value), now_ms=0) if has_clock else value


# ---- the analyses --------------------------------------------------------------------------------


class JobArgs(TypedDict, total=False):
    """The options of every analysis.

    Attributes:
        job: a directory for notes about finished work; a later run goes on from it.
        progress: called now and then with tasks done and tasks in all.
        topics: only these: a name or a glob, or several.
        partitions: only these partitions: a number, or several.
    """

    job: StrPath | None
    progress: Progress | None
    topics: str | Iterable[str] | None
    partitions: int | Iterable[int] | None


class VerifyArgs(JobArgs, total=False):
    """The options of `verify`; see `kseg.verify`."""

    deep: bool
    inflated_max: int
    mapping: FileMapping
    now: Time | None


class StatsArgs(JobArgs, total=False):
    """The options of `stats`; see `kseg.stats`."""

    records: bool
    top: int
    mapping: FileMapping


class DiffArgs(JobArgs, total=False):
    """The options of `diff`; see `kseg.diff`."""

    records: bool
    mapping: FileMapping


class SettingArgs(JobArgs, total=False):
    """The options of analyses that go by settings; see `kseg.settings`."""

    metadata_directory: StrPath | None
    broker_config: StrPath | None
    config: Mapping[str, str] | None
    topic_config: Mapping[str, Mapping[str, str]] | None
    now: Time | None


class DoctorArgs(SettingArgs, total=False):
    """The options of `doctor`; see `kseg.doctor`.

    Attributes:
        fleet: the directories are those of several brokers; there is a report for each.
    """

    release: str
    fleet: bool


class ExplainArgs(SettingArgs, total=False):
    """The options of `explain`; see `kseg.explain`."""

    what_if: Mapping[str, str] | None
    topic_what_if: Mapping[str, Mapping[str, str]] | None


@renamed(now_ms="now")
def verify(spark: SparkSession, paths: StrPaths, **options: Unpack[VerifyArgs]) -> AnalysisResult:
    """Check every byte, as `kseg.verify` does.

    Args:
        spark: the session.
        paths: one path or several, as every worker sees them.
        options: the options of `kseg.verify`, and `job` and `progress`.

    Raises:
        ValueError: a path is in a store, or an option is out of its domain.
        NotALogError: a path is not Kafka's.
        OSError: something is missing or cannot be read, here or by a worker.
        KsegError: `job` is of another job.
    """
    return _run(spark, "verify", verify_here, local_paths(paths), options)


def stats(spark: SparkSession, paths: StrPaths, **options: Unpack[StatsArgs]) -> AnalysisResult:
    """Count batches, records and bytes, as `kseg.stats` does; also of stores.

    For the arguments and errors see `verify`.
    """
    return _run(spark, "stats", counts.stats, paths, options)


def diff(spark: SparkSession, paths: StrPaths, **options: Unpack[DiffArgs]) -> AnalysisResult:
    """Compare copies, as `kseg.diff` does; for the arguments and errors see `verify`."""
    return _run(
        spark,
        "diff",
        lambda copies, **asked: diffs.diff(*copies, **asked),
        local_paths(paths),
        options,
    )


@renamed(now_ms="now")
def doctor(spark: SparkSession, paths: StrPaths, **options: Unpack[DoctorArgs]) -> AnalysisResult:
    """Predict the start of a broker, or of each broker of a fleet, as `kseg.doctor` does.

    For the arguments and errors see `verify`.
    """
    return _run(spark, "doctor", _doctor, local_paths(paths), options)


@renamed(now_ms="now")
def explain(spark: SparkSession, paths: StrPaths, **options: Unpack[ExplainArgs]) -> AnalysisResult:
    """Say what keeps each byte on the disks, as `kseg.explain` does.

    For the arguments and errors see `verify`.
    """
    return _run(spark, "explain", explain_here, local_paths(paths), options)


def _doctor(
    paths: StrPaths,
    *,
    fleet: bool = False,
    metadata_directory: StrPath | None = None,
    broker_config: StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    **options: Any,
) -> tuple[DoctorReport, ...]:
    """`doctor` for one broker, or with `fleet` for each broker of the data directories."""
    if fleet and broker_config is not None:
        raise ValueError("a server.properties is of one broker, and these are of a fleet")
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    data_directories = paths_of(paths)
    brokers = group_by_broker(data_directories) if fleet else [data_directories]
    return doctor_of(brokers, sources, **options)


def _run(
    spark: SparkSession,
    name: str,
    analysis: Callable[..., Any],
    paths: StrPaths,
    options: Mapping[str, Any],
) -> AnalysisResult:
    """Run an analysis with Spark's workers; its answer is one report or several."""
    arguments = dict(options)
    job = arguments.pop("job", None)
    runner = SparkRunner(lambda: spark, name, now_ms=options.get("now"), job=job)
    with refusals_named():
        answer = analysis(paths, threads=runner, **arguments)
    reports = answer if isinstance(answer, tuple) else (answer,)
    return AnalysisResult(name, reports, runner.tasks, runner.skipped)
