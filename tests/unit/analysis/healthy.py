"""A small data directory with everything in it, all right; tests break it in one place each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from struct import pack

from tests.builders import ABORT, GZIP, Record, batch, control_batch, record, write_segment
from tests.reference_codecs import crc32c

TOPIC = "orders"
FIRST, LAST = 0, 7


def records(*times: int) -> list[Record]:
    return [record(b"value %d" % time, key=b"key", timestamp=time) for time in times]


#: Batches of the first segment, offsets 0 to 6, and of the last one, 7 to 10.
FIRST_BATCHES = [
    batch(records(1000, 1001), base_offset=0),
    batch(records(1002, 1003), base_offset=2, producer_id=7, producer_epoch=0, transactional=True),
    control_batch(ABORT, base_offset=4, producer_id=7),
    batch(records(1005, 1004), base_offset=5, leader_epoch=1, codec=GZIP),
]
LAST_BATCHES = [
    batch(records(1006, 1007), base_offset=7, leader_epoch=1),
    batch(records(1008, 1009), base_offset=9, leader_epoch=1),
]


def starts(batches: list[bytes]) -> list[int]:
    """Positions of the batches, and the end of the last one."""
    return [sum(map(len, batches[:number])) for number in range(len(batches) + 1)]


def index(*entries: tuple[int, int], base_offset: int = 0) -> bytes:
    return b"".join(pack(">ii", offset - base_offset, position) for offset, position in entries)


def time_index(*entries: tuple[int, int], base_offset: int = 0) -> bytes:
    return b"".join(pack(">qi", time, offset - base_offset) for time, offset in entries)


def txn_index(*entries: tuple[int, int, int, int], version: int = 0) -> bytes:
    return b"".join(pack(">hqqqq", version, *entry) for entry in entries)


def snapshot(*entries: tuple[int, int, int, int, int, int, int, int]) -> bytes:
    body = pack(">i", len(entries)) + b"".join(pack(">qhiqiqiq", *entry) for entry in entries)
    return pack(">hI", 1, crc32c(body)) + body


@dataclass(frozen=True)
class Data:
    """Where things are."""

    root: Path

    @property
    def partition(self) -> Path:
        return self.root / f"{TOPIC}-0"

    def file(self, base_offset: int, suffix: str = ".log") -> Path:
        return self.partition / f"{base_offset:020d}{suffix}"

    def write_log(self, base_offset: int, *batches: bytes) -> None:
        """Replace a log; its indexes go, as they would no longer fit."""
        write_segment(self.partition, base_offset, *batches)
        for suffix in (".index", ".timeindex", ".txnindex"):
            self.file(base_offset, suffix).unlink(missing_ok=True)
        self.file(base_offset, ".index").touch()
        self.file(base_offset, ".timeindex").touch()

    def write_checkpoint(self, name: str, offset: int) -> None:
        (self.root / name).write_text(f"0\n1\n{TOPIC} 0 {offset}\n")


def make(root: Path) -> Data:
    """Write the directory."""
    data = Data(root)
    at, last_at = starts(FIRST_BATCHES), starts(LAST_BATCHES)
    write_segment(data.partition, FIRST, *FIRST_BATCHES)
    write_segment(data.partition, LAST, *LAST_BATCHES)
    # The offset of an entry is the first or the last of its batch, by release.
    data.file(FIRST, ".index").write_bytes(index((3, at[1]), (5, at[3])))
    data.file(LAST, ".index").write_bytes(index((10, last_at[1]), base_offset=7) + bytes(32))
    data.file(FIRST, ".timeindex").write_bytes(time_index((1003, 3), (1005, 6)))
    data.file(LAST, ".timeindex").write_bytes(time_index((1009, 10), base_offset=7) + bytes(48))
    data.file(FIRST, ".txnindex").write_bytes(txn_index((7, 2, 4, 5)))
    data.file(LAST, ".snapshot").write_bytes(snapshot((7, 0, -1, -1, 0, 1003, 0, -1)))
    (data.partition / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 5\n")
    metadata = "version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA"
    (data.partition / "partition.metadata").write_text(metadata)
    (root / "meta.properties").write_text("#\nversion=1\ncluster.id=c\nnode.id=1\n")
    for name in ("recovery-point", "replication", "cleaner", "log-start"):
        data.write_checkpoint(f"{name}-offset-checkpoint", 5)
    return data
