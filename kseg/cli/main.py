"""The program: finds the verb, loads its module, turns exceptions into exit codes.

A verb imports its heavy modules itself, so that `kseg --help` and completion are quick.

Imports leave next to no garbage, so the collector is off until a verb begins, and then passes over
all objects that exist. NumPy is loaded without threads for linear algebra, which kseg does not use:
OpenBLAS starts a thread for each core, and each takes processor time before it sleeps.

A program may be started with any of its three streams closed, or lose its reader on the way.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any, Final

import click

from kseg.cli import failures
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
            raise PipeError from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb, or with --spark its job; the error for an unknown verb names the nearest."""
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
        """The command of a verb, from its own module."""
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
    """Print the versions of kseg and of the libraries that it uses, and end."""
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
    except (BrokenPipeError, PipeError) as error:
        if nobody_reads():
            let_go_of_stdout()
            return Exit.OK
        return failures.report(error.__cause__ or error, debug=debug)
    except SystemExit as done:  # click's own way out of completion
        return done.code if isinstance(done.code, int) else Exit.OK
    # The outermost frame: any error left becomes an exit code of the contract.
    except (Exception, KeyboardInterrupt) as error:
        return failures.report(error, debug=debug)


def main() -> None:
    """Entry point of the `kseg` script."""
    begin()
    if not ready():
        failures.complain("kseg: standard output is closed")
        sys.exit(Exit.FILES)
    code = run()
    try:
        sys.stdout.flush()
    except OSError:
        let_go_of_stdout()
    if code in (Exit.OK, Exit.FOUND):
        _advise()
    end()
    sys.exit(code)


def _advise() -> None:
    """Say on standard error that compressed data could be read faster on this machine."""
    codec = sys.modules.get("kseg.format.codec")
    if codec is not None and codec.BY_PACKAGE:
        from kseg.format.codec_libraries import slow_codecs

        if advice := slow_codecs():
            failures.complain(f"kseg: {advice}")


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    """The words without `--debug`, and whether it was among them.

    It works anywhere before a `--`, so you can put it after a failed call.
    """
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
    """Report a wrong command line in a line, with the help that tells more.

    For an option of other verbs it says why this verb has none, and which option has the same use.
    """
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


_THREADS: Final = "OPENBLAS_NUM_THREADS"


class Verb(click.Command):
    """A verb that needs NumPy: it is loaded for the verb's work, not for its help."""

    def invoke(self, ctx: click.Context) -> Any:
        """Load NumPy, then do the work."""
        if not gc.isenabled():
            _load_numpy()
            gc.freeze()
            gc.enable()
        return super().invoke(ctx)


def verb(
    *parameters: Callable[[Any], Any], home: str = ""
) -> Callable[[Callable[[], None]], click.Command]:
    """Declare a verb with the name and the docstring of a function that is never called.

    The function of that name in `kseg.cli.HOME` carries out the verb. It is imported when the verb
    runs and takes the values of the parameters by their names.

    Args:
        parameters: click's decorators for the arguments and options, in the order of the help.
        home: the module of that function; the name of the verb if empty.
    """

    def declare(function: Callable[[], None]) -> click.Command:
        @wraps(function)
        def carry_out(**words: Any) -> Any:
            module = import_module(f"kseg.cli.{home or function.__name__}")
            return getattr(module, function.__name__)(**words)

        declared: Callable[..., Any] = carry_out
        for parameter in reversed(parameters):
            declared = parameter(declared)
        return click.command(cls=Verb)(declared)

    return declare


def begin() -> None:
    """Switch garbage collection off until a verb begins, in a process that ends with its verb."""
    gc.disable()


def end() -> None:
    """Let the interpreter end without a garbage collection."""
    gc.freeze()
    gc.enable()  # of a verb's help it is still off


def _load_numpy() -> None:
    """Import NumPy; processes that this one starts get the environment as it was."""
    ours = "numpy" not in sys.modules and _THREADS not in os.environ
    if ours:
        os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        if ours:
            del os.environ[_THREADS]


class PipeError(Exception):
    """A pipe without its other end: standard output, or one to a process that shares the work."""


def ready() -> bool:
    """Open missing streams on `/dev/null`; false if standard output was missing.

    Otherwise the next file that is opened gets the number of a stream, and the bytes written there.
    Standard input is opened so that reading from it fails, as from a closed one.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    for number in range(3):
        if streams[number] is None and not _is_open(number):
            nowhere = os.open(os.devnull, os.O_WRONLY)  # the lowest number that is free
            assert nowhere == number
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if sys.stdout is not None:
        return True
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    return False


def nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has gone."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


class ReaderGone(threading.Event):
    """An event that is also set once standard output has no reader."""

    def is_set(self) -> bool:
        """Whether to stop writing."""
        return super().is_set() or nobody_reads()


def let_go_of_stdout() -> None:
    """Discard output that the interpreter would flush at exit."""
    with suppress(OSError, ValueError):
        descriptor = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _is_open(number: int) -> bool:
    """Whether a file descriptor is open."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
