"""Who may know whom inside each part of kseg; imports for types alone, and late ones, count too.

Programs come in by the front doors: `kseg`, the modules of a layer, and the packages of the log's
rooms, never a module inside of a room; and they take what stands in `__all__` there.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy import tree

#: The rooms of the log from the top down; those in one row may know each other, without a circle.
FLOORS = (
    ("directory", "adopt"),
    ("copies",),
    ("salvage",),
    ("log",),
    ("cleaner",),
    ("writer",),
    ("recovery",),
    ("tier",),
    ("reader",),
    ("producers",),
    ("settings",),
    ("segment",),
    ("topic_policy", "data_directory", "pending_deletes"),
    ("index_rules",),
    ("clock", "config", "findings"),
    ("validate",),
)
PARTS = ("log", "change", "spark", "analysis", "cli")
PROGRAMS = ("cli", "spark", "analysis")


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
    for name in _names(path):
        if name.startswith(home + "."):
            inner = name.removeprefix(home + ".")
            yield inner if inner in known else inner.rpartition(".")[0]


def _names(path: Path) -> Iterator[str]:
    """What a module imports, each by its whole dotted name."""
    for node in ast.walk(tree.module(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def is_public(name: str) -> bool:
    """Whether a program may import this: a module, or a name that one has for others."""
    if name in ("kseg._door.door", "kseg._door.renamed"):  # a room of a program has a door, too
        return True
    if "._" in name or not name.startswith("kseg."):
        return not name.startswith("kseg.")
    if _is_module(name):
        return name.count(".") <= 2
    home, _, inner = name.rpartition(".")
    return home.count(".") <= 2 and inner in _offered(home)


def _is_module(name: str) -> bool:
    path = tree.ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _offered(home: str) -> set[str]:
    """The `__all__` of a module; without one, the public names that it makes itself."""
    module = importlib.import_module(home)
    made = {
        each.id
        for node in tree.module(Path(str(module.__file__))).body
        for target in _targets(node)
        for each in ast.walk(target)
        if isinstance(each, ast.Name) and not each.id.startswith("_")
    }
    return set(getattr(module, "__all__", made))


def _targets(node: ast.stmt) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target):
            return [target]
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [ast.Name(name)]
    return []


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


@pytest.mark.parametrize("part", PROGRAMS)
def test_programs_come_in_by_the_front_doors(part: str) -> None:
    private = [
        f"{tree.name(path)}: {name}"
        for path in modules(part).values()
        for name in _names(path)
        if not name.startswith(f"kseg.{part}.") and not is_public(name)
    ]
    assert private == []


def test_inside_of_the_log_nobody_goes_through_the_doors_of_rooms() -> None:
    known = modules("log")
    rooms = {name for name, path in known.items() if name and path.stem == "__init__"}
    through = [
        f"{name} -> {other}" for name, below in imports("log").items() for other in below & rooms
    ]
    assert through == []


@pytest.mark.parametrize(
    ("name", "public"),
    {
        "kseg.Log": True,
        "kseg.records.scan": True,
        "kseg.log.recovery.Backup": True,
        "kseg.files.io": True,
        "click": True,
        "kseg.log.recovery.backup": False,
        "kseg.log.recovery.backup.Backup": False,
        "kseg.log.recovery.SnapshotFiles": False,
        "kseg.log.writer.state._x": False,
        "kseg._core.crc32": False,
        "kseg.change.cleanup.renamed": False,
    }.items(),
)
def test_a_door_is_told_from_a_wall(name: str, *, public: bool) -> None:
    assert is_public(name) is public


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
