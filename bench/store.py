"""Reading from a store with 10 ms a request: `python -m bench.store`.

Serves one segment of 256 MiB from this machine. Prints the rates of obstore's own ranged read (four
threads, 8 MiB a request), of `kseg verify` of the same URL, and their ratio; then those of a
segment in zstd chunks with AES-GCM beside decoding and reading alone; then the time and the
requests of `kseg info` of 1,000 segments in a tier, and the requests of a read of the last hour.
All in one run, since others may use the machine.
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
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import kseg
from kseg.analysis.info import describe
from kseg.format.builder import BatchBuilder
from kseg.log.tier import Tier
from kseg.log.tier.aiven import ChunkedFile, parse_manifest
from kseg.stores.path import RemotePath
from kseg.stores.store import Store

SEGMENT_BYTES = 256 << 20
RANGE_BYTES = 8 << 20
PAUSE_S = 0.010
ROUNDS = 5
CHUNK_BYTES = 4 << 20
SEGMENTS = 1_000
#: For stores of S3, of which the server knows what reading needs: a bucket is a directory.
S3 = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@cache
def sizes_in(bucket: Path) -> dict[str, int]:
    """The files of a directory, by their keys in order."""
    files = sorted(one for one in bucket.rglob("*") if one.is_file())
    return {str(one.relative_to(bucket)): one.stat().st_size for one in files}


class Handler(BaseHTTPRequestHandler):
    """Files of a directory, by range, each request 10 ms late."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it would wait 40 ms between head and body
    top = Path()

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Size of a file."""
        self.do_GET(with_body=False)

    def do_GET(self, *, with_body: bool = True) -> None:
        """A range of a file, or all of it."""
        time.sleep(PAUSE_S)
        asked_for = urlsplit(self.path)
        path = Handler.top / asked_for.path.lstrip("/")
        if "list-type" in asked_for.query:
            self.list_page(path, parse_qs(asked_for.query))
            return
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

    def list_page(self, bucket: Path, asked: dict[str, list[str]]) -> None:
        """A thousand keys of a bucket."""
        prefix, after = (asked.get(name, [""])[0] for name in ("prefix", "continuation-token"))
        sizes = sizes_in(bucket)
        keys = [key for key in sizes if key.startswith(prefix) and key > after]
        more = f"<NextContinuationToken>{keys[999]}</NextContinuationToken>" if keys[1000:] else ""
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{sizes[key]}</Size>"
            "<LastModified>2026-11-25T00:00:00.000Z</LastModified>"
            f'<ETag>"{sizes[key]}"</ETag></Contents>'
            for key in keys[:1000]
        )
        truncated = str(bool(more)).lower()
        answer = (
            f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{entries}"
            "</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


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
            os.environ.update(S3, AWS_ENDPOINT_URL=root)
            remote_segments(top / "tiers")


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


def write_tier(bucket: Path) -> None:
    """Segments of one record, an hour apart, in Aiven's layout without codec and keys."""
    directory = bucket / "t-AAAAAAAAAAAAAAAAAAAAAQ" / "0"
    directory.mkdir(parents=True)
    epochs = b"0\n1\n0 0\n"
    for at in range(SEGMENTS):
        moment = 1_700_000_000_000 + at * 3_600_000
        builder = BatchBuilder(base_offset=at)
        builder.append(value=bytes(1000), timestamp_ms=moment)
        log = bytes(builder.build().data)
        id_ = base64.urlsafe_b64encode((at + 1).to_bytes(16)).decode().rstrip("=")
        files = {"index": b"", "timeindex": moment.to_bytes(8) + bytes(4), "epochs": epochs}
        places = {"offset": (0, 0), "timestamp": (0, 12), "producerSnapshot": (12, 0)}
        places["leaderEpoch"] = (12, len(epochs))
        partition = {"topicId": "AAAAAAAAAAAAAAAAAAAAAQ"}
        partition |= {"topicPartition": {"topic": "t", "partition": 0}}  # type: ignore[dict-item]
        manifest = {
            "version": "1",
            "chunkIndex": {
                "type": "fixed",
                "originalChunkSize": CHUNK_BYTES,
                "originalFileSize": len(log),
                "transformedChunkSize": CHUNK_BYTES,
                "finalTransformedChunkSize": len(log),
            },
            "segmentIndexes": {
                name: dict(zip(("position", "size"), one, strict=True))
                for name, one in places.items()
            },
            "compression": False,
            "remoteLogSegmentMetadata": {
                "remoteLogSegmentId": {"topicIdPartition": partition, "id": id_},
                "startOffset": at,
                "endOffset": at,
                "maxTimestampMs": moment,
                "eventTimestampMs": moment,
                "brokerId": 1,
                "segmentLeaderEpochs": {"0": at},
            },
        }
        objects = {
            "log": log,
            "indexes": b"".join(files.values()),
            "rsm-manifest": json.dumps(manifest).encode(),
        }
        for extension, data in objects.items():
            (directory / f"{at:020d}-{id_}.{extension}").write_bytes(data)


def remote_segments(bucket: Path) -> None:
    """Print the time and the requests of `info` of a tier, and of a read of its last hour."""
    write_tier(bucket)
    url = f"s3://{bucket.name}"
    store = Store.of(url)
    assert not Tier.of(url).log("/none/t-0").faults  # also, the server lists its files
    rounds, requests = [], 0
    for _ in range(ROUNDS):
        tier, before = Tier.of(url), store.requests
        rounds.append(timed(lambda one=tier: describe(one, one.log("/none/t-0"))))  # type: ignore[misc]
        requests = store.requests - before
    clocks = sorted(clock for clock, _ in rounds)
    processor = statistics.median(each for _, each in rounds)
    print(
        f"info of {SEGMENTS} remote segments: {statistics.median(clocks):.2f} s, {clocks[0]:.2f} "
        f"to {clocks[-1]:.2f} s, processor {processor:.2f} s, {requests} requests"
    )
    since = 1_700_000_000_000 + (SEGMENTS - 1) * 3_600_000
    before = store.requests
    pieces = list(kseg.scan("/none/t-0", tier=tier, time=(since, None), columns=("offset",)))
    assert sum(map(len, pieces)) == 1
    print(f"a read of the last hour: {store.requests - before} requests beside these")


if __name__ == "__main__":
    main()
