"""The settings of one log, with Kafka's names, limits and defaults.

Sizes are in bytes, times in milliseconds. A field is called as the topic setting is, with `_` in
place of `.`; `from_kafka` and `to_kafka` go between the two.

Source: Kafka `LogConfig`, `TopicConfig`; the last two fields are a broker's
(`ProducerStateManagerConfig`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from kseg.commands import suggestion
from kseg.constants import INT32_MAX, INT64_MAX, AppendOrigin, Compression, StrPath, TimestampType
from kseg.documents import frozen_dataclass
from kseg.files import metadata
from kseg.format.compress import check_level, compression_named
from kseg.format.times import DAY_MS
from kseg.log.validate.rules import AppendRules
from kseg.stores.path import path_at

DELETE: Final = "delete"
COMPACT: Final = "compact"

#: Kafka's default of `max.decompressed.message.bytes`: the largest array of Java.
RECORD_BYTES_MAX: Final = INT32_MAX - 8
#: Field -> lowest and highest value. Kafka accepts 4 bytes for an index, and fails to open it.
_RANGES: Final = {
    "segment_bytes": (14, INT32_MAX),
    "segment_ms": (1, INT64_MAX),
    "segment_jitter_ms": (0, INT64_MAX),
    "segment_index_bytes": (12, INT32_MAX),
    "index_interval_bytes": (0, INT32_MAX),
    "retention_ms": (-1, INT64_MAX),
    "retention_bytes": (-INT64_MAX - 1, INT64_MAX),
    "local_retention_ms": (-2, INT64_MAX),
    "local_retention_bytes": (-2, INT64_MAX),
    "flush_messages": (1, INT64_MAX),
    "flush_ms": (0, INT64_MAX),
    "max_message_bytes": (0, INT32_MAX),
    "max_decompressed_message_bytes": (1, RECORD_BYTES_MAX),
    "message_timestamp_before_max_ms": (0, INT64_MAX),
    "message_timestamp_after_max_ms": (0, INT64_MAX),
    "delete_retention_ms": (0, INT64_MAX),
    "min_compaction_lag_ms": (0, INT64_MAX),
    "max_compaction_lag_ms": (1, INT64_MAX),
    "min_cleanable_dirty_ratio": (0, 1),
    "file_delete_delay_ms": (0, INT64_MAX),
    "message_format_magic": (0, 2),
    "producer_id_expiration_ms": (1, INT64_MAX),
    "transaction_max_timeout_ms": (1, INT32_MAX),
}
_RATIO: Final = "min_cleanable_dirty_ratio"
#: Fields that no topic has under that name: one is spelt otherwise, two are a broker's.
_FORMAT: Final = "message_format_magic"
_OF_BROKERS: Final = ("producer_id_expiration_ms", "transaction_max_timeout_ms")

_FORMAT_VERSION: Final = "message.format.version"
_TIME_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
#: For each magic a release that stores it, for `message.format.version`.
_RELEASES: Final = ("0.9.0", "0.10.0", "3.0-IV1")
_RELEASE: Final = re.compile(r"(\d{1,3})\.(\d{1,3})(\.\d{1,3}){0,2}(-IV\d{1,3})?", re.ASCII)
#: Settings of a topic without an effect on storage.
_PASSED_OVER: Final = frozenset(
    {
        "errors.deadletterqueue.group.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.downconversion.enable",
        "min.insync.replicas",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "unclean.leader.election.enable",
    }
)


#: Settings of a log: an object of `LogConfig`, or a dict by Kafka's names.
ConfigLike: TypeAlias = "LogConfig | Mapping[str, object]"


@frozen_dataclass
class LogConfig:
    """Settings of a log; each is checked when it is made. The names end with the units.

    Attributes:
        segment_bytes: the most bytes of a log file, and of one append. Kafka 4.2 wants 1 MiB at
            least.
        segment_ms: a segment rolls before a record that is so much later than its first one.
        segment_jitter_ms: it rolls earlier by up to this much, drawn for each segment.
        segment_index_bytes: the size of each index.
        index_interval_bytes: an index entry after more than so many bytes of log.
        retention_ms, retention_bytes: delete segments that are older, or too many; below 0 for
            never.
        local_retention_ms, local_retention_bytes: the same for local segments of a log in a tier;
            -2 for the limits above.
        flush_messages, flush_ms: flush after so many offsets, or so long.
        max_message_bytes: the largest size of a batch as it is stored.
        max_decompressed_message_bytes: the largest size of a record; since Kafka 4.4, a broker
            inflates no batch with a larger one.
        message_timestamp_type: whether the producer or the log gives records their time.
        message_timestamp_before_max_ms, message_timestamp_after_max_ms: how much older, or newer,
            than now a producer's time may be.
        cleanup_policy: DELETE, COMPACT, both or neither.
        delete_retention_ms: how long compaction keeps tombstones and markers.
        min_compaction_lag_ms, max_compaction_lag_ms: how old records are when they are compacted.
        min_cleanable_dirty_ratio: part of a log that is not compacted yet when it is chosen.
        file_delete_delay_ms: the time from the rename to `.deleted` to the removal.
        preallocate: new log files have `segment_bytes` at once.
        compression_type: the codec that is stored; None to keep the producer's.
        compression_gzip_level, compression_lz4_level, compression_zstd_level: of that codec.
        message_format_magic: the format that is stored, by which 4.0 and later know 2 only.
        producer_id_expiration_ms: a producer that is silent for longer is forgotten.
        transaction_max_timeout_ms: no transaction lasts longer.
        named: the fields that the caller named: those that differ from Kafka's default, and those
            given to `from_kafka` or `with_changes`. To name a default in a call, give it here. Not
            compared.
        named_for_topic: the fields that were named for the log's own topic; see `of_topic`.

    Raises:
        ValueError: a value is out of its range, or two exclude each other.

    Example:
        >>> LogConfig(segment_bytes=64 * 2**20).to_kafka()
        {'segment.bytes': '67108864'}
    """

    segment_bytes: int = 2**30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    max_message_bytes: int = 2**20 + 12
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    compression_type: Compression | None = None
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_format_magic: int = 2
    producer_id_expiration_ms: int = DAY_MS
    transaction_max_timeout_ms: int = 900_000
    named: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    named_for_topic: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse values that Kafka refuses."""
        for name, (least, greatest) in _RANGES.items():
            _check_range(name, getattr(self, name), least, greatest, real=name == _RATIO)
        if self.message_timestamp_type == TimestampType.NO_TIMESTAMP_TYPE:
            raise ValueError("message_timestamp_type is create time or log append time")
        policy = frozenset(self.cleanup_policy)
        unknown = policy - {DELETE, COMPACT}
        if unknown:
            raise ValueError(f"cleanup_policy has delete and compact, not {sorted(unknown)}")
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ValueError(
                f"min_compaction_lag_ms {self.min_compaction_lag_ms} is greater than "
                f"max_compaction_lag_ms {self.max_compaction_lag_ms}"
            )
        check_level(Compression.GZIP, self.compression_gzip_level)
        check_level(Compression.LZ4, self.compression_lz4_level)
        check_level(Compression.ZSTD, self.compression_zstd_level)
        if self.compression_type is not None:
            object.__setattr__(self, "compression_type", Compression(self.compression_type))
            if self.compression_type == Compression.ZSTD and self.message_format_magic < 2:
                raise ValueError(f"magic {self.message_format_magic} has no zstd compression")
        kind = TimestampType(self.message_timestamp_type)
        object.__setattr__(self, "message_timestamp_type", kind)
        object.__setattr__(self, "cleanup_policy", policy)
        object.__setattr__(self, "named", self._named_fields())

    def _named_fields(self) -> frozenset[str]:
        """The fields that count as named; an error for a name of none."""
        differing = {name for name in _DEFAULTS if getattr(self, name) != _DEFAULTS[name]}
        named = differing | self.named | self.named_for_topic
        if not named <= _DEFAULTS.keys():
            raise ValueError(f"not fields of a configuration: {sorted(named - _DEFAULTS.keys())}")
        return frozenset(named)

    @classmethod
    def of(cls, config: ConfigLike | None) -> LogConfig:
        """Convert to a configuration.

        Args:
            config: a configuration, settings keyed by Kafka's names, or None for the defaults.

        Raises:
            ValueError: as of `from_kafka`.
            TypeError: `config` is of another type.
        """
        if isinstance(config, LogConfig):
            return config
        return DEFAULTS if config is None else cls.from_kafka(config)

    # ---- Kafka's spelling ------------------------------------------------------------------------

    @classmethod
    def from_kafka(
        cls, settings: Mapping[str, object], *, of_topic: Mapping[str, object] | None = None
    ) -> LogConfig:
        """Read a topic's settings as Kafka spells them; the others have their defaults.

        Values are texts, as in a topic's configuration, or numbers. Settings without an effect on
        storage, such as `min.insync.replicas`, are ignored. Settings that Kafka had until 3.9 are
        accepted.

        Args:
            settings: the settings, keyed by name.
            of_topic: settings of the log's own topic; they override the others.

        Raises:
            ValueError: a name is not known, a value is out of its range, or the records are to be
                kept in a remote store.

        Example:
            >>> LogConfig.from_kafka({"cleanup.policy": "compact,delete"}).compacted
            True
        """
        topic_values = cls._fields_of(of_topic or {})
        values = cls._fields_of(settings) | topic_values
        return cls(**values, named=frozenset(values), named_for_topic=frozenset(topic_values))

    @staticmethod
    def _fields_of(settings: Mapping[str, object]) -> dict[str, Any]:
        """Parse settings, keyed by Kafka's names, as values of fields; see `from_kafka`."""
        if not isinstance(settings, Mapping):
            raise TypeError(
                f'settings are a dict such as {{"retention.ms": "1"}}, not {settings!r}'
            )
        values: dict[str, Any] = {}
        if _TIME_DIFFERENCE in settings:
            difference = _integer(_TIME_DIFFERENCE, _text(settings[_TIME_DIFFERENCE]))
            values["message_timestamp_before_max_ms"] = difference
            values["message_timestamp_after_max_ms"] = difference
        for name, value in settings.items():
            text = _text(value)
            if name in _PASSED_OVER or name == _TIME_DIFFERENCE:
                continue
            if name == "remote.storage.enable":
                if _boolean(name, text):
                    raise ValueError("remote.storage.enable: there is no remote store here")
            elif name == _FORMAT_VERSION:
                values[_FORMAT] = _magic_of(text)
            elif name in _FIELDS:
                values[_FIELDS[name]] = _check_setting(name, _parse(name, text))
            else:
                hint = suggestion([name], _FIELDS)
                raise ValueError(f"{name!r} is not a setting of a topic{hint}")
        return values

    def to_kafka(self, *, named: bool = False) -> dict[str, str]:
        """The topic settings that differ from the defaults, as Kafka spells them.

        The two settings of a broker are not among them.

        Args:
            named: also the fields that were named with their default.
        """
        settings = {}
        chosen = self.named if named else frozenset()
        for name, attribute in _FIELDS.items():
            value = getattr(self, attribute)
            differs = value != _DEFAULTS[attribute] or attribute in chosen
            if differs and attribute not in _OF_BROKERS:
                settings[name] = _as_kafka_spells(value)
        if self.message_format_magic != _DEFAULTS[_FORMAT]:
            settings[_FORMAT_VERSION] = _RELEASES[self.message_format_magic]
        return settings

    # ---- derived values --------------------------------------------------------------------------

    @property
    def compacted(self) -> bool:
        """Whether the newest record of each key is kept, so that every record needs one."""
        return COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments expire by time and size."""
        return DELETE in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """`segment_ms`, capped for compacted logs: the active segment is never compacted.

        Source: Kafka `LogConfig.maxSegmentMs`.
        """
        if self.compacted:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @property
    def local(self) -> LogConfig:
        """These settings with the limits of the local segments of a log in a tier."""
        limits = {
            name: getattr(self, f"local_{name}")
            for name in ("retention_ms", "retention_bytes")
            if getattr(self, f"local_{name}") != -2
        }
        return self.with_changes(**limits)

    def append_rules(
        self, origin: AppendOrigin = AppendOrigin.CLIENT, leader_epoch: int = 0
    ) -> AppendRules:
        """The rules of an append to such a log.

        Args:
            origin: where the batches come from; a follower's are checked less.
            leader_epoch: the leader's epoch, which its batches get.
        """
        levels = {
            Compression.GZIP: self.compression_gzip_level,
            Compression.LZ4: self.compression_lz4_level,
            Compression.ZSTD: self.compression_zstd_level,
        }
        codec = self.compression_type
        return AppendRules(
            magic=self.message_format_magic,
            compression=codec,
            level=None if codec is None else levels.get(codec),
            compacted=self.compacted,
            timestamp_type=self.message_timestamp_type,
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            leader_epoch=leader_epoch,
            origin=origin,
            batch_bytes_max=self.max_message_bytes,
            append_bytes_max=self.segment_bytes,
        )

    def with_changes(self, **changes: Any) -> LogConfig:
        """The same settings with some changes, checked again; the changed ones count as named.

        Args:
            changes: attributes of this class, by keyword.

        Raises:
            TypeError: there is no such setting.
            ValueError: a value that is out of range, or does not go with another.
        """
        named = self.named | (changes.keys() & _DEFAULTS.keys())
        return replace(self, named=named, **changes)

    def of_topic(self) -> LogConfig:
        """These settings, all that are named counted as the topic's own."""
        return self.with_changes(named_for_topic=self.named)


