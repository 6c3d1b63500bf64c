"""Damage to a broker's data directories, as a table: what a start makes of each is not stored.

`SITUATIONS` is data. To add a row, name what is done to the two directories, in which state they
are (stopped cleanly or killed), and with which roles the node starts. `test_doctor_situations.py`
asks the doctor, starts a broker, and compares. A row has no expectation.

`disk1` has the metadata log. Each disk has partitions of `orders` (three segments each), one of
`users` (compacted) and one of `txn` (with an aborted transaction, so that a transaction index is
there; on `disk2` with an open one, too). Most rows damage the first partition of `orders` on a
disk.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders import batch, record

#: What is done to the folder that holds both data directories.
Damage = Callable[[Path], None]
COMBINED, CONTROLLER = "broker,controller", "controller"
_NOISE = random.Random(33).randbytes(200)
_METADATA = "__cluster_metadata-0"


@dataclass(frozen=True, slots=True)
class Situation:
    """One row.

    Attributes:
        name: what was done, and to which file.
        damage: does it.
        killed: the broker was killed, not stopped.
        roles: with which the node starts.
    """

    name: str
    damage: Damage
    killed: bool = False
    roles: str = COMBINED

    @property
    def title(self) -> str:
        """The name with the state and the roles."""
        state = "killed" if self.killed else "stopped"
        return f"{self.name}, {state}, {self.roles.replace(',', ' and ')}"


# ---- places --------------------------------------------------------------------------------------

Place = Callable[[Path], Path]


def at(name: str) -> Place:
    """A file or directory by its name below the folder."""
    return lambda root: root / name


def partition(disk: str, topic: str = "orders", number: int = 0) -> Place:
    """A partition of a topic on a disk."""
    return lambda root: sorted((root / disk).glob(f"{topic}-*"))[number]


def inside(where: Place, name: str) -> Place:
    """A file in a partition."""
    return lambda root: where(root) / name


def segment(where: Place, number: int = -1, kind: str = "log") -> Place:
    """A file of the partition's segment of this number."""
    return lambda root: sorted(where(root).glob("*.log"))[number].with_suffix(f".{kind}")


def some(where: Place, kind: str) -> Place:
    """The last file of a kind."""
    return lambda root: sorted(where(root).glob(f"*.{kind}"))[-1]


# ---- damage to a file ----------------------------------------------------------------------------


def missing(place: Place) -> Damage:
    def do(root: Path) -> None:
        path = place(root)
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return do


def holds(place: Place, data: bytes) -> Damage:
    return lambda root: _write(place(root), data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def cut(place: Place, keep: int | None = None, *, less: int = 0) -> Damage:
    """Keep the first bytes, or all but the last `less`."""

    def do(root: Path) -> None:
        data = place(root).read_bytes()
        place(root).write_bytes(data[: len(data) - less if keep is None else keep])

    return do


def longer(place: Place, data: bytes) -> Damage:
    return lambda root: _write(place(root), place(root).read_bytes() + data)


def flipped(place: Place, position: int) -> Damage:
    """A byte is another; a negative position counts from the end."""

    def do(root: Path) -> None:
        data = bytearray(place(root).read_bytes())
        data[position] ^= 0x5A
        place(root).write_bytes(data)

    return do


def replaced(place: Place, old: str, new: str) -> Damage:
    """The line that begins with `old` is another."""

    def do(root: Path) -> None:
        lines = place(root).read_text().splitlines()
        found = [new if line.startswith(old) else line for line in lines]
        assert found != lines
        place(root).write_text("".join(f"{line}\n" for line in found))

    return do


def dangling(place: Place) -> Damage:
    def do(root: Path) -> None:
        path = place(root)
        path.unlink(missing_ok=True)
        path.symlink_to("/nowhere/to/be/found")

    return do


def a_folder(place: Place) -> Damage:
    def do(root: Path) -> None:
        path = place(root)
        path.unlink(missing_ok=True)
        path.mkdir()

    return do


def moved(place: Place, target: Callable[[Path, Path], Path]) -> Damage:
    return lambda root: shutil.move(place(root), target(root, place(root)))


def copied(place: Place, target: Callable[[Path, Path], Path]) -> Damage:
    def do(root: Path) -> None:
        source = place(root)
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, target(root, source))

    return do


def both(*damages: Damage) -> Damage:
    def do(root: Path) -> None:
        for damage in damages:
            damage(root)

    return do


def nothing(root: Path) -> None:
    """Leave all as it is."""


