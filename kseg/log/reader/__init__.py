"""A log as its readers see it: one value that never changes, and is replaced whole.

version    the state for readers: the segments, the length of each, the offsets that bound them
view       a partition at one moment: lookups and reads over its segments, also by many threads
visible    segments that hold the same offsets; aborted transactions and the last stable offset
find       batches by offset, offsets by time and epoch: small reads without a map or a lock
fetch      stored bytes from an offset on, beside a writer
follow     a log's records as they are written, by this process or by another
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
