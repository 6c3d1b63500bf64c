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

from kseg.analysis.doctor.values import BrokerFinding, finding
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
    known = definitions("broker", release)
    has_provider = any(_PROVIDER.fullmatch(name) for name in properties)
    plain = {
        name: text for name, text in properties.items() if not (has_provider and "${" in text)
    }  # the others are known to the provider alone
    for name, allowed in refused_settings("broker", plain, release).items():
        text = properties.get(name, "")
        is_shown = name in BROKER_NAMES and _SHOWN.fullmatch(text)
        value = f"is {text!r}" if is_shown else "has a value that is not shown"
        message = f"{name} {value}; Kafka {release} takes {allowed}, and does not start"
        comment = "; a comment needs a line of its own" if "#" in text else ""
        yield finding("setting-refused", path, message, f"correct {name} in the file{comment}")
    for name in properties:
        if name.startswith(_BYTE_ORDER_MARK):
            right = name.removeprefix(_BYTE_ORDER_MARK)
            message = f"a byte-order mark before {right}: Kafka reads another name, and ignores it"
            yield finding("setting-ignored", path, message, "save the file without the mark")
        elif name not in known and name in definitions("topic", release):
            message = f"{name} is a setting of topics, which Kafka ignores in a broker's file"
            mend = f"write {broker_name_of(name)} in its place"
            yield finding("setting-ignored", path, message, mend)
    if "process.roles" not in properties and int(release.partition(".")[0]) >= 4:
        message = "no process.roles: if this is the whole file, no broker since Kafka 4.0 starts"
        yield finding("setting-missing", path, message, "add process.roles=broker,controller")


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
        yield _refused_of_topics(log, name, allowed, texts, release)
    is_off = properties is not None and properties.get(_REMOTE_SYSTEM, "").lower() != "true"
    if tiered and is_off:
        yield finding(
            "tier-off",
            log,
            f"{some_of(tiered, _NAMES_MAX)}: the records in the tier cannot be read, and changed "
            f"settings do not take effect, since {_REMOTE_SYSTEM} is not true",
            f"set {_REMOTE_SYSTEM}=true in server.properties",
        )


def _refused_of_topics(
    log: Path, name: str, allowed: str, texts: Mapping[str, str], release: str
) -> BrokerFinding:
    """A setting that Kafka refuses, with its value in each topic."""
    where = [f"{text!r} in topic {topic}" for topic, text in texts.items()]
    topic = next(iter(texts)) if len(texts) == 1 else "TOPIC"
    alter = ("kafka-configs.sh", "--bootstrap-server", "HOST:PORT", "--alter")
    entity = ("--entity-type", "topics", "--entity-name", topic, "--delete-config", name)
    return finding(
        "setting-refused",
        log,
        f"{name} is {some_of(where, _NAMES_MAX)}; Kafka {release} takes {allowed}, and does not "
        "start",
        "start a release that takes it, and remove the setting from each topic there:\n"
        + command_line(*alter, *entity),
    )
