"""Partitions that come to harm: how they are written, and what befalls them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.validate.rules import AppendOrigin
from tests.builders import batch, control_batch, record

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, segment_index_bytes=240)
EPOCHS = "leader-epoch-checkpoint"


def plain(value: bytes = b"value", *, time: int = NOW, **fields: Any) -> bytes:
    """A batch of one record as a producer sends it."""
    return batch([record(value, timestamp=time)], leader_epoch=-1, **fields)


def write(data: Path, *, close: bool = True) -> Path:
    """A log of six segments: two epochs, three transactions, one aborted and one open.

    Args:
        data: the data directory.
        close: in good order; else the files are copied as they lie, and the copy is answered.

    Returns:
        The partition directory.
    """
    with Log.open(
        data / "t-0", mode="append", create=True, config=CONFIG, now_ms=lambda: NOW
    ) as log:
        for number in range(8):
            log.append(plain(bytes(60), time=NOW + number), leader_epoch=1)
        for producer, end in ((1, "commit"), (2, "abort"), (3, None)):
            who = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
            log.append(plain(b"in a transaction", base_sequence=0, **who), leader_epoch=2)
            if end is not None:
                marker = control_batch(end == "commit", producer_id=producer)
                log.append(marker, leader_epoch=2, origin=AppendOrigin.COORDINATOR)
        for number in range(12):
            log.append(plain(bytes(60), time=NOW + 100 + number), leader_epoch=2)
        if close:
            return log.path
        crashed = data.with_name(data.name + "-crashed") / "t-0"
        shutil.copytree(log.path, crashed)
    return crashed


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def content(directory: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


# ---- what befalls them: each changes a directory -------------------------------------------------


def nothing(directory: Path) -> None:
    """It is as it was left."""


def torn(directory: Path) -> None:
    last = logs(directory)[-1]
    last.write_bytes(last.read_bytes()[:-7])


def zeros(directory: Path) -> None:
    with logs(directory)[-1].open("ab") as file:
        file.write(bytes(200))


def garbage(directory: Path) -> None:
    with logs(directory)[-1].open("ab") as file:
        file.write(b"garbage " * 20)


def damage_in_front_of_garbage(directory: Path) -> None:
    """The first batch of the last segment is none any more; the index leads past it."""
    last = logs(directory)[-1]
    data = bytearray(last.read_bytes())
    data[16] = 99
    last.write_bytes(data + b"garbage " * 20)


def flipped(directory: Path) -> None:
    """A bit of a record in the middle segment."""
    path = logs(directory)[2]
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)


def zeros_in_the_middle(directory: Path) -> None:
    """A segment was never trimmed."""
    with logs(directory)[2].open("ab") as file:
        file.write(bytes(200))


def no_indexes(directory: Path) -> None:
    for kind in ("index", "timeindex", "txnindex"):
        for path in directory.glob(f"*.{kind}"):
            path.unlink()


def no_offset_index(directory: Path) -> None:
    logs(directory)[2].with_suffix(".index").unlink()


def garbled_indexes(directory: Path) -> None:
    for kind in ("index", "timeindex"):
        logs(directory)[1].with_suffix(f".{kind}").write_bytes(b"\xff" * 29)


def zeroed_indexes(directory: Path) -> None:
    for kind in ("index", "timeindex"):
        logs(directory)[1].with_suffix(f".{kind}").write_bytes(bytes(240))


def no_snapshots(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()


def garbled_snapshots(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        path.write_bytes(b"garbage")


def malformed_epochs(directory: Path) -> None:
    (directory / EPOCHS).write_text("no number\n")


def stale_epochs(directory: Path) -> None:
    (directory / EPOCHS).write_text("0\n2\n0 0\n9 900\n")


def leftovers(directory: Path) -> None:
    first = logs(directory)[0]
    for suffix in (".deleted", ".cleaned"):
        shutil.copy(first, first.with_name(first.name + suffix))
    (directory / "00000000000000000999.index").write_bytes(bytes(8))
    (directory / f"{EPOCHS}.tmp").write_bytes(b"0\n")


def swap(directory: Path) -> None:
    """The first two segments were joined; what they were joined from is there still."""
    first, second = logs(directory)[:2]
    joined = first.read_bytes() + second.read_bytes()
    first.with_name(first.name + ".swap").write_bytes(joined)
    for kind in ("index", "timeindex"):
        first.with_name(f"{first.stem}.{kind}.swap").write_bytes(b"")


def cancelled_swap(directory: Path) -> None:
    first, second = logs(directory)[:2]
    shutil.copy(second, second.with_name(second.name + ".swap"))
    first.with_name(first.name + ".cleaned").write_bytes(b"half")


def short_name(directory: Path) -> None:
    second = logs(directory)[1]
    second.rename(directory / f"{int(second.stem)}.log")


def unknown_name(directory: Path) -> None:
    (directory / "abc.log").write_bytes(b"")


def txn_index_of_an_unknown_version(directory: Path) -> None:
    path = next(iter(directory.glob("*.txnindex")))
    path.write_bytes(b"\x01" + path.read_bytes()[1:])


def nothing_left(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


HARMS: tuple[Callable[[Path], None], ...] = (
    nothing,
    torn,
    zeros,
    garbage,
    damage_in_front_of_garbage,
    flipped,
    zeros_in_the_middle,
    no_indexes,
    no_offset_index,
    garbled_indexes,
    zeroed_indexes,
    no_snapshots,
    garbled_snapshots,
    malformed_epochs,
    stale_epochs,
    leftovers,
    swap,
    cancelled_swap,
    short_name,
    unknown_name,
    txn_index_of_an_unknown_version,
    nothing_left,
)