def overflow(magic: int) -> Damage:
    """One segment with offsets that have no 32-bit form, whose first batch has this magic."""

    def do(root: Path) -> None:
        where = partition("disk2")(root)
        for path in where.glob("0*"):
            path.unlink()
        first = bytearray(batch([record(b"v")]))
        first[16] = magic
        far = batch([record(b"v")], base_offset=2**31 + 10)
        (where / f"{0:020}.log").write_bytes(bytes(first) + far)

    return do


def beside(suffix: str) -> Callable[[Path, Path], Path]:
    return lambda root, path: path.with_name(path.name + suffix)


# ---- the table -----------------------------------------------------------------------------------


def _both_states(name: str, damage: Damage) -> Iterator[Situation]:
    yield Situation(name, damage)
    yield Situation(name, damage, killed=True)


def _on_both_disks(name: str, of: Callable[[str], Damage]) -> Iterator[Situation]:
    """Each disk in one state: all four would say the same."""
    yield Situation(f"disk1/{name}", of("disk1"), killed=True)
    yield Situation(f"disk2/{name}", of("disk2"))


def _small_files() -> Iterator[Situation]:
    """Damage to each checkpoint and list of ids, on both disks."""
    checkpoints = ("recovery-point", "log-start", "replication", "cleaner")
    for kind in checkpoints:
        name = f"{kind}-offset-checkpoint"
        contents = {"empty": b"", "garbage": b"x\n", "torn": b"0\n9\norders 1 ", "noise": _NOISE}
        contents["version 1"] = b"1\n0\n"
        contents["not a number"] = b"0\n1\norders 0 x\n"
        if kind in ("replication", "cleaner"):
            contents = {"empty": b"", "garbage": b"x\n"}
        for how, data in contents.items():
            yield from _on_both_disks(
                f"{name}: {how}",
                lambda disk, name=name, data=data: holds(at(f"{disk}/{name}"), data),
            )
        yield from _both_states(f"disk2/{name}: missing", _absent(f"disk2/{name}"))
        if kind in ("recovery-point", "log-start"):
            damage = both(missing(partition("disk2", "txn")), holds(at(f"disk2/{name}"), b"x\n"))
            yield from _both_states(f"disk2/{name}: garbage, without an open transaction", damage)
    name = "meta.properties"
    for how, data in {"empty": b"", "noise": _NOISE, "garbage": b"x\n"}.items():
        yield from _on_both_disks(
            f"{name}: {how}", lambda disk, data=data: holds(at(f"{disk}/{name}"), data)
        )
    for old, new in (
        ("version", "version=0"),
        ("version", "version=9"),
        ("version", "version=x"),
        ("version", "#"),
        ("cluster.id", "cluster.id=AAAAAAAAAAAAAAAAAAAAZQ"),
        ("cluster.id", "#"),
        ("node.id", "node.id=7"),
        ("node.id", "node.id=x"),
        ("node.id", "#"),
        ("directory.id", "#"),
        ("directory.id", "directory.id=x"),
    ):
        yield Situation(f"disk2/{name}: {old} is {new}", replaced(at(f"disk2/{name}"), old, new))
    yield Situation(
        f"disk1/{name}: version is version=0", replaced(at(f"disk1/{name}"), "version", "version=0")
    )
    yield from _on_both_disks(f"{name}: missing", lambda disk: missing(at(f"{disk}/{name}")))
    yield Situation(
        "disk2/meta.properties is a copy of the other disk's",
        lambda root: _write(root / "disk2" / name, (root / "disk1" / name).read_bytes()),
    )
    yield Situation("disk2/.kafka_cleanshutdown: missing", _absent("disk2/.kafka_cleanshutdown"))
    yield Situation(
        "disk2/.kafka_cleanshutdown: empty", holds(at("disk2/.kafka_cleanshutdown"), b"")
    )
    yield Situation(
        "disk2/.kafka_cleanshutdown: noise", holds(at("disk2/.kafka_cleanshutdown"), _NOISE)
    )
    yield Situation("disk1/bootstrap.checkpoint: missing", _absent("disk1/bootstrap.checkpoint"))


def _absent(name: str) -> Damage:
    return lambda root: (root / name).unlink(missing_ok=True)


def _of_kraft() -> Iterator[Situation]:
    """Damage to the metadata log and what lies beside it; with both roles."""
    home, log = at(f"disk1/{_METADATA}"), segment(at(f"disk1/{_METADATA}"))
    state = inside(home, "quorum-state")
    changes: dict[str, Damage] = {
        "quorum-state: missing": missing(state),
        "quorum-state: empty": holds(state, b""),
        "quorum-state: a bracket": holds(state, b"{"),
        "quorum-state: noise": holds(state, _NOISE),
        "quorum-state: no fields": holds(state, b"{}"),
        "quorum-state: version 9": holds(state, b'{"data_version": 9}'),
        "torn": cut(log, less=30),
        "zeros behind it": longer(log, bytes(200)),
        "without an index": missing(segment(home, -1, "index")),
        "epochs: garbage": holds(inside(home, "leader-epoch-checkpoint"), b"x\n"),
        "partition.metadata: garbage": holds(inside(home, "partition.metadata"), b"foo\n"),
    }
    for number, (name, damage) in enumerate(changes.items()):
        yield Situation(f"{_METADATA}/{name}", damage, killed=bool(number % 2))
        if number < 5:
            yield Situation(f"{_METADATA}/{name}", damage, roles=CONTROLLER)


