"""The size of each room of kseg stays within `budget.json`.

Run `python -m tests.tidy.test_budget` to print the counts as that file holds them. A commit that
raises a number says in its message which code it replaces, or why none can go.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path

from tests.tidy import tree

BUDGET = Path(__file__).parent / "budget.json"
#: How far a room may fall below its number before the number must follow.
SLACK = 60
_COMMENTS = re.compile(r'/\*.*?\*/|"""(?:.|\n)*?"""', re.DOTALL)
_DIRECTIVES = ("#include", "#define", "#if", "#el", "#end")


def counts() -> dict[str, int]:
    """Statements and compiled code lines of each room; modules and value classes in all."""
    found: Counter[str] = Counter()
    for path in tree.files(".py", folders=("kseg",)):
        module = tree.module(path)
        found[room_of(tree.name(path))] += sum(is_statement(node) for node in ast.walk(module))
        found["modules"] += 1
        found["value classes"] += sum(is_value(node) for node in ast.walk(module))
    for path in tree.files(".pyx", ".pxd", ".h", ".c", folders=("kseg",)):
        if not path.with_suffix(".pyx").exists() or path.suffix != ".c":  # not what Cython wrote
            found[f"compiled: {room_of(tree.name(path))}"] += code_lines(path.read_text())
    return dict(sorted(found.items()))


def room_of(name: str) -> str:
    """The folder that a file belongs to; the rooms of the log count by themselves."""
    parts = name.split("/")
    if parts[1] == "log" and len(parts) > 3:
        return "/".join(parts[:3])
    return "/".join(parts[:2]) if len(parts) > 2 else "kseg"


def is_statement(node: ast.AST) -> bool:
    """Whether a node is a statement and no docstring."""
    if not isinstance(node, ast.stmt):
        return False
    value = node.value if isinstance(node, ast.Expr) else None
    return not (isinstance(value, ast.Constant) and isinstance(value.value, str))


def is_value(node: ast.AST) -> bool:
    """Whether a node is a dataclass or a named tuple."""
    if not isinstance(node, ast.ClassDef):
        return False
    marks = [ast.unparse(one) for one in (*node.decorator_list, *node.bases)]
    return any("dataclass" in mark or mark.endswith("NamedTuple") for mark in marks)


def code_lines(text: str) -> int:
    """Lines that are neither blank, comment nor docstring."""
    lines = [line.strip() for line in _COMMENTS.sub("", text).splitlines()]
    return sum(
        line.startswith(_DIRECTIVES) or (bool(line) and not line.startswith(("#", "//")))
        for line in lines
    )


def test_every_room_keeps_its_budget() -> None:
    budget = json.loads(BUDGET.read_text())
    over = {room: n - budget.get(room, 0) for room, n in counts().items()}
    assert {room: n for room, n in over.items() if n > 0} == {}


def test_the_budget_follows_what_was_removed() -> None:
    found = counts()
    spare = {room: n - found.get(room, 0) for room, n in json.loads(BUDGET.read_text()).items()}
    assert {room: n for room, n in spare.items() if n > SLACK} == {}


if __name__ == "__main__":
    print(json.dumps(counts(), indent=1))
