"""What users could take instead, and what the machine allows; a call answers how much it did.

The peers get every advantage that costs nothing to give: their bytes lie in memory before the
clock starts, and they only touch each record, while kseg builds columns. Those that need a slice
of the log to end in time take whole batches of it; `cases` compares time per record.
"""

from __future__ import annotations

import bisect
import importlib.util
import mmap
import os
import struct
import sys
import time
import warnings
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.interop.kafka import Kafka, UnavailableError, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    from numpy.typing import NDArray

    from bench.pairs import Clock

#: Timestamp, key and value of each record of a batch.
Rows = list[tuple[int, bytes, bytes]]
#: What Kafka compresses at a time.
LZ4_BLOCK_BYTES = 64 << 10
JAVA_RELEASE = "4.2.0"
JAVA_DRIVER = "bench"
JAVA_OPTIONS = ("-Xms3g", "-Xmx3g", "-XX:+UseParallelGC", "-XX:ActiveProcessorCount=1")


def aiokafka_records(data: bytes, count: int) -> int:
    """Check each CRC and iterate every record with aiokafka's compiled reader.

    The caller knows how many there are, so that the loop need not count.
    """
    from aiokafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka: bad CRC")
        for _ in batch:
            pass
    return count


def aiokafka_rows(data: bytes) -> int:
    """Take offset, timestamp, key and value of each record, each CRC checked; answers records."""
    from aiokafka.record.memory_records import MemoryRecords

    records, count = MemoryRecords(data), 0
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka: bad CRC")
        for record in batch:
            _ = record.offset, record.timestamp, record.key, record.value
            count += 1
    return count


def aiokafka_sums(data: bytes) -> tuple[int, int, int]:
    """Records, sum of offsets and sum of timestamps as aiokafka sees them; not for timing."""
    from aiokafka.record.memory_records import MemoryRecords

    records, count, offsets, times = MemoryRecords(data), 0, 0, 0
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka: bad CRC")
        for record in batch:
            count += 1
            offsets += record.offset
            times += -1 if record.timestamp is None else record.timestamp
    return count, offsets, times


def aiokafka_table(data: bytes) -> int:
    """Gather offset, timestamp, key and value into an Arrow table, as one would with aiokafka."""
    import pyarrow as pa
    from aiokafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)
    columns: dict[str, list[Any]] = {"offset": [], "timestamp": [], "key": [], "value": []}
    add = [column.append for column in columns.values()]
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka: bad CRC")
        for record in batch:
            add[0](record.offset)
            add[1](record.timestamp)
            add[2](record.key)
            add[3](record.value)
    types = (pa.int64(), pa.int64(), pa.binary(), pa.binary())
    arrays = [pa.array(c, kind) for c, kind in zip(columns.values(), types, strict=True)]
    return len(pa.table(arrays, names=list(columns)))


def aiokafka_crc(data: bytes) -> int:
    """Check each CRC and touch no record; answers bytes."""
    from aiokafka.record.memory_records import MemoryRecords

    records = MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("aiokafka: bad CRC")
    return len(data)


def aiokafka_batches(data: bytes) -> int:
    """Step over the batches; answers how many."""
    from aiokafka.record.memory_records import MemoryRecords

    records, count = MemoryRecords(data), 0
    while records.next_batch() is not None:
        count += 1
    return count


def aiokafka_build(sources: Sequence[Rows], codec: int = 0) -> int:
    """Append each record to aiokafka's compiled builder and build each batch; answers records."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    count = 0
    for rows in sources:
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
        append = builder.append
        for offset, (timestamp, key, value) in enumerate(rows):
            append(offset, timestamp, key, value, [])
        builder.build()
        count += len(rows)
    return count


def kafka_python_records(data: bytes) -> int:
    """Check each CRC and iterate every record with kafka-python."""
    records, count = _kafka_python()(data), 0
    while (batch := records.next_batch()) is not None:
        if not batch.validate_crc():
            raise ValueError("kafka-python: bad CRC")
        for _ in batch:
            count += 1
    return count


@cache
def _kafka_python() -> Any:
    with warnings.catch_warnings():
        # Its own use of importlib.resources; pytest would make an error of it.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.record.memory_records import MemoryRecords
    return MemoryRecords


def whole_batches(data: bytes, limit: int) -> bytes:
    """The batches that fit in the first `limit` bytes, at least one."""
    position = 0
    while position < len(data):
        end = position + 12 + int(struct.unpack_from(">i", data, position + 8)[0])
        if end > limit and position:
            break
        position = end
    return data[:position]


def mapped(path: Path, stack: ExitStack) -> NDArray[np.uint8]:
    """The file as a read-only map, one byte per element; unmapped with the stack's last view."""
    with path.open("rb") as file:
        view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    stack.callback(_close_map, view)
    return np.frombuffer(view, np.uint8)


