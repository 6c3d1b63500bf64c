"""Why is the disk full: the cause that keeps each byte, and until when.

values       the answer as values; the causes that can keep bytes; sizes with another codec
causes       the cause that keeps each file of one partition, and the room of files
answer       `explain`: the answer for the data directories of a broker

Nothing is changed, and nothing is locked. Causes and dates come from the plans of retention and
compaction (`kseg.change`): at such a date they delete.
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
