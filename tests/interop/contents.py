"""What files of a partition say, in a form in which two directories can be held side by side.

Logs are bytes. Of indexes only the entries count: how much room lies behind them, and whether a
file without entries is there at all, is up to who made it. Snapshots and epochs are what they mean,
unless they cannot be read.
"""

from __future__ import annotations

import struct
from pathlib import Path

from kseg.errors import KsegError
from kseg.files.checkpoints import assign_epochs, read_leader_epochs
from kseg.files.producer_snapshot import read as read_snapshot

_SLOTS = {".index": struct.Struct(">ii"), ".timeindex": struct.Struct(">qi")}
_EPOCHS = "leader-epoch-checkpoint"


def contents(directory: Path) -> dict[str, object]:
    """Every file by its name; those that say nothing are left out."""
    said = {path.name: _said(path) for path in sorted(directory.iterdir()) if path.is_file()}
    return {name: value for name, value in said.items() if value or name.endswith(".log")}


def _said(path: Path) -> object:
    if path.suffix in _SLOTS:
        return _entries(path.read_bytes(), _SLOTS[path.suffix])
    try:
        if path.suffix == ".snapshot":
            entries = read_snapshot(path)
            return "snapshot", sorted(entries, key=lambda entry: entry.producer_id)
        if path.name == _EPOCHS:
            return [tuple(entry) for entry in assign_epochs(read_leader_epochs(path))]
    except KsegError:
        pass
    return path.read_bytes()


def _entries(data: bytes, slot: struct.Struct) -> list[tuple[int, ...]]:
    """Entries without the empty slots behind them, and without a last part of a slot."""
    said = data[: len(data) // slot.size * slot.size].rstrip(b"\0")
    return list(slot.iter_unpack(said + bytes(-len(said) % slot.size)))


def different(
    theirs: dict[str, object], ours: dict[str, object]
) -> list[tuple[str, object, object]]:
    """Names under which the two do not say the same, with what they say."""
    return [
        (name, theirs.get(name), ours.get(name))
        for name in sorted(theirs.keys() | ours.keys())
        if theirs.get(name) != ours.get(name)
    ]
