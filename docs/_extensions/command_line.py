"""Directives that take pages of the reference from the command line itself.

`{verbs} look` has every verb of a module in `kseg.cli.verbs`, with its help and options.
`{codes} verify` has the table that `kseg verify --codes` prints.
`{sentences} kseg.analysis.doctor.words` has every sentence of a table, with its remedy.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from typing import Any

import click
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from kseg.cli import main


def name_values(command: click.Command) -> None:
    """Give options the names of values, such as N,N-M, that only their types know."""
    context = click.Context(command)
    for option in command.params:
        if not option.metavar and type(option.type).__module__.startswith("kseg"):
            option.metavar = option.make_metavar(context)
        if option.metavar:  # sphinx-click drops a bracket at the beginning
            option.metavar = option.metavar.removeprefix("[TOPIC:]")
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            name_values(inner)


class Verbs(SphinxDirective):
    """The verbs that one module declares, each by sphinx-click."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse a directive of sphinx-click for each verb."""
        module = self.arguments[0]
        lines: list[str] = []
        for verb in main._MODULES[module].split():
            command = main.cli.get_command(click.Context(main.cli), verb)
            assert command is not None
            name_values(command)
            lines += [
                f".. click:: kseg.cli.verbs.{module}:{verb}",
                f"   :prog: kseg {verb}",
                "   :nested: full",
                "",
            ]
        return self.parse_text_to_nodes(
            "\n".join(["```{eval-rst}", *lines, "```"]), allow_section_headings=True
        )


class Codes(SphinxDirective):
    """The codes of findings of a verb, as a table."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the verb with --codes and make a table of what it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            main.run([self.arguments[0], "--codes"])
        head, *rows = (line.split(maxsplit=2) for line in printed.getvalue().splitlines())
        table = [head, ["---"] * 3, *([f"`{code}`", *rest] for code, *rest in rows)]
        text = [f"| {' | '.join(cells)} |" for cells in table]
        return self.parse_text_to_nodes("\n".join(text))


class Sentences(SphinxDirective):
    """The sentences of a module with a table `SENTENCES`, and perhaps `REMEDIES`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make a table of the sentences, and of what each advises."""
        words = importlib.import_module(self.arguments[0])
        text = ["| code | sentence | remedy |", "| --- | --- | --- |"]
        remedies = getattr(words, "REMEDIES", {})
        for name, row in words.SENTENCES.items():
            code, sentence = name.partition(".")[0], row if isinstance(row, str) else row[0]
            remedy = remedies.get(name, remedies.get(code, ""))
            cells = (code, sentence, " ".join(remedy.splitlines()))
            text.append(f"| {' | '.join(cell and f'`{cell}`' for cell in cells)} |")
        return self.parse_text_to_nodes("\n".join(text))


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx about the directives."""
    app.add_directive("verbs", Verbs)
    app.add_directive("codes", Codes)
    app.add_directive("sentences", Sentences)
    return {"parallel_read_safe": True}
