"""Segments of a tier in Aiven's layout, in chunks of zstd with AES-GCM, made in moments."""

from __future__ import annotations

import base64
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kseg.documents import id_text
from kseg.format.codec import zstd_library
from tests.memory.served import Repeated

CHUNK_BYTES: Final = 4 << 20
_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


def write_tier(top: Path, count: int, size: int, *, encryption: dict[str, str], key: bytes) -> int:
    """Write segments one behind the other; answers how many records they have.

    Args:
        top: a directory.
        count, size: of the segments.
        encryption: of a manifest: the encrypted key, and what each tag covers, too.
        key: of the chunks.
    """
    directory = top / f"t-{_TOPIC_ID}" / "0"
    directory.mkdir(parents=True)
    aead, aad = AESGCM(key), base64.b64decode(encryption["aad"])

    def sealed(data: bytes | memoryview) -> bytes:
        iv = os.urandom(12)
        return iv + aead.encrypt(iv, bytes(data), aad)

    offset = 0
    for number in range(count):
        log = Repeated(size, offset)
        places = [*range(0, log.size, CHUNK_BYTES), log.size]
        parts = [
            sealed(zstd_library().compress(log.read(at, end), level=1))
            for at, end in pairwise(places)
        ]
        epochs = sealed(b"0\n1\n0 0\n")
        id_ = id_text(UUID(int=number + 1))
        manifest = {
            "version": "1",
            "chunkIndex": _table(log.size, [len(part) for part in parts]),
            "segmentIndexes": {
                **dict.fromkeys(("offset", "timestamp", "producerSnapshot"), _place(0)),
                "leaderEpoch": _place(len(epochs)),
            },
            "compression": True,
            "encryption": encryption,
            "remoteLogSegmentMetadata": {
                "remoteLogSegmentId": {
                    "topicIdPartition": {
                        "topicId": _TOPIC_ID,
                        "topicPartition": {"topic": "t", "partition": 0},
                    },
                    "id": id_,
                },
                "startOffset": offset,
                "endOffset": offset + log.records - 1,
                **dict.fromkeys(("maxTimestampMs", "eventTimestampMs", "brokerId"), 1),
                "segmentLeaderEpochs": {"0": offset},
            },
        }
        name = f"{offset:020d}-{id_}"
        (directory / f"{name}.log").write_bytes(b"".join(parts))
        (directory / f"{name}.indexes").write_bytes(epochs)
        (directory / f"{name}.rsm-manifest").write_text(json.dumps(manifest))
        offset += log.records
    return offset


def _place(size: int) -> dict[str, int]:
    return {"position": 0, "size": size}


def _table(size: int, sizes: list[int]) -> dict[str, Any]:
    """The chunks of a segment: their number, a base of 0, then the size of each in four bytes."""
    head = len(sizes).to_bytes(4) + (b"" if len(sizes) == 1 else bytes(4) + b"\x04")
    table = head + b"".join(one.to_bytes(4) for one in sizes)
    return {
        "type": "variable",
        "originalChunkSize": CHUNK_BYTES,
        "originalFileSize": size,
        "transformedChunks": base64.b64encode(zstd_library().compress(table)).decode(),
    }
