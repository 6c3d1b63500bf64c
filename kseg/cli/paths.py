"""From the PATHs of a command line to the catalog that a verb goes through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import click

from kseg.catalog.catalog import Catalog, Files, ReplicasError, named_paths
from kseg.cli.failures import Exit, complain, has_passed_over, pass_over, usage_errors
from kseg.errors import NotALogError
from kseg.files.names import FileKind, FileName, LeftOut, Partition, parse_name
from kseg.files.selection import ALL, NothingChosenError, Selection

if TYPE_CHECKING:
    from kseg.log.tier import Tier


def tier_of_run() -> Tier | None:
    """The tier that `--tier` names, made once; None without that option.

    Raises:
        UsageError: `--tier-key` or `--topic-id` is malformed, or stands alone.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    meta = context.meta
    url = meta.get("kseg.tier")
    key_options = meta.get("kseg.tier_key") or ()
    topic_id = meta.get("kseg.topic_id")
    if url is None:
        if key_options or topic_id:
            raise click.UsageError("--tier-key and --topic-id need --tier.")
        return None
    if not isinstance(url, str):
        return cast("Tier", url)
    from kseg.log.tier import Tier  # few runs have one

    pairs = [key_option.partition("=") for key_option in key_options]
    if not all(id_ and file for id_, _, file in pairs):
        raise click.UsageError("--tier-key is ID=FILE.")
    with usage_errors():
        tier = Tier.of(url, keys={id_: file for id_, _, file in pairs}, topic_id=topic_id)
    meta["kseg.tier"] = tier
    return tier


def tier_of_plans() -> Tier:
    """The tier of this run, or the metadata topics beside the partitions; each is read once."""
    from kseg.log.tier import Tier

    return tier_of_run() or Tier.beside()


def catalog_of(
    paths: Sequence[str],
    selection: Selection = ALL,
    *,
    files: Files = "refuse",
    replicas: str = "all",
    set_aside: bool = False,
    strict: bool = False,
) -> Catalog:
    """The partitions at paths; see `Catalog.of`.

    Reports an unreadable path on standard error and skips it: the verb goes on with the rest, and
    exits with 1 if it finds damage, else with 3.

    Args:
        paths: as they were typed.
        selection: of topics and partitions.
        files, replicas, set_aside: as for `Catalog.of`.
        strict: skip nothing, for verbs that remove records.

    Raises:
        NotALogError: a path is not Kafka's, or nothing in all of them is chosen.
        UsageError: a path is standard input, which most verbs do not read.
        Exit: two directories are of one partition, which was reported, with the ways out.
        OSError: the only path cannot be read; with `strict`, any of them.
    """
    with usage_errors():
        named = named_paths(paths)
    with catalog_errors(paths):
        catalog = Catalog.of(
            named,
            selection,
            tier=tier_of_run(),
            replicas=replicas,
            set_aside=set_aside,
            on_error="raise" if strict else "skip",
            files=files,
        )
    check_catalog(paths, catalog.partitions, catalog.skipped)
    return catalog


@contextmanager
def catalog_errors(paths: Sequence[str]) -> Iterator[None]:
    """Answer the refusals of a catalog as a command line does; see `catalog_of`."""
    if "-" in paths:
        raise click.UsageError("- is standard input, which only dump and convert take for a PATH.")
    try:
        yield
    except NothingChosenError as error:
        raise NotALogError(str(error), path=", ".join(paths)) from None
    except ReplicasError as error:
        complain(f"kseg: {error.reason}:", f"  {error.command}")
        raise click.exceptions.Exit(Exit.USAGE) from None


def check_catalog(
    paths: Sequence[str], partitions: Sequence[Partition], skipped: Sequence[LeftOut]
) -> None:
    """Report what was skipped, and refuse hand-made names that the library takes.

    Raises:
        NotALogError: a file has the extension of a segment after text that is not an offset.
        OSError: the only path cannot be read.
    """
    for entry in skipped:
        assert entry.error is not None
        if len(paths) == 1 and not partitions:
            raise entry.error
        pass_over(entry.error)
    for partition in partitions:
        if partition.file is None or partition.file.base_offset is not None:
            continue
        try:
            parse_name(partition.path.name)
        except NotALogError as error:
            raise NotALogError(
                f"{error.reason}; on standard input, as -, dump and convert take any",
                path=partition.path,
            ) from None


def one_partition(paths: Sequence[str], selection: Selection, *, strict: bool = False) -> Partition:
    """The chosen partition, for verbs that take exactly one.

    Raises:
        UsageError: there is none, or several.
        Exit: it cannot be read, which was reported.
        NotALogError, OSError: as `catalog_of` has it.
    """
    catalog = catalog_of(paths, selection, strict=strict)
    if not catalog.partitions and has_passed_over():
        raise click.exceptions.Exit(Exit.FILES)
    if len(catalog) != 1:
        raise click.UsageError(
            f"{len(catalog)} partitions here, and one is wanted; --topic and --partition choose it."
        )
    return catalog.partitions[0]


class InputFile(NamedTuple):
    """One file to go through.

    Attributes:
        path: the file.
        name: its parsed name.
        partition: that was named, as a directory or by a data directory; None for a file that was
            named itself.
    """

    path: Path
    name: FileName
    partition: Partition | None = None

    @property
    def directory(self) -> str | None:
        """The name of the partition directory; None for a file that was named itself."""
        return None if self.partition is None else self.partition.path.resolve().name


def batch_files(partition: Partition) -> list[InputFile]:
    """A file that was named itself, or segments and KRaft snapshots of a partition, by name."""
    if partition.file is not None:
        return [InputFile(partition.path, partition.file)]
    listing = partition.files
    if partition.tier is not None:
        listing = partition.tier.log(partition.path).view.files
    files = [
        InputFile(
            segment.log,
            FileName(FileKind.KAFKA07 if segment.kafka07 else FileKind.LOG, segment.base_offset),
            partition,
        )
        for segment in listing.segments
    ]
    files += [InputFile(entry.path, entry.name, partition) for entry in listing.kraft_snapshots]
    return sorted(files, key=lambda file: file.path.name)
