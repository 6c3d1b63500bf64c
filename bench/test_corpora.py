"""The generated logs are what they claim to be: others take them, and kseg reads the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench import datagen, peers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpora")


@pytest.fixture(params=datagen.NAMES)
def small(request: pytest.FixtureRequest, cache: Path) -> datagen.Corpus:
    return datagen.corpus(request.param, mib=1, under=cache)


def _sums(corpus: datagen.Corpus) -> tuple[int, int, int]:
    return corpus.records, corpus.offset_sum, corpus.timestamp_sum


def test_aiokafka_reads_every_record_and_accepts_every_crc(small: datagen.Corpus) -> None:
    count, offsets, times = peers.aiokafka_sums(small.log.read_bytes())
    assert (count, offsets, times % 2**63) == _sums(small)


def test_kafka_python_reads_every_record_and_accepts_every_crc(small: datagen.Corpus) -> None:
    assert peers.kafka_python_records(small.log.read_bytes()) == small.records


def test_kseg_reads_the_same_offsets_and_timestamps(small: datagen.Corpus) -> None:
    from kseg.log.segment.reader import Segment

    count, offsets, times = 0, 0, 0
    with Segment.open(small.log) as segment:
        for piece in segment.read(columns=("offset", "timestamp")):
            count += len(piece)
            offsets += int(np.sum(piece["offset"]))
            times += int(np.sum(piece["timestamp_ms"]))
    assert (count, offsets, times % 2**63) == _sums(small)


def test_same_name_gives_the_same_bytes(tmp_path: Path) -> None:
    name = "v2-zstd-100-16k"
    one = datagen.corpus(name, mib=1, under=tmp_path / "one")
    other = datagen.corpus(name, mib=1, under=tmp_path / "other")
    assert one.log.read_bytes() == other.log.read_bytes()
    assert one.index.read_bytes() == other.index.read_bytes()


def test_index_entries_point_at_batches_that_hold_their_offset(small: datagen.Corpus) -> None:
    data = small.log.read_bytes()
    for offset, position in np.frombuffer(small.index.read_bytes(), ">i4").reshape(-1, 2).tolist():
        base = int.from_bytes(data[position : position + 8])
        delta = int.from_bytes(data[position + 23 : position + 27]) if small.name[1] == "2" else 0
        assert base + delta == offset