def _of_partitions() -> Iterator[Situation]:
    """Damage to the files of one partition on the second disk."""
    one = partition("disk2")
    log, first = segment(one), segment(one, 0)
    ids, epochs = inside(one, "partition.metadata"), inside(one, "leader-epoch-checkpoint")
    for how, data in {
        "empty": b"",
        "garbage": b"foo\n",
        "noise": _NOISE,
        "version 9": b"version: 9\ntopic_id: AAAAAAAAAAAAAAAAAAAAZQ\n",
        "no id": b"version: 0\n",
        "a short id": b"version: 0\ntopic_id: AAAA\n",
        "a zero id": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
    }.items():
        yield Situation(f"partition.metadata: {how}", holds(ids, data))
    for how, data in {"empty": b"", "garbage": b"x\n", "torn": b"0\n2\n0 0\n"}.items():
        yield from _both_states(f"epochs: {how}", holds(epochs, data))
    yield Situation("epochs: missing", missing(epochs))
    yield Situation("epochs: later ones", holds(epochs, b"0\n2\n0 0\n9 100000\n"), killed=True)
    for kind in ("index", "timeindex"):
        place = segment(one, 0, kind)
        yield from _both_states(f"{kind}: missing", missing(place))
        yield Situation(f"{kind}: empty", holds(place, b""))
        yield Situation(f"{kind}: noise", holds(place, _NOISE + bytes(4)))
        yield Situation(f"{kind}: a part of an entry", cut(place, 13), killed=True)
        yield Situation(f"{kind}: a folder", a_folder(place))
    snapshot = some(one, "snapshot")
    yield from _both_states("snapshot: missing", missing(snapshot))
    yield from _both_states("snapshot: noise", holds(snapshot, _NOISE))
    yield Situation("snapshot: empty", holds(snapshot, b""))
    aborted = partition("disk2", "txn")
    for how, data in {"empty": b"", "noise": _NOISE, "version 5": b"\0\5" + bytes(32)}.items():
        yield Situation(f"txnindex: {how}", holds(segment(aborted, -1, "txnindex"), data))
    yield from _both_states("log: dangling", dangling(log))
    yield Situation("log of the first segment: dangling", dangling(first))
    yield Situation("log: a folder", a_folder(log))
    yield from _both_states("log: empty", holds(log, b""))
    yield from _both_states("log of the first segment: empty", holds(first, b""))
    yield from _both_states("log: torn", cut(log, less=7))
    yield from _both_states("log: zeros behind it", longer(log, bytes(500)))
    yield from _both_states("log: noise behind it", longer(log, _NOISE))
    yield from _both_states("log: a flipped byte", flipped(log, 30_000))
    yield from _both_states("log of the first segment: a flipped byte", flipped(first, 30_000))
    yield from _both_states("log: a flipped length", flipped(log, 9))
    yield from _both_states("log: missing", missing(log))
    yield Situation(
        "first segment: gone",
        both(*(missing(segment(one, 0, k)) for k in ("index", "timeindex")), missing(first)),
    )
    yield Situation(
        "middle segment: gone",
        both(
            *(missing(segment(one, 1, k)) for k in ("index", "timeindex")), missing(segment(one, 1))
        ),
    )
    yield Situation("core.log", holds(inside(one, "core.log"), b"x"))
    yield Situation("core.index", holds(inside(one, "core.index"), b"x"))
    yield Situation("notes.txt", holds(inside(one, "notes.txt"), b"x"))
    yield Situation("a folder in a partition", lambda root: (one(root) / "kept").mkdir())
    yield Situation("7.log beside others", holds(inside(one, "7.log"), b""))
    for suffix in (".deleted", ".swap", ".cleaned"):
        name = f"a log with {suffix}"
        yield Situation(name, copied(first, beside(suffix)), killed=suffix != ".deleted")
    for magic in (5, 2):
        yield Situation(f"an overflow, magic {magic}", overflow(magic), killed=True)
    yield Situation("log start offset in the last segment", _line("log-start", 100))
    yield Situation("log start offset behind the end", _line("log-start", 999_999))
    yield Situation("recovery point behind the end", _line("recovery-point", 999_999), killed=True)
    yield Situation("recovery point of 0", _line("recovery-point", 0), killed=True)


