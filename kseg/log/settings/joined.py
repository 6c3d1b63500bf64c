"""The settings of partitions: each from the strongest source that has it, with that source.

The guide of this room gives the order of the sources. `SettingSources` looks for them in
directories of one broker or several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Final
from uuid import UUID

from kseg._door import renamed
from kseg.catalog import paths_of
from kseg.constants import StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import CorruptIndexError, KsegError
from kseg.files import metadata
from kseg.files.names import CLUSTER_METADATA, FileKind, list_data_directory
from kseg.files.selection import Selection, StrPaths
from kseg.frames import Table, TableRows
from kseg.log.config import (
    DEFAULT,
    DELETE,
    FROM_BROKER,
    FROM_CLUSTER,
    FROM_FILE,
    FROM_KAFKA,
    FROM_TOPIC,
    GIVEN,
    GIVEN_FOR_TOPIC,
    SUPPOSED,
    TOPIC_SETTINGS,
    LogConfig,
    SettingValue,
    default_settings,
    read_broker_properties,
    refusal_of,
    topic_name_of,
    topic_settings,
)
from kseg.log.data_directory import partition_of
from kseg.log.settings.cluster import (
    BROKER,
    DELETING,
    POLICY,
    REMOTE_STORAGE,
    TOPIC,
    Change,
    Cluster,
    is_true,
    towards_deletion,
)
from kseg.log.settings.metadata_log import (
    group_by_broker,
    meta_properties_of,
    metadata_home,
    read_cluster,
    why_no_metadata_log,
    with_metadata_log,
)
from kseg.log.topic_policy import (
    INVALID,
    POLICY_UNKNOWN,
    REMOTE,
    STRAY,
    UNTOUCHED,
    KnownTopics,
    RetentionRules,
    compaction_rules,
    is_internal,
    known_policy,
    known_topics,
    left_alone,
    retention_rules,
)
from kseg.stores.path import path_at

#: Goes before `segment.bytes`, for tests of Kafka 4.2 and later.
_INTERNAL_BYTES: Final = "internal.segment.bytes"
_SEGMENT_BYTES: Final = "segment.bytes"
#: All that is read of a topic's configuration.
_READ: Final = TOPIC_SETTINGS | {REMOTE_STORAGE, _INTERNAL_BYTES}
_LIMITS: Final = DELETING - {POLICY}
#: The part of a `server.properties` that is shown. Other values may belong to a password.
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)

Values = dict[str, SettingValue]


@frozen_dataclass
class PartitionSettings:
    """The settings of one partition.

    Attributes:
        path: its directory.
        topic: from the name of the directory; None for another name.
        topic_id: the id of the topic that it belongs to; None if unknown.
        values: every known setting, keyed by Kafka's name, with its source. If it has none there is
            no word of the settings by which segments are deleted.
        config: the same as a configuration; unknown settings have Kafka's default in it, and are
            not among its `named`. To open a log take `log_config`.
        skipped: why nothing is to be deleted here, in a word of `topic_policy`; None else.
        why: the reason as a phrase.
        notes: sentences about changes towards deletion that may not be committed.
        findings: values, records and files that could not be understood.
    """

    path: Path
    topic: str | None
    topic_id: UUID | None
    values: Mapping[str, SettingValue]
    config: LogConfig
    skipped: str | None
    why: str
    notes: tuple[str, ...]
    findings: tuple[KsegError, ...]
    _known_topics: KnownTopics = field(default_factory=KnownTopics, repr=False)

    def retention_rules(self, *, of_one_log: bool = False) -> RetentionRules:
        """The rules of retention for this partition.

        Args:
            of_one_log: settings for all topics were given for this log only, so that a limit among
                them implies the policy "delete", unless the log is a broker's.
        """
        if self._is_untouched and self.skipped != REMOTE:
            return left_alone(self.config, self.skipped or "", self.why)
        has_limit = any(
            self.values[limit].source == GIVEN for limit in _LIMITS & self.values.keys()
        )
        topics, config = self._known_topics, self.config
        if not topics.of_broker:
            # Outside of a broker's directory the default policy counts, but no limit has a default:
            # it has to be named, as in a broker's directory.
            topics = replace(topics, of_broker=True)
            config = config.with_changes(cleanup_policy=config.cleanup_policy)
        # A broker has settings of the topic somewhere; where they say nothing, its own count.
        of_one_log = of_one_log and has_limit and not self._known_topics.of_broker
        rules = retention_rules(topics, self.topic, config, of_one_log=of_one_log)
        if self.skipped == REMOTE:  # the limits count where it is known what the tier has
            return replace(rules, skipped=REMOTE, why=self.why)
        return self._with_why(rules)

    def compaction_rules(self) -> RetentionRules:
        """The rules of compaction for this partition.

        Where the topic's configuration is unknown, only a policy that was given for it counts: the
        cleaner's checkpoint does not say how long records are to stay.
        """
        policy = self.values.get(POLICY)
        is_given = policy is not None and policy.source == GIVEN_FOR_TOPIC
        if self._is_untouched or (self.skipped == POLICY_UNKNOWN and not is_given):
            return RetentionRules(self.config, self.skipped, self.why)
        return self._with_why(compaction_rules(self._known_topics, self.topic, self.config))

    def _with_why(self, rules: RetentionRules) -> RetentionRules:
        """Add the reason why the topic's own configuration is not known."""
        if rules.skipped == POLICY_UNKNOWN and self.why:
            return replace(rules, why=f"{rules.why}; {self.why}")
        return rules

    @property
    def log_config(self) -> LogConfig:
        """The configuration to open a log with: `config`, or one by which nothing is deleted."""
        if self._is_untouched or self.topic == CLUSTER_METADATA:
            return left_alone(self.config, self.skipped or "", self.why).config
        return self.config

    @property
    def _is_untouched(self) -> bool:
        """Whether nothing is to be deleted at all; the log of KRaft has rules of its own."""
        return self.topic != CLUSTER_METADATA and self.skipped in UNTOUCHED

    def to_json(self) -> dict[str, dict[str, str]]:
        """Each setting by its name: value and source."""
        return {name: setting._asdict() for name, setting in sorted(self.values.items())}


