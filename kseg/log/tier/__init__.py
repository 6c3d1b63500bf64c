"""The part of a topic's history that its brokers have moved to a store, and one log of both parts.

lineage    copies of segments, and an index of them by leader epoch, cut by a lineage
objects    what lies in a tier: remote segments, as `__remote_log_metadata` describes them, and
           the files of each, each a path that opens itself
aiven      manifests, chunks and keys of Aiven's plugin
tier       a partition's local and remote segments as one `LogView`
history    the remote history of a log, and the effect of a change of the local part

A reader takes the segments whose copy is finished. Of two copies with one offset the later one
counts, and the records of a leader epoch end where the next epoch of the lineage begins. The
lineage is the partition's own epoch checkpoint, or that of its newest segment. Local segments
precede remote ones. Facts that the metadata topic lacks are read from manifests, names and
contents.

Names in metadata and manifests are never followed: all objects come from a listing of the tier, and
a segment finds its objects by its id.

Source: Kafka `RemoteLogManager`, `RemoteLogMetadataCache`, `RemoteLogLeaderEpochState`; Aiven's
`RemoteStorageManager`; Pinterest's `S3Utils`.
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
