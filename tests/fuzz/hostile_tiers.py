"""Manifests and metadata logs that nobody wrote: `python -m tests.fuzz.hostile_tiers --cases 2000`.

Each case spoils one manifest of a tier, or some records of `__remote_log_metadata`, and reads and
verifies the partition. The answer is an error of kseg, findings, a warning, or the right records.
A batch of mutated records has a right checksum, so that the decoder gets them; some cases spoil raw
bytes. The process may have 2 GiB, and each case 2 seconds of the processor.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import resource
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import kseg
from kseg.analysis.info import describe
from kseg.analysis.verify import examine_tier
from kseg.errors import KsegError
from kseg.format.codec import zstd_library
from kseg.log.tier.tier import Tier
from tests import builders
from tests.fixture_archives import unpacked

MEMORY_BYTES_MAX: Final = 2 << 30
GROWTH_BYTES_MAX: Final = 192 << 20
SECONDS_MAX: Final = 2.0
#: Numbers at the borders of what formats and machines hold.
NUMBERS: Final = (-1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**70, -(2**63), 1.5, 1e308)
OTHERS: Final = ("", None, True, [], {}, "x" * 5_000, "../../etc/passwd", "/", "\0", [[[]]])
Rows = list[tuple[int, bytes | None]]


def spoilt_manifest(rng: random.Random, data: bytes) -> bytes:
    """A manifest with some of its values changed, or some of its bytes."""
    action = rng.randrange(8)
    if action == 0:
        return spoilt(rng, data)
    if action == 1:
        return b"[" * rng.choice((10, 10_000, 1_000_000)) + data
    root = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        spoil_tree(rng, root)
    if action == 2:
        root.setdefault("chunkIndex", {})
        if isinstance(root["chunkIndex"], dict):
            root["chunkIndex"] |= {"type": "variable", "transformedChunks": table(rng)}
    return json.dumps(root).encode()


def spoil_tree(rng: random.Random, root: Any) -> None:
    """Change, remove or add one value somewhere in a tree of JSON."""
    places: list[tuple[dict[str, Any], str]] = []
    pending = [root]
    while pending:
        here = pending.pop()
        if isinstance(here, dict):
            places += ((here, name) for name in here)
            pending += here.values()
    if not places:
        return
    inside, name = rng.choice(places)
    action = rng.randrange(5)
    if action == 0:
        del inside[name]
    elif action == 1 and isinstance(inside[name], int):
        inside[name] += rng.choice((-1, 1, 7, 1_000))
    elif action == 2 and isinstance(inside[name], str):
        inside[name] = spoilt(rng, inside[name].encode()).decode("latin-1")
    else:
        inside[name] = rng.choice(NUMBERS if rng.random() < 0.6 else OTHERS)


def table(rng: random.Random) -> str:
    """A table of chunks: some numbers, or a frame that claims ten gigabytes."""
    if rng.random() < 0.2:
        # Magic, a header with an eight-byte size and one segment, and no block.
        frame = bytes.fromhex("28b52ffde0") + (10 << 30).to_bytes(8, "little") + b"\x01\0\0"
        return base64.b64encode(frame).decode()
    count = rng.choice((0, 1, 2, 6, 2**31 - 1, 2**32 - 1))
    numbers = rng.randbytes(rng.choice((0, 4, 5, 9, 40)))
    return base64.b64encode(zstd_library().compress(count.to_bytes(4) + numbers)).decode()


def spoilt(rng: random.Random, data: bytes) -> bytes:
    """Bytes of which some are changed, left out, put in, or set to what ends varints late."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        action = rng.randrange(5)
        if action == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif action == 1:
            del found[at : at + rng.randint(1, 20)]
        elif action == 2:
            found[at:at] = rng.randbytes(rng.randint(1, 9))
        elif action == 3:
            found[at : at + 5] = b"\xff\xff\xff\xff\x0f"
        else:
            found[at : at + 8] = rng.choice((b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), bytes(8)))
    return bytes(found)


def spoil_log(rng: random.Random, path: Path, values: list[bytes | None]) -> None:
    """Write a metadata log with some of its records changed, twice there, left out or moved."""
    found = list(values)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(found))
        action = rng.randrange(6)
        if action == 0:
            found.insert(rng.randrange(len(found)), found[at])
        elif action == 1 and len(found) > 1:
            del found[at]
        elif action == 2:
            found[at] = rng.choice((None, b"", b"\x01\x00", b"\x01\x02\x00", rng.randbytes(40)))
        else:
            found[at] = spoilt(rng, found[at] or b"\0")
    records = [builders.record(value, timestamp=1) for value in found]
    data = builders.batch(records)
    path.write_bytes(data if rng.random() < 0.9 else spoilt(rng, data))