_DEFAULTS: Final = {each.name: each.default for each in fields(LogConfig) if each.compare}
#: Kafka's name -> field.
_FIELDS: Final = {name.replace("_", "."): name for name in _DEFAULTS if name != _FORMAT}

#: Kafka's names of the settings that a topic has by them.
TOPIC_SETTINGS: Final = frozenset(
    name for name, attribute in _FIELDS.items() if attribute not in _OF_BROKERS
)


def default_settings() -> dict[str, str]:
    """Kafka's default of each setting of a topic, as Kafka spells it."""
    return {name: _as_kafka_spells(_DEFAULTS[_FIELDS[name]]) for name in sorted(TOPIC_SETTINGS)}


def _check_range(name: str, value: object, least: int, greatest: int, *, real: bool) -> None:
    """Refuse what is no number, or out of range; `real` allows fractions."""
    kinds = (int, float) if real else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ValueError(f"{name} is a number, not {value!r}")
    if not least <= value <= greatest:
        raise ValueError(f"{name} is {least} to {greatest}, not {value}")


def _text(value: object) -> str:
    """A setting's value as text, whatever its type."""
    return value.strip() if isinstance(value, str) else _as_kafka_spells(value)


def _as_kafka_spells(value: object) -> str:
    """The value of a field in Kafka's spelling."""
    if value is None:
        return "producer"
    if isinstance(value, Compression):
        return "uncompressed" if value is Compression.NONE else value.label
    if isinstance(value, TimestampType):
        return value.label
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value)


