"""The settings of the partitions of a command line: what was given, and what the broker has."""

from __future__ import annotations

from collections.abc import Sequence

import click

import kseg
from kseg.cli.options import Setting, by_topic, check_settings, config_of
from kseg.cli.paths import Partition


def given_settings(
    partitions: Sequence[Partition], settings: Sequence[Setting]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """What `--config` says for every topic, and by topic.

    Raises:
        UsageError: a setting is none, or of a topic that is not here.
    """
    topics = {each.topic for each in partitions}
    check_settings(settings, topics)
    for topic in topics:
        config_of(settings, topic)
    return by_topic(settings)


def known_settings(
    partitions: Sequence[Partition],
    settings: Sequence[Setting],
    *,
    broker_config: str | None,
    metadata_dir: str | None,
) -> kseg.Settings:
    """Read the settings of partitions from where the broker has them.

    Args:
        partitions: whose data directories are looked at.
        settings: of `--config`.
        broker_config: of `--broker-config`, and
        metadata_dir: of `--metadata-dir`; see `options.broker_options`.

    Raises:
        UsageError: a setting is none, or of a topic that is not here.
        OSError: a file cannot be read.
    """
    plain, own = given_settings(partitions, settings)
    try:
        return kseg.settings(
            sorted({each.path.resolve().parent for each in partitions}),
            metadata_directory=metadata_dir,
            broker_config=broker_config,
            config=plain,
            topic_config=own,
        )
    except ValueError as error:
        raise click.UsageError(f"{error}.") from None
