"""A partition's remote segments, as the metadata topic describes them.

A segment begins with a record that has everything but its custom metadata; each update changes its
state. The order of the records decides, so they are taken one after the other.

Source: Kafka `RemoteLogMetadataCache`, `RemoteLogSegmentState.isValidTransition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from kseg.constants import InternalTopic
from kseg.documents import id_text
from kseg.errors import InvalidRecordError, KsegError, TierError
from kseg.files.checkpoints import EpochEntry
from kseg.internal.records import decode
from kseg.log.reader.view import LogView
from kseg.log.tier.lineage import EpochIndex, RemoteSegment, SegmentState

#: The states that may follow each: a copy has started (0), is finished (1), its removal has started
#: (2), is finished (3). None stands before the first record. A state may repeat.
_FOLLOWING: Final[Mapping[int | None, tuple[int, ...]]] = {
    None: (0,),
    0: (1, 2),
    1: (2,),
    2: (3,),
    3: (),
}


class Replay:
    """The segments of one partition, from the records of the metadata topic in their order.

    Attributes:
        segments: by id, also removed ones.
        index: the finished ones by leader epoch and offset.
        faults: the records that contradict those before them.
    """

    def __init__(self) -> None:
        """Start without segments."""
        self.segments: dict[str, RemoteSegment] = {}
        self.index = EpochIndex()
        self.faults: list[KsegError] = []

    def take(self, segment: RemoteSegment) -> None:
        """Take the record that begins a segment.

        Raises:
            TierError: its offsets contradict each other, or the id is known.
        """
        segment.check()
        if segment.id in self.segments or segment.state != SegmentState.COPY_SEGMENT_STARTED:
            raise TierError(f"segment {segment.id} does not begin with {segment.state.name}")
        self.segments[segment.id] = segment

    def update(self, id_: str, state: int, event_ms: int, custom: bytes | None) -> None:
        """Take a change of a segment's state.

        Raises:
            TierError: the segment is not known, or cannot have this state now; nothing changes.
        """
        segment = self.segments.get(id_)
        if segment is not None and segment.state > state >= SegmentState.DELETE_SEGMENT_STARTED:
            return  # a broker repeats a removal that another one has ended
        allowed = () if segment is None else (segment.state, *_FOLLOWING[segment.state])
        if segment is None or state not in allowed:
            was = "is not known" if segment is None else f"is {segment.state.name}"
            raise TierError(f"segment {id_} {was}, and cannot have state {state}")
        changed = replace(
            segment,
            state=SegmentState(state),
            event_ms=event_ms,
            custom=custom,
        )
        self.segments[id_] = changed
        if changed.state is SegmentState.COPY_SEGMENT_FINISHED:
            self.index.put(changed)
        elif changed.state is SegmentState.DELETE_SEGMENT_STARTED:
            self.index.remove(changed)


#: A partition of a topic: its name, its number, the topic's id as text.
Place = tuple[str, int, str]


def replay(views: Iterable[LogView]) -> tuple[dict[Place, Replay], list[KsegError]]:
    """Replay partitions of the metadata topic; return also the faults of undecodable records.

    All records of a partition are in one partition of that topic.

    Raises:
        KsegError, OSError: the metadata log itself cannot be read.
    """
    replays: dict[Place, Replay] = {}
    faults: list[KsegError] = []
    for view in views:
        for offset, value in _values(view):
            record_faults = faults
            try:
                fields = decode(InternalTopic.REMOTE, None, value).value
                if isinstance(fields, dict) and "remoteLogSegmentId" in fields:
                    partition_replay = replays.setdefault(_partition_of(fields), Replay())
                    record_faults = partition_replay.faults
                    _apply(partition_replay, fields)
            except (InvalidRecordError, TierError) as error:
                record_faults.append(TierError(error.reason, path=view.path, offset=offset))
    return replays, faults


def _values(view: LogView) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value of each record."""
    for columns in view.read(columns=("offset", "value")):
        yield from zip(columns["offset"].tolist(), columns["value"], strict=True)


def _partition_of(fields: dict[str, Any]) -> Place:
    partition = fields["remoteLogSegmentId"]["topicIdPartition"]
    return partition["name"], partition["partition"], id_text(partition["id"])


def _apply(partition_replay: Replay, fields: dict[str, Any]) -> None:
    """Apply a record of the tier's metadata: a new copy, or another state of one."""
    id_, state = id_text(fields["remoteLogSegmentId"]["id"]), fields["remoteLogSegmentState"]
    if "startOffset" not in fields:
        partition_replay.update(id_, state, fields["eventTimestampMs"], fields["customMetadata"])
        return
    if state not in _FOLLOWING:
        raise TierError(f"segment {id_} has state {state}, which does not exist")
    partition_replay.take(
        RemoteSegment(
            id_,
            fields["startOffset"],
            fields["endOffset"],
            tuple(
                EpochEntry(entry["leaderEpoch"], entry["offset"])
                for entry in fields["segmentLeaderEpochs"]
            ),
            fields["segmentSizeInBytes"],
            fields["maxTimestampMs"],
            fields["eventTimestampMs"],
            SegmentState(state),
            fields["customMetadata"],
        )
    )


def parse_id(text: str) -> UUID | None:
    """The id that a text of 22 characters is; None for another text."""
    from kseg.documents import id_of

    try:
        uuid = id_of(text)
    except ValueError:
        return None
    return uuid if id_text(uuid) == text else None
