"""Tiers of any shape, made from the log of one partition: a second telling of what plugins write.

    source = random_log(path, random.Random(7))              a partition of several epochs
    copies = copies_of(path, topic_id, rng)                  its closed segments, as copies
    put(LocalTier(root), copies)                             Kafka's LocalTieredStorage
    put(AivenTier(root, prefix="x-", chunk_size=7), copies)  Aiven's plugin
    put(PinterestTier(root, bits=5), copies)                 Pinterest's uploader
    write_metadata(data_dir, copies, events)                 the topic __remote_log_metadata

Source: Kafka `LocalTieredStorage`, `RemoteLogManager`; Aiven `RemoteStorageManager`; Pinterest
`SegmentUploaderService`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from struct import pack
from typing import Any, Protocol
from uuid import UUID

import kseg
from kseg.files.checkpoints import assign_epochs, read_leader_epochs
from tests.builders import ABORT, COMMIT, batch, control_batch, record, uvarint
from tests.zstd import zstd_frame

Epochs = list[tuple[int, int]]
EXTENSIONS = ("log", "index", "timeindex", "txnindex", "leader_epoch_checkpoint", "snapshot")
#: The time of the first record.
TIME = 1_700_000_000_000


def id_text(rng: random.Random) -> str:
    """The id of a topic or of a copy."""
    return base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")


def _id_bytes(text: str) -> bytes:
    return UUID(bytes=base64.urlsafe_b64decode(f"{text}==")).bytes


# ---- a log ---------------------------------------------------------------------------------------


def random_log(
    path: Path,
    rng: random.Random,
    *,
    batches: int = 60,
    first_offset: int = 0,
    behind: Sequence[bytes] = (),
) -> list[bytes]:
    """A partition with transactions across segments, every codec, and several epochs.

    Args:
        path: of the partition directory.
        rng: decides everything.
        batches: so many are new.
        first_offset: of the log.
        behind: batches to begin with, for a log that parts from another one.

    Returns:
        Its batches.
    """
    config = kseg.LogConfig(
        segment_bytes=rng.choice((1_500, 1_600, 3_000)),
        index_interval_bytes=rng.choice((1, 200, 4_096)),
        segment_index_bytes=1 << 12,
        message_timestamp_after_max_ms=2**63 - 1,
    )
    written = list(behind)
    offset, epoch, time = first_offset, rng.randrange(3), TIME
    open_: dict[int, int] = {}
    with kseg.Log.open(path, mode="append", create=True, config=config) as log:
        if first_offset:
            log.truncate_fully_and_start_at(first_offset)
        for data in behind:
            log.append_as_follower(data)
            offset, epoch, open_ = log.log_end_offset, log.leader_epochs[-1].epoch, {}
        epoch += 100 * bool(behind)  # a leader of its own
        for _ in range(batches):
            if rng.random() < 0.1:
                epoch += rng.randint(1, 3)
            time += rng.randint(-500, 900)
            data, count = _random_batch(rng, offset, epoch, time, open_)
            log.append_as_follower(data)
            written.append(data)
            offset += count
        log.update_high_watermark(offset)
    return written


def _random_batch(
    rng: random.Random, offset: int, epoch: int, time: int, open_: dict[int, int]
) -> tuple[bytes, int]:
    """A batch, and how many offsets it takes; `open_` has the next sequence of each producer."""
    producer = rng.choice((-1, -1, 1, 2, 3))
    if producer > 0 and open_.get(producer, 0) < 0 and rng.random() < 0.5:
        open_[producer] = -open_[producer]
        kind = rng.choice((COMMIT, ABORT))
        marker = control_batch(kind, base_offset=offset, producer_id=producer)
        return marker[:12] + pack(">i", epoch) + marker[16:], 1
    records = [
        record(
            rng.choice((None, b"", rng.randbytes(rng.randrange(120)), b"v" * rng.randrange(200))),
            key=rng.choice((None, b"", b"key")),
            headers=[(b"h", None)] * rng.choice((0, 0, 2)),
            timestamp=time + rng.randrange(50),
        )
        for _ in range(rng.randint(1, 6))
    ]
    more: dict[str, Any] = {}
    if producer > 0:
        sequence = abs(open_.get(producer, 0))
        more = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        more["transactional"] = True
        open_[producer] = -(sequence + len(records))
    codec = rng.choice((0, 0, 1, 2, 3, 4))
    given = {"base_offset": offset, "leader_epoch": epoch, "codec": codec}
    return batch(records, **given, **more), len(records)


# ---- copies --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Made:
    """A copy of a segment: what its metadata say, and its files by extension."""

    topic: str
    partition: int
    topic_id: str
    id: str
    start: int
    end: int
    epochs: Epochs
    max_timestamp: int
    files: dict[str, bytes]
    event_ms: int = TIME
    custom: bytes | None = None

    @property
    def name(self) -> str:
        """The part of an object's name that says the segment."""
        return f"{self.start:020d}-{self.id}"


