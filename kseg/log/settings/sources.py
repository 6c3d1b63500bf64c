"""Where the settings of partitions are looked for, in directories of one broker or several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files import metadata
from kseg.files.names import FileKind
from kseg.log.config import LogConfig
from kseg.log.data_directory import CLUSTER_METADATA
from kseg.log.settings.joined import Settings, settings


@dataclass(frozen=True, slots=True)
class SettingSources:
    """What a caller names beside the data directories; see `settings`.

    Attributes:
        metadata_directory: the data directory with `__cluster_metadata-0`, if it is another one.
        broker_config: the broker's `server.properties`.
        config: settings for every topic, weaker than what the broker has.
        topic_config: settings by topic, stronger than that.
        supposed: settings to answer a question with, see `Settings.supposing`; None where files
            are changed by the settings.
    """

    metadata_directory: str | PathLike[str] | None = None
    broker_config: str | PathLike[str] | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    topic_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    supposed: Mapping[str, str] | None = None

    def check(self) -> None:
        """Refuse what is no setting, also where no partition would ask for it.

        Raises:
            ValueError: names it.
        """
        for each in (self.config, self.supposed or {}, *self.topic_config.values()):
            LogConfig.from_kafka(each)

    def read(self, homes: Sequence[Path]) -> Settings:
        """The settings in the data directories of one broker.

        Raises:
            ValueError: two of them have a metadata log, or `broker_config` is malformed.
            OSError: a file cannot be read.
        """
        found = settings(
            homes,
            metadata_directory=self.metadata_directory,
            broker_config=self.broker_config,
            config=self.config,
            topic_config=self.topic_config,
        )
        return found if self.supposed is None else found.supposing(self.supposed)

    def groups(self, homes: Iterable[Path]) -> list[list[Path]]:
        """Data directories that share a metadata log.

        All do where at most one is known. Else those of a broker share its log, by their ids, and
        where that has several of them, too, each directory has its own alone.
        """
        different = sorted(set(homes))
        if self.metadata_directory is not None or len(_logs(different)) <= 1:
            return [different] if different else []
        return [
            group
            for broker in group_by_broker(different)
            for group in ([broker] if len(_logs(broker)) <= 1 else [[home] for home in broker])
        ]

    def by_home(self, homes: Iterable[Path]) -> dict[Path, Settings]:
        """The settings in each data directory, of whichever broker it is.

        Raises:
            ValueError: `broker_config` is malformed.
            OSError: a file cannot be read.
        """
        found: dict[Path, Settings] = {}
        for group in self.groups(homes):
            found |= dict.fromkeys(group, self.read(group))
        return found


def group_by_broker(homes: Iterable[Path]) -> list[list[Path]]:
    """Data directories by broker, in order; one whose ids are not known is by itself."""
    groups: dict[object, list[Path]] = {}
    for home in homes:
        groups.setdefault(_broker_of(home), []).append(home)
    return list(groups.values())


def _broker_of(home: Path) -> object:
    """Cluster and node, or the directory itself."""
    try:
        found = metadata.read_meta_properties(home / FileKind.META_PROPERTIES.value)
    except (CorruptIndexError, LimitExceededError, OSError):
        return home
    if found.cluster_id is None or found.node_id is None:
        return home
    return found.cluster_id, found.node_id


def _logs(homes: Iterable[Path]) -> list[Path]:
    return [home for home in homes if os.path.isdir(home / f"{CLUSTER_METADATA}-0")]


__all__ = ["SettingSources", "group_by_broker"]
