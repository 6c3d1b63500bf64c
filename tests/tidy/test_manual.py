"""The manual page is that of click's own tree, and the wheel has it."""

from __future__ import annotations

import tomllib

import click

from tests.tidy import tree
from tools.manual import commands, escaped, page

SHOWN = (tree.ROOT / "docs" / "kseg.1").read_text("utf-8")


def test_the_manual_page_is_current() -> None:
    assert page() == SHOWN, "run: make man"


def test_every_verb_and_option_is_in_the_manual_page() -> None:
    for name, command in commands():
        part = SHOWN.partition(f".SS kseg {escaped(name)}\n")[2].partition("\n.S")[0]
        for one in command.params:
            if isinstance(one, click.Option) and not one.hidden:
                assert escaped(one.opts[-1]) in part


def test_no_line_of_text_is_a_request_by_mistake() -> None:
    requests = {line.split()[0] for line in SHOWN.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".B", ".PP", ".TP"}


def test_the_wheel_brings_the_manual_page() -> None:
    settings = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["data-files"] == {"share/man/man1": ["docs/kseg.1"]}
