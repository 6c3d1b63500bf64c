"""What no text of the tree may hold: unfinished work, stray output, a machine's paths, riddles."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy import tree

# Written so that the patterns do not find themselves.
LEFT_LYING = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HAC[K])\b")
MACHINE_PATH = re.compile(r"(?<![\w.}/])/(?:home|root|work|Users|tmp)/[\w.]")


@pytest.mark.parametrize("path", tree.texts(), ids=tree.name)
def test_nothing_is_left_lying_about(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert LEFT_LYING.findall(text) == []
    assert MACHINE_PATH.findall(text) == []


@pytest.mark.parametrize("path", tree.files(".py", folders=("kseg", "pyspark_kseg")), ids=tree.name)
def test_the_package_prints_only_through_its_command_line(path: Path) -> None:
    calls = [node for node in ast.walk(tree.module(path)) if isinstance(node, ast.Call)]
    printing = [c.lineno for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
    assert printing == []


@pytest.mark.parametrize("path", tree.files(".py", folders=("kseg", "pyspark_kseg")), ids=tree.name)
def test_nothing_swallows_every_exception(path: Path) -> None:
    handlers = [n for n in ast.walk(tree.module(path)) if isinstance(n, ast.ExceptHandler)]
    broad = [
        handler.lineno
        for handler in handlers
        if handler.type is None
        or (isinstance(handler.type, ast.Name) and handler.type.id in {"Exception"})
    ]
    assert broad == []


#: Words that make a reader guess who does a thing, or that name what has a better name.
RIDDLES = {
    "whoever": "name it: the reader, the caller, the next load",
    "whom": "name it",
    "nobody": "name it: no reader; or say what is unknown, or not needed",
    "anybody": "name it: a producer, another process",
    "somebody": "name it: the caller, another process",
    "whereby": "by which",
    "that which": "what, or the one that",
    "of theirs": "their",
    "none of ours": "of another",
    "imagines?": "in the overlay",
    "to the letter": "exactly",
    "bring into order": "load",
    "brought into order": "loaded",
    "kept aside": "kept in the backup",
    "workbench": "load context",
    "runway": "append position",
    "residence": "lease of the data directory",
    "spoilt": "unclean",
    "foreign log": "external log",
}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """What people read of a file, by line: comments and docstrings of Python, else all of it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and token.string.startswith('"""')
        ):
            yield from enumerate(token.string.splitlines(), token.start[0])


@pytest.mark.parametrize("path", tree.files(*tree.TEXT, folders=("kseg", "docs")), ids=tree.name)
def test_the_package_and_its_pages_say_who_does_what(path: Path) -> None:
    riddles = [
        (line, found.group(), instead)
        for line, text in prose(path)
        for word, instead in RIDDLES.items()
        for found in re.finditer(rf"\b(?:{word})\b", text, re.IGNORECASE)
    ]
    assert riddles == []


#: Words with which a docstring begins that names neither a thing nor an action.
VAGUE = re.compile(r"(?:What|Who|Whoever|Those) ")


@pytest.mark.parametrize("path", tree.files(".py", folders=("kseg", "pyspark_kseg")), ids=tree.name)
def test_a_docstring_begins_with_a_noun_or_a_verb(path: Path) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(n) for n in ast.walk(tree.module(path)) if isinstance(n, documented)]
    assert [text for text in texts if text and VAGUE.match(text)] == []
