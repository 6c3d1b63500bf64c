"""State has few writers: whatever changes a `LogState` is a method of it, or of what it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy import tree

#: Containers of the state itself, and the methods by which such a thing changes.
HELD = {"sealed", "unflushed", "unflushed_snapshots"}
CHANGING = {"append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}
OWNER = "kseg/log/writer/state.py"
PATHS = [
    path for path in tree.files(".py", folders=("kseg/log", "kseg/cli")) if tree.name(path) != OWNER
]


def states_of(node: ast.FunctionDef) -> set[str]:
    """The arguments of a function that are a log's state."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return {
        each.arg
        for each in arguments
        if each.annotation is not None and ast.unparse(each.annotation).strip("'\"") == "LogState"
    }


def is_of(node: ast.expr, states: set[str]) -> bool:
    """Whether an attribute, of whatever depth, begins at a state: `state.x.y`, `self._state.x`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        if isinstance(node, ast.Attribute) and node.attr in {"state", "_state"}:
            return True
    return isinstance(node, ast.Name) and node.id in states


def assigned(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement assigns to or deletes; each part of a tuple."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def changes(module: ast.Module) -> Iterator[str]:
    """Where a state is changed from outside."""
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        states = states_of(function)
        for node in ast.walk(function):
            found = [each for each in assigned(node) if not isinstance(each, ast.Name)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                held = node.func.value
                changed = isinstance(held, ast.Attribute) and held.attr in HELD
                if changed and node.func.attr in CHANGING:
                    found.append(held)
            yield from (
                f"{each.lineno}: {ast.unparse(each)}" for each in found if is_of(each, states)
            )


@pytest.mark.parametrize("path", PATHS, ids=tree.name)
def test_a_log_is_changed_by_methods_of_its_state_alone(path: Path) -> None:
    assert list(changes(tree.module(path))) == []


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("state.log_end = end", True),
        ("state.recovery_point += 1", True),
        ("state.deletions.freed_bytes += 1", True),
        ("a, state.names_changed = 1, True", True),
        ("del state.unflushed[0]", True),
        ("state.unflushed.pop(0)", True),
        ("self._state.log_end = end", True),
        ("state.epochs.clear()", False),
        ("end = state.log_end", False),
        ("other.log_end = end", False),
    ],
)
def test_a_change_from_outside_is_seen(line: str, seen: bool) -> None:
    module = ast.parse(f"def change(self, state: LogState, other: object):\n    {line}")
    assert bool(list(changes(module))) == seen
