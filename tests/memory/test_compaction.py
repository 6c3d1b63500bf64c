"""Memory of a compaction is that of its map and of a stretch of the log, however large the log."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from kseg.constants import Compression
from kseg.format.encode import encode_batches
from kseg.format.options import BatchOptions
from tests.memory.capped import MIB, capped

MAP_BYTES = 4 * MIB
#: A stretch of the log, its records as columns, what becomes of them; several times over.
BESIDE = 32 * MIB
COMPACT = """
from pathlib import Path
directory = Path(path).parent
config = kseg.LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=-1)
with kseg.Log.open(directory, mode="append", config=config, recover=True) as log:
    log.roll()
    before = log.segments[0].size
    report = log.clean(force=True, map_bytes=%d)
    print(report.passes, before >> 20)
"""


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_log_much_larger_than_the_map_is_compacted_within_it(
    tmp_path: Path, codec: Compression
) -> None:
    path, count = tmp_path / "t-0" / f"{0:020}.log", 640_000
    path.parent.mkdir()
    filler = bytes(range(256))
    rows = {
        "offset": range(count),
        "key": tuple(b"%016d" % (number // 4) for number in range(count)),
        "value": tuple(filler[number % 156 :][:100] for number in range(count)),
    }
    with path.open("wb") as file:
        for batch in encode_batches(rows, BatchOptions(compression=codec)):
            file.write(batch.data)
    del rows
    printed = capped(COMPACT % MAP_BYTES, path, cap=MAP_BYTES + BESIDE, imports="kseg.log.cleaner")
    passes, mebibytes = map(int, printed.split())
    assert passes == 2
    assert codec or mebibytes > 2 * (MAP_BYTES + BESIDE) // MIB
    with kseg.Log.open(path.parent) as log:
        assert sum(len(piece) for piece in log.read(columns=("offset",))) == count // 4
