"""Seeded logs for the benchmarks: a name gives the same bytes wherever NumPy is the same.

    python -m bench.datagen                   what there is, made or not
    python -m bench.datagen v2-plain-100-16k  make it and say where it lies

A name reads `v<magic>-<codec>-<value bytes>-<batch>`, with `-h<n>` for n headers per record;
`batch` is `16k`, `1m` or `one` (a batch for each record). Values are slices of JSON lines, +-25 %
in length, keys are 16 bytes. Each log is a partition directory `<name>-0` with `.log`, `.index`
and `.timeindex`, as a broker lays them out, cached under
bench/data. KSEG_BENCH_MIB sets the size before compression.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import tempfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench import layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

#: Changes with the bytes that a name stands for, so that an old cache is left alone.
VERSION = 1
DATA = Path(__file__).parent / "data"
SEED = 20_261_121
KEY_BYTES = 16
TEXT_BYTES = 4 << 20
INDEX_INTERVAL_BYTES = 4096
BATCH_BYTES = {"16k": 16 << 10, "1m": 1 << 20, "one": 0}
CODECS = {"plain": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 << 10

NAMES = (
    "v2-plain-10-16k",
    "v2-plain-100-16k",
    "v2-plain-1000-16k",
    "v2-plain-100-1m",
    "v2-plain-100-one",
    "v2-plain-100-16k-h2",
    *(f"v2-{codec}-100-{batch}" for codec in list(CODECS)[1:] for batch in ("16k", "1m")),
    "v1-plain-100-16k",
    "v0-plain-100-16k",
    "v1-gzip-100-16k",
    "v1-lz4-100-16k",
    "v0-snappy-100-16k",
)


@dataclass(frozen=True, slots=True)
class Spec:
    """A corpus name, taken apart."""

    name: str
    magic: int
    codec: str
    value_bytes: int
    batch: str
    headers: int

    @classmethod
    def parse(cls, name: str) -> Spec:
        """Read a name such as `v2-lz4-100-16k-h2`.

        Raises:
            ValueError: the name has another shape.
        """
        parts = name.split("-")
        if len(parts) not in (4, 5) or parts[1] not in CODECS or parts[3] not in BATCH_BYTES:
            raise ValueError(f"{name!r} is not v<magic>-<codec>-<value bytes>-<batch>[-h<n>]")
        headers = int(parts[4].removeprefix("h")) if len(parts) == 5 else 0
        return cls(
            name, int(parts[0].removeprefix("v")), parts[1], int(parts[2]), parts[3], headers
        )


@dataclass(frozen=True, slots=True)
class Corpus:
    """A log on disk and what it holds.

    Attributes:
        name: what it was made from.
        directory: the partition directory.
        records: how many records.
        batches: how many batches, or entries for magic 0 and 1.
        file_bytes: size of the `.log`.
        offset_sum: sum of all offsets, and
        timestamp_sum: of all timestamps modulo 2^63, for comparing readers.
    """

    name: str
    directory: str
    records: int
    batches: int
    file_bytes: int
    offset_sum: int
    timestamp_sum: int

    @property
    def log(self) -> Path:
        """The `.log` file."""
        return Path(self.directory) / f"{0:020}.log"

    @property
    def index(self) -> Path:
        """The `.index` file."""
        return Path(self.directory) / f"{0:020}.index"


def mebibytes() -> int:
    """Size of a corpus before compression: KSEG_BENCH_MIB, else 64."""
    return int(os.environ.get("KSEG_BENCH_MIB", "64"))


def corpus(name: str, *, mib: int | None = None, under: Path = DATA) -> Corpus:
    """Make a corpus unless it lies there already.

    Args:
        name: see the module's docstring.
        mib: MiB of records before compression; `mebibytes()` if not given.
        under: the cache.
    """
    size = mebibytes() if mib is None else mib
    home = under / f"v{VERSION}-{size}MiB"
    note = home / f"{name}.json"
    if note.exists():
        return Corpus(**json.loads(note.read_text()), directory=str(home / f"{name}-0"))
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".making-") as making:
        made = _write(Spec.parse(name), size << 20, Path(making))
        target = home / f"{name}-0"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for file in Path(making).iterdir():
            file.rename(target / file.name)
    facts = asdict(made)
    del facts["directory"]
    note.write_text(json.dumps(facts))
    return Corpus(**facts, directory=str(target))


def offset_index(path: Path, entries: int) -> None:
    """Write an offset index of its own, for lookups: entries 100 +- 50 offsets apart."""
    rng = np.random.default_rng(SEED)
    table = np.empty((entries, 2), ">i4")
    table[:, 0] = np.cumsum(rng.integers(50, 150, entries))
    table[:, 1] = np.arange(entries) * min(4200, (2**31 - 1) // entries)
    path.write_bytes(table.tobytes())


def _write(spec: Spec, size: int, directory: Path) -> Corpus:
    records = _records(spec, size)
    starts = layout.split(layout.record_sizes(records), BATCH_BYTES[spec.batch])
    codec, compress = CODECS[spec.codec], _compressor(spec.codec)
    if spec.magic == 2:
        made = layout.batches(records, starts, codec=codec, compress=compress)
    else:
        made = layout.messages(records, starts, magic=spec.magic, codec=codec, compress=compress)
    made.data.tofile(directory / f"{0:020}.log")
    _write_indexes(made, directory)
    count = len(records)
    times = int(records.timestamps.sum()) if spec.magic else -count
    return Corpus(
        name=spec.name,
        directory=str(directory),
        records=count,
        batches=len(made.positions),
        file_bytes=len(made.data),
        offset_sum=count * (count - 1) // 2,
        timestamp_sum=times % 2**63,
    )


def _records(spec: Spec, size: int) -> layout.Records:
    rng = np.random.default_rng([SEED, spec.value_bytes])
    text = _text(rng)
    overhead = 8 + KEY_BYTES + 27 * spec.headers + (61 if spec.batch == "one" else 0)
    count = max(1, size // (spec.value_bytes + overhead))
    spread = spec.value_bytes // 4
    lengths = rng.integers(spec.value_bytes - spread, spec.value_bytes + spread + 1, count)
    starts = rng.integers(0, len(text) - int(lengths.max()), count)
    # Mostly ascending, as producers' clocks are: deltas take one or two bytes and either sign.
    times = 1_700_000_000_000 + np.cumsum(rng.integers(0, 3, count)) + rng.integers(-4, 5, count)
    keys = np.frombuffer(rng.bytes(count * KEY_BYTES // 2).hex().encode(), np.uint8)
    return layout.Records(
        timestamps=times,
        keys=keys.reshape(count, KEY_BYTES),
        text=text,
        value_starts=starts,
        value_bytes=lengths,
        headers=_headers(rng, count, spec.headers),
    )


def _headers(rng: np.random.Generator, count: int, per_record: int) -> NDArray[np.uint8]:
    """The header count and headers `trace-id-<n>` of 16 hex digits each, as record bytes."""
    parts = [np.full((count, 1), 2 * per_record, np.uint8)]
    for number in range(per_record):
        head = bytes([2 * len("trace-id-0")]) + f"trace-id-{number}".encode() + bytes([2 * 16])
        parts.append(np.broadcast_to(np.frombuffer(head, np.uint8), (count, len(head))))
        digits = np.frombuffer(rng.bytes(count * 8).hex().encode(), np.uint8)
        parts.append(digits.reshape(count, 16))
    return np.concatenate(parts, axis=1)


def _text(rng: np.random.Generator) -> NDArray[np.uint8]:
    """Lines of JSON events: field names repeat, numbers and names vary."""
    cities = ("Berlin", "Nairobi", "Lima", "Osaka", "Oslo", "Quito", "Turin", "Perth")
    kinds = ("order", "refund", "view", "click", "payment", "shipment")
    lines: list[str] = []
    rows = TEXT_BYTES // 150 + 1000
    numbers = rng.integers(0, 10**9, (rows, 5)).tolist()
    for a, b, c, d, e in numbers:
        lines.append(
            f'{{"id":{a},"type":"{kinds[b % 6]}","user":"u{b % 100_000:05}",'
            f'"city":"{cities[c % 8]}","amount":{c / 1e7:.2f},"currency":"EUR",'
            f'"session":"{d:08x}{e:08x}","ok":{"true" if e % 7 else "false"}}}\n'
        )
    return np.frombuffer("".join(lines).encode()[:TEXT_BYTES], np.uint8)


def _write_indexes(made: layout.Layout, directory: Path) -> None:
    """An entry for the batch before which more than the interval has been appended."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    highest = np.maximum.accumulate(made.max_timestamps)
    since, last_time = 0, -1
    rows = zip(made.positions.tolist(), made.last_offsets.tolist(), highest.tolist(), strict=True)
    previous = 0
    for position, last_offset, timestamp in rows:
        since += position - previous
        previous = position
        if since > INDEX_INTERVAL_BYTES:
            offsets.append((last_offset, position))
            if timestamp > last_time:
                times.append((timestamp, last_offset))
                last_time = timestamp
            since = 0
    (directory / f"{0:020}.index").write_bytes(np.array(offsets, ">i4").tobytes())
    packed = b"".join(struct.pack(">qi", *entry) for entry in times)
    (directory / f"{0:020}.timeindex").write_bytes(packed)


def _compressor(codec: str) -> Callable[[bytes], bytes] | None:
    """What a Java producer would have written: its levels, block sizes and no content sizes."""
    if codec == "gzip":
        return lambda data: zlib.compress(data, 6, wbits=31)
    if codec == "snappy":
        return _xerial
    if codec == "lz4":
        from lz4 import frame

        options = {"block_size": frame.BLOCKSIZE_MAX64KB, "block_linked": False}
        return lambda data: bytes(frame.compress(data, store_size=False, **options))
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=3, write_content_size=False).compress
    return None


def _xerial(data: bytes) -> bytes:
    import cramjam

    parts = [XERIAL_HEADER]
    for at in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + XERIAL_BLOCK_BYTES]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def main() -> None:
    """List the corpora, or make those named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to make, `all` for all")
    parser.add_argument("--mib", type=int, default=mebibytes(), help="MiB before compression")
    given = parser.parse_args()
    names = NAMES if given.names == ["all"] else given.names
    for name in names or NAMES:
        if names:
            made = corpus(name, mib=given.mib)
            facts = f"{made.records:9} records {made.batches:7} batches {made.file_bytes:9} bytes"
            print(facts, made.log)
        else:
            print(name)


if __name__ == "__main__":
    main()
