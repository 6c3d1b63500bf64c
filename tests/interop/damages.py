"""Partition directories come to harm, by chance: torn, flipped, emptied, lost and left over.

Each way takes a directory and answers a line that says what it did, None where there was nothing
to do it to.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from struct import pack, unpack

from tests.builders import batch, record
from tests.interop.made import NOW, often

Damage = Callable[[Random, Path], str | None]

_EPOCHS = "leader-epoch-checkpoint"
_FAR = 2**31 + 5
_INDEXES = (".index", ".timeindex", ".txnindex")
_EPOCH_TEXTS = (
    *("", "0\n", "0\n0\n", "0\n1\n5 7\n", "0\n2\n4 10\n3 20\n", "0\n2\n1 0\n9 99999\n"),
    *("x\n", "1\n0\n", "0\n3\n0 0\n", "0\nx\n", "0\n1\n0 0 0\n", "0\n1\na b\n"),
)


def _of(directory: Path, *suffixes: str, empty: bool = False) -> list[Path]:
    """Files with these suffixes; the last segment twice, since it is what crashes hurt."""
    found = sorted(path for path in directory.iterdir() if path.suffix in suffixes)
    found = [path for path in found if empty or path.stat().st_size]
    return found + found[-1:]


def _base(path: Path) -> int:
    return int(path.name.partition(".")[0])


# Logs


def flip(chance: Random, directory: Path) -> str | None:
    """One bit of a log."""
    return _changed(chance, _of(directory, ".log"), _flipped)


def _flipped(chance: Random, data: bytearray) -> bytearray:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def tear(chance: Random, directory: Path) -> str | None:
    """A log without its last bytes."""
    return _changed(chance, _of(directory, ".log"), _torn)


def _torn(chance: Random, data: bytearray) -> bytearray:
    longest = chance.choice((20, 100, len(data)))
    return data[: max(len(data) - chance.randint(1, longest), 0)]


def zeros_behind(chance: Random, directory: Path) -> str | None:
    """A log with zeros at its end."""
    return _changed(
        chance,
        _of(directory, ".log", empty=True),
        lambda c, data: data + bytes(_few(c, 1, 17, 600)),
    )


def noise_behind(chance: Random, directory: Path) -> str | None:
    """A log with noise at its end."""
    return _changed(
        chance,
        _of(directory, ".log", empty=True),
        lambda c, data: data + c.randbytes(_few(c, 1, 90)),
    )


def _few(chance: Random, *most: int) -> int:
    return chance.randint(1, chance.choice(most))


def hole(chance: Random, directory: Path) -> str | None:
    """A log with zeros where a sector was."""
    return _changed(chance, _of(directory, ".log"), _holed)


def _holed(chance: Random, data: bytearray) -> bytearray:
    at = chance.randrange(len(data))
    size = min(chance.choice((1, 8, 64, 512)), len(data) - at)
    data[at : at + size] = bytes(size)
    return data


def batch_behind(chance: Random, directory: Path) -> str | None:
    """A sound batch of odd offsets at the end of a log: too far, too early, cut, of a new epoch."""
    logs = _of(directory, ".log", empty=True)
    if not logs:
        return None
    path = chance.choice(logs)
    odd = chance.choice((_base(path) + _FAR, _base(path) + 500, max(_base(path) - 3, 0), 2**40))
    data = batch(
        [record(b"late", timestamp=NOW)],
        base_offset=odd,
        leader_epoch=chance.choice((-1, 0, 1, 90)),
        producer_id=chance.choice((-1, 1, 7)),
        producer_epoch=chance.choice((0, 1)),
        base_sequence=chance.choice((0, 99)),
        transactional=often(chance, 0.2),
    )
    with path.open("ab") as file:
        file.write(data if often(chance, 0.7) else data[: chance.randrange(len(data))])
    return f"batch at {odd} behind {path.name}"


def lie(chance: Random, directory: Path) -> str | None:
    """A header field that no checksum covers: offset, length, epoch, magic."""
    return _changed(chance, _of(directory, ".log"), _lying)


def _lying(chance: Random, data: bytearray) -> bytearray:
    at, starts = 0, []
    while at + 17 <= len(data):
        starts.append(at)
        at += max(unpack(">i", data[at + 8 : at + 12])[0], 5) + 12
    if not starts:
        return data
    at = chance.choice(starts)
    where, value = chance.choice(
        (
            (0, pack(">q", chance.choice((0, -1, 7, _FAR, 2**62)))),
            (8, pack(">i", chance.choice((0, 13, 14, -1, 2**31 - 1, 60)))),
            (12, pack(">i", chance.choice((-1, 0, 3, 90)))),
            (16, pack(">b", chance.choice((0, 1, 3, -1, 127)))),
        )
    )
    data[at + where : at + where + len(value)] = value
    return data


def lose_log(chance: Random, directory: Path) -> str | None:
    """A log file is gone; its indexes are not."""
    return _lost(chance, _of(directory, ".log", empty=True))


def lose_segment(chance: Random, directory: Path) -> str | None:
    """All files of a segment are gone."""
    logs = _of(directory, ".log", empty=True)
    if not logs:
        return None
    stem = chance.choice(logs).stem
    for path in directory.glob(f"{stem}.*"):
        path.unlink()
    return f"all of {stem} gone"


def rename_log(chance: Random, directory: Path) -> str | None:
    """A log under another number: short, negative, none at all, or above its own offsets."""
    logs = _of(directory, ".log", empty=True)
    if not logs:
        return None
    path = chance.choice(logs)
    name = chance.choice((f"{_base(path)}", f"{_base(path) + 3:020d}", "-5", "abc"))
    path.rename(path.with_name(f"{name}.log"))
    return f"{path.name} is {name}.log"


# Indexes


def lose_index(chance: Random, directory: Path) -> str | None:
    """An index file is gone."""
    return _lost(chance, _of(directory, *_INDEXES, empty=True))


def lose_indexes(chance: Random, directory: Path) -> str | None:
    """Every index of one kind is gone."""
    kind = chance.choice(_INDEXES)
    for path in directory.glob(f"*{kind}"):
        path.unlink()
    return f"every {kind} gone"


def garble_index(chance: Random, directory: Path) -> str | None:
    """An index file with other bytes, of another length, or with zeros."""
    ways = (
        lambda c, data: c.randbytes(_few(c, 50)),
        lambda c, data: data + bytes(_few(c, 100)),
        lambda c, data: bytes(len(data)),
        lambda c, data: data[: c.randrange(len(data) + 1)],
        lambda c, data: b"  ",
        _flipped,
    )
    return _changed(chance, _of(directory, *_INDEXES), chance.choice(ways))


def wrong_transactions(chance: Random, directory: Path) -> str | None:
    """A transaction index made up, of a version that nobody knows now and then."""
    logs = _of(directory, ".log", empty=True)
    if not logs:
        return None
    path = chance.choice(logs).with_suffix(".txnindex")
    last = _base(path) + chance.choice((-1, 0, 5, 40))
    version = chance.choice((0, 0, 0, 1, 256))
    path.write_bytes(pack(">hqqqq", version, 7, max(last - 3, 0), last, last + 1))
    return f"{path.name} made up"


def orphan_index(chance: Random, directory: Path) -> str | None:
    """An index without a log."""
    name = f"{chance.choice((1, 5, 17, 10_000)):020d}{chance.choice(_INDEXES)}"
    (directory / name).write_bytes(bytes(chance.choice((0, 8, 12, 100))))
    return f"{name} made up"


# Snapshots and epochs


def lose_snapshot(chance: Random, directory: Path) -> str | None:
    """A snapshot is gone, or all are."""
    found = _of(directory, ".snapshot", empty=True)
    if often(chance, 0.5):
        return _lost(chance, found)
    for path in set(found):
        path.unlink()
    return "no snapshots"


def garble_snapshot(chance: Random, directory: Path) -> str | None:
    """A snapshot flipped, cut or emptied."""
    ways = (_flipped, _torn, lambda c, data: b"", lambda c, data: data + b"x")
    return _changed(chance, _of(directory, ".snapshot"), chance.choice(ways))


def stray_snapshot(chance: Random, directory: Path) -> str | None:
    """A snapshot at an offset that means nothing."""
    found = _of(directory, ".snapshot")
    if not found:
        return None
    path = chance.choice(found)
    to = path.with_name(f"{chance.choice((0, 3, 11, _base(path) + 1, 9999)):020d}.snapshot")
    to.write_bytes(path.read_bytes())
    return f"{path.name} also as {to.name}"


def garble_epochs(chance: Random, directory: Path) -> str | None:
    """The epoch file lost, emptied, lying or unreadable."""
    path = directory / _EPOCHS
    if often(chance, 0.2):
        path.unlink(missing_ok=True)
        return "no epochs"
    text = chance.choice(_EPOCH_TEXTS)
    path.write_text(text)
    return f"epochs {text!r}"


# Leftovers


def leftover_deleted(chance: Random, directory: Path) -> str | None:
    """A file that is on its way out."""
    return _copied(chance, _of(directory, ".log", *_INDEXES, ".snapshot"), ".deleted")


def leftover_cleaned(chance: Random, directory: Path) -> str | None:
    """A half-written replacement."""
    return _copied(chance, _of(directory, ".log", *_INDEXES), ".cleaned")


def leftover_swap(chance: Random, directory: Path) -> str | None:
    """Whole replacements of a segment or two, with the originals there or not."""
    logs = sorted(set(_of(directory, ".log", empty=True)))
    if not logs:
        return None
    first = chance.randrange(len(logs))
    stems = {path.stem for path in logs[first : first + chance.choice((1, 1, 2))]}
    gone = often(chance, 0.4)
    kinds = [".log", *_INDEXES] if often(chance, 0.7) else chance.sample([".log", *_INDEXES], 2)
    for path in sorted(directory.iterdir()):
        if path.stem in stems and path.suffix in kinds:
            copy = path.with_name(f"{path.name}.swap")
            path.rename(copy) if gone else shutil.copyfile(path, copy)
    if often(chance, 0.3):
        leftover_cleaned(chance, directory)
    return f"swap of {sorted(stems)}{' only' * gone}"


# Together


def _changed(
    chance: Random, found: list[Path], change: Callable[[Random, bytearray], bytes | bytearray]
) -> str | None:
    if not found:
        return None
    path = chance.choice(found)
    path.write_bytes(change(chance, bytearray(path.read_bytes())))
    return f"{path.name} changed"


def _lost(chance: Random, found: list[Path]) -> str | None:
    if not found:
        return None
    path = chance.choice(found)
    path.unlink()
    return f"{path.name} gone"


def _copied(chance: Random, found: list[Path], suffix: str) -> str | None:
    if not found:
        return None
    path = chance.choice(found)
    copy = path.with_name(path.name + suffix)
    shutil.copyfile(path, copy)
    return f"{copy.name} there"


#: How often each is to be drawn.
DAMAGES: dict[Damage, float] = {
    flip: 3,
    tear: 4,
    zeros_behind: 2,
    noise_behind: 2,
    hole: 1,
    batch_behind: 2,
    lie: 2,
    lose_log: 0.4,
    lose_segment: 0.6,
    rename_log: 0.3,
    lose_index: 2,
    lose_indexes: 1,
    garble_index: 2,
    wrong_transactions: 0.5,
    orphan_index: 1,
    lose_snapshot: 2,
    garble_snapshot: 2,
    stray_snapshot: 1,
    garble_epochs: 1,
    leftover_deleted: 1,
    leftover_cleaned: 1,
    leftover_swap: 1.5,
}


def damage(chance: Random, directory: Path) -> list[str]:
    """Some harm, mostly one kind, now and then none or several; says what was done."""
    count = chance.choice((0, 1, 1, 1, 1, 2, 2, 3))
    kinds = chance.choices(list(DAMAGES), list(DAMAGES.values()), k=count)
    return list(_done(chance, directory, kinds))


def _done(chance: Random, directory: Path, kinds: Iterable[Damage]) -> Iterable[str]:
    for kind in kinds:
        what = kind(chance, directory)
        if what is not None:
            yield f"{kind.__name__}: {what}"
