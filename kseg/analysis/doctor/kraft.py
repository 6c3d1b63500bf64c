"""The rules about the metadata log of KRaft, and about the files beside it.

A node reads the newest snapshot of its metadata log, and no older one in the place of a damaged
one. It reads the bootstrap file at each start, though only a new cluster needs it; Kafka 4.4 has a
snapshot of no records instead. No release starts on a metadata version that it does not know.

A metadata log that is missing, or that a start cuts, comes back or not depending on the quorum. A
node that is only a broker fetches it from the controllers. A controller fetches it from the leader,
if others lead. The only controller goes on with its own log, and puts every partition aside that
this log does not name.

Source: Kafka `Snapshots.parse`, `KafkaRaftLog.recoverSnapshots`, `RecordsSnapshotReader`,
`KafkaRaftClient`, `BootstrapDirectory`, `MetadataVersion`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kseg.analysis.doctor.facts import Node, metadata_level, reason_of, records_in, refusal
from kseg.analysis.doctor.values import PartitionOutlook
from kseg.analysis.doctor.words import BrokerFinding, Outcome, advice, event, finding
from kseg.errors import KsegError, NotALogError
from kseg.files.names import CLUSTER_METADATA, FileKind, list_partition, parse_name
from kseg.files.selection import some_of
from kseg.internal.releases import metadata_versions, release_of_level
from kseg.log.settings import BROKER, TOPIC, bootstrap_level, check_snapshot

LOG_NAME: Final = f"{CLUSTER_METADATA}-0"
_NAMES_MAX: Final = 5
_SUFFIXES: Final = tuple(
    f".{FileKind.CHECKPOINT_KRAFT.value}{end}" for end in ("", ".part", ".deleted")
)


def of_snapshots(path: str) -> Iterator[BrokerFinding]:
    """Findings about names in a metadata log that no node can parse, and its newest snapshot."""
    for name in sorted(os.listdir(path)):
        if name.endswith(_SUFFIXES) and not _is_snapshot(name):
            message_code = "metadata-snapshot.name"
            yield finding(message_code, Path(path, name), exception="NumberFormatException")
    listing = list_partition(path)
    first = listing.segments[0].base_offset if listing.segments else None
    if not listing.kraft_snapshots:
        return
    *older, newest = listing.kraft_snapshots
    offsets = (snapshot.name.base_offset or 0 for snapshot in older)
    # Without the newest snapshot, the log (with or without an older snapshot) may have everything.
    is_replayed = first is not None and (first == 0 or any(offset >= first for offset in offsets))
    try:
        check_snapshot(newest.path)
    except (KsegError, OSError) as error:
        remedy = "metadata-snapshot.replayed" if is_replayed else "metadata-snapshot"
        yield _unreadable_file(newest.path, error, remedy)


def _is_snapshot(name: str) -> bool:
    """Whether a name is that of a KRaft snapshot."""
    try:
        file = parse_name(name)
    except NotALogError:
        return False
    return file is not None and file.kind is FileKind.CHECKPOINT_KRAFT


def _of_bootstrap(data_directory: Path, release: str) -> Iterator[BrokerFinding]:
    """Findings about the file with the first records of a new cluster.

    It cannot be read, or its metadata version is one that the release does not support.
    """
    bootstrap = data_directory / FileKind.BOOTSTRAP.value
    if not bootstrap.exists():
        return
    try:
        level = bootstrap_level(bootstrap)
    except (KsegError, OSError) as error:
        yield _unreadable_file(bootstrap, error, "metadata-snapshot.bootstrap")
    else:
        yield from _of_level(bootstrap, level, release)


def _of_level(path: Path, level: int, release: str) -> Iterator[BrokerFinding]:
    """A finding if a release does not support a metadata version; nothing if that is unknown."""
    versions = metadata_versions().get(".".join(release.split(".")[:2]))
    if versions is None or versions[0] <= level <= versions[1]:
        return
    least, largest = versions
    first = release_of_level(level) if level > largest else None
    yield finding(
        "feature-level",
        path,
        level=level,
        release=release,
        least=least,
        largest=largest,
        first=first or None,
    )


def _unreadable_file(path: Path, error: KsegError | OSError, remedy: str) -> BrokerFinding:
    """The finding about a snapshot or bootstrap file that cannot be read."""
    reason = reason_of(error)
    exception = "UncheckedIOException"
    if isinstance(error, KsegError):
        exception = error.kafka_exception or "CorruptRecordException"
        if not path.stat().st_size:
            reason = "the file is empty"
            if path.name != FileKind.BOOTSTRAP.value:
                exception = "NoSuchElementException"
    return finding("metadata-snapshot", path, remedy, exception=exception, reason=reason)


# ---- a log that is missing, or cut ---------------------------------------------------------------


def _of_missing_log(node: Node) -> Iterator[BrokerFinding]:
    """Findings for a KRaft node of which no data directory holds the metadata log.

    A node that is only a broker fetches it. A controller begins an empty one, and puts each
    partition aside; less is certain where its roles are not known, or other voters may exist.
    """
    directories = node.directories
    server = node.server
    home = server.metadata_directory
    if home is not None and home.resolve() not in {
        directory.path.resolve() for directory in directories
    }:
        yield finding("not-given.metadata", home)
        return
    path = node.log or (home or directories[0].path) / LOG_NAME
    if node.is_controller is False:
        yield finding("metadata-fetched", path)
        return
    paths = [str(entry.path) for directory in directories for entry in directory.logs]
    lost_event = {0: "forgotten", 1: "one-stray"}.get(len(paths), "all-stray")
    message_code, start_event, remedy = "metadata-missing", "begins", "metadata-missing"
    if not server.roles:
        has_place = home is not None or node.log is not None
        message_code = "metadata-missing.perhaps" if has_place else "metadata-missing.alone"
    elif server.voters_max != 1:
        start_event = "may-begin"
        remedy = "metadata-missing.others"
    yield finding(
        message_code,
        path,
        remedy,
        records=records_in(node.loads[log] for log in paths if log in node.loads),
        partitions=tuple(os.path.basename(log) for log in paths),
        state=event("no-log" if node.log is None else "empty-log"),
        next=event(start_event),
        lost=event(lost_event, count=len(paths)),
    )


def of_damage(
    node: Node, load: PartitionOutlook, strays: Sequence[PartitionOutlook]
) -> PartitionOutlook:
    """The load of the metadata log, with the consequences for a node.

    Args:
        node: the node.
        load: the metadata log, as loading it leaves it.
        strays: partitions that a start puts aside, since it forgets their topics.
    """
    voters = {None: "", 1: ".only"}.get(node.voters, ".others")
    remedy = "metadata-log" + (".broker" if node.is_controller is False else voters)
    mend = advice(remedy, load.path)
    # Findings about single files, not about the log's records, keep their own advice.
    findings = [
        item
        if item.code == "metadata-snapshot" or item.exception == "NumberFormatException"
        else replace(item, mend=mend if item.severity == "error" else None)
        for item in load.findings
        if item.code not in ("swept", "records-cut")
    ]
    if load.lost_records != 0:
        findings.append(_truncation_finding(node, load, strays, remedy))
    fault = refusal(load, node.before) if load.outcome is Outcome.STARTS else None
    if fault is not None and load.cut_offset is None:
        # The consequence of a gap between offsets is not known.
        outcome = Outcome.UNKNOWN
        exception = None
        if fault.position is not None:
            outcome = Outcome.FAILS
            exception = "CorruptRecordException"
        findings.append(
            finding(
                "load-fails.kept",
                load.path,
                remedy,
                outcome=outcome,
                exception=exception,
                reason=fault.reason,
            )
        )
    outcome = Outcome.worst([load.outcome, *(item.outcome for item in findings)])
    return replace(load, findings=tuple(findings), outcome=outcome)


def _truncation_finding(
    node: Node, load: PartitionOutlook, strays: Sequence[PartitionOutlook], remedy: str
) -> BrokerFinding:
    """The finding for a metadata log that a start truncates: what is lost with its last records.

    Other voters still have the records, so no records count as lost then.
    """
    extents = "; ".join(lost.extent for lost in load.lost)
    if node.is_controller is False:
        return finding("metadata-fetched.cut", load.path, extents=extents)
    has_others = node.voters is not None and node.voters > 1
    names = tuple(os.path.basename(stray.path) for stray in strays)
    topics = sorted({*node.forgotten_topics, *(stray.topic for stray in strays if stray.topic)})
    leader = "another controller" if has_others else None
    losses = [event("goes", extents=extents, others=leader)]
    losses += [
        event(name, names=some_of(owners, _NAMES_MAX), count=len(owners))
        for name, owners in (
            ("topics", topics),
            ("settings", _changed_settings(node)),
            ("strays", names),
        )
        if owners
    ]
    if any(name.startswith("__consumer_offsets-") for name in names):
        losses.append(event("offsets"))
    return finding(
        "metadata-cut",
        load.path,
        remedy,
        records=0 if has_others else records_in(strays),
        partitions=names,
        losses="; ".join(losses),
    )


def _changed_settings(node: Node) -> list[str]:
    """The topics and brokers whose settings a start changes, without topics that it forgets."""
    if node.before is None or node.cluster is None:
        return []
    before = node.before.configs
    after = node.cluster.configs
    owners = (
        owner for owner in before.keys() | after.keys() if before.get(owner) != after.get(owner)
    )
    names = {
        name if kind != BROKER else f"broker {name}" if name else "all brokers"
        for kind, name in owners
        if kind in (TOPIC, BROKER)
    }
    return sorted(names - set(node.forgotten_topics))


def of_kraft_files(node: Node) -> Iterator[BrokerFinding]:
    """Findings about the files of KRaft of a node."""
    if node.is_kraft and node.lacks_log:
        yield from _of_missing_log(node)
    if node.is_kraft and node.metadata_directory is not None:
        yield from _of_bootstrap(node.metadata_directory, node.release)
    level = metadata_level(node.before)
    if node.log is not None and level is not None:
        yield from _of_level(node.log, level, node.release)


def of_metadata_elsewhere(node: Node) -> Iterator[BrokerFinding]:
    """Findings about metadata logs in other data directories than the one that the node reads."""
    home = node.metadata_directory
    for directory in node.directories:
        if directory.metadata_log is not None and directory.path.resolve() != home:
            yield finding("metadata-elsewhere", directory.path, home=home)
