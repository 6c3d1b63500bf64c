"""Which records are decoded as those of an internal topic: of files that are asked for, or by name.

It loads no schema: few files belong to such a topic. The rows of their records are in `decoded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from kseg.cli.paths import partition_at
from kseg.files.grammar import FileKind
from kseg.internal import InternalTopic

if TYPE_CHECKING:
    from pathlib import Path

#: What `--decode` takes.
NAMES: Final = {
    "offsets": InternalTopic.OFFSETS,
    "transactions": InternalTopic.TRANSACTIONS,
    "metadata": InternalTopic.METADATA,
    "share": InternalTopic.SHARE,
    "remote": InternalTopic.REMOTE,
}
_SNAPSHOTS: Final = (FileKind.CHECKPOINT_KRAFT, FileKind.BOOTSTRAP)


class Decoding(NamedTuple):
    """Which records are decoded.

    Attributes:
        given: those of every file, by this topic's schemas.
        by_name: those of files that belong to an internal topic.
    """

    given: InternalTopic | None = None
    by_name: bool = False

    def topic(
        self, topic: str | None, path: Path | None, kind: FileKind | None
    ) -> InternalTopic | None:
        """The internal topic by whose schemas to decode; None for none.

        Args:
            topic: of the partition directory, where that was asked for.
            path: of a file that was asked for itself.
            kind: of the file.
        """
        if self.given is not None or not self.by_name:
            return self.given
        if kind in _SNAPSHOTS:
            return InternalTopic.METADATA
        if topic is None and path is not None:
            topic = partition_at(path.absolute().parent).topic
        return InternalTopic(topic) if topic in set(InternalTopic) else None


def decoding(decode_as: str | None, raw: bool) -> Decoding:
    """What `--decode` and `--raw` ask for.

    Raises:
        UsageError: both are given.
    """
    if decode_as is not None and raw:
        raise click.UsageError("--raw and --decode exclude each other.")
    return Decoding(None if decode_as is None else NAMES[decode_as], by_name=not raw)
