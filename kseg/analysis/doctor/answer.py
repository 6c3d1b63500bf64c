"""`doctor`: one page about all data directories of a broker.

The facts of the directories are read first (`facts`), then each partition is loaded in an overlay
(`partitions`). The rules (`rules`, `kraft`, `settings`) find what follows from both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from kseg._door import renamed
from kseg.analysis.doctor import rules
from kseg.analysis.doctor.facts import (
    BrokerDirectory,
    BrokerFile,
    Node,
    metadata_level,
    read_broker_file,
    read_directory,
)
from kseg.analysis.doctor.partitions import PartitionUnit, examine
from kseg.analysis.doctor.values import DirectoryOutlook, DoctorReport, PartitionOutlook
from kseg.analysis.doctor.words import Outcome
from kseg.analysis.units import Threads, run_units
from kseg.analysis.values import KnownSettings
from kseg.catalog import local_paths_of
from kseg.commands import command_line
from kseg.constants import NEWEST_RELEASE, Progress, StrPath
from kseg.errors import NotALogError
from kseg.files import metadata
from kseg.files.names import FileKind, PathKind, classify_path
from kseg.files.selection import Selection, StrPaths
from kseg.format.times import Time
from kseg.internal.releases import COMPARED, FOLLOWED, metadata_versions
from kseg.log.clock import now_of
from kseg.log.config import COMPACT, LogConfig
from kseg.log.data_directory import EntryKind
from kseg.log.settings import Cluster, SettingSources

#: Fewer bytes than this are too few to measure a rate.
_RATE_BYTES_MIN: Final = 1 << 20


@renamed(data_directories="paths", now_ms="now")
def doctor(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    release: str | None = None,
    metadata_directory: StrPath | None = None,
    broker_config: StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    now: Time | None = None,
    threads: Threads = 1,
    progress: Progress | None = None,
) -> DoctorReport:
    """Predict whether a broker starts on its data directories, its changes, and its losses.

    Nothing is changed, and no lock is taken. One bad partition is a row of the answer. An outcome
    that is not known is `Outcome.UNKNOWN`.

    Args:
        paths: all data directories of one broker, or globs.
        topics: list the partitions of these alone: a name or a glob, or several. The outcomes and
            the findings about directories are of the whole broker in any case.
        partitions: list only these partitions: a number, or several.
        release: a release of Kafka, such as "4.4" or "4.4.0". All is known of the releases in
            `FOLLOWED`. The others in `COMPARED` are known to cut the same, but an outcome other
            than a start is `UNKNOWN` for all of them. None for the oldest release in `COMPARED`
            that knows the cluster's metadata version; the newest if there is no metadata log.
        metadata_directory: the directory with `__cluster_metadata-0`, if it is elsewhere.
        broker_config: the broker's `server.properties`.
        config, topic_config: settings, as for `kseg.settings`.
        now: the clock.
        threads: threads to share the work.
        progress: called with bytes done and bytes in all.

    Raises:
        ValueError: an unknown release, `threads` below 1, no directory, malformed settings, or no
            partition is chosen.
        TypeError: an argument has a wrong type.
        NotALogError: a path is a partition, which says nothing about a broker's start.
        OSError: `broker_config` cannot be read.

    Example:
        >>> from kseg.analysis.doctor import doctor
        >>> doctor("/var/lib/kafka").outcome  # doctest: +SKIP
        <Outcome.STARTS: 'starts'>
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    (answer,) = doctor_of(
        [local_paths_of(paths)],
        sources,
        topics=topics,
        partitions=partitions,
        release=release,
        now=now,
        threads=threads,
        progress=progress,
    )
    return answer


def doctor_of(
    brokers: Iterable[Sequence[StrPath]],
    sources: SettingSources,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    release: str | None = None,
    now: Time | None = None,
    threads: Threads = 1,
    progress: Progress | None = None,
) -> tuple[DoctorReport, ...]:
    """As `doctor`, for several brokers.

    Args:
        brokers: the data directories of each broker.
        sources: where the settings of all brokers come from.
        topics, partitions, release, now, threads, progress: as for `doctor`.

    Returns:
        A report for each broker; with `topics` or `partitions`, for those that have one of these.

    Raises:
        ValueError, TypeError, NotALogError, OSError: as for `doctor`.
    """
    selection = Selection.of(topics, partitions)
    plans = [plan(paths, release=release, sources=sources, now=now) for paths in brokers]
    units = {unit.path: unit for broker_units, _ in plans for unit in broker_units}
    answers = run_units([*units.values()], examine, threads=threads, progress=progress)
    outlooks_by_path = {outlook.path: outlook for outlook in answers}
    reports = [
        make_report([outlooks_by_path[unit.path] for unit in broker_units])
        for broker_units, make_report in plans
    ]
    if not selection:
        return tuple(reports)
    narrowed = (_chosen_of(whole, selection) for whole in reports)
    chosen = tuple(report for report in narrowed if report.outlooks)
    if not chosen:
        outlooks = (outlook for whole in reports for outlook in whole.outlooks)
        raise ValueError(
            selection.why_nothing((outlook.topic, outlook.partition) for outlook in outlooks)
        )
    return chosen


