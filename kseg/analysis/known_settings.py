"""The settings of partitions for an analysis; settings that cannot be read become a message."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path

from kseg.errors import KsegError
from kseg.log.settings import Cluster, SettingSources
from kseg.reports import PartitionSettings, Settings


class KnownSettings:
    """The settings of the partitions of some data directories, each read once."""

    def __init__(self, sources: SettingSources, homes: Iterable[Path]) -> None:
        """Read the metadata logs.

        Raises:
            ValueError: an invalid setting is given, or `broker_config` is malformed.
        """
        sources.check()
        self.broker_config = sources.broker_config
        self._of: dict[str, PartitionSettings | str] = {}
        self._by_home: dict[Path, Settings | str] = {}
        for group in sources.groups(home.resolve() for home in homes):
            self._by_home |= dict.fromkeys(group, _read_log(sources, group))

    def of(self, path: str | PathLike[str]) -> PartitionSettings | str:
        """The settings of a partition, or the reason why they cannot be read, in words."""
        name = fspath(path)
        if name not in self._of:
            self._of[name] = self._read(path)
        return self._of[name]

    def _read(self, path: str | PathLike[str]) -> PartitionSettings | str:
        home = Path(path).resolve().parent
        known = self._by_home.get(home, "it is in none of the data directories")
        if isinstance(known, str):
            return f"the settings cannot be read: {known}"
        try:
            return known.of(path)
        except (KsegError, OSError) as error:
            return f"its settings: {error}"

    @property
    def cluster(self) -> Cluster | None:
        """The cluster as the metadata log describes it; None without such a log."""
        known = (each for each in self._by_home.values() if not isinstance(each, str))
        return next((each.cluster for each in known if each.cluster is not None), None)

    @property
    def errors(self) -> dict[Path, str]:
        """Why they cannot be read, by data directory."""
        return {home: found for home, found in self._by_home.items() if isinstance(found, str)}


def _read_log(sources: SettingSources, group: list[Path]) -> Settings | str:
    try:
        return sources.read(group)
    except (KsegError, OSError) as error:
        return str(error)


__all__ = ["KnownSettings"]
