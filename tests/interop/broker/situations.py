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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders import batch, record
from tests.reference import walk

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
        settings: properties of the node that differ, with `{root}` for the folder.
    """

    name: str
    damage: Damage
    killed: bool = False
    roles: str = COMBINED
    settings: Mapping[str, str] = field(default_factory=dict)

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


def touched(where: Place, *names: str) -> Damage:
    """Empty files in a directory, which is made where it is not there."""
    return both(*(holds(inside(where, name), b"") for name in names))


def _gone(where: Place, pattern: str) -> Damage:
    """All files of a directory that fit, of which there is one at least."""

    def do(root: Path) -> None:
        paths = list(where(root).glob(pattern))
        assert paths
        for path in paths:
            path.unlink()

    return do


def _segment_gone(where: Place, number: int, *kinds: str) -> Damage:
    """A segment with these files."""

    def do(root: Path) -> None:
        log = segment(where, number)(root)
        for kind in ("log", *kinds):
            log.with_suffix(f".{kind}").unlink(missing_ok=True)

    return do


_UUID = "0123456789abcdef0123456789abcdef"


def _of_foreign_files() -> Iterator[Situation]:
    """Directories that have a partition's name, or hold files that a start stumbles over."""
    one, indexes = partition("disk2"), ("index", "timeindex")
    folder = at("disk2/orders-9")
    yield from _both_states("orders-9 with notes.txt alone", touched(folder, "notes.txt"))
    yield Situation(
        "orders-9 with a folder alone", lambda root: (folder(root) / "x").mkdir(parents=True)
    )
    yield Situation(
        "orders-9 with a link alone", both(a_folder(folder), dangling(inside(folder, "x")))
    )
    yield Situation(
        "a partition with .nfs0001 alone", both(_emptied(one), touched(one, ".nfs0001"))
    )
    yield Situation("a partition with a hidden file beside", touched(one, ".nfs0001"))
    for kind in ("delete", "stray", "future"):
        aside = at(f"disk2/orders-9.{_UUID}-{kind}")
        yield Situation(f"a -{kind} with notes.txt alone", touched(aside, "notes.txt"))
        yield Situation(f"a -{kind} with core.log", touched(aside, "core.log"), killed=True)
        yield Situation(f"a -{kind} with x.snapshot", touched(aside, "x.snapshot"))
        yield Situation(f"a -{kind} with an empty log", touched(aside, f"{0:020}.log"))
    deleted = at(f"disk2/orders-9.{_UUID}-delete")
    moved_away = copied(one, lambda root, path: deleted(root))
    yield from _both_states(
        "a -delete with unused entries",
        both(moved_away, longer(segment(deleted, -1, "timeindex"), bytes(48))),
    )
    yield Situation(
        "a -delete without indexes",
        both(moved_away, *(missing(segment(deleted, -1, kind)) for kind in indexes)),
    )
    yield Situation(
        "a -delete with a flipped byte",
        both(moved_away, flipped(segment(deleted), 30_000)),
        killed=True,
    )
    for name in ("x.snapshot", ".snapshot", "9" * 21 + ".snapshot"):
        yield Situation(f"{name} in a partition", touched(one, name))
    for where, place in (
        ("another partition", partition("disk1", "users")),
        ("the metadata log", at(f"disk1/{_METADATA}")),
    ):
        yield Situation(f"x.snapshot in {where}", touched(place, "x.snapshot"), killed=True)
    for name in (
        *("x.snapshot.deleted", "x.snapshot.tmp", "x.log.deleted", "x.log.swap", "x.log.cleaned"),
        *("x.txnindex", "x.timeindex", "x.swap", ".log", "orders.snapshot.bak"),
        *("7.snapshot", "-7.snapshot", "copy of 00000000000000000200.log", f"{0:020}.swap"),
    ):
        yield Situation(f"{name} in a partition", touched(one, name))
    leftovers = ("meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown")
    yield from _both_states(
        "leftovers of writes",
        both(
            touched(at("disk2"), *(f"{name}.tmp" for name in leftovers)),
            touched(one, "partition.metadata.tmp", "leader-epoch-checkpoint.tmp"),
            touched(at(f"disk1/{_METADATA}"), "quorum-state.tmp"),
        ),
    )
    mark = at("disk2/.kafka_cleanshutdown")
    yield from _both_states(".kafka_cleanshutdown: a folder", a_folder(mark))
    yield from _both_states(".kafka_cleanshutdown: dangling", dangling(mark))
    yield Situation(
        ".kafka_cleanshutdown: a folder with a file", both(a_folder(mark), touched(mark, "x"))
    )
    yield Situation("plain records in an open transaction", _mixed(True, False), killed=True)
    yield Situation(
        "a transaction behind plain records of its producer", _mixed(False, True), killed=True
    )


