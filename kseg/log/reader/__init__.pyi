from kseg.log.reader.aborted import AbortedRanges as AbortedRanges
from kseg.log.reader.aborted import aborted_ranges as aborted_ranges
from kseg.log.reader.overlaps import believed_end as believed_end
from kseg.log.reader.overlaps import first_offsets as first_offsets
from kseg.log.reader.version import HighWatermark as HighWatermark
from kseg.log.reader.version import SegmentInfo as SegmentInfo