def copies_of(path: Path, topic_id: str, rng: random.Random, *, log_start: int = 0) -> list[Made]:
    """The closed segments of a partition directory, each as a broker copies it.

    Args:
        path: the directory.
        topic_id: of the topic.
        rng: gives ids.
        log_start: where the log began when they were copied. Its first epoch begins there, also
            in a segment that begins earlier.
    """
    topic, _, number = path.name.rpartition("-")
    bases = [int(log.stem) for log in sorted(path.glob("*.log"))]
    entries = assign_epochs(read_leader_epochs(path / "leader-epoch-checkpoint"))
    known = within([(one.epoch, one.start_offset) for one in entries], log_start, 2**62)
    found = []
    for base, following in pairwise(bases):
        if following <= log_start:
            continue
        files = {
            extension: (path / f"{base:020d}.{extension}").read_bytes()
            for extension in ("log", "index", "timeindex", "txnindex")
            if (path / f"{base:020d}.{extension}").exists()
        }
        snapshot = path / f"{following:020d}.snapshot"
        files["snapshot"] = snapshot.read_bytes() if snapshot.exists() else _NO_PRODUCERS
        listed = [entry for entry in known if entry[1] < following]
        text = "".join(f"{epoch} {start}\n" for epoch, start in listed)
        files["leader_epoch_checkpoint"] = f"0\n{len(listed)}\n{text}".encode()
        newest = max(columns.max_timestamp for columns in _headers(path, base))
        found.append(
            Made(
                *(topic, int(number), topic_id, id_text(rng), base, following - 1),
                within(listed, base, following),
                newest,
                files,
                TIME + base,
            )
        )
    return found


#: A producer snapshot without entries: version, CRC, and their number.
_NO_PRODUCERS = pack(">hIi", 1, 0x48674BC7, 0)


def _headers(path: Path, base: int) -> Iterable[Any]:
    with kseg.Segment.open(path / f"{base:020d}.log") as segment:
        return [header for table in segment.headers() for header in table]


def within(known: Sequence[tuple[int, int]], start: int, end: int) -> Epochs:
    """The epochs with records from `start` to before `end`."""
    ends = [*(first for _epoch, first in known[1:]), end]
    return [
        (epoch, max(first, start))
        for (epoch, first), until in zip(known, ends, strict=True)
        if max(first, start) < min(until, end)
    ]


# ---- layouts -------------------------------------------------------------------------------------


class Layout(Protocol):
    """Where the objects of a copy lie, and what is in them."""

    root: Path

    def objects(self, copy: Made) -> dict[str, bytes]:
        """The objects of a copy by their keys, in the order of writing."""


def put(layout: Layout, copies: Iterable[Made], *, objects: int | None = None) -> None:
    """Write the objects of copies, or only the first few of each: a copy that failed."""
    for copy in copies:
        for key, data in list(layout.objects(copy).items())[:objects]:
            path = layout.root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, (copy.event_ms / 1_000, copy.event_ms / 1_000))


def remove(layout: Layout, copy: Made) -> None:
    """Delete the objects of a copy."""
    for key in layout.objects(copy):
        (layout.root / key).unlink(missing_ok=True)


@dataclass(slots=True)
class LocalTier:
    """Kafka's LocalTieredStorage."""

    root: Path

    def objects(self, copy: Made) -> dict[str, bytes]:
        """One object for each file."""
        directory = f"{copy.topic}-{copy.partition}-{copy.topic_id}"
        return {
            f"kafka-tiered-storage/{directory}/{copy.name}.{extension}": copy.files[extension]
            for extension in EXTENSIONS
            if extension in copy.files
        }


