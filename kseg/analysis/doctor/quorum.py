"""The metadata log of KRaft: missing, or cut by a start; what the broker forgets, what mends it.

Whether a lost record comes back depends on the quorum. A node that only is a broker fetches the log
from the controllers. A controller fetches it from the leader, if others lead. The only controller
goes on with what it has, and puts every partition aside that it does not know.

Source: Kafka `KafkaRaftLog`, `KafkaRaftClient`, `BrokerMetadataPublisher`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kseg.analysis.doctor.broker import BrokerFile
from kseg.analysis.doctor.homes import Home
from kseg.analysis.doctor.values import Noticed, Outcome, PartitionOutlook
from kseg.commands import command_line
from kseg.errors import KsegError
from kseg.files import io
from kseg.files.names import FileKind
from kseg.log.data_directory import CLUSTER_METADATA
from kseg.log.settings import TOPIC, Cluster, read_cluster
from kseg.log.sub_directories import EntryKind

LOG_NAME: Final = f"{CLUSTER_METADATA}-0"
_NAMES_MAX: Final = 5
#: A quorum-state has a line; no more of it is read.
_STATE_BYTES_MAX: Final = 2**20


@dataclass(frozen=True, slots=True)
class Quorum:
    """The part of this node in the quorum.

    Attributes:
        log: the directory of its metadata log; None where none was found.
        is_controller: None where neither the configuration nor the log says it.
        voters: how many there are; None where that is not known.
        before: what the metadata log says, behind damage too; None without one.
        cluster: what of it is left after a start; None where that is not known.
    """

    log: Path | None
    is_controller: bool | None
    voters: int | None
    before: Cluster | None
    cluster: Cluster | None

    @property
    def forgotten(self) -> list[str]:
        """Topics that a start forgets, by name."""
        if self.before is None or self.cluster is None:
            return []
        left = self.cluster.topics
        return sorted(name for one, name in self.before.topics.items() if one not in left)


def quorum_of(
    homes: Iterable[Home],
    told: BrokerFile,
    known: Cluster | None,
    loaded: Mapping[str, PartitionOutlook],
) -> Quorum:
    """Find the quorum in the configuration, in the log and in its `quorum-state`.

    Args:
        homes: the data directories.
        told: what `server.properties` says.
        known: what the metadata log says up to the first damage; None without one.
        loaded: what loading makes of partitions, by path.
    """
    logs = {entry.path: home for home in homes for entry in home.entries if _is_log(entry.kind)}
    log = next(iter(logs), None)
    voters = told.voters or (known.voters if known is not None else None) or _state_of(log)
    meta = None if log is None else logs[log].meta
    node_id = told.node_id if meta is None else meta.node_id
    is_controller = (
        "controller" in told.roles if told.roles else (node_id in voters if voters else None)
    )
    one = None if log is None else loaded.get(str(log))
    before = cluster = known
    if one is not None and (one.outcome is not Outcome.STARTS or _refusal(one, known)):
        cluster = None
    elif (
        log is not None and one is not None and one.cut_offset is not None and one.lost_records != 0
    ):
        before = read_cluster(log, past_damage=True)
        # A node that only is a broker fetches what is cut before it judges by it.
        cluster = None if is_controller is False else read_cluster(log, end_offset=one.cut_offset)
    return Quorum(log, is_controller, len(voters) if voters else told.voters_max, before, cluster)


def _is_log(kind: EntryKind) -> bool:
    return kind is EntryKind.CLUSTER_METADATA


def _refusal(one: PartitionOutlook, known: Cluster | None) -> KsegError | None:
    """Why the broker cannot read a metadata log that loading leaves as it is; None if it can."""
    if known is None or known.cut_at is None or known.cut_at >= one.log_end_offset:
        return None
    return known.findings[-1]


def _state_of(log: Path | None) -> tuple[int, ...]:
    """The voters of a `quorum-state` of version 0; those of version 1 are in the log."""
    if log is None:
        return ()
    with suppress(OSError, KsegError, ValueError, TypeError, KeyError, AttributeError):
        text = io.read_file(log / FileKind.QUORUM_STATE.value, bytes_max=_STATE_BYTES_MAX)
        return tuple(int(each["voterId"]) for each in json.loads(text)["currentVoters"])
    return ()


# ---- no log --------------------------------------------------------------------------------------


def of_missing_log(
    homes: Sequence[Home], told: BrokerFile, loaded: Mapping[str, PartitionOutlook]
) -> Iterator[Noticed]:
    """What follows where no directory of a node of KRaft has the metadata log."""
    place = told.metadata_directory
    if place is not None and place.resolve() not in {home.path.resolve() for home in homes}:
        message = "server.properties names it as metadata.log.dir: give it, too"
        yield Noticed("not-given", str(place), message, Outcome.UNKNOWN)
        return
    path = str((place or homes[0].path) / LOG_NAME)
    paths = [str(e.path) for home in homes for e in home.entries if e.kind is EntryKind.LOG]
    names = tuple(os.path.basename(each) for each in paths)
    if told.roles and "controller" not in told.roles:
        message = "not here: the node fetches it from the controllers"
        yield Noticed("metadata-fetched", path, message)
        return
    lost = (
        f"all {len(names)} partitions here become -stray" if names else "all topics are forgotten"
    )
    first, mend = "not here", "Restore it from another controller or a backup."
    if not told.roles:
        where = "" if place else ", and metadata.log.dir is no other directory"
        first = f"if this node is a controller{where}: {first}"
    if told.voters_max != 1 and told.roles:
        message = (
            f"{first}: if the other controllers have no leader, a new cluster may begin, and {lost}"
        )
        mend = "Do not start this node with an empty log before the others are up."
    else:
        message = f"{first}: the broker begins a new cluster without topics, and {lost}"
    records = _records_in(loaded[each] for each in paths if each in loaded)
    yield Noticed("metadata-missing", path, message, mend=mend, records=records, partitions=names)


def _records_in(found: Iterable[PartitionOutlook]) -> int:
    """Offsets, each of which may have a record."""
    return sum(max(one.log_end_offset - one.log_start_offset, 0) for one in found)


# ---- a damaged log -------------------------------------------------------------------------------


def with_damage(
    one: PartitionOutlook,
    quorum: Quorum,
    strays: Sequence[PartitionOutlook],
) -> PartitionOutlook:
    """What loading makes of the metadata log, with what follows for this node.

    Args:
        one: the metadata log, as loading it leaves it.
        quorum: of this node.
        strays: partitions that a start puts aside, since it forgets their topics.
    """
    mend = _mend_of(one.path, quorum)
    kept = [
        replace(each, mend=mend if each.severity == "error" else None)
        for each in one.noticed
        if each.code not in ("swept", "records-cut")
    ]
    if one.lost_records != 0:
        kept.append(_cut(one, quorum, strays, mend))
    refusal = _refusal(one, quorum.before) if one.outcome is Outcome.STARTS else None
    if refusal is not None and one.cut_offset is None:
        message = f"loading keeps what no broker can read: {refusal.reason}"
        # Of a gap between offsets it is not known.
        outcome = Outcome.UNKNOWN if refusal.position is None else Outcome.FAILS
        exception = None if refusal.position is None else "CorruptRecordException"
        kept.append(Noticed("load-fails", one.path, message, outcome, exception, mend))
    outcome = Outcome.worst([one.outcome, *(each.outcome for each in kept)])
    return replace(one, noticed=tuple(kept), outcome=outcome)


def _cut(
    one: PartitionOutlook, quorum: Quorum, strays: Sequence[PartitionOutlook], mend: str
) -> Noticed:
    extents = "; ".join(lost.extent for lost in one.lost)
    others = quorum.voters is not None and quorum.voters > 1
    if quorum.is_controller is False:
        message = f"{extents} go; the node fetches them again from the controllers"
        return Noticed("metadata-fetched", one.path, message)
    names = tuple(os.path.basename(each.path) for each in strays)
    unless = ", unless it fetches them from another controller" if others else ""
    parts = [f"{extents} go, and the broker forgets what they say{unless}"]
    topics = sorted({*quorum.forgotten, *(each.topic for each in strays if each.topic)})
    if topics:
        parts.append(f"topics {_some_of(topics)}")
    if changed := _changed_settings(quorum):
        parts.append(f"settings of {_some_of(changed)}")
    if names:
        parts.append(
            f"{len(names)} partitions here become -stray and are not served: {_some_of(names)}"
        )
    if any(name.startswith("__consumer_offsets-") for name in names):
        parts.append("committed offsets are lost with __consumer_offsets")
    return Noticed(
        "metadata-cut",
        one.path,
        "; ".join(parts),
        mend=mend,
        records=0 if others else _records_in(strays),
        partitions=names,
    )


def _changed_settings(quorum: Quorum) -> list[str]:
    """What has other settings after the start, by name; forgotten topics aside."""
    if quorum.before is None or quorum.cluster is None:
        return []
    before, after = quorum.before.configs, quorum.cluster.configs
    changed = {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}
    names = {
        name if kind == TOPIC else f"broker {name}" if name else "all brokers"
        for kind, name in changed
    }
    return sorted(names - set(quorum.forgotten))


def _mend_of(path: str, quorum: Quorum) -> str:
    away = command_line("mv", path, f"{os.path.dirname(os.path.abspath(path))}.{LOG_NAME}")
    salvage = command_line("kseg", "salvage", path, "-o", "OUT")
    while_up = "while a majority of the other controllers is up"
    fetch = f"{while_up}, move it away; the node fetches it anew:\n{away}"
    keep = f"restore it from a backup, or put what this keeps of it in its place:\n{salvage}"
    if quorum.is_controller is False:
        return f"Move it away; the node fetches it anew:\n{away}"
    if quorum.voters is None:
        return f"If there are more controllers, {fetch}\nIf this is the only one, {keep}"
    text = keep if quorum.voters == 1 else fetch
    return text[0].upper() + text[1:]


def _some_of(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + more


__all__ = ["LOG_NAME", "Quorum", "of_missing_log", "quorum_of", "with_damage"]
