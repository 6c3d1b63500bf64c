"""The table of options in docs/cli.md is that of click's own tree.

`python -m tests.tidy.test_cli_page` writes it again.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from kseg.cli.main import VERBS, cli
from kseg.cli.verbs.spark import spark
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "cli.md"
START, END = "<!-- options: from click -->\n", "<!-- options: end -->\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every verb and every job of Spark, by the words that name it."""
    for name in VERBS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        if command is not spark:
            yield name, command
    yield from ((f"spark {name}", job) for name, job in sorted(spark.commands.items()))


def table() -> str:
    """A row for each verb: its arguments and options as its help has them."""
    rows = []
    for name, command in commands():
        words = []
        for one in command.params:
            if isinstance(one, click.Argument):
                words.append(one.metavar or str(one.name).upper())
            else:
                words.append("/".join([*one.opts[-1:], *one.secondary_opts]))
        rows.append(f"| `{name}` | {' '.join(f'`{word}`' for word in words)} |\n")
    return "".join(["| verb | arguments and options |\n", "|---|---|\n", *rows])


def parts() -> tuple[str, str, str]:
    """The page in front of the table, the table, and the rest."""
    front, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    found, _, behind = rest.partition(END)
    return front, found, behind


def test_the_page_has_the_options_of_every_verb() -> None:
    assert parts()[1] == table()


def test_the_page_says_what_every_verb_answers() -> None:
    text = parts()[0]
    assert [verb for verb in VERBS if f"\n| `{verb}" not in text] == []


if __name__ == "__main__":
    front, _, behind = parts()
    PAGE.write_text(f"{front}{START}{table()}{END}{behind}", encoding="utf-8")
