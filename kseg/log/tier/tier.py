"""A tier: what lies in it, and the local and remote segments of a partition as one log."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from os import fspath
from pathlib import Path
from typing import Any, Final, NamedTuple

from kseg.catalog import matches
from kseg.constants import INT64_MAX, InternalTopic, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, KsegError, NotALogError, TierError
from kseg.files import checkpoints
from kseg.files.checkpoints import EpochEntry, TopicPartition
from kseg.files.grammar import FileKind, FileName, PartitionName, parse_partition_dir
from kseg.files.mapping import Mapping
from kseg.files.metadata import read_partition_metadata
from kseg.files.names import NamedFile, PartitionFiles, SegmentFiles, classify_path
from kseg.log.reader.find import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    MAX_TIMESTAMP,
    TimestampOffset,
    offset_for_timestamp,
)
from kseg.log.reader.follow import seen_log
from kseg.log.reader.version import SegmentInfo
from kseg.log.reader.view import LogView, RemotePart
from kseg.log.reader.visible import end_of
from kseg.log.segment.reader import Segment
from kseg.log.tier.aiven import Keys
from kseg.log.tier.lineage import EpochIndex, RemoteSegment, SegmentState, Span, clipped, is_within
from kseg.log.tier.objects import (
    ID_SIZE,
    MANIFEST,
    RAW_SUFFIXES,
    Group,
    Place,
    Replay,
    SegmentObjects,
    TierPath,
    grouped,
    listed,
    parse_id,
    replay,
)
from kseg.stores.path import is_remote, path_at, place
from kseg.stores.store import StoredObject

#: Segments whose manifests or ends are read at a time.
_AT_ONCE: Final = 16
#: The epoch of a layout that knows none.
_NO_EPOCHS: Final = (EpochEntry(0, 0),)


class Copy(NamedTuple):
    """A copy of a segment, and its objects."""

    segment: RemoteSegment
    objects: SegmentObjects


@frozen_dataclass
class TierLog:
    """One partition with its history in a tier.

    Attributes:
        view: local and remote segments as one log.
        local: the local part; None if there is none.
        layout: "local" (LocalTieredStorage), "aiven", "pinterest", or "none" for nothing there.
        source: the source of the list of segments: "metadata", "manifests" or "names".
        topic_id: the id of the topic; None if unknown.
        copies: every copy in the tier, keyed by id, with copies that are not read.
        spans: the offsets that readers get from each copy, without those of local segments.
        strays: URLs of objects that belong to no finished copy.
        faults: why copies cannot be read, and unusable records of the metadata. A read of the
            offsets of such a copy raises its fault.
        index: the finished copies by epoch.
    """

    view: LogView
    local: LogView | None
    layout: str
    source: str
    topic_id: str | None
    copies: dict[str, Copy]
    spans: tuple[Span, ...]
    strays: tuple[str, ...]
    faults: tuple[KsegError | OSError, ...]
    index: EpochIndex

    @property
    def finished(self) -> tuple[RemoteSegment, ...]:
        """The finished copies, even those that no reader uses."""
        segments = (copy.segment for copy in self.copies.values())
        return tuple(
            segment for segment in segments if segment.state is SegmentState.COPY_SEGMENT_FINISHED
        )

    @property
    def lineage(self) -> tuple[EpochEntry, ...]:
        """The leader epochs by which copies count."""
        return self.view.remote.leader_epochs if self.view.remote else ()

    @property
    def highest_remote(self) -> int:
        """The highest offset in the tier, inclusive; -1 if it is empty: `lookup`'s answer to -5."""
        highest = -1
        for entry, following in pairwise((*self.lineage, EpochEntry(-1, INT64_MAX))):
            copied = min(self.index.highest(entry.epoch), following.start_offset - 1)
            highest = copied if copied >= 0 else highest
        return highest

    @property
    def copied_epochs(self) -> tuple[EpochEntry, ...]:
        """All leader epochs that the newest segment was copied with; empty if that is unknown.

        Raises:
            KsegError, OSError: its object cannot be read.
        """
        with_epochs = _with_epochs(self.copies.values())
        return _epochs_of(max(with_epochs, key=_age).objects) if with_epochs else ()

    def special(self, time: int) -> TimestampOffset:
        """The answer of a broker to a negative time, which asks for an offset of the log.

        The answer has a timestamp only for the largest time, and -1 for an offset or epoch that
        there is not.

        Args:
            time: -1, the end; -2, the start; -3, the largest time of local records; -4,
                the earliest local offset; -5, the highest in the tier; -6, the first that is to be
                copied.

        Raises:
            KsegError, OSError: the log's end, or a local record, cannot be read.
        """
        if time == MAX_TIMESTAMP:
            seen = None if self.local is None else seen_log(self.local)
            largest = seen and offset_for_timestamp(seen, MAX_TIMESTAMP)
            return largest or TimestampOffset(-1, -1)
        start, end = self.view.log_start_offset, self.view.log_end_offset
        offset = {LATEST: end, EARLIEST: start, EARLIEST_LOCAL: end}.get(time, self.highest_remote)
        if time == EARLIEST_LOCAL and self.local is not None:
            offset = max(self.local.first_offset, start)
        elif time == EARLIEST_PENDING_UPLOAD:
            offset = max(offset + 1, start) if offset + 1 < end else -1
        epochs = self.view.leader_epochs
        at = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
        return TimestampOffset(-1, offset, epochs[at - 1].epoch if at and offset >= 0 else -1)