def _mixed(*transactional: bool) -> Damage:
    """Batches of one producer behind the log, behind a last one of a transaction."""

    def do(root: Path) -> None:
        log = segment(partition("disk2", "orders"))(root)
        end = _end_of(log)
        with log.open("ab") as file:
            for number, is_open in enumerate(transactional):
                file.write(
                    batch(
                        [record(b"v")],
                        base_offset=end + number,
                        producer_id=4_321,
                        producer_epoch=0,
                        base_sequence=number,
                        transactional=is_open,
                    )
                )

    return do


def _end_of(log: Path) -> int:
    return walk(log.read_bytes()).batches[-1].last_offset + 1


def _of_metadata_logs() -> Iterator[Situation]:
    """A metadata log that is empty, not whole, or elsewhere; reserved ids."""
    home, boot = at(f"disk1/{_METADATA}"), at("disk1/bootstrap.checkpoint")
    emptied = holds(segment(home), b"")
    yield from _both_states(f"{_METADATA}: only quorum-state is left", _gone(home, "0*"))
    yield from _both_states(f"{_METADATA}: an empty log", emptied)
    yield Situation(f"{_METADATA}: an empty log", emptied, roles=CONTROLLER)
    yield Situation(f"{_METADATA}: an empty directory", _emptied(home))
    yield Situation(
        f"{_METADATA}: its log is gone", both(_gone(home, "*.log"), _gone(home, "*index"))
    )
    copy = copied(boot, lambda root, path: home(root) / f"{0:020}-{0:010}.checkpoint")
    yield Situation(f"{_METADATA}: an empty log and a snapshot", both(emptied, copy))
    later = both(
        moved(segment(home), lambda root, path: path.with_name(f"{50:020}.log")),
        _gone(home, "*index"),
    )
    yield Situation(f"{_METADATA}: a log that begins at 50", later)
    for word in ("A", "Q", "g", "w"):
        line = f"directory.id=AAAAAAAAAAAAAAAAAAAAA{word}"
        yield Situation(
            f"disk2/meta.properties: {line}",
            replaced(at("disk2/meta.properties"), "directory.id", line),
        )
    line = "directory.id=AAAAAAAAAAAAAAAAAAAAYw"
    yield Situation(
        f"disk2/meta.properties: {line}",
        replaced(at("disk2/meta.properties"), "directory.id", line),
    )
    disks = {name: f"{{root}}/{name}" for name in ("disk1", "disk2")}
    yield Situation(
        "metadata.log.dir beside log.dirs",
        nothing,
        settings={"metadata.log.dir": disks["disk1"], "log.dirs": disks["disk2"]},
    )
    yield Situation(
        "metadata.log.dir is the other disk", nothing, settings={"metadata.log.dir": disks["disk2"]}
    )
    yield Situation("log.dirs lacks a disk", nothing, settings={"log.dirs": disks["disk1"]})
    yield Situation(
        "log.dirs has the other disk alone, as metadata.log.dir",
        nothing,
        settings={"metadata.log.dir": disks["disk2"], "log.dirs": disks["disk1"]},
    )


