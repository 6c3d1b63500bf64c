"""The program: finds the verb, loads its module, turns exceptions into exit codes.

A verb imports its heavy modules itself, so that `kseg --help` and completion are quick.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from kseg.cli import failures, starting
from kseg.cli.failures import Exit
from kseg.commands import printable
from kseg.records.query import refusal

#: Verb to the line that `kseg --help` shows.
VERBS = {
    "info": "Partitions, segments, offsets, times, codecs, sizes: from headers and indexes alone.",
    "dump": "Batches and records, index entries and checkpoints, as the files hold them.",
    "verify": "Is every byte right? CRCs, structure, offsets, indexes, snapshots, names.",
    "read": "Records from an offset or a time.",
    "grep": "Records that contain a text, or match a regular expression.",
    "lookup": "The place of an offset or a time: segment, batch position, index entry.",
    "partition": "The partition that producers send a key to.",
    "groups": "Consumer, share and streams groups: members, commits, lag, now or in the past.",
    "transactions": "Open and hanging transactions, their effects, and how to end each.",
    "schemas": "The schemas of a registry: subjects, versions, ids, and the text of one.",
    "metadata": "A cluster by the log of KRaft: topics, replicas, configurations, brokers, ACLs.",
    "export": "Records as .parquet, .arrow, .jsonl or .csv files.",
    "convert": "The same records in another format or codec.",
    "append": "Lines of JSON, as batches at the end of a log.",
    "adopt": "Logs of another place, brought into the empty topics of a stopped broker.",
    "doctor": "Will a broker start here, what would it do, and what would be lost?",
    "explain": "Why the disk is full: the reason for each byte, and until when.",
    "report": "One HTML page with plots: what fills the disk, growth, rates, sizes, findings.",
    "diff": "Are these copies the same? Where replicas or backups diverge, what each lacks.",
    "merge": "One whole copy from damaged copies: replicas, backups.",
    "salvage": "The provable part of damaged logs, in a new directory; and the exact losses.",
    "recover": "The changes of a start after a crash; --apply makes them.",
    "reindex": "Indexes and snapshots that do not match the log; --apply rebuilds them.",
    "truncate": "Cut a log back to an offset; a plan unless --apply.",
    "retain": "Old segments that retention would delete, and why; --apply deletes them.",
    "compact": "The result of compaction; --apply runs it.",
    "erase": "Records with some keys, or at some offsets: what would go; --apply erases them.",
    "stats": "What fills the disk: counts, bytes, times, codecs, record sizes, top keys.",
    "spark": "Jobs over many logs through Spark: verify, doctor, explain, diff, export and others.",
    "demo": "The tour, on a small real log: verify, show, decode, Spark; break it, repair it.",
    "completion": "Shell completion for bash, zsh or fish.",
}

#: Module in `kseg.cli.verbs` to the verbs that it declares.
_MODULES = {
    "look": "info verify grep lookup partition schemas groups transactions metadata "
    "stats doctor explain report diff demo completion",
    "move": "dump read export convert append adopt",
    "repair": "recover reindex truncate salvage merge retain compact erase",
    "spark": "spark",
}

#: The answer to `kseg` alone: the verbs that people need first, and how to see the others.
FIRST = f"""\
Apache Kafka log segments, with no broker and no JVM. First of all:

  kseg info PATH              what is there: partitions, segments, offsets, times, sizes
  kseg verify PATH            is every byte right?
  kseg read PATH              records from an offset or a time, such as --time yesterday..
  kseg export PATH -o OUT     records as .parquet, .arrow, .jsonl or .csv files
  kseg doctor DIR             will a broker start here, and what to type if not

