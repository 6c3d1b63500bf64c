"""The questions of a reading: at which doors, under which names, and which exclude each other."""

from __future__ import annotations

import inspect
from pathlib import Path

import polars as pl
import pytest

import kseg
from kseg.records import query
from tests.builders import record, records_of, write_segment

PAIRS = {
    ("last", "limit"): {"last": 1, "limit": 2},
    ("schema", "subject"): {"schema": 1, "subject": "s", "decode": "registry"},
    ("schema", "schema_version"): {"schema": 1, "schema_version": 2, "decode": "registry"},
    **{(name,): {name: 1} for name in query.OF_SCHEMAS},
}


@pytest.mark.parametrize("function", [kseg.scan, kseg.dataset, kseg.grep])
def test_a_signature_has_every_question_with_its_type(function: object) -> None:
    assert callable(function)
    seen = inspect.signature(function).parameters
    assert [question.name for question in query.QUESTIONS if question.name not in seen] == []
    assert all(one.annotation is not inspect.Parameter.empty for one in seen.values())
    assert inspect.signature(kseg.dataset).return_annotation == "pyarrow.dataset.Dataset"


def test_every_door_has_every_question_or_a_reason() -> None:
    for question in query.QUESTIONS:
        assert question.name in query.QueryArgs.__annotations__
        for door in query.DOORS:
            has = {"python": True, "spark": bool(question.spark)}.get(door, bool(question.options))
            assert has or question.refusal(door), (question.name, door)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_pairs_are_refused_in_the_same_words_at_every_door(pair: tuple[str, ...]) -> None:
    told = set()
    for door in query.DOORS:
        with pytest.raises(ValueError, match=r"exclude each other|needs") as found:
            query.check(PAIRS[pair], door)
        text = str(found.value)
        for name in sorted((*pair, "decode"), key=len, reverse=True):
            text = text.replace(query.BY_NAME[name].spelled(door)[-1], name)
        told.add(text)
    assert len(told) == 1


def test_the_last_records_are_those_of_each_partition(tmp_path: Path) -> None:
    for number in range(3):
        parts = [records_of([record()] * 5, magic=2, base_offset=at) for at in range(0, 50, 5)]
        write_segment(tmp_path / f"t-{number}", 0, *parts)
    for options in ({}, {"threads": 2}, {"offset": (3, None)}, {"time": (None, 2**40)}):
        found = kseg.scan(tmp_path, last=7, **options)
        assert [row["offset"] for piece in found for row in piece] == [*range(43, 50)] * 3
    assert kseg.scan(tmp_path, last=0).count() == 0
    first = kseg.scan(tmp_path, last=7).lazy().filter(pl.col("offset") < 45).collect()
    assert first["offset"].to_list() == [43, 44] * 3
    kseg.scan(tmp_path / "t-0").to_parquet(tmp_path / "all.parquet")
    with pytest.raises(FileExistsError, match="the last 7 records"):
        kseg.scan(tmp_path / "t-0", last=7).to_parquet(tmp_path / "all.parquet")