def _of_metadata_files() -> Iterator[Situation]:
    """Snapshots of the metadata log, the bootstrap file, and files of other names."""
    home, boot = at(f"disk1/{_METADATA}"), at("disk1/bootstrap.checkpoint")
    contents = {"empty": b"", "garbage": _NOISE}
    damages: dict[str, Callable[[Place], Damage]] = {
        **{how: (lambda place, data=data: holds(place, data)) for how, data in contents.items()},
        "a flipped byte": lambda place: flipped(place, 60),
        "a flipped last byte": lambda place: flipped(place, -1),
        "torn": lambda place: cut(place, less=20),
        "noise behind it": lambda place: longer(place, _NOISE),
        "zeros behind it": lambda place: longer(place, bytes(200)),
    }
    for how, damage in damages.items():
        yield Situation(f"bootstrap.checkpoint: {how}", damage(boot))
        newest = inside(home, f"{90:020}-{1:010}.checkpoint")
        newer = both(copied(boot, lambda root, path, to=newest: to(root)), damage(newest))
        yield Situation(f"a newer .checkpoint: {how}", newer)
    yield Situation("bootstrap.checkpoint: empty", holds(boot, b""), roles=CONTROLLER)
    yield Situation("bootstrap.checkpoint: a folder", a_folder(boot))
    yield Situation(
        "bootstrap.checkpoint: garbage on the other disk",
        holds(at("disk2/bootstrap.checkpoint"), _NOISE),
    )
    first = copied(boot, lambda root, path: home(root) / f"{0:020}-{0:010}.checkpoint")
    without = both(first, missing(boot))
    yield Situation("a .checkpoint of no offsets, without bootstrap.checkpoint", without)
    for end in (90, 9_999):
        stray = copied(
            boot, lambda root, path, end=end: home(root) / f"{end:020}-{9:010}.checkpoint"
        )
        yield Situation(f"a sound .checkpoint of {end} offsets", stray)
    for name in (
        *(
            "x.checkpoint",
            ".checkpoint",
            f"{5:020}.checkpoint",
            f"{5:020}-1.checkpoint",
            "x.checkpoint.deleted",
        ),
        *("x.checkpoint.part", f"{500:020}-{1:010}.checkpoint.part", "x.log", "notes.txt"),
        *(f"{5:020}-{1:010}.checkpoint.deleted", f"{5:020}-{1:010}-x.checkpoint", "7.snapshot"),
    ):
        yield Situation(f"{_METADATA}/{name}", touched(home, name))
    yield Situation("x.checkpoint in a partition", touched(partition("disk2"), "x.checkpoint"))


def _of_lost_segments() -> Iterator[Situation]:
    """Segments that are gone, with checkpoints and epochs that know of them."""
    one, files = partition("disk2"), ("index", "timeindex", "txnindex")
    names = [
        f"{kind}-offset-checkpoint"
        for kind in ("recovery-point", "log-start", "replication", "cleaner")
    ]
    damages: dict[str, Damage] = {
        "all segments gone": _gone(one, "0*"),
        "all logs gone": _gone(one, "*.log"),
        "all files but partition.metadata gone": both(_gone(one, "0*"), _gone(one, "leader*")),
        "last segment gone": _segment_gone(one, -1, *files),
        "last segment and its snapshot gone": both(
            _segment_gone(one, -1, *files), missing(some(one, "snapshot"))
        ),
        "first two segments gone": both(
            _segment_gone(one, 0, *files), _segment_gone(one, 0, *files)
        ),
        "checkpoints gone": both(*(_absent(f"disk2/{name}") for name in names)),
        "checkpoints and a segment gone": both(
            _segment_gone(one, 0, *files), *(_absent(f"disk2/{name}") for name in names)
        ),
        "snapshots and epochs gone": both(_gone(one, "*.snapshot"), _gone(one, "leader*")),
        "segments of the aborted transaction gone": _gone(partition("disk2", "txn"), "0*"),
    }
    for name, damage in damages.items():
        yield from _both_states(name, damage)


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
    *_of_foreign_files(),
    *_of_metadata_logs(),
    *_of_metadata_files(),
    *_of_lost_segments(),
)
