"""Who may know whom, where import-linter does not look: Cython files, and the door to the disk."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tidy import tree

KSEG = tree.ROOT / "kseg"
LAYERED = {
    "cli",
    "spark",
    "analysis",
    "log",
    "files",
    "internal",
    "parquet",
    "arrow",
    "format",
} | {
    *("broker", "control", "legacy", "reports", "times"),
    *("arrow_columns", "decode", "documents", "frames"),
    "records",
    "catalog",
    "change",
    "stores",
    "lazy",
    "workers",
    "extras",
    "commands",
    "errors",
    "constants",
}
KERNEL_IMPORT = re.compile(r"^\s*(?:from\s+(\S+)\s+c?import|c?import\s+(\S+))", re.MULTILINE)
KERNELS_MUST_NOT_KNOW = re.compile(
    r"kseg(?!\.(?:_core|_kernels\.(?:avro|blocks|encode|frames|inflate|json|located|needle|validate))$)|\.|numpy|pyarrow"
)
DOORS = {"kseg/files/io.py", "kseg/files/mapping.py"}
OPENING = {"open", "fdopen", "pread", "preadv", "pwrite", "pwritev", "write", "writev", "sendfile"}
CHANGING = {"truncate", "ftruncate", "fsync", "fdatasync", "sync", "posix_fallocate"} | {
    *("rename", "renames", "replace", "link", "symlink", "unlink", "remove", "removedirs"),
    *("mkdir", "makedirs", "rmdir", "mknod", "mkfifo", "copy_file_range"),
    *("utime", "chmod", "fchmod", "lchmod", "chown", "fchown", "lchown"),
}
COPYING = {"copy", "copy2", "copyfile", "copytree", "copystat", "copymode", "move", "rmtree"}
SEALED = [
    path
    for part in ("format", "internal", "files", "log", "change", "analysis")
    for path in tree.files(".py", folders=(f"kseg/{part}",))
    if tree.name(path) not in DOORS
]


def test_every_python_module_lies_in_a_layer() -> None:
    inner = {path.stem for path in KSEG.glob("*.py")} | {
        path.parent.name for path in KSEG.glob("*/__init__.py")
    }
    assert {part for part in inner if not part.startswith("_")} <= LAYERED


@pytest.mark.parametrize("path", tree.files(".pyx", ".pxd"), ids=tree.name)
def test_kernels_know_nothing_above_them(path: Path) -> None:
    found = KERNEL_IMPORT.findall(path.read_text(encoding="utf-8"))
    imported = {(a or b).rstrip(",") for a, b in found} - {"__future__"}
    assert [m for m in sorted(imported) if KERNELS_MUST_NOT_KNOW.match(m)] == []


def opening_calls(path: Path) -> list[str]:
    """Calls that would open, read, change or map a file by themselves."""
    methods = {"read_bytes", "read_text", "write_bytes", "write_text", "touch", "rmdir"}
    methods |= {"symlink_to", "hardlink_to"}
    modules = {"os": OPENING | CHANGING, "io": {"open"}, "mmap": {"mmap"}, "shutil": COPYING}
    found = []
    for node in ast.walk(tree.module(path)):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id="open"):
                found.append(f"{node.lineno}: open")
            case ast.Attribute(attr=attr) if attr in methods:
                found.append(f"{node.lineno}: {attr}")
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if attr in modules.get(
                owner, ()
            ):
                found.append(f"{node.lineno}: {owner}.{attr}")
    return found


@pytest.mark.parametrize("path", SEALED, ids=tree.name)
def test_only_the_door_opens_files(path: Path) -> None:
    assert opening_calls(path) == []


@pytest.mark.parametrize("path", tree.files(".py", folders=("kseg/format",)), ids=tree.name)
def test_format_knows_no_file_and_no_clock(path: Path) -> None:
    outside = {"mmap", "pathlib", "time", "tempfile", "shutil", "socket", "subprocess"}
    imported: set[str] = set()
    for node in ast.walk(tree.module(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported & outside == set()


def handlers_that_make(path: Path, error: str) -> list[int]:
    """Lines of the `except ValueError` of a module that raise another error, by its last name."""
    return [
        node.lineno
        for node in ast.walk(tree.module(path))
        if isinstance(node, ast.ExceptHandler)
        and node.type is not None
        and "ValueError" in ast.unparse(node.type)
        and any(isinstance(each, ast.Attribute) and each.attr == error for each in ast.walk(node))
    ]


def test_one_place_tells_wrong_words_from_damage() -> None:
    found = [
        tree.name(path)
        for path in tree.files(".py", folders=("kseg",))
        if handlers_that_make(path, "UsageError")
    ]
    assert found == ["kseg/cli/failures.py"]
