"""The options of `kseg spark`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kseg.cli import change_options
from kseg.cli.failures import refuse_verb
from kseg.cli.options import (
    PATH,
    Parsed,
    completed,
    copies_argument,
    deep_option,
    directories_argument,
    explain_options,
    isolation_option,
    json_option,
    offset_and_time_options,
    on_corrupt_option,
    out_option,
    paths_argument,
    records_option,
    reindex_options,
    release_option,
    selection_options,
    settings_options,
    stats_options,
)
from kseg.cli.starting import Verb

if TYPE_CHECKING:
    Progress = Callable[[int, int], None]

_F = TypeVar("_F", bound=Callable[..., Any])


def parse_master(text: str) -> int:
    """`local[N]` as N; `local` is one core, `local[*]` all of them.

    >>> parse_master("local[4]")
    4
    """
    match = re.fullmatch(r"local(?:\[(\*|[1-9][0-9]{0,3})\])?", text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not local[N]; on a cluster, call kseg.spark.jobs from your own program"
        )
    if match[1] == "*":
        from kseg.workers import usable_cores

        return usable_cores()
    return int(match[1] or 1)


def job_options(function: _F) -> _F:
    """`--master` and `--job`."""
    function = click.option(
        "--job",
        metavar="DIR",
        type=PATH,
        help="Note finished pieces in DIR, and go on from there.",
    )(function)
    return click.option(
        "--master",
        "cores",
        type=Parsed("local[N]", parse_master),
        default="local[*]",
        metavar="local[N]",
        show_default=True,
        help="How many cores of this machine.",
    )(function)


class Jobs(click.Group):
    """A group that lists its verbs with the whole first line of each."""

    command_class = Verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The job; an error for an unknown one says verb, as `kseg` itself does."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            refuse_verb(ctx, args[0], self.commands)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the jobs."""
        with formatter.section("Verbs"):
            named = sorted(self.commands.items())
            formatter.write_dl([(name, one.get_short_help_str(limit=200)) for name, one in named])


@click.group(cls=Jobs, subcommand_metavar="VERB ...")
def spark() -> None:
    """Jobs over many logs through Spark, on the cores of this machine.

    Each is also a function of kseg.spark.jobs, for your own Spark session. Needs pyspark and Java.
    """


@spark.command("verify")
@paths_argument
@deep_option
@job_options
@selection_options
@json_option
def verify(**given: Any) -> int:
    """Check every byte, as 'kseg verify' does, with the same answer."""
    from kseg.cli.spark import verify as run

    return run(**given)


@spark.command("diff")
@copies_argument
@records_option
@job_options
@selection_options
@json_option
def diff(**given: Any) -> int:
    """Compare copies with the first one, as 'kseg diff' does, with the same answer."""
    from kseg.cli.spark import diff as run

    return run(**given)


@spark.command("stats")
@paths_argument
@stats_options
@job_options
@selection_options
@json_option
def stats(**given: Any) -> int:
    """Count what fills the disk, as 'kseg stats' does, with the same answer."""
    from kseg.cli.spark import stats as run

    return run(**given)


@spark.command("doctor")
@directories_argument(required=True)
@click.option(
    "--fleet",
    is_flag=True,
    help="DIR... are of several brokers, told apart by cluster.id and node.id: an answer each.",
)
@release_option
@settings_options
@job_options
@json_option
def doctor(**given: Any) -> int:
    """Say whether a broker starts on DIR..., as 'kseg doctor' does, with the same answer.

    Give all data directories of the broker; with --fleet those of several.
    """
    from kseg.cli.spark import doctor as run

    return run(**given)


@spark.command("explain")
@directories_argument(required=True)
@explain_options
@settings_options
@job_options
@json_option
def explain(**given: Any) -> int:
    """Say what keeps each byte of DIR..., as 'kseg explain' does, with the same answer.

    DIR... may be those of several brokers: each has the settings of its own metadata log.
    """
    from kseg.cli.spark import explain as run

    return run(**given)


@spark.command("export")
@paths_argument
@out_option("A directory to make.")
@click.option(
    "--by",
    type=click.Choice(["partition", "date"]),
    default="partition",
    show_default=True,
    help="What the directories in OUT are for; dates are in UTC.",
)
@click.option(
    "--fields",
    metavar="NAME,...",
    shell_complete=completed("job_fields"),
    help="Only these, in this order.",
)
@click.option(
    "--codec",
    type=click.Choice(["zstd", "snappy", "lz4", "gzip", "none"]),
    default="zstd",
    show_default=True,
    help="How Parquet is compressed.",
)
@on_corrupt_option
@click.option("--overwrite", is_flag=True, help="Replace an earlier export in OUT.")
@job_options
@isolation_option
@selection_options
@offset_and_time_options
@json_option
def export(**given: Any) -> int:
    """Write records as Parquet: OUT/topic=orders/partition=0/... or OUT/date=2025-10-09/...

    OUT appears when it is complete, with a list of its files in OUT/_manifest.json.
    """
    from kseg.cli.spark import export as run

    return run(**given)


@spark.command("compaction")
@paths_argument
@settings_options
@job_options
@isolation_option
@selection_options
@json_option
def compaction(**given: Any) -> int:
    """Show what compaction would save: how many records are not the last of their key.

    Sizes of records are those of key and value before compression. The savings in log files are an
    estimate from these, for all segments whatever the policy. Beside them stands what the next
    compaction would save, as 'kseg compact' plans it; logs in a store have no plan.
    """
    from kseg.cli.spark import compaction as run

    return run(**given)


@spark.command("compact")
@paths_argument
@change_options.backup_dir_option
@change_options.apply_option
@settings_options
@change_options.compaction_options
@job_options
@selection_options
@json_option
def compact(**given: Any) -> int:
    """Say what compaction would leave of logs: of each key the last record.

    As 'kseg compact', over many data directories. A task takes up to --map-bytes of memory. Changes
    nothing without --apply.
    """
    from kseg.cli.spark import compact as run

    return run(**given)


@spark.command("reindex")
@paths_argument
@reindex_options
@change_options.apply_option
@change_options.backup_options
@job_options
@selection_options
@settings_options
@json_option
def reindex(**given: Any) -> int:
    """Show which indexes and snapshots do not fit their logs, and make them anew.

    As 'kseg reindex', over many data directories. Changes nothing without --apply.
    """
    from kseg.cli.spark import reindex as run

    return run(**given)