def rows(path: Path, tier: Tier) -> Rows:
    """Offsets and values of a partition."""
    return [
        (offset, None if value is None else bytes(value))
        for piece in kseg.scan(path, tier=tier, columns=("offset", "value"))
        for offset, value in zip(piece["offset"].tolist(), piece["value"], strict=True)
    ]


def answer(path: Path, tier: Callable[[], Tier], wanted: Rows) -> str:
    """What came of a case, in a word.

    Raises:
        AssertionError: records are missing or wrong, and nothing says so.
    """
    said = set()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found = rows(path, tier())
        except (KsegError, OSError) as error:
            assert str(error)  # noqa: PT017
            said.add("error")
        else:
            told = bool(warned)
            have = dict(wanted)
            assert all(have.get(offset) == value for offset, value in found), "wrong records"
            try:
                opened = tier()
                log = opened.log(path)
                describe(opened, log)
                findings = examine_tier(log, deep=False, now_ms=1 << 60).findings
            except (KsegError, OSError):
                findings = ("error",)  # type: ignore[assignment]
            told |= bool(findings)  # a copy that is not finished is one, too: "tier-orphan"
            assert told or found == wanted, f"{len(found)} of {len(wanted)} records, silently"
            said.add("told" if told else "right")
    return " ".join(sorted(said))


class Place:
    """A copy of a tier to spoil, and what is right of it."""

    def __init__(self, top: Path, case: str, *, local: bool) -> None:
        source = unpacked() / "tiered" / case
        shutil.copytree(source / "remote", top / "remote")
        keys = {one.name.partition(".")[0]: str(one) for one in source.glob("keys/*.private.pem")}
        self.tier = lambda: Tier.of(top / "remote", keys=keys)
        self.path = top / "local" / "plain-0"
        self.logs: list[tuple[Path, list[bytes | None]]] = []
        if local:
            shutil.copytree(source / "local", top / "local")
            for name in ("plain-0", "plain-1", "txn-0", "zstd-0", "remote-log-index-cache"):
                shutil.rmtree(top / "local" / name, ignore_errors=True)
            (top / "local" / "log-start-offset-checkpoint").unlink()
            for log in sorted((top / "local").glob("__remote*/*.log")):
                values = [value for _offset, value in _values(log)]
                if values:
                    self.logs.append((log, values))
        self.manifests = sorted((top / "remote").rglob("*.rsm-manifest"))
        mine = [one for one in self.manifests if "plain-" in str(one) and one.parent.name == "0"]
        self.manifests = mine
        self.wanted = rows(self.path, self.tier())


def _values(log: Path) -> Rows:
    return [
        (offset, None if value is None else bytes(value))
        for piece in kseg.scan(log, columns=("offset", "value"))
        for offset, value in zip(piece["offset"].tolist(), piece["value"], strict=True)
    ]


def spoil(rng: random.Random, place: Place) -> tuple[Path, bytes]:
    """Spoil one file of a place; returns the file, and what it had."""
    if place.logs:
        path, values = rng.choice(place.logs)
        before = path.read_bytes()
        spoil_log(rng, path, values)
    else:
        path = rng.choice(place.manifests)
        before = path.read_bytes()
        path.write_bytes(spoilt_manifest(rng, before))
    return path, before


def run(kind: str, cases: int, seed: int) -> Counter[str]:
    """Run cases of "manifests" or "metadata"; counts what came of them.

    Raises:
        AssertionError: a case took too long or too much memory, or was not told.
    """
    counts: Counter[str] = Counter()
    with TemporaryDirectory() as top:
        names = ("4.2.0-aiven-zstd", "4.2.0-aiven-zstd-encrypted", "4.2.0-aiven-chunked")
        places = [
            Place(Path(top, name), name, local=kind == "metadata")
            for name in (names if kind == "manifests" else names[:1])
        ]
        usual = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(cases):
            rng = random.Random(f"{seed}-{kind}-{number}")
            place = rng.choice(places)
            path, before = spoil(rng, place)
            started = time.process_time()
            try:
                counts[answer(place.path, place.tier, place.wanted)] += 1
                took = time.process_time() - started
                assert took < SECONDS_MAX, f"{took:.1f} s"
            except BaseException:
                print(f"{kind} {number} of seed {seed}: {path}\n{path.read_bytes()[:3_000]!r}")
                raise
            path.write_bytes(before)
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - usual)
        assert grown < GROWTH_BYTES_MAX, f"{grown} bytes more"
        print(f"{kind}: {cases} cases, {dict(counts)}, {grown >> 20} MiB more at the most")
    return counts


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    for kind in ("manifests", "metadata"):
        run(kind, given.cases, given.seed)


if __name__ == "__main__":
    main()
