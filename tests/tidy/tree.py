"""The tree that the tidy tests read: which files there are, and what is in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".c", ".cfg", ".h", ".in", ".md", ".pxd", ".py", ".pyi", ".pyx", ".sh", ".toml", ".yaml"}
FOLDERS = ("kseg", "pyspark_kseg", "tests", "bench", "docs", "examples", "tools", ".ci")


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a source file: its first line (1-based), its length without the docstring."""

    path: str
    name: str
    line: int
    lines: int
    documented: bool


def files(*suffixes: str, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Source files with one of the suffixes, test data and caches left out."""
    found = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and path.is_file()
    ]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def texts() -> list[Path]:
    """Every file that people read, the ones at the top included."""
    top = [path for path in ROOT.iterdir() if path.suffix in TEXT or path.name == "Makefile"]
    return sorted({*files(*TEXT), *top, ROOT / ".ci" / "run"})


def name(path: Path) -> str:
    """The path as a person would write it."""
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> ast.Module:
    """The parsed Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def python_functions(path: Path) -> Iterator[Function]:
    """Every function of a Python file, nested ones and methods included."""
    for node in ast.walk(module(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _height(node)
            documented = ast.get_docstring(node) is not None
            if documented:
                lines -= _height(node.body[0])
            yield Function(name(path), node.name, node.lineno, lines, documented)


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


CYTHON_HEAD = re.compile(r"^(\s*)(?:c?p?def)\s(?!class\s|extern\s|enum|struct|union)[^=#]*?(\w+)\(")


def cython_functions(path: Path) -> Iterator[Function]:
    """Every function of a Cython file, told from the layout: it ends where the indent does."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for start, line in enumerate(lines):
        head = CYTHON_HEAD.match(line)
        if head is None:
            continue
        indent = len(head.group(1))
        opened, end = 0, start
        while end < len(lines):  # to the end of the signature
            opened += lines[end].count("(") - lines[end].count(")")
            end += 1
            if opened <= 0:
                break
        body = end
        while end < len(lines) and (
            not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
        ):
            end += 1
        while end > body and not lines[end - 1].strip():
            end -= 1
        docstring = _docstring_lines(lines[body:end])
        yield Function(name(path), head.group(2), start + 1, end - start - docstring, docstring > 0)


def _docstring_lines(body: list[str]) -> int:
    """How many lines of a function's body are its docstring."""
    text = "\n".join(body)
    docstring = re.match(r'\s*r?"""(.*?)"""', text, re.DOTALL)
    return 0 if docstring is None else docstring.group().lstrip("\n").count("\n") + 1