@dataclass(slots=True)
class AivenTier:
    """Aiven's plugin.

    Attributes:
        key: id and public numbers of a key pair; None for plain chunks.
        fields: custom metadata to note in copies, by tag.
    """

    root: Path
    rng: random.Random
    prefix: str = ""
    chunk_size: int = 1_000
    compressed: bool = False
    key: tuple[str, Any] | None = None
    fields: Sequence[int] = ()
    has_metadata: bool = True
    _made: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def objects(self, copy: Made) -> dict[str, bytes]:
        """Log, indexes and manifest; the same at each call, since keys are random."""
        if copy.id not in self._made:
            self._made[copy.id] = self._objects(copy)
        return self._made[copy.id]

    def _objects(self, copy: Made) -> dict[str, bytes]:
        key, aad, data_key = b"", b"", None
        if self.key is not None:
            key, aad = self.rng.randbytes(32), self.rng.randbytes(32)
            data_key = (
                f"{self.key[0]}:{base64.b64encode(_oaep(key, self.key[1], self.rng)).decode()}"
            )
        log, size = copy.files["log"], self.chunk_size
        chunks = []
        for at in range(0, len(log), size):
            part = log[at : at + size]
            chunk = zstd_frame(part, sized=True) if self.compressed else part
            chunks.append(self._sealed(chunk, key, aad))
        indexes, places = b"", {}
        for extension, name in _INDEX_NAMES.items():
            data = copy.files.get(extension)
            places[name] = None
            if data is not None:
                stored = self._sealed(data, key, aad) if data else b""
                places[name] = {"position": len(indexes), "size": len(stored)}
                indexes += stored
        manifest: dict[str, Any] = {
            "version": "1",
            "chunkIndex": _chunk_index(log, size, list(map(len, chunks)), self.compressed, key),
            "segmentIndexes": places,
            "compression": self.compressed,
        }
        if data_key is not None:
            manifest["encryption"] = {"dataKey": data_key, "aad": base64.b64encode(aad).decode()}
        if self.has_metadata:
            manifest["remoteLogSegmentMetadata"] = _described(copy)
        where = f"{copy.topic}-{copy.topic_id}/{copy.partition}/{copy.name}"
        text = json.dumps(manifest, separators=(",", ":")).encode()
        found = {"log": b"".join(chunks), "indexes": indexes, "rsm-manifest": text}
        copy.custom = self._custom(where, sum(map(len, found.values())))
        return {f"{self.prefix}{where}.{name}": data for name, data in found.items()}

    def _sealed(self, data: bytes, key: bytes, aad: bytes) -> bytes:
        if not key:
            return data
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        iv = self.rng.randbytes(12)
        return iv + AESGCM(key).encrypt(iv, data, aad)

    def _custom(self, where: str, size: int) -> bytes | None:
        values = {0: uvarint(size << 1), 1: _text(self.prefix), 2: _text(where)}
        parts = [
            uvarint(tag) + uvarint(len(values[tag])) + values[tag] for tag in sorted(self.fields)
        ]
        return uvarint(len(parts)) + b"".join(parts) if parts else None


_INDEX_NAMES = {
    "index": "offset",
    "timeindex": "timestamp",
    "snapshot": "producerSnapshot",
    "leader_epoch_checkpoint": "leaderEpoch",
    "txnindex": "transaction",
}


def _text(value: str) -> bytes:
    return uvarint(len(value.encode()) + 1) + value.encode()


def _chunk_index(
    log: bytes, size: int, sizes: list[int], is_variable: bool, key: bytes
) -> dict[str, Any]:
    index: dict[str, Any] = {"originalChunkSize": size, "originalFileSize": len(log)}
    if not is_variable:
        whole = size + (28 if key else 0)
        last = {"transformedChunkSize": whole, "finalTransformedChunkSize": sizes[-1]}
        return {"type": "fixed", **index, **last}
    table = pack(">i", len(sizes))
    if len(sizes) > 1:
        least = min(sizes[:-1])
        width = max(1, -(-max(size - least for size in sizes[:-1]).bit_length() // 8))
        table += pack(">iB", least, width)
        table += b"".join((size - least).to_bytes(width) for size in sizes[:-1])
    table += pack(">i", sizes[-1])
    packed = base64.b64encode(zstd_frame(table, sized=True)).decode()
    return {"type": "variable", **index, "transformedChunks": packed}


def _described(copy: Made) -> dict[str, Any]:
    """The metadata of a segment as the plugin writes them into a manifest."""
    named = {"topic": copy.topic, "partition": copy.partition}
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {"topicId": copy.topic_id, "topicPartition": named},
            "id": copy.id,
        },
        "startOffset": copy.start,
        "endOffset": copy.end,
        "maxTimestampMs": copy.max_timestamp,
        "brokerId": 1,
        "eventTimestampMs": copy.event_ms,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in copy.epochs},
        "txnIdxEmpty": "txnindex" not in copy.files,
    }


