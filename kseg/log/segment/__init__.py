"""One segment: a log file and its indexes.

reader         finding a place in it and reading on from there
writer         the segment that is appended to, and its roll
appender       the last step of a usual append: bytes and index entries, or neither
files          its four files under one writer
index_entries  which batch gets an index entry, as `kseg/_kernels/placement.pyx` decides
walks          what only a walk over a segment tells
"""

from __future__ import annotations

from kseg._door import door

#: What programs may use of this room.
_HOMES = {
    "kseg.log.locations": ("BatchLocation",),
    "kseg.log.segment.writer": ("SegmentWriter",),
}
__all__, __getattr__ = door(__name__, _HOMES)