def _parse(name: str, text: str) -> object:
    """Parse Kafka's spelling of a setting as the value of its field."""
    attribute = _FIELDS[name]
    if attribute == _RATIO:
        return _ratio(name, text)
    if attribute == "preallocate":
        return _boolean(name, text)
    if attribute == "cleanup_policy":
        return frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if attribute == "message_timestamp_type":
        for kind in (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME):
            if text == kind.label:
                return kind
        raise ValueError(f"{name} is CreateTime or LogAppendTime, not {text!r}")
    if attribute == "compression_type":
        if text == "producer":
            return None
        if text == "none":
            raise ValueError(f"{name} is 'uncompressed' rather than 'none'")
        return Compression.NONE if text == "uncompressed" else compression_named(text)
    return _integer(name, text)


def _check_setting(name: str, value: object) -> object:
    """Refuse a value out of its range; the error uses Kafka's name of the setting."""
    attribute = _FIELDS[name]
    if attribute in _RANGES:
        _check_range(name, value, *_RANGES[attribute], real=attribute == _RATIO)
    return value


def _integer(name: str, text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII) is None:
        raise ValueError(f"{name} is a number, not {text!r}")
    return int(text)


def _ratio(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} is a number, not {text!r}") from None


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def _magic_of(text: str) -> int:
    """The magic that a release stores: 2 from 0.11 on, 1 in 0.10, 0 before."""
    release = _RELEASE.fullmatch(text)
    if release is None:
        raise ValueError(f"{_FORMAT_VERSION} is a release, not {text!r}")
    major, minor = int(release[1]), int(release[2])
    if major > 0 or minor >= 11:
        return 2
    return 1 if minor == 10 else 0


