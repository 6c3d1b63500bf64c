"""What is required is used: nobody installs a package for nothing."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache

import pytest

from tests.tidy import tree

_PROJECT = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["project"]
#: What a package is imported as, where that is not its name.
_MODULES = {"python-snappy": "snappy", "backports.zstd": "backports"}
_IMPORT = re.compile(r"^\s*(?:from|c?import)\s+(\w+)", re.MULTILINE)


@cache
def imported() -> set[str]:
    """The first names of all modules that kseg imports, wherever it does."""
    found = set()
    for path in tree.files(".py", folders=("kseg",)):
        for node in ast.walk(tree.module(path)):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.partition(".")[0])
    for path in tree.files(".pyx", folders=("kseg",)):
        found |= set(_IMPORT.findall(path.read_text()))
    return found


@pytest.mark.parametrize("requirement", _PROJECT["dependencies"])
def test_each_hard_dependency_is_imported_by_kseg(requirement: str) -> None:
    name = re.split(r"[^\w.-]", requirement)[0]
    assert _MODULES.get(name, name) in imported()


def test_a_line_above_each_hard_dependency_says_why() -> None:
    text = (tree.ROOT / "pyproject.toml").read_text().partition("\ndependencies = [\n")[2]
    lines = [line.strip() for line in text.partition("\n]\n")[0].splitlines()]
    assert len(lines) == 2 * len(_PROJECT["dependencies"])
    for why, requirement in zip(lines[::2], lines[1::2], strict=True):
        assert why.startswith("# "), requirement
        assert requirement.startswith('"'), why