def _oaep(message: bytes, numbers: Any, rng: random.Random) -> bytes:
    """RSA with OAEP and SHA3-512 for both hashes. Source: RFC 8017, 7.1.1."""
    size, hash_ = (numbers.n.bit_length() + 7) // 8, hashlib.sha3_512
    data = hash_().digest() + bytes(size - len(message) - 130) + b"\x01" + message

    def mask(seed: bytes, length: int) -> bytes:
        parts = (hash_(seed + at.to_bytes(4)).digest() for at in range(-(-length // 64)))
        return b"".join(parts)[:length]

    def xor(one: bytes, other: bytes) -> bytes:
        return bytes(a ^ b for a, b in zip(one, other, strict=True))

    seed = rng.randbytes(64)
    masked = xor(data, mask(seed, len(data)))
    block = b"\0" + xor(seed, mask(masked, 64)) + masked
    return pow(int.from_bytes(block), numbers.e, numbers.n).to_bytes(size)


@dataclass(slots=True)
class PinterestTier:
    """Pinterest's uploader."""

    root: Path
    base: str = "base/prefix"
    cluster: str = "kafka_a"
    bits: int = 0

    def directory(self, copy: Made) -> str:
        """The prefix of a partition, with the hashed bits."""
        name = f"{copy.topic}-{copy.partition}"
        hashed = hashlib.md5(f"{self.cluster}-{name}".encode()).digest()
        bits = f"{int.from_bytes(hashed):0128b}"[: self.bits]
        return "/".join(filter(None, (self.base, bits, self.cluster, name)))

    def objects(self, copy: Made) -> dict[str, bytes]:
        """The log and two indexes."""
        where = f"{self.directory(copy)}/{copy.start:020d}"
        return {f"{where}.{one}": copy.files[one] for one in ("index", "timeindex", "log")}


# ---- the metadata topic --------------------------------------------------------------------------

STARTED, FINISHED, DELETING, DELETED = range(4)


def write_metadata(
    data_dir: Path, events: Iterable[tuple[Made, int]], number: int = 0
) -> list[bytes]:
    """A partition of `__remote_log_metadata` that says how copies came and went.

    Args:
        data_dir: of the broker.
        events: copies and their states, in their order.
        number: of the partition.

    Returns:
        The values of its records.
    """
    values = [_begun(copy) if state == STARTED else _updated(copy, state) for copy, state in events]
    path = data_dir / f"__remote_log_metadata-{number}"
    path.mkdir(parents=True)
    data = b"".join(
        batch([record(value, timestamp=TIME)], base_offset=offset)
        for offset, value in enumerate(values)
    )
    (path / f"{0:020d}.log").write_bytes(data)
    return values


def _begun(copy: Made) -> bytes:
    epochs = b"".join(pack(">iqB", epoch, start, 0) for epoch, start in copy.epochs)
    return b"".join((
        b"\x01\x00\x00",
        _segment_id(copy),
        pack(">qqi", copy.start, copy.end, 1),
        pack(">qq", copy.max_timestamp, copy.event_ms),
        uvarint(len(copy.epochs) + 1) + epochs,
        pack(">i", len(copy.files["log"])),
        b"\0" + pack("B", STARTED),
        b"\x01\x00\x01\x01" if "txnindex" not in copy.files else b"\0",
    ))  # fmt: skip


def _updated(copy: Made, state: int) -> bytes:
    custom = None if state == DELETED else copy.custom
    sized = b"\0" if custom is None else uvarint(len(custom) + 1) + custom
    head = b"\x01\x01\x00" + _segment_id(copy) + pack(">iq", 1, copy.event_ms)
    return head + sized + pack("B", state) + b"\0"


def _segment_id(copy: Made) -> bytes:
    place = _text(copy.topic) + _id_bytes(copy.topic_id) + pack(">i", copy.partition) + b"\0"
    return place + _id_bytes(copy.id) + b"\0"
