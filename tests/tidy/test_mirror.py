"""`tests/unit` mirrors `kseg`: a test file is named after a module, a package or its room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy import tree

UNIT = tree.ROOT / "tests" / "unit"


def names_in(room: Path) -> set[str]:
    """The modules and packages of a room, and the room itself."""
    modules = {path.stem for path in room.iterdir() if path.suffix in (".py", ".pyx")}
    packages = {path.parent.name for path in room.glob("*/__init__.py")}
    return {name.strip("_") for name in modules | packages | {room.name}} - {"init"}


@pytest.mark.parametrize("path", sorted(UNIT.rglob("test_*.py")), ids=tree.name)
def test_a_unit_test_is_named_after_a_module_or_its_room(path: Path) -> None:
    room = tree.ROOT / "kseg" / path.parent.relative_to(UNIT)
    assert room.is_dir()
    name = path.stem.removeprefix("test_")
    assert any(name == known or name.startswith(f"{known}_") for known in names_in(room))
