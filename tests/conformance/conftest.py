"""Each vector becomes a test of its own, asked of both readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.logs import Logs
from tests.conformance.readers import READERS, Reader
from tests.verified import closes, verified  # noqa: F401

#: Test argument -> the list in records.json that it runs through.
LISTS = {
    "primitive": "primitives",
    "sequence_step": "sequence_arithmetic",
    "record_vector": "records",
    "canonical_vector": "records",
    "control_vector": "records",
    "negative_vector": "negative",
    "walk_vector": "file_walk",
    "vector07": "kafka07",
    "append_vector": "append",
    "down_convert_vector": "down_convert",
    "compaction_vector": "compaction",
}


@cache
def load(path: Path) -> dict[str, list[dict[str, Any]]]:
    return json.loads(path.read_text())


def vector_id(index: int, vector: dict[str, Any]) -> str:
    named = vector.get("name") or f"{vector.get('kind', vector.get('op'))}-{index}"
    return str(named).replace(" ", "-")


def is_canonical(vector: dict[str, Any]) -> bool:
    """Whether an encoder must come to the same bytes; compressed ones differ between libraries."""
    batches = vector["expect"]["batches"]
    return vector["canonical"] and all(batch["codec"] == "none" for batch in batches)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    path = Path(metafunc.config.getoption("--vectors")) / "records.json"
    for argument, name in LISTS.items():
        if argument in metafunc.fixturenames:
            vectors = load(path)[name]
            if argument == "canonical_vector":
                vectors = [vector for vector in vectors if is_canonical(vector)]
            if argument == "control_vector":
                vectors = [vector for vector in vectors if "control_record" in vector["expect"]]
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
