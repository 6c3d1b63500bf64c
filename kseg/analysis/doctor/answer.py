"""`doctor`: one page about all data directories of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike, fspath, statvfs
from pathlib import Path
from typing import Final

from kseg.analysis.doctor import ensemble
from kseg.analysis.doctor.assigned import Node
from kseg.analysis.doctor.broker import BrokerFile, read_broker_file
from kseg.analysis.doctor.homes import READ_FIRST, Home, look_at_home
from kseg.analysis.doctor.partitions import PartitionUnit, examine
from kseg.analysis.doctor.quorum import of_missing_log, quorum_of, with_damage
from kseg.analysis.doctor.values import (
    DirectoryOutlook,
    Doctored,
    Noticed,
    Outcome,
    PartitionOutlook,
)
from kseg.analysis.known_settings import KnownSettings
from kseg.analysis.units_run import Jobs, Progress, run_units
from kseg.commands import command_line
from kseg.errors import NotALogError
from kseg.files.metadata import is_of_broker
from kseg.files.names import PathKind, classify_path
from kseg.format.times import Time
from kseg.log.clock import now_of
from kseg.log.config import LogConfig
from kseg.log.settings import SettingSources
from kseg.log.sub_directories import EntryKind

#: The release whose steps are followed one by one.
_FOLLOWED: Final = "4.2"
#: Where brokers of other releases are known to cut as 4.2 does; the rest of it is not known.
RELEASES: Final = (
    _FOLLOWED,
    *("3.9", "2.8", "1.1", "0.11", "0.10.2", "0.10.0", "0.9.0", "0.8.2", "0.8.0"),
)
#: The first major release in which all directories are formatted before a start.
_FORMATTED_SINCE: Final = 4
#: Less than this says nothing about a rate.
_RATE_BYTES_MIN: Final = 1 << 20
#: The file system makes it where one is mounted.
_FOUND: Final = "lost+found"
_StrPath = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked about one broker, as `plan` has found it.

    Attributes:
        release: of Kafka.
        known: the one of `RELEASES` that it belongs to; None for another.
        homes: the data directories.
        told: what `server.properties` says.
        settings: of the partitions.
        units: partitions to load, each once.
    """

    release: str
    known: str | None
    homes: tuple[Home, ...]
    told: BrokerFile
    settings: KnownSettings
    units: tuple[PartitionUnit, ...]


def doctor(
    data_directories: _StrPath | Sequence[_StrPath],
    *,
    release: str = _FOLLOWED,
    metadata_directory: _StrPath | None = None,
    broker_config: _StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
    now_ms: Time | None = None,
    jobs: Jobs = 1,
    progress: Progress | None = None,
) -> Doctored:
    """Say whether a broker starts on its data directories, what it does, and what it loses.

    Nothing is changed, and no lock is taken. One bad partition is a row of the answer. What is not
    known is `Outcome.UNKNOWN`.

    Args:
        data_directories: all those of one broker.
        release: of Kafka, one of `RELEASES` or with more digits. Others than 4.2 are known to cut
            the same; whether they start is `UNKNOWN` where 4.2 does not.
        metadata_directory: the one with `__cluster_metadata-0`, if it is none of those.
        broker_config: the broker's `server.properties`.
        config, topic_config: settings, as for `kseg.settings`.
        now_ms: the clock.
        jobs: how many share the work: threads; forked processes for 1,000 segments and more, in a
            process of one thread.
        progress: called with bytes done and bytes in all.

    Raises:
        ValueError: an unknown release, `jobs` below 1, no directory, or malformed settings.
        NotALogError: one of them is a partition, of which a broker as such says nothing.
        OSError: `broker_config` cannot be read.

    Example:
        >>> from kseg.analysis.doctor import doctor
        >>> doctor("/var/lib/kafka").outcome  # doctest: +SKIP
        <Outcome.STARTS: 'starts'>
    """
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    given = [data_directories] if isinstance(data_directories, str | PathLike) else data_directories
    asked = plan(given, release=release, sources=sources, now_ms=now_ms)
    segments = sum(home.logs for home in asked.homes)
    answers = run_units(asked.units, examine, jobs=jobs, progress=progress, segments=segments)
    return report(asked, answers)


