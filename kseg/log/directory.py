"""LogDirectory: the partitions of one data directory, opened and closed together.

Owns the set of partitions, the lease that gives them to one process, and the checkpoints. A `Log`
knows one partition, `data_directory` the other directories.

Source: Kafka `LogManager`.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias
from uuid import UUID, uuid4

from kseg.constants import Progress, StrPath
from kseg.errors import KsegError, NotALogError, UncleanShutdownError
from kseg.files import io, metadata
from kseg.files.checkpoints import TopicPartition, forget_clean_offset
from kseg.files.grammar import is_topic_name, suffixed_directory
from kseg.files.io import Closing
from kseg.files.metadata import MetaProperties
from kseg.files.names import CLUSTER_METADATA, FileKind
from kseg.format.times import Time
from kseg.log import data_directory
from kseg.log.clock import clock_of, now_of
from kseg.log.config import ConfigLike, LogConfig
from kseg.log.data_directory import (
    DataDirectoryLease,
    DirectoryEntry,
    EntryKind,
    check_entries,
    list_entries,
)
from kseg.log.log import Log
from kseg.log.recovery import recover as recovering
from kseg.log.settings.joined import Settings, settings
from kseg.log.topic_policy import known_topics, retention_rules
from kseg.log.writer.retention import RetentionReport, delete_old_segments
from kseg.stores.path import local_path_at
from kseg.workers import At, Put, in_order, sum_progress

#: Settings of every log, a function from a log to its settings, or the result of `kseg.settings`.
Config: TypeAlias = "ConfigLike | Settings | Callable[[TopicPartition], LogConfig]"


class LogDirectory(Closing):
    """The logs of one data directory. Any thread may use it.

    `open` acquires, `close` or leaving a `with` releases.

    Attributes:
        path: the data directory.
        mode: "read" or "append".
        meta: the contents of `meta.properties`; None if there is none.

    Example:
        >>> with LogDirectory.open("data", mode="append") as directory:  # doctest: +SKIP
        ...     orders = directory.create("orders", partition=0)
        ...     directory.retain()
    """

    def __init__(
        self,
        path: Path,
        mode: str,
        home: DataDirectoryLease | None,
        *,
        config: Config | None,
        now_ms: Callable[[], int],
        recover: bool,
        meta: MetaProperties | None,
        high_watermark: Literal["end"] | None = None,
    ) -> None:
        """Take over a lease; use `open` instead."""
        self.path: Final = path
        self.mode: Final = mode
        self.meta: Final = meta
        self._home: Final = home
        self._config: Final = config
        self._now_ms: Final = now_ms
        self._recover: Final = recover
        self._high_watermark: Final = high_watermark
        self._lock: Final = threading.RLock()
        self._logs: dict[TopicPartition, Log] = {}
        self._doomed: dict[Path, int] = {}  # directories of deleted logs: when they go, in ms
        self._closed = False

    @classmethod
    def open(
        cls,
        path: StrPath,
        *,
        mode: str = "read",
        config: Config | None = None,
        recover: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
        now_ms: Callable[[], int] | None = None,
        high_watermark: Literal["end"] | None = None,
    ) -> LogDirectory:
        """Open all logs of a data directory.

        Args:
            path: the directory.
            mode: "read" changes nothing and takes no lock; "append" locks the directory for this
                process.
            config: settings of every log, a function from a partition to its settings, or the
                result of `kseg.settings`; Kafka's defaults if None.
            recover: recover logs that were not shut down cleanly; future and stray ones too, which
                are not opened.
            threads: the number of logs loaded at a time; the number of processors if None.
            progress: called after each log.
            now_ms: the clock; the machine's if None.
            high_watermark: "end" says that no other replica has these logs; see `Log.open`.

        Raises:
            NotALogError: only with "append", before any change: a broker would not start with a
                sub-directory, or two are of one partition.
            LogLockedError: another process holds the directory.
            UncleanShutdownError: it was not shut down cleanly, and `recover` is false.
            CorruptIndexError: `meta.properties` is malformed.
            KsegError, OSError: a log cannot be opened; those already open are closed again.
        """
        if mode not in ("read", "append"):
            raise ValueError(f"mode is read or append, not {mode!r}")
        place = local_path_at(path)
        entries = list_entries(place)
        if mode == "append":
            check_entries(entries)
            for entry in entries:
                io.check_new_files(entry.path)
        home = data_directory.enter(place) if mode == "append" else None
        clock = clock_of(now_ms)
        try:
            meta = _read_meta(place)
            directory = cls(
                place,
                mode,
                home,
                config=config,
                now_ms=clock,
                recover=recover,
                meta=meta,
                high_watermark=high_watermark,
            )
        except BaseException:
            if home is not None:
                home.leave()
            raise
        try:
            directory._load(entries, threads or os.cpu_count() or 1, progress)
        except BaseException:
            with suppress(KsegError, OSError):  # the first error says more
                directory.close()
            raise
        return directory

    # ---- contents --------------------------------------------------------------------------------

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """The logs that are open now, keyed by partition."""
        with self._lock:
            return MappingProxyType(dict(sorted(self._logs.items())))

    @property
    def entries(self) -> tuple[DirectoryEntry, ...]:
        """All sub-directories on the disk now, and their kinds."""
        return list_entries(self.path)

    @property
    def was_clean(self) -> bool:
        """Whether the directory was shut down cleanly before this process locked it."""
        if self._home is not None:
            return self._home.was_clean
        return metadata.read_clean_shutdown(self.path) is not None

    @property
    def findings(self) -> tuple[KsegError, ...]:
        """Checkpoints that are malformed, and count as empty."""
        return () if self._home is None else self._home.findings

    # ---- partitions come and go ------------------------------------------------------------------

    def create(self, topic: str, partition: int, *, topic_id: UUID | None = None) -> Log:
        """Make an empty log.

        Args:
            topic: its name, by Kafka's rules.
            partition: its number.
            topic_id: kept in `partition.metadata`; None for no file.

        Raises:
            ValueError: Kafka refuses the name, the number or the id.
            FileExistsError: the partition exists.
            KsegError: the directory is not open for appending.
            OSError: the disk refuses.

        Source: Kafka `LogManager.getOrCreateLog`, `Topic.validate`.
        """
        if not is_topic_name(topic):
            raise ValueError(
                "a topic's name is 1 to 249 letters, digits, dots, dashes and underscores, "
                f"not {topic!r}"
            )
        if not 0 <= partition < 2**31:
            raise ValueError(f"a partition's number is 0 to 2^31 - 1, not {partition}")
        key = TopicPartition(topic, partition)
        with self._lock:
            home = self._check_writable()
            path = self.path / f"{topic}-{partition}"
            io.make_directory(path)
            io.flush_directory(self.path)
            # A partition of that name may have been deleted without a word to the checkpoints.
            home.forget(key)
            home.write_checkpoints()
            forget_clean_offset(path, key)
            if topic_id is not None:
                metadata.record_topic_id(path / FileKind.PARTITION_METADATA.value, topic_id)
            log = self._logs[key] = self._open_log(path, key, create=True)
            return log

    def delete(self, topic: str, partition: int) -> Path:
        """Close a log and delete it: its directory is renamed now, and removed after a delay.

        Readers that have its files open can go on. The delay is the log's `file_delete_delay_ms`;
        then `delete_due`, `retain` or a later `delete` removes it.

        Args:
            topic, partition: a log of this directory.

        Returns:
            The new name of the directory.

        Raises:
            KeyError: the log is not in this directory.
            KsegError: the directory is not open for appending.
            OSError: the disk refuses. The log is closed; after an error of the rename it is there
                when the directory is opened again.

        Source: Kafka `LogManager.asyncDelete`.
        """
        key = TopicPartition(topic, partition)
        with self._lock:
            home = self._check_writable()
            log = self._logs.pop(key)
            delay_ms = self._config_of(key).file_delete_delay_ms
            log.close()
            renamed = log.path.with_name(
                suffixed_directory(topic, partition, EntryKind.DELETE.value, uuid4().hex)
            )
            if not log.path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(log.path))
            home.forget_broker_epoch()
            io.rename(log.path, renamed)
            io.flush_directory(self.path)
            home.forget(key)
            home.write_checkpoints()
            forget_clean_offset(log.path, key)
            now_ms = self._now_ms()
            self._doomed[renamed] = now_ms + delay_ms
            self.delete_due(now_ms)
            return renamed

    def delete_due(self, now_ms: Time | None = None) -> tuple[Path, ...]:
        """Remove the directories of deleted logs that are due.

        Args:
            now_ms: the time that counts; None for the directory's clock.

        Returns:
            The directories that are gone.

        Raises:
            KsegError: the directory is not open for appending.
            OSError: the first that could not be removed; the next call goes on with it.
        """
        with self._lock:
            self._check_writable()
            now = now_of(now_ms, self._now_ms)
            due = [path for path, time_ms in self._doomed.items() if time_ms <= now]
            for path in due:
                io.remove_tree(path)
                io.flush_directory(self.path)
                del self._doomed[path]
            return tuple(due)

    # ---- upkeep ----------------------------------------------------------------------------------

    def retain(self, now_ms: Time | None = None) -> dict[TopicPartition, RetentionReport]:
        """Delete old segments of all logs that are not compacted, and files that are due.

        Compacted logs are the cleaner's, as in Kafka. A function from partitions to settings is
        used unchanged. With a metadata log, its settings of a topic override one configuration for
        all logs: see `kseg.settings`. Without one, that configuration fills in unknown settings:
        `kseg.log.topic_policy` knows some, in a broker's directory and for internal topics. It also
        forgets producers that have been silent for too long, in every log.

        Args:
            now_ms: the present time; the clock's if None.

        Returns:
            A report for each log that lost a segment.

        Raises:
            KsegError, OSError: a log could not be changed; the logs after it are unchanged.

        Source: Kafka `LogManager.cleanupLogs`, `UnifiedLog.removeExpiredProducers`.
        """
        self._check_writable()
        reports, topics, broker_settings = {}, known_topics(self.path), self._settings()
        for key, log in self.logs.items():
            log.expire_producers(now_ms=now_ms)
            if broker_settings is None:
                rules = retention_rules(topics, key.topic, log.config, of_one_log=False)
            else:
                rules = broker_settings.of(log.path).retention_rules()
            if not rules.config.compacted:
                report = delete_old_segments(log.state, now_ms, rules)
                if report.segments_count:
                    reports[key] = report
        self.delete_due(now_ms)
        return reports

    def flush_checkpoints(self) -> None:
        """Write the offsets of all logs into the checkpoints, lasting when this returns.

        Kafka does so every minute, and every five seconds for high watermarks.

        Raises:
            KsegError: the directory is not open for appending.
            OSError: a checkpoint could not be written; the old one is there.
        """
        with self._lock:
            home = self._check_writable()
            for log in self._logs.values():
                log.state.note_offsets()
            home.write_checkpoints()

    def close(self) -> None:
        """Close all logs, write the checkpoints and the mark of a clean shutdown, release the lock.

        A second call does nothing. There is a mark only if every log was closed in good order.

        Raises:
            KsegError, OSError: the first log that could not be closed; the others are.
        """
        with self._lock:
            self._closed = True
            logs = list(self._logs.values())
            self._logs.clear()
            first: BaseException | None = None
            try:
                for log in logs:
                    try:
                        log.close()
                    except (KsegError, OSError) as error:
                        first = first or error
            finally:
                if self._home is not None:
                    self._home.leave()
            if first is not None:
                raise first

    # ---- loading ---------------------------------------------------------------------------------

    def _load(
        self, entries: Iterable[DirectoryEntry], threads: int, progress: Progress | None
    ) -> None:
        """Open the logs; after a crash, repair those that a broker would load."""
        logs = [entry for entry in entries if entry.kind is EntryKind.LOG]
        others: list[DirectoryEntry] = []
        if self._home is not None:
            due = self._now_ms() + self._default_config().file_delete_delay_ms
            self._doomed = {e.path: due for e in entries if e.kind is EntryKind.DELETE}
            if not self._home.was_clean:
                others = [e for e in entries if e.kind in (EntryKind.FUTURE, EntryKind.STRAY)]
                if not self._recover and (logs or others):
                    raise UncleanShutdownError(
                        "the data directory was not shut down cleanly, so its logs have to be "
                        "recovered",
                        path=self.path,
                    )
        total = len(logs) + len(others)
        note = sum_progress(progress, total)

        def open_one(entry: DirectoryEntry, _put: Put | None = None) -> None:
            """Open a log; recover a directory that is no log of this broker."""
            assert entry.partition is not None
            log = None
            if entry.kind is not EntryKind.LOG:
                # A copy in the making, or a log astray, is not opened. The checkpoints may speak of
                # another directory of the same partition, so all of it is looked at.
                now = self._now_ms()
                recovering.recover(
                    entry.path,
                    recovery_point=0,
                    log_start_offset=0,
                    config=self._config_of(entry.partition),
                    now=now,
                )
            else:
                with suppress(NotALogError) if self._home is None else nullcontext():
                    log = self._open_log(entry.path, entry.partition)
            with self._lock:
                if log is not None:  # without a segment there is nothing to read
                    self._logs[entry.partition] = log
                note(1)

        if threads == 1 or total <= 1:
            for entry in [*logs, *others]:
                open_one(entry)
            return
        pieces = [At(entry.path, partial(open_one, entry)) for entry in [*logs, *others]]
        with closing(in_order(pieces, threads=min(threads, total), window=total)) as results:
            for _ in results:  # no results yet: this waits for a piece to end
                pass

    def _open_log(self, path: Path, key: TopicPartition, *, create: bool = False) -> Log:
        """Open a log as the directory is open: for reading, or for appending by its settings."""
        if self._home is None:
            return Log.open(path)
        return Log.open(
            path,
            mode="append",
            create=create,
            config=self._config_of(key),
            recover=self._recover,
            now_ms=self._now_ms,
            high_watermark=self._high_watermark,
        )

    def _config_of(self, key: TopicPartition) -> LogConfig:
        """The settings of a partition's log, from the arguments of `open`."""
        if isinstance(self._config, Settings):
            return self._config.of(self.path / f"{key.topic}-{key.partition}").log_config
        if callable(self._config):
            return self._config(key).of_topic()
        return self._default_config()

    def _settings(self) -> Settings | None:
        """The settings of the caller, or of the metadata log.

        None without a metadata log, or if the caller's function gives each log its settings.
        """
        if isinstance(self._config, Settings):
            return self._config
        if callable(self._config) or not (self.path / f"{CLUSTER_METADATA}-0").is_dir():
            return None
        return settings(self.path, config=self._default_config().to_kafka(named=True))

    def _default_config(self) -> LogConfig:
        """The settings given for every log; Kafka's defaults if they were given otherwise."""
        if isinstance(self._config, LogConfig | Mapping):
            return LogConfig.of(self._config)
        return LogConfig()

    def _check_writable(self) -> DataDirectoryLease:
        """Return the lease; refuse a directory that is not open for appending, or is closed."""
        if self._home is None:
            raise KsegError("the directory is open for reading only", path=self.path)
        if self._closed:
            raise KsegError("the directory is closed", path=self.path)
        return self._home

    def __repr__(self) -> str:
        """The path and the number of logs."""
        return f"LogDirectory({str(self.path)!r}, {len(self._logs)} logs)"


def _read_meta(path: Path) -> MetaProperties | None:
    try:
        return metadata.read_meta_properties(path / FileKind.META_PROPERTIES.value)
    except FileNotFoundError:
        return None