@dataclass(slots=True)
class Tier:
    """A store, or a directory, with segments of topics. It is listed once.

    Attributes:
        root: a URL, or a directory.
        keys: files of private keys, keyed by the ids of key pairs.
        topic_id: the id of the topic, if its name has more than one.
    """

    root: str
    keys: Keys = field(default_factory=dict)
    topic_id: str | None = None
    _groups: list[Group] | None = field(default=None, repr=False)
    _logs: dict[str, TierLog] = field(default_factory=dict, repr=False)
    _replays: dict[str, tuple[dict[Place, Replay], list[KsegError]]] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def of(
        cls,
        root: StrPath,
        *,
        keys: Keys | None = None,
        topic_id: str | None = None,
    ) -> Tier:
        """Name a tier; nothing is read yet.

        Args:
            root: a URL, or a directory.
            keys: files of private keys, keyed by the ids of key pairs, if the tier is encrypted.
            topic_id: the id of the topic, if its name has more than one.

        Raises:
            ValueError: the URL has credentials, or the topic id is none.
        """
        if topic_id is not None and parse_id(topic_id) is None:
            raise ValueError(f"{topic_id!r} is not a topic id, which has {ID_SIZE} characters")
        return cls(fspath(place(fspath(root))), keys or {}, topic_id)

    @classmethod
    def beside(cls) -> Tier:
        """A tier without objects: only the metadata topic beside a partition is known."""
        return cls("", _groups=[])

    @property
    def groups(self) -> list[Group]:
        """The objects of each partition, from the listing."""
        if self._groups is None:
            self._groups = grouped(listed(self.root))
        return self._groups

    @property
    def partitions(self) -> list[PartitionName]:
        """Topic and partition of everything there; Aiven's topics with their key prefix."""
        names = {(group.topic, group.partition) for group in self.groups if group.segments}
        return [PartitionName(*name) for name in sorted(names)]

    def log(self, path: StrPath, *, mapping: Mapping = "auto") -> TierLog:
        """The partition that a directory names; the directory need not exist.

        Args:
            path: the partition directory. The metadata topic and the checkpoints are looked
                for beside it.
            mapping: how local files are opened.

        Raises:
            NotALogError: the name is none of a partition, or there is nothing of it.
            TierError: the topic has more than one id, or what the tier says cannot be used.
            KsegError, OSError: something cannot be read.
        """
        path = path_at(path)
        tier_log = self._logs.get(str(path))
        if tier_log is None:
            self._logs[str(path)] = tier_log = _LogBuilder(self, path, mapping).build()
        return tier_log


#: A tier as callers name it; a log that was found in a tier stands for itself.
TierLike = StrPath | Tier | TierLog


# ---- listing -------------------------------------------------------------------------------------


# ---- one partition -------------------------------------------------------------------------------


