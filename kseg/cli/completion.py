"""`kseg completion`: the script that a shell reads, and the values that it completes.

Those are topics and partitions of the paths, and names of fields.

With wrong paths there is nothing to complete: a shell shows no errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from kseg.constants import PARTITION_KEYS
from kseg.errors import NotALogError
from kseg.files.grammar import PartitionName, parse_partition_dir

#: The most names that are read of a directory; more completions would be of no use.
_ENTRIES_MAX: Final = 100_000


def completion(shell: str) -> None:
    """Run the verb."""
    from click.shell_completion import ShellComplete, get_completion_class

    from kseg.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    # The base class's source(), as that of the class for bash first runs bash for its version.
    click.echo(ShellComplete.source(kind(cli, {}, "kseg", "_KSEG_COMPLETE")))


def topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics of the paths earlier on the line, or of the working directory."""
    names = {name.topic for name in _partitions(ctx)}
    return sorted(topic for topic in names if topic.startswith(incomplete))


def partitions(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Numbers of partitions, of the chosen topics if there are any; after a comma, one more."""
    chosen = ctx.params.get("topics") or ()
    numbers = {name.partition for name in _partitions(ctx) if not chosen or name.topic in chosen}
    return _complete_list(map(str, sorted(numbers)), incomplete)


def fields(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete a list of names of record fields, separated by commas."""
    from kseg.cli.rows import FIELD_NAMES

    return _complete_list(FIELD_NAMES, incomplete)


def job_fields(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of fields that `kseg spark export` writes; after a comma, one more."""
    with suppress(ImportError):
        from kseg.spark.jobs import EXPORT_FIELD_NAMES  # imported late: needs pyarrow

        return _complete_list(EXPORT_FIELD_NAMES, incomplete)
    return []


def partition_keys(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The values of `--partition-by`; after a comma, one more."""
    return _complete_list(PARTITION_KEYS, incomplete)


def _complete_list(names: Iterable[str], incomplete: str) -> list[str]:
    """The completions of a list with commas: other names, which begin as the last one does."""
    front, comma, last = incomplete.rpartition(",")
    earlier = front.split(",")
    return [
        f"{front}{comma}{name}" for name in names if name.startswith(last) and name not in earlier
    ]


def _partitions(ctx: click.Context) -> Iterator[PartitionName]:
    """Topics and partitions, from the names of the paths and of the directories in them."""
    # Paths are the words that are not options: where one lacks its value, click parses none.
    for path in tuple(word for word in ctx.args if not word.startswith("-")) or (".",):
        with suppress(OSError):
            yield from _parse_served_names([Path(path).resolve().name])
            with os.scandir(path) as entries:
                names = (entry.name for entry, _ in zip(entries, range(_ENTRIES_MAX), strict=False))
                yield from _parse_served_names(names)


def _parse_served_names(names: Iterable[str]) -> Iterator[PartitionName]:
    """The parsed names of partitions that a broker serves."""
    for name in names:
        with suppress(NotALogError):
            parsed = parse_partition_dir(name)
            if parsed.suffix is None:
                yield parsed
