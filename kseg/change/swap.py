"""New logs are made beside data directories, then replace empty partitions in them.

    <data directory>.kseg-adopt/     readable by this user alone
        staged/orders-0/             a log that is made
        replaced/orders-0/           the empty partition that was in its place
        ready.json                   the list of logs, written when all are made and lasting

Before `ready.json` nothing in a data directory changes, and another run begins again. From then on
each run finishes: it writes the checkpoints, then exchanges each directory by two renames. The mark
of a clean stop stays: whenever the process ends, each partition is empty or whole, and as a clean
stop leaves it. A power cut may lose a log on a file system that does not rename from one directory
to another at once; its partition is empty then, and the next run says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from kseg.errors import KsegError, UncleanShutdownError
from kseg.files import checkpoints, io, lock, ownership
from kseg.files.atomic import replace_file
from kseg.files.metadata import read_clean_shutdown
from kseg.files.names import FileKind, list_partition
from kseg.log.data_directory import DirectoryFiles, partition_of
from kseg.log.reader.view import LogView

SUFFIX: Final = ".kseg-adopt"
_STAGED: Final = "staged"
_REPLACED: Final = "replaced"
_READY: Final = "ready.json"
_READY_BYTES_MAX: Final = 1 << 28


class Made(NamedTuple):
    """A log that was made to replace an empty partition.

    Attributes:
        path: the directory of the partition.
        log_start_offset: the first offset to be read.
        first_offset: the base offset of its first segment.
        log_end_offset: the offset after its last batch.
    """

    path: Path
    log_start_offset: int
    first_offset: int
    log_end_offset: int


def place_of(data_directory: Path) -> Path:
    """The directory beside a data directory in which its new logs are made."""
    return data_directory.with_name(data_directory.name + SUFFIX)


def staged(path: Path) -> Path:
    """The directory in which the log for a partition directory is made."""
    return place_of(path.parent) / _STAGED / path.name


def last_base(directory: Path) -> int | None:
    """Where the active segment of a log without records begins; None for a log with records.

    Raises:
        OSError: the directory cannot be read.
    """
    segments = list_partition(directory).segments
    if any(os.stat(segment.log).st_size for segment in segments):
        return None
    return segments[-1].base_offset if segments else 0


@contextmanager
def held(data_directories: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of stopped brokers' data directories.

    Raises:
        LogLockedError: another process holds the lock of one of them.
        UncleanShutdownError: a broker was not stopped in good order.
        OSError: a directory cannot be locked.
    """
    with ExitStack() as stack:
        for data_directory in sorted(data_directories):
            stack.enter_context(lock.acquire(data_directory))
            if read_clean_shutdown(data_directory) is None:
                raise UncleanShutdownError(
                    "the broker was not stopped in good order: 'kseg recover --apply' first",
                    path=data_directory,
                )
        yield


def unfinished(data_directories: Iterable[Path]) -> tuple[Made, ...]:
    """The logs of an interrupted run that had made all its logs but not yet moved all of them.

    Empty if there was no such run.

    Raises:
        KsegError: a list of logs is malformed.
        PermissionError: another user could have written the list.
        OSError: the list cannot be read.
    """
    for data_directory in data_directories:
        list_path = place_of(data_directory) / _READY
        ownership.check_safe(list_path.parent)
        with suppress(FileNotFoundError):
            data = io.read_file(list_path, bytes_max=_READY_BYTES_MAX)
            try:
                rows = json.loads(data)["logs"]
                return tuple(Made(Path(str(path)), *map(int, offsets)) for path, *offsets in rows)
            except (ValueError, KeyError, TypeError) as error:
                raise KsegError(f"not a list of logs: {error}", path=list_path) from None
    return ()


def begin(data_directories: Iterable[Path]) -> None:
    """Make the directories, empty; remove what an earlier run left that had not made all its logs.

    Raises:
        PermissionError: another user could change files there.
        OSError: the disk refuses.
    """
    for data_directory in data_directories:
        place = place_of(data_directory)
        ownership.check_safe(place)
        io.remove_tree(place)
        with ownership.private():
            for path in (place, place / _STAGED, place / _REPLACED):
                io.make_directory(path)
        io.flush_directory(place.parent)