class _LogBuilder:
    """Builds the log of a partition from the listing of a tier and the local part.

    Attributes:
        start: the log's start in the checkpoint of the data directory; None if it has none.
        faults: the faults of segments in the tier.
        strays: URLs of objects that belong to no finished copy.
        unread: copies whose offsets are not known, each with its fault.
    """

    def __init__(self, tier: Tier, path: Path, mapping: Mapping) -> None:
        """Open the local part; the tier is read by `build`."""
        self.tier, self.path, self.mapping = tier, path, mapping
        name = parse_partition_dir(path.name)
        self.topic, self.partition = name.topic, name.partition
        self.local = _local(path, mapping)
        self.start = self._named_start()
        self.faults: list[KsegError | OSError] = []
        self.strays: list[str] = []
        self.unread: list[Copy] = []

    def build(self) -> TierLog:
        """Join the local and the remote segments."""
        groups = [group for group in self.tier.groups if group.holds(self.topic, self.partition)]
        local_directory = os.path.realpath(self.path)
        if any(os.path.realpath(group.directory) == local_directory for group in groups):
            raise NotALogError("it has the local segments; name the tier", path=self.tier.root)
        replays = self._replays()
        topic_id = self._topic_id(groups, replays)
        groups = [group for group in groups if group.topic_id in (topic_id, None)]
        if topic_id is not None and any(group.topic_id for group in groups):
            groups = [group for group in groups if group.topic_id]
        replay_of_topic = replays.get(topic_id or "")
        if replay_of_topic is not None:
            self.faults += replay_of_topic.faults
        if replay_of_topic is not None and replay_of_topic.segments:
            source, copies = "metadata", self._copies_by_metadata(replay_of_topic, groups)
            index: EpochIndex | None = replay_of_topic.index
        else:
            source, copies = self._copies_by_contents(groups)
            index = None
        lineage = self._lineage(groups, copies)
        if index is None:
            index = _index_by_lineage(copies, lineage)
        spans = self._spans(index, lineage, copies)
        if not spans and self.local is None:
            raise NotALogError(f"nothing of it is in {self.tier.root}", path=self.path)
        return TierLog(
            self._view(copies, spans, lineage),
            self.local,
            groups[0].layout if groups else "none",
            source,
            topic_id,
            {copy.segment.id: copy for copy in copies},
            spans,
            tuple(self.strays),
            tuple(self.faults),
            index,
        )

    def _replays(self) -> dict[str, Replay]:
        """The partition's segments, keyed by topic id, from the metadata topic beside the log."""
        beside, pattern = self.path.resolve().parent, f"{InternalTopic.REMOTE}-*"
        replays_and_faults = self.tier._replays.get(str(beside))
        if replays_and_faults is None:
            in_store = is_remote(str(beside))
            directories = (
                matches(f"{beside}/{pattern}") if in_store else sorted(beside.glob(pattern))
            )
            views = (LogView.open(directory, mapping=self.mapping) for directory in directories)
            self.tier._replays[str(beside)] = replays_and_faults = replay(views)
        replays, faults = replays_and_faults
        self.faults += faults
        partition = (self.topic, self.partition)
        return {
            key[2]: partition_replay
            for key, partition_replay in replays.items()
            if key[:2] == partition
        }

    def _topic_id(self, groups: list[Group], replays: dict[str, Replay]) -> str | None:
        """The id of the topic, from the first source that has it.

        Raises:
            TierError: the tier knows more than one.
        """
        if self.tier.topic_id is not None:
            return self.tier.topic_id
        if self.local is not None and self.local.files.metadata is not None:
            local_id = read_partition_metadata(self.local.files.metadata).topic_id
            if local_id is not None:
                return local_id
        ids = {group.topic_id for group in groups if group.topic_id and group.segments} or set(
            replays
        )
        if len(ids) > 1:
            ids = {group.topic_id for group in groups if group.topic_id and self._is_own(group)}
        if len(ids) > 1:
            listed = ", ".join(sorted(map(str, ids)))
            raise TierError(
                f"the topic was deleted and made again: its ids are {listed}; name one with "
                "--topic-id",
                path=self.path,
            )
        return next(iter(ids), None)

    def _is_own(self, group: Group) -> bool:
        """Whether a group belongs to the topic, and not to one whose name only ends like it."""
        for key, stored_objects in group.segments.items():
            with suppress(KsegError, OSError, KeyError):
                manifest = self._objects(*key, stored_objects, group.directory).manifest
                return manifest.topic in (self.topic, None)
        return group.layout != "aiven" and bool(group.segments)

    # ---- which copies there are ------------------------------------------------------------------

    def _objects(
        self, start: int, id_: str, stored_objects: dict[str, StoredObject], directory: str
    ) -> SegmentObjects:
        log_url = f"{directory}/{start:020d}-{id_}.log"
        return SegmentObjects(start, log_url, stored_objects, self.tier.keys)

    def _copies_by_metadata(self, partition_replay: Replay, groups: list[Group]) -> list[Copy]:
        """The copies in the records of the metadata topic, with their objects."""
        objects_by_id = {
            key[1]: (stored_objects, group)
            for group in groups
            for key, stored_objects in group.segments.items()
        }
        directory = groups[0].directory if groups else self.tier.root
        copies = []
        for id_, segment in partition_replay.segments.items():
            stored_objects, group = objects_by_id.pop(id_, ({}, None))
            objects = self._objects(
                segment.start_offset, id_, stored_objects, group.directory if group else directory
            )
            copies.append(Copy(segment, objects))
            if segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
                self._note_strays(stored_objects)
        for stored_objects, _group in objects_by_id.values():
            self._note_strays(stored_objects)
        return copies

    def _note_strays(self, stored_objects: dict[str, StoredObject]) -> None:
        self.strays += sorted(stored.url for stored in stored_objects.values())

    def _copies_by_contents(self, groups: list[Group]) -> tuple[str, list[Copy]]:
        """Find copies by the objects themselves, if there is no metadata topic.

        Returns:
            "manifests" if there are any, which name the offsets; else "names", with which the
            offsets come from names and contents. And the copies.
        """
        if len({group.directory for group in groups if group.layout == "pinterest"}) > 1:
            listed = ", ".join(sorted(group.directory for group in groups))
            raise TierError(f"the partition has several places: {listed}", path=self.path)
        copies: list[Copy] = []
        works = {
            "aiven": self._copy_of_manifest,
            "local": self._copy_of_contents,
            "pinterest": self._copy_of_name,
        }
        for group in groups:
            items = sorted(group.segments.items())  # sorted by base offset and id
            whole = []  # of each complete one its objects, its key, and where the next one begins
            for at, (key, stored_objects) in enumerate(items):
                after = items[at + 1][0][0] if at + 1 < len(items) else None
                if _is_finished(group.layout, stored_objects):
                    whole.append((self._objects(*key, stored_objects, group.directory), key, after))
                else:
                    self._note_strays(stored_objects)
            # An object after the last whole one does not show where that one ends.
            whole[-1:] = [(objects, key, None) for objects, key, _after in whole[-1:]]
            with ThreadPoolExecutor(_AT_ONCE, "kseg-tier") as pool:
                answers = list(pool.map(partial(self._or_fault, works[group.layout]), whole))
            for (objects, key, _after), got in zip(whole, answers, strict=True):
                if isinstance(got, Copy):
                    copies.append(got)
                elif got is not None:
                    self._note_unread(got, objects, key[1])
        has_manifests = any(group.layout == "aiven" for group in groups)
        return "manifests" if has_manifests else "names", copies

    def _or_fault(
        self, work: Callable[..., Copy | None], item: tuple[Any, ...]
    ) -> Copy | KsegError | OSError | None:
        """The copy, or the error that prevents one."""
        try:
            return work(*item)
        except (KsegError, OSError) as error:
            return error

    def _note_unread(self, fault: KsegError | OSError, objects: SegmentObjects, id_: str) -> None:
        """Note a copy whose offsets are not known, because of a fault."""
        self.faults.append(fault)
        # An empty segment is never read, so its fault would stay unnoticed.
        start, size = objects.base_offset, getattr(objects.places.get("log"), "size", 0) or 1
        segment = RemoteSegment(id_, start, start - 1, _NO_EPOCHS, size)
        self.unread.append(Copy(segment, replace(objects, fault=fault)))

    def _copy_of_manifest(
        self, objects: SegmentObjects, key: tuple[int, str], _after: int | None
    ) -> Copy | None:
        """The copy that a manifest describes; None if it is of another topic."""
        manifest, url = objects.manifest, objects.places[MANIFEST].url
        if manifest.segment is None:
            raise TierError("the manifest does not say which offsets the segment has", path=url)
        segment, topic = manifest.segment, str(manifest.topic)
        named = objects.log_url.split("/")[-3][: -ID_SIZE - 1]
        if topic != self.topic and named != self.topic and named.endswith(topic):
            return None  # another topic, whose name ends like a key prefix and this topic
        if (segment.start_offset, segment.id, manifest.partition, topic) != (
            *key,
            self.partition,
            self.topic,
        ):
            raise TierError("the manifest is of another segment than its name says", path=url)
        return Copy(segment, objects)

    def _copy_of_contents(
        self, objects: SegmentObjects, key: tuple[int, str], _after: int | None
    ) -> Copy | None:
        """The copy as its objects show it: end from the last batch, epochs from those beside it."""
        end = _end(objects)
        if end is None:
            raise TierError("no batch is in it", path=objects.places["log"].url)
        entries = _epochs_of(objects)
        stored = objects.places["log"]
        segment = RemoteSegment(
            key[1],
            key[0],
            end - 1,
            clipped(entries, key[0], end - 1),
            stored.size,
            event_ms=stored.modified_ms,
        )
        segment.check()
        return Copy(segment, objects)

    def _copy_of_name(
        self, objects: SegmentObjects, key: tuple[int, str], after: int | None
    ) -> Copy | None:
        """The copy as its name shows it, up to the next one; None for a last one that is empty."""
        end = _end(objects) if after is None else after
        if end is None:
            return None
        size = objects.places["log"].size
        epochs = (EpochEntry(0, key[0]),)
        return Copy(RemoteSegment(key[1], key[0], end - 1, epochs, size), objects)

    # ---- what is read ----------------------------------------------------------------------------

    def _lineage(self, groups: list[Group], copies: list[Copy]) -> tuple[EpochEntry, ...]:
        """The log's own epochs; if it has none, those that its newest segment was copied with.

        Raises:
            OSError: the log's checkpoint cannot be read.
        """
        if any(group.layout == "pinterest" for group in groups):  # its names do not state epochs
            return _NO_EPOCHS
        with suppress(CorruptIndexError):
            if self.local is not None and self.local.leader_epochs:
                return self.local.leader_epochs
        with_epochs = _with_epochs(copies)
        if not with_epochs:
            return ()
        try:
            return _epochs_of(max(with_epochs, key=_age).objects)
        except (KsegError, OSError) as error:  # no other copy knows which records count
            # The fault counts where the tier begins: from there on nothing can be read.
            first = min(with_epochs, key=lambda copy: copy.segment.start_offset).objects
            self._note_unread(error, replace(first, places={}), "")
            return ()

    def _spans(
        self, index: EpochIndex, lineage: tuple[EpochEntry, ...], copies: list[Copy]
    ) -> tuple[Span, ...]:
        """The offsets of remote segments: from the log's start to its local part."""
        spans = list(index.spans(lineage))
        for segment, _objects in sorted(self.unread, key=lambda copy: -copy.segment.start_offset):
            first = segment.start_offset
            at = bisect_right(spans, first, key=lambda span: span.start)
            if at == 0 or spans[at - 1].end <= first:  # no other copy has its offsets
                ends = (copy.segment.end_offset for copy in copies)
                end = spans[at].start if at < len(spans) else max([first, *ends]) + 1
                spans.insert(at, Span(segment, first, end))
        start = self.start
        if start is None:
            start = spans[0].start if spans else 0
        end = INT64_MAX if self.local is None else self.local.first_offset
        limited = [
            span._replace(start=max(span.start, start), end=min(span.end, end)) for span in spans
        ]
        return tuple(span for span in limited if span.start < span.end)

    def _named_start(self) -> int | None:
        """The log's start in the checkpoint of the data directory."""
        path = self.path.resolve().parent / FileKind.LOG_START.value
        with suppress(KsegError, OSError):
            offsets = checkpoints.read_offset_checkpoint(path)
            return offsets.get(TopicPartition(self.topic, self.partition))
        return None

    def _view(
        self, copies: list[Copy], spans: tuple[Span, ...], lineage: tuple[EpochEntry, ...]
    ) -> LogView:
        """A view of the log: the segments of the tier, then the local ones."""
        objects = {copy.segment.id: copy.objects for copy in (*copies, *self.unread)}
        remote = [_info(span, objects[span.segment.id]) for span in spans]
        snapshots = [
            NamedFile(
                FileName(FileKind.SNAPSHOT, info.end_offset), info.path.with_name(".snapshot")
            )
            for info, span in zip(remote, spans, strict=True)
            if info.is_whole and objects[span.segment.id].has("snapshot")
        ]
        local = self.local
        local_segments = () if local is None else local.segments
        files = PartitionFiles(self.path, None) if local is None else local.files
        files = files._replace(
            name=PartitionName(self.topic, self.partition),
            segments=(*(info.files for info in remote), *files.segments),
            snapshots=(*snapshots, *files.snapshots),
        )
        end = spans[-1].end if spans else None
        lines = [holes_text(holes(spans, self.start, end if local is None else local.first_offset))]
        if unused := len(self.faults) - len(self.unread):
            lines.append(
                f"{unused} records of {InternalTopic.REMOTE} cannot be used, and segments may be "
                "missing: 'kseg verify --tier' names the records"
            )
        part = RemotePart(
            spans[0].start if spans else self.start,
            lineage,
            "; ".join(filter(None, lines)) or None,
        )
        return LogView(
            self.path, (*remote, *local_segments), self.mapping, files=files, remote=part
        )


