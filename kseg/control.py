"""Control records: markers of transactions, and those of KRaft's own log and snapshots."""

from __future__ import annotations

from kseg.constants import ControlType
from kseg.format.control import (
    EndMarker,
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    parse_control,
)

__all__ = [
    "ControlType",
    "EndMarker",
    "Endpoint",
    "KRaftVersion",
    "KRaftVoters",
    "LeaderChange",
    "SnapshotFooter",
    "SnapshotHeader",
    "Voter",
    "parse_control",
]
