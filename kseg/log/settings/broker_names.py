"""A broker's names for the settings of topics, and the units that they come in.

Source: Kafka `ServerTopicConfigSynonyms`, `AbstractKafkaConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


class SettingValue(NamedTuple):
    """A setting's value, in Kafka's spelling, and where it comes from."""

    value: str
    source: str


#: Topic setting -> the broker's names for it, the strongest first, with what one unit is.
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
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
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
_TOPIC_NAMES: Final = {name: own for own, names in _NAMES.items() for name, _ in names}
#: The names above: no other property of a broker is looked at, since some are secret.
BROKER_NAMES: Final = frozenset(_TOPIC_NAMES)


def topic_name_of(name: str) -> str:
    """The setting of topics that a broker's property is; the name as it is where it is none.

    >>> topic_name_of("log.cleaner.min.compaction.lag.ms")
    'min.compaction.lag.ms'
    """
    return _TOPIC_NAMES.get(name, name)


def topic_settings(properties: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """The settings of topics that a broker's properties say, by their names as topics have them.

    A smaller unit goes before a larger one, wherever the two come from: a broker joins its
    configurations first.

    >>> topic_settings({"log.retention.hours": SettingValue("2", "broker-config")})
    {'retention.ms': SettingValue(value='7200000', source='broker-config')}
    """
    found = {}
    for topic_name, names in _NAMES.items():
        for name, unit in names:
            if name in properties:
                value, source = properties[name]
                found[topic_name] = SettingValue(_in_ms(value.strip(), unit), source)
                break
    return found


def _in_ms(text: str, unit: int) -> str:
    """A number in a unit; what is none stays as it is, and is refused later."""
    if unit == 1:
        return text
    try:
        number = int(text)
    except ValueError:
        return text
    return str(number * unit if number >= 0 else -1)
