"""A log as its readers see it: one value that never changes, and is replaced whole.

version    the state for readers: the segments, the length of each, the offsets that bound them
view       a partition at one moment: lookups and reads over its segments
visible    segments that hold the same offsets; aborted transactions and the last stable offset
pieces     a read as pieces of work that threads share
find       batches by offset, offsets by time and epoch: small reads without a map or a lock
fetch      stored bytes from an offset on, beside a writer
follow     a log's records as they are written, by this process or by another
"""

from __future__ import annotations

from kseg._door import door

#: The public names of this package.
_HOMES = {
    "kseg.log.reader.visible": (
        "AbortedRanges",
        "WholeBatches",
        "aborted_ranges",
        "believed_end",
        "first_offsets",
    ),
    "kseg.log.reader.follow": ("whole_batches",),
    "kseg.log.reader.pieces": ("log_pieces", "read_pieces"),
    "kseg.log.reader.version": ("HighWatermark", "SegmentInfo"),
    "kseg.log.reader.view": ("LogView", "age_of", "log_starts"),
}
__all__, __getattr__ = door(__name__, _HOMES)