@frozen_dataclass
class SettingSources:
    """The sources that a caller names beside the data directories; see `settings`.

    Attributes:
        metadata_directory: the data directory with `__cluster_metadata-0`, if it is another one.
        broker_config: the broker's `server.properties`.
        config: settings for every topic, weaker than the broker's.
        topic_config: settings keyed by topic, stronger than `config`.
        supposed: settings to answer a question with, see `Settings.supposing`; None if files
            are changed by the settings.
    """

    metadata_directory: StrPath | None = None
    broker_config: StrPath | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    topic_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    supposed: Mapping[str, str] | None = None

    def check(self) -> None:
        """Refuse invalid settings, even those that no partition uses.

        Raises:
            ValueError: names the setting.
        """
        for settings in (self.config, self.supposed or {}, *self.topic_config.values()):
            LogConfig.from_kafka(settings)

    def read(self, homes: Sequence[Path]) -> Settings:
        """The settings in the data directories of one broker.

        Raises:
            ValueError: two of them have a metadata log, or `broker_config` is malformed.
            OSError: a file cannot be read.
        """
        directories = [home.resolve() for home in homes]
        origin = metadata_home(directories, self.metadata_directory)
        cluster = None if origin is None else read_cluster(origin / f"{CLUSTER_METADATA}-0")
        facts = {directory: _facts_of(directory, origin, cluster) for directory in directories}
        properties = (
            None if self.broker_config is None else read_broker_properties(self.broker_config)
        )
        return Settings(facts, properties, self)

    def groups(self, homes: Iterable[Path]) -> list[list[Path]]:
        """Data directories that share a metadata log.

        Where at most one log is known, all directories share it. Else the directories of a broker
        share its log, by their ids. A broker with several logs has one for each directory.
        """
        different = sorted(set(homes))
        if self.metadata_directory is not None or len(with_metadata_log(different)) <= 1:
            return [different] if different else []
        return [
            group
            for broker in group_by_broker(different)
            for group in (
                [broker] if len(with_metadata_log(broker)) <= 1 else [[home] for home in broker]
            )
        ]

    def by_home(self, homes: Iterable[Path]) -> dict[Path, Settings]:
        """The settings in each data directory, of any broker.

        Raises:
            ValueError: `broker_config` is malformed.
            OSError: a file cannot be read.
        """
        settings_by_home: dict[Path, Settings] = {}
        for group in self.groups(homes):
            settings_by_home |= dict.fromkeys(group, self.read(group))
        return settings_by_home


