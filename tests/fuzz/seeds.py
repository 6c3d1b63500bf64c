"""What the fuzzer starts from: real files, worked vectors, and bytes found to matter before.

A seed has a kind, which says who reads it:

    log  kafka07  codec  index  timeindex  txnindex  snapshot  lines
    epochs  offsets  partition_metadata  meta_properties  directory

A `codec` seed is a compressed stream behind one byte: codec, plus 16 times the magic around it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.fixture_archives import unpacked

TESTS = Path(__file__).resolve().parent.parent
CORPUS = Path(__file__).resolve().parent / "corpus"
BYTES_MAX = 2000

_KIND_OF_SUFFIX = {
    ".log": "log",
    ".kafka": "kafka07",
    ".index": "index",
    ".timeindex": "timeindex",
    ".txnindex": "txnindex",
    ".snapshot": "snapshot",
}
_KIND_OF_NAME = {
    "leader-epoch-checkpoint": "epochs",
    "recovery-point-offset-checkpoint": "offsets",
    "replication-offset-checkpoint": "offsets",
    "partition.metadata": "partition_metadata",
    "meta.properties": "meta_properties",
}
KINDS = (
    "codec",
    "directory",
    "lines",
    *sorted({*_KIND_OF_SUFFIX.values(), *_KIND_OF_NAME.values()}),
)


@dataclass(frozen=True, slots=True)
class Seed:
    """Bytes of one kind, and where they come from."""

    kind: str
    name: str
    data: bytes


def load() -> list[Seed]:
    """Every seed in a fixed order, each content once."""
    seeds = [*corpus(), *_vectors(), *_files(), *_directories()]
    seeds += [stream for seed in seeds if seed.kind == "log" for stream in _streams(seed)]
    return list({(seed.kind, seed.data): seed for seed in reversed(seeds)}.values())[::-1]


def corpus() -> list[Seed]:
    """The kept files, named `<kind>-<what>.bin`."""
    paths = sorted(CORPUS.glob("*.bin"))
    return [Seed(path.name.partition("-")[0], path.name, path.read_bytes()) for path in paths]


def _vectors() -> list[Seed]:
    vectors = json.loads((TESTS / "conformance/vectors/records.json").read_text())
    seeds = []
    for section in ("records", "negative", "file_walk", "kafka07"):
        kind = "kafka07" if section == "kafka07" else "log"
        seeds += [Seed(kind, v["name"], bytes.fromhex(v["hex"])) for v in vectors[section]]
    return seeds


def _files() -> list[Seed]:
    """The start of each fixture file, at most BYTES_MAX of it; of a log whole batches."""
    seeds = []
    for path in sorted(unpacked().rglob("*")):
        kind = kind_of(path.name)
        if kind is None or not path.is_file():
            continue
        seeds.append(Seed(kind, f"{path.parent.parent.name}/{path.name}", _start_of(path)))
    return seeds


def kind_of(name: str) -> str | None:
    """The kind of a file of a partition or data directory."""
    return _KIND_OF_NAME.get(name) or _KIND_OF_SUFFIX.get(Path(name).suffix)


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(64 * BYTES_MAX)
    if path.suffix == ".log" and len(data) > BYTES_MAX:
        ends = [end for _, end in entries(data)]
        kept = [end for end in ends if end <= BYTES_MAX] or [BYTES_MAX]
        data = data[: kept[-1]]
    return data[:BYTES_MAX]


def _directories() -> list[Seed]:
    """Partition directories, each file from its start, in the form of `tests.fuzz.directories`."""
    seeds = []
    for case in sorted(unpacked().glob("*/*/*/")):
        names = [path for path in sorted(case.iterdir()) if path.is_file() and kind_of(path.name)]
        if any(path.suffix == ".log" for path in names):
            files = {path.name: _start_of(path).hex() for path in names[:12]}
            name = f"{case.parent.name}/{case.name}"
            seeds.append(Seed("directory", name, json.dumps(files).encode()))
    return seeds


def _streams(seed: Seed) -> list[Seed]:
    """The compressed bodies of magic 2 batches."""
    found = []
    for start, end in entries(seed.data):
        batch = seed.data[start:end]
        if len(batch) > 61 and batch[16] == 2 and batch[22] & 7:
            found.append(Seed("codec", seed.name, bytes([0x20 | batch[22] & 7]) + batch[61:]))
    return found[:2]


def entries(data: bytes | bytearray) -> list[tuple[int, int]]:
    """Start and end of each whole batch or message, as their sizes say."""
    found = []
    start = 0
    while len(data) - start >= 26:
        end = start + 12 + int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
        if not start + 26 <= end <= len(data):
            break
        found.append((start, end))
        start = end
    return found
