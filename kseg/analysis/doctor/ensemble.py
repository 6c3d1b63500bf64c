"""What shows only across the data directories of a broker, or on its machine.

Source: Kafka `MetaPropertiesEnsemble.verify`, `KafkaRaftServer.initializeLogDirs`,
`LogManager.createAndValidateLogDirs`, `LogManager.loadLog`.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kseg.analysis.doctor.assigned import Node
from kseg.analysis.doctor.broker import BrokerFile
from kseg.analysis.doctor.homes import Home
from kseg.analysis.doctor.values import Noticed, Outcome
from kseg.files import io
from kseg.files.names import FileKind
from kseg.log.sub_directories import EntryKind

_MAPS_MAX: Final = Path("/proc/sys/vm/max_map_count")
#: A broker has some for itself, its connections among them.
_FILES_BESIDE: Final = 1_000
_FAILS: Final = Outcome.FAILS
_BY_HAND: Final = "put the directories together that belong together"


def metadata_home(homes: Sequence[Home], told: BrokerFile) -> Path | None:
    """The data directory with the metadata log: as configured, or the only one that has it."""
    if told.metadata_directory is not None:
        return told.metadata_directory.resolve()
    found = [home.path.resolve() for home in homes if _has_metadata(home)]
    return found[0] if found else None


def _has_metadata(home: Home) -> bool:
    return any(entry.kind is EntryKind.CLUSTER_METADATA for entry in home.entries)


def is_kraft(homes: Iterable[Home]) -> bool:
    """Whether these are directories of KRaft's era, by their ids or their metadata log."""
    return any(
        _has_metadata(home) or (home.meta is not None and home.meta.version == 1) for home in homes
    )


def across(homes: Sequence[Home], told: BrokerFile, node: Node) -> Iterator[Noticed]:
    """What contradicts between directories, and what the machine has too little of."""
    yield from _of_same(homes)
    yield from _of_ids(homes, told)
    if is_kraft(homes):
        yield from node.of_formatting()
        yield from _of_metadata(homes, told)
        yield from node.missing()
    yield from _of_duplicates(homes)
    yield from _of_machine(sum(home.logs for home in homes))
    given = {home.path.resolve() for home in homes}
    for each in told.directories:
        if each.resolve() not in given:
            message = "server.properties names it; a broker's answer wants all its directories"
            yield Noticed("not-given", str(each), message, Outcome.UNKNOWN)


def _of_same(homes: Sequence[Home]) -> Iterator[Noticed]:
    seen: dict[Path, Path] = {}
    for home in homes:
        other = seen.setdefault(home.path.resolve(), home.path)
        if other is not home.path:
            message = f"the same directory as {other}"
            yield Noticed("same-directory", str(home.path), message, _FAILS, "KafkaException")


def _of_ids(homes: Sequence[Home], told: BrokerFile) -> Iterator[Noticed]:
    known = sorted(
        ((home.path, home.meta) for home in homes if home.meta is not None),
        key=lambda pair: str(pair[0]),
    )
    yield from _not_equal(((path, meta.cluster_id) for path, meta in known), "cluster.id", None)
    yield from _not_equal(((path, meta.node_id) for path, meta in known), "node.id", told.node_id)
    seen: dict[str, Path] = {}
    for path, meta in known:
        if meta.directory_id is None:
            continue
        other = seen.setdefault(meta.directory_id, path)
        if other != path:
            message = f"directory.id {meta.directory_id} is also that of {other}: one is a copy"
            yield _id_fault(path, message)


def _not_equal(
    found: Iterable[tuple[Path, object]], name: str, expected: object
) -> Iterator[Noticed]:
    """Ids that are not the first one that is known."""
    for path, value in found:
        if value is None:
            continue
        if expected is None:
            expected = value
        elif value != expected:
            yield _id_fault(path, f"{name} is {value}, and {expected} elsewhere")


def _id_fault(path: Path, message: str) -> Noticed:
    place = str(path / FileKind.META_PROPERTIES.value)
    return Noticed("ids", place, message, _FAILS, "RuntimeException", _BY_HAND)


def of_ids_missing(homes: Sequence[Home], node: Node, *, formatted: bool) -> Iterator[Noticed]:
    """Directories without ids that a start wants.

    Args:
        homes: the data directories.
        node: what they are of.
        formatted: whether the release is one that starts on formatted directories alone.
    """
    kraft = is_kraft(homes)
    if formatted and not kraft:
        yield from node.of_formatting()
    for home in homes if formatted or kraft else ():
        meta = home.meta
        if meta is not None and None in (meta.node_id, meta.cluster_id):
            place = str(home.path / FileKind.META_PROPERTIES.value)
            message = f"no node.id or no cluster.id of version {meta.version}, but no broker of"
            message += " KRaft starts without both"
            mend = "write it anew with the ids of the other directories"
            yield Noticed("meta-properties", place, message, _FAILS, "RuntimeException", mend)


def _of_metadata(homes: Sequence[Home], told: BrokerFile) -> Iterator[Noticed]:
    chosen = metadata_home(homes, told)
    for home in homes:
        if _has_metadata(home) and home.path.resolve() != chosen:
            message = f"a metadata log, though the metadata directory is {chosen}"
            yield Noticed("metadata-elsewhere", str(home.path), message, _FAILS, "KafkaException")


def of_outcomes(
    homes: Sequence[Home], outcomes: dict[Path, Outcome], told: BrokerFile
) -> Iterator[Noticed]:
    """What follows for the broker if directories do not come up."""
    chosen = metadata_home(homes, told)
    for home in homes:
        if home.path.resolve() == chosen and outcomes[home.path] is Outcome.OFFLINE:
            message = "it holds the metadata log, and does not come up: then no broker does"
            yield Noticed("metadata-offline", str(home.path), message, _FAILS, "RuntimeException")
    if homes and all(outcomes[home.path] is Outcome.OFFLINE for home in homes):
        message = "no data directory comes up: the broker stops"
        yield Noticed("no-directory", str(homes[0].path), message, _FAILS)


def _of_duplicates(homes: Sequence[Home]) -> Iterator[Noticed]:
    seen: dict[object, Path] = {}
    for home in homes:
        for entry in home.entries:
            if entry.kind not in (EntryKind.LOG, EntryKind.FUTURE) or entry.partition is None:
                continue
            other = seen.setdefault((entry.kind, entry.partition), entry.path)
            if other != entry.path and other.resolve() != entry.path.resolve():
                message = f"the same partition as {other}; kseg diff says which one has more"
                mend = "move the one away that is behind"
                yield Noticed(
                    "duplicate-partition",
                    str(entry.path),
                    message,
                    _FAILS,
                    "IllegalStateException",
                    mend,
                )


def _of_machine(segments: int) -> Iterator[Noticed]:
    """Limits of a process, as this shell has them: a broker's may be others."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and segments + _FILES_BESIDE > soft:
        message = f"{segments} segments and more want to be open; here a process may have {soft}"
        yield Noticed("open-files", "ulimit -n", message, mend="raise the broker's limit")
    with suppress(OSError, ValueError):
        most = io.read_kernel_number(_MAPS_MAX)
        if 2 * segments > most:
            message = f"{2 * segments} indexes may be mapped; the kernel maps {most} a process"
            mend = f"sysctl -w vm.max_map_count={max(4 * segments, 262_144)}"
            yield Noticed("maps", str(_MAPS_MAX), message, mend=mend)


__all__ = ["across", "is_kraft", "metadata_home", "of_outcomes"]