def _local(path: Path, mapping: Mapping) -> LogView | None:
    """The local part of a log; None if nothing of it is on this disk."""
    try:
        files = classify_path(path).partition_files
    except FileNotFoundError:
        return None
    if files is None:
        raise NotALogError("not a partition directory", path=path)
    return LogView.open(path, mapping=mapping) if files.segments else None


def _age(copy: Copy) -> tuple[int, int]:
    """The last leader epoch of a segment, and its end."""
    return copy.segment.epochs[-1].epoch, copy.segment.end_offset


def _with_epochs(copies: Iterable[Copy]) -> list[Copy]:
    """The finished copies with an object of leader epochs."""
    return [
        copy
        for copy in copies
        if copy.segment.state is SegmentState.COPY_SEGMENT_FINISHED
        and copy.objects.has("leader_epoch_checkpoint")
    ]


def _is_finished(layout: str, stored_objects: dict[str, StoredObject]) -> bool:
    """Whether a copy without metadata has every object that it needs."""
    if layout == "pinterest":
        return len(stored_objects) == 3
    if layout == "aiven":
        return MANIFEST in stored_objects
    return stored_objects.keys() >= set(RAW_SUFFIXES) - {"txnindex"}


def _end(objects: SegmentObjects) -> int | None:
    """The offset after the last batch of a segment; None if it has none."""
    with Segment.open(TierPath.of(objects, "log"), is_last=False) as segment:
        return end_of(segment)