def _line(kind: str, offset: int) -> Damage:
    """One line in a checkpoint of the second disk, for its first partition of `orders`."""

    def do(root: Path) -> None:
        number = partition("disk2")(root).name.rpartition("-")[2]
        path = root / "disk2" / f"{kind}-offset-checkpoint"
        path.write_text(f"0\n1\norders {number} {offset}\n")

    return do


def _of_directories() -> Iterator[Situation]:
    one, other = partition("disk2"), partition("disk1")
    yield from _both_states("nothing", nothing)
    yield Situation("nothing", nothing, roles=CONTROLLER)
    yield Situation("disk2: missing", missing(at("disk2")))
    yield Situation("disk2: empty", both(missing(at("disk2")), a_folder(at("disk2"))))
    yield Situation("disk2: a file", both(missing(at("disk2")), holds(at("disk2"), b"")))
    yield Situation("disk2: dangling", both(missing(at("disk2")), dangling(at("disk2"))))
    yield Situation("lost+found", a_folder(at("disk2/lost+found")))
    yield Situation("lost+found", a_folder(at("disk2/lost+found")), roles=CONTROLLER)
    yield Situation("a hidden folder", a_folder(at("disk2/.snapshot")))
    yield Situation("a file beside the partitions", holds(at("disk2/notes.txt"), b"x"))
    yield Situation("orders-1.bak", copied(one, beside(".bak")))
    yield Situation("orders-1-old", copied(one, beside("-old")))
    yield Situation(
        "a -future on the other disk",
        copied(
            one,
            lambda root, path: (
                root / "disk1" / f"{path.name}.0123456789abcdef0123456789abcdef-future"
            ),
        ),
    )
    yield Situation(
        "a -future on the same disk",
        copied(one, beside(".0123456789abcdef0123456789abcdef-future")),
    )
    yield from _of_copies(one)
    yield Situation("a partition is a file", lambda root: _as_file(one(root)))
    yield Situation("a -delete", copied(one, beside(".0123456789abcdef0123456789abcdef-delete")))
    yield Situation("a -stray", copied(one, beside(".0123456789abcdef0123456789abcdef-stray")))
    yield Situation(
        "a partition on both disks", copied(one, lambda root, path: root / "disk1" / path.name)
    )
    yield Situation(
        "a partition moved to the other disk",
        moved(one, lambda root, path: root / "disk1" / path.name),
    )
    yield Situation(
        "a partition is a link", both(moved(one, lambda root, path: root / "away"), _linked("away"))
    )
    yield Situation("a partition is empty", _emptied(one))
    yield Situation(
        "foreign partitions in a controller", copied(other, beside(".bak")), roles=CONTROLLER
    )
    yield Situation(
        "a controller's partition is damaged",
        flipped(segment(other), 9),
        killed=True,
        roles=CONTROLLER,
    )


_FUTURE = ".0123456789abcdef0123456789abcdef-future"


def _of_copies(one: Place) -> Iterator[Situation]:
    """Copies under way to the directory that the partition is assigned to, or of another topic."""
    ids = inside(lambda root: next(root.glob("disk*/*-future")), "partition.metadata")
    elsewhere = copied(one, lambda root, path: root / "disk1" / f"{path.name}{_FUTURE}")
    other = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAZQ\n"
    away = moved(one, lambda root, path: root / "disk1" / path.name)
    of_other = both(elsewhere, holds(ids, other))
    renamed = moved(one, beside(_FUTURE))
    yield Situation("a -future of another topic id", of_other)
    yield Situation("a -future without its topic id", both(elsewhere, missing(ids)), killed=True)
    yield from _both_states("a -future in the place of its log", renamed)
    yield Situation(
        "a -future of another topic id in the place of its log", both(renamed, holds(ids, other))
    )
    yield Situation(
        "a -future whose log is on the other disk", both(copied(one, beside(_FUTURE)), away)
    )


def _linked(name: str) -> Damage:
    def do(root: Path) -> None:
        names = {path.name for path in root.glob("disk*/orders-*")}
        (gone,) = {f"orders-{number}" for number in range(4)} - names
        (root / "disk2" / gone).symlink_to(root / name)

    return do


def _as_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(b"x")


def _emptied(place: Place) -> Damage:
    def do(root: Path) -> None:
        for path in place(root).iterdir():
            path.unlink()

    return do


SITUATIONS: tuple[Situation, ...] = (
    *_of_directories(),
    *_small_files(),
    *_of_kraft(),
    *_of_partitions(),
)
