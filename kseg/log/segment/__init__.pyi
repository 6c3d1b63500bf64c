from kseg.log.segment.reader import BatchLocation as BatchLocation
from kseg.log.segment.writer import SegmentWriter as SegmentWriter
