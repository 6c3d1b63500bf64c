"""What no text of the tree may hold: work left lying about, stray output, one machine's paths."""

from __future__ import annotations

import ast
import re
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