@frozen_dataclass
class _DirectoryFacts:
    """The facts of a data directory: topics, cluster, node; and why the cluster is not known."""

    topics: KnownTopics
    cluster: Cluster | None
    node_id: int | None
    why: str = ""


class Settings(Table):
    """The settings of the partitions of some data directories, as `settings` has found them.

    A table has a row for each setting of each partition.

    Attributes:
        sources: where they were read.
        properties: the settings of topics in the broker's file; None if there is no such file.
        cluster: the state in the metadata log; None if there is no such log.
        findings: records and files that could not be understood.
    """

    COLUMNS = "directory topic partition name value source"

    def __init__(
        self,
        homes: Mapping[Path, _DirectoryFacts],
        properties: Mapping[str, str] | None,
        sources: SettingSources,
        selection: Selection | None = None,
    ) -> None:
        """Hold the results; use `settings` instead."""
        self._selection: Final = selection or Selection()
        self._directories: Final = homes
        self.properties: Final = properties
        self.sources: Final = sources
        self.cluster: Final = next(
            (facts.cluster for facts in homes.values() if facts.cluster), None
        )
        self.findings: Final = tuple(self.cluster.findings) if self.cluster else ()

    def supposing(self, supposed: Mapping[str, str]) -> Settings:
        """These settings with supposed ones: to answer a question, not to change files by.

        Args:
            supposed: overrides all but a topic's own settings, and those given for it.
        """
        sources = replace(self.sources, supposed=supposed)
        return Settings(self._directories, self.properties, sources, self._selection)

    def choosing(self, selection: Selection) -> Settings:
        """These settings, with only the chosen partitions in the table.

        Args:
            selection: chooses topics and partitions.

        Raises:
            ValueError: no partition is chosen.
        """
        chosen = Settings(self._directories, self.properties, self.sources, selection)
        if selection and not any(True for _ in chosen._paths()):
            raise ValueError(selection.why_nothing(map(_topic_and_number, self._paths())))
        return chosen

    def _paths(self) -> Iterator[Path]:
        """The directories of the chosen partitions, in the order of the data directories."""
        for home in self._directories:
            for partition in list_data_directory(home).partitions:
                if self._selection.takes(*_topic_and_number(partition.path)):
                    yield partition.path

    def __iter__(self) -> Iterator[PartitionSettings]:
        """The settings of every chosen partition, in the order of the directories."""
        return map(self.of, self._paths())

    @property
    def title(self) -> str:
        """The data directories."""
        return ", ".join(map(str, self._directories))

    def table_rows(self) -> TableRows:
        """The settings; `source` is where a value comes from."""
        return [
            dict(zip(self.COLUMNS.split(), cells, strict=True))
            for partition in self
            for name, (value, source) in partition.values.items()
            for cells in [
                (str(partition.path), *_topic_and_number(partition.path), name, value, source)
            ]
        ]

    def of(self, path: StrPath) -> PartitionSettings:
        """The settings of one partition.

        Args:
            path: its directory, in one of the data directories.

        Raises:
            ValueError: it is elsewhere, or an invalid setting was given.
            OSError: its `partition.metadata` cannot be read.
        """
        directory = path_at(path)
        home = self._directories.get(directory.resolve().parent)
        if home is None:
            raise ValueError(f"{directory} is in none of the data directories")
        return _PartitionSources(directory, home, self).result()

    def broker_values(self, cluster: Cluster | None, node_id: int | None) -> Values:
        """The values that a broker's own configuration gives to the settings of topics.

        Args:
            cluster: the state of its metadata log; None if there is no such log.
            node_id: the id of the broker; None if unknown.

        Returns:
            Each setting by its name for topics, with its source; the broker's own goes before the
            default of its cluster, and both before its file.
        """
        properties = self.properties or {}
        joined = {name: SettingValue(text, FROM_FILE) for name, text in properties.items()}
        if cluster is not None and cluster.trusted:
            for resource, source in (("", FROM_CLUSTER), (str(node_id), FROM_BROKER)):
                configured = cluster.configs.get((BROKER, resource), {})
                joined |= {
                    name: SettingValue(configured_value.value, source)
                    for name, configured_value in configured.items()
                }
        return topic_settings(joined)


