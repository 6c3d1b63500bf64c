"""Batches written and checked, beside those who append a record at a time; all write the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import records, write_cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_writers_run_beside_builders_and_codecs(
    contest: Contest, run: Callable[[Contest], None]
) -> None:
    run(contest)


@pytest.mark.parametrize("by", ["columns", "lists", "builder"])
def test_kseg_writes_the_bytes_that_aiokafka_writes(by: str) -> None:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    from kseg.format.builder import BatchBuilder
    from kseg.format.encode import encode_batch
    from kseg.format.options import BatchOptions

    columns, rows = write_cases.sources()[0], write_cases.rows()[0]
    theirs = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for offset, (timestamp, key, value) in enumerate(rows):
        theirs.append(offset, timestamp, key, value, [])
    if by == "builder":
        builder = BatchBuilder(batch_bytes_max=1 << 30)
        for timestamp, key, value in rows:
            builder.append(key, value, timestamp_ms=timestamp)
        ours = builder.build()
    else:
        source = columns if by == "columns" else records.lists(columns)
        ours = encode_batch(source, BatchOptions())
    assert ours.data == bytes(theirs.build())
