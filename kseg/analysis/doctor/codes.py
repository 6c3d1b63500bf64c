"""What the doctor can find: stable words, each with what follows from it.

An error is a loss of records, or a reason for which a broker, or one of its directories, does not
come up. A warning costs time, or takes a partition away from its readers. A note is for knowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Weight = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of a code, and how much it weighs."""

    weight: Weight
    meaning: str


CODES: Final[dict[str, Code]] = {
    # A partition.
    "load-fails": Code("error", "Kafka cannot load a partition; its exception is named"),
    "records-cut": Code("error", "loading cuts records off, sound ones behind the damage too"),
    "bytes-cut": Code("warning", "loading cuts bytes off that hold no record"),
    "log-start-ahead": Code("error", "the log ends in front of its start: all of it is deleted"),
    "index-unused": Code("error", "Kafka believes unused index entries: retention takes records"),
    "hidden": Code("error", "records at the end stay on the disk, and nobody can read them"),
    "swept": Code("warning", "loading reads segments again, which takes time"),
    "stray": Code("warning", "the partition is not this broker's any more: renamed, not served"),
    "partition-lost": Code(
        "error", "a partition of this node is made anew, empty; no other replica has its records"
    ),
    "partition-behind": Code(
        "warning", "a partition of this node is made anew, empty, and copied from other replicas"
    ),
    "partition-elsewhere": Code(
        "note", "a partition of this node is still being copied, or in a directory not given"
    ),
    "set-aside": Code("note", "a directory that is kept, in the making, or waits for deletion"),
    "not-imitated": Code("warning", "a case in which Kafka's load may differ from what is said"),
    # A data directory.
    "missing": Code("error", "there is no such directory: a broker makes a new, empty one"),
    "quorum-state": Code("error", "what a node knows of its quorum cannot be understood"),
    "unreadable": Code("error", "a file or directory cannot be read"),
    "foreign-directory": Code("error", "a folder that is no partition: no broker starts beside it"),
    "not-formatted": Code("error", "no meta.properties, without which a broker does not start"),
    "meta-properties": Code("error", "meta.properties cannot be understood"),
    "checkpoint-format": Code("error", "a checkpoint cannot be understood"),
    "checkpoint-entry": Code("note", "a checkpoint names a partition that is not there"),
    "unclean": Code("warning", "no mark of a clean stop"),
    "in-use": Code("warning", "a process holds the lock; what is said may change at any time"),
    "read-only": Code("error", "the file system can only be read"),
    "rights": Code("error", "a file that the directory's owner may not read and write"),
    "room": Code("error", "less free room than loading writes"),
    "inodes": Code("error", "the file system takes no more files"),
    # The directories of a broker together.
    "same-directory": Code("error", "a data directory is given twice"),
    "duplicate-partition": Code("error", "two directories hold the same partition"),
    "ids": Code("error", "the ids of the data directories contradict each other"),
    "metadata-elsewhere": Code("error", "a metadata log outside of the metadata directory"),
    "metadata-missing": Code("error", "no metadata log: a controller forgets the cluster"),
    "metadata-cut": Code("error", "loading cuts the metadata log, and the broker forgets topics"),
    "metadata-fetched": Code("note", "the node fetches its metadata log from the controllers"),
    "metadata-offline": Code("error", "the metadata directory does not come up"),
    "no-directory": Code("error", "none of the data directories comes up"),
    "not-given": Code("note", "server.properties names a data directory that was not looked at"),
    # The machine.
    "open-files": Code("warning", "more files than this shell's limit lets a process open"),
    "maps": Code("warning", "more indexes than the kernel lets a process map"),
}

#: What takes records from their readers, cut or put aside.
LOSING: Final = frozenset(
    {
        *("records-cut", "log-start-ahead", "hidden", "partition-lost"),
        *("metadata-missing", "metadata-cut"),
    }
)