def _chosen_of(whole: DoctorReport, selection: Selection) -> DoctorReport:
    """The report with only the chosen partitions."""
    directories = []
    for directory in whole.directories:
        partitions = (
            part for part in directory.partitions if selection.takes(part.topic, part.partition)
        )
        directories.append(replace(directory, partitions=tuple(partitions)))
    return replace(whole, directories=tuple(directories))


def plan(
    paths: Sequence[StrPath],
    *,
    release: str | None,
    sources: SettingSources,
    now: Time | None = None,
) -> tuple[tuple[PartitionUnit, ...], Callable[[Iterable[PartitionOutlook]], DoctorReport]]:
    """Examine everything but the logs; for the arguments and errors see `doctor`.

    Returns:
        The partitions to load, each once; and a function that makes the report from the outlooks
        of all these partitions, in any order.
    """
    if release is not None and not all(part.isdecimal() for part in release.split(".")):
        raise ValueError(f"{release!r} is not a release of Kafka, such as {NEWEST_RELEASE}")
    if not paths:
        raise ValueError("doctor wants one data directory or more")
    server = read_broker_file(sources.broker_config)
    directories = tuple(
        read_directory(path, loads_logs=server.loads(path)) for path in map(Path, paths)
    )
    for directory in directories:
        _refuse_partition(directory)
    settings = KnownSettings(
        sources, [directory.path for directory in directories if directory.exists]
    )
    now_ms = now_of(now)
    units = {
        unit.path: unit for directory in directories for unit in _units(directory, settings, now_ms)
    }
    release = release or _release_of(settings.cluster)
    compared = next((minor for minor in COMPARED if f"{release}.".startswith(f"{minor}.")), None)
    facts = release, directories, server, settings
    return tuple(units.values()), partial(_report, facts, compared)


def _report(
    facts: tuple[str, tuple[BrokerDirectory, ...], BrokerFile, KnownSettings],
    compared: str | None,
    answers: Iterable[PartitionOutlook],
) -> DoctorReport:
    """The answer for a broker.

    Args:
        facts: the release, the data directories, the broker's file, and the settings.
        compared: the release in `COMPARED` that the release belongs to; None if none does.
        answers: the outlooks of all partitions.
    """
    loads = {load.path: load for load in answers}
    node = Node.of(*facts, loads)
    rate = _rate(loads.values())
    loads |= {load.path: load for load in rules.judged(node)}
    directories = tuple(_directory(node, directory, loads, rate) for directory in node.directories)
    outcomes = {
        directory.path: outlook.outcome
        for directory, outlook in zip(node.directories, directories, strict=True)
    }
    findings = tuple(rules.of_node(node, outcomes))
    outcome = Outcome.worst([*outcomes.values(), *(finding.outcome for finding in findings)])
    as_of_ms = None if node.before is None else node.before.time_ms
    whole = DoctorReport(node.release, outcome, rate, directories, findings, as_of_ms)
    return _for_release(whole, compared=compared)


def _release_of(cluster: Cluster | None) -> str:
    """The oldest release in `COMPARED` that knows a cluster's metadata version.

    The newest release if the metadata version is not known, or known to none of them.
    """
    level = metadata_level(cluster)
    if level is None:
        return NEWEST_RELEASE
    largest = {release: versions[1] for release, versions in metadata_versions().items()}
    knowing = (release for release in reversed(COMPARED) if largest.get(release, 0) >= level)
    return next(knowing, NEWEST_RELEASE)


def _refuse_partition(directory: BrokerDirectory) -> None:
    """Refuse a partition, or a directory that contains data directories, as a data directory."""
    kind = None
    path = directory.path
    if not directory.entries:
        with suppress(NotALogError, OSError):
            kind = classify_path(path).kind
    if kind in (PathKind.PARTITION, PathKind.FILE):
        raise NotALogError(f"a {kind.value}; give the data directory that it is in", path=path)
    kinds = {entry.kind for entry in directory.entries if entry.path.name != rules.LOST_AND_FOUND}
    has_checkpoint = any(offsets.value is not None for offsets in directory.read.values())
    is_of_broker = directory.log_count or has_checkpoint or metadata.is_of_broker(path)
    if is_of_broker or EntryKind.UNKNOWN not in kinds:
        return
    inside = [entry.path for entry in directory.entries if metadata.is_of_broker(entry.path)]
    words = command_line("kseg", "doctor", *inside)
    give = f"give those that are in it: {words}" if inside else "nothing in it is a broker's"
    raise NotALogError(f"no data directory; {give}", path=path)


