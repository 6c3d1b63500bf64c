"""From the words of a command line to the partitions and records that a verb works on.

Those are the PATHs and the tier; and the settings of partitions, given or found beside the logs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

import kseg
from kseg.catalog import Catalog, Files, ReplicasError, named_paths
from kseg.cli import output
from kseg.cli.failures import Exit, complain, complain_of, has_passed_over, pass_over, usage_errors
from kseg.cli.options import CommandSettings, Paths, Setting, by_topic
from kseg.constants import SCHEMA_WORDS
from kseg.errors import KsegError, NotALogError, SchemaError, UnsupportedFormatError
from kseg.files import metadata
from kseg.files.names import FileKind, FileName, LeftOut, Partition, parse_name
from kseg.files.selection import ALL, NothingChosenError, Selection, some_of
from kseg.stores.path import path_at

if TYPE_CHECKING:
    from kseg.log.config import LogConfig
    from kseg.log.settings import SettingValue
    from kseg.log.tier import Tier
    from kseg.records.stream import Scan


def tier_of_run() -> Tier | None:
    """The tier that `--tier` names, made once; None if it was not given.

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
    from kseg.log.tier import Tier  # imported late: few runs have a tier

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
        selection: the chosen topics and partitions.
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
    """Turn the errors of a catalog in this block into those of a command line; see `catalog_of`."""
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
    """The chosen partition, for verbs that work on exactly one.

    Raises:
        UsageError: no partition is chosen, or several.
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
    """One file to read.

    Attributes:
        path: the file.
        name: its parsed name.
        partition: its partition, if a directory was named; None for a file that was named itself.
    """

    path: Path
    name: FileName
    partition: Partition | None = None

    @property
    def directory(self) -> str | None:
        """The name of the partition directory; None for a file that was named itself."""
        return None if self.partition is None else self.partition.path.resolve().name


def batch_files(partition: Partition) -> list[InputFile]:
    """The segments and KRaft snapshots of a partition, sorted by name; or the named file."""
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


def scanned(paths: Paths, query: dict[str, Any]) -> Scan:
    """The records that a command line asks for; reports the paths that cannot be read.

    Args:
        paths: as they were typed.
        query: the answers to questions, as `kseg.scan` takes them; `schemas` are places.

    Raises:
        UsageError: options do not go together, or no schema, or several, could be meant.
        Exit: two directories are of one partition, which was reported.
        NotALogError: nothing is there, or nothing is chosen.
        OSError: the only path cannot be read.
    """
    from kseg import schemas
    from kseg.records.scan import scan

    decode = query.get("decode", {})
    places = query.get("schemas")
    if {*decode.values()} & set(SCHEMA_WORDS) - {"json:struct"}:
        try:
            query = {**query, "schemas": schemas(places or paths)}
        except NotALogError as error:
            where = "" if places else "; name its data directory, or a registry: --schemas DATA"
            raise NotALogError(error.reason + where, path=error.path) from None
    query = {**query, "tier": tier_of_run(), "on_error": "skip"}
    try:
        with usage_errors(), catalog_errors(paths):
            records = scan(map(path_at, paths), **query)
    except SchemaError as error:
        raise click.UsageError(f"{error}.") from None
    check_catalog(paths, records.sources, records.skipped)
    return records


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
    """The configuration of a topic's logs: Kafka's defaults, changed by settings.

    If a name occurs more than once, its last value counts.

    Raises:
        UsageError: a name is not known, or a value is out of its range.
    """
    from kseg.log.config import LogConfig  # imported late: a dump does not need it

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
        partitions: the partitions, whose data directories are examined.
        command_settings: values that override the broker's.
        directories: the directories that were given, as one without a chosen partition may have the
            metadata log.

    Raises:
        UsageError: a setting is invalid, or of a topic that is not here.
        OSError: a file cannot be read.
    """
    check_named(partitions, command_settings)
    unnamed = {Path(path).resolve() for path in directories}
    data_directories = {partition.path.resolve().parent for partition in partitions}
    data_directories |= unnamed - {partition.path.resolve() for partition in partitions}
    with usage_errors():
        return kseg.settings(sorted(data_directories), **command_settings.arguments)


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
    """The fields of a partition's document that are about its settings."""
    return {"settings": settings.to_json(), "notes": list(settings.notes)}


def defaults_lines(
    settings: Iterable[tuple[str | None, Mapping[str, SettingValue]]],
) -> Iterator[str]:
    """Lines about the topics from which Kafka's defaults delete records.

    Args:
        settings: (topic, the settings of one of its partitions).
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
    """Whether a finding is about damage, and not only about a format newer than this kseg."""
    return any(not isinstance(finding, UnsupportedFormatError) for finding in findings)
