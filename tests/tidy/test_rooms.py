"""Who may know whom inside the log and inside Spark's source; imports for types alone count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy import tree

#: The rooms of the log from the top down; those in one row may know each other, without a circle.
FLOORS = (
    ("directory", "scan", "adopt", "retain"),
    ("log",),
    ("writer",),
    ("recovery",),
    ("disk_room",),
    ("reader",),
    ("producers",),
    ("segment",),
    ("copy", "topic_policy", "sub_directories", "data_directory", "pending_deletes"),
    ("clock", "config", "epochs", "locations"),
    ("validate",),
)
PARTS = ("log", "spark")


def modules(part: str) -> dict[str, Path]:
    """Modules of a part of kseg, by their dotted names below it."""
    root = tree.ROOT / "kseg" / part
    found = {}
    for path in root.rglob("*.py"):
        inner = path.relative_to(root).with_suffix("").parts
        if inner[-1] == "__init__":
            inner = inner[:-1]
        found[".".join(inner)] = path
    return found


def imports(part: str) -> dict[str, set[str]]:
    """What each module of a part imports of the same part."""
    known = modules(part)
    return {name: set(_imported(path, part, known)) - {name} for name, path in known.items()}


def _imported(path: Path, part: str, known: dict[str, Path]) -> Iterator[str]:
    home = f"kseg.{part}"
    for node in ast.walk(tree.module(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith(home + "."):
                inner = name.removeprefix(home + ".")
                yield inner if inner in known else inner.rpartition(".")[0]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that cannot be put in an order."""
    left = {name: set(below) for name, below in graph.items()}
    while free := [name for name, below in left.items() if not below & left.keys()]:
        for name in free:
            del left[name]
    return [sorted(left)] if left else []


@pytest.mark.parametrize("part", PARTS)
def test_no_module_imports_in_a_circle(part: str) -> None:
    assert circles(imports(part)) == []


@pytest.mark.parametrize("part", PARTS)
def test_no_room_imports_in_a_circle(part: str) -> None:
    rooms: dict[str, set[str]] = {}
    for name, below in imports(part).items():
        room = name.partition(".")[0]
        rooms.setdefault(room, set()).update(each.partition(".")[0] for each in below)
        rooms[room] -= {room, ""}
    rooms.pop("", None)
    assert circles(rooms) == []


def test_the_rooms_of_the_log_import_downwards() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    upwards = [
        f"{name} -> {other}"
        for name, below in imports("log").items()
        for other in below
        if name and other and floor[other.partition(".")[0]] < floor[name.partition(".")[0]]
    ]
    assert upwards == []


def test_every_room_has_a_guide() -> None:
    for path in (tree.ROOT / "kseg" / "log").glob("*/"):
        if any(path.glob("*.py")):
            guide = ast.get_docstring(tree.module(path / "__init__.py")) or ""
            missing = [
                each.stem
                for each in path.glob("*.py")
                if each.stem != "__init__" and f"{each.stem}" not in guide
            ]
            assert missing == [], path


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c", "d"]]
    assert circles({"a": {"b"}, "b": set()}) == []