def _epochs_of(objects: SegmentObjects) -> tuple[EpochEntry, ...]:
    """The leader epochs that a segment was copied with."""
    path = TierPath.of(objects, "leader_epoch_checkpoint")
    try:
        return checkpoints.assign_epochs(checkpoints.read_leader_epochs(path))
    except CorruptIndexError as error:
        raise TierError(error.reason, path=path) from None


def _index_by_lineage(copies: list[Copy], lineage: tuple[EpochEntry, ...]) -> EpochIndex:
    """An index of copies whose order is unknown: those that agree with a lineage are put last."""
    index = EpochIndex()
    order = [
        (is_within(segment, lineage), segment.event_ms, segment.start_offset, segment)
        for segment, _objects in copies
    ]
    for *_order, segment in sorted(order, key=lambda row: row[:3]):
        index.put(segment)
    return index


def _info(span: Span, objects: SegmentObjects) -> SegmentInfo:
    """A segment of a view for a span of a remote segment."""
    segment = span.segment
    index, time_index, txn_index = (
        TierPath.of(objects, extension) if objects.has(extension) else None
        for extension in ("index", "timeindex", "txnindex")
    )
    log = TierPath.of(objects, "log")
    files = SegmentFiles(segment.start_offset, log, index, time_index, txn_index)
    return SegmentInfo(
        files,
        segment.size,
        is_last=False,
        end_offset=span.end,
        max_timestamp=None if segment.max_timestamp < 0 else segment.max_timestamp,
        is_whole=span.end == segment.end_offset + 1,
    )


def holes(spans: Sequence[Span], start: int | None, end: int | None) -> list[tuple[int, int]]:
    """The offsets that no segment has: the first and the last of each stretch."""
    at, ranges = start, []
    for span in spans:
        if at is not None and span.start > at:
            ranges.append((at, span.start - 1))
        at = span.end
    if at is not None and end is not None and end > at:
        ranges.append((at, end - 1))
    return ranges


def holes_text(ranges: list[tuple[int, int]]) -> str | None:
    """A sentence about holes; None if there are none."""
    if not ranges:
        return None
    listed = ", ".join(f"{first} to {last}" for first, last in ranges)
    return f"offsets {listed} are neither in this directory nor in the tier, and are not read"