def plan(
    data_directories: Sequence[_StrPath],
    *,
    release: str,
    sources: SettingSources,
    now_ms: Time | None = None,
) -> Asked:
    """Look at all but the logs; for the arguments and errors see `doctor`."""
    known = _release_of(release)
    if not data_directories:
        raise ValueError("doctor wants one data directory or more")
    told = read_broker_file(sources.broker_config)
    loads = told.roles != ("controller",)
    homes = tuple(look_at_home(Path(each), loads_logs=loads) for each in data_directories)
    for home in homes:
        _refuse_partition(home)
    found = KnownSettings(sources, [home.path for home in homes if home.exists])
    now = now_of(now_ms)
    units = (unit for home in homes for unit in _units(home, found, now))
    once = {unit.path: unit for unit in units}
    return Asked(release, known, homes, told, found, tuple(once.values()))


def report(asked: Asked, answers: Iterable[PartitionOutlook]) -> Doctored:
    """The answer, out of those for all units in any order."""
    homes, told = asked.homes, asked.told
    loaded = {one.path: one for one in answers}
    rate = _rate(loaded.values())
    quorum = quorum_of(homes, told, asked.settings.cluster, loaded)
    node = Node.of(homes, told, quorum)
    loaded = dict(_judged(homes, node, loaded))
    directories = tuple(_directory(home, loaded, asked, rate, node) for home in homes)
    noticed = [*_of_settings(asked.settings), *ensemble.across(homes, told, node)]
    if quorum.log is None and quorum.before is None and ensemble.is_kraft(homes):
        noticed.extend(of_missing_log(homes, told, loaded))
    formatted = int(asked.release.partition(".")[0]) >= _FORMATTED_SINCE
    noticed.extend(ensemble.of_ids_missing(homes, node, formatted=formatted))
    outcomes = {home.path: each.outcome for home, each in zip(homes, directories, strict=True)}
    noticed.extend(ensemble.of_outcomes(homes, outcomes, told))
    every = [each.outcome for each in directories]
    every.extend(one.outcome for one in noticed)
    found = Doctored(asked.release, Outcome.worst(every), rate, directories, tuple(noticed))
    return _for_release(found, known=asked.known)


def _judged(
    homes: Iterable[Home], node: Node, loaded: Mapping[str, PartitionOutlook]
) -> Iterator[tuple[str, PartitionOutlook]]:
    """Each partition, with what the metadata log says of it."""
    lost = [path for part, path in node.paths() if node.is_forgotten(part) and path in loaded]
    for home in homes:
        for entry in home.entries:
            one = loaded.get(fspath(entry.path))
            if one is None:
                continue
            if entry.kind is EntryKind.CLUSTER_METADATA:
                one = with_damage(one, node.quorum, [loaded[path] for path in lost])
            yield one.path, node.with_finding(one, entry)


def _release_of(release: str) -> str | None:
    """The known release that one belongs to; None for another."""
    if not all(part.isdecimal() for part in release.split(".")):
        raise ValueError(f"{release!r} is no release of Kafka, as 4.2 is")
    return next((one for one in RELEASES if f"{release}.".startswith(f"{one}.")), None)


def _of_settings(found: KnownSettings) -> Iterator[Noticed]:
    for home, reason in found.errors.items():
        yield Noticed("unreadable", str(home), reason, Outcome.UNKNOWN)


def _refuse_partition(home: Home) -> None:
    """Refuse a partition, or what holds data directories, in the place of a data directory."""
    kind = None
    if home.exists and not home.entries:
        with suppress(NotALogError, OSError):
            kind = classify_path(home.path).kind
    if kind is PathKind.PARTITION:
        raise NotALogError("a partition: doctor takes the directory that it is in", path=home.path)
    kinds = {entry.kind for entry in home.entries if entry.path.name != _FOUND}
    is_home = home.logs or home.offsets or is_of_broker(home.path)
    if is_home or EntryKind.UNKNOWN not in kinds:
        return
    inside = [entry.path for entry in home.entries if is_of_broker(entry.path)]
    words = command_line("kseg", "doctor", *inside)
    give = f"give those that are in it: {words}" if inside else "nothing in it is a broker's"
    raise NotALogError(f"no data directory; {give}", path=home.path)


