"""The size of kseg stays within `limits.json`.

`python -m tests.tidy.test_limits` prints the sizes. A commit that raises a limit has two lines in
its message: `For: ...`, what the growth is for, and `In exchange: ...`, what it removed.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

from tests.tidy import tree

LIMITS = Path(__file__).parent / "limits.json"
#: How far a size may fall below its limit, as a share, before the limit must follow.
SLACK = 0.01
_SMALL = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
_COMMENTS = re.compile(r'/\*.*?\*/|"""(?:.|\n)*?"""', re.DOTALL)
_DIRECTIVES = ("#include", "#define", "#if", "#el", "#end")


@cache
def sizes() -> Counter[str]:
    """The nodes of the package and what else is limited, but the bytes of the sdist.

    Nodes are those of the syntax tree without docstrings and operators: denser statements have as
    many.
    """
    sizes: Counter[str] = Counter()
    for path in tree.files(".py", folders=("kseg",)):
        module = tree.module(path)
        sizes["nodes"] += nodes(module)
        sizes["modules"] += 1
        sizes["values"] += sum(is_value(node) for node in ast.walk(module))
    for path in tree.files(".pyx", ".pxd", ".h", ".c", folders=("kseg",)):
        if not path.with_suffix(".pyx").exists() or path.suffix != ".c":  # not what Cython wrote
            sizes["compiled"] += code_lines(path.read_text(encoding="utf-8"))
    for path in tree.files(".py", folders=("tests",)):
        sizes["tests"] += len(path.read_text(encoding="utf-8").splitlines())
    return sizes


def nodes(module: ast.Module) -> int:
    """The nodes that are neither an operator nor part of a docstring."""
    parts = [node for node in ast.walk(module) if not isinstance(node, _SMALL)]
    return len(parts) - 2 * sum(is_docstring(node) for node in parts)


def is_docstring(node: ast.AST) -> bool:
    """Whether a node is a statement of a text alone."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def is_value(node: ast.AST) -> bool:
    """Whether a node is a dataclass or a named tuple."""
    if not isinstance(node, ast.ClassDef):
        return False
    marks = [ast.unparse(mark) for mark in (*node.decorator_list, *node.bases)]
    return any("dataclass" in mark or mark.endswith("NamedTuple") for mark in marks)


def code_lines(text: str) -> int:
    """Lines that are neither blank, comment nor docstring."""
    lines = [line.strip() for line in _COMMENTS.sub("", text).splitlines()]
    return sum(
        line.startswith(_DIRECTIVES) or (bool(line) and not line.startswith(("#", "//")))
        for line in lines
    )


def limits() -> dict[str, int]:
    found: dict[str, int] = json.loads(LIMITS.read_text())
    del found["sdist_bytes"]  # `tools/check_dist.py` holds it
    return found


def test_no_size_is_above_its_limit() -> None:
    here = sizes()
    assert {name: here[name] for name, most in limits().items() if here[name] > most} == {}


def test_limits_follow_what_was_removed() -> None:
    here = sizes()
    assert {name: most for name, most in limits().items() if here[name] < most * (1 - SLACK)} == {}


def test_a_commit_that_raises_a_limit_says_what_for_and_in_exchange_for_what() -> None:
    """As far back as this checkout knows its history; an sdist knows none."""
    if not (tree.ROOT / ".git").exists():
        return
    commits = _git("log", "--format=%H", "--", str(LIMITS)).split()
    for commit, earlier in pairwise(commits):
        before, after = (_limits_at(at) for at in (earlier, commit))
        if any(most > before.get(name, most) for name, most in after.items()):
            message = _git("log", "-1", "--format=%B", commit)
            assert re.search(r"^For: ", message, re.MULTILINE), message
            assert re.search(r"^In exchange: ", message, re.MULTILINE), message


def _limits_at(commit: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(_git("show", f"{commit}:{tree.name(LIMITS)}"))
    return found


def _git(*words: str) -> str:
    ran = subprocess.run(
        ["git", "-C", str(tree.ROOT), *words], capture_output=True, text=True, check=True
    )
    return ran.stdout


if __name__ == "__main__":
    print(json.dumps(sizes(), indent=1))