def discard(data_directories: Iterable[Path]) -> None:
    """Remove the directories that `begin` made beside data directories.

    Raises:
        OSError: the disk refuses.
    """
    for data_directory in data_directories:
        io.remove_tree(place_of(data_directory))
        io.flush_directory(data_directory.parent)


def ready(logs: Sequence[Made]) -> None:
    """Write on the disk that all logs are made and lasting; from now on each run finishes.

    Raises:
        OSError: the disk refuses.
    """
    data = json.dumps({"logs": [(str(log.path), *log[1:]) for log in logs]}).encode()
    for data_directory in _data_directories(logs):
        place = place_of(data_directory)
        io.flush_directory(place / _STAGED)
        io.flush_directory(place)
    for data_directory in _data_directories(logs):
        with ownership.private():
            replace_file(place_of(data_directory) / _READY, data)


def finish(logs: Sequence[Made]) -> None:
    """Move the logs to their partition directories; remove what `begin` made.

    Raises:
        KsegError: a partition is no longer empty, or a log that was made is gone.
        OSError: the disk refuses; another run finishes.
    """
    for made in logs:
        _check_place(made)
    waiting = [made for made in logs if staged(made.path).is_dir()]
    # Only logs that are not in place yet: a broker may have moved the start of others since.
    for data_directory in _data_directories(waiting):
        logs_there = [made for made in waiting if made.path.parent == data_directory]
        _write_checkpoints(data_directory, logs_there)
    for made in waiting:
        _exchange(made.path)
    for data_directory in _data_directories(logs):
        place = place_of(data_directory)
        io.unlink(place / _READY, missing_ok=True)
        io.flush_directory(place)
    discard(_data_directories(logs))


def _data_directories(logs: Iterable[Made]) -> list[Path]:
    """The data directories of logs, once each."""
    return sorted({made.path.parent for made in logs})


def _check_place(made: Made) -> None:
    """Refuse a partition that has got records, and one whose new log is neither there nor staged.

    In the second case the empty log that was in the partition's place is put back first.
    """
    if staged(made.path).is_dir():
        if made.path.is_dir() and last_base(made.path) is None:
            raise KsegError(
                "records have come in since the adoption began: remove "
                f"{place_of(made.path.parent)}, which has what was made, and plan again",
                path=made.path,
            )
    elif not made.path.is_dir() or LogView.open(made.path).log_end_offset < made.log_end_offset:
        old = place_of(made.path.parent) / _REPLACED / made.path.name
        if not made.path.is_dir() and old.is_dir():
            io.rename(old, made.path)
            io.flush_directory(made.path.parent)
        raise KsegError(
            f"the log that was made for it is gone: remove {place_of(made.path.parent)}, and plan "
            "again for this partition",
            path=made.path,
        )


def _write_checkpoints(data_directory: Path, logs: Sequence[Made]) -> None:
    """Write recovery points and log starts; lines that are there keep their order."""
    files = DirectoryFiles.read(data_directory)
    if files.findings:
        raise files.findings[0]
    points, starts = (files.offsets[kind] for kind in (FileKind.RECOVERY_POINT, FileKind.LOG_START))
    for made in logs:
        partition = partition_of(made.path)
        assert partition is not None
        points[partition] = made.log_end_offset
        starts.pop(partition, None)
        if made.log_start_offset > made.first_offset:
            starts[partition] = made.log_start_offset
    checkpoints.write_offset_checkpoint(data_directory / FileKind.LOG_START.value, starts)
    checkpoints.write_offset_checkpoint(data_directory / FileKind.RECOVERY_POINT.value, points)


def _exchange(path: Path) -> None:
    """Rename the empty log of a partition out of the way, and the new log into its place."""
    made, old = staged(path), place_of(path.parent) / _REPLACED / path.name
    if path.is_dir():
        # A run that was killed here may have left `old`; a broker has made an empty log since.
        io.remove_tree(old)
        io.rename(path, old)
        io.flush_directory(path.parent)
        io.flush_directory(old.parent)
    io.rename(made, path)
    io.flush_directory(path.parent)
    io.flush_directory(made.parent)
