"""The doctor's codes, and every sentence that it says, with the remedies.

A rule names a sentence by its code, or by the code and a word after a dot where a code has several
sentences. The values of a finding fill the names in braces. A part in brackets is left out where a
value in it is None; `{value:.0}` prints nothing. In a remedy a path is quoted for a
shell; `{path}` is the path of the finding, and `{aside}` the command that moves it out of the data
directory.

An error is a loss of records, or a reason for which a broker, or one of its directories, does not
come up. A warning costs time, or takes a partition away from its readers. A note is information.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from kseg.commands import command_line, filled
from kseg.documents import Documented, frozen_dataclass

Weight = Literal["error", "warning", "note"]


class Outcome(Enum):
    """The outcome of a start for a directory, or for the broker; the worst last."""

    STARTS = "starts"
    UNKNOWN = "unknown"
    OFFLINE = "directory-offline"
    FAILS = "broker-fails"

    @classmethod
    def worst(cls, outcomes: Iterable[Outcome]) -> Outcome:
        """The worst of several outcomes; `STARTS` if there are none."""
        order = list(cls)
        return max(outcomes, key=order.index, default=cls.STARTS)


class Code(NamedTuple):
    """A kind of finding: its weight, its meaning, the usual outcome and exception of Kafka."""

    weight: Weight
    meaning: str
    outcome: Outcome = Outcome.STARTS
    exception: str | None = None


CODES: Final[dict[str, Code]] = {
    # A partition.
    "load-fails": Code("error", "Kafka cannot load a partition; its exception is named"),
    "records-cut": Code("error", "loading cuts off records, also sound ones after the damage"),
    "bytes-cut": Code("warning", "loading cuts bytes off that hold no record"),
    "log-start-ahead": Code("error", "the log ends before its start: all of it is deleted"),
    "records-missing": Code("error", "checkpoints or neighbours know records that are not here"),
    "index-unused": Code("error", "Kafka trusts unused index entries: retention deletes records"),
    "hidden": Code("error", "records at the end stay on the disk, and nobody can read them"),
    "tier-deleted": Code("error", "leader epochs are lost: a broker deletes segments of the tier"),
    "swept": Code("warning", "loading reads segments again, which takes time"),
    "stray": Code("warning", "the partition is not this broker's any more: renamed, not served"),
    "partition-lost": Code(
        "error",
        "a missing partition of this node is created empty; no other replica has its records",
    ),
    "partition-behind": Code(
        "warning",
        "a missing partition of this node is created empty, and copied from other replicas",
    ),
    "partition-elsewhere": Code(
        "note", "a partition of this node is still being copied, or in a directory not given"
    ),
    "set-aside": Code("note", "a directory that is kept, in the making, or waits for deletion"),
    "not-imitated": Code(
        "warning", "Kafka's load may differ from this prediction here", Outcome.UNKNOWN
    ),
    # A data directory.
    "missing": Code("error", "the directory does not exist: a broker makes a new, empty one"),
    "quorum-state": Code("error", "the node's quorum state cannot be parsed", Outcome.FAILS),
    "unreadable": Code(
        "error", "a file or directory cannot be read", Outcome.OFFLINE, "IOException"
    ),
    "foreign-directory": Code(
        "error",
        "a folder that is not a partition: no broker starts beside it",
        Outcome.FAILS,
        "KafkaException",
    ),
    "not-formatted": Code(
        "error",
        "no meta.properties, without which a broker does not start",
        Outcome.FAILS,
        "RuntimeException",
    ),
    "meta-properties": Code(
        "error", "meta.properties cannot be understood", Outcome.OFFLINE, "IOException"
    ),
    "checkpoint-format": Code("error", "a checkpoint cannot be understood"),
    "checkpoint-missing": Code("warning", "a checkpoint that every broker writes is not there"),
    "checkpoint-entry": Code("note", "a checkpoint names a partition that is not there"),
    "unclean": Code("warning", "no mark of a clean stop"),
    "in-use": Code(
        "warning",
        "a process holds the lock; the findings may change at any time",
        Outcome.UNKNOWN,
        "KafkaException",
    ),
    "read-only": Code("error", "the file system can only be read", Outcome.OFFLINE, "IOException"),
    "rights": Code(
        "error",
        "a file that the directory's owner may not read and write",
        Outcome.OFFLINE,
        "IOException",
    ),
    "room": Code("error", "less free room than loading writes", Outcome.OFFLINE, "IOException"),
    "inodes": Code(
        "error", "the file system has no room for more files", Outcome.OFFLINE, "IOException"
    ),
    # The directories of a broker together.
    "same-directory": Code(
        "error", "a data directory is given twice", Outcome.FAILS, "KafkaException"
    ),
    "duplicate-partition": Code(
        "error", "two directories hold the same partition", Outcome.FAILS, "IllegalStateException"
    ),
    "ids": Code(
        "error",
        "the ids of the data directories contradict each other",
        Outcome.FAILS,
        "RuntimeException",
    ),
    "metadata-elsewhere": Code(
        "error", "a metadata log outside of the metadata directory", Outcome.FAILS, "KafkaException"
    ),
    "metadata-missing": Code("error", "no metadata log: a controller forgets the cluster"),
    "metadata-snapshot": Code(
        "error", "a snapshot or bootstrap file of KRaft that no node can read", Outcome.FAILS
    ),
    "feature-level": Code(
        "error",
        "a metadata version that the release does not know",
        Outcome.FAILS,
        "IllegalArgumentException",
    ),
    "metadata-cut": Code("error", "loading cuts the metadata log, and the broker forgets topics"),
    "metadata-fetched": Code("note", "the node fetches its metadata log from the controllers"),
    "metadata-offline": Code(
        "error", "the metadata directory does not come up", Outcome.FAILS, "RuntimeException"
    ),
    "no-directory": Code("error", "no data directory comes online", Outcome.FAILS),
    "not-given": Code(
        "note", "server.properties names a data directory that was not looked at", Outcome.UNKNOWN
    ),
    # The settings.
    "setting-refused": Code(
        "error", "a setting that Kafka refuses at its start", Outcome.FAILS, "ConfigException"
    ),
    "setting-missing": Code("warning", "a setting without which no broker starts"),
    "setting-ignored": Code("warning", "a setting that a broker ignores under this name"),
    "tier-off": Code("warning", "topics with records in a tier, and a broker without one"),
    # The machine.
    "open-files": Code("warning", "more files than this shell's limit lets a process open"),
    "maps": Code("warning", "more indexes than the kernel lets a process map"),
}

#: The findings by which readers lose records: cut, or put aside.
LOSING: Final = frozenset(
    {
        "records-cut",
        "log-start-ahead",
        "hidden",
        "partition-lost",
        "tier-deleted",
        "metadata-missing",
        "metadata-cut",
    }
)

#: The findings that say what is not here.
LACKING: Final = frozenset(
    {
        *("records-missing", "log-start-ahead", "records-cut", "hidden", "load-fails"),
        *("partition-lost", "partition-behind", "partition-elsewhere", "checkpoint-entry"),
        *("missing", "unreadable", "not-formatted", "checkpoint-missing", "not-given"),
        *("metadata-missing", "metadata-cut", "metadata-fetched"),
        *("meta-properties", "quorum-state"),
    }
)

_INFLATES: Final = (
    "the magic byte makes this a compressed message, which Kafka inflates and may fail at"
)
_STRAY: Final = "{why}; a start renames it to -stray"

#: The sentence of each finding, by its code and perhaps a word.
SENTENCES: Final[dict[str, str]] = {
    # A partition.
    "load-fails": "[@ {position}: ]{reason}",
    "load-fails.kept": "loading keeps what no broker can read: {reason}",
    "records-cut": "{extent} go with {name} @ {position}[; {sound} are lost as well if you start "
    "now]",
    "bytes-cut": "{extent} go with {name} @ {position}[; {sound} are lost as well if you start "
    "now]",
    "bytes-cut.tail": "{size} bytes after the last record are cut",
    "log-start-ahead": "{reason}",
    "records-missing": "{missing} missing: no segment has offsets {first} to {last}, {why}",
    "index-unused": "{index} ends with unused entries, which a broker trusts: it takes the "
    "records for those of 1970, and retention deletes them",
    "hidden": "{size} bytes at the end are not a batch, although the log was closed cleanly; "
    "Kafka appends offset {end} and later ones after them, where no reader finds them",
    "tier-deleted": "leader-epoch-checkpoint has no epoch for offsets {first} to {last}: a broker "
    "deletes {deleted} of {count} segments of the tier, and serves these offsets to no reader",
    "swept": "{size} bytes of log are read again: {why}",
    "stray": f"{_STRAY}, keeps it and does not serve it",
    "partition-lost": "{event}[; this node leads it, so the replicas on {nodes} may drop these "
    "records, too]",
    "partition-behind": "{event}; the replicas on {nodes} have its records",
    "partition-elsewhere": "this data directory was not given; the metadata log places {names} of "
    "this node in it",
    "partition-elsewhere.copying": "{event}; it was still being copied from {nodes}",
    "set-aside.delete": "is being deleted; a start continues the deletion",
    "set-aside.stray": "put aside by an earlier start: kept, not served, and never deleted by the "
    "broker",
    "set-aside.future": "an unfinished copy from another data directory; a start continues it",
    "not-imitated": _INFLATES,
    "not-imitated.overflow": "[@ {position}: ]{reason}",
    "not-imitated.negative": "{name} is a segment of negative offsets to Kafka",
    # A data directory.
    "missing": "the directory does not exist: a broker creates it, without any of its logs",
    "quorum-state": "[@ {position}: ]{reason}; no node starts with it",
    "unreadable": "{reason}",
    "unreadable.in-the-way": "this is not a directory, but a partition of this node belongs here: "
    "a start cannot create it, and takes this data directory offline",
    "foreign-directory": "not the name of a partition: no broker starts with such a directory "
    "beside its logs",
    "not-formatted": "no meta.properties, without which no broker starts; {count} partitions are "
    "in it",
    "not-formatted.unmounted": "no meta.properties, without which no broker starts; the metadata "
    "log places partitions of this node in directories that are not here ({lost}): is the disk "
    "mounted?",
    "not-formatted.new": "no meta.properties, without which no broker starts; it is new, or its "
    "file is lost",
    "meta-properties": "{reason}",
    "meta-properties.ids": "no node.id or no cluster.id of version {version}, but no broker of "
    "KRaft starts without both",
    "checkpoint-format": "[@ {position}: ]{reason}[; the broker then stops while it loads "
    "{partition}]",
    "checkpoint-format.recovery-point-offset-checkpoint": "[@ {position}: ]{reason}; Kafka takes "
    "0 for every recovery point, and reads all logs again",
    "checkpoint-format.log-start-offset-checkpoint": "[@ {position}: ]{reason}; Kafka lets every "
    "log start at its first segment",
    "checkpoint-missing.recovery-point-offset-checkpoint": "{state}: after a crash Kafka reads "
    "all logs again",
    "checkpoint-missing.log-start-offset-checkpoint": "{state}: deleted records before a log "
    "start come back",
    "checkpoint-missing.replication-offset-checkpoint": "{state}: readers wait until the high "
    "watermarks are known again",
    "checkpoint-entry": "it names what is not here: {names}",
    "unclean": "no mark of a clean stop: what was not flushed is read again",
    "in-use": "{who}; a second start fails, and the files may change",
    "read-only": "the file system is read-only: a broker cannot even take its lock",
    "rights": "{names}: the owner of the data directory, user {user}, may not read and write it",
    "room": "loading writes {written} bytes, and {free} are free",
    "inodes": "the file system has no room for more files: loading writes snapshots and indexes",
    # The directories of a broker together.
    "same-directory": "the same directory as {other}",
    "duplicate-partition": "the same partition as {other}; kseg diff shows which one has more",
    "duplicate-partition.future": "a start renames it to {name}, which lies beside it, and stops",
    "ids": "{name} is {value}, and {expected} elsewhere",
    "ids.reserved": "directory.id {id} is a reserved word, and no directory's",
    "ids.copy": "directory.id {id} is also that of {other}: one is a copy",
    "metadata-elsewhere": "a metadata log, although the metadata directory is {home}",
    "metadata-missing": "{state}: {next}, and {lost}",
    "metadata-missing.perhaps": "{state}: if this node is a controller, {next}, and {lost}",
    "metadata-missing.alone": "{state}: if this node is a controller and has no other "
    "metadata.log.dir, {next}, and {lost}",
    "metadata-snapshot": "{reason}; no node starts with it",
    "metadata-snapshot.name": "the name has no offset and epoch of a snapshot; no node starts "
    "with it",
    "feature-level": "metadata.version is {level}, and Kafka {release} knows {least} to "
    "{largest}[; Kafka {first} is the first release with it]",
    "metadata-cut": "{losses}",
    "metadata-fetched": "no topic is in it: the node fetches it from the controllers",
    "metadata-fetched.cut": "{extents} go; the node fetches them again from the controllers",
    "metadata-offline": "it holds the metadata log and does not come online: the broker does not "
    "start",
    "no-directory": "no data directory comes online: the broker stops",
    "not-given": "log.dirs in server.properties names it: give this directory, too",
    "not-given.metadata": "it is the broker's metadata.log.dir: give this directory, too",
    # The settings.
    "setting-refused": "{name} is {value!r}; Kafka {release} takes {allowed}, and does not start",
    "setting-refused.hidden": "{name} has a value that is not shown; Kafka {release} takes "
    "{allowed}, and does not start",
    "setting-refused.topic": "{name} is {values}; Kafka {release} takes {allowed}, and does not "
    "start",
    "setting-missing": "no process.roles: if this is the whole file, no broker since Kafka 4.0 "
    "starts",
    "setting-ignored": "{name} is a setting of topics, which Kafka ignores in a broker's file",
    "setting-ignored.mark": "a byte-order mark before {name}: Kafka reads another name, and "
    "ignores it",
    "tier-off": "{topics}: the records in the tier cannot be read, and changed settings do not "
    "take effect, since remote.log.storage.system.enable is not true",
    # The machine.
    "open-files": "the broker keeps {segments} segments and more open; a process here may open "
    "{limit} files",
    "maps": "the broker may map {indexes} indexes; the kernel allows a process {limit} maps",
}

#: Parts of sentences: why a partition is put aside, and what a start then does.
EVENTS: Final[dict[str, str]] = {
    "no-id": "partition.metadata is missing, so its topic id is unknown",
    "stray": "stray: {reason}",
    "absent": "the metadata log assigns it to this node, but it is not here; a start creates an "
    "empty one",
    "unnamed": "the metadata log assigns it to this node, but it is in {other}, which log.dirs "
    "does not name; a start creates an empty one",
    "renamed": f"{_STRAY} and creates an empty one in its place",
    "as-of": " (the metadata log goes up to offset {offset}, {time})",
    "begins": "the broker begins a new cluster without topics",
    "may-begin": "if the other controllers have no leader, a new cluster may begin",
    "forgotten": "all topics are forgotten",
    "one-stray": "the 1 partition here becomes -stray",
    "all-stray": "all {count} partitions here become -stray",
    "no-log": "not here",
    "empty-log": "it has no topics, like an empty one",
    "goes": "{extents} go, and the broker forgets what they say[, unless it fetches them from "
    "{others}]",
    "topics": "topics {names}",
    "settings": "settings of {names}",
    "strays": "{count} partitions here become -stray and are not served: {names}",
    "offsets": "committed offsets are lost with __consumer_offsets",
}

_RECOVER: Final = "kseg recover {path} --apply"
_SALVAGE: Final = "kseg salvage {path} -o OUT"
_CUT: Final = (
    f"[{{sound:.0}}Run this first, which keeps them:\n{_SALVAGE}\n]"
    f"This cuts the log, with a backup of what goes:\n{_RECOVER}"
)
_TO_TIER: Final = "kseg recover {path} --tier URL --apply"
_WRITE_IDS: Final = "write it again with the ids of the other directories"
_BACKUP_FIRST: Final = "Restore it from a backup before you start the broker."
#: What to do, by code and perhaps a word: that of the sentence, or another one.
REMEDIES: Final[dict[str, str]] = {
    # A partition.
    "load-fails.recover": _RECOVER,
    "load-fails.tier": _TO_TIER,
    "load-fails.name": "move the file out of the partition",
    "records-cut": _CUT,
    "bytes-cut": _CUT,
    "bytes-cut.tail": _RECOVER,
    "log-start-ahead": "{advice}",
    "records-missing": "Restore them from another replica or a backup before you start the broker.",
    "index-unused": _RECOVER,
    "hidden": _RECOVER,
    "tier-deleted": f"This gets the epochs back from the tier:\n{_RECOVER}",
    "tier-deleted.url": f"This gets the epochs back from the tier:\n{_TO_TIER}",
    "swept": _RECOVER,
    "set-aside.stray": "delete it once its records are not needed",
    "not-imitated.overflow": "kseg salvage {log} -o OUT",
    "topic-id": "Unless the topic was deleted and created again, write the id that the cluster "
    "has:\nprintf {text} > {file}{chown}",
    "partition-lost.absent": _BACKUP_FIRST,
    "partition-lost.unnamed": "Add {other} to log.dirs before you start the broker.",
    # A data directory.
    "missing": "mount the disk",
    "unreadable.in-the-way": "Move it away:\n{aside}",
    "foreign-directory": "move it out of the data directory",
    "set-aside.mount": "The file system needs it: move everything else into a subdirectory of the "
    "mount, and name that in log.dirs",
    "not-formatted": "Write its former contents:\nprintf {text} > {path}",
    "not-formatted.unmounted": "Mount it. Do not format this directory: the broker would create "
    "empty partitions.",
    "not-formatted.new": "kafka-storage.sh format --ignore-formatted -t {cluster} -c "
    "server.properties",
    "meta-properties": _WRITE_IDS,
    "checkpoint-format.recovery-point-offset-checkpoint": "delete the file: Kafka takes 0 for "
    "every recovery point, and reads all logs again",
    "checkpoint-format.log-start-offset-checkpoint": "delete the file: Kafka lets every log start "
    "at its first segment",
    "checkpoint-format": "delete the file: a broker rebuilds it",
    "checkpoint-missing": _BACKUP_FIRST,
    "unclean": _RECOVER,
    "read-only": "remount it",
    "rights": "chown -R --reference={home} {path}",
    "room": "kseg retain {path}\nkseg compact {path}",
    "inodes": "free inodes",
    # The directories of a broker together.
    "duplicate-partition": "move the shorter one away",
    "duplicate-partition.future": "Move it away, if {name} has all its records:\n{aside}",
    "ids": "use only directories that belong to the same broker",
    "metadata-missing": "Restore it from another controller or a backup.",
    "metadata-missing.others": "Do not start this node with an empty log before the others are up.",
    "metadata-snapshot": "Restore it from a backup or from another controller.",
    "metadata-snapshot.replayed": "The log has its records, too. Move it away:\n{aside}",
    "metadata-snapshot.bootstrap": "Restore it, or move it away if the metadata log has "
    "records:\n{aside}",
    "metadata-snapshot.name": "Move it away:\n{aside}",
    "feature-level": "Start a release that knows it; a metadata version cannot be taken back on "
    "the disk.",
    "metadata-log.broker": "Move it away; the node fetches it again:\n{aside}",
    "metadata-log": "If there are more controllers, move it away while a majority of them is up; "
    "the node fetches it again:\n{aside}\nIf this is the only one, restore it from a backup, or "
    f"replace it by the salvaged part:\n{_SALVAGE}",
    "metadata-log.only": "Restore it from a backup, or replace it by the salvaged part:\n"
    f"{_SALVAGE}",
    "metadata-log.others": "Move it away while a majority of the other controllers is up; the node "
    "fetches it again:\n{aside}",
    # The settings.
    "setting-refused": "correct {name} in the file[{comment:.0}; a comment needs a line of its "
    "own]",
    "setting-refused.topic": "start a release that takes it, and remove the setting from each "
    "topic there:\nkafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
    "--entity-name {topic} --delete-config {name}",
    "setting-missing": "add process.roles=broker,controller",
    "setting-ignored": "write {right} in its place",
    "setting-ignored.mark": "save the file without the mark",
    "tier-off": "set remote.log.storage.system.enable=true in server.properties",
    # The machine.
    "open-files": "raise the broker's limit",
    "maps": "sysctl -w vm.max_map_count={enough}",
}


@frozen_dataclass
class BrokerFinding(Documented):
    """A finding of the doctor.

    Attributes:
        code: a word of `CODES`.
        path: the file or directory.
        message: the fault, with the values that show it.
        outcome: the consequence of this finding alone.
        exception: Kafka's exception; None where Kafka raises nothing.
        mend: the advice, in lines; a command has a line of its own.
        records: number of records that a start takes from their readers; None if not known.
        partitions: the names of the partitions with these records; empty for the path itself.
    """

    DOCUMENT = "code severity path message outcome exception mend records partitions"

    code: str
    path: str
    message: str
    outcome: Outcome = Outcome.STARTS
    exception: str | None = None
    mend: str | None = None
    records: int | None = None
    partitions: tuple[str, ...] = ()

    @property
    def severity(self) -> Weight:
        """Its weight."""
        return CODES[self.code].weight


def event(name: str, /, **values: Any) -> str:
    """A part of a message, with its values.

    Args:
        name: a key of `EVENTS`.
        values: fill the text.
    """
    return filled(EVENTS[name], values)


def finding(
    name: str,
    path: str | Path,
    remedy: str | None = None,
    /,
    *,
    outcome: Outcome | None = None,
    exception: str | None = "",
    records: int | None = None,
    partitions: tuple[str, ...] = (),
    **values: Any,
) -> BrokerFinding:
    """A finding with its message and advice.

    Args:
        name: the key of its message in `SENTENCES`; the code is the part up to the dot.
        path: the file or directory.
        remedy: the key of its advice in `REMEDIES`, in place of `name`; "" for no advice.
        outcome: in place of the usual outcome of the code.
        exception: in place of the usual exception of the code; None if Kafka raises nothing.
        records, partitions: see `BrokerFinding`.
        values: fill the message and the advice.
    """
    code = name.partition(".")[0]
    usual = CODES[code]
    return BrokerFinding(
        code,
        str(path),
        filled(SENTENCES[name], values),
        usual.outcome if outcome is None else outcome,
        usual.exception if exception == "" else exception,
        advice(name if remedy is None else remedy, path, **values),
        records,
        partitions,
    )


def advice(name: str, path: str | Path, /, **values: Any) -> str | None:
    """The advice for a finding; None if there is none.

    Args:
        name: a key of `REMEDIES`, or of `SENTENCES`; of the latter, the code may be the key.
        path: the file or directory.
        values: fill the advice; a path among them is quoted.
    """
    text = REMEDIES.get(name, REMEDIES.get(name.partition(".")[0]))
    if text is None:
        return None
    quoted = {
        key: command_line(value) if isinstance(value, Path) else value
        for key, value in values.items()
    }
    location = Path(path)
    home = location.absolute().parent
    home = home.parent if home.name.startswith("__") else home
    aside = command_line("mv", location, home.with_name(f"{home.name}.{location.name}"))
    return filled(text, {"path": command_line(location), "aside": aside, **quoted})
