from kseg.log.salvage.provable import read_provable as read_provable
from kseg.log.salvage.tables import provable_tables as provable_tables
from kseg.log.salvage.values import REASONS as REASONS
from kseg.log.salvage.values import LostOffsets as LostOffsets
from kseg.log.salvage.values import ProvablePartition as ProvablePartition
from kseg.log.salvage.values import ProvableRun as ProvableRun
from kseg.log.salvage.values import SegmentSeen as SegmentSeen
from kseg.log.salvage.values import Unprovable as Unprovable