def _units(
    directory: BrokerDirectory, settings: KnownSettings, now_ms: int
) -> Iterator[PartitionUnit]:
    """The logs that a start loads from a directory, each with its mark and its checkpoints.

    The log of KRaft is always read from its start, whatever the mark and the checkpoints are.
    """
    starts = directory.offsets(FileKind.LOG_START)
    for entry in directory.entries:
        if entry.kind in (EntryKind.UNKNOWN, EntryKind.CACHE):
            continue
        offsets = directory.checkpointed(entry.partition)
        of_log = settings.of(entry.path)
        policy = None if isinstance(of_log, str) else of_log.values.get("cleanup.policy")
        kraft = entry.kind is EntryKind.CLUSTER_METADATA
        yield PartitionUnit(
            str(entry.path),
            offsets.clean and not kraft,
            0 if kraft else offsets.recovery_point,
            0 if kraft else offsets.log_start_offset,
            LogConfig() if isinstance(of_log, str) else of_log.config,
            now_ms,
            sum(directory.sizes.get(entry.path.name, ())),
            directory.known_end(entry.partition),
            starts is None or entry.partition in starts,
            entry.path.name.startswith("__") or (policy is not None and COMPACT in policy.value),
        )


def _rate(loads: Iterable[PartitionOutlook]) -> float | None:
    """Bytes a second of the loads that swept segments; None if they swept too few bytes."""
    swept = [load for load in loads if load.swept_bytes]
    size = sum(load.swept_bytes for load in swept)
    seconds = sum(load.seconds for load in swept)
    return size / seconds if size >= _RATE_BYTES_MIN and seconds else None


def _directory(
    node: Node,
    directory: BrokerDirectory,
    loads: Mapping[str, PartitionOutlook],
    rate: float | None,
) -> DirectoryOutlook:
    """The outlook of one data directory.

    Args:
        node: the broker.
        directory: one of its data directories.
        loads: the outlooks of all partitions, keyed by path.
        rate: bytes a second that a start reads; None if not measured.
    """
    paths = (os.fspath(entry.path) for entry in directory.entries)
    partitions = tuple(loads[path] for path in paths if path in loads)
    findings = tuple(rules.of_directory(node, directory, partitions))
    outcomes = [*(load.outcome for load in partitions), *(finding.outcome for finding in findings)]
    sizes = [load.swept_bytes for load in partitions]
    meta = directory.meta
    threads = node.server.threads
    return DirectoryOutlook(
        str(directory.path),
        Outcome.worst(outcomes),
        directory.clean,
        meta.cluster_id if meta else None,
        meta.node_id if meta else None,
        meta.directory_id if meta else None,
        threads,
        sum(sizes),
        _seconds(sizes, threads, rate),
        partitions,
        findings,
    )


def _seconds(sizes: Sequence[int], threads: int, rate: float | None) -> float | None:
    """The time that threads take to sweep partitions; None if the rate is not known.

    Each partition is loaded by one thread, so the whole takes as long as the largest partition, at
    least.

    Args:
        sizes: the bytes to sweep of each partition.
        threads: the number of threads.
        rate: bytes a second of a thread.
    """
    if not any(sizes):
        return 0.0
    return None if rate is None else max(max(sizes), sum(sizes) / threads) / rate


def _for_release(whole: DoctorReport, *, compared: str | None) -> DoctorReport:
    """The report, in which outcomes that are not known for the release are `UNKNOWN`."""
    if compared in FOLLOWED:
        return whole
    directories = tuple(
        replace(directory, outcome=_if_known(directory.outcome, compared=compared))
        for directory in whole.directories
    )
    outcome = _if_known(whole.outcome, compared=compared)
    if any(finding.code in ("setting-refused", "feature-level") for finding in whole.findings):
        outcome = Outcome.FAILS
    return replace(whole, outcome=outcome, directories=directories)


def _if_known(outcome: Outcome, *, compared: str | None) -> Outcome:
    """`STARTS` if that is the outcome and the release is in `COMPARED`; else `UNKNOWN`."""
    return outcome if compared is not None and outcome is Outcome.STARTS else Outcome.UNKNOWN