def _close_map(view: mmap.mmap) -> None:
    # An array that a caller still holds pins the map; it goes with that array.
    try:
        view.close()
    except BufferError:
        return


def read_sums(data: NDArray[np.uint8]) -> dict[str, Callable[[], int]]:
    """Ways to read every byte once with NumPy; which is fastest depends on the machine."""
    words = data[: len(data) // 8 * 8]
    size = len(words)
    return {
        "sum u64": lambda: int(np.add.reduce(words.view(np.uint64))) * 0 + size,
        "xor u64": lambda: int(np.bitwise_xor.reduce(words.view(np.uint64))) * 0 + size,
        "max u32": lambda: int(np.maximum.reduce(words.view(np.uint32))) * 0 + size,
        "max u8": lambda: int(np.maximum.reduce(words)) * 0 + size,
    }


def fastest(calls: dict[str, Callable[[], int]], rounds: int = 7) -> Callable[[], int]:
    """The call with the best time per unit of work: the peer is the best of a few."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.process_time_ns()
            work = call()
            took = (time.process_time_ns() - began) / work
            best[name] = min(took, best.get(name, took))
    return calls[min(best, key=best.__getitem__)]


def read_sum(data: NDArray[np.uint8]) -> Callable[[], int]:
    """The fastest read of these bytes that NumPy has here; answers bytes."""
    return fastest(read_sums(data))


def windowed_read_sum(path: Path, stack: ExitStack) -> Callable[[], int]:
    """The same through `pread` into one reused window; the best of a few window sizes."""
    descriptor = os.open(path, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    size = path.stat().st_size

    def through(window_bytes: int) -> Callable[[], int]:
        window = np.empty(window_bytes, np.uint8)
        words = window.view(np.uint32)

        def sweep() -> int:
            for position in range(0, size, window_bytes):
                os.preadv(descriptor, [window], position)
                np.maximum.reduce(words)
            return size

        return sweep

    return fastest({f"{k} KiB": through(k << 10) for k in (128, 256, 512, 1024)})


def fresh_read_sum(path: Path) -> Callable[[], int]:
    """Map the file anew and read it, page faults included; answers bytes."""

    def sweep() -> int:
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        words = np.frombuffer(view, np.uint32, len(view) // 4)
        np.maximum.reduce(words)
        size = len(view)
        del words
        view.close()
        return size

    return sweep


def over(call: Callable[[bytes], int], pieces: Sequence[bytes]) -> Callable[[], int]:
    """Call once for each piece; answers bytes."""
    total = sum(map(len, pieces))

    def sweep() -> int:
        for piece in pieces:
            call(piece)
        return total

    return sweep


def crc32c_calls() -> dict[str, Callable[[bytes], int]]:
    """CRC-32C packages that are installed."""
    import google_crc32c

    found: dict[str, Callable[[bytes], int]] = {"google-crc32c": google_crc32c.value}
    if importlib.util.find_spec("crc32c"):
        import crc32c

        found["crc32c"] = crc32c.crc32c
    return found


def crc32_calls() -> dict[str, Callable[[bytes], int]]:
    """CRC-32 of the standard library and, where installed, of isal."""
    found: dict[str, Callable[[bytes], int]] = {"zlib": zlib.crc32}
    if importlib.util.find_spec("isal"):
        from isal import isal_zlib

        found["isal"] = isal_zlib.crc32
    return found


def memcpy(data: NDArray[np.uint8]) -> Callable[[], int]:
    """Copy the bytes into one buffer that is there already; answers bytes."""
    target = np.empty_like(data)
    np.copyto(target, data)

    def copy() -> int:
        np.copyto(target, data)
        return len(data)

    return copy


def memcpy_fresh(data: NDArray[np.uint8]) -> Callable[[], int]:
    """Copy the bytes into memory that the process has just been given; answers bytes."""

    def copy() -> int:
        with mmap.mmap(-1, len(data)) as pages:
            np.copyto(np.frombuffer(pages, np.uint8), data)
        return len(data)

    return copy


def memcpy_each(pieces: Sequence[bytes], units: int) -> Callable[[], int]:
    """Copy each piece into one buffer that is there already; answers `units`.

    A copy takes many times as long where both addresses lie alike within a page, so the buffer is
    the best placed of several.
    """
    sources = [np.frombuffer(piece, np.uint8) for piece in pieces]
    size = max(map(len, pieces))
    buffer = np.zeros(size + 4096, np.uint8)

    def copies(shift: int) -> Callable[[], int]:
        targets = [buffer[shift : shift + len(piece)] for piece in pieces]

        def copy() -> int:
            for target, source in zip(targets, sources, strict=True):
                np.copyto(target, source)
            return units

        return copy

    return fastest({f"{shift} B on": copies(shift) for shift in (0, 1024, 2048, 3072)}, rounds=50)


def inflate_alone(data: bytes, units: int) -> Callable[[], int]:
    """Inflate the frame of each batch, and nothing else; answers `units`."""
    from kseg._kernels.inflate import USABLE, Inflater
    from kseg.constants import BATCH_HEADER_BYTES
    from kseg.format.codec import zstd_library
    from kseg.format.header import scan

    table = scan(data)
    batches = zip(table.codec.tolist(), table.position.tolist(), table.size.tolist(), strict=True)
    frames = [
        (codec, data[start + BATCH_HEADER_BYTES : start + size]) for codec, start, size in batches
    ]
    room = bytearray(2 << 20)
    into = Inflater().into
    by_package = zstd_library().decompress

    def inflate() -> int:
        for codec, frame in frames:
            into(codec, 2, frame, room)
        return units

    def inflate_by_package() -> int:
        for _, frame in frames:
            by_package(frame)
        return units

    return inflate if table.codec[0] in USABLE else inflate_by_package


def lz4_alone(bodies: Sequence[bytes], units: int) -> Callable[[], int]:
    """Compress each body, in blocks as Kafka has them, and nothing else; answers `units`."""
    from lz4 import block

    pieces = [
        memoryview(body)[at : at + LZ4_BLOCK_BYTES]
        for body in bodies
        for at in range(0, len(body), LZ4_BLOCK_BYTES)
    ]

    def squeeze() -> int:
        for piece in pieces:
            block.compress(piece, store_size=False)
        return units

    return squeeze


def zstd_alone(bodies: Sequence[bytes], units: int) -> Callable[[], int]:
    """The same with zstd, its compressor kept."""
    from kseg.format.codec import zstd_library

    zstd = zstd_library()
    options = {zstd.CompressionParameter.content_size_flag: False}
    kept = zstd.ZstdCompressor(options=options)

    def squeeze() -> int:
        for body in bodies:
            kept.compress(body, kept.FLUSH_FRAME)
        return units

    return squeeze


def bisect_file(data: bytes | mmap.mmap, targets: Sequence[int]) -> Callable[[], int]:
    """`bisect` over the file itself, the key of a slot unpacked when asked for."""
    unpack, count = struct.Struct(">i").unpack_from, len(data) // 8

    def key(slot: int) -> Any:
        return unpack(data, slot * 8)[0]

    slots = range(count)

    def look() -> int:
        for target in targets:
            bisect.bisect_right(slots, target, key=key)
        return len(targets)

    return look


def bisect_list(keys: list[int], targets: Sequence[int]) -> Callable[[], int]:
    """`bisect` over a list made beforehand: what keeping the whole index in memory would give."""

    def look() -> int:
        for target in targets:
            bisect.bisect_right(keys, target)
        return len(targets)

    return look


def searchsorted_one(keys: NDArray[np.int32], targets: Sequence[int]) -> Callable[[], int]:
    """NumPy on a native copy, a key of the same type at a time."""
    typed = [np.int32(target) for target in targets]

    def look() -> int:
        for target in typed:
            keys.searchsorted(target, "right")
        return len(typed)

    return look


class Java:
    """Kafka's own classes in one warm JVM, where Maven and a compiler for Java are found."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._kafka: Kafka | None = None
        self._warm: set[str] = set()

    @staticmethod
    @cache
    def there() -> bool:
        """Whether they can be run here; says once why not."""
        try:
            java_class_path()
        except UnavailableError as missing:
            print(f"without Kafka's Java: {missing}", file=sys.stderr)
            return False
        return True

    def ask(self, command: str, clock: Clock, **options: object) -> int:
        """Run one round, after warming up the first time; answers nanoseconds."""
        if self._kafka is None:
            self._kafka = Kafka(JAVA_RELEASE, JAVA_DRIVER, JAVA_OPTIONS)
        work = f"{command} {options}"
        cold = work not in self._warm
        self._warm.add(work)
        warm = {"warmup": 3, "warmup_ms": 2000} if cold else {}
        (answer,) = self._kafka.ask([{"op": command, **warm, **options}])
        if "error" in answer:
            raise RuntimeError(f"Kafka's Java: {answer}")
        return int(answer[f"{clock}_ns"][0])

    def close(self) -> None:
        """End the JVM."""
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None


def java_class_path() -> str:
    """Kafka's jars and what times its classes: for a command in a JVM of its own.

    Raises:
        UnavailableError: no Maven, no compiler, or no jars.
    """
    return prepare(JAVA_RELEASE, JAVA_DRIVER)