def _units(home: Home, known: KnownSettings, now_ms: int) -> Iterator[PartitionUnit]:
    for entry in home.entries:
        if entry.kind in (EntryKind.UNKNOWN, EntryKind.CACHE):
            continue
        offsets = home.told_of(entry.partition)
        own = known.of(entry.path)
        kraft = entry.kind is EntryKind.CLUSTER_METADATA  # it is read again at each start
        yield PartitionUnit(
            str(entry.path),
            offsets.clean and not kraft,
            0 if kraft else offsets.recovery_point,
            0 if kraft else offsets.log_start_offset,
            LogConfig() if isinstance(own, str) else own.config,
            now_ms,
            home.sizes.get(entry.path.name, 0),
        )


def _rate(answers: Iterable[PartitionOutlook]) -> float | None:
    swept = [(one.swept_bytes, one.seconds) for one in answers if one.swept_bytes]
    size, seconds = sum(one for one, _ in swept), sum(one for _, one in swept)
    return size / seconds if size >= _RATE_BYTES_MIN and seconds else None


def _directory(
    home: Home,
    answers: Mapping[str, PartitionOutlook],
    asked: Asked,
    rate: float | None,
    node: Node,
) -> DirectoryOutlook:
    paths = (fspath(entry.path) for entry in home.entries)
    partitions = [answers[path] for path in paths if path in answers]
    noticed = [*_with_loads(home.noticed, partitions), *_of_room(home, partitions)]
    noticed.extend(node.in_the_way(home) if asked.told.roles != ("controller",) else ())
    sizes = [one.swept_bytes for one in partitions]
    meta, threads = home.meta, asked.told.threads
    return DirectoryOutlook(
        str(home.path),
        Outcome.worst([each.outcome for each in partitions] + [one.outcome for one in noticed]),
        home.clean,
        meta.cluster_id if meta else None,
        meta.node_id if meta else None,
        meta.directory_id if meta else None,
        threads,
        sum(sizes),
        _seconds(sizes, threads, rate),
        tuple(partitions),
        tuple(noticed),
    )


def _with_loads(
    noticed: Iterable[Noticed], partitions: Sequence[PartitionOutlook]
) -> Iterator[Noticed]:
    """Findings of a directory, with what follows for its partitions, which are loaded afterwards.

    A directory that a checkpoint takes offline is loaded nevertheless. A load that then deletes a
    segment, or reads where an open transaction begins, stops the broker.

    Source: Kafka `LogManager.loadLogs`, `LocalLog.maybeHandleIOException`.
    """
    stopping = next((one for one in partitions if one.reads_itself), None)
    for one in noticed:
        is_read_first = one.code == "checkpoint-format" and one.path.endswith(READ_FIRST)
        if stopping is None or not is_read_first or one.outcome is not Outcome.OFFLINE:
            yield one
            continue
        message = f"{one.message}; the broker then stops while it loads {stopping.path}"
        yield replace(one, message=message, outcome=Outcome.FAILS)


def _seconds(sizes: Sequence[int], threads: int, rate: float | None) -> float | None:
    """A partition is loaded by one thread, so that the largest one is the least it takes."""
    if not any(sizes):
        return 0.0
    return None if rate is None else max(max(sizes), sum(sizes) / threads) / rate


def _of_room(home: Home, partitions: Sequence[PartitionOutlook]) -> Iterator[Noticed]:
    written = sum(one.written_bytes for one in partitions)
    if not written:
        return
    with suppress(OSError):
        disk = statvfs(home.path)
        free = disk.f_bavail * disk.f_frsize
        if written > free:
            message = f"loading writes {written} bytes, and {free} are free"
            verbs = ("retain", "compact")
            mend = "\n".join(command_line("kseg", verb, home.path) for verb in verbs)
            yield Noticed("room", str(home.path), message, Outcome.OFFLINE, "IOException", mend)


def _for_release(found: Doctored, *, known: str | None) -> Doctored:
    """What is not known of another release than the one that is followed."""
    if known == _FOLLOWED:
        return found
    directories = tuple(
        replace(each, outcome=_not_known(each.outcome, known=known)) for each in found.directories
    )
    return replace(found, outcome=_not_known(found.outcome, known=known), directories=directories)


def _not_known(outcome: Outcome, *, known: str | None) -> Outcome:
    return outcome if known is not None and outcome is Outcome.STARTS else Outcome.UNKNOWN


__all__ = ["RELEASES", "Asked", "doctor", "plan", "report"]
