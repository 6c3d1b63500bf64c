"""The files of KRaft beside its log: snapshots, the bootstrap file, and the cluster's level.

A node reads the newest snapshot of its metadata log, and no older one in the place of a damaged
one. It reads the bootstrap file at each start, though only a new cluster needs it; Kafka 4.4 has a
snapshot of no records instead. No release starts on a metadata version that it does not know.

Source: Kafka `Snapshots.parse`, `KafkaRaftLog.recoverSnapshots`, `RecordsSnapshotReader`,
`BootstrapDirectory`, `MetadataVersion`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kseg.analysis.doctor.values import BrokerFinding, finding
from kseg.commands import command_line
from kseg.errors import KsegError, NotALogError, os_reason
from kseg.files.names import FileKind, list_partition, parse_name
from kseg.internal.releases import metadata_versions, release_of_level
from kseg.log.settings import Cluster, bootstrap_level, check_snapshot

_SUFFIXES: Final = tuple(
    f".{FileKind.CHECKPOINT_KRAFT.value}{end}" for end in ("", ".part", ".deleted")
)


def of_snapshots(path: str) -> Iterator[BrokerFinding]:
    """Names in a metadata log that no node can parse, and the newest snapshot."""
    for name in sorted(os.listdir(path)):
        if name.endswith(_SUFFIXES) and not _is_snapshot(name):
            place = Path(path, name)
            message = "the name has no offset and epoch of a snapshot; no node starts with it"
            yield _finding(place, message, "NumberFormatException", f"Move it away:\n{away(place)}")
    listing = list_partition(path)
    ends = [
        (each.name.base_offset or 0, each.name.epoch or 0, each.path)
        for each in listing.kraft_snapshots
    ]
    first = listing.segments[0].base_offset if listing.segments else None
    for _, _, newest in sorted(ends)[-1:]:
        older = [each for each, _, place in ends if place != newest]
        is_replayed = first is not None and (first == 0 or any(each >= first for each in older))
        mend = "Restore it from a backup or from another controller."
        if is_replayed:
            mend = f"The log has its records, too. Move it away:\n{away(newest)}"
        try:
            check_snapshot(newest)
        except (KsegError, OSError) as error:
            yield _unread(newest, error, mend)


def _is_snapshot(name: str) -> bool:
    try:
        known = parse_name(name)
    except NotALogError:
        return False
    return known is not None and known.kind is FileKind.CHECKPOINT_KRAFT


def of_bootstrap(home: Path, release: str) -> Iterator[BrokerFinding]:
    """The file from which a node takes the first records of a new cluster."""
    place = home / FileKind.BOOTSTRAP.value
    if not place.exists():
        return
    try:
        level = bootstrap_level(place)
    except (KsegError, OSError) as error:
        mend = f"Restore it, or move it away if the metadata log has records:\n{away(place)}"
        yield _unread(place, error, mend)
    else:
        yield from _of_level(place, level, release)


def of_level(cluster: Cluster | None, log: Path, release: str) -> Iterator[BrokerFinding]:
    """The metadata version of the cluster, if a release does not know it."""
    fact = None if cluster is None else cluster.facts["features"].get(("metadata.version",))
    if fact is not None:
        yield from _of_level(log, fact.fields["level"], release)


def _of_level(place: Path, level: int, release: str) -> Iterator[BrokerFinding]:
    known_versions = metadata_versions().get(".".join(release.split(".")[:2]))
    if known_versions is None:
        return
    least, largest = known_versions
    if least <= level <= largest:
        return
    first = release_of_level(level)
    since = f"; Kafka {first} is the first release with it" if first and level > largest else ""
    yield finding(
        "feature-level",
        place,
        f"metadata.version is {level}, and Kafka {release} knows {least} to {largest}{since}",
        "Start a release that knows it; a metadata version cannot be taken back on the disk.",
    )


def _finding(place: Path, message: str, exception: str | None, mend: str) -> BrokerFinding:
    return finding("metadata-snapshot", place, message, mend, exception=exception)


def _unread(place: Path, error: KsegError | OSError, mend: str) -> BrokerFinding:
    """A file that cannot be read, with Kafka's exception."""
    if isinstance(error, OSError):
        reason, exception = os_reason(error), "UncheckedIOException"
    else:
        reason, exception = error.reason, error.kafka_exception or "CorruptRecordException"
        if not place.stat().st_size:
            is_snapshot = place.name != FileKind.BOOTSTRAP.value
            reason = "the file is empty"
            exception = "NoSuchElementException" if is_snapshot else exception
    return _finding(place, f"{reason}; no node starts with it", exception, mend)


def away(path: Path) -> str:
    """The command that moves a file out of the data directory."""
    home = path.absolute().parent
    home = home.parent if home.name.startswith("__") else home
    return command_line("mv", path, home.with_name(f"{home.name}.{path.name}"))
