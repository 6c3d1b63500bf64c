"""Records of remote log metadata as Kafka's tool prints them: the text forms of Java objects.

Source: Kafka `RemoteLogSegmentMetadata.toString` and those of its kind,
`RemoteLogMetadataTransform`.
"""

from __future__ import annotations

from typing import Any

from kseg.internal.ids import id_text

_SEGMENT_STATES = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETE_STATES = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def remote_text(name: str, fields: dict[str, Any]) -> str:
    """One record, by the name of its type.

    Raises:
        ValueError: Kafka refuses to make the object, with its words.
    """
    match name:
        case "REMOTE_LOG_SEGMENT_METADATA_RECORD":
            return _segment(fields)
        case "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD":
            return _update(fields)
        case "REMOTE_PARTITION_DELETE_METADATA_RECORD":
            return _deletion(fields)
    return _snapshot(fields)


def _segment(fields: dict[str, Any]) -> str:
    epochs = _epochs(fields)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(fields)}, "
        f"startOffset={fields['startOffset']}, endOffset={fields['endOffset']}, "
        f"brokerId={fields['brokerId']}, maxTimestampMs={fields['maxTimestampMs']}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, {_rest(fields, epochs)}}}"
    )


def _snapshot(fields: dict[str, Any]) -> str:
    epochs = _epochs(fields)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={id_text(fields['segmentId'])}, "
        f"startOffset={fields['startOffset']}, endOffset={fields['endOffset']}, "
        f"maxTimestampMs={fields['maxTimestampMs']}, {_rest(fields, epochs)}}}"
    )


def _rest(fields: dict[str, Any], epochs: str) -> str:
    empty = "true" if fields["txnIndexEmpty"] else "false"
    return (
        f"segmentLeaderEpochs={epochs}, segmentSizeInBytes={fields['segmentSizeInBytes']}, "
        f"customMetadata={_custom(fields)}, state={_segment_state(fields)}, txnIdxEmpty={empty}"
    )


def _update(fields: dict[str, Any]) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(fields)}, "
        f"customMetadata={_custom(fields)}, state={_segment_state(fields)}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
    )


def _deletion(fields: dict[str, Any]) -> str:
    state = _state(fields["remotePartitionDeleteState"], _DELETE_STATES, "null")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(fields['topicIdPartition'])}, "
        f"state={state}, eventTimestampMs={fields['eventTimestampMs']}, "
        f"brokerId={fields['brokerId']}}}"
    )


def _segment_id(fields: dict[str, Any]) -> str:
    found = fields["remoteLogSegmentId"]
    place = _partition(found["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={place}, id={id_text(found['id'])}}}"


def _partition(found: dict[str, Any]) -> str:
    return f"{id_text(found['id'])}:{found['name']}-{found['partition']}"


def _epochs(fields: dict[str, Any]) -> str:
    epochs = {each["leaderEpoch"]: each["offset"] for each in fields["segmentLeaderEpochs"]}
    if not epochs:
        raise ValueError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _custom(fields: dict[str, Any]) -> str:
    found = fields["customMetadata"]
    if found is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(found)} bytes}}]"


def _segment_state(fields: dict[str, Any]) -> str:
    return _state(fields["remoteLogSegmentState"], _SEGMENT_STATES, "state can not be null")


def _state(number: int, names: tuple[str, ...], refusal: str) -> str:
    if not 0 <= number < len(names):
        raise ValueError(refusal)
    return names[number]
