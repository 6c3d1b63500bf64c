"""Seeded logs for the benchmarks: a name gives the same bytes wherever the libraries are the same.

    python -m bench.datagen                   what there is, made or not
    python -m bench.datagen v2-plain-100-16k  make it and say where it lies

A name reads `v<magic>-<codec>-<value bytes>-<batch>`, with `-h<n>` for n headers per record;
`batch` is `16k`, `1m`, `thousand` (records) or `one` (a batch for each record). `bench.records`
tells what the records hold. Each log is a partition directory `<name>-0` with `.log`, `.index`
and `.timeindex`, as a broker lays them out, cached under
bench/data. KSEG_BENCH_MIB sets the size before compression.

kseg itself writes the batches; `test_corpora` holds the logs to what others read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import records
from kseg.constants import Compression, StopReason
from kseg.format.encode import encode_batches
from kseg.format.header import scan_all
from kseg.format.options import BatchOptions

if TYPE_CHECKING:
    from kseg.format.header import BatchTable

#: Changes with the bytes that a name stands for, so that an old cache is left alone.
VERSION = 3
DATA = Path(__file__).parent / "data"
INDEX_INTERVAL_BYTES = 4096
#: How `encode_batches` cuts the records.
BATCHES: dict[str, dict[str, Any]] = {
    "16k": {"batch_bytes": 16 << 10},
    "1m": {"batch_bytes": 1 << 20},
    "thousand": {"batch_bytes": 1 << 30, "batch_records": 1000},
    "one": {"batch_records": 1},
}
CODECS = {"plain": Compression.NONE} | {kind.label: kind for kind in list(Compression)[1:]}

NAMES = (
    "v2-plain-10-16k",
    "v2-plain-100-16k",
    "v2-plain-1000-16k",
    "v2-plain-100-1m",
    "v2-plain-100-thousand",
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
        if len(parts) not in (4, 5) or parts[1] not in CODECS or parts[3] not in BATCHES:
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
    rng = np.random.default_rng(records.SEED)
    table = np.empty((entries, 2), ">i4")
    table[:, 0] = np.cumsum(rng.integers(50, 150, entries))
    table[:, 1] = np.arange(entries) * min(4200, (2**31 - 1) // entries)
    path.write_bytes(table.tobytes())


def _write(spec: Spec, size: int, directory: Path) -> Corpus:
    overhead = 8 + records.KEY_BYTES + 27 * spec.headers + (61 if spec.batch == "one" else 0)
    count = max(1, size // (spec.value_bytes + overhead))
    held = records.make(count, spec.value_bytes, headers=spec.headers)
    options = BatchOptions(magic=spec.magic, compression=CODECS[spec.codec])
    log = directory / f"{0:020}.log"
    with log.open("wb") as file:
        for batch in encode_batches(held, options, **BATCHES[spec.batch]):
            file.write(batch.data)
    table = scan_all(memoryview(log.read_bytes()), on_bad_crc="ignore")
    assert table.stop is StopReason.END
    _write_indexes(table, directory)
    times = int(held["timestamp_ms"].sum()) if spec.magic else -count
    return Corpus(
        name=spec.name,
        directory=str(directory),
        records=count,
        batches=len(table),
        file_bytes=table.end_position,
        offset_sum=count * (count - 1) // 2,
        timestamp_sum=times % 2**63,
    )


def _write_indexes(table: BatchTable, directory: Path) -> None:
    """An entry for the batch before which more than the interval has been appended."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    highest = np.maximum.accumulate(table.max_timestamp)
    since, last_time = 0, -1
    rows = zip(table.position.tolist(), table.last_offset.tolist(), highest.tolist(), strict=True)
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
