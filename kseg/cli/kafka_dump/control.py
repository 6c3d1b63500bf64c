"""What the line of a control record says: the kind of marker, or the message in its value.

Source: Kafka 4.2 `DumpLogSegments.printControlRecord`, `ControlRecordType`,
`EndTransactionMarker`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from kseg.cli.kafka_dump.json_text import message_json
from kseg.cli.kafka_dump.lines import Marks, Texts
from kseg.constants import ControlType
from kseg.errors import InvalidRecordError, KsegError
from kseg.internal.cursor import Cursor
from kseg.internal.schemas import message_reader

if TYPE_CHECKING:
    from kseg.format.values import RecordColumns

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
#: What precedes the JSON of a value, and the message that it is; always read as version 0.
_MESSAGES = {
    ControlType.LEADER_CHANGE: (" LeaderChange: ", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: (" SnapshotHeader ", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: (" SnapshotFooter ", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: (" KRaftVersion ", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: (" KRaftVoters ", "VotersRecord"),
}


def control_marks(columns: RecordColumns) -> Marks:
    """The texts of the control records of a piece."""
    texts: list[bytes | None] = [None] * len(columns)
    for row in np.flatnonzero(columns.control).tolist():
        try:
            texts[row] = control_text(columns.key[row], columns.value[row]).encode()
        except KsegError as error:
            return Marks(Texts.of(texts), (row, error))
    return Marks(Texts.of(texts))


def control_text(key: bytes | None, value: bytes | None) -> str:
    """What one control record says.

    Raises:
        InvalidRecordError: it cannot be read.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError("a control record has a key of 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"version {version} of a control record's key")
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return f" endTxnMarker: {ControlType(kind).name} coordinatorEpoch: {_epoch(value)}"
    if kind not in _MESSAGES:
        return f" controlType: UNKNOWN({kind})"
    lead, message = _MESSAGES[ControlType(kind)]
    if value is None:
        raise InvalidRecordError("a control record without a value")
    fields = message_reader(message, 0)(Cursor(value, "value"))
    return lead + message_json(message, fields["version"], fields)


def _epoch(value: bytes | None) -> int:
    if value is None or len(value) < _MARKER.size:
        raise InvalidRecordError("the value of a transaction marker has 6 bytes")
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"version {version} of a transaction marker")
    return int(epoch)