def _topic_and_number(directory: Path) -> tuple[str | None, int | None]:
    """The topic and the number of a partition, if its directory names them."""
    return partition_of(directory) or (None, None)


@renamed(data_directories="paths")
def settings(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int] | None = None,
    metadata_directory: StrPath | None = None,
    broker_config: StrPath | None = None,
    config: Mapping[str, str] | None = None,
    topic_config: Mapping[str, Mapping[str, str]] | None = None,
) -> Settings:
    """Read the settings of partitions from where a broker has them.

    Args:
        paths: the data directories of one broker, or one of them; or URLs of them.
        topics: list only these: a name or a glob, or several.
        partitions: list only these partitions: a number, or several.
        metadata_directory: the directory with `__cluster_metadata-0`, if it is elsewhere.
        broker_config: the broker's `server.properties`; only settings of topics are kept.
        config: settings for every topic, weaker than the broker's.
        topic_config: settings keyed by topic, stronger than `config`.

    Returns:
        The settings; problems are among `Settings.findings`.

    Raises:
        ValueError: two of the directories have a metadata log, `broker_config` is malformed, or no
            partition is chosen.
        TypeError: an argument has a wrong type.
        OSError: a file cannot be read.

    Example:
        >>> known = settings(".", topic_config={"orders": {"retention.ms": "1000"}})
        >>> known.of("orders-0").values["retention.ms"]
        SettingValue(value='1000', source='config-topic')
    """
    selection = Selection.of(topics, partitions)
    sources = SettingSources(metadata_directory, broker_config, config or {}, topic_config or {})
    return sources.read(paths_of(paths)).choosing(selection)


def _facts_of(directory: Path, origin: Path | None, cluster: Cluster | None) -> _DirectoryFacts:
    """The facts about a data directory; the cluster only if its metadata log is of the same."""
    topics, meta = known_topics(directory), meta_properties_of(directory)
    node_id = None if meta is None else meta.node_id
    if origin is None or cluster is None:
        return _DirectoryFacts(
            topics,
            cluster=None,
            node_id=node_id,
            why=why_no_metadata_log(directory) if topics.of_broker else "",
        )
    other = meta_properties_of(origin)
    if meta is not None and other is not None and meta.cluster_id != other.cluster_id:
        return _DirectoryFacts(
            topics, cluster=None, node_id=node_id, why="the metadata log is that of another cluster"
        )
    return _DirectoryFacts(topics, cluster, node_id)


