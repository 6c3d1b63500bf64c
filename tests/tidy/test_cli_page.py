"""Two tables of the pages are made from the code: options in docs/cli.md, questions at all doors.

`python -m tests.tidy.test_cli_page` writes them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kseg.cli.main import VERBS, cli
from kseg.cli.verbs.spark import spark
from kseg.records import query
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "cli.md"
READING = tree.ROOT / "docs" / "reference" / "reading.md"
QUESTIONS_START = "<!-- questions: from kseg.records.query -->\n"
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


def questions() -> str:
    """A row for each question: its name at each door, or why the door refuses it."""
    rows = ["| " + " | ".join(query.DOORS) + " |\n", "|---" * len(query.DOORS) + "|\n"]
    for question in query.QUESTIONS:
        cells = [
            question.refusal(door) or " ".join(f"`{name}`" for name in question.spelled(door))
            for door in query.DOORS
        ]
        rows.append("| " + " | ".join(cells) + " |\n")
    return "".join(rows)


TABLES = {PAGE: (START, table), READING: (QUESTIONS_START, questions)}


def parts(page: Path = PAGE) -> tuple[str, str, str]:
    """A page in front of the table, the table, and the rest."""
    start = TABLES[page][0]
    front, _, rest = page.read_text(encoding="utf-8").partition(start)
    found, _, behind = rest.partition(END)
    return front + start, found, END + behind


@pytest.mark.parametrize("page", TABLES, ids=tree.name)
def test_a_page_has_the_table_that_the_code_makes(page: Path) -> None:
    assert parts(page)[1] == TABLES[page][1]()


def test_the_page_says_what_every_verb_answers() -> None:
    text = parts()[0]
    assert [verb for verb in VERBS if f"\n| `{verb}" not in text] == []


if __name__ == "__main__":
    for page, (_, make) in TABLES.items():
        front, _, behind = parts(page)
        page.write_text(f"{front}{make()}{behind}", encoding="utf-8")
