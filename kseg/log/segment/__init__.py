"""One segment: a log file and its indexes.

reader         finding a place in it and reading on from there
pieces         one reading: records as columns, a bounded piece at a time
writer         the segment that is appended to: its four files, its roll, its usual appends
index_entries  which batch gets an index entry, as `kseg/_kernels/placement.pyx` decides
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