A PATH is a log file, a partition directory such as orders-0/, or a data directory that holds many.
All {len(VERBS)} verbs: kseg --help. One of them: kseg VERB --help. A tour: kseg demo."""


class Verbs(click.Group):
    """A group that imports the module of a verb only when that verb is used."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            with failures.told_warnings():
                return failures.answer(ctx, super().invoke(ctx))
        except BrokenPipeError as error:
            # Click takes any of these for a pipe without a reader, and ends with 1.
            raise starting.PipeError from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb, or with --spark its job; an error for an unknown one names the nearest."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            failures.refuse_verb(ctx, args[0], VERBS)
        end = args.index("--") if "--" in args else len(args)
        if args and args[0] != "spark" and "--spark" in args[:end]:
            args.remove("--spark")
            args = ["spark", *args]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, out of its own module."""
        if cmd_name not in VERBS:
            return None
        home = next(home for home, verbs in _MODULES.items() if cmd_name in verbs.split())
        command = getattr(importlib.import_module(f"kseg.cli.verbs.{home}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without loading any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    from kseg.format.codec_libraries import checksums, codecs

    click.echo(f"kseg {version('kseg')}")
    for codec, library in codecs().items():
        click.echo(f"{codec.label:<6} {printable(str(library))}")
    click.echo(f"crc    {checksums()}")
    ctx.exit()


@click.group(
    cls=Verbs,
    name="kseg",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="VERB ...",
    epilog="Exit codes: 0 fine, 1 damage or a difference, 2 usage, 3 file system, 4 limit, 5 bug, "
    "130 interrupted.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version, which library inflates each codec, and how checksums are computed.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:  # `run` takes --debug away; here it is shown in the help
    """Apache Kafka log segments, with no broker and no JVM.

    A PATH is a file of Kafka's (.log, .index, .timeindex, .txnindex, .snapshot, checkpoints), a
    partition directory such as orders-0/, or a data directory that holds many.
    """


def run(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code; raises nothing."""
    words, debug = _take_debug(list(sys.argv[1:] if arguments is None else arguments))
    try:
        answer: Any = cli.main(words, prog_name="kseg", standalone_mode=False)
        sys.stdout.flush()
        return answer if isinstance(answer, int) else Exit.OK
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        is_first = error.ctx is None or error.ctx.parent is None
        failures.complain(*(FIRST if is_first else error.format_message()).splitlines())
        return Exit.USAGE
    except click.UsageError as error:
        _explain_usage(error, words)
        return Exit.USAGE
    except click.ClickException as error:
        failures.complain(f"kseg: {error.format_message()}")
        return Exit.USAGE
    except click.Abort:
        return Exit.INTERRUPTED
    except (BrokenPipeError, starting.PipeError) as error:
        if starting.nobody_reads():
            starting.let_go_of_stdout()
            return Exit.OK
        return failures.report(error.__cause__ or error, debug=debug)
    except SystemExit as done:  # click's own way out of completion
        return done.code if isinstance(done.code, int) else Exit.OK
    # The outermost frame: any error left becomes an exit code of the contract.
    except (Exception, KeyboardInterrupt) as error:
        return failures.report(error, debug=debug)


def main() -> None:
    """Entry point of the `kseg` script."""
    starting.begin()
    if not starting.ready():
        failures.complain("kseg: standard output is closed")
        sys.exit(Exit.FILES)
    code = run()
    try:
        sys.stdout.flush()
    except OSError:
        starting.let_go_of_stdout()
    if code in (Exit.OK, Exit.FOUND):
        _advise()
    starting.end()
    sys.exit(code)


def _advise() -> None:
    """Say on standard error that compressed data could be read faster on this machine."""
    codec = sys.modules.get("kseg.format.codec")
    if codec is not None and codec.BY_PACKAGE:
        from kseg.format.codec_libraries import slow_codecs

        if advice := slow_codecs():
            failures.complain(f"kseg: {advice}")


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    """`--debug` works anywhere before a `--`, so you can put it behind a failed call."""
    end = words.index("--") if "--" in words else len(words)
    others_than_debug = [word for word in words[:end] if word != "--debug"]
    return others_than_debug + words[end:], len(others_than_debug) < end


def _wants_json(error: click.UsageError) -> bool:
    """Whether `--format` was given to a verb that has `--json` instead."""
    if not (isinstance(error, click.NoSuchOption) and error.option_name == "--format"):
        return False
    return error.ctx is not None and any(
        "--json" in parameter.opts for parameter in error.ctx.command.params
    )


def _explain_usage(error: click.UsageError, words: list[str]) -> None:
    verb = words[0] if words and words[0] in VERBS else ""
    path = error.ctx.command_path if error.ctx is not None else f"kseg {verb}".rstrip()
    message = printable(" ".join(error.format_message().split()))
    if isinstance(error, click.NoSuchOption) and error.option_name == "--json":
        message = "No option '--json' here, where rows are the answer: --format jsonl."
    if isinstance(error, click.NoSuchOption) and (why := refusal(verb, error.option_name)):
        message = f"No option {error.option_name!r} here{why}."
    if _wants_json(error):
        message = "No option '--format' here, where one document is the answer: --json."
    stop = "" if message.endswith((".", "?", "!")) else "."
    failures.complain(f"kseg: {message}{stop} Try '{path} --help'.")
