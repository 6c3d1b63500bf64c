"""Settings with which a broker does not start, in `server.properties` and in the metadata log.

Kafka checks the type and the range of each setting that it knows, before it loads a log: those of
its file when it reads this, those of every topic when it makes the configurations of logs. A name
that it does not know is ignored.

Source: Kafka `KafkaConfig`, `LogManager.fetchTopicConfigOverrides`, `LogConfig`,
`DynamicConfigPublisher`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kseg.analysis.doctor.words import BrokerFinding, finding
from kseg.commands import command_line
from kseg.files.selection import some_of
from kseg.internal.releases import definitions, refused_settings
from kseg.log.settings import BROKER_NAMES, TOPIC, Cluster, broker_name_of

#: A value of a broker's file that is shown. Another may belong to a password.
_SHOWN: Final = re.compile(r"[\d+.-]{0,20}", re.ASCII)
#: The bytes of a byte-order mark in UTF-8, as Java reads them.
_BYTE_ORDER_MARK: Final = "\u00ef\u00bb\u00bf"
_PROVIDER: Final = re.compile(r"config\.providers\.[^.]+\.class")
_REMOTE_SYSTEM: Final = "remote.log.storage.system.enable"
_NAMES_MAX: Final = 3


def of_properties(
    path: str | Path, properties: Mapping[str, str], release: str
) -> Iterator[BrokerFinding]:
    """The settings of a broker's file that Kafka refuses, ignores or misses.

    Args:
        path: of the file.
        properties: everything in it.
        release: of Kafka.
    """
    broker_definitions = definitions("broker", release)
    has_provider = any(_PROVIDER.fullmatch(name) for name in properties)
    plain = {
        name: text for name, text in properties.items() if not (has_provider and "${" in text)
    }  # the others are known to the provider alone
    for name, allowed in refused_settings("broker", plain, release).items():
        text = properties.get(name, "")
        is_shown = name in BROKER_NAMES and _SHOWN.fullmatch(text)
        yield finding(
            "setting-refused" if is_shown else "setting-refused.hidden",
            path,
            "setting-refused",
            name=name,
            value=text,
            comment="#" if "#" in text else None,
            release=release,
            allowed=allowed,
        )
    for name in properties:
        if name.startswith(_BYTE_ORDER_MARK):
            yield finding("setting-ignored.mark", path, name=name.removeprefix(_BYTE_ORDER_MARK))
        elif name not in broker_definitions and name in definitions("topic", release):
            yield finding("setting-ignored", path, name=name, right=broker_name_of(name))
    if "process.roles" not in properties and int(release.partition(".")[0]) >= 4:
        yield finding("setting-missing", path)


def of_topics(
    log: Path, cluster: Cluster, properties: Mapping[str, str] | None, release: str
) -> Iterator[BrokerFinding]:
    """The settings of topics that Kafka refuses, and tiered topics of a broker without a tier.

    Args:
        log: the directory of the metadata log.
        cluster: what it says.
        properties: of the broker's file; None without one.
        release: of Kafka.
    """
    tiered = []
    refused: dict[tuple[str, str], dict[str, str]] = {}
    for topic in sorted(cluster.topics.values()):
        facts = cluster.configs.get((TOPIC, topic), {})
        values = {name: fact.value for name, fact in facts.items()}
        for setting in refused_settings("topic", values, release).items():
            refused.setdefault(setting, {})[topic] = values[setting[0]]
        if values.get("remote.storage.enable", "").lower() == "true":
            tiered.append(topic)
    for (name, allowed), texts in refused.items():
        of_topics = [f"{text!r} in topic {topic}" for topic, text in texts.items()]
        yield finding(
            "setting-refused.topic",
            log,
            name=name,
            values=some_of(of_topics, _NAMES_MAX),
            release=release,
            allowed=allowed,
            topic=command_line(*texts if len(texts) == 1 else ("TOPIC",)),
        )
    is_off = properties is not None and properties.get(_REMOTE_SYSTEM, "").lower() != "true"
    if tiered and is_off:
        yield finding("tier-off", log, topics=some_of(tiered, _NAMES_MAX))
