from kseg.log.locations import BatchLocation as BatchLocation
from kseg.log.segment.writer import SegmentWriter as SegmentWriter
