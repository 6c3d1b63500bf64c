"""Write the manual page from the verbs and options that the command line declares.

    python -m tools.manual > docs/kseg.1

The page is in roff, for `man`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import click

from kseg import __version__
from kseg.cli.main import VERBS, cli
from kseg.cli.verbs.spark import spark

EXIT_CODES = (
    ("0", "fine"),
    ("1", "damage or a difference was found, or a dry run that would change bytes"),
    ("2", "usage"),
    ("3", "the file system said no"),
    ("4", "a limit was exceeded"),
    ("5", "a bug in kseg"),
    ("130", "interrupted"),
)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every verb, then every job of Spark, by the words that name it."""
    for name in VERBS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield name, command
    yield from ((f"spark {name}", job) for name, job in sorted(spark.commands.items()))


def escaped(text: str) -> str:
    """Text as roff has it: no backslash, hyphen or leading dot is taken for a request."""
    text = " ".join(text.replace("\\", r"\e").replace("-", r"\-").split())
    return re.sub(r"^(?=[.'])", r"\\&", text)


def described(name: str, command: click.Command) -> Iterator[str]:
    """A verb: how it is called, what it does, its options."""
    words = [one.metavar or str(one.name).upper() for one in command.params if is_argument(one)]
    yield f".SS kseg {escaped(name)}"
    yield f".B kseg {escaped(name)}\n[OPTIONS] {escaped(' '.join(words))}".rstrip()
    for paragraph in (command.help or "").split("\n\n"):
        yield f".PP\n{escaped(paragraph.replace(chr(8), ''))}"
    for one in command.params:
        if isinstance(one, click.Option) and not one.hidden:
            names = ", ".join([*one.opts, *one.secondary_opts])
            yield f".TP\n.B {escaped(f'{names} {value_of(one)}')}\n{escaped(one.help or '')}"


def value_of(option: click.Option) -> str:
    """What follows the name of an option: its value, or nothing."""
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice):
        return f"[{'|'.join(map(str, option.type.choices))}]"
    return option.metavar or option.type.name.upper()


def is_argument(one: click.Parameter) -> bool:
    """Whether it is given by its place, without a name."""
    return isinstance(one, click.Argument)


def page() -> str:
    """The whole page."""
    about = [escaped(each) for each in (cli.help or "").split("\n\n")]
    lines = [
        f'.TH KSEG 1 "" "kseg {__version__}" "User Commands"',
        f".SH NAME\nkseg \\- {about[0].rstrip('.')}",
        ".SH SYNOPSIS\n.B kseg\n[\\-\\-debug] VERB [OPTIONS] PATH...",
        ".SH DESCRIPTION",
        "\n.PP\n".join(about),
        ".SH VERBS",
        *(line for name, command in commands() for line in described(name, command)),
        ".SH EXIT STATUS",
        *(f".TP\n.B {code}\n{meaning}" for code, meaning in EXIT_CODES),
        ".SH ENVIRONMENT",
        "NO_COLOR, FORCE_COLOR, TERM=dumb and COLUMNS are honoured. With KSEG_CODECS=packages",
        "no library of the system inflates.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