#: The settings of a log about which nothing is known.
DEFAULTS: Final = LogConfig()
#: The classes of a configuration and its parts.
CONFIG_CLASSES: Final = (LogConfig, Compression, TimestampType)


# ---- a broker's names for the settings of topics -------------------------------------------------


_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


class SettingValue(NamedTuple):
    """A setting's value, in Kafka's spelling, and where it comes from."""

    value: str
    source: str


#: The sources of settings, the strongest first; `kafka` is the knowledge about all topics.
GIVEN_FOR_TOPIC: Final = "config-topic"
FROM_TOPIC: Final = "topic"
FROM_KAFKA: Final = "kafka"
FROM_BROKER: Final = "broker"
FROM_CLUSTER: Final = "cluster"
FROM_FILE: Final = "broker-config"
GIVEN: Final = "config"
#: Supposed for every topic, to answer a question with; goes before all but the topic's own.
SUPPOSED: Final = "what-if"
DEFAULT: Final = "default"

#: Where a topic's own settings come from.
OF_TOPICS: Final = frozenset({GIVEN_FOR_TOPIC, FROM_TOPIC, FROM_KAFKA})

#: Topic setting -> the broker's names for it, the strongest first, with the size of one unit.
_NAMES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
}
_TOPIC_NAMES: Final = {
    name: topic_name for topic_name, names in _NAMES.items() for name, _ in names
}
#: The names above: no other property of a broker is read, since some are secret.
BROKER_NAMES: Final = frozenset(_TOPIC_NAMES)


