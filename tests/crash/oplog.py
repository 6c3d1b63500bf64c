"""What a workload asked of the disk: every call of the seam, in order, with its bytes.

A `Recorder` hands each call on to the system and notes what it changed, in terms of files and
names, so that later any state can be built that a crash may have left. Files are numbered as they
appear, since a name may come to mean another file. Whoever runs the workload adds remarks of its
own: what it is about to do, and what it has been told is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kseg.files import io

ROOT = 0


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes of a file."""

    node: int
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A file cut, or continued with zeros."""

    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Reserve:
    """Blocks for bytes to come: no crash state depends on them."""

    node: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A flush of a file.

    Where it failed, nobody can flush again what was to be written: the system takes it for written,
    and shows it as long as it is in memory, or has dropped it at once.
    """

    node: int
    failed: bool = False
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """A name for a file or a directory: new ones, and second ones."""

    directory: int
    name: str
    node: int
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class Unname:
    """A name is gone."""

    directory: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Rename:
    """A name taken from one place to another, whatever was there."""

    directory: int
    name: str
    to_directory: int
    to_name: str
    node: int


@dataclass(frozen=True, slots=True)
class SyncNames:
    """A flush of a directory."""

    directory: int


@dataclass(frozen=True, slots=True)
class Dress:
    """Owner, permissions, times: no crash state depends on them."""

    path: str | int


@dataclass(frozen=True, slots=True)
class Remark:
    """What the workload says of itself."""

    value: Any


Data = Write | Resize
Naming = Name | Unname | Rename
Op = Data | Naming | Reserve | Sync | SyncNames | Dress | Remark


@dataclass(slots=True)
class Tree:
    """Files and the names they have; number 0 is the root directory."""

    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=lambda: {ROOT: {}})

    def copy(self) -> Tree:
        """A tree that changes on its own; bytes are shared."""
        return Tree(dict(self.files), {key: dict(names) for key, names in self.names.items()})

    def apply(self, op: Op) -> None:
        """Change it as the call did."""
        match op:
            case Write(node, position, data):
                self.files[node] = overwritten(self.files.get(node, b""), position, data)
            case Resize(node, size):
                self.files[node] = resized(self.files.get(node, b""), size)
            case Name(directory, name, node, is_directory):
                self.names.setdefault(directory, {})[name] = node
                if is_directory:
                    self.names.setdefault(node, {})
                else:
                    self.files.setdefault(node, b"")
            case Unname(directory, name, node):
                self._drop(directory, name, node)
            case Rename(directory, name, to_directory, to_name, node):
                self._drop(directory, name, node)
                self.names.setdefault(to_directory, {})[to_name] = node
            case _:
                pass

    def lengthen(self, op: Write) -> None:
        """Make room for a write whose bytes never came."""
        data = self.files.get(op.node, b"")
        self.files[op.node] = resized(data, max(len(data), op.position + len(op.data)))

    def _drop(self, directory: int, name: str, node: int) -> None:
        names = self.names.get(directory, {})
        if names.get(name) == node:
            del names[name]

    def contents(self) -> dict[str, bytes | None]:
        """Relative path -> bytes of a file, or None for a directory; parents first."""
        found: dict[str, bytes | None] = {}
        waiting = [(ROOT, "")]
        while waiting:
            directory, prefix = waiting.pop()
            for name, node in sorted(self.names.get(directory, {}).items()):
                path = prefix + name
                if node in self.names:
                    found[path] = None
                    waiting.append((node, path + "/"))
                else:
                    found[path] = self.files.get(node, b"")
        return found


def overwritten(data: bytes, position: int, part: bytes) -> bytes:
    """`data` with `part` at a position; zeros where there was nothing in between."""
    if position == len(data):
        return data + part
    return data[:position].ljust(position, b"\0") + part + data[position + len(part) :]


def resized(data: bytes, size: int) -> bytes:
    """`data` cut, or continued with zeros."""
    return data[:size].ljust(size, b"\0")


