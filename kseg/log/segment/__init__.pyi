from kseg.log.segment.index_entries import Placed as Placed
from kseg.log.segment.reader import BatchLocation as BatchLocation
from kseg.log.segment.writer import SegmentWriter as SegmentWriter