class _PartitionSources:
    """The sources of the settings of one partition, and how they are joined.

    Attributes:
        skipped: the code of the reason why nothing of the partition is changed; None if it may be.
        why: that reason as a phrase.
    """

    def __init__(self, path: Path, home: _DirectoryFacts, settings: Settings) -> None:
        """Take the partition, the facts of its data directory, and all settings."""
        self.path = path
        self.home = home
        self.settings = settings
        self.topic, _number = _topic_and_number(path)
        self.findings: list[KsegError] = []
        self.topic_id: UUID | None = None
        self.skipped: str | None = None
        self.why = home.why
        #: Whether the topic's own configuration is known.
        self.is_joined = False

    def result(self) -> PartitionSettings:
        """The joined settings."""
        self._find_topic()
        sources = self.settings.sources
        of_topic, general = (
            dict(sources.topic_config.get(self.topic or "", {})),
            dict(sources.config),
        )
        # The values from the strongest on: given for the topic, in its record, after that.
        strong = {name: SettingValue(text, GIVEN_FOR_TOPIC) for name, text in of_topic.items()}
        record = self._topic_values() if self.is_joined else {}
        policy, _ = known_policy(self.home.topics, self.topic)
        if policy is not None and POLICY not in record:
            record[POLICY] = SettingValue(",".join(sorted(policy)), FROM_KAFKA)
        weak = self._values_without_topic(general)
        remote = record.pop(REMOTE_STORAGE, None)
        if remote is not None and is_true(remote.value) and self.skipped is None:
            self.skipped = REMOTE
            self.why = (
                "its records are in a remote store too; the copied part is not known here: "
                "--tier URL names the store"
            )
        if (
            self.is_joined
            and POLICY not in strong.keys() | record.keys()
            and _LIMITS & of_topic.keys()
        ):
            strong[POLICY] = SettingValue(DELETE, GIVEN_FOR_TOPIC)  # a limit of a topic names it
        values = weak | record | strong
        config = self._config(general, of_topic, record, weak)
        return PartitionSettings(
            self.path,
            self.topic,
            self.topic_id,
            self._defaults() | values,
            config,
            self.skipped,
            self.why,
            self._notes(values, weak),
            tuple(self.findings),
            self.home.topics,
        )

    # ---- which topic it is -----------------------------------------------------------------------

    def _find_topic(self) -> None:
        """Find the topic by its id, or note why it is unknown or stray."""
        cluster = self.home.cluster
        if cluster is None or self.topic is None or self.topic == CLUSTER_METADATA:
            return
        if not cluster.trusted:
            self._note_unknown(f"the metadata log is not understood: {cluster.findings[-1].reason}")
            return
        try:
            path = self.path / FileKind.PARTITION_METADATA.value
            self.topic_id = metadata.read_partition_metadata(path).uuid
        except FileNotFoundError:
            self._note_unknown("partition.metadata is missing, so its topic id is unknown")
            return
        except KsegError as error:
            self.findings.append(error)
            self._note_unknown("its partition.metadata is malformed")
            return
        partition = partition_of(self.path)
        assert partition is not None
        why = cluster.stray_reason(partition, self.topic_id, self.home.node_id)
        self.is_joined = not why
        if why:
            self.skipped, self.why = STRAY, f"stray: {why}"

    def _note_unknown(self, why: str) -> None:
        self.skipped, self.why = POLICY_UNKNOWN, why

    # ---- sources ---------------------------------------------------------------------------------

    def _topic_values(self) -> Values:
        """The settings in the topic's own configuration, without those that are not accepted."""
        cluster = self.home.cluster
        assert cluster is not None
        configured = dict(cluster.configs.get((TOPIC, self.topic or ""), {}))
        if _INTERNAL_BYTES in configured:
            configured[_SEGMENT_BYTES] = configured.pop(_INTERNAL_BYTES)
        read = {
            name: SettingValue(configured_value.value, FROM_TOPIC)
            for name, configured_value in configured.items()
        }
        return self._accept_values(
            {name: setting for name, setting in read.items() if name in _READ}
        )

    def _values_without_topic(self, general: Mapping[str, str]) -> Values:
        """The values where the topic has none; if the topic's are unknown, nothing is deleted."""
        cluster = self.home.cluster
        broker = self._accept_values(self.settings.broker_values(cluster, self.home.node_id))
        plain = {name: SettingValue(text, GIVEN) for name, text in general.items()}
        supposed = self.settings.sources.supposed or {}
        supposed_values = {name: SettingValue(text, SUPPOSED) for name, text in supposed.items()}
        if self.home.topics.of_broker and not self.is_joined:
            seen = [f"{name}={broker[name].value}" for name in sorted(DELETING & broker.keys())]
            if seen and self.why and self.skipped in (None, POLICY_UNKNOWN):
                clause = "of the broker does not count: the topic may have a setting of its own"
                self.why += f"; {', '.join(seen)} {clause}"
            _drop_deleting(broker)
        if cluster is not None and not self.is_joined:
            _drop_deleting(plain)
            _drop_deleting(supposed_values)
        return self._deleting_defaults() | plain | broker | supposed_values

    def _deleting_defaults(self) -> Values:
        """Kafka's defaults that decide on deletion; empty unless all stronger sources were read.

        That is the topic's configuration, the broker's and its file. Files are changed by them only
        if the metadata log is whole to its end, and for no topic of Kafka's own.
        """
        cluster = self.home.cluster
        if cluster is None or not self.is_joined:
            return {}
        if self.settings.properties is None or self.home.node_id is None:
            return {}
        if self.settings.sources.supposed is None and (
            not cluster.whole or is_internal(self.topic)
        ):
            return {}
        defaults = default_settings()
        return {name: SettingValue(defaults[name], DEFAULT) for name in DELETING}

    def _defaults(self) -> Values:
        """Kafka's defaults, but for the limits, and in a broker's directory for the policy too."""
        defaults = {name: SettingValue(text, DEFAULT) for name, text in default_settings().items()}
        for name in DELETING if self.home.topics.of_broker else _LIMITS:
            del defaults[name]
        return defaults

    def _accept_values(self, values: Values) -> Values:
        """The values that Kafka would accept; for others, note a finding and delete nothing."""
        sound = {}
        for name, setting in values.items():
            refusal = "" if name == REMOTE_STORAGE else refusal_of(name, setting.value)
            if refusal and setting.source == FROM_FILE and not _NUMBER.fullmatch(setting.value):
                refusal = (
                    f"{name} has a value that Kafka refuses; it may be secret, and is not shown"
                )
            if refusal:
                self._note_invalid(f"{refusal} (source: {setting.source})")
            else:
                sound[name] = setting
        return sound

    def _note_invalid(self, reason: str) -> None:
        self.findings.append(CorruptIndexError(reason, path=self.path))
        if self.skipped is None:
            self.skipped, self.why = INVALID, reason

    # ---- the result ------------------------------------------------------------------------------

    def _config(
        self, general: Mapping[str, str], of_topic: Mapping[str, str], record: Values, weak: Values
    ) -> LogConfig:
        """The configuration that all settings make together.

        Settings of the topic override the others. A limit in the topic's record, such as
        `retention.ms`, counts as the topic's only if a policy is there, too: the limit
        must not choose a policy by itself, as the broker may have another.

        Args:
            general: what the caller named for all topics.
            of_topic: what the caller named for this topic.
            record: the topic's record in the metadata log.
            weak: the defaults and the broker's values.
        """
        LogConfig.from_kafka(general, of_topic=of_topic)  # invalid settings are refused
        recorded = {
            name: setting.value for name, setting in record.items() if setting.source == FROM_TOPIC
        }
        others = {name: setting.value for name, setting in weak.items()}
        others |= {name: setting.value for name, setting in record.items() if name not in recorded}
        topics_own = recorded | dict(of_topic)
        if POLICY not in topics_own:
            others |= {
                name: topics_own.pop(name) for name in _LIMITS & recorded.keys() - of_topic.keys()
            }
        try:
            return LogConfig.from_kafka(others, of_topic=topics_own)
        except ValueError as error:  # two that exclude each other
            self._note_invalid(str(error))
            return LogConfig.from_kafka({})

    def _notes(self, values: Values, weak: Values) -> tuple[str, ...]:
        """Changes that may not be committed, where no stronger source has the setting.

        Each is compared with the value in force: a later change may have taken it back.
        """
        cluster = self.home.cluster
        if cluster is None or not self.is_joined:
            return ()
        stronger = {GIVEN_FOR_TOPIC}
        notes = []
        for resource, name_of, source in (
            ((TOPIC, self.topic), str, FROM_TOPIC),
            ((BROKER, str(self.home.node_id)), topic_name_of, FROM_BROKER),
            ((BROKER, ""), topic_name_of, FROM_CLUSTER),
        ):
            for name, changes in _changes_of(cluster.changes, resource).items():
                value = values.get(name_of(name))
                weaker = weak.get(name) if source == FROM_TOPIC else None
                change = towards_deletion(changes, weaker and weaker.value)
                if change is not None and not (value and value.source in stronger):
                    notes.append(change.text)
            stronger.add(source)
        return tuple(notes)


def _changes_of(
    changes: Sequence[Change], resource: tuple[int, str | None]
) -> dict[str, list[Change]]:
    """The changes of one resource, keyed by setting."""
    by_name: dict[str, list[Change]] = {}
    for change in changes:
        if change.resource == resource:
            by_name.setdefault(change.name, []).append(change)
    return by_name


def _drop_deleting(values: Values) -> None:
    for name in DELETING:
        values.pop(name, None)
