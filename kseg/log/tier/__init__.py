"""The part of a topic's history that its brokers have moved to a store, and one log of both parts.

lineage    copies of segments, and which holds an offset: an index by leader epoch, cut by a lineage
segments   what `__remote_log_metadata` says of them
objects    the files of one segment in a tier, each a path that opens itself
aiven      manifests, chunks and keys of Aiven's plugin
tier       what lies in a tier; a partition's local and remote segments as one `LogView`

A reader takes the segments whose copy is finished. Of two that hold one offset the later copy
counts, and the records of a leader epoch end where the next epoch of the lineage begins. The
lineage is the partition's own epoch checkpoint, or that of its newest segment. Local segments go
before remote ones. What the metadata topic cannot say is read from manifests, names and contents.

Names from metadata and manifests are never followed: objects are those that a listing of the tier
has shown, and a segment finds its own by its id.

Source: Kafka `RemoteLogManager`, `RemoteLogMetadataCache`, `RemoteLogLeaderEpochState`; Aiven's
`RemoteStorageManager`; Pinterest's `S3Utils`.
"""

from __future__ import annotations

from kseg._door import door

#: What programs may use of this room.
_HOMES = {
    "kseg.log.tier.lineage": ("RemoteSegment", "SegmentState"),
    "kseg.log.tier.objects": ("TierPath",),
    "kseg.log.tier.tier": ("Tier", "TierLog", "holes"),
}
__all__, __getattr__ = door(__name__, _HOMES)
