"""The pages tell the truth: their bytes are in the files, their code runs, their links lead on."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import shutil
from pathlib import Path

import pytest

import kseg
from kseg.cli import main
from kseg.records.query import BY_NAME
from tests.tidy import tree

PAGES = [tree.ROOT / "README.md", *tree.files(".md", folders=("docs",))]
HEX_BLOCK = re.compile(r"`(\S+) @ (\d+)`\n+```text\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


NAMED_FILE = re.compile(r"`([\w*./]+(?:\.(?:pyi?|pyx|pxd)|/))`")


def hex_blocks() -> list[tuple[str, int, bytes]]:
    """Each worked example: a file, a position, the bytes that the page shows."""
    text = (tree.ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    found = []
    for path, position, block in HEX_BLOCK.findall(text):
        columns = [line.partition("   ")[0] for line in block.splitlines()]
        found.append((path, int(position), bytes.fromhex(" ".join(columns))))
    return found


@pytest.mark.parametrize(("path", "position", "shown"), hex_blocks())
def test_worked_examples_are_in_the_demo_log(path: str, position: int, shown: bytes) -> None:
    data = (tree.ROOT / path).read_bytes()
    assert data[position : position + len(shown)] == shown


def test_the_format_page_shows_bytes() -> None:
    assert len(hex_blocks()) >= 3


def test_the_architecture_names_files_that_are_there() -> None:
    text = (tree.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = NAMED_FILE.findall(text)
    assert named
    assert len(text.splitlines()) <= 160
    for name in named:
        inside = name if "/" in name.rstrip("/") else f"**/{name}"
        assert any((tree.ROOT / "kseg").glob(inside)) or (tree.ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=tree.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def modules() -> list[str]:
    """Every Python module of the package by its dotted name."""
    paths = tree.files(".py", folders=("kseg",))
    parts = [path.relative_to(tree.ROOT).with_suffix("").parts for path in paths]
    return [".".join(p[:-1] if p[-1] == "__init__" else p) for p in parts if p[-1] != "__main__"]


@pytest.mark.parametrize("module", modules())
def test_examples_in_docstrings_run(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tree.ROOT / "kseg" / "demo_data", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(module)).failed == 0


#: The name of each argument in a section of a docstring, several in one line.
ARGUMENT = re.compile(r"^    ((?:\*{0,2}\w+(?:, )?)+):", re.M)


@pytest.mark.parametrize("path", tree.files(".py", folders=("kseg",)), ids=tree.name)
def test_docstrings_name_arguments_that_are_there(path: Path) -> None:
    wrong = []
    for node in ast.walk(tree.module(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        section = re.search(r"^Args:\n((?: {4}.*\n|\n)*)", f"{ast.get_docstring(node)}\n", re.M)
        lines = ARGUMENT.findall(section[1]) if section else []
        named = {name.lstrip("*") for line in lines for name in line.split(", ")}
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        given += [one for one in (node.args.vararg, node.args.kwarg) if one]
        arguments = {one.arg for one in given}
        arguments |= BY_NAME.keys() if "query" in arguments else set()
        wrong += [(node.name, name) for name in named - arguments]
    assert wrong == []


def test_the_reference_has_every_public_name_and_every_verb() -> None:
    pages = [path.read_text("utf-8") for path in (tree.ROOT / "docs" / "reference").glob("*.md")]
    named = set(re.findall(r"^\.\. auto\w+:: (\S+)", "\n".join(pages), re.M))
    inside = set(dir(kseg.errors)) | {"__version__"}
    assert set(kseg.__all__) - named <= inside
    assert {f"kseg.{module}" for module in kseg._MODULES} - named == {"kseg.analysis"}
    assert set(re.findall(r"^```\{verbs\} (\w+)", "\n".join(pages), re.M)) == set(main._MODULES)
