"""What keeps bytes on a disk, in stable words."""

from __future__ import annotations

from typing import Final

CAUSES: Final[dict[str, str]] = {
    "active": "the segment that is appended to: it goes only when it was rolled",
    "younger-than-retention": "its newest record is younger than retention.ms",
    "future-timestamp": "a record's time lies in the future, and keeps its segment and all behind",
    "under-size-limit": "the log has no more than retention.bytes without it",
    "no-limit": "it has neither retention.ms nor retention.bytes: kept for ever",
    "due": "retention takes it at the broker's next look",
    "high-watermark": "other replicas are not known to have it: it lies above the high watermark",
    "newest-of-key": "compacted: the last record of each key stays",
    "compaction-due": "the cleaner's next pass takes it",
    "dirty-ratio": "not enough of the log is dirty for the cleaner: min.cleanable.dirty.ratio",
    "min-compaction-lag": "it, or a segment in front, is younger than min.compaction.lag.ms",
    "open-transaction": "a transaction that is not decided holds the cleaner",
    "map-full": "the cleaner's map has no room for its keys; a later pass comes to it",
    "uncleanable": "the cleaner fails at this log",
    "policy-unknown": "its cleanup.policy or its limits are not known here",
    "invalid-setting": "one of its settings is not understood",
    "remote-storage": "in a remote store too: whether it was uploaded is not known here",
    "stray": "its topic was removed or made again, or the broker is none of its replicas any more",
    "cluster-metadata": "the log of KRaft, which its controllers clean",
    "index": "indexes of segments",
    "snapshot": "producer snapshots, and snapshots of KRaft",
    "metadata": "checkpoints, ids and marks",
    "preallocated": "blocks that were taken ahead: beyond a file's end, or an index's entries",
    "deleted-file": "renamed to .deleted: the broker removes it soon, or at its next start",
    "leftover": "of interrupted work: .cleaned, .swap, .tmp, .part, an index without a log",
    "delete-directory": "a partition that was deleted: the broker removes it soon",
    "stray-directory": "a partition that the broker has put aside: it stays until you remove it",
    "future-directory": "a partition on its way from another data directory",
    "remote-index-cache": "indexes of segments in a remote store",
    "foreign": "files and directories that are none of Kafka's",
    "backup": "what kseg kept when it changed something",
    "open-deleted": "files that were deleted, and that a process still has open",
    "unknown": "it cannot be read",
}

#: What retention frees, and what the cleaner does.
DUE: Final = "due"
COMPACTION_DUE: Final = "compaction-due"
UNKNOWN: Final = "unknown"
