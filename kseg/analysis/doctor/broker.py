"""What a broker's `server.properties` says of its data directories and of the threads that load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from kseg.files import metadata

#: Since Kafka 4.0 (KIP-1030); it was 1 before.
THREADS_DEFAULT: Final = 2
_THREADS: Final = "num.recovery.threads.per.data.dir"


@dataclass(frozen=True, slots=True)
class BrokerFile:
    """What is read of it.

    Attributes:
        directories: of `log.dirs`, or else `log.dir`; empty where the file names none.
        metadata_directory: of `metadata.log.dir`; the first of `directories` else.
        node_id: of `node.id`, or else `broker.id`; None where it is not told.
        threads: that load the partitions of one data directory.
        roles: of `process.roles`; none where the file names none.
        voters: of `controller.quorum.voters`; none where the file names none.
        voters_max: how many there are at most; None where the file does not say.
    """

    directories: tuple[Path, ...] = ()
    metadata_directory: Path | None = None
    node_id: int | None = None
    threads: int = THREADS_DEFAULT
    roles: tuple[str, ...] = ()
    voters: tuple[int, ...] = ()
    voters_max: int | None = None


def read_broker_file(path: str | PathLike[str] | None) -> BrokerFile:
    """Read it; what a broker has by default where there is no such file.

    Raises:
        ValueError: it is malformed, or a number is none.
        OSError: it cannot be read.
    """
    if path is None:
        return BrokerFile()
    found = metadata.read_properties(path)
    directories = tuple(map(Path, metadata.log_directories(found)))
    servers = _words(found, "controller.quorum.bootstrap.servers")
    voters = _words(found, "controller.quorum.voters")
    numbers = (each.partition("@")[0] for each in voters)
    own = found.get("metadata.log.dir")
    first = directories[0] if directories else None
    return BrokerFile(
        directories,
        Path(own.strip()) if own else first,
        _number(found, "node.id") if "node.id" in found else _number(found, "broker.id"),
        max(_number(found, _THREADS) or THREADS_DEFAULT, 1),
        _words(found, "process.roles"),
        tuple(int(each) for each in numbers if each.isdecimal()),
        len(voters or servers) or None,
    )


def _words(found: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The words of a list with commas."""
    return tuple(each.strip() for each in found.get(name, "").split(",") if each.strip())


def _number(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name, "").strip()
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name} is {text!r}, not a number") from None
