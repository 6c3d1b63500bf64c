"""The cleanup of a topic whose settings are not known, as far as its directory shows it.

The cluster has the settings of topics, not a broker's data directory. From the directory, and from
Kafka's rules for its internal topics, only this is known:

    __consumer_offsets, __transaction_state     compacted
    __share_group_state, __remote_log_metadata  deleted, by no time and no size
    a topic in cleaner-offset-checkpoint        compacted
    __cluster_metadata                          the log of KRaft: left alone

Settings that were given for the topic by its name go before that. Others fill the gaps. Nothing
else is assumed: neither Kafka's default of seven days, nor a limit that was not given. In a
directory that is not a broker's, a log has the given settings, or Kafka's defaults. The rules of
internal and compacted topics go before those there too.

Source: Kafka `Topic`, `GroupCoordinatorService`, `TransactionStateManager`,
`ShareCoordinatorService`, `TopicBasedRemoteLogMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import checkpoints, metadata
from kseg.files.names import CLUSTER_METADATA, FileKind
from kseg.log.config import COMPACT, DELETE, LogConfig
from kseg.log.data_directory import partition_of
from kseg.stores.path import RemotePath, path_at

#: Why retention leaves a log alone.
POLICY_UNKNOWN: Final = "policy-unknown"
KRAFT: Final = "cluster-metadata"
#: Why compaction does.
NOT_COMPACTED: Final = "not-compacted"
#: According to the ids, the directory is another topic's, or its broker has no such replica.
STRAY: Final = "stray"
#: Its records are kept in a remote store too: the uploaded part is not known here.
REMOTE: Final = "remote-storage"
#: A setting that is not understood.
INVALID: Final = "invalid-setting"
#: Nothing is deleted at all, not even segments before the log's start.
UNTOUCHED: Final = frozenset({KRAFT, STRAY, REMOTE, INVALID})

_COMPACTED: Final = frozenset({COMPACT})
_DELETED: Final = frozenset({DELETE})
#: Kafka's settings of its internal topics.
_INTERNAL: Final = {
    "__consumer_offsets": _COMPACTED,
    "__transaction_state": _COMPACTED,
    # Its updates have only changes: the last record of a key is not its state.
    "__share_group_state": _DELETED,
    "__remote_log_metadata": _DELETED,
}
_POLICY: Final = "cleanup_policy"
#: By these no segment is too old and none too much; one before the log's start may still go.
_NOTHING: Final[dict[str, Any]] = {
    _POLICY: frozenset(),
    "retention_ms": -1,
    "retention_bytes": -1,
    "local_retention_ms": -2,
    "local_retention_bytes": -2,
}
_LIMITS: Final = frozenset(_NOTHING) - {_POLICY}


@frozen_dataclass
class KnownTopics:
    """The topics of a data directory that its files show.

    Attributes:
        of_broker: whether the directory is a broker's.
        compacted: the topics that a log cleaner has compacted. None where that cannot be read: any
            topic may be compacted.
    """

    of_broker: bool = False
    compacted: frozenset[str] | None = frozenset()


@frozen_dataclass
class RetentionRules:
    """The rules of retention for one log.

    Attributes:
        config: its cleanup policy and limits count.
        skipped: POLICY_UNKNOWN if nothing expires by time or size, since the policy is unknown; one
            of UNTOUCHED if nothing is deleted at all; None else.
        why: the reason as a phrase; empty if the settings were given.
    """

    config: LogConfig
    skipped: str | None = None
    why: str = ""


def known_topics(data_directory: StrPath) -> KnownTopics:
    """Read the facts about topics in a data directory.

    Raises:
        OSError: `cleaner-offset-checkpoint` cannot be read.
    """
    home = path_at(data_directory)
    path = home / FileKind.CLEANER.value
    compacted: frozenset[str] | None = frozenset()
    try:
        offsets = checkpoints.read_offset_checkpoint(path)
        compacted = frozenset(partition.topic for partition in offsets)
    except FileNotFoundError:
        pass
    except (CorruptIndexError, LimitExceededError):
        compacted = None
    if isinstance(home, RemotePath):
        return KnownTopics((home / FileKind.META_PROPERTIES.value).exists(), compacted)
    return KnownTopics(metadata.is_of_broker(home), compacted)


def rules_beside(
    path: Path,
    rules: Callable[..., RetentionRules],
    config: LogConfig | RetentionRules,
    **how: bool,
) -> RetentionRules:
    """The rules for a log, by the facts in its data directory.

    Args:
        path: the partition directory.
        rules: `retention_rules` or `compaction_rules`.
        config: the settings of the log, or its rules.
        how: further arguments of that function.
    """
    if isinstance(config, RetentionRules):
        return config
    directory = path.resolve()
    partition = partition_of(directory)
    return rules(known_topics(directory.parent), partition and partition.topic, config, **how)


def retention_rules(
    topics: KnownTopics, topic: str | None, config: LogConfig, *, of_one_log: bool
) -> RetentionRules:
    """Find the rules of retention.

    Given settings count, as in Kafka. But a broker's topics may have settings of their own, which
    are not in its files: nothing is deleted there unless the policy and a limit are known, from
    Kafka's own topics, from the cleaner's checkpoint, or by name.

    Args:
        topics: the topics of the data directory.
        topic: the topic of the log; None for a directory under another name.
        config: the given settings.
        of_one_log: `config` was given for this log, not for all of a directory. Then a limit in it
            implies the policy "delete", as a limit for a topic by its name does.
    """
    if topic == CLUSTER_METADATA:
        return left_alone(config, KRAFT, "the log of KRaft")
    policy, why = known_policy(topics, topic)
    if not why and not topics.of_broker:
        return RetentionRules(config)
    topic_names = config.named_for_topic
    named = (
        topic_names if why else config.named
    )  # a known policy yields to the topic's own settings only
    values = {name: getattr(config, name) for name in _NOTHING if name in named}
    limits = named & _LIMITS
    if _POLICY not in named:
        if policy is None and not why and limits and (of_one_log or topic_names & _LIMITS):
            policy = _DELETED
        if policy is None:
            return _unknown(config, why or _what_to_name(topic, "policy" if limits else "both"))
        values[_POLICY] = policy
    elif DELETE in config.cleanup_policy and not limits and policy != _DELETED:
        return _unknown(config, _what_to_name(topic, "limit"))
    elif values[_POLICY] != policy:
        why = ""  # the settings decide, not the reason of the known policy
    return RetentionRules(config.with_changes(**(_NOTHING | values)), why=why)


def left_alone(config: LogConfig, skipped: str, why: str) -> RetentionRules:
    """Rules for a log from which nothing is deleted by time or size."""
    return RetentionRules(config.with_changes(**_NOTHING), skipped, why)


def compaction_rules(topics: KnownTopics, topic: str | None, config: LogConfig) -> RetentionRules:
    """Find the rules of compaction.

    Args:
        topics: the topics of the data directory.
        topic: the topic of the log; None for a directory under another name.
        config: the given settings. Kafka's defaults count for the rest, but not for the policy.
    """
    if topic == CLUSTER_METADATA:
        return RetentionRules(config, KRAFT, "the log of KRaft")
    policy, why = known_policy(topics, topic)
    named = config.named if policy is None else config.named_for_topic
    if _POLICY in named or not (why or topics.of_broker):
        policy, why = config.cleanup_policy, ""
    if policy is None:
        what = why or "its cleanup.policy is not known here"
        return _unknown(config, f"{what}; give the broker's file: --broker-config FILE")
    settings = config.with_changes(cleanup_policy=policy)
    if settings.compacted:
        return RetentionRules(settings, why=why)
    return RetentionRules(settings, NOT_COMPACTED, why or "its cleanup.policy is not compact")


def known_policy(topics: KnownTopics, topic: str | None) -> tuple[frozenset[str] | None, str]:
    """The policy of a topic that no setting changes, and why; None and no reason if unknown."""
    policy = _INTERNAL.get(topic or "")
    if policy is not None:
        how = "compacted" if policy == _COMPACTED else "deleted by no time and no size"
        return policy, f"a topic of Kafka's own, {how}"
    if topics.compacted is None:
        return None, f"{FileKind.CLEANER.value} cannot be read, so it may be compacted"
    if topic in topics.compacted:
        return _COMPACTED, f"compacted, as {FileKind.CLEANER.value} says"
    return None, ""


def is_internal(topic: str | None) -> bool:
    """Whether a topic is one of Kafka's own."""
    return topic is not None and topic.startswith("__")


def _what_to_name(topic: str | None, missing: Literal["policy", "limit", "both"]) -> str:
    """Says which settings are unknown, and which options give them."""
    of = "" if topic is None else f"{topic}:"
    if missing == "policy":
        return f"its cleanup.policy is not known here; --config {of}cleanup.policy=delete names it"
    limits = f"--config {of}retention.ms=MS or {of}retention.bytes=BYTES names"
    if missing == "limit":
        return f"neither its retention.ms nor its retention.bytes is known here; {limits} one"
    return f"neither its cleanup.policy nor a limit is known here; {limits} both"


def _unknown(config: LogConfig, why: str) -> RetentionRules:
    """Rules for a log whose policy or limits are not known."""
    return left_alone(config, POLICY_UNKNOWN, why)
