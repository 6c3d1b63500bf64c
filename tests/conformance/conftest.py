"""Each vector becomes a test of its own, asked of both readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.logs import Logs
from tests.conformance.readers import READERS, Reader
from tests.verified import closes, verified  # noqa: F401

#: Test argument -> the file of vectors, and the list in it that the argument runs through.
LISTS = {
    "primitive": "records/primitives",
    "sequence_step": "records/sequence_arithmetic",
    "record_vector": "records/records",
    "canonical_vector": "records/records",
    "control_vector": "records/records",
    "negative_vector": "records/negative",
    "walk_vector": "records/file_walk",
    "vector07": "records/kafka07",
    "append_vector": "records/append",
    "down_convert_vector": "records/down_convert",
    "compaction_vector": "records/compaction",
    "file_name": "storage/file_names",
    "offset_name": "storage/offset_from_file_name",
    "directory_name": "storage/directory_names",
    "offset_index": "storage/offset_index",
    "time_index": "storage/time_index",
    "warm_section": "storage/warm_section",
    "txn_index": "storage/txn_index",
    "snapshot": "storage/producer_snapshot",
    "epoch_file": "storage/leader_epoch_checkpoint",
    "epoch_step": "storage/epoch_cache",
    "epoch_ends": "storage/end_offset_for",
    "offset_file": "storage/offset_checkpoint",
    "metadata": "storage/partition_metadata",
    "clean_shutdown": "storage/clean_shutdown",
    "indexing": "storage/append_indexing",
    "sizing": "storage/index_sizing",
    "roll": "storage/roll_decisions",
    "offset_vector": "storage/offset_index",
    "time_vector": "storage/time_index",
    "txn_vector": "storage/txn_index",
    "retention_size": "storage/retention_size",
    "step": "storage/sequence_arithmetic",
    "loaded": "storage/directories",
    "applied": "storage/directories",
    "directory_vector": "storage/directories",
    "internal_vector": "internal/vectors",
    "marker_vector": "internal/vectors",
}


@cache
def load(path: Path) -> dict[str, list[dict[str, Any]]]:
    return json.loads(path.read_text())


def vector_id(index: int, vector: dict[str, Any]) -> str:
    kind = vector.get("what", vector.get("kind", vector.get("op", vector.get("mode"))))
    named = vector.get("name") or f"{str(kind)[:40]}-{index}"
    return str(named).replace(" ", "-").replace(",", "")


def is_canonical(vector: dict[str, Any]) -> bool:
    """Whether an encoder must come to the same bytes; compressed ones differ between libraries."""
    batches = vector["expect"]["batches"]
    return vector["canonical"] and all(batch["codec"] == "none" for batch in batches)


def is_ours(vector: dict[str, Any]) -> bool:
    """Up to 3.9.0 an append had one index entry at most, which shows where it has many batches."""
    return vector["mode"] == "per_batch" or all(len(one) == 1 for one in vector["appends"])


#: Test argument -> whether it takes a vector of its list; others take all.
TAKES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "canonical_vector": is_canonical,
    "control_vector": lambda vector: "control_record" in vector["expect"],
    "indexing": is_ours,
    "loaded": lambda vector: vector["op"] == "load",
    "applied": lambda vector: vector["op"] == "load" and "error" not in vector,
    "directory_vector": lambda vector: "error" not in vector,
    "internal_vector": lambda vector: vector["topic"] != "control",
    "marker_vector": lambda vector: vector["topic"] == "control",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument in LISTS.keys() & set(metafunc.fixturenames):
        file, _, name = LISTS[argument].partition("/")
        vectors = load(Path(metafunc.config.getoption("--vectors")) / f"{file}.json")[name]
        vectors = [vector for vector in vectors if TAKES.get(argument, bool)(vector)]
        ids = [vector_id(index, vector) for index, vector in enumerate(vectors)]
        metafunc.parametrize(argument, vectors, ids=ids)


@pytest.fixture(params=READERS, ids=lambda reader: reader.name)
def reader(request: pytest.FixtureRequest) -> Reader:
    """The reference first: where it fails too, the vector or the test is wrong."""
    return request.param


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    """Logs that are let go of when the test ends."""
    made = Logs(tmp_path)
    yield made
    made.close()
