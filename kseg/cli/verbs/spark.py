"""The options of `kseg spark`: those of the verbs, with `--master` and `--job`."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from inspect import cleandoc
from typing import Any

import click

from kseg.cli.failures import refuse_verb
from kseg.cli.main import Verb
from kseg.cli.options import (
    PATH,
    CommandSettings,
    Parsed,
    choice,
    completed,
    flag,
    isolation_option,
    json_option,
    offset_and_time_options,
    on_corrupt_option,
    out_option,
    paths_argument,
    selection_options,
)
from kseg.cli.verbs.look import diff, doctor, explain, stats, verify
from kseg.cli.verbs.repair import compact, reindex
from kseg.extras import check_pyspark
from kseg.files.selection import Selection


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


#: How Spark runs a job.
_JOB_OPTIONS = (
    click.Option(
        ["--master", "cores"],
        type=Parsed("local[N]", parse_master),
        default="local[*]",
        metavar="local[N]",
        show_default=True,
        help="How many cores of this machine.",
    ),
    click.Option(
        ["--job"],
        metavar="DIR",
        type=PATH,
        help="Note finished pieces in DIR, and go on from there.",
    ),
)
#: Options of verbs that mean nothing for Spark's workers; they have their defaults.
_LEFT_OUT = ("jobs", "mapping", "codes", "output_dir")
#: Analyses that read stores, too.
_OF_STORES = ("stats",)
_FLEET = click.Option(
    ["--fleet"],
    is_flag=True,
    help="DIR... are of several brokers, by cluster.id and node.id: an answer each.",
)
_PATHS = click.Argument(["paths"], nargs=-1, required=True, metavar="PATH...", type=PATH)


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
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=200)) for name, command in named]
            )


@click.group(cls=Jobs, subcommand_metavar="VERB ...")
def spark() -> None:
    """Jobs over many logs through Spark, on the cores of this machine.

    'kseg VERB --spark ...' is the same as 'kseg spark VERB ...'. Each is also a function of
    kseg.spark.jobs, for your own Spark session. Needs pyspark and Java.
    """


def _add(
    name: str,
    base: click.Command,
    run: Callable[..., Any],
    *more: click.Parameter,
    without: tuple[str, ...] = (),
) -> None:
    """Add a verb as a job.

    Args:
        name: of the job.
        base: the verb; the job has its options, except for meaningless ones.
        run: takes the options by their names.
        more: parameters in addition to those of the verb.
        without: names of more parameters that the job does not have.
    """
    params_of_verb = [param for param in base.params if param.name not in (*_LEFT_OUT, *without)]
    says = f"{cleandoc(base.help or '')}\n\nSpark's workers share the work."
    params = [*more, *params_of_verb, *_JOB_OPTIONS]
    spark.add_command(Verb(name, callback=run, params=params, help=says))


def _running() -> Any:
    """The module that runs jobs, which needs pyspark."""
    check_pyspark()
    return import_module("kseg.cli.spark")


def _analysis(base: click.Command) -> Callable[..., Any]:
    """The verb itself, with Spark's workers in place of threads."""

    def run(cores: int, job: str | None, **options: Any) -> Any:
        """Run a verb's analysis on Spark; options that it lacks there have their defaults."""
        running = _running()
        for name in ("paths", "directories", "copies"):
            if name in options and base.name not in _OF_STORES:
                options[name] = running.local(options[name])
        if options.pop("fleet", False):
            return running.doctor_of_fleet(cores=cores, job=job, **_join_options(options))
        context = click.get_current_context()
        taken = (param for param in base.params if param.expose_value and param.name != "jobs")
        fixed = {param.name: param.get_default(context) for param in taken}
        assert base.callback is not None
        return running.analysis(str(base.name), base.callback, cores, job, {**fixed, **options})

    return run


def _job(name: str) -> Callable[..., Any]:
    """A function of `kseg.cli.spark`."""

    def run(**options: Any) -> Any:
        return getattr(_running(), name)(**_join_options(options))

    return run


def _join_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with those of settings and of partitions joined into one value each.

    The functions of `kseg.cli.spark` take these values; click hands each of their fields on as an
    option of its own. A verb has all fields of a value, or none.
    """
    kinds: dict[str, Any] = {"command_settings": CommandSettings, "selection": Selection}
    for name, kind in kinds.items():
        if options.keys() >= set(kind._fields):
            options[name] = kind(**{field: options.pop(field) for field in kind._fields})
    return options


for _verb in (verify, stats, diff, explain):
    _add(str(_verb.name), _verb, _analysis(_verb))
_add("doctor", doctor, _analysis(doctor), _FLEET)
_add("compact", compact, _job("compact"), _PATHS, without=("directories",))
_add("reindex", reindex, _job("reindex"), _PATHS, without=("directory",))


@spark.command("export")
@paths_argument()
@out_option("A directory to make.")
@choice(
    "--by",
    among=["partition", "date"],
    help_text="What the directories in OUT are for; dates are in UTC.",
)
@click.option(
    "--fields",
    metavar="NAME,...",
    shell_complete=completed("job_fields"),
    help="Only these, in this order.",
)
@choice(
    "--codec",
    among=["zstd", "snappy", "lz4", "gzip", "none"],
    help_text="How Parquet is compressed.",
)
@on_corrupt_option
@flag("--overwrite", help_text="Replace an earlier export in OUT.")
@isolation_option
@selection_options
@offset_and_time_options
@json_option
def export(**options: Any) -> Any:
    """Write records as Parquet: OUT/topic=orders/partition=0/... or OUT/day=2025-10-09/...

    OUT appears when it is complete, with a list of its files in OUT/_manifest.json.
    """
    return _running().export(**options)


export.params += _JOB_OPTIONS
