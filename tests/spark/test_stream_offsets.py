"""Offsets of a stream as Spark keeps them, and how much one micro-batch takes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kseg.spark.watching import Advance, Amount, Place, admit, offsets_document, places_of


def test_offsets_survive_json_in_the_order_of_names() -> None:
    given = {"t-1": Place(5), "t-0": Place(1200, 1000, 81920)}
    text = json.dumps(offsets_document(given))
    assert text == (
        '{"v": 1, "topics": {"t-0": {"offset": 1200, "segment": 1000, "pos": 81920}, '
        '"t-1": {"offset": 5, "segment": -1, "pos": 0}}}'
    )
    assert places_of(json.loads(text)) == given


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "version None"),
        ({"v": 2, "topics": {}}, "version 2"),
        ({"v": 1}, "no topics"),
        ({"v": 1, "topics": {"t-0": 5}}, "'t-0' is 5"),
        ({"v": 1, "topics": {"t-0": {"offset": 1, "segment": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": "1", "segment": 0, "pos": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": 2**63 + 1, "segment": 0, "pos": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": -5, "segment": 0, "pos": 0}}}, "'t-0'"),
        ({"v": 1, "topics": {"t-0": {"offset": True, "segment": 0, "pos": 0}}}, "'t-0'"),
    ],
)
def test_a_checkpoint_of_another_making_is_refused(
    document: Mapping[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        places_of(document)


def batches_of(sizes: Mapping[str, int], rows: int = 10):
    """Logs of so many batches, each of `rows` records and 100 bytes."""

    def advance(name: str, place: Place, limit: Amount, *, at_least: bool = True) -> Advance:
        there = sizes[name] - place.offset // rows
        fits = min(there, limit.rows // rows, limit.bytes // 100)
        fits = max(fits, min(there, int(at_least)))
        taken = Amount(fits * rows, fits * 100, int(fits > 0))
        return Advance(Place(place.offset + fits * rows), taken, at_end=fits == there)

    return advance


def admitted(sizes: Mapping[str, int], limit: Amount) -> dict[str, int]:
    starts = {name: Place(0) for name in sizes}
    ends = admit(starts, limit, batches_of(sizes))
    return {name: place.offset for name, place in ends.items()}


def test_without_a_limit_everything_is_taken() -> None:
    assert admitted({"a": 3, "b": 7}, Amount()) == {"a": 30, "b": 70}


@pytest.mark.parametrize("sizes", [(1, 9, 9), (9, 1, 9), (9, 9, 1)])
def test_a_limit_is_shared_and_what_one_does_not_need_goes_to_others(
    sizes: tuple[int, int, int],
) -> None:
    found = admitted(dict(zip("abc", sizes, strict=True)), Amount(rows=90))
    assert sum(found.values()) == 90
    assert sorted(found.values())[0] == 10
    assert sorted(found.values())[1] >= 30


@pytest.mark.parametrize("limit", [Amount(rows=1), Amount(bytes=1), Amount(rows=10)])
def test_one_batch_is_taken_even_if_it_is_more_than_the_limit(limit: Amount) -> None:
    assert sorted(admitted({"a": 5, "b": 5}, limit).values()) == [0, 10]


def test_a_limit_is_not_passed_once_there_is_something() -> None:
    assert sum(admitted({"a": 5, "b": 5, "c": 5}, Amount(rows=35)).values()) == 30
    assert admitted({"a": 9}, Amount(rows=35)) == {"a": 30}


def test_shares_below_a_batch_are_put_together() -> None:
    names = [f"t-{number}" for number in range(8)]
    assert sum(admitted(dict.fromkeys(names, 5), Amount(rows=40)).values()) == 40


def test_no_partition_waits_for_the_others_to_end() -> None:
    sizes = dict.fromkeys("abcde", 1000)
    places = {name: Place(0) for name in sizes}
    for _ in range(60):
        places = admit(places, Amount(rows=10), batches_of(sizes))
    assert min(place.offset for place in places.values()) > 0


def test_repeated_rounds_take_everything_in_the_end() -> None:
    sizes = {"a": 4, "b": 1, "c": 6}
    places = {name: Place(0) for name in sizes}
    rounds = 0
    while any(place.offset < 10 * sizes[name] for name, place in places.items()):
        places = admit(places, Amount(rows=25), batches_of(sizes))
        rounds += 1
    assert rounds <= 8


def test_segments_are_counted_too() -> None:
    starts = {"a": Place(0), "b": Place(0)}
    ends = admit(starts, Amount(segments=1), batches_of({"a": 2, "b": 2}))
    assert sorted(place.offset for place in ends.values()) == [0, 20]
