"""Memory of a read of an object does not grow with it: 64 MiB, and 32 MiB that are asked for.

Of a segment in chunks, those that are decoded come to it, each in three forms.

What counts is what the process holds at most, with the heaps of all threads, above what a read of
a small object has left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.log.tier import aiven
from kseg.workers import usable_cores
from tests.memory.capped import ALWAYS, MIB
from tests.memory.served import Repeated, serving
from tests.memory.tiers import CHUNK_BYTES, write_tier
from tests.shares import WHOLE

IN_FLIGHT = 32 * MIB
#: Those of the default run, and the others.
SIZE = 1024 * MIB if WHOLE else 256 * MIB
WORKS = {
    "verify": "assert run(['verify', url]) == 0",
    "scan": "assert sum(len(piece) for piece in kseg.scan(url)) > 1000",
    "read": "assert run(['read', '--jobs', '1', url]) == 0",
    # What Arrow takes for a row group is small here: all values are equal.
    "parquet": "kseg.scan(url).to_parquet(f'{out}/{len(os.listdir(out))}.parquet')",
}
CHILD = """
import os, sys
import numpy as np
import kseg, kseg.arrow, obstore, pyarrow.parquet
from kseg.cli.main import run

def peak():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024

def work(url, out=sys.argv[3]):
    WORK

told = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
work(sys.argv[1])
before = peak()
work(sys.argv[2])
os.write(told, str(peak() - before).encode())
"""


@pytest.fixture(scope="module")
def urls() -> Iterator[list[str]]:
    paths = [f"/{name}/{0:020d}.log" for name in ("small", "large")]
    with serving(dict(zip(paths, map(Repeated, (MIB, SIZE)), strict=True))) as root:
        yield [root + path for path in paths]


@pytest.mark.parametrize("work", WORKS if WHOLE else ["verify", "scan"])
def test_a_large_object_takes_no_more_than_a_small_one_and_what_is_in_flight(
    urls: list[str], tmp_path: Path, work: str
) -> None:
    assert taken_by(WORKS[work], *urls, str(tmp_path)) <= ALWAYS + IN_FLIGHT


def taken_by(work: str, small: str, large: str, more: str) -> int:
    command = [sys.executable, "-c", CHILD.replace("WORK", work), small, large, more]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    print(work, int(ran.stdout) // MIB)
    return int(ran.stdout)


TIERS = [(1, SIZE), (64, SIZE // 64)]


@pytest.mark.parametrize(("count", "size"), TIERS)
def test_a_tier_takes_no_more_however_many_segments_it_has(
    fixtures_dir: Path, tmp_path: Path, count: int, size: int
) -> None:
    case = fixtures_dir / "tiered" / "4.2.0-aiven-zstd-encrypted"
    path = next((case / "remote").rglob("*.rsm-manifest"))
    manifest = aiven.parse_manifest(path.read_bytes(), str(path))
    assert manifest.data_key is not None
    keys = {manifest.data_key[0]: str(case / f"keys/{manifest.data_key[0]}.private.pem")}
    key = aiven.data_key(manifest, keys, str(path))
    assert key is not None
    encryption = json.loads(path.read_text())["encryption"]
    records = [
        write_tier(tmp_path / name, *those, encryption=encryption, key=key)
        for name, those in (("small", (1, MIB)), ("large", (count, size)))
    ]
    work = f"""
    from kseg.log.tier import Tier
    scan = kseg.scan("/none/t-0", tier=Tier.of(url, keys={keys!r}), columns=("offset", "value"))
    assert sum(map(len, scan)) in {records}
"""
    taken = taken_by(work.strip(), str(tmp_path / "small"), str(tmp_path / "large"), "")
    assert taken <= ALWAYS + IN_FLIGHT + 3 * usable_cores() * CHUNK_BYTES