class Recorder:
    """The calls of the seam, noted down. `calls` is what goes to `io.calls_replaced`.

    Attributes:
        root: everything must happen below; a call for another place is an error.
        before: what was there when it began, taken for lasting.
        ops: what was done, in order.
    """

    def __init__(self, root: Path, inner: io.Calls | None = None, *, drop: bool = False) -> None:
        """Begin.

        Args:
            root: must be there.
            inner: what the calls are handed on to; the system's if None.
            drop: after a flush that failed, let the file show what was flushed before.
        """
        self.root = os.path.realpath(root)
        self._drop = drop
        self.inner = inner or io.Calls()
        self.ops: list[Op] = []
        self._next = ROOT + 1
        self._now = Tree()
        self._nodes: dict[int, int] = {os.stat(self.root).st_ino: ROOT}
        self._take_in()
        self.before = self._now.copy()
        self._flushed = dict(self._now.files)
        self.calls = io.Calls(
            **{name: self._wrapped(name) for name in io.Calls.__dataclass_fields__}
        )

    def remark(self, value: Any) -> None:
        """Note what the workload says."""
        self.ops.append(Remark(value))

    def remarks(self) -> Iterator[Any]:
        """What the workload has said, in order."""
        return (op.value for op in self.ops if isinstance(op, Remark))

    def _take_in(self) -> None:
        for place, directories, files in os.walk(self.root):
            directory = self._node(place)
            for name in sorted(directories) + sorted(files):
                path = os.path.join(place, name)
                is_directory = name in directories
                node = self._new(path)
                self._now.apply(Name(directory, name, node, is_directory))
                if not is_directory:
                    self._now.files[node] = Path(path).read_bytes()

    def _new(self, path: str | int) -> int:
        node, self._next = self._next, self._next + 1
        self._nodes[os.stat(path).st_ino] = node
        return node

    def _node(self, path: io.StrPath | int) -> int:
        status = os.fstat(path) if isinstance(path, int) else os.lstat(path)
        return self._nodes[status.st_ino]

    def _place(self, path: io.StrPath) -> tuple[int, str]:
        parent, name = os.path.split(os.path.abspath(path))
        real = os.path.realpath(parent)
        if real != self.root and not real.startswith(self.root + os.sep):
            raise AssertionError(f"{os.fspath(path)} lies outside of {self.root}")
        return self._node(real), name

    def _note(self, op: Op) -> None:
        self.ops.append(op)
        self._now.apply(op)

    def _wrapped(self, name: str) -> Callable[..., Any]:
        inner = getattr(self.inner, name)
        noting: Callable[..., Any] = getattr(self, f"_{name}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return noting(inner, *args, **kwargs)

        return call

    # ---- one for each call -----------------------------------------------------------------------

    def _open(self, inner: Callable[..., int], path: io.StrPath, flags: int, mode: int) -> int:
        directory, name = self._place(path)
        is_new = name not in self._now.names[directory]
        fd = inner(path, flags, mode)
        assert not flags & os.O_TRUNC
        if is_new:
            self._note(Name(directory, name, self._new(fd)))
        return fd

    def _pwritev(
        self, inner: Callable[..., int], fd: int, parts: Sequence[io.Buffer], position: int
    ) -> int:
        written = inner(fd, parts, position)
        data = b"".join(map(bytes, parts))[: max(written, 0)]
        self._note(Write(self._node(fd), position, data))
        return written

    def _ftruncate(self, inner: Callable[..., None], fd: int, size: int) -> None:
        inner(fd, size)
        self._note(Resize(self._node(fd), size))

    def _fallocate(self, inner: Callable[..., None], fd: int, position: int, size: int) -> None:
        inner(fd, position, size)
        self._note(Reserve(self._node(fd)))

    def _fsync(self, inner: Callable[..., None], fd: int) -> None:
        node = self._node(fd)
        is_directory = node in self._now.names
        try:
            inner(fd)
        except OSError:
            if not is_directory:
                self._note_failed(fd, node)
            raise
        self._note(SyncNames(node) if is_directory else Sync(node))
        if not is_directory:
            self._flushed[node] = self._now.files[node]

    def _note_failed(self, fd: int, node: int) -> None:
        self._note(Sync(node, failed=True, dropped=self._drop))
        if self._drop:
            data = self._flushed.get(node, b"")
            os.ftruncate(fd, 0)
            os.pwrite(fd, data, 0)
            self._now.files[node] = data

    _fdatasync = _fsync

    def _rename(self, inner: Callable[..., None], source: io.StrPath, target: io.StrPath) -> None:
        node = self._node(source)
        before, after = self._place(source), self._place(target)
        inner(source, target)
        self._note(Rename(*before, *after, node))

    def _link(self, inner: Callable[..., None], source: io.StrPath, target: io.StrPath) -> None:
        node = self._node(source)
        inner(source, target)
        self._note(Name(*self._place(target), node))

    def _unlink(
        self, inner: Callable[..., None], path: io.StrPath, *, dir_fd: int | None = None
    ) -> None:
        if dir_fd is None:
            directory, name = self._place(path)
            inner(path)
        else:
            directory, name = self._node(dir_fd), os.fspath(path)
            inner(path, dir_fd=dir_fd)
        self._note(Unname(directory, name, self._now.names[directory][name]))

    _rmdir = _unlink

    def _mkdir(self, inner: Callable[..., None], path: io.StrPath, mode: int = 0o777) -> None:
        inner(path, mode)
        self._note(Name(*self._place(path), self._new(os.fspath(path)), is_directory=True))

    def _utime(self, inner: Callable[..., None], path: io.StrPath | int, **times: Any) -> None:
        inner(path, **times)
        self._note(Dress(path if isinstance(path, int) else os.fspath(path)))

    def _chown(self, inner: Callable[..., None], path: io.StrPath | int, *owner: int) -> None:
        inner(path, *owner)
        self._note(Dress(path if isinstance(path, int) else os.fspath(path)))

    def _chmod(self, inner: Callable[..., None], path: io.StrPath | int, mode: int) -> None:
        inner(path, mode)
        self._note(Dress(path if isinstance(path, int) else os.fspath(path)))
