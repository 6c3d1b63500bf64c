"""`schemas`: the schemas of a registry, from its topic, from files, or from the registry itself."""

from __future__ import annotations

from os import fspath
from pathlib import Path
from typing import Final

from kseg.catalog import paths_of
from kseg.constants import Progress
from kseg.errors import LimitExceededError, NotALogError
from kseg.files import io
from kseg.files.selection import NothingChosenError, StrPaths
from kseg.format.times import Time
from kseg.internal.registry import BYTES_MAX, Replay, Schemas
from kseg.records.scan import scan

#: The topic of a registry, unless it is configured otherwise.
TOPIC: Final = "_schemas"
#: The kinds of schemas in files, by how their names end.
KINDS: Final = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


def schemas(
    paths: StrPaths,
    *,
    at: Time | None = None,
    topic: str = TOPIC,
    progress: Progress | None = None,
) -> Schemas:
    """Read the schemas of a schema registry: Confluent's, Karapace, and others with its topic.

    Only a registry that the caller names is asked, and references in a schema are never opened.

    Args:
        paths: data directories and partitions that hold the registry's topic, files of schemas
            (`.avsc`, `.proto`, `.json`), or globs. A file is a subject of its own name. Or the
            address of a registry, `http://` or `https://`: credentials are the variables
            `KSEG_REGISTRY_USER_INFO` ("user:password") or `KSEG_REGISTRY_TOKEN`, or in netrc.
        at: the registry as it was before this time, as far as compaction has left the records;
            the times are given as to `kseg.scan`. Not for an address.
        topic: the registry's topic.
        progress: called with the bytes of the segments that are read, and of all segments; or with
            the numbers of subjects of a registry.

    Returns:
        A table with a row for each version of each subject, deleted ones among them; the oddities
        are in `findings`.

    Raises:
        LimitExceededError: all texts together are larger than 1 GiB.
        NotALogError: the topic is not here, or a path is nothing that kseg reads.
        ValueError, TypeError, OSError: as for `kseg.scan`; an address has credentials in it, or
            the registry does not answer.

    Example:
        >>> with open("user.avsc", "w") as file:
        ...     _ = file.write('{"type": "string"}')
        >>> schemas("user.avsc")[0].type
        'AVRO'
    """
    replay = Replay()
    if isinstance(paths, str) and paths.startswith(("http://", "https://")):
        from kseg.analysis.registry_url import feed_registry  # imported late: rarely used

        if at is not None:
            raise ValueError("at is for the topic of a registry: a registry says what is now")
        feed_registry(replay, paths, progress)
        return replay.answer()
    all_paths = paths_of(paths)
    files = [path for path in all_paths if path.suffix in KINDS and not path.is_dir()]
    logs = [path for path in all_paths if path not in files]
    if logs:
        _feed_logs(replay, logs, at, topic, progress)
    for path in files:
        try:
            data = io.read_file(path, bytes_max=BYTES_MAX)
        except LimitExceededError as error:
            replay.note("too-large", error.reason, fspath(path))
        else:
            replay.feed_file(fspath(path), KINDS[path.suffix], path.stem, data)
    return replay.answer()


def _feed_logs(
    replay: Replay, logs: list[Path], at: Time | None, topic: str, progress: Progress | None
) -> None:
    """Feed the records of the registry's topic to a replay, in order; skip and note damage."""
    try:
        reader = scan(
            logs,
            topics=topic,
            time=None if at is None else (None, at),
            columns=("offset", "timestamp_ms", "key", "value"),
            replicas="newest",
            on_corrupt="skip",
            progress=progress,
        )
    except NothingChosenError as refusal:
        raise NotALogError(str(refusal), path=logs[0]) from None
    for columns in reader:
        replay.path = columns.source or ""
        offsets = columns["offset"].tolist()
        times = columns["timestamp_ms"].tolist()
        for offset, time, key, value in zip(
            offsets, times, columns["key"], columns["value"], strict=True
        ):
            replay.offset = offset
            replay.timestamp_ms = time
            replay.feed(key, value)
    for error in reader.errors:
        replay.note("log-damaged", error.reason, error.path or "", error.offset)
