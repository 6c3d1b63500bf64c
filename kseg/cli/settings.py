"""The settings of partitions: given on the command line, or found beside the logs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kseg
from kseg.cli import output
from kseg.cli.failures import complain_of, usage_errors
from kseg.cli.parsing import CommandSettings, Setting, by_topic
from kseg.errors import KsegError, UnsupportedFormatError
from kseg.files import metadata
from kseg.files.names import Partition
from kseg.files.selection import Selection, some_of
from kseg.log.config import LogConfig

if TYPE_CHECKING:
    from kseg.log.settings import SettingValue


def data_directories(
    paths: Sequence[str], command_settings: CommandSettings
) -> tuple[tuple[str, ...], CommandSettings]:
    """The data directories DIR... of a verb; a `server.properties` stands for its `log.dirs`.

    Args:
        paths: partition directories, data directories, or a broker's `server.properties`. Without
            any, the file of `--broker-config` is taken.
        command_settings: the other settings.

    Returns:
        The directories, and the same settings, with that file as `--broker-config` if not given.

    Raises:
        UsageError: the file names no directory, or is malformed.
        OSError: it cannot be read.
    """
    files = [path for path in paths if path.endswith(".properties") and os.path.isfile(path)]
    if not paths and command_settings.broker_config is not None:
        paths = files = [command_settings.broker_config]
    directories: dict[str, None] = {}
    for path in paths:
        directories |= dict.fromkeys(_named_in(path) if path in files else [path])
    if command_settings.broker_config is None and files:
        command_settings = command_settings._replace(broker_config=files[0])
    return tuple(directories), command_settings


def _named_in(file: str) -> tuple[str, ...]:
    """The data directories that a broker's file names."""
    with usage_errors():
        properties = metadata.read_properties(file)
    named = metadata.log_directories(properties)
    if not named:
        raise click.UsageError(f"{file} has no log.dirs; give the data directories themselves.")
    metadata_directory = properties.get("metadata.log.dir", "").strip()
    return (*named, metadata_directory) if metadata_directory else named


def config_of(settings: Sequence[Setting], topic: str | None = None) -> LogConfig:
    """The settings of a topic's logs over Kafka's defaults; of one name the last counts.

    Raises:
        UsageError: a name is not known, or a value is out of its range.
    """
    plain, of_topics = by_topic(settings)
    with usage_errors("--config"):
        return LogConfig.from_kafka(plain, of_topic=of_topics.get(topic or "", {}))


def check_settings(settings: Sequence[Setting], topics: Iterable[str | None]) -> None:
    """Refuse settings of topics that are not here, such as misspelt ones.

    Raises:
        UsageError: names it.
    """
    present = set(topics)
    for setting in settings:
        if setting.topic is not None and setting.topic not in present:
            why = Selection((setting.topic,)).why_nothing((topic, 0) for topic in present)
            raise click.UsageError(f"{setting.topic}:{setting.name}: {why}")


def check_named(partitions: Sequence[Partition], command_settings: CommandSettings) -> None:
    """Refuse `--config` values that are not settings of these partitions.

    Raises:
        UsageError: a setting is invalid, or of a topic that is not here.
    """
    topics = {partition.topic for partition in partitions}
    check_settings(command_settings.settings, topics)
    for topic in topics:
        config_of(command_settings.settings, topic)


def known_settings(
    partitions: Sequence[Partition],
    command_settings: CommandSettings,
    directories: Sequence[str] = (),
) -> kseg.reports.Settings:
    """Read the settings of partitions from where the broker has them.

    Args:
        partitions: whose data directories are looked at.
        command_settings: values that override the broker's.
        directories: as they were given: one without a chosen partition may have the metadata log.

    Raises:
        UsageError: a setting is invalid, or of a topic that is not here.
        OSError: a file cannot be read.
    """
    check_named(partitions, command_settings)
    unnamed = {Path(path).resolve() for path in directories}
    homes = {partition.path.resolve().parent for partition in partitions}
    homes |= unnamed - {partition.path.resolve() for partition in partitions}
    with usage_errors():
        return kseg.settings(sorted(homes), **command_settings.arguments)


def known_configs(
    partitions: Sequence[Partition],
    command_settings: CommandSettings,
    directories: Sequence[str] = (),
) -> dict[Path, LogConfig]:
    """The configuration of each partition, for verbs that delete nothing by it.

    Values that cannot be parsed are reported on standard error. For the arguments and errors see
    `known_settings`.
    """
    settings = known_settings(partitions, command_settings, directories)
    of_partitions = [settings.of(partition.path) for partition in partitions]
    complain_of(settings.findings)
    for partition_settings in of_partitions:
        complain_of(partition_settings.findings)
    return {
        partition_settings.path: partition_settings.config for partition_settings in of_partitions
    }


def settings_fields(settings: kseg.reports.PartitionSettings) -> dict[str, Any]:
    """The fields about settings of a partition's document."""
    return {"settings": settings.to_json(), "notes": list(settings.notes)}


def defaults_lines(
    settings: Iterable[tuple[str | None, Mapping[str, SettingValue]]],
) -> Iterator[str]:
    """Lines with the topics that Kafka's defaults clean up.

    Args:
        settings: topics, each with the settings of a partition.
    """
    topics: dict[str, set[str]] = {}
    for topic, values in settings:
        defaults = {
            name: value.value for name, value in values.items() if value.source == "default"
        }
        limits = "retention.bytes" in defaults or "retention.ms" in defaults
        texts = [
            f"{name}={defaults[name]}"
            for name in ("cleanup.policy", "retention.ms")
            if name in defaults
        ]
        if texts and limits and topic is not None and "delete" in values["cleanup.policy"].value:
            topics.setdefault(", ".join(texts), set()).add(topic)
    for text, named in topics.items():
        yield f"Kafka's default: {text} for {some_of(sorted(named))}, which no other source sets"


def say_of_settings(
    findings: Iterable[KsegError], settings: Iterable[kseg.reports.PartitionSettings]
) -> None:
    """Report on standard error values that cannot be parsed, and changes that may be uncommitted.

    Kafka's defaults that decide on deletion are reported, too.
    """
    complain_of(findings)
    settings = list(settings)
    output.write_lines(
        defaults_lines((of_partition.topic, of_partition.values) for of_partition in settings)
    )
    notes = {
        (str(of_partition.topic), note) for of_partition in settings for note in of_partition.notes
    }
    output.write_lines(f"{topic}: {note}" for topic, note in sorted(notes))


def have_damage(findings: Iterable[KsegError]) -> bool:
    """Whether some of them are damage, and not only newer than this version of kseg."""
    return any(not isinstance(finding, UnsupportedFormatError) for finding in findings)
