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
    """

    directories: tuple[Path, ...] = ()
    metadata_directory: Path | None = None
    node_id: int | None = None
    threads: int = THREADS_DEFAULT


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
    own = found.get("metadata.log.dir")
    first = directories[0] if directories else None
    return BrokerFile(
        directories,
        Path(own.strip()) if own else first,
        _number(found, "node.id") if "node.id" in found else _number(found, "broker.id"),
        max(_number(found, _THREADS) or THREADS_DEFAULT, 1),
    )


def _number(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name, "").strip()
    try:
        return int(text) if text else None
    except ValueError:
        raise ValueError(f"{name} is {text!r}, not a number") from None
