"""Reading from a store with 10 ms a request: `python -m bench.store`.

Serves one segment of 256 MiB from this machine. Prints the rates of obstore's own ranged read (four
threads, 8 MiB a request), of `kseg verify` of the same URL, and their ratio; then those of a
segment in zstd chunks with AES-GCM beside decoding and reading alone. All in one run, since others
may use the machine.
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import kseg
from kseg.format.builder import BatchBuilder
from kseg.log.tier.aiven import ChunkedFile, parse_manifest
from kseg.stores.path import RemotePath
from kseg.stores.store import Store

SEGMENT_BYTES = 256 << 20
RANGE_BYTES = 8 << 20
PAUSE_S = 0.010
ROUNDS = 5
CHUNK_BYTES = 4 << 20


class Handler(BaseHTTPRequestHandler):
    """Files of a directory, by range, each request 10 ms late."""

    protocol_version = "HTTP/1.1"
    top = Path()
    requests = 0

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Size of a file."""
        self.do_GET(with_body=False)

    def do_GET(self, *, with_body: bool = True) -> None:
        """A range of a file, or all of it."""
        time.sleep(PAUSE_S)
        Handler.requests += 1
        path = Handler.top / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        size, start, end = path.stat().st_size, 0, path.stat().st_size
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if asked:
            first, _, last = asked.partition("-")
            start, end = int(first), min(int(last) + 1, size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", f'"{size}"')
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 00:00:00 GMT")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.end_headers()
        if with_body:
            with path.open("rb") as file:
                self.connection.sendfile(file, start, end - start)


@contextmanager
def serving(top: Path) -> Iterator[str]:
    """A server of a directory, in a process of its own so that it takes no time from the reader."""
    Handler.top = top
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    child = os.fork()
    if child == 0:
        server.serve_forever()
        os._exit(0)
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def write_segment(path: Path) -> None:
    """Batches of records with values that zstd halves."""
    import random

    rng, parts, offset = random.Random(1), [], 0
    while sum(map(len, parts)) < 1 << 20:
        builder = BatchBuilder()
        for _ in range(100):
            value = rng.randbytes(100) + b"0" * 100
            builder.append(value=value, timestamp_ms=1_700_000_000_000)
        parts.append(bytes(builder.build().data))
    one = b"".join(parts)
    with path.open("wb") as file:
        for _ in range(SEGMENT_BYTES // len(one)):
            moved = bytearray(one)
            position = 0
            for part in parts:
                moved[position : position + 8] = offset.to_bytes(8, "big")
                offset += 100
                position += len(part)
            file.write(moved)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def ranged_read(url: str) -> None:
    """Obstore's own read of an object in four threads."""
    import obstore
    from obstore.store import from_url

    root, _, key = url.rpartition("/")
    store = from_url(root, client_options={"allow_http": True})
    size = obstore.head(store, key)["size"]
    with ThreadPoolExecutor(4) as pool:
        starts = range(0, size, RANGE_BYTES)

        def read(start: int) -> int:
            end = min(start + RANGE_BYTES, size)
            return len(obstore.get_range(store, key, start=start, end=end))

        assert sum(pool.map(read, starts)) == size


def report(name: str, size: int, rounds: list[tuple[float, float]]) -> float:
    """Print a rate; returns the median seconds."""
    clocks = sorted(clock for clock, _ in rounds)
    middle = statistics.median(clocks)
    processor = statistics.median(processor for _, processor in rounds)
    print(f"{name:44} {size / middle / 1e6:8.0f} MB/s   {clocks[0]:.3f} to {clocks[-1]:.3f} s, "
          f"processor {processor:.3f} s")  # fmt: skip
    return middle


def main() -> None:
    """Print the rates."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        top = Path(scratch)
        log = top / f"{0:020d}.log"
        write_segment(log)
        size = log.stat().st_size
        with serving(top) as root:
            url = f"{root}/{log.name}"
            works: dict[str, Callable[[], object]] = {
                "obstore, 4 threads, 8 MiB ranges": lambda: ranged_read(url),
                "kseg.verify of the URL": lambda: kseg.verify(RemotePath(url)),
                "kseg.verify of the file": lambda: kseg.verify(log),
            }
            compare(works, size)
            chunked(top, log, root)


def compare(works: dict[str, Callable[[], object]], size: int) -> None:
    """Print the rates of works, round by round, and the ratio of the second to the first."""
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            rounds[name].append(timed(work))
    middles = [report(name, size, found) for name, found in rounds.items()]
    first, second = (list(rounds.values())[at] for at in (0, 1))
    ratios = sorted(a[0] / b[0] for a, b in zip(first, second, strict=True))
    print(f"  second to first: {middles[0] / middles[1]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def chunked(top: Path, log: Path, root: str) -> None:
    """Chunks of zstd with AES-GCM: through kseg, beside reading and decoding alone."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from kseg.format.codec import zstd_library

    library, key, aad = zstd_library(), os.urandom(32), os.urandom(32)
    whole, sizes, total = log.read_bytes(), list[int](), log.stat().st_size
    with (top / "chunks").open("wb") as file:
        for at in range(0, total, CHUNK_BYTES):
            iv = os.urandom(12)
            frame = library.compress(whole[at : at + CHUNK_BYTES], level=3)
            sealed = iv + AESGCM(key).encrypt(iv, frame, aad)
            sizes.append(len(sealed))
            file.write(sealed)
    table = len(sizes).to_bytes(4) + bytes(4) + b"\x04"
    table += b"".join(one.to_bytes(4) for one in sizes)
    manifest = parse_manifest(
        json.dumps(
            {
                "version": "1",
                "chunkIndex": {
                    "type": "variable",
                    "originalChunkSize": CHUNK_BYTES,
                    "originalFileSize": total,
                    "transformedChunks": base64.b64encode(library.compress(table)).decode(),
                },
                "segmentIndexes": {
                    name: {"position": 0, "size": 0}
                    for name in ("offset", "timestamp", "producerSnapshot", "leaderEpoch")
                },
                "compression": True,
                "encryption": {"dataKey": "x:eA==", "aad": base64.b64encode(aad).decode()},
            }
        ).encode(),
        "manifest",
    )
    url = f"{root}/chunks"
    stored = Store.of(url).describe(url)

    def walk(read: Callable[[int, int], memoryview]) -> None:
        with ChunkedFile(url, manifest, key, read) as file:
            for at in range(0, total, 1 << 20):
                file.read(at, 1 << 20)

    data = memoryview((top / "chunks").read_bytes())
    works: dict[str, Callable[[], object]] = {
        "decoding alone (zstd, AES-GCM)": lambda: walk(lambda start, end: data[start:end]),
        "chunks through kseg": lambda: walk(lambda a, b: Store.of(url).read(stored, a, b)),
        "reading alone": lambda: ranged_read(url),
    }
    compare(works, total)


if __name__ == "__main__":
    main()
