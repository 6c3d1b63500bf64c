"""Aiven's plugin: the manifest of a segment, its chunks, its keys.

    <object key>.rsm-manifest  JSON: sizes of chunks and indexes, compression, encryption, metadata
    <object key>.log           chunks: each compressed (zstd), then encrypted (IV, AES-GCM, tag)
    <object key>.indexes       indexes back to back, each encrypted by itself, never compressed

A chunk is checked before its bytes are used: its size is the manifest's, its frame claims the size
of its part of the segment, and its tag proves it. One that fails is bytes that cannot be read, as a
bad sector is.

Source: Aiven `SegmentManifestV1`, `ChunkSizesBinaryCodec`, `AbstractChunkIndex`,
`RsaEncryptionProvider`, `DecryptionChunkEnumeration`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import accumulate
from os import fspath
from threading import BoundedSemaphore
from typing import Any, Final

from kseg.constants import INT32_MAX, INT64_MAX, INT64_MIN, StrPath
from kseg.documents import frozen_dataclass
from kseg.errors import KsegError, LimitExceededError, TierError, UnreadableError
from kseg.extras import require
from kseg.files import io
from kseg.files.checkpoints import EpochEntry
from kseg.files.mapping import private_memory
from kseg.format.codec import zstd_library
from kseg.log.tier.lineage import RemoteSegment
from kseg.stores.ranges import RangedFile
from kseg.workers import usable_cores

#: A manifest with the largest table of chunks has about so many bytes.
MANIFEST_BYTES_MAX: Final = 16 << 20
_TABLE_BYTES_MAX: Final = 10 << 20
#: A chunk is checked as a whole, so this much is in memory for each that is read.
CHUNK_BYTES_MAX: Final = 256 << 20
_IV_BYTES: Final = 12
#: Bytes of an IV and a tag, which an encrypted chunk has in addition.
SEAL_BYTES: Final = 28
_KEY_FILE_MAX: Final = 1 << 20
#: The names of indexes in a manifest, by their extensions in Kafka.
INDEXES: Final = {
    "index": "offset",
    "timeindex": "timestamp",
    "snapshot": "producerSnapshot",
    "leader_epoch_checkpoint": "leaderEpoch",
    "txnindex": "transaction",
}

#: Files of private keys in PEM, keyed by the ids of the key pairs.
Keys = Mapping[str, StrPath]


@frozen_dataclass
class Manifest:
    """The manifest of one segment.

    Attributes:
        segment: offsets, epochs and times, where the manifest has them.
        topic, topic_id, partition: likewise; None where it does not.
        chunk_size: bytes of the segment in each chunk but the last.
        file_size: the size of the segment.
        chunks: where each chunk begins in the object, and where the last one ends.
        indexes: extension -> position and size of the index; an absent index is missing here.
        compressed: whether the chunks are compressed.
        data_key: id of a key pair, and the encrypted key of the chunks; None if they are plain.
        aad: what the tag of each chunk covers, too.
    """

    segment: RemoteSegment | None
    topic: str | None
    topic_id: str | None
    partition: int | None
    chunk_size: int
    file_size: int
    chunks: tuple[int, ...]
    indexes: Mapping[str, tuple[int, int]]
    compressed: bool
    data_key: tuple[str, bytes] | None
    aad: bytes

    @property
    def is_plain(self) -> bool:
        """Whether the object is the segment, byte for byte."""
        return not self.compressed and self.data_key is None


def parse_manifest(data: bytes | memoryview, path: str) -> Manifest:
    """Read a manifest.

    Args:
        data: the object.
        path: the path of the manifest, for errors.

    Raises:
        TierError: it is no manifest of version 1, or numbers in it contradict each other.
        UnsupportedFormatError: the segment is kept as an Iceberg table.
    """
    try:
        root = json.loads(bytes(data))
        return _manifest(root)
    except TierError as error:
        raise TierError(error.reason, path=path) from None
    except RecursionError:
        raise TierError("the manifest is nested too deeply", path=path) from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # Not its contents: a manifest has keys in it.
        reason = f"{error} is missing" if isinstance(error, KeyError) else type(error).__name__
        raise TierError(f"not a manifest: {reason}", path=path) from None


def _manifest(root: Any) -> Manifest:
    """As `parse_manifest`, for parsed JSON; raises Python's errors for parts of another form."""
    if root["version"] != "1":
        raise TierError("the manifest's version is not 1, which is the one that kseg reads")
    if "chunkIndex" not in root:
        raise TierError("the segment is kept as an Iceberg table, which kseg does not read")
    table, encryption = root["chunkIndex"], root.get("encryption")
    chunk_size = _number(table["originalChunkSize"], 1)
    file_size = _number(table["originalFileSize"])
    compressed = root["compression"]
    if not isinstance(compressed, bool):
        raise TierError("compression is neither true nor false")
    data_key, aad = None, b""
    if encryption is not None:
        id_, colon, sealed = encryption["dataKey"].partition(":")
        if not colon or ":" in sealed:
            raise TierError("the data key is not <key pair id>:<base64>")
        data_key = id_, base64.b64decode(sealed, validate=True)
        aad = base64.b64decode(encryption["aad"], validate=True)
    largest = min(chunk_size, file_size)
    if largest > CHUNK_BYTES_MAX and (compressed or encryption is not None):
        raise TierError(f"chunks of {largest} bytes; kseg reads up to {CHUNK_BYTES_MAX}")
    count = -(-file_size // chunk_size)
    sizes = _chunk_sizes(table, count)
    if not compressed:
        seal = SEAL_BYTES if data_key is not None else 0
        plain = [min(chunk_size, file_size - at * chunk_size) + seal for at in range(count)]
        if sizes != plain:
            raise TierError("the sizes of the chunks do not sum up to that of the segment")
    segment, topic_and_partition = _metadata(root.get("remoteLogSegmentMetadata"), file_size)
    return Manifest(
        segment,
        *topic_and_partition,
        chunk_size,
        file_size,
        tuple(accumulate(sizes, initial=0)),
        _indexes(root["segmentIndexes"]),
        compressed,
        data_key,
        aad,
    )


def _number(value: Any, least: int = 0, most: int = INT32_MAX) -> int:
    """A whole number in a manifest; TierError if it is not one within these bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise TierError(f"a size or position is not within {least} to {most}")
    return value


def _indexes(segment_indexes: Any) -> dict[str, tuple[int, int]]:
    """The position and the size of each index in the object that contains all of them."""
    ranges = {}
    for extension, name in INDEXES.items():
        index = segment_indexes.get(name) if name == "transaction" else segment_indexes[name]
        if index is not None:
            ranges[extension] = (_number(index["position"]), _number(index["size"]))
    return ranges


def _chunk_sizes(table: Any, count: int) -> list[int]:
    """The size of each chunk in the object; as many as the segment has."""
    if table["type"] == "fixed":
        size = _number(table["transformedChunkSize"])
        last = _number(table["finalTransformedChunkSize"])
        if count * 8 > _TABLE_BYTES_MAX:
            raise TierError(f"{count} chunks are more than any segment has")
        return [*[size] * (count - 1), last] if count else []
    if table["type"] != "variable":
        raise TierError("the chunk index is neither fixed nor variable")
    packed = base64.b64decode(table["transformedChunks"], validate=True)
    return decode_chunk_sizes(_inflate(packed, None, _TABLE_BYTES_MAX), count)


_INT: Final = struct.Struct(">i")
_BASED: Final = struct.Struct(">iB")


def decode_chunk_sizes(data: bytes, count: int) -> list[int]:
    """Chunk sizes in Aiven's binary form.

    Args:
        data: the count of chunks. Then for a single chunk its size; for several the base, the
            width in bytes, each size as the rest above the base in so many bytes, and the last
            size in full.
        count: as many must be there.

    Raises:
        TierError: the bytes are too few or too many, or a size is negative.
    """
    try:
        stored = _INT.unpack_from(data)[0]
        if stored != count:
            raise TierError(f"the table has {stored} chunks, the segment {count}")
        if count < 2:
            sizes = [_INT.unpack_from(data, 4)[0]] if count else []
            used = 4 + 4 * count
        else:
            base, width = _BASED.unpack_from(data, 4)
            used = 9 + (count - 1) * width + 4
            if not 1 <= width <= 4 or used > len(data):
                raise TierError("the table of chunks is cut short")
            above = data[9 : used - 4]
            steps = range(0, len(above), width)
            sizes = [base + int.from_bytes(above[at : at + width]) for at in steps]
            sizes.append(_INT.unpack_from(data, used - 4)[0])
    except struct.error:
        raise TierError("the table of chunks is cut short") from None
    if used != len(data) or min(sizes, default=0) < 0 or max(sizes, default=0) > INT32_MAX:
        raise TierError("the table of chunks has extra bytes, or an impossible size")
    return sizes


def _metadata(
    metadata: Any, size: int
) -> tuple[RemoteSegment | None, tuple[str | None, str | None, int | None]]:
    """The segment, and its topic, topic id and partition, as the broker described them."""
    if metadata is None:
        return None, (None, None, None)
    whole = metadata["remoteLogSegmentId"]
    topic_id_partition = whole["topicIdPartition"]
    named = topic_id_partition["topicPartition"]
    epochs = sorted((int(epoch), start) for epoch, start in metadata["segmentLeaderEpochs"].items())
    numbers = (metadata[name] for name in ("startOffset", "endOffset"))
    # An offset is below the largest of 64 bits, so that the offset after it has 64 bits, too.
    start, end = (_number(number, most=INT64_MAX - 1) for number in numbers)
    segment = RemoteSegment(
        str(whole["id"]),
        start,
        end,
        tuple(EpochEntry(epoch, _number(first, most=INT64_MAX - 1)) for epoch, first in epochs),
        size,
        _number(metadata["maxTimestampMs"], INT64_MIN, INT64_MAX),
        _number(metadata["eventTimestampMs"], INT64_MIN, INT64_MAX),
    )
    segment.check()
    return segment, (
        str(named["topic"]),
        str(topic_id_partition["topicId"]),
        _number(named["partition"]),
    )


# ---- keys ----------------------------------------------------------------------------------------


def data_key(manifest: Manifest, keys: Keys, path: str) -> bytes | None:
    """The key of a segment's chunks, decrypted; None if they are plain.

    Args:
        manifest: the manifest of the segment.
        keys: files with private keys.
        path: the path of the manifest, for errors.

    Raises:
        TierError: the key pair is not among `keys`, or does not fit.
        MissingExtraError: the package `cryptography` is not installed.
    """
    if manifest.data_key is None:
        return None
    id_, sealed = manifest.data_key
    if id_ not in keys:
        key_ids = ", ".join(sorted(keys)) or "none"
        raise TierError(
            f"the segment is encrypted with key pair {id_!r}; given are: {key_ids}. Name its "
            f"private key: --tier-key {id_}=FILE",
            path=path,
        )
    file = keys[id_]
    private = _private_key(fspath(file))
    n = private.public_numbers.n
    size = (n.bit_length() + 7) // 8
    number = int.from_bytes(sealed)
    key = None
    if len(sealed) == size and number < n:
        # By the remainders modulo both primes: four times as fast.
        low = pow(number, private.dmq1, private.q)
        step = (pow(number, private.dmp1, private.p) - low) * private.iqmp % private.p
        key = _from_oaep((low + step * private.q).to_bytes(size))
    if key is None or len(key) != 32:
        raise TierError(f"the data key is not encrypted with {fspath(file)}", path=path)
    return key


@lru_cache(16)
def _private_key(path: str) -> Any:
    """The numbers of the private key in a file."""
    serialization = require("cryptography.hazmat.primitives.serialization", extra="cloud")
    pem = io.read_file(path, bytes_max=_KEY_FILE_MAX)
    try:
        return serialization.load_pem_private_key(pem, None).private_numbers()
    except (ValueError, TypeError, AttributeError):
        raise TierError("not a private RSA key in PEM without a password", path=path) from None


def _from_oaep(block: bytes) -> bytes | None:
    """The message in a block padded by OAEP with SHA3-512 for both hashes; None if it is none.

    The package cryptography refuses this hash. Source: RFC 8017, 7.1.2.
    """
    size = hashlib.sha3_512().digest_size
    if len(block) < 2 * size + 2:
        return None
    seed = _xor(block[1 : size + 1], _mask(block[size + 1 :], size))
    data = _xor(block[size + 1 :], _mask(seed, len(block) - size - 1))
    padding, separator, message = data[size:].partition(b"\x01")
    sound = block[0] == 0 and data[:size] == hashlib.sha3_512().digest() and separator
    return message if sound and not padding.strip(b"\0") else None


def _mask(seed: bytes, size: int) -> bytes:
    parts = range(-(-size // hashlib.sha3_512().digest_size))
    return b"".join(hashlib.sha3_512(seed + at.to_bytes(4)).digest() for at in parts)[:size]


def _xor(block: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(block, other, strict=True))


# ---- bytes ---------------------------------------------------------------------------------------


def unseal(data: bytes | memoryview, key: bytes | None, aad: bytes) -> bytes | memoryview:
    """Decrypt a chunk, or an index.

    Raises:
        TierError: the tag does not prove the bytes.
    """
    if key is None:
        return data
    aead = require("cryptography.hazmat.primitives.ciphers.aead", extra="cloud")
    invalid = require("cryptography.exceptions", extra="cloud").InvalidTag
    try:
        opened: bytes = aead.AESGCM(key).decrypt(bytes(data[:_IV_BYTES]), data[_IV_BYTES:], aad)
    except (invalid, ValueError):
        raise TierError(
            "the bytes are not those that were encrypted, or not with this key"
        ) from None
    return opened


def _inflate(data: bytes | memoryview, size: int | None, most: int) -> bytes:
    """The contents of one zstd frame, whose header says their size.

    Raises:
        TierError: it is no whole frame, or its size is not as it should be.
    """
    library = zstd_library()
    try:
        claimed = library.get_frame_info(data).decompressed_size
        if claimed is None or claimed > most or (size is not None and claimed != size):
            raise TierError(f"a zstd frame claims {claimed} bytes, not {size or most}")
        decompressor = library.ZstdDecompressor()
        inflated: bytes = decompressor.decompress(data, max_length=claimed + 1)
    except library.ZstdError as error:
        raise TierError(f"zstd: {error}") from None
    if len(inflated) != claimed or not decompressor.eof or decompressor.unused_data:
        raise TierError(f"a zstd frame claims {claimed} bytes and has others")
    return inflated


class ChunkedFile(RangedFile):
    """The segment in an object of chunks."""

    __slots__ = ("_decoding", "_key", "_manifest", "_source")

    def __init__(
        self,
        path: str,
        manifest: Manifest,
        key: bytes | None,
        source: Callable[[int, int], memoryview],
    ) -> None:
        """Take over the object; nothing is read yet.

        Args:
            path: the path of the object.
            manifest: the manifest of the segment.
            key: the key of the chunks.
            source: reads the object, from one position to another.
        """
        super().__init__(path, manifest.file_size)
        self._manifest: Final = manifest
        self._key: Final = key
        self._source: Final = source
        # More at a time would only take more memory.
        self._decoding: Final = BoundedSemaphore(usable_cores())

    def _bounds(self, start: int, end: int) -> tuple[int, int]:
        size = self._manifest.chunk_size
        return start // size * size, min(-(-end // size) * size, self.size)

    def _fetch(self, start: int, end: int) -> tuple[memoryview, KsegError | None]:
        """Read a range of the segment from its chunks, up to a bad chunk; and that one's error."""
        chunks, size = self._manifest.chunks, self._manifest.chunk_size
        first, last = start // size, -(-end // size)
        raw = self._source(chunks[first], chunks[last])
        room = min(last * size, self.size) - first * size
        with self._decoding:
            data, filled = private_memory(room, ((0, room),)).data, 0
            for at in range(first, last):
                low, high = (chunks[slot] - chunks[first] for slot in (at, at + 1))
                part_end = min((at + 1) * size, self.size)
                try:
                    opened = self._open_chunk(raw[low:high], part_end - at * size)
                except (TierError, LimitExceededError) as error:
                    fault = UnreadableError(
                        f"the chunk at {chunks[at]} of the object: {error.reason}",
                        path=self.path,
                        position=at * size,
                    )
                    fault.end = part_end
                    return data[:filled].toreadonly(), fault
                data[filled : filled + len(opened)] = opened
                filled += len(opened)
        return data.toreadonly(), None

    def _open_chunk(self, data: memoryview, size: int) -> bytes | memoryview:
        """A chunk of the segment, decrypted and inflated."""
        opened = unseal(data, self._key, self._manifest.aad)
        if self._manifest.compressed:
            opened = _inflate(opened, size, size)
        if len(opened) != size:
            raise TierError(f"it has {len(opened)} bytes of the segment, not {size}")
        return opened
