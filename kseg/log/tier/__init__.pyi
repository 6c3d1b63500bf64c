from kseg.log.tier.lineage import RemoteSegment as RemoteSegment
from kseg.log.tier.lineage import SegmentState as SegmentState
from kseg.log.tier.objects import TierPath as TierPath
from kseg.log.tier.tier import Tier as Tier
from kseg.log.tier.tier import TierLog as TierLog
from kseg.log.tier.tier import holes as holes