def topic_name_of(name: str) -> str:
    """The topic setting of a broker's property; the name itself for any other property.

    >>> topic_name_of("log.cleaner.min.compaction.lag.ms")
    'min.compaction.lag.ms'
    """
    return _TOPIC_NAMES.get(name, name)


def broker_name_of(name: str) -> str:
    """The broker's property for a setting of topics; if there are several, the strongest.

    >>> broker_name_of("retention.ms")
    'log.retention.ms'
    """
    return _NAMES[name][0][0] if name in _NAMES else f"log.{name}"


def topic_settings(properties: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """The settings of topics that a broker's properties say, by their names as topics have them.

    A smaller unit overrides a larger one, whatever their sources: a broker joins its configurations
    first.

    >>> topic_settings({"log.retention.hours": SettingValue("2", "broker-config")})
    {'retention.ms': SettingValue(value='7200000', source='broker-config')}
    """
    settings = {}
    for topic_name, names in _NAMES.items():
        for name, unit in names:
            if name in properties:
                value, source = properties[name]
                text = _in_ms(value.strip(), unit)
                if topic_name == "retention.ms" and text.startswith("-") and text[1:].isdecimal():
                    text = "-1"  # a broker treats each negative number as no limit
                settings[topic_name] = SettingValue(text, source)
                break
    return settings


def _in_ms(text: str, unit: int) -> str:
    """A number of units as a number of ms; other text is returned, and refused later."""
    if unit == 1:
        return text
    try:
        number = int(text)
    except ValueError:
        return text
    return str(number * unit if number >= 0 else -1)


def read_broker_properties(path: StrPath) -> dict[str, str]:
    """Read the settings of topics from a `server.properties`, and no other settings."""
    properties = metadata.read_properties(path_at(path))
    return {name: text for name, text in properties.items() if name in BROKER_NAMES}


@lru_cache(maxsize=4096)
def refusal_of(name: str, text: str) -> str:
    """Why Kafka would not accept a value; empty if it would. Cached: values repeat."""
    try:
        LogConfig.from_kafka({name: text})
    except ValueError as error:
        return str(error)
    return ""
